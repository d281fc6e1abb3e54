//! What all nodes said last: each node gathers it, and a client asks one of them.

use std::collections::BTreeMap;
use std::time::Duration;

use evener_model::Time;

use crate::json::Said;
use crate::necp::Port;

/// The last reports of many nodes and their services.
#[derive(Clone, Debug)]
pub struct Gathered {
    age_max: Duration,
    reports_max: usize,
    /// By node and service, with the time of measuring.
    reports: BTreeMap<(String, Option<Port>), (Time, Said)>,
}

impl Gathered {
    /// Nothing yet. Reports are kept until they are so old, and as many.
    pub fn new(age_max: Duration, reports_max: usize) -> Gathered {
        Gathered { age_max, reports_max, reports: BTreeMap::new() }
    }

    /// Takes what a node said of itself at `now`. Says whether it is kept: it names its node, is newer than what is
    /// known, not too old, and there is room.
    pub fn insert(&mut self, now: Time, said: Said) -> bool {
        let Some(node) = said.node.clone() else { return false };
        let measured_at = now - Duration::from_millis(said.age_ms);
        if now.since(measured_at) >= self.age_max {
            return false;
        }
        let key = (node, said.service);
        match self.reports.get(&key) {
            Some((known, _)) if *known > measured_at => return false,
            None if self.reports.len() >= self.reports_max => {
                self.expire(now);
                if self.reports.len() >= self.reports_max {
                    return false;
                }
            }
            _ => {}
        }
        self.reports.insert(key, (measured_at, said));
        true
    }

    /// All that is believed at `now`, by node and service, with its age then.
    pub fn all(&mut self, now: Time) -> Vec<Said> {
        self.expire(now);
        let aged = self.reports.values().map(|(measured_at, said)| {
            let age_ms = u64::try_from(now.since(*measured_at).as_millis()).unwrap_or(u64::MAX);
            Said { age_ms, ..said.clone() }
        });
        aged.collect()
    }

    fn expire(&mut self, now: Time) {
        let age_max = self.age_max;
        self.reports.retain(|_, (measured_at, _)| now.since(*measured_at) < age_max);
    }
}
