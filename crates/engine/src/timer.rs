//! Deadlines: a timer wheel whose entries are moved lazily.
//!
//! Setting a deadline is a store. Only if the owner has no entry in the wheel, or one that is
//! too late, an entry goes in. An entry that fires before its owner's deadline is put back
//! at the deadline. So a connection whose deadline moves with every job costs the wheel nothing
//! in steady state, and an owner that comes to the same place later inherits the entry.

use std::time::Duration;

use evener_model::Time;

use crate::token::{Kind, Token};

/// A tick is 2^23 ns, 8.4 ms: timeouts are that exact.
const TICK_SHIFT: u32 = 23;
/// The wheel reaches 34 s ahead; later deadlines pass through it more than once.
const SLOTS: usize = 4096;

/// All deadlines of one worker.
#[derive(Debug)]
pub(crate) struct Timers {
    /// By kind and index of the owner.
    owners: [Vec<Owner>; Kind::COUNT],
    slots: Vec<Vec<Token>>,
    /// One bit a slot: whether it holds anything.
    occupied: [u64; SLOTS / 64],
    /// The next tick to be looked at. Ticks wrap around.
    next: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Owner {
    deadline: u32,
    /// The tick of the entry in the wheel.
    entry: u32,
    has_deadline: bool,
    has_entry: bool,
}

impl Timers {
    pub(crate) fn new(now: Time) -> Timers {
        Timers {
            owners: Default::default(),
            slots: vec![Vec::new(); SLOTS],
            occupied: [0; SLOTS / 64],
            next: tick(now),
        }
    }

    /// Sets the one deadline of `token` to `after` from now, instead of an earlier one.
    #[inline]
    pub(crate) fn set(&mut self, token: Token, now: Time, after: Duration) {
        // One tick more than asked for: a timeout may be late, never early.
        let deadline = tick(now + after).wrapping_add(1);
        let owners = &mut self.owners[token.kind() as usize];
        let index = token.index();
        if index >= owners.len() {
            owners.resize(index + 1, Owner::default());
        }
        let owner = &mut owners[index];
        owner.deadline = deadline;
        owner.has_deadline = true;
        if !owner.has_entry || is_before(deadline, owner.entry) {
            self.insert(token, deadline);
        }
    }

    /// Takes the deadline of `token` back.
    #[inline]
    pub(crate) fn clear(&mut self, token: Token) {
        if let Some(owner) = self.owners[token.kind() as usize].get_mut(token.index()) {
            owner.has_deadline = false;
        }
    }

    /// How long nothing can become due, or `None` if nothing ever will.
    pub(crate) fn wait(&self, now: Time) -> Option<Duration> {
        let start = self.next as usize % SLOTS;
        let ahead = (0..=SLOTS / 64).find_map(|step| {
            let word = (start / 64 + step) % (SLOTS / 64);
            let mut bits = self.occupied[word];
            if step == 0 {
                bits &= !0 << (start % 64);
            } else if step == SLOTS / 64 {
                bits &= !(!0 << (start % 64));
            }
            (bits != 0).then(|| (word * 64 + bits.trailing_zeros() as usize + SLOTS - start) % SLOTS)
        })?;
        let due = self.next.wrapping_add(ahead as u32);
        let ticks_left = due.wrapping_sub(tick(now)) as i32;
        if ticks_left <= 0 {
            return Some(Duration::ZERO);
        }
        let into_tick = now.as_nanos() & ((1 << TICK_SHIFT) - 1);
        Some(Duration::from_nanos(((ticks_left as u64) << TICK_SHIFT) - into_tick))
    }

    /// Appends to `due` the tokens whose deadline has passed; each deadline fires once.
    pub(crate) fn expire(&mut self, now: Time, due: &mut Vec<Token>) {
        let end = tick(now);
        while !is_before(end, self.next) {
            let at = self.next;
            let slot = at as usize % SLOTS;
            self.next = at.wrapping_add(1);
            if self.occupied[slot / 64] & (1 << (slot % 64)) == 0 {
                continue;
            }
            self.occupied[slot / 64] &= !(1 << (slot % 64));
            let mut entries = std::mem::take(&mut self.slots[slot]);
            for token in entries.drain(..) {
                let owner = &mut self.owners[token.kind() as usize][token.index()];
                if !owner.has_entry || owner.entry != at {
                    continue; // An earlier entry took this one's place.
                }
                owner.has_entry = false;
                if !owner.has_deadline {
                    continue;
                }
                if is_before(at, owner.deadline) {
                    let deadline = owner.deadline;
                    self.insert(token, deadline);
                } else {
                    owner.has_deadline = false;
                    due.push(token);
                }
            }
            if self.slots[slot].is_empty() {
                self.slots[slot] = entries;
            }
        }
    }

    fn insert(&mut self, token: Token, deadline: u32) {
        let horizon = self.next.wrapping_add(SLOTS as u32 - 1);
        let mut at = if is_before(horizon, deadline) { horizon } else { deadline };
        if is_before(at, self.next) {
            at = self.next;
        }
        let owner = &mut self.owners[token.kind() as usize][token.index()];
        owner.entry = at;
        owner.has_entry = true;
        let slot = at as usize % SLOTS;
        self.slots[slot].push(token);
        self.occupied[slot / 64] |= 1 << (slot % 64);
    }
}

fn tick(time: Time) -> u32 {
    (time.as_nanos() >> TICK_SHIFT) as u32
}

fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        // Near the end of the range of a tick, so that every test wraps around.
        Time::from_nanos(((u32::MAX as u64 - 100) << TICK_SHIFT) + ms * 1_000_000)
    }

    fn expired(timers: &mut Timers, at: u64) -> Vec<usize> {
        let mut due = Vec::new();
        timers.expire(ms(at), &mut due);
        due.iter().map(|token| token.index()).collect()
    }

    fn token(index: usize) -> Token {
        Token::new(Kind::HttpClient, index)
    }

    #[test]
    fn a_deadline_fires_once_and_never_early() {
        let mut timers = Timers::new(ms(0));
        timers.set(token(3), ms(0), Duration::from_millis(500));
        assert!(expired(&mut timers, 499).is_empty());
        assert_eq!(expired(&mut timers, 520), [3]);
        assert!(expired(&mut timers, 10_000).is_empty());
        assert_eq!(timers.wait(ms(10_000)), None);
    }

    #[test]
    fn a_deadline_that_moves_is_kept_to_whichever_way_it_moves() {
        let mut timers = Timers::new(ms(0));
        timers.set(token(0), ms(0), Duration::from_secs(1));
        timers.set(token(0), ms(0), Duration::from_secs(3));
        assert!(expired(&mut timers, 2_900).is_empty());
        timers.set(token(0), ms(2_900), Duration::from_millis(50));
        assert_eq!(expired(&mut timers, 2_970), [0]);
        assert!(expired(&mut timers, 4_000).is_empty());
    }

    #[test]
    fn a_deadline_beyond_the_wheel_is_reached() {
        let mut timers = Timers::new(ms(0));
        timers.set(token(1), ms(0), Duration::from_secs(3600));
        let mut now = 0;
        while let Some(wait) = timers.wait(ms(now)) {
            now += wait.as_millis() as u64 + 1;
            if !expired(&mut timers, now).is_empty() {
                break;
            }
        }
        assert!((3_600_000..3_600_050).contains(&now), "{now}");
    }

    #[test]
    fn what_is_cleared_does_not_fire() {
        let mut timers = Timers::new(ms(0));
        timers.set(token(0), ms(0), Duration::from_millis(100));
        timers.set(token(1), ms(0), Duration::from_millis(100));
        timers.clear(token(0));
        assert_eq!(expired(&mut timers, 200), [1]);
    }
}
