//! What is simulated: nodes, jobs, dispatchers, what they know of each other, and what it costs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use evener_scheduler::transfer::Transfer;
use serde::{Deserialize, Serialize};

/// A cluster and its load, without the policy that balances it: what policies are compared on.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Scenario {
    /// When jobs come.
    pub arrivals: Arrivals,
    /// How much work they are.
    pub size: Size,
    /// Jobs come for this long; those that came are then finished.
    #[serde(with = "humantime_serde")]
    pub duration: Duration,
    /// Jobs that come before this are not measured.
    #[serde(default, with = "humantime_serde")]
    pub warm_up: Duration,
    /// The nodes, in groups of equals.
    #[serde(rename = "node")]
    pub nodes: Vec<NodeGroup>,
    /// Who places the jobs.
    #[serde(default)]
    pub dispatchers: Dispatchers,
    /// What dispatchers hear from nodes.
    #[serde(default)]
    pub signals: Signals,
    /// How weights follow what nodes report; they stay if absent.
    #[serde(default)]
    pub steering: Option<Steering>,
    /// Transfer of waiting jobs between nodes; none if absent.
    #[serde(default)]
    pub transfer: Option<Transfers>,
    /// What things cost.
    #[serde(default)]
    pub costs: Costs,
    /// A hop between client, dispatcher and node takes this long.
    #[serde(default, with = "humantime_serde")]
    pub hop: Duration,
    /// What becomes of jobs that fail or take too long.
    #[serde(default)]
    pub patience: Patience,
}

/// One node, and 100 jobs a second of 1 ms for 10 s.
impl Default for Scenario {
    fn default() -> Scenario {
        Scenario {
            arrivals: Arrivals::Poisson { rate: 100.0 },
            size: Size::Exponential { mean: Duration::from_millis(1) },
            duration: Duration::from_secs(10),
            warm_up: Duration::ZERO,
            nodes: vec![NodeGroup::default()],
            dispatchers: Dispatchers::default(),
            signals: Signals::default(),
            steering: None,
            transfer: None,
            costs: Costs::default(),
            hop: Duration::ZERO,
            patience: Patience::default(),
        }
    }
}

/// When jobs come. Rates are jobs a second over the whole cluster.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "kind", deny_unknown_fields, rename_all = "kebab-case")]
pub enum Arrivals {
    /// Independently of each other.
    Poisson {
        /// Jobs a second.
        rate: f64,
    },
    /// At equal distances.
    Even {
        /// Jobs a second.
        rate: f64,
    },
    /// Several at once, the groups independently of each other.
    Bursts {
        /// Jobs a second.
        rate: f64,
        /// Jobs in a group.
        burst: u32,
    },
    /// Poisson, in turn at a high and a low rate, for exponential times (a two-state MMPP).
    OnOff {
        /// Jobs a second, over both.
        rate: f64,
        /// The high rate over the mean rate, above 1 and at most `(on + off) / on`.
        peak: f64,
        /// Mean time at the high rate.
        #[serde(with = "humantime_serde")]
        on: Duration,
        /// Mean time at the low rate.
        #[serde(with = "humantime_serde")]
        off: Duration,
    },
    /// Clients that each wait for an answer, think for an exponential time, and ask again.
    Closed {
        /// Clients.
        clients: u32,
        /// Mean time of thinking.
        #[serde(default, with = "humantime_serde")]
        think: Duration,
    },
    /// As recorded.
    #[serde(skip)]
    Trace(Arc<Trace>),
}

/// Recorded jobs.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// When each came, in nanoseconds from the begin, ascending.
    pub at_nanos: Vec<u64>,
    /// The work of each, in nanoseconds; empty: drawn from [`Scenario::size`].
    pub work_nanos: Vec<u64>,
    /// The key of each; empty: drawn.
    pub keys: Vec<u64>,
}

/// How much work a job is: the time that it takes alone on a node of speed 1.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "kind", deny_unknown_fields, rename_all = "kebab-case")]
pub enum Size {
    /// All the same.
    Fixed {
        /// The work.
        #[serde(with = "humantime_serde")]
        mean: Duration,
    },
    /// Exponential.
    Exponential {
        /// The mean.
        #[serde(with = "humantime_serde")]
        mean: Duration,
    },
    /// Lognormal.
    Lognormal {
        /// The mean.
        #[serde(with = "humantime_serde")]
        mean: Duration,
        /// Standard deviation over mean.
        cv: f64,
    },
    /// Pareto, cut at both ends.
    Pareto {
        /// The smallest.
        #[serde(with = "humantime_serde")]
        min: Duration,
        /// The largest.
        #[serde(with = "humantime_serde")]
        max: Duration,
        /// The exponent of the tail, above 0.
        shape: f64,
    },
    /// One of several, each with its share.
    Mix {
        /// What there is.
        of: Vec<Share>,
    },
    /// One of these, each as likely.
    Empirical {
        /// Work in milliseconds.
        ms: Vec<f64>,
    },
}

/// One of the kinds of a [`Size::Mix`].
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Share {
    /// How often it comes, relative to the others.
    pub share: f64,
    /// How much work it is.
    pub size: Size,
}

/// Nodes that are alike.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct NodeGroup {
    /// How many.
    pub count: u32,
    /// Jobs that run at full speed side by side (cores).
    pub cores: u32,
    /// Jobs that are begun at the most; the others wait in order. `None`: as many as cores (FIFO). More than
    /// cores share them evenly; 0: all that are there (processor sharing).
    pub concurrency: Option<u32>,
    /// Work done in a second by each core, in seconds.
    pub speed: f64,
    /// Jobs that may wait; a further one is refused. `None`: any number.
    pub queue_max: Option<u32>,
    /// The weight that the scheduler is told.
    pub weight: u16,
    /// Jobs that a dispatcher may have there at the most; `None`: any number.
    pub jobs_max: Option<u32>,
    /// What goes wrong, and when.
    #[serde(rename = "fault")]
    pub faults: Vec<Fault>,
}

impl Default for NodeGroup {
    fn default() -> NodeGroup {
        NodeGroup {
            count: 1,
            cores: 1,
            concurrency: None,
            speed: 1.0,
            queue_max: None,
            weight: 1,
            jobs_max: None,
            faults: Vec::new(),
        }
    }
}

/// Something that goes wrong with a node for a while.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Fault {
    /// What.
    pub what: Failure,
    /// From when.
    #[serde(with = "humantime_serde")]
    pub from: Duration,
    /// Until when; `None`: for good.
    #[serde(default, with = "humantime_serde")]
    pub to: Option<Duration>,
}

/// What goes wrong with a node.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    /// It refuses jobs, and loses those that it has.
    Dead,
    /// It takes jobs and does not work.
    Stalled,
    /// It works at this fraction of its speed, above 0.
    Slow(f64),
    /// It fails jobs at once, this share of them, 0–1.
    Failing(f64),
    /// It does not report.
    Silent,
    /// It works, and says what is not so.
    Says(Lie),
    /// Its clock is ahead by so many seconds, or behind if below 0, and its reports say when they were measured by it.
    Ahead(f64),
}

/// What a node says of itself that is not so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lie {
    /// That it has nothing to do, and room for any number of jobs.
    Idle,
    /// That it is full and must get nothing.
    Full,
    /// That it is full, but not that it must get nothing.
    Busy,
    /// Anything, but not that it must get nothing.
    Random,
    /// What it said last before, over and over.
    Frozen,
}

/// Who places the jobs.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Dispatchers {
    /// How many; jobs come to each with the same probability.
    pub count: u16,
    /// Whether they see each other's jobs in flight.
    pub share_counts: bool,
    /// Jobs that may wait in each while all nodes are at `jobs-max`.
    pub queue_max: u32,
    /// How long they may.
    #[serde(with = "humantime_serde")]
    pub queue_timeout: Duration,
    /// How often each looks whether a node is dead: three times so, it is down, twice alive, up. `None`: never.
    #[serde(with = "humantime_serde")]
    pub check_every: Option<Duration>,
}

impl Default for Dispatchers {
    fn default() -> Dispatchers {
        Dispatchers {
            count: 1,
            share_counts: true,
            queue_max: 1000,
            queue_timeout: Duration::from_secs(5),
            check_every: None,
        }
    }
}

/// What dispatchers hear from nodes.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Signals {
    /// When nodes report.
    pub when: When,
    /// A report takes this long, besides the hop.
    #[serde(with = "humantime_serde")]
    pub delay: Duration,
    /// The share of reports that is lost, 0–1.
    pub loss: f64,
    /// A report takes up to so much longer, so that a later one may come first.
    #[serde(with = "humantime_serde")]
    pub spread: Duration,
    /// The share of reports that come twice, 0–1.
    pub repeats: f64,
    /// Nodes that a dispatcher asks for each job (Prequal's probes), drawn evenly.
    pub probes: u8,
}

/// When nodes report.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(tag = "kind", deny_unknown_fields, rename_all = "kebab-case")]
pub enum When {
    /// Never.
    #[default]
    Never,
    /// At every change.
    Exact,
    /// All at the same moments.
    Periodic {
        /// The time between.
        phase: Period,
    },
    /// Each at its own moments, spread over the phase.
    Continuous {
        /// The time between.
        phase: Period,
    },
    /// With each answer, to the dispatcher that gets it.
    OnAccess,
}

/// The time between two reports of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// This.
    Every(Duration),
    /// As [`Phase`](evener_feedback::phase::Phase) chooses it while the pool runs.
    Auto,
}

impl Period {
    /// The time that is set, if one is.
    pub const fn fixed(self) -> Option<Duration> {
        match self {
            Period::Every(period) => Some(period),
            Period::Auto => None,
        }
    }
}

impl From<Duration> for Period {
    fn from(period: Duration) -> Period {
        Period::Every(period)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Period::Every(period) => humantime_serde::re::humantime::format_duration(*period).fmt(f),
            Period::Auto => f.write_str("auto"),
        }
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Period, D::Error> {
        struct Word;
        impl serde::de::Visitor<'_> for Word {
            type Value = Period;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"250ms\", \"2s\" or \"5m\", or \"auto\"")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Period, E> {
                match text {
                    "auto" => Ok(Period::Auto),
                    text => {
                        let wrong = |_| E::invalid_value(serde::de::Unexpected::Str(text), &self);
                        humantime_serde::re::humantime::parse_duration(text).map(Period::Every).map_err(wrong)
                    }
                }
            }
        }
        deserializer.deserialize_str(Word)
    }
}

impl Serialize for Period {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// How each dispatcher makes weights of what nodes report, besides what its scheduler makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "law", deny_unknown_fields, rename_all = "kebab-case")]
pub enum Steering {
    /// A weight follows the node's health, smoothed, as soon and as far as it says.
    Smoothing {
        /// How much of a new report counts, 0–1.
        alpha: f64,
        /// A change of the weight below this share of a node's full weight is left alone, 0–1.
        #[serde(default, rename = "dead-band")]
        dead_band: f64,
    },
    /// A weight moves while the node's load differs from its peers', as the director's does by default.
    Integral {
        /// By what part of itself it moves in a second when the load is off by 1, 0–1.
        #[serde(rename = "gain-per-s")]
        gain_per_s: f64,
        /// A load that is off by less is left alone, 0–1; `None`: as the director does by default.
        #[serde(default, rename = "dead-band")]
        dead_band: Option<f64>,
    },
}

/// How nodes hand waiting jobs to each other.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Transfers {
    /// `n`, `n-exact` or `least-loaded`.
    #[serde(with = "by_name")]
    pub algorithm: Transfer,
    /// How often a node tells the others how many jobs it has.
    #[serde(with = "humantime_serde")]
    pub information: Duration,
    /// How often it hands jobs over.
    #[serde(with = "humantime_serde")]
    pub activation: Duration,
    /// Whether jobs in service count in what is compared.
    #[serde(default = "yes")]
    pub count_in_service: bool,
    /// A job handed over is on its way this long, besides the hop.
    #[serde(default, with = "humantime_serde")]
    pub delay: Duration,
}

fn yes() -> bool {
    true
}

/// Reads and writes a transfer algorithm by its name.
mod by_name {
    use evener_scheduler::transfer::Transfer;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(transfer: &Transfer, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(transfer.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Transfer, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// What things cost, each charged where it falls.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Costs {
    /// A pick: time of the dispatcher, which does one thing after the other.
    #[serde(with = "humantime_serde")]
    pub pick: Duration,
    /// A transfer: time of the node that hands over, and of the one that takes.
    #[serde(with = "humantime_serde")]
    pub transfer: Duration,
    /// A report, or what a node tells the others: time of the node.
    #[serde(with = "humantime_serde")]
    pub report: Duration,
}

/// What becomes of jobs that fail or take too long.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Patience {
    /// A job without an answer after this has failed, and counts as a response at this limit. `None`: never.
    #[serde(with = "humantime_serde")]
    pub timeout: Option<Duration>,
    /// How often a failed job is tried on another node.
    pub retries: u8,
    /// A job without an answer after this is tried on another node as well. `None`: never.
    #[serde(with = "humantime_serde")]
    pub hedge_after: Option<Duration>,
}
