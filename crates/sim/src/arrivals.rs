//! When jobs come.

use std::sync::Arc;
use std::time::Duration;

use crate::random::Random;
use crate::scenario::{Arrivals, Trace};

/// Jobs that come at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    pub(crate) at_nanos: u64,
    pub(crate) jobs: u32,
}

/// Gives the batches of an open system in order.
#[derive(Debug)]
pub(crate) struct Source {
    kind: Kind,
    /// Not rounded, so that gaps do not add up to a wrong rate.
    now_nanos: f64,
    random: Random,
}

#[derive(Debug)]
enum Kind {
    /// Gaps exponential.
    Poisson {
        gap_nanos: f64,
        jobs: u32,
    },
    Even {
        gap_nanos: f64,
    },
    OnOff {
        gaps_nanos: [f64; 2],
        stays_nanos: [f64; 2],
        state: usize,
        until_nanos: f64,
    },
    Trace {
        trace: Arc<Trace>,
        next: usize,
    },
    /// Clients ask when they are ready.
    Closed,
}

impl Source {
    pub(crate) fn new(arrivals: &Arrivals, mut random: Random) -> Source {
        let gap = |rate: f64| if rate > 0.0 { 1e9 / rate } else { f64::INFINITY };
        let kind = match arrivals {
            Arrivals::Poisson { rate } => Kind::Poisson { gap_nanos: gap(*rate), jobs: 1 },
            Arrivals::Bursts { rate, burst } => {
                Kind::Poisson { gap_nanos: gap(*rate) * f64::from(*burst), jobs: *burst }
            }
            Arrivals::Even { rate } => Kind::Even { gap_nanos: gap(*rate) },
            Arrivals::OnOff { rate, peak, on, off } => {
                let (on, off) = (on.as_nanos() as f64, off.as_nanos() as f64);
                let high = rate * peak;
                let low = (rate * (on + off) - high * on) / off;
                let until_nanos = on * random.exponential();
                Kind::OnOff {
                    gaps_nanos: [gap(high), gap(low)],
                    stays_nanos: [on, off],
                    state: 0,
                    until_nanos,
                }
            }
            Arrivals::Closed { .. } => Kind::Closed,
            Arrivals::Trace(trace) => Kind::Trace { trace: Arc::clone(trace), next: 0 },
        };
        Source { kind, now_nanos: 0.0, random }
    }

    /// The next batch; `None` if there is no other.
    pub(crate) fn next(&mut self) -> Option<Batch> {
        let jobs = match &mut self.kind {
            Kind::Poisson { gap_nanos, jobs } => {
                self.now_nanos += *gap_nanos * self.random.exponential();
                *jobs
            }
            Kind::Even { gap_nanos } => {
                self.now_nanos += *gap_nanos;
                1
            }
            Kind::OnOff { gaps_nanos, stays_nanos, state, until_nanos } => {
                // The exponential has no memory: where the state ends first, the gap begins anew there.
                loop {
                    let at = self.now_nanos + gaps_nanos[*state] * self.random.exponential();
                    if at <= *until_nanos {
                        self.now_nanos = at;
                        break;
                    }
                    self.now_nanos = *until_nanos;
                    *state = 1 - *state;
                    *until_nanos += stays_nanos[*state] * self.random.exponential();
                }
                1
            }
            Kind::Trace { trace, next } => {
                let at_nanos = *trace.at_nanos.get(*next)?;
                *next += 1;
                return Some(Batch { at_nanos, jobs: 1 });
            }
            Kind::Closed => return None,
        };
        self.now_nanos.is_finite().then_some(Batch { at_nanos: self.now_nanos as u64, jobs })
    }
}

impl Arrivals {
    /// Jobs a second on average; `None` for clients that wait for answers.
    pub fn rate(&self) -> Option<f64> {
        match self {
            Arrivals::Poisson { rate }
            | Arrivals::Even { rate }
            | Arrivals::Bursts { rate, .. }
            | Arrivals::OnOff { rate, .. } => Some(*rate),
            Arrivals::Closed { .. } => None,
            Arrivals::Trace(trace) => {
                let last = *trace.at_nanos.last()?;
                Some(trace.at_nanos.len() as f64 / Duration::from_nanos(last.max(1)).as_secs_f64())
            }
        }
    }

    /// The same at another rate: of a trace, the gaps are scaled; clients that wait stay as they are.
    pub fn at_rate(&self, to: f64) -> Arrivals {
        let mut arrivals = self.clone();
        match &mut arrivals {
            Arrivals::Poisson { rate }
            | Arrivals::Even { rate }
            | Arrivals::Bursts { rate, .. }
            | Arrivals::OnOff { rate, .. } => *rate = to,
            Arrivals::Closed { .. } => {}
            Arrivals::Trace(trace) => {
                if let Some(from) = self.rate() {
                    let mut scaled = Trace::clone(trace);
                    for at in &mut scaled.at_nanos {
                        *at = (*at as f64 * from / to) as u64;
                    }
                    *trace = Arc::new(scaled);
                }
            }
        }
        arrivals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_keeps_its_rate() {
        let s = Duration::from_secs;
        let kinds = [
            Arrivals::Poisson { rate: 100.0 },
            Arrivals::Even { rate: 100.0 },
            Arrivals::Bursts { rate: 100.0, burst: 4 },
            Arrivals::OnOff { rate: 100.0, peak: 3.0, on: s(1), off: s(3) },
            Arrivals::OnOff { rate: 100.0, peak: 4.0, on: s(1), off: s(3) },
        ];
        for kind in kinds {
            let mut source = Source::new(&kind, Random::new(5, 1));
            let (mut jobs, mut seconds) = (0_u64, 0.0);
            while jobs < 2_000_000 {
                let batch = source.next().unwrap();
                jobs += u64::from(batch.jobs);
                seconds = batch.at_nanos as f64 / 1e9;
            }
            assert!(
                (jobs as f64 / seconds / 100.0 - 1.0).abs() < 0.05,
                "{kind:?}: {}",
                jobs as f64 / seconds
            );
        }
    }
}
