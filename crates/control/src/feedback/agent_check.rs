//! The director asks agents that speak HAProxy's agent-check, and does what HAProxy would do.
//!
//! What an agent does not say stays as it said it last: "50%" does not bring up what was "down". Unlike in HAProxy,
//! it does not stay for ever: when an agent has been silent for as long as a report is believed, the node is placed on as
//! configured. And what a node may hold is never raised above what is configured.

use std::net::SocketAddr;

use evener_feedback::agent_check::{Answer, LINE_BYTES_MAX, Mode, State};
use evener_model::{Event, Health, Report, Time, Weight};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::config;
use crate::director::Director;
use crate::feedback::asking::Useless;
use crate::feedback::refusal::Refusal;

/// What an agent has said so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Standing {
    allowance: Allowance,
    mode: Option<Mode>,
    state: Option<State>,
}

/// How much of what is configured a node is to get, as its agent said; `None`: all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// The weight, in percent of the configured one.
    percent: Option<u16>,
    /// Jobs at the most.
    pub(crate) jobs_max: Option<u32>,
}

impl Allowance {
    /// What is left of a weight.
    pub(crate) fn weight(&self, weight: Weight) -> Weight {
        let Some(percent) = self.percent else { return weight };
        // Any weight above 0 stays above 0, as in HAProxy.
        let scaled = (u64::from(weight.value()) * u64::from(percent)).div_ceil(100);
        Weight::new(scaled.min(Weight::MAX.value().into())).unwrap_or(Weight::MAX)
    }

    /// What is left of a limit of jobs.
    pub(crate) fn jobs_max(&self, configured: Option<u32>) -> Option<u32> {
        match (configured, self.jobs_max) {
            (Some(configured), Some(said)) => Some(configured.min(said)),
            (configured, said) => configured.or(said),
        }
    }
}

impl Standing {
    fn take(&mut self, answer: &Answer<'_>) {
        self.allowance.percent = answer.weight_percent.or(self.allowance.percent);
        self.allowance.jobs_max = answer.jobs_max.or(self.allowance.jobs_max);
        self.mode = answer.mode.or(self.mode);
        self.state = answer.state.or(self.state);
    }

    pub(super) fn allowance(&self) -> Allowance {
        self.allowance
    }

    fn health(&self) -> Health {
        let all = Answer {
            weight_percent: Some(self.allowance.percent.unwrap_or(100)),
            mode: self.mode,
            state: self.state,
            ..Answer::default()
        };
        all.health().unwrap_or(Health::FULL)
    }
}

/// Asks an agent once.
pub(super) async fn ask(
    check: &config::AgentCheck,
    node: SocketAddr,
    asked_at: Time,
    standing: &mut Standing,
) -> Result<Report, Useless> {
    let silent = |error: std::io::Error| Useless::new(Refusal::Silence, error);
    let mut stream = TcpStream::connect((node.ip(), check.port)).await.map_err(silent)?;
    stream.write_all(check.send.as_bytes()).await.map_err(silent)?;
    let mut line = Vec::with_capacity(64);
    loop {
        let mut part = [0; LINE_BYTES_MAX];
        let length = stream.read(&mut part).await.map_err(silent)?;
        line.extend_from_slice(&part[..length]);
        let answer = Answer::parse(&line, length == 0);
        if let Some(answer) = answer.map_err(|fault| Useless::new(Refusal::Form, fault))? {
            standing.take(&answer);
            return Ok(Report {
                measured_at: asked_at,
                health: Some(standing.health()),
                ..Report::default()
            });
        }
    }
}

impl Director {
    /// Gives a node so much of what is configured, until it is given otherwise.
    pub(super) fn allow(&self, pool: &str, node: &str, allowance: Allowance) {
        let mut state = self.state();
        let state = &mut *state;
        let Some(pool) = state.pools.get_mut(pool) else { return };
        let Some(known) = pool.nodes.iter_mut().find(|known| known.node.name == node) else { return };
        let before = (known.weight(), known.jobs_max());
        known.allowance = allowance;
        if known.weight() != before.0 {
            state.untold.push((pool.id, Event::Weight { node: known.id, weight: known.weight() }));
            self.reports_wait.notify_one();
        }
        if known.jobs_max() != before.1 {
            self.publish(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(answers: &[&str]) -> (u8, Option<u16>, Option<u32>) {
        let mut standing = Standing::default();
        for answer in answers {
            standing.take(&Answer::parse(answer.as_bytes(), true).unwrap().unwrap());
        }
        (standing.health().value(), standing.allowance.percent, standing.allowance.jobs_max)
    }

    #[test]
    fn what_is_not_said_stays_as_it_was_said_last() {
        assert_eq!(after(&["up"]), (100, None, None));
        assert_eq!(after(&["75% maxconn:30"]), (75, Some(75), Some(30)));
        assert_eq!(after(&["75%", "up"]), (75, Some(75), None));
        assert_eq!(after(&["down", "75%"]), (0, Some(75), None));
        assert_eq!(after(&["down", "75%", "up"]), (75, Some(75), None));
        assert_eq!(after(&["drain 50%", "up"]), (0, Some(50), None));
        assert_eq!(after(&["maint", "ready"]), (100, None, None));
        assert_eq!(after(&["0%"]), (0, Some(0), None));
        assert_eq!(after(&["200%"]), (100, Some(200), None));
    }

    #[test]
    fn weights_are_shares_of_what_is_configured_and_limits_are_never_raised() {
        let weight = |percent, of| {
            let allowance = Allowance { percent, jobs_max: None };
            allowance.weight(Weight::new(of).unwrap()).value()
        };
        assert_eq!(weight(None, 7), 7);
        assert_eq!(weight(Some(50), 100), 50);
        assert_eq!(weight(Some(1), 3), 1);
        assert_eq!(weight(Some(0), 3), 0);
        assert_eq!(weight(Some(150), 10), 15);
        assert_eq!(weight(Some(25_600), 100), 256);
        let jobs_max = |said, configured| Allowance { percent: None, jobs_max: said }.jobs_max(configured);
        assert_eq!(jobs_max(Some(30), None), Some(30));
        assert_eq!(jobs_max(Some(30), Some(20)), Some(20));
        assert_eq!(jobs_max(None, Some(20)), Some(20));
    }
}
