//! Disks: how many requests are under way, and how much of the time there was one.
//!
//! Reported, but not weighed unless it is asked for: what else a disk could do cannot be seen from what it does. One
//! that is busy all the time may still take many requests at once.

use std::time::Duration;

use evener_model::Time;

use super::Malformed;
use super::text::{integer, lines, words};

/// A line of `/proc/diskstats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters<'a> {
    /// The device's name.
    pub name: &'a str,
    /// Requests that were handed to the device and are not done.
    pub in_flight: u64,
    /// Time in which there was a request, since the device came up.
    pub busy: Duration,
}

/// Reads `/proc/diskstats`.
///
/// # Errors
/// [`Malformed`], in place of a line that has fewer than the fourteen fields of Linux 2.6.
pub fn parse(text: &[u8]) -> impl Iterator<Item = Result<Counters<'_>, Malformed>> {
    lines(text).map(|line| counters(line).ok_or(Malformed("/proc/diskstats")))
}

fn counters(line: &[u8]) -> Option<Counters<'_>> {
    let mut words = words(line).skip(2);
    let name = std::str::from_utf8(words.next()?).ok()?;
    let in_flight = integer(words.nth(8)?)?;
    let busy = Duration::from_millis(integer(words.next()?)?);
    words.next()?;
    Some(Counters { name, in_flight, busy })
}

/// What a disk does.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Disk {
    /// The device's name.
    pub name: String,
    /// Requests under way.
    pub in_flight: u64,
    /// The share of the time since the last look in which there was one, 0–1; `None` at the first.
    pub busy: Option<f64>,
}

/// Remembers the last look.
#[derive(Clone, Debug, Default)]
pub struct Disks {
    last: Vec<(String, Duration)>,
    then: Option<Time>,
}

impl Disks {
    /// Takes a look at the disks that `is_meant` names.
    ///
    /// # Errors
    /// [`Malformed`]; what was remembered stays.
    pub fn look(
        &mut self,
        now: Time,
        text: &[u8],
        mut is_meant: impl FnMut(&str) -> bool,
    ) -> Result<Vec<Disk>, Malformed> {
        let mut disks = Vec::with_capacity(self.last.len());
        let mut seen = Vec::with_capacity(self.last.len());
        for counters in parse(text) {
            let counters = counters?;
            if !is_meant(counters.name) {
                continue;
            }
            let span = self.then.map_or(0.0, |then| now.since(then).as_secs_f64());
            let last = self.last.iter().find(|(name, _)| name == counters.name);
            let busy = last.filter(|_| span > 0.0).map(|(_, busy)| {
                // A disk of the same name that has done less is another one.
                (counters.busy.saturating_sub(*busy).as_secs_f64() / span).min(1.0)
            });
            disks.push(Disk { name: counters.name.into(), in_flight: counters.in_flight, busy });
            seen.push((counters.name.into(), counters.busy));
        }
        self.last = seen;
        self.then = Some(now);
        Ok(disks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISKSTATS: &[u8] = include_bytes!("../../tests/fixtures/host/proc/diskstats");

    #[test]
    fn disks_are_read_as_the_kernel_writes_them() {
        let all: Vec<_> = parse(DISKSTATS).collect::<Result<_, _>>().expect("it comes from a kernel");
        let disk = all.iter().find(|disk| disk.name == "vda").expect("this machine has one");
        assert_eq!((disk.in_flight, disk.busy), (0, Duration::from_millis(148_004)));
        assert_eq!(all.len(), 10);
        assert_eq!(parse(b"254 0 vda 1 2 3 4 5 6 7 8 9\n").next(), Some(Err(Malformed("/proc/diskstats"))));
    }

    #[test]
    fn busy_is_the_share_since_the_last_look() {
        let mut disks = Disks::default();
        let mut look = |second, busy_ms: u64| {
            let text =
                format!("8 0 sda 1 0 8 1 1 0 8 1 3 {busy_ms} 2\n8 1 sda1 1 0 8 1 1 0 8 1 3 {busy_ms} 2\n");
            let now = Time::ZERO + Duration::from_secs(second);
            let found = disks.look(now, text.as_bytes(), |name| name == "sda").expect("valid");
            assert_eq!((found.len(), found[0].in_flight), (1, 3));
            found[0].busy
        };
        assert_eq!(look(1, 500), None);
        assert_eq!(look(3, 1500), Some(0.5));
        assert_eq!(look(4, 3000), Some(1.0), "the kernel counts in ticks and may be ahead");
        assert_eq!(look(5, 0), Some(0.0));
    }
}
