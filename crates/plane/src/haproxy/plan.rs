//! What to change. Pure: what is wanted, what HAProxy has, and what was done before, to steps.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use evener_model::Time;

use super::answer::Server;
use super::wanted::{ADDED_PREFIX, Wanted, WantedNode};

/// What HAProxy refused is not asked of it again for so long, unless it was started anew.
const REFUSED_REST: Duration = Duration::from_secs(30);

/// A change to a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which of its servers.
    pub server: String,
    /// What is done.
    pub step: Step,
    /// Why.
    pub cause: Cause,
}

/// What is done with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// It gets this weight.
    Weight(u32),
    /// It takes new sessions.
    Ready,
    /// It finishes its sessions and gets no new ones.
    Drain,
    /// It is made, in maintenance, with this weight.
    Add(SocketAddr, u32),
    /// Its health is checked.
    CheckHealth,
    /// Its agent is asked.
    CheckAgent,
    /// It goes into maintenance, to be deleted.
    Maintain,
    /// It goes.
    Delete,
}

impl Step {
    /// The step without its weight, which may be another when it is tried again.
    fn kind(self) -> Step {
        match self {
            Step::Weight(_) => Step::Weight(0),
            Step::Add(address, _) => Step::Add(address, 0),
            other => other,
        }
    }
}

/// Why something is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Something else is wanted than before.
    Wanted,
    /// HAProxy was started anew and has it as configured.
    Restarted,
    /// Another has changed it.
    Corrected,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = &self.server;
        match self.step {
            Step::Weight(weight) => write!(f, "{server}: weight {weight}"),
            Step::Ready => write!(f, "{server}: ready"),
            Step::Drain => write!(f, "{server}: drain"),
            Step::Add(address, weight) => write!(f, "{server}: added at {address} with weight {weight}"),
            Step::CheckHealth => write!(f, "{server}: health checks on"),
            Step::CheckAgent => write!(f, "{server}: agent checks on"),
            Step::Maintain => write!(f, "{server}: maintenance"),
            Step::Delete => write!(f, "{server}: deleted"),
        }?;
        match self.cause {
            Cause::Wanted => Ok(()),
            Cause::Restarted => f.write_str(" (as before HAProxy was started anew)"),
            Cause::Corrected => f.write_str(" (another had changed it)"),
        }
    }
}

/// What was done with a proxy.
#[derive(Debug)]
pub(super) struct Memory {
    /// When the proxy was first looked at.
    since: Time,
    /// What servers were told, by name.
    told: BTreeMap<String, Told>,
    /// Since when servers that we added leave.
    leaving: BTreeMap<String, Time>,
    /// Servers that are not ours, and were drained because their nodes left.
    left: BTreeSet<String>,
    /// What HAProxy refused, and when.
    refused: BTreeMap<(String, Step), Time>,
    /// Whether weights cannot be changed, as HAProxy has said.
    pub(super) is_static: bool,
}

/// What a server was told; `None`: nothing yet, or a process of HAProxy that is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Told {
    weight: Option<u32>,
    drains: Option<bool>,
    /// Told to a process that is gone.
    before: bool,
}

impl Memory {
    pub(super) fn new(now: Time) -> Memory {
        Memory {
            since: now,
            told: BTreeMap::new(),
            leaving: BTreeMap::new(),
            left: BTreeSet::new(),
            refused: BTreeMap::new(),
            is_static: false,
        }
    }

    /// Another process of HAProxy answers: it knows nothing of what the last one was told.
    pub(super) fn restart(&mut self) {
        for told in self.told.values_mut() {
            *told = Told { before: true, ..Told::default() };
        }
        // It has those as configured, and their nodes are still gone.
        for left in std::mem::take(&mut self.left) {
            self.told.insert(left, Told { before: true, ..Told::default() });
        }
        self.refused.clear();
        self.is_static = false;
    }

    /// Servers that leave.
    pub(super) fn leaving(&self) -> usize {
        self.leaving.len()
    }

    /// Notes what was done.
    pub(super) fn done(&mut self, change: &Change) {
        let name = &change.server;
        if self.left.contains(name) {
            return;
        }
        let told = self.told.entry(name.clone()).or_default();
        match change.step {
            Step::Weight(weight) => told.weight = Some(weight),
            Step::Ready => told.drains = Some(false),
            Step::Drain => told.drains = Some(true),
            Step::Add(_, weight) => *told = Told { weight: Some(weight), drains: None, before: false },
            Step::CheckHealth | Step::CheckAgent | Step::Maintain => {}
            Step::Delete => {
                self.told.remove(name);
                self.leaving.remove(name);
            }
        }
    }

    /// Notes what HAProxy refused.
    pub(super) fn refused(&mut self, change: &Change, now: Time) {
        self.refused.insert((change.server.clone(), change.step.kind()), now);
    }

    fn rests(&self, name: &str, step: Step, now: Time) -> bool {
        let since = self.refused.get(&(name.to_owned(), step.kind()));
        since.is_some_and(|since| now.since(*since) < REFUSED_REST)
    }
}

/// The name of a server that we add for a node at this address. HAProxy allows no brackets.
pub(super) fn added_name(address: SocketAddr) -> String {
    format!("{ADDED_PREFIX}{}:{}", address.ip().to_canonical(), address.port())
}

/// Whether anything leaves, so that its sessions have to be known.
pub(super) fn has_leaving(wanted: &Wanted, found: &[Server]) -> bool {
    let matched = matched(wanted, found);
    found.iter().enumerate().any(|(place, server)| is_added(server) && !matched.contains(&Some(place)))
}

/// What to change so that a proxy becomes what is wanted, in this order: first what takes sessions, last what
/// does not any more. `sessions` is what there is on servers that leave.
pub(super) fn plan(
    wanted: &Wanted,
    found: &[Server],
    sessions: &BTreeMap<String, u64>,
    memory: &mut Memory,
    now: Time,
) -> Vec<Change> {
    memory.refused.retain(|_, since| now.since(*since) < REFUSED_REST);
    let mut planner = Planner { memory, now, more: Vec::new(), less: Vec::new(), last: Vec::new() };
    let matched = matched(wanted, found);
    let mut steered = BTreeSet::new();
    for (node, place) in wanted.nodes().iter().zip(&matched) {
        match place {
            Some(place) => {
                steered.insert(found[*place].name.clone());
                planner.wanted(node, &found[*place], wanted.options());
            }
            None => {
                let name = added_name(node.address);
                if steered.insert(name.clone()) {
                    planner.missing(node, name, wanted.options());
                }
            }
        }
    }
    for server in found.iter().filter(|server| !steered.contains(&server.name)) {
        planner.leaving(server, wanted, sessions.get(&server.name).copied());
    }
    let is_there = |name: &String| found.iter().any(|server| server.name == *name);
    planner.memory.leaving.retain(|name, _| is_there(name) && !steered.contains(name));
    planner.memory.left.retain(|name| is_there(name) && !steered.contains(name));
    planner.memory.told.retain(|name, _| is_there(name) || steered.contains(name));
    [planner.more, planner.less, planner.last].concat()
}

/// For each node the place of its server: that of its name, else the first at its address that is no other's.
pub(super) fn matched(wanted: &Wanted, found: &[Server]) -> Vec<Option<usize>> {
    let names: BTreeMap<&str, usize> =
        found.iter().enumerate().map(|(place, server)| (server.name.as_str(), place)).collect();
    let mut matched: Vec<Option<usize>> =
        wanted.nodes().iter().map(|node| names.get(node.name.as_str()).copied()).collect();
    let taken: BTreeSet<usize> = matched.iter().flatten().copied().collect();
    let mut free: BTreeMap<SocketAddr, Vec<usize>> = BTreeMap::new();
    for (place, server) in found.iter().enumerate().rev().filter(|(place, _)| !taken.contains(place)) {
        if let Some(ip) = server.address {
            free.entry(SocketAddr::new(ip.to_canonical(), server.port)).or_default().push(place);
        }
    }
    for (node, place) in wanted.nodes().iter().zip(&mut matched) {
        if place.is_none() {
            let address = SocketAddr::new(node.address.ip().to_canonical(), node.address.port());
            *place = free.get_mut(&address).and_then(Vec::pop);
        }
    }
    matched
}

fn is_added(server: &Server) -> bool {
    server.name.starts_with(ADDED_PREFIX)
}

struct Planner<'m> {
    memory: &'m mut Memory,
    now: Time,
    more: Vec<Change>,
    less: Vec<Change>,
    last: Vec<Change>,
}

impl Planner<'_> {
    /// A node that HAProxy does not have.
    fn missing(&mut self, node: &WantedNode, name: String, options: &str) {
        let weight = node.weight.value();
        if weight == 0 || self.memory.rests(&name, Step::Add(node.address, weight), self.now) {
            return;
        }
        let told = self.memory.told.get(&name);
        let cause = match told {
            None => Cause::Wanted,
            Some(told) if told.before => Cause::Restarted,
            Some(_) => Cause::Corrected,
        };
        let change = |step| Change { server: name.clone(), step, cause };
        self.more.push(change(Step::Add(node.address, weight)));
        self.more.extend(checks(options).map(change));
        self.more.push(change(Step::Ready));
    }

    /// A node that HAProxy has as this server.
    fn wanted(&mut self, node: &WantedNode, server: &Server, options: &str) {
        let told = self.memory.told.get(&server.name).copied().unwrap_or_default();
        let weight = node.weight.value();
        let drains = weight == 0;
        self.memory.leaving.remove(&server.name);
        let change = |step, is_correction: bool| {
            let cause = match (told.before, is_correction) {
                (true, _) => Cause::Restarted,
                (false, true) => Cause::Corrected,
                (false, false) => Cause::Wanted,
            };
            Change { server: server.name.clone(), step, cause }
        };
        // Added and left there: whoever added it has died before it said more.
        let is_unfinished = is_added(server) && server.admin.is_maintained() && told.drains.is_none();
        let turns = server.admin.drains() != drains && !server.admin.is_maintained();
        let mut steps = Vec::new();
        // What drains keeps its weight, which comes to nothing: so it has it when it is ready again.
        if !drains && server.weight != weight && !self.memory.is_static {
            steps.push(change(Step::Weight(weight), told.weight.is_some_and(|told| told != server.weight)));
        }
        if is_unfinished && !drains {
            steps.extend(checks(options).map(|step| change(step, false)));
            steps.push(change(Step::Ready, false));
        } else if turns {
            let step = if drains { Step::Drain } else { Step::Ready };
            steps.push(change(step, told.drains.is_some_and(|told| told != server.admin.drains())));
        }
        steps.retain(|change| !self.memory.rests(&change.server, change.step, self.now));
        let grows = !drains && (turns || is_unfinished || weight > server.weight);
        if grows { &mut self.more } else { &mut self.less }.extend(steps);
        let told = self.memory.told.entry(server.name.clone()).or_default();
        // What another changed is known by what it should have been; what is right is known by what it is.
        if server.weight == weight {
            told.weight = Some(weight);
        }
        if server.admin.drains() == drains && !is_unfinished {
            told.drains = Some(drains);
        }
        if !turns && (drains || server.weight == weight) {
            told.before = false;
        }
    }

    /// A server that is no node.
    fn leaving(&mut self, server: &Server, wanted: &Wanted, sessions: Option<u64>) {
        let name = server.name.clone();
        let change = |step| Change { server: name.clone(), step, cause: Cause::Wanted };
        let is_known = self.memory.told.contains_key(&name);
        let is_idle = server.admin.drains() || server.admin.is_maintained();
        if !is_added(server) {
            if is_known && !is_idle {
                self.less.push(change(Step::Drain));
            }
            if is_known && self.memory.told.remove(&name).is_some() {
                self.memory.left.insert(name);
            }
            return;
        }
        let settles = self.now.since(self.memory.since) < wanted.settle;
        if settles && !is_known && !self.memory.leaving.contains_key(&name) {
            return;
        }
        let since = *self.memory.leaving.entry(name.clone()).or_insert(self.now);
        let waited = self.now.since(since);
        let is_over = sessions == Some(0) || waited >= wanted.drain_timeout;
        if !is_idle {
            self.less.push(change(Step::Drain));
        } else if is_over && !waited.is_zero() {
            if !server.admin.is_maintained() {
                self.last.push(change(Step::Maintain));
            }
            self.last.push(change(Step::Delete));
        }
    }
}

/// The checks that a new server's options ask for; HAProxy begins them when told to.
fn checks(options: &str) -> impl Iterator<Item = Step> {
    let has = |word| options.split_ascii_whitespace().any(|option| option == word);
    [("check", Step::CheckHealth), ("agent-check", Step::CheckAgent)]
        .into_iter()
        .filter(move |(word, _)| has(*word))
        .map(|(_, step)| step)
        .collect::<Vec<_>>()
        .into_iter()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
