use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A node within its pool: a small number, given once and not reused while
/// anything still refers to it. It is also the node's place in [`JobCounts`](crate::JobCounts).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The node's place in tables that are indexed by node.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The configured capacity of a node relative to its peers, 0–256, no unit.
///
/// Weight 0 drains: the node finishes its jobs and gets no new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(u16);

impl Weight {
    /// No new jobs.
    pub const DRAIN: Weight = Weight(0);
    /// What a node has if nothing is said.
    pub const DEFAULT: Weight = Weight(1);
    /// The largest weight.
    pub const MAX: Weight = Weight(256);

    /// A weight from 0 to 256.
    ///
    /// # Errors
    /// [`WeightError`] above 256.
    pub const fn new(value: u64) -> Result<Weight, WeightError> {
        if value <= Weight::MAX.0 as u64 { Ok(Weight(value as u16)) } else { Err(WeightError) }
    }

    /// The weight as a number, 0–256.
    pub const fn value(self) -> u32 {
        self.0 as u32
    }
}

impl Default for Weight {
    fn default() -> Weight {
        Weight::DEFAULT
    }
}

impl FromStr for Weight {
    type Err = WeightError;

    fn from_str(text: &str) -> Result<Weight, WeightError> {
        text.parse().map_or(Err(WeightError), Weight::new)
    }
}

/// Not a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a weight is an integer from 0 to 256")]
pub struct WeightError;

/// How well a node says it is, 0–100: 100 perfect, 1 on the verge, 0 send nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Health(u8);

impl Health {
    /// Send nothing.
    pub const NONE: Health = Health(0);
    /// Perfect.
    pub const FULL: Health = Health(100);

    /// A health of at most 100; larger values are 100.
    pub const fn saturating(value: u8) -> Health {
        Health(if value > 100 { 100 } else { value })
    }

    /// The health as a number, 0–100.
    pub const fn value(self) -> u8 {
        self.0
    }
}

/// What a scheduler must know of a node that joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// Configured capacity.
    pub weight: Weight,
    /// Jobs in flight at the most, over all dispatchers that share counts; `None`: no limit.
    pub jobs_max: Option<u32>,
    /// A hash of the node's name, the same in every process: places it on rings and tables.
    pub name_hash: u64,
}
