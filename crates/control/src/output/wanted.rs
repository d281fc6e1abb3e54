//! What a pool wants of another balancer.

use std::time::Instant;

use evener_model::Weight;
use evener_plane::{haproxy, ipvs};

use crate::config::{self, Output, VirtualService};
use crate::director::{PoolState, State};

/// What is wanted of a balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Haproxy(haproxy::Wanted),
    Ipvs(ipvs::Wanted),
}

/// What `pool` wants of its output, and what of it cannot be; `None`: nothing yet. What was told by a director that is gone is better than what
/// is configured, so a director that has just started waits for its nodes' reports, as long as these would be believed.
pub(super) fn of(
    state: &State,
    started: Instant,
    pool: &str,
    output: &Output,
) -> Result<Option<(Wanted, Option<String>)>, String> {
    let known = state.pools.get(pool).zip(state.config.pools.iter().find(|known| known.name == pool));
    let Some((pool, config)) = known else { return Ok(None) };
    let reports = state.config.feedback.is_on()
        || config.feedback.agent_check.is_some()
        || config.feedback.pull.is_some();
    let is_heard = pool.nodes.iter().all(|node| node.told.all().next().is_some());
    if reports && !is_heard && started.elapsed() < pool.expiry {
        return Ok(None);
    }
    let settle = config.join.as_ref().map_or(pool.expiry, |join| join.linger.max(pool.expiry));
    let weights = weights(pool, config);
    match output {
        Output::Haproxy { proxy, node_options, drain_timeout, .. } => {
            let nodes = pool.nodes.iter().zip(weights).map(|(node, weight)| haproxy::WantedNode {
                name: node.node.name.clone(),
                address: node.node.address,
                weight,
            });
            let wanted = haproxy::Wanted::new(proxy, nodes.collect());
            let wanted = wanted.and_then(|wanted| wanted.with_options(node_options));
            let mut wanted = wanted.map_err(|error| error.to_string())?;
            (wanted.drain_timeout, wanted.settle) = (*drain_timeout, settle);
            Ok(Some((Wanted::Haproxy(wanted), None)))
        }
        Output::Ipvs { service, scheduler, forwarding, drain_timeout } => {
            let first = pool.nodes.first().map(|node| node.node.address);
            let service = virtual_service(*service, first.is_some_and(|address| address.is_ipv6()));
            let (nodes, left_out) = destinations(pool, &weights, service, *forwarding);
            let service = ipvs::WantedService::new(service, scheduler, nodes);
            let mut service = service.map_err(|error| error.to_string())?;
            (service.drain_timeout, service.settle) = (*drain_timeout, settle);
            let wanted = ipvs::Wanted::new(vec![service]).map_err(|error| error.to_string())?;
            Ok(Some((Wanted::Ipvs(wanted), left_out)))
        }
    }
}

/// The nodes of a pool as the kernel gets them, and what is wrong with those that it does not get. The way that an agent
/// names counts if it leads to its node: what one of them says must not keep the others from being steered.
fn destinations(
    pool: &PoolState,
    weights: &[Weight],
    service: ipvs::VirtualService,
    forwarding: ipvs::Forwarding,
) -> (Vec<ipvs::WantedDestination>, Option<String>) {
    let mut destinations: Vec<ipvs::WantedDestination> = Vec::with_capacity(weights.len());
    let mut left_out = None;
    for (node, weight) in pool.nodes.iter().zip(weights) {
        let (address, weight) = (node.node.address, weight.value());
        let by = |forwarding| ipvs::WantedDestination { address, forwarding, weight };
        let said = node.forwarding.map(|said| by(said.into())).filter(|said| said.check(service).is_ok());
        let destination = said.unwrap_or(by(forwarding));
        let wrong = match destinations.iter().any(|other| other.address == address) {
            true => Err(ipvs::WantedError::DestinationTwice(address)),
            false => destination.check(service),
        };
        match wrong {
            Ok(()) => destinations.push(destination),
            Err(wrong) => left_out = Some(format!("node {} is left out: {wrong}", node.node.name)),
        }
    }
    (destinations, left_out)
}

/// A virtual service as the kernel knows it; a mark is of the family of its nodes.
pub(crate) fn virtual_service(service: VirtualService, is_ipv6: bool) -> ipvs::VirtualService {
    match service {
        VirtualService::Address { protocol, address } => {
            ipvs::VirtualService::Address { transport: protocol.into(), address }
        }
        VirtualService::Mark(mark) => {
            let family = if is_ipv6 { ipvs::Family::Ipv6 } else { ipvs::Family::Ipv4 };
            ipvs::VirtualService::Mark { mark, family }
        }
    }
}

/// The weights of a pool's nodes. When most of those that are to take jobs look dead to health checks, these are
/// not followed: a balancer without nodes serves nobody.
fn weights(pool: &PoolState, config: &config::Pool) -> Vec<Weight> {
    let willing = || pool.nodes.iter().filter(|node| !node.drains() && node.base_weight() != Weight::DRAIN);
    let alive = willing().filter(|node| node.up).count();
    let panics = alive * 100 < willing().count() * usize::from(config.scheduler.panic_percent);
    let weight = |node: &crate::director::NodeState| match panics {
        true => node.weight_if_up(),
        false => node.wanted_weight(),
    };
    pool.nodes.iter().map(weight).collect()
}
