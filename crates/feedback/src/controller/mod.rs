//! Weights that follow what nodes report.
//!
//! A [`Controller`] holds for each node of a pool a *factor*: what its weight is to be, relative
//! to the configured one. A [`Law`] moves the factors with each report; [`Controller::weights`] turns them into
//! weights. Whatever the law, these hold:
//!
//! - A node that says it must get nothing (health 0) has weight 0 at once, and one that says anything else at
//!   least 1. When too few nodes would be left, refusals are not followed.
//! - A node that is silent for longer than reports are believed has its configured share of the pool,
//!   neither rewarded nor punished. When all are silent, all weights are in proportion to the configured ones.
//! - A weight moves no faster than the step limit.
//! - Weights that are off by less than the dead band stay.
//! - A node on which jobs pile up has no more than its configured share, if the driver says what it has counted:
//!   [`Controller::counted`].
//!
//! Only additions, multiplications and divisions: the same reports at the same times give the same weights
//! on every machine.
//!
//! ```
//! use evener_feedback::controller::{Controller, Settings};
//! use evener_model::{NodeId, Report, Time, Weight};
//!
//! let (rat, mole) = (NodeId(0), NodeId(1));
//! let mut controller = Controller::new(Settings::default(), &[(rat, Weight::DEFAULT), (mole, Weight::DEFAULT)]);
//! let mut weights = Vec::new();
//! for second in 1..=20 {
//!     let now = Time::from_nanos(second * 1_000_000_000);
//!     for (node, load) in [(rat, 0.9), (mole, 0.3)] {
//!         let report = Report { measured_at: now, load: Some(load), ..Report::default() };
//!         controller.reported(now, node, &report)?;
//!     }
//!     controller.weights(now, &mut weights);
//! }
//! assert!(weights[0].1 < weights[1].1);
//! # Ok::<(), evener_feedback::controller::Ignored>(())
//! ```

mod crowd;
mod integral;
mod settings;
mod smoothing;

use std::time::Duration;

use evener_model::{Health, NodeId, Report, Time, Weight};
use thiserror::Error;

pub use settings::{Law, Settings};

/// The longest time between two reports of a node for which it may move: after a long silence
/// a weight does not jump.
const INTERVAL_MAX: Duration = Duration::from_secs(2);
/// Loads above this are taken as this: how far beyond its capacity a node is says nothing more.
const LOAD_MAX: f64 = 2.0;
/// The weight that the node of the largest configured weight gets for a factor of 1, if that weight is below it: fine
/// enough to move by a hundredth. With equal nodes and smoothing, a weight is then the smoothed health.
const FULL_SCALE: f64 = 100.0;
/// Factors that move by themselves go no lower: one that did would be slow to come back.
const FACTOR_MIN: f64 = 1.0 / 64.0;

/// Why a report was not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Ignored {
    /// The pool has no such node.
    #[error("report of an unknown node")]
    Unknown,
    /// It was measured before what is known already, or longer ago than reports are believed.
    #[error("report older than what is known or believed")]
    Old,
    /// It holds neither a load nor a health.
    #[error("report without load and health")]
    Empty,
    /// Its load is negative or not a number.
    #[error("report of an impossible load")]
    Impossible,
}

/// How a node stands with its controller, to be shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// The configured weight.
    pub configured: Weight,
    /// The present weight, as [`Controller::weights`] last gave it.
    pub weight: Weight,
    /// The load it last reported, 0 idle, 1 all of its capacity; `None`: it never reported.
    pub load: Option<f64>,
    /// The health it last reported, or that follows from its load.
    pub health: Option<Health>,
    /// When that was measured.
    pub measured_at: Option<Time>,
    /// Whether the weight may not grow, because the load did not follow what the node got more: it has not
    /// answered for what it was given already.
    pub held: bool,
    /// Until when it has no more than its configured share, because jobs have piled up there.
    pub refuted_until: Option<Time>,
}

/// The weights of a pool's nodes, as their reports would have them.
#[derive(Clone, Debug)]
pub struct Controller {
    settings: Settings,
    /// By id.
    nodes: Vec<Node>,
    /// When counts are next looked at.
    look_at: Time,
}

/// What is known of a node.
#[derive(Clone, Debug)]
struct Node {
    id: NodeId,
    configured: Weight,
    signal: Option<Signal>,
    /// When a report last moved the node.
    moved_at: Option<Time>,
    /// What the law holds for the node, 1 for the configured weight.
    smoothed: f64,
    /// The factor of the weight, 1 for the configured weight.
    factor: f64,
    response: integral::Response,
    crowd: crowd::Crowd,
    weight: Weight,
}

/// What the last report said.
#[derive(Clone, Copy, Debug)]
struct Signal {
    measured_at: Time,
    load: f64,
    health: Health,
}

impl Node {
    fn new(id: NodeId, configured: Weight) -> Node {
        Node {
            id,
            configured,
            signal: None,
            moved_at: None,
            smoothed: 1.0,
            factor: 1.0,
            response: integral::Response::new(),
            crowd: crowd::Crowd::default(),
            weight: configured,
        }
    }

    fn capacity(&self) -> f64 {
        f64::from(self.configured.value())
    }

    /// What the node said, if it is still believed.
    fn believed(&self, now: Time, age_max: Duration) -> Option<Signal> {
        self.signal.filter(|signal| now.since(signal.measured_at) < age_max)
    }

    /// The health it last reported, 0–1.
    fn health(&self) -> f64 {
        self.signal.map_or(1.0, |signal| f64::from(signal.health.value()) / 100.0)
    }

    fn forget(&mut self) {
        (self.smoothed, self.factor, self.moved_at) = (1.0, 1.0, None);
        self.response = integral::Response::new();
    }
}

impl Controller {
    /// A controller of `nodes` with their configured weights, of which nothing is known.
    pub fn new(settings: Settings, nodes: &[(NodeId, Weight)]) -> Controller {
        let settings = settings.bounded();
        let mut controller = Controller { settings, nodes: Vec::new(), look_at: Time::ZERO };
        controller.configure(nodes);
        controller
    }

    /// Takes other settings. What is known of the nodes is kept.
    pub fn reconfigure(&mut self, settings: Settings) {
        self.settings = settings.bounded();
    }

    /// How reports become weights.
    pub fn law(&self) -> Law {
        self.settings.law
    }

    /// Says which nodes there are now, with their configured weights. What is known of nodes that stay is kept.
    pub fn configure(&mut self, nodes: &[(NodeId, Weight)]) {
        let mut known = std::mem::take(&mut self.nodes);
        self.nodes = nodes
            .iter()
            .map(|&(id, configured)| {
                let Ok(place) = known.binary_search_by_key(&id, |node| node.id) else {
                    return Node::new(id, configured);
                };
                let mut node = Node::new(id, configured);
                std::mem::swap(&mut node, &mut known[place]);
                Node { configured, ..node }
            })
            .collect();
        self.nodes.sort_by_key(|node| node.id);
        self.nodes.dedup_by_key(|node| node.id);
    }

    /// Takes what `node` said. The load steers, if it said one, else what its health says of it; with
    /// [`Law::Smoothing`] the health does, if it said one.
    ///
    /// O(nodes), no allocation.
    ///
    /// # Errors
    /// Why the report was [`Ignored`]; nothing changed then.
    pub fn reported(&mut self, now: Time, node: NodeId, report: &Report) -> Result<(), Ignored> {
        let place = self.nodes.binary_search_by_key(&node, |node| node.id).map_err(|_| Ignored::Unknown)?;
        let signal = signal(now, report)?;
        let age_max = self.settings.age_max;
        if now.since(signal.measured_at) >= age_max {
            return Err(Ignored::Old);
        }
        let node = &mut self.nodes[place];
        if node.signal.is_some_and(|known| known.measured_at > signal.measured_at) {
            return Err(Ignored::Old);
        }
        if node.believed(now, age_max).is_none() {
            node.forget();
        }
        node.signal = Some(signal);
        // The first report after silence is one to start from: it lasted for no known time.
        let interval = node.moved_at.map_or(Duration::ZERO, |at| signal.measured_at.since(at));
        node.moved_at = Some(signal.measured_at);
        let interval_s = interval.min(INTERVAL_MAX).as_secs_f64();
        match self.settings.law {
            Law::Off => {}
            Law::Smoothing { alpha } => {
                smoothing::step(node, &self.settings, alpha, signal.health, interval_s)
            }
            Law::Integral { gain_per_s } => {
                integral::step(&mut self.nodes, place, &self.settings, gain_per_s, now, interval_s);
            }
        }
        Ok(())
    }

    /// Says how many jobs are in flight on each node, as whoever places them counts them: a weight that reports have made
    /// grow is taken back where jobs pile up. To be called now and then, such as before [`Controller::weights`]; looks
    /// once a second.
    ///
    /// Where four times as many jobs are in flight for a node's weight as on the others, it has its configured
    /// share at the most for 10 s, the next time for 20 s, and so on. Whoever is not asked this is not protected from nodes
    /// that say they are idle, except as [`Law`] and [`Settings::odds_max`] do.
    ///
    /// O(nodes), no allocation.
    pub fn counted(&mut self, now: Time, jobs: impl Fn(NodeId) -> u32) {
        if now < self.look_at {
            return;
        }
        self.look_at = now + crowd::LOOK_EVERY;
        crowd::look(&mut self.nodes, now, jobs);
        if self.settings.law == Law::Off {
            return;
        }
        let neutral = self.neutral(now);
        for node in self.nodes.iter_mut().filter(|node| node.crowd.is_refuted(now)) {
            node.factor = node.factor.min(neutral);
        }
    }

    /// Goes on from weights that another controller of the pool had come to, such as that of a director that is gone:
    /// only their proportions count. Nodes that have not reported yet, or refuse, stay as they are.
    ///
    /// O(nodes · log nodes).
    pub fn resume(&mut self, now: Time, weights: &[(NodeId, Weight)]) {
        let mut found: Vec<(usize, f64)> = Vec::with_capacity(weights.len());
        for &(id, weight) in weights.iter().filter(|(_, weight)| *weight != Weight::DRAIN) {
            let Ok(place) = self.nodes.binary_search_by_key(&id, |node| node.id) else { continue };
            let node = &self.nodes[place];
            let takes = node.believed(now, self.settings.age_max).is_some_and(|it| it.health != Health::NONE);
            if takes && node.configured != Weight::DRAIN {
                found.push((place, f64::from(weight.value()) / node.capacity()));
            }
        }
        let sum = |of: &dyn Fn(&Node, f64) -> f64| -> f64 {
            found.iter().map(|&(place, ratio)| of(&self.nodes[place], ratio)).sum()
        };
        let weights = sum(&|node, ratio| ratio * node.capacity());
        // The mean of a law's factors: that of health, or 1.
        let (mean, most) = match self.settings.law {
            Law::Off => return,
            Law::Smoothing { .. } => (sum(&|node, _| node.health() * node.capacity()), 1.0),
            Law::Integral { .. } => (sum(&|node, _| node.capacity()), self.settings.odds_max),
        };
        for (place, ratio) in found {
            let node = &mut self.nodes[place];
            node.factor = within(ratio * mean / weights, FACTOR_MIN, most);
            node.smoothed = node.factor;
            node.response = integral::Response::new();
        }
    }

    /// The weights as of `now`, into `weights` (which is cleared), by node id.
    ///
    /// With [`Law::Off`] they are in the configured scale; with the others in a finer one, the same for all nodes:
    /// they mean something relative to one another only. What was not drained by configuration or refusal
    /// is at least 1.
    ///
    /// O(nodes²) at the worst, O(nodes) mostly.
    pub fn weights(&mut self, now: Time, weights: &mut Vec<(NodeId, Weight)>) {
        weights.clear();
        let age_max = self.settings.age_max;
        for node in &mut self.nodes {
            if node.believed(now, age_max).is_none() {
                node.forget();
            }
        }
        let refusals = self.follows_refusals(now);
        let neutral = self.neutral(now);
        let scale = self.scale(now, neutral);
        for node in &mut self.nodes {
            let signal = node.believed(now, age_max);
            let refuses = refusals && signal.is_some_and(|signal| signal.health == Health::NONE);
            node.weight = if node.configured == Weight::DRAIN || refuses {
                Weight::DRAIN
            } else if self.settings.law == Law::Off {
                node.configured
            } else {
                match signal {
                    Some(_) => {
                        let most = if node.crowd.is_refuted(now) { neutral } else { f64::INFINITY };
                        settled(node.weight, node.capacity() * node.factor.min(most) * scale)
                    }
                    None => nearest(node.capacity() * neutral * scale),
                }
            };
            weights.push((node.id, node.weight));
        }
    }

    /// How a node stands.
    pub fn standing(&self, node: NodeId) -> Option<Standing> {
        let place = self.nodes.binary_search_by_key(&node, |node| node.id).ok()?;
        let node = &self.nodes[place];
        Some(Standing {
            configured: node.configured,
            weight: node.weight,
            load: node.signal.map(|signal| signal.load),
            health: node.signal.map(|signal| signal.health),
            measured_at: node.signal.map(|signal| signal.measured_at),
            held: node.response.held,
            refuted_until: node.crowd.refuted_until(),
        })
    }

    /// When the next report ages out, if there is one: until then weights change only with reports.
    pub fn next_expiry(&self, now: Time) -> Option<Time> {
        let believed = self.nodes.iter().filter_map(|node| node.believed(now, self.settings.age_max));
        believed.map(|signal| signal.measured_at + self.settings.age_max).min()
    }

    /// Whether enough nodes take jobs that those that refuse them can be spared.
    fn follows_refusals(&self, now: Time) -> bool {
        let configured = self.nodes.iter().filter(|node| node.configured != Weight::DRAIN);
        let (mut all, mut willing) = (0, 0);
        for node in configured {
            let signal = node.believed(now, self.settings.age_max);
            all += 1;
            willing += usize::from(signal.is_none_or(|signal| signal.health != Health::NONE));
        }
        willing * 100 >= all * usize::from(self.settings.panic_percent)
    }

    /// The factor that leaves a node its configured share: what the believed nodes have on average.
    fn neutral(&self, now: Time) -> f64 {
        let (mut factors, mut capacity) = (0.0, 0.0);
        for node in &self.nodes {
            let signal = node.believed(now, self.settings.age_max);
            if signal.is_some_and(|signal| signal.health != Health::NONE) && !node.crowd.is_refuted(now) {
                factors += node.factor * node.capacity();
                capacity += node.capacity();
            }
        }
        if capacity > 0.0 { factors / capacity } else { 1.0 }
    }

    /// What turns configured weights times factors into weights: as fine as can be told apart in use,
    /// and no weight above the largest.
    fn scale(&self, now: Time, neutral: f64) -> f64 {
        let (mut configured_max, mut weight_max) = (1.0_f64, 1.0_f64);
        for node in &self.nodes {
            let believed = node.believed(now, self.settings.age_max).is_some();
            let factor = if believed { node.factor } else { neutral };
            configured_max = configured_max.max(node.capacity());
            weight_max = weight_max.max(node.capacity() * factor);
        }
        // A whole number: configured weights keep their proportions exactly.
        let whole = (FULL_SCALE / configured_max).floor().max(1.0);
        whole.min(f64::from(Weight::MAX.value()) / weight_max)
    }
}

impl Settings {
    fn bounded(self) -> Settings {
        let law = match self.law {
            Law::Off => Law::Off,
            Law::Smoothing { alpha } => Law::Smoothing { alpha: within(alpha, 0.0, 1.0) },
            Law::Integral { gain_per_s } => Law::Integral { gain_per_s: within(gain_per_s, 0.0, 1.0) },
        };
        Settings {
            law,
            dead_band: within(self.dead_band, 0.0, 1.0),
            step_per_s_max: within(self.step_per_s_max, 0.0, 1.0),
            odds_max: within(self.odds_max, 1.0, f64::from(Weight::MAX.value())),
            ..self
        }
    }
}

/// `value` brought between `least` and `most`; what is no number is the least.
fn within(value: f64, least: f64, most: f64) -> f64 {
    if value.is_nan() { least } else { value.clamp(least, most) }
}

/// What a report says, if it says anything.
fn signal(now: Time, report: &Report) -> Result<Signal, Ignored> {
    let load = match (report.load, report.health) {
        (Some(load), _) if load.is_nan() || load < 0.0 => return Err(Ignored::Impossible),
        (Some(load), _) => f64::from(load).min(LOAD_MAX),
        (None, Some(health)) => 1.0 - f64::from(health.value()) / 100.0,
        (None, None) => return Err(Ignored::Empty),
    };
    // A node that is busy does not say that it must get nothing: only a health of its own can.
    let implied = || Health::saturating((100.0 * (1.0 - load)).clamp(1.0, 100.0) as u8);
    let health = report.health.unwrap_or_else(implied);
    // What is measured in the future was measured by a wrong clock: it is believed no longer than others.
    Ok(Signal { measured_at: report.measured_at.min(now), load, health })
}

/// The weight to show for `exact`: the present one as long as it is off by less than 1, so that
/// a value between two weights does not show as one and the other in turns.
fn settled(present: Weight, exact: f64) -> Weight {
    let difference = exact - f64::from(present.value());
    if present != Weight::DRAIN && difference > -1.0 && difference < 1.0 {
        return present;
    }
    nearest(exact)
}

/// The weight nearest to `exact`, at least 1.
fn nearest(exact: f64) -> Weight {
    let most = f64::from(Weight::MAX.value());
    Weight::new((exact.clamp(1.0, most) + 0.5) as u64).unwrap_or(Weight::MAX)
}
