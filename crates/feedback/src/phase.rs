//! How often to ask nodes how they are: often while that says something new, seldom while it does not.
//!
//! A report is worth what it says that the last one did not. [`Phase`] watches how far the load and the jobs of a node
//! have moved since the report before, against those of its peers, and since reports that are twice, four times, eight
//! times as old. The period is the longest in which nodes move by less than a tolerance, on average:
//!
//! - While loads stay where they are, reports are few, however unequal the loads are.
//! - While loads move, they come as often as it takes to follow them, or as often as is allowed.
//! - One report that is far off what was expected is news: then the shortest period holds at once, and grows again
//!   step by step while there is no more.
//!
//! Whatever nodes say, the period stays within its bounds, and all nodes together report no more often than is
//! allowed. Reports that cost much, on the node or on the way, are a reason for a longer shortest period:
//! forty times what one costs is two and a half hundredths of a node.
//!
//! ```
//! use std::time::Duration;
//!
//! use evener_feedback::phase::{Phase, Settings};
//! use evener_model::{NodeId, Report, Time};
//!
//! let mut phase = Phase::new(Settings::default());
//! let mut now = Time::ZERO;
//! for _ in 0..100 {
//!     now = now + phase.period(now);
//!     for (node, load) in [(NodeId(0), 0.5), (NodeId(1), 0.6)] {
//!         phase.reported(now, node, &Report { measured_at: now, load: Some(load), ..Report::default() });
//!     }
//! }
//! assert!(phase.period(now) > Duration::from_secs(5), "nothing happens");
//! ```

use std::time::Duration;

use evener_model::{NodeId, Report, Time};

/// Periods to choose among at the most, each twice the one before.
const STAGES_MAX: usize = 8;
/// What nodes are compared by: load, and jobs.
const SIGNALS: usize = 2;
/// Loads above this are taken as this.
const LOAD_MAX: f64 = 2.0;
/// How far a node's jobs move before that matters, over the mean of all nodes, where a load does by
/// [`Settings::tolerance`].
const JOBS_PER_LOAD: f64 = 10.0;
/// A difference so many times the tolerance, and so many times what is usual, is news.
const NEWS: f64 = 4.0;
/// No difference counts for more in the means: one event is not a way of life.
const DIFFERENCE_MAX: f64 = NEWS;
/// Differences over which means are taken, at the least.
const DIFFERENCES: f64 = 64.0;
/// And so many of each node.
const DIFFERENCES_PER_NODE: f64 = 4.0;
/// Differences without which nothing is known.
const KNOWN: f64 = 8.0;
/// The mean square of movements from which on the period gets shorter, and below which it may grow.
const MOVES: f64 = 1.0;
const RESTS: f64 = 0.5;
/// Reports of each node before the period grows.
const STAY: usize = 4;
/// A node that was not heard of for so many of the longest periods is gone.
const GONE: u32 = 4;

/// Within which bounds a [`Phase`] stays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The shortest period.
    pub shortest: Duration,
    /// The longest: at most a third of the time for which reports are believed, so that one can be lost.
    pub longest: Duration,
    /// Reports in a second at the most, of all nodes together. Goes before `longest`.
    pub reports_per_s_max: f64,
    /// By how much, as a share of a node's capacity, a load may have moved against its peers' since the last report.
    pub tolerance: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            shortest: Duration::from_millis(250),
            longest: Duration::from_secs(10),
            reports_per_s_max: 1000.0,
            tolerance: 0.05,
        }
    }
}

/// The reporting period of a pool, as its reports would have it.
#[derive(Clone, Debug)]
pub struct Phase {
    settings: Settings,
    /// By id.
    nodes: Vec<Node>,
    sums: [Sum; SIGNALS],
    /// By stage: how far nodes move in so long.
    moves: [[Mean; SIGNALS]; STAGES_MAX],
    stages: usize,
    stage: usize,
    /// Reports since the stage last changed.
    reports: usize,
    heard_at: Time,
    sweep_at: Time,
}

/// What is known of a node.
#[derive(Clone, Debug)]
struct Node {
    id: NodeId,
    measured_at: Time,
    values: [Option<f64>; SIGNALS],
    /// By stage: where it was so long ago or less.
    anchors: [Anchor; STAGES_MAX],
}

#[derive(Clone, Copy, Debug, Default)]
struct Anchor {
    at: Time,
    places: [Option<f64>; SIGNALS],
}

/// Over the nodes that say it.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    total: f64,
    nodes: f64,
}

/// The mean square of the last differences, in squares of the tolerance.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    square: f64,
    count: f64,
}

impl Mean {
    fn feed(&mut self, difference: f64, memory: f64) {
        self.count = (self.count + 1.0).min(memory);
        self.square += (difference * difference - self.square) / self.count;
    }

    /// Whether a difference is far beyond what is usual, and beyond what may be.
    fn is_news(&self, difference: f64) -> bool {
        let far = |usual: f64| difference > NEWS && difference * difference > NEWS * NEWS * usual;
        self.known().is_some_and(far)
    }

    fn known(&self) -> Option<f64> {
        (self.count >= KNOWN).then_some(self.square)
    }
}

impl Phase {
    /// Nothing is known yet: it begins with the period nearest to a second.
    pub fn new(settings: Settings) -> Phase {
        let shortest = settings.shortest.max(Duration::from_millis(1));
        let settings = Settings { shortest, longest: settings.longest.max(shortest), ..settings };
        let fitting = (0..STAGES_MAX).take_while(|stage| shortest * (1 << stage) < settings.longest).count();
        let stages = (fitting + 1).min(STAGES_MAX);
        let mut phase = Phase {
            settings,
            nodes: Vec::new(),
            sums: [Sum::default(); SIGNALS],
            moves: [[Mean::default(); SIGNALS]; STAGES_MAX],
            stages,
            stage: 0,
            reports: 0,
            heard_at: Time::ZERO,
            sweep_at: Time::ZERO,
        };
        phase.stage = phase.begin();
        phase
    }

    /// How long after a report the next one is wanted. Whoever asks nodes asks all of them sooner when this gets
    /// shorter. When nothing has been heard for long, it is as in the beginning.
    pub fn period(&self, now: Time) -> Duration {
        let is_silent = now >= self.heard_at + self.silence_max();
        let period = self.length(if is_silent { self.begin() } else { self.stage });
        period.min(self.settings.longest).max(self.least())
    }

    /// Takes what a node said. Reports that are older than what is known of it are passed by.
    ///
    /// O(log nodes); O(nodes) when the node is new, and once in several of the longest periods. Allocates only
    /// for a new node.
    pub fn reported(&mut self, now: Time, node: NodeId, report: &Report) {
        if now >= self.sweep_at {
            self.sweep(now);
        }
        let measured_at = report.measured_at.min(now);
        let place = match self.nodes.binary_search_by_key(&node, |node| node.id) {
            Ok(place) if measured_at <= self.nodes[place].measured_at => return,
            Ok(place) => place,
            Err(place) => {
                self.nodes.insert(place, Node::new(node));
                place
            }
        };
        self.heard_at = now;
        let places = self.place(place, measured_at, report);
        let is_news = self.feed(place, measured_at, places);
        self.reports += 1;
        self.decide(is_news);
    }

    /// The stage to begin with.
    fn begin(&self) -> usize {
        let second = (0..self.stages).find(|stage| self.length(*stage) >= Duration::from_secs(1));
        second.unwrap_or(self.stages - 1)
    }

    /// What so many nodes need to stay within the budget; no budget at all is an hour's.
    fn least(&self) -> Duration {
        let budget_s = self.nodes.len() as f64 / self.settings.reports_per_s_max;
        Duration::try_from_secs_f64(budget_s).unwrap_or(Duration::MAX).min(Duration::from_secs(3600))
    }

    fn silence_max(&self) -> Duration {
        self.settings.longest.max(self.least()) * GONE
    }

    fn length(&self, stage: usize) -> Duration {
        self.settings.shortest * (1 << stage)
    }

    /// Where a node now is against the mean of all, in units of the tolerance.
    fn place(&mut self, place: usize, measured_at: Time, report: &Report) -> [Option<f64>; SIGNALS] {
        let node = &mut self.nodes[place];
        node.measured_at = measured_at;
        let values = values(report);
        let tolerance = self.settings.tolerance.max(1e-3);
        std::array::from_fn(|signal| {
            let before = std::mem::replace(&mut node.values[signal], values[signal]);
            let sum = &mut self.sums[signal];
            sum.change(before, -1.0);
            sum.change(values[signal], 1.0);
            let mean = sum.total / sum.nodes.max(1.0);
            let scale = if signal == 0 { tolerance } else { JOBS_PER_LOAD * tolerance * (mean + 1.0) };
            Some((values[signal]? - mean) / scale)
        })
    }

    /// Learns how far the node has moved; says whether that is news.
    fn feed(&mut self, place: usize, measured_at: Time, places: [Option<f64>; SIGNALS]) -> bool {
        let memory = DIFFERENCES.max(DIFFERENCES_PER_NODE * self.nodes.len() as f64);
        let mut is_news = false;
        for stage in 0..self.stages {
            let length = self.length(stage);
            let anchor = &mut self.nodes[place].anchors[stage];
            let elapsed = measured_at.since(anchor.at);
            // Nodes report at distances that vary.
            if elapsed < length * 3 / 4 {
                continue;
            }
            let before = std::mem::replace(anchor, Anchor { at: measured_at, places });
            if elapsed > length * 3 / 2 {
                continue;
            }
            let pairs = before.places.iter().zip(places).map(|(before, place)| before.zip(place));
            for (pair, mean) in pairs.zip(&mut self.moves[stage]) {
                let Some((before, place)) = pair else { continue };
                let difference = (place - before).abs();
                is_news |= stage <= self.stage && mean.is_news(difference);
                mean.feed(difference.min(DIFFERENCE_MAX), memory);
            }
        }
        is_news
    }

    fn decide(&mut self, is_news: bool) {
        let quiet = self.quiet(MOVES);
        if is_news {
            self.enter(0);
        } else if quiet < self.stage {
            self.enter(quiet);
        } else if self.quiet(RESTS) > self.stage && self.reports >= STAY * self.nodes.len() {
            self.enter(self.stage + 1);
        }
    }

    fn enter(&mut self, stage: usize) {
        (self.stage, self.reports) = (stage, 0);
    }

    /// The longest stage up to which nodes move by no more than this, as far as is known.
    fn quiet(&self, most: f64) -> usize {
        let moves = |stage: &usize| {
            self.moves[*stage].iter().any(|mean| mean.known().is_some_and(|square| square > most))
        };
        (1..self.stages).find(moves).unwrap_or(self.stages) - 1
    }

    /// Forgets nodes that are gone.
    fn sweep(&mut self, now: Time) {
        let silence_max = self.silence_max();
        self.sweep_at = now + silence_max / 4;
        let sums = &mut self.sums;
        self.nodes.retain(|node| {
            let stays = now.since(node.measured_at) < silence_max;
            if !stays {
                node.values.iter().zip(sums.iter_mut()).for_each(|(value, sum)| sum.change(*value, -1.0));
            }
            stays
        });
    }
}

impl Node {
    fn new(id: NodeId) -> Node {
        Node {
            id,
            measured_at: Time::ZERO,
            values: [None; SIGNALS],
            anchors: [Anchor::default(); STAGES_MAX],
        }
    }
}

impl Sum {
    fn change(&mut self, value: Option<f64>, by: f64) {
        if let Some(value) = value {
            self.total += by * value;
            self.nodes += by;
        }
        if self.nodes < 0.5 {
            // No rest of rounding stays.
            *self = Sum::default();
        }
    }
}

/// The load, or what its health says of it, and the jobs.
fn values(report: &Report) -> [Option<f64>; SIGNALS] {
    let load = report.load.map(f64::from).filter(|load| load.is_finite() && *load >= 0.0);
    let implied = || report.health.map(|health| 1.0 - f64::from(health.value()) / 100.0);
    [load.map(|load| load.min(LOAD_MAX)).or_else(implied), report.jobs.map(f64::from)]
}
