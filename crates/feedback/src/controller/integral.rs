//! The weight moves until the node's load is that of its peers.

use std::time::Duration;

use evener_model::{Health, Time};

use super::{FACTOR_MIN, Node, Settings};

/// When a factor has grown this many times, the load must have followed.
const STRETCH: f64 = 1.5;
/// By how much a load must have grown then, compared with its peers' loads. Half as much as the factor would
/// have been right for a node that has other work too.
const ANSWER: f64 = 1.1;
/// And at least by this: reports are rounded.
const ANSWER_MIN: f64 = 0.005;
/// How long the answer may take: loads are averages.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a node that did not answer rests, at first and at the most.
const REST: Duration = Duration::from_secs(60);
const REST_DOUBLINGS_MAX: u32 = 6;

/// Whether a node's load follows what it is given.
///
/// A node that gets more jobs must show more load. One that does not (its agent is frozen, lies, or measures
/// something else) would be given more and more. So when a factor has grown by half beyond the configured share without
/// an answer, what was given is taken back, and tried again after a rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Response {
    /// The factor and the load compared with the peers' from which growth is counted.
    anchor: Option<(f64, f64)>,
    state: State,
    rests: u32,
    /// Whether the factor may not grow.
    pub(super) held: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Free,
    /// Until then the load has time to follow.
    Waiting(Time),
    /// Until then the factor returns to where it was, and stays there.
    Resting(Time),
}

/// Where a factor may go.
enum Leave {
    Anywhere,
    NotUp,
    /// Back to this factor.
    Back(f64),
}

impl Response {
    pub(super) fn new() -> Response {
        Response { anchor: None, state: State::Free, rests: 0, held: false }
    }

    fn judge(&mut self, now: Time, factor: f64, relative: f64) -> Leave {
        // Up to its configured share a node needs no proof; of a small share its load would show none.
        if self.state == State::Free && factor <= 1.0 {
            self.anchor = None;
            return Leave::Anywhere;
        }
        let (from, before) = *self.anchor.get_or_insert((factor, relative));
        if relative >= before * ANSWER + ANSWER_MIN {
            // It answered: what comes next is counted from here.
            *self = Response { anchor: Some((factor, relative)), ..Response::new() };
            return Leave::Anywhere;
        }
        self.state = match self.state {
            State::Free if factor >= from * STRETCH => State::Waiting(now + PATIENCE),
            State::Waiting(until) if now >= until => {
                let rest = REST * (1 << self.rests.min(REST_DOUBLINGS_MAX));
                self.rests += 1;
                State::Resting(now + rest)
            }
            State::Resting(until) if now >= until => {
                self.anchor = Some((factor, relative));
                State::Free
            }
            state => state,
        };
        if self.state == State::Free && factor < from {
            self.anchor = Some((factor, relative));
        }
        self.held = self.state != State::Free;
        match self.state {
            State::Free => Leave::Anywhere,
            State::Waiting(_) => Leave::NotUp,
            State::Resting(_) => Leave::Back(from),
        }
    }
}

/// Moves the node at `place` by one report that came `interval_s` seconds after the one before.
pub(super) fn step(
    nodes: &mut [Node],
    place: usize,
    settings: &Settings,
    gain_per_s: f64,
    now: Time,
    interval_s: f64,
) {
    let Some(load) = weighed(&nodes[place], now, settings) else { return };
    let Some(target) = target(nodes, place, now, settings) else { return };
    let off = target - load;
    let step_max = settings.step_per_s_max * interval_s;
    let relative = if target > 0.0 { load / target } else { 1.0 };
    let node = &mut nodes[place];
    let leave = node.response.judge(now, node.factor, relative);
    let within_band = off > -settings.dead_band && off < settings.dead_band;
    let wanted = if within_band { 0.0 } else { gain_per_s * off * interval_s };
    let change = match leave {
        Leave::Anywhere => wanted,
        Leave::NotUp => wanted.min(0.0),
        Leave::Back(factor) => wanted.min(factor / node.factor - 1.0),
    };
    if change == 0.0 {
        return;
    }
    node.factor *= 1.0 + change.clamp(-step_max, step_max);
    bound(nodes, place, settings.odds_max, now, settings);
    normalise(nodes, now, settings);
}

/// The load of a node that takes jobs and is believed.
fn weighed(node: &Node, now: Time, settings: &Settings) -> Option<f64> {
    let signal = node.believed(now, settings.age_max)?;
    (signal.health != Health::NONE && node.configured.value() > 0).then_some(signal.load)
}

/// The load that the node at `place` should have: the mean of all whose load follows their
/// weight, its own too.
fn target(nodes: &[Node], place: usize, now: Time, settings: &Settings) -> Option<f64> {
    let (mut sum, mut peers) = (0.0, 0_u32);
    for (at, node) in nodes.iter().enumerate() {
        let Some(load) = weighed(node, now, settings) else { continue };
        if at == place || !node.response.held {
            sum += load;
            peers += 1;
        }
    }
    (peers > 1).then(|| sum / f64::from(peers))
}

/// Keeps the factor of the node at `place` within the odds that it may have against the others.
fn bound(nodes: &mut [Node], place: usize, odds_max: f64, now: Time, settings: &Settings) {
    let (mut factors, mut capacity) = (0.0, 0.0);
    for (_, node) in nodes.iter().enumerate().filter(|&(at, _)| at != place) {
        if weighed(node, now, settings).is_some() {
            factors += node.factor * node.capacity();
            capacity += node.capacity();
        }
    }
    if capacity > 0.0 {
        let most = odds_max * factors / capacity;
        nodes[place].factor = nodes[place].factor.min(most);
    }
}

/// Makes the factors 1 on average, weighted by capacity: they mean something relative to one another only,
/// and would drift together.
fn normalise(nodes: &mut [Node], now: Time, settings: &Settings) {
    let (mut factors, mut capacity) = (0.0, 0.0);
    for node in nodes.iter() {
        if weighed(node, now, settings).is_some() {
            factors += node.factor * node.capacity();
            capacity += node.capacity();
        }
    }
    let by = capacity / factors;
    for node in nodes.iter_mut() {
        if weighed(node, now, settings).is_some() {
            node.factor = (node.factor * by).max(FACTOR_MIN);
        }
    }
}
