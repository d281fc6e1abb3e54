//! Chooses a node for every job: one mechanism, many policies.
//!
//! A [`Scheduler`] is told what happens ([`Event`](evener_model::Event)) and asked where jobs go. It does no
//! I/O, reads no clock and takes no randomness but its seed, so that a proxy, a simulator and
//! a test get the same picks from the same calls.
//!
//! Who is where:
//! - `scheduler`: the mechanism, once. Which nodes may be picked (weights, drains, checks, ejection, panic),
//!   reservations, what time changes. `nodes` holds what is known of them, `outlier` judges how
//!   their jobs end, `slow_start` eases them in, `latency` keeps how long they take, `load` what they
//!   report, `explain` is what
//!   can be seen of all that.
//! - `affinity`: a stage before the policy, which maps a job's key to a few of the nodes.
//! - `policy`: the algorithms, one a file, behind one table of operations ([`Policy`] lists them).
//! - `parts`: what several of them are made of: a tree of winners, a weighted sampler, lists of tokens,
//!   a ring, a ranking by scan or tree.
//! - `transfer`: which waiting jobs nodes hand to each other, a function of what a node knows.
//!
//! Three rules hold for all policies:
//! - A pick reserves at once, in counts that all schedulers of the pool share. So a policy that
//!   counts jobs sees its own last pick, and that of others.
//! - Nothing starts over: a node that joins, leaves, fails or changes weight leaves the turns of all
//!   others as they were.
//! - A node that fails does not look good by failing fast. Recent failures multiply its score in every
//!   policy that has scores, and what fails fast does not count as low latency. Policies that go by turn, by
//!   chance or by key do not attract jobs to it; ejection takes it out of them.
//!
//! Absent on purpose: locks, a thread, a timer (what time changes is brought in by the next pick),
//! and a way to pick without reserving.

mod affinity;
mod claims;
mod company;
mod explain;
mod hash;
mod latency;
mod load;
mod nodes;
mod outlier;
mod parts;
mod policy;
mod rng;
mod scheduler;
mod settings;
mod slow_start;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod transfer;

pub use explain::{Candidate, NodeState, NodeView, PickError, Placement, Said};
pub use hash::hash_bytes;
pub use scheduler::Scheduler;
pub use settings::{Order, Outlier, Policy, SettingError, Settings, Tuning, Variant};
