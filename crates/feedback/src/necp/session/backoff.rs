use std::time::Duration;

use crate::rng::Rng;

/// How long to wait before connecting again: longer after each failure, and never as long as others that failed with us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The shortest wait.
    pub min: Duration,
    /// The longest wait.
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { min: Duration::from_secs(1), max: Duration::from_secs(256) }
    }
}

impl Backoff {
    /// The wait after `failures` before this one: between a time that doubles with each and twice that.
    pub(super) fn wait(&self, failures: u32, rng: &mut Rng) -> Duration {
        let doubled = self.min.saturating_mul(1 << failures.min(20));
        let least = doubled.min(self.max / 2).max(self.min);
        (least + rng.up_to(least)).min(self.max.max(self.min))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_differ() {
        let backoff = Backoff::default();
        let mut rng = Rng::new(1);
        for failures in 0..40 {
            let least = Duration::from_secs(1 << failures.min(7));
            let waits: Vec<_> = (0..100).map(|_| backoff.wait(failures, &mut rng)).collect();
            assert!(waits.iter().all(|wait| (least..=2 * least).contains(wait)), "{failures}: {waits:?}");
            assert!(waits.iter().any(|wait| *wait != waits[0]));
        }
    }
}
