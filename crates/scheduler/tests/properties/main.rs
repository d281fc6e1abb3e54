//! What policies promise, on random pools.

mod affinity;
mod counts;
mod hashes;
mod pool;
mod proportions;
mod reports;
