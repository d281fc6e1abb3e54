//! What cannot be measured, for the log: told when it begins and when it ends, not with each sample.

use std::collections::BTreeMap;

use evener_load::Failure;
use tracing::{info, warn};

/// So many samples in a row must lack it: a source that is slow may just not have answered yet.
const SAMPLES: u32 = 3;

/// What has failed of late, and in how many samples in a row.
#[derive(Debug, Default)]
pub(crate) struct Failures(BTreeMap<String, u32>);

impl Failures {
    /// Takes what failed in a sample, and tells what is new.
    pub(crate) fn note(&mut self, failed: &[Failure]) {
        let (begun, ended) = self.changes(failed);
        for Failure { source, reason } in begun {
            warn!(source, reason, "cannot be measured");
        }
        for source in ended {
            info!(source, "is measured again");
        }
    }

    /// What has failed for so long that it is told, and what had and is there again.
    fn changes<'a>(&mut self, failed: &'a [Failure]) -> (Vec<&'a Failure>, Vec<String>) {
        let mut ended = Vec::new();
        self.0.retain(|source, count| {
            let fails = failed.iter().any(|failure| failure.source == *source);
            if !fails && *count >= SAMPLES {
                ended.push(source.clone());
            }
            fails
        });
        let mut begun = Vec::new();
        for failure in failed {
            let count = self.0.entry(failure.source.clone()).or_default();
            *count = count.saturating_add(1);
            if *count == SAMPLES {
                begun.push(failure);
            }
        }
        (begun, ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_when_it_lasts_and_when_it_ends() {
        let redis = Failure { source: "redis".into(), reason: "refused".into() };
        let one = std::slice::from_ref(&redis);
        let mut failures = Failures::default();
        let mut told = |failed| {
            let (begun, ended) = failures.changes(failed);
            (begun.len(), ended.len())
        };
        assert_eq!([told(one), told(one), told(&[])], [(0, 0); 3]);
        assert_eq!([told(one), told(one), told(one), told(one)], [(0, 0), (0, 0), (1, 0), (0, 0)]);
        assert_eq!([told(&[]), told(&[])], [(0, 1), (0, 0)]);
    }
}
