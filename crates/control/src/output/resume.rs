//! Weights that a director finds when it starts.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use evener_feedback::controller::Law;
use evener_model::{NodeId, Weight};

use crate::director::Director;

/// Lets the weights of a pool go on from those that a balancer has, by address: another director has left them there.
/// Says whether it did; weights that follow no reports are the configured ones.
pub(super) fn from(director: &Director, pool: &str, present: &[(SocketAddr, u32)]) -> bool {
    let now = director.now();
    let mut state = director.state();
    let Some(pool) = state.pools.get_mut(pool) else { return false };
    let present: BTreeMap<SocketAddr, u32> = present.iter().copied().collect();
    let weight =
        |address| Weight::new(u64::from(*present.get(address)?).min(u64::from(Weight::MAX.value()))).ok();
    let weights: Vec<(NodeId, Weight)> =
        pool.nodes.iter().filter_map(|node| Some((node.id, weight(&node.node.address)?))).collect();
    let follows = pool.controller.law() != Law::Off && !weights.is_empty();
    if follows {
        pool.controller.resume(now, &weights);
    }
    follows
}
