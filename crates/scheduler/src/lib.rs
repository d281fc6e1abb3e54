//! Chooses a node for every job: one mechanism, many policies.

mod explain;
mod scheduler;
mod settings;

pub use explain::{Candidate, NodeState, NodeView, PickError, Placement};
pub use scheduler::Scheduler;
pub use settings::{Order, Outlier, Policy, SettingError, Settings};

/// A hash of `bytes`.
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
