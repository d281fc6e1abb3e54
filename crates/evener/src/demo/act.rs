use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use evener_control::{Config, Director, Errors};
use evener_replay::{Arrivals, Load, Quantile, Target, quantile};
use hdrhistogram::Histogram;

use super::agents::Agents;
use super::cast::{Cast, Hog};
use super::nodes::{NodeUse, Nodes};
use super::stretch::{Mark, Stretch, stretches};
use super::view::{Frame, View};
use super::{Act, ActNode, NODES, Plan};

/// How long the director may take to end; nothing is open any more.
const DRAIN: Duration = Duration::from_secs(1);

/// How often the view is told.
const INTERVAL: Duration = Duration::from_millis(100);

/// Plays one act: fresh nodes, a fresh director, the load of the plan. `None` if it was interrupted.
pub(crate) fn play(
    plan: &Plan,
    cast: &Cast,
    jobs_max: usize,
    interrupted: &AtomicBool,
    view: &mut View,
) -> anyhow::Result<Option<Act>> {
    let nodes = Nodes::start(&NODES, plan.jobs()).context("cannot start the nodes")?;
    let address = free_address()?;
    let reports = free_address()?;
    let config = config(cast, address, reports, &nodes.addresses).context("the demo's own configuration")?;
    let director = Arc::new(Director::start(config).context("cannot start the director")?);
    let agents = match cast.has_agents {
        true => Some(Agents::start(&director, reports, &nodes.addresses).context("cannot start the agents")?),
        false => None,
    };
    let load = Load {
        target: Target { address, host: address.to_string(), path: "/job/{n}".to_string() },
        rate: plan.rate * cast.rate,
        arrivals: Arrivals::Poisson,
        duration: plan.duration.mul_f64(cast.duration),
        seed: plan.seed,
        connections_max: jobs_max,
        timeout: Duration::from_secs(60),
    };
    nodes.restart_meters();
    // The load runs in a thread of its own: a slow terminal must not delay a request.
    let (frames, received) = mpsc::channel();
    let mut weights = Vec::new();
    let (report, usage, marks) = thread::scope(|scope| {
        let nodes = &nodes;
        let running = scope.spawn(move || {
            let mut usage = None;
            let mut marks = Marks::new(cast.hog, load.duration, nodes);
            let report = load.run(INTERVAL, |tick| {
                marks.pass(tick.elapsed, tick.corrected, nodes);
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
                    weights: Vec::new(),
                };
                if frames.send(frame).is_err() || interrupted.load(Ordering::Relaxed) {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })?;
            anyhow::Ok((report, usage.unwrap_or_else(|| nodes.usage()), marks.passed))
        });
        for mut frame in received {
            if cast.hog.is_some() {
                frame.weights = weights_of(&director);
                weights.push((frame.elapsed, frame.weights.clone()));
            }
            view.frame(&frame)?;
        }
        running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    drop(agents);
    if interrupted.load(Ordering::Relaxed) {
        director.shutdown(Duration::ZERO);
        return Ok(None);
    }
    director.shutdown(DRAIN);
    let nodes = NODES.iter().zip(usage);
    Ok(Some(Act {
        name: cast.name,
        scheduler: cast.policy.name(),
        agents: cast.has_agents,
        report,
        nodes: nodes.map(|(node, usage)| ActNode { name: node.name, speed: node.speed, usage }).collect(),
        stretches: stretches(&marks, &weights),
        weights: weights.into_iter().map(|(_, weights)| weights).collect(),
    }))
}

/// What the hog does, and what was so when it came, went, and at the end.
struct Marks {
    hog: Option<Hog>,
    /// When the next ones are due, with what is left of the victim's speed from then.
    due: Vec<(Duration, Stretch, f64)>,
    passed: Vec<Mark>,
}

impl Marks {
    fn new(hog: Option<Hog>, duration: Duration, nodes: &Nodes) -> Marks {
        let Some(victim) = hog else { return Marks { hog, due: Vec::new(), passed: Vec::new() } };
        let (from, to) = victim.times(duration);
        // The last first.
        let due = vec![
            (duration, Stretch::After, 1.0),
            (to, Stretch::During, 1.0),
            (from, Stretch::Before, victim.left),
        ];
        let none = Mark::new(Stretch::Before, Duration::ZERO, Histogram::new(3), nodes.usage());
        Marks { hog, due, passed: vec![none] }
    }

    fn pass(&mut self, elapsed: Duration, corrected: &Histogram<u64>, nodes: &Nodes) {
        let Some(hog) = self.hog else { return };
        while let Some((_, stretch, left)) = self.due.pop_if(|(at, ..)| elapsed >= *at) {
            nodes.slow_down(hog.node, left);
            self.passed.push(Mark::new(stretch, elapsed, Ok(corrected.clone()), nodes.usage()));
        }
    }
}

impl Mark {
    fn new(
        ends: Stretch,
        at: Duration,
        corrected: Result<Histogram<u64>, hdrhistogram::CreationError>,
        usage: Vec<NodeUse>,
    ) -> Mark {
        let jobs = usage.iter().map(|usage| usage.jobs).collect();
        Mark { ends, at, corrected: corrected.expect("three digits are possible"), jobs }
    }
}

/// By which weights jobs are placed now.
fn weights_of(director: &Director) -> Vec<u32> {
    let pools = director.pools().pools;
    pools.iter().flat_map(|pool| &pool.nodes).map(|node| node.weight).collect()
}

/// What the director is told: nothing of how fast the nodes are, unless they have a hog.
fn config(
    cast: &Cast,
    address: SocketAddr,
    reports: SocketAddr,
    nodes: &[SocketAddr],
) -> Result<Config, Errors> {
    let nodes: String = NODES
        .iter()
        .zip(nodes)
        .map(|(node, address)| {
            let weight =
                if cast.hog.is_some() { format!(", weight = {}", node.speed) } else { String::new() };
            format!("  {{ name = \"{}\", address = \"{address}\"{weight} }},\n", node.name)
        })
        .collect();
    let mut text = format!(
        "[process]\nworkers = 1\n\n\
         [listener.demo]\nbind = \"{address}\"\nprotocol = \"http\"\npool = \"demo\"\nclients_max = 100000\n\n"
    );
    let mut feedback = "";
    if cast.has_agents {
        text += &format!("[feedback]\nhttp = \"{reports}\"\n\n");
        feedback =
            "phase = \"250ms\"\nfeedback = { weights = \"integral\", gain = 1.0, step = 1.0, odds = 8 }\n";
    }
    text += &format!("[pool.demo]\nscheduler = \"{}\"\n{feedback}node = [\n{nodes}]\n", cast.policy.name());
    Config::from_text("demo", &text)
}

/// An address that nobody listens on now.
fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}
