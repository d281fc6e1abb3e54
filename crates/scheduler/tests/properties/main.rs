//! What policies promise, on random pools.

mod counts;
mod hashes;
mod pool;
mod proportions;
