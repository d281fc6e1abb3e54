//! Keep-alives: when to send one, and when the peer is dead.

use std::time::Duration;

use evener_model::Time;

use crate::rng::Rng;

/// How often keep-alives are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rhythm {
    /// The time between two, on average.
    pub interval: Duration,
    /// By how much it may be longer or shorter, so that peers do not fall in step. At most the interval.
    pub jitter: Duration,
    /// So many in a row without an answer: the peer is dead.
    pub unanswered_max: u8,
}

impl Default for Rhythm {
    fn default() -> Rhythm {
        Rhythm { interval: Duration::from_secs(5), jitter: Duration::from_secs(1), unanswered_max: 3 }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Pulse {
    rhythm: Rhythm,
    pub(super) due: Time,
    /// Before that the next would be too early; `None`: none has been sent.
    earliest: Option<Time>,
    /// Those without an answer: request id, and when they were sent.
    asked: Vec<(u16, Time)>,
}

impl Pulse {
    pub(super) fn new(rhythm: Rhythm, now: Time) -> Pulse {
        let rhythm = Rhythm { unanswered_max: rhythm.unanswered_max.max(1), ..rhythm };
        Pulse { rhythm, due: now, earliest: None, asked: Vec::new() }
    }

    pub(super) fn change(&mut self, rhythm: Rhythm) {
        self.rhythm = Rhythm { unanswered_max: rhythm.unanswered_max.max(1), ..rhythm };
    }

    /// Whether the peer has left so many unanswered that no further one is to be sent.
    pub(super) fn is_dead(&self) -> bool {
        self.asked.len() >= usize::from(self.rhythm.unanswered_max)
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.asked.is_empty()
    }

    /// One was sent.
    pub(super) fn sent(&mut self, now: Time, id: u16, rng: &mut Rng) {
        self.asked.push((id, now));
        let Rhythm { interval, jitter, .. } = self.rhythm;
        let jitter = jitter.min(interval);
        let earliest = now + (interval - jitter);
        self.earliest = Some(earliest);
        self.due = earliest + rng.up_to(2 * jitter);
    }

    /// Whether one may go with what is sent anyhow: it is not too early, and nothing is unanswered.
    pub(super) fn may_join(&self, now: Time) -> bool {
        self.asked.is_empty() && self.earliest.is_some_and(|earliest| now >= earliest)
    }

    /// One went with the answer to the peer's. The next is to do so, too, if the peer sends its own in about the same
    /// rhythm: so it waits for that within the jitter.
    pub(super) fn joined(&mut self, rng: &mut Rng) {
        let jitter = self.rhythm.jitter.min(self.rhythm.interval);
        self.due = self.earliest.unwrap_or(self.due) + 2 * jitter - rng.up_to(jitter / 2);
    }

    /// One was answered: when it was asked, if it was.
    pub(super) fn answered(&mut self, id: u16) -> Option<Time> {
        let at = self.asked.iter().find(|(asked, _)| *asked == id).map(|(_, at)| *at);
        if at.is_some() {
            self.asked.clear();
        }
        at
    }
}
