use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use evener_control::{Config, Director, Errors};
use evener_replay::{Arrivals, Load, Quantile, Target, quantile};
use evener_scheduler::Policy;

use super::nodes::Nodes;
use super::view::{Frame, View};
use super::{Act, ActNode, NODES, Plan};

/// How long the director may take to end; nothing is open any more.
const DRAIN: Duration = Duration::from_secs(1);

/// How often the view is told.
const INTERVAL: Duration = Duration::from_millis(100);

/// Plays one act: fresh nodes, a fresh director, the load of the plan. `None` if it was interrupted.
pub(crate) fn play(
    plan: &Plan,
    policy: Policy,
    jobs_max: usize,
    interrupted: &AtomicBool,
    view: &mut View,
) -> anyhow::Result<Option<Act>> {
    let nodes = Nodes::start(&NODES, plan.jobs()).context("cannot start the nodes")?;
    let address = free_address()?;
    let config = config(policy, address, &nodes.addresses).context("the demo's own configuration")?;
    let director = Director::start(config).context("cannot start the director")?;
    let load = Load {
        target: Target { address, host: address.to_string(), path: "/job/{n}".to_string() },
        rate: plan.rate,
        arrivals: Arrivals::Poisson,
        duration: plan.duration,
        seed: plan.seed,
        connections_max: jobs_max,
        timeout: Duration::from_secs(60),
    };
    nodes.restart_meters();
    // The load runs in a thread of its own: a slow terminal must not delay a request.
    let (frames, received) = mpsc::channel();
    let (report, usage) = thread::scope(|scope| {
        let nodes = &nodes;
        let running = scope.spawn(move || {
            let mut usage = None;
            let report = load.run(INTERVAL, |tick| {
                if tick.elapsed >= load.duration && usage.is_none() {
                    usage = Some(nodes.usage());
                }
                let frame = Frame {
                    elapsed: tick.elapsed,
                    requests: tick.requests,
                    answered: tick.answered,
                    failed: tick.failed,
                    open: tick.open,
                    p50_ms: quantile(tick.corrected, Quantile::P50),
                    p99_ms: quantile(tick.corrected, Quantile::P99),
                    jobs: nodes.jobs(),
                };
                if frames.send(frame).is_err() || interrupted.load(Ordering::Relaxed) {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })?;
            anyhow::Ok((report, usage.unwrap_or_else(|| nodes.usage())))
        });
        for frame in received {
            view.frame(&frame)?;
        }
        running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    if interrupted.load(Ordering::Relaxed) {
        director.shutdown(Duration::ZERO);
        return Ok(None);
    }
    director.shutdown(DRAIN);
    let nodes = NODES.iter().zip(usage);
    Ok(Some(Act {
        scheduler: policy.name(),
        report,
        nodes: nodes.map(|(node, usage)| ActNode { name: node.name, speed: node.speed, usage }).collect(),
    }))
}

/// What the director is told: nothing of how fast the nodes are.
fn config(policy: Policy, address: SocketAddr, nodes: &[SocketAddr]) -> Result<Config, Errors> {
    let nodes: String = NODES
        .iter()
        .zip(nodes)
        .map(|(node, address)| format!("  {{ name = \"{}\", address = \"{address}\" }},\n", node.name))
        .collect();
    let text = format!(
        "[process]\nworkers = 1\n\n\
         [listener.demo]\nbind = \"{address}\"\nprotocol = \"http\"\npool = \"demo\"\nclients_max = 100000\n\n\
         [pool.demo]\nscheduler = \"{}\"\nnode = [\n{nodes}]\n",
        policy.name()
    );
    Config::from_text("demo", &text)
}

/// An address that nobody listens on now.
fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}
