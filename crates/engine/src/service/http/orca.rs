//! What nodes say of themselves in the heads and trailers of their responses (ORCA).

use std::time::Duration;

use evener_feedback::orca;
use evener_model::{Event, NodeId, Time};
use evener_protocol::http1::{self, Name};

use crate::core::Core;
use crate::pool::Pool;
use crate::snapshot::Orca;

/// The scheduler of a worker is told of a node once in this time at the most. A node that says it in every response
/// says the same many times: it measures over a second or more. What it says in between is not even parsed.
const TOLD_EVERY: Duration = Duration::from_millis(100);

/// Takes what a node says in fields of a response, unless its pool does not listen. Of several that can be
/// understood the first counts.
#[cold]
pub(super) fn hear<'b>(
    core: &mut Core,
    (pool, node): (u32, NodeId),
    fields: impl Iterator<Item = (Name, &'b [u8])>,
) {
    let pool = &mut core.pools[pool as usize];
    if pool.spec.orca == Orca::Off {
        return;
    }
    for (name, value) in fields {
        if understand(pool, core.worker, core.clock.now(), node, name, value) {
            return;
        }
    }
}

/// The same in a trailer that has fields; takes these out if clients are not to see them. Returns the trailer's
/// new length.
#[cold]
pub(super) fn hear_trailer(core: &mut Core, (pool, node): (u32, NodeId), trailer: &mut [u8]) -> usize {
    let (worker, now) = (core.worker, core.clock.now());
    let pool = &mut core.pools[pool as usize];
    let mut is_understood = false;
    http1::retain_trailer(trailer, |name, value| {
        if !name.is_load_metrics() {
            return true;
        }
        is_understood = is_understood || understand(pool, worker, now, node, name, value);
        pool.spec.orca != Orca::Use
    })
}

/// Tells the scheduler what a field says, unless it heard of the node just before. Says whether no other field
/// need be looked at.
fn understand(pool: &mut Pool, worker: usize, now: Time, node: NodeId, name: Name, value: &[u8]) -> bool {
    if pool.node(node).heard.is_some_and(|heard| now.since(heard) < TOLD_EVERY) {
        return true;
    }
    let parse = if name == Name::EndpointLoadMetricsBin { orca::parse_binary } else { orca::parse };
    let Ok(metrics) = parse(value, &mut |_, _, _| {}) else {
        pool.stats(worker).orca_malformed.add(1);
        return false;
    };
    let report = metrics.report(now);
    pool.stats(worker).orca_reports.add(1);
    let known = pool.node(node);
    known.heard = Some(now);
    known.stats(worker).said.store(&report);
    pool.scheduler.handle(now, Event::Report { node, report });
    true
}
