use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

pub use crate::policy::informed::Tuning;

/// How a pool's scheduler works.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The algorithm.
    pub policy: Policy,
    /// The order of `weighted-round-robin`.
    pub order: Order,
    /// How `load-informed` uses what it is told.
    pub variant: Variant,
    /// Nodes among which the variant `among` takes one, 1 to 16.
    pub among: u8,
    /// How much more load than the least loaded node they may have, in percent of a node's capacity.
    pub interval_percent: u32,
    /// Nodes that `two-choices` and `peak-ewma` compare for each job, at least 1.
    pub choices: u8,
    /// The time between two looks at the counts, for `job-informed`, `basic-li` and `aggressive-li`.
    pub phase: Duration,
    /// How much a share of failed jobs takes from a node's weight, for `orca-weighted`, in percent: 100 means that
    /// one failed job in ten counts as a tenth of the node's capacity.
    pub error_penalty_percent: u32,
    /// Dispatchers that place jobs on the same nodes and share no counts, this one included; 0: not known.
    ///
    /// `basic-li` and `aggressive-li` reckon arrivals from it, and find it out from reports if it is not known.
    /// Policies that take the best of all nodes would all take the same: with c dispatchers, they imagine
    /// up to c picks (at most 16), and take any one of these nodes; `load-informed` and `credits` find c out if it is
    /// not known.
    pub dispatchers: u16,
    /// How far above its share of the jobs a node may be, for `bounded-hash`: 125 means 1.25 times.
    /// Values below 100 are taken as 100.
    pub load_bound_percent: u32,
    /// Nodes that a job's key may go to, of which the policy chooses one; 0: all. Where all of these are full, it
    /// may go to any.
    pub affinity: u16,
    /// How much a client's next job is held on the node that it is on already
    /// ([`Job::current`](evener_model::Job::current)), in percent: it stays unless its node's score with the job is more
    /// than so much above that of the node that would be picked. 0: not at all. For policies that compare
    /// nodes by a score; those that go by turn, by chance or by key pay no heed.
    pub current_bonus_percent: u32,
    /// What `informed` goes by.
    pub tuning: Tuning,
    /// How long a node that is new or back takes to get its full share; zero: no time.
    pub slow_start: Duration,
    /// When a node is ejected for failing; `None`: never.
    pub outlier: Option<Outlier>,
    /// For how long what a node reports is believed, from when it was measured.
    pub report_expiry: Duration,
    /// If less than this share of the nodes (with a weight, not draining) may be picked,
    /// all of them may; 0: never.
    pub panic_percent: u8,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            policy: Policy::default(),
            order: Order::default(),
            variant: Variant::default(),
            among: 3,
            interval_percent: 10,
            choices: 2,
            phase: Duration::from_secs(1),
            error_penalty_percent: 100,
            dispatchers: 0,
            load_bound_percent: 125,
            affinity: 0,
            current_bonus_percent: 0,
            tuning: Tuning::default(),
            slow_start: Duration::ZERO,
            outlier: Some(Outlier::default()),
            report_expiry: Duration::from_secs(10),
            panic_percent: 50,
        }
    }
}

impl Settings {
    /// Whether anything looks at [`Job::key`](evener_model::Job::key).
    pub const fn hashes(&self) -> bool {
        self.policy.hashes() || self.affinity > 0
    }
}

/// When a node is ejected for failing, and for how long.
///
/// A failure is an [`Outcome`](evener_model::Outcome) for which the node is to blame:
/// refused, reset, timed out, or answered with an error of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlier {
    /// Failures in a row that eject; 0: never.
    pub consecutive: u32,
    /// Share of failures within an interval that ejects; 0: never.
    pub error_percent: u8,
    /// Jobs that must have ended in the interval before their share of failures counts.
    pub requests_min: u32,
    /// Over how long the share is taken.
    pub interval: Duration,
    /// The first ejection; each further one doubles. A node that behaves for an
    /// interval after it came back has one doubling less.
    pub ejection: Duration,
    /// The longest ejection.
    pub ejection_max: Duration,
}

impl Default for Outlier {
    fn default() -> Outlier {
        Outlier {
            consecutive: 5,
            error_percent: 50,
            requests_min: 20,
            interval: Duration::from_secs(10),
            ejection: Duration::from_secs(5),
            ejection_max: Duration::from_secs(300),
        }
    }
}

/// The order in which `weighted-round-robin` picks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// Each node's picks are spread evenly over a round.
    #[default]
    Smooth,
    /// Node after node while each has tokens, as many as its weight.
    Tokens,
}

impl Order {
    /// The name in configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Order::Smooth => "smooth",
            Order::Tokens => "tokens",
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Order {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Order, SettingError> {
        match text {
            "smooth" => Ok(Order::Smooth),
            "tokens" => Ok(Order::Tokens),
            _ => Err(SettingError::Order),
        }
    }
}

/// How `load-informed` uses the loads that nodes report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Variant {
    /// The least load reported. All jobs between two reports go to one node.
    Least,
    /// One among the few least loaded, drawn by weight: see [`Settings::among`] and
    /// [`Settings::interval_percent`].
    Among,
    /// The least of the load that jobs do not explain, with what those jobs make of it that are there now or have
    /// come of late.
    #[default]
    Artificial,
}

impl Variant {
    /// The name in configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Variant::Least => "least",
            Variant::Among => "among",
            Variant::Artificial => "artificial",
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Variant {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Variant, SettingError> {
        match text {
            "least" => Ok(Variant::Least),
            "among" => Ok(Variant::Among),
            "artificial" => Ok(Variant::Artificial),
            _ => Err(SettingError::Variant),
        }
    }
}

/// An algorithm that chooses a node.
///
/// What is said of cost holds while few nodes are full; passing full ones costs a step each. Weight 0
/// is never picked, by any of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The node where a job can expect to be done first, by all that is known: jobs in flight here, what
    /// others have there as nodes report it, how nodes keep their pace, failures, weights. Up to 64 nodes are
    /// scanned, more are kept in a tree, O(log nodes).
    #[default]
    Informed,
    /// Each in turn, by id. O(log nodes).
    RoundRobin,
    /// Each in turn, as often as its weight; [`Order`] says in which order. O(log nodes), in tokens O(1).
    WeightedRoundRobin,
    /// Any. O(1).
    Random,
    /// Any, as often as its weight. O(1).
    WeightedRandom,
    /// The fewest jobs. Equals take turns. Up to 64 nodes are scanned, more are kept in a tree, O(log nodes): so
    /// with the next three, and `LeastTime`.
    LeastJobs,
    /// The fewest jobs for its weight. Equals take turns by weight.
    WeightedLeastJobs,
    /// The fewest jobs for its weight once it has this one too. Equals take turns by weight.
    ShortestExpectedDelay,
    /// An idle one; if there is none, the shortest expected delay. Equals take turns by weight.
    NeverQueue,
    /// The better of two (or more, see [`Settings::choices`]) drawn by weight. Of equals the first drawn.
    /// O(choices).
    TwoChoices,
    /// In turn, as often as its share of the jobs is short of its weight, seen at each phase. O(1), and
    /// O(nodes · log nodes) once a phase.
    JobInformed,
    /// The least load, as nodes report it; [`Variant`] says how. To 64 nodes scanned, then O(log nodes).
    LoadInformed,
    /// Any, as likely as makes all equally loaded by the next look at their jobs. O(1), and
    /// O(nodes · log nodes) once a phase.
    BasicLi,
    /// Any of those that would by now be equally loaded if the least loaded had got all jobs since the last
    /// look. O(log nodes), and O(nodes · log nodes) once a phase.
    AggressiveLi,
    /// The most credits, which nodes report and jobs spend. Equals take turns by weight. To 64 nodes scanned,
    /// then O(log nodes).
    Credits,
    /// Each in turn, as often as it can by the throughput, load and errors that it reports. O(log nodes).
    OrcaWeighted,
    /// The better of two (or more) drawn by weight, by latency (peaks count at once) times jobs for its
    /// weight. Of equals the first drawn. O(choices).
    PeakEwma,
    /// The least latency times jobs for its weight. Equals take turns by weight.
    LeastTime,
    /// Of the last few nodes that reported, the lowest latency among those that are not crowded. O(1).
    Prequal,
    /// By the hash of the job's key. O(log nodes).
    SourceHash,
    /// The same as [`SourceHash`](Policy::SourceHash), except that drivers give it the key of what the job is
    /// for, not of where it comes from.
    DestinationHash,
    /// By the hash of the job's key, on a ring: few keys move when nodes come and go. O(1).
    ConsistentHash,
    /// By the hash of the job's key, on a ring, but none far above its share of the jobs. O(1), more
    /// the more nodes are at their bound.
    BoundedHash,
    /// By the hash of the job's key, in a table of which each node has its share almost exactly. O(1).
    Maglev,
}

impl Policy {
    /// All policies.
    pub const ALL: [Policy; 24] = [
        Policy::Informed,
        Policy::RoundRobin,
        Policy::WeightedRoundRobin,
        Policy::Random,
        Policy::WeightedRandom,
        Policy::LeastJobs,
        Policy::WeightedLeastJobs,
        Policy::ShortestExpectedDelay,
        Policy::NeverQueue,
        Policy::TwoChoices,
        Policy::JobInformed,
        Policy::LoadInformed,
        Policy::BasicLi,
        Policy::AggressiveLi,
        Policy::Credits,
        Policy::OrcaWeighted,
        Policy::PeakEwma,
        Policy::LeastTime,
        Policy::Prequal,
        Policy::SourceHash,
        Policy::DestinationHash,
        Policy::ConsistentHash,
        Policy::BoundedHash,
        Policy::Maglev,
    ];

    /// The name in configuration, metrics and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Informed => "informed",
            Policy::RoundRobin => "round-robin",
            Policy::WeightedRoundRobin => "weighted-round-robin",
            Policy::Random => "random",
            Policy::WeightedRandom => "weighted-random",
            Policy::LeastJobs => "least-jobs",
            Policy::WeightedLeastJobs => "weighted-least-jobs",
            Policy::ShortestExpectedDelay => "shortest-expected-delay",
            Policy::NeverQueue => "never-queue",
            Policy::TwoChoices => "two-choices",
            Policy::JobInformed => "job-informed",
            Policy::LoadInformed => "load-informed",
            Policy::BasicLi => "basic-li",
            Policy::AggressiveLi => "aggressive-li",
            Policy::Credits => "credits",
            Policy::OrcaWeighted => "orca-weighted",
            Policy::PeakEwma => "peak-ewma",
            Policy::LeastTime => "least-time",
            Policy::Prequal => "prequal",
            Policy::SourceHash => "source-hash",
            Policy::DestinationHash => "destination-hash",
            Policy::ConsistentHash => "consistent-hash",
            Policy::BoundedHash => "bounded-hash",
            Policy::Maglev => "maglev",
        }
    }

    /// Whether it looks at [`Job::key`](evener_model::Job::key).
    pub const fn hashes(self) -> bool {
        matches!(
            self,
            Policy::SourceHash
                | Policy::DestinationHash
                | Policy::ConsistentHash
                | Policy::BoundedHash
                | Policy::Maglev
        )
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Knows the names of [`Policy::name`], and those that users of LVS and HAProxy know.
impl FromStr for Policy {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Policy, SettingError> {
        Ok(match text {
            "rr" => Policy::RoundRobin,
            "wrr" => Policy::WeightedRoundRobin,
            "lc" => Policy::LeastJobs,
            "wlc" | "leastconn" => Policy::WeightedLeastJobs,
            "sed" => Policy::ShortestExpectedDelay,
            "nq" => Policy::NeverQueue,
            "twos" => Policy::TwoChoices,
            "sh" => Policy::SourceHash,
            "dh" => Policy::DestinationHash,
            "mh" => Policy::Maglev,
            name => return Policy::ALL.into_iter().find(|p| p.name() == name).ok_or(SettingError::Policy),
        })
    }
}

/// Not the name of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SettingError {
    /// Not a policy.
    #[error("no such scheduler")]
    Policy,
    /// Not an order.
    #[error("an order is \"smooth\" or \"tokens\"")]
    Order,
    /// Not a variant.
    #[error("a variant is \"least\", \"among\" or \"artificial\"")]
    Variant,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_found_by_its_name() {
        for policy in Policy::ALL {
            assert_eq!(policy.name().parse(), Ok(policy));
        }
        assert_eq!("leastconn".parse(), Ok(Policy::WeightedLeastJobs));
        assert_eq!("best".parse::<Policy>(), Err(SettingError::Policy));
    }
}
