//! Chooses a node for every job: one mechanism, many policies.
