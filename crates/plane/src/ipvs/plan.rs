//! What to change in a virtual service, from what is wanted, what is there, and what was done before.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use evener_model::Time;

use super::types::{Destination, Forwarding, Service, VirtualService};
use super::wanted::{WantedDestination, WantedService};

/// A connection counts as active when it is established. One that began before its destination was quiesced gets so long
/// for that.
const HANDSHAKE: Duration = Duration::from_secs(2);

/// One change in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Of which service.
    pub service: VirtualService,
    /// What is done.
    pub step: Step,
    /// Why.
    pub cause: Cause,
}

/// What is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The service is added.
    AddService(Service),
    /// The service gets another scheduler.
    EditService(Service),
    /// The service is removed: it is no longer wanted, and has no destination any more.
    DeleteService,
    /// A destination is added.
    Add(Destination),
    /// Weight or way of a destination become others; connections stay.
    Edit(Destination),
    /// A destination that leaves gets no new connections; those that it has go on.
    Quiesce(Destination),
    /// A destination that has left is removed.
    Delete(SocketAddr),
}

/// Why something is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It is wanted.
    Wanted,
    /// Another has changed it since we made it what is wanted.
    Corrected,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let service = self.service;
        match &self.step {
            Step::AddService(added) => write!(f, "{service}: add with {}", added.scheduler),
            Step::EditService(edited) => write!(f, "{service}: scheduler {}", edited.scheduler),
            Step::DeleteService => write!(f, "{service}: delete"),
            Step::Add(added) => write!(f, "{service}: add {} weight {}", added.address, added.weight),
            Step::Edit(edited) => write!(f, "{service}: edit {} weight {}", edited.address, edited.weight),
            Step::Quiesce(quiesced) => write!(f, "{service}: quiesce {}", quiesced.address),
            Step::Delete(address) => write!(f, "{service}: delete {address}"),
        }?;
        match self.cause {
            Cause::Wanted => Ok(()),
            Cause::Corrected => f.write_str(" (another had changed it)"),
        }
    }
}

/// What was done with a service.
#[derive(Debug)]
pub(super) struct Memory {
    /// When the service was first looked at.
    since: Time,
    /// The scheduler that it was given.
    scheduler: Option<String>,
    /// What destinations were made.
    told: BTreeMap<SocketAddr, Told>,
    /// Since when destinations leave.
    leaving: BTreeMap<SocketAddr, Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    weight: u32,
    forwarding: Option<Forwarding>,
}

impl Memory {
    pub(super) fn new(now: Time) -> Memory {
        Memory { since: now, scheduler: None, told: BTreeMap::new(), leaving: BTreeMap::new() }
    }

    /// Destinations that leave.
    pub(super) fn leaving(&self) -> usize {
        self.leaving.len()
    }

    /// Notes what was done.
    pub(super) fn done(&mut self, step: &Step) {
        match step {
            Step::AddService(service) | Step::EditService(service) => {
                self.scheduler = Some(service.scheduler.clone());
            }
            Step::DeleteService => {}
            Step::Add(made) | Step::Edit(made) | Step::Quiesce(made) => self.note(made),
            Step::Delete(address) => {
                self.told.remove(address);
                self.leaving.remove(address);
            }
        }
    }

    fn note(&mut self, made: &Destination) {
        let told = Told { weight: made.weight, forwarding: made.way.forwarding() };
        self.told.insert(made.address, told);
    }
}

/// A service as the kernel has it.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) service: Service,
    pub(super) destinations: Vec<Destination>,
}

/// What to change so that a service becomes what is wanted, in this order: first what makes room for connections, last
/// what takes it away. O(n log n) for n destinations.
pub(super) fn plan(
    wanted: &WantedService,
    found: Option<&Found>,
    memory: &mut Memory,
    now: Time,
) -> Vec<Change> {
    let mut planner = Planner::of(wanted.service());
    planner.service(wanted, found, memory);
    let found = found.map_or(&[][..], |found| &found.destinations);
    let there: BTreeMap<SocketAddr, &Destination> = found.iter().map(|it| (it.address, it)).collect();
    let mut wants = BTreeSet::new();
    for destination in wanted.destinations() {
        planner.wanted(destination, there.get(&destination.address).copied(), memory);
        wants.insert(destination.address);
    }
    for left in found.iter().filter(|found| !wants.contains(&found.address)) {
        planner.leaving(left, wanted, memory, now);
    }
    memory.leaving.retain(|address, _| there.contains_key(address) && !wants.contains(address));
    memory.told.retain(|address, _| there.contains_key(address) || wants.contains(address));
    planner.changes()
}

/// What to change so that a service that is no longer wanted goes: its destinations leave, then itself.
pub(super) fn retire(
    service: VirtualService,
    found: &Found,
    drain_timeout: Duration,
    memory: &mut Memory,
    now: Time,
) -> Vec<Change> {
    if found.destinations.is_empty() {
        return vec![Change { service, step: Step::DeleteService, cause: Cause::Wanted }];
    }
    let mut none = WantedService::new(service, "wlc", Vec::new()).expect("no destination can be wrong");
    none.drain_timeout = drain_timeout;
    let mut planner = Planner::of(service);
    for left in &found.destinations {
        planner.leaving(left, &none, memory, now);
    }
    planner.changes()
}

struct Planner {
    service: VirtualService,
    first: Vec<Change>,
    more: Vec<Change>,
    less: Vec<Change>,
    last: Vec<Change>,
}

impl Planner {
    fn of(service: VirtualService) -> Planner {
        Planner { service, first: Vec::new(), more: Vec::new(), less: Vec::new(), last: Vec::new() }
    }

    fn changes(self) -> Vec<Change> {
        [self.first, self.more, self.less, self.last].concat()
    }

    fn change(&self, step: Step, is_correction: bool) -> Change {
        let cause = if is_correction { Cause::Corrected } else { Cause::Wanted };
        Change { service: self.service, step, cause }
    }

    fn service(&mut self, wanted: &WantedService, found: Option<&Found>, memory: &mut Memory) {
        let change = match found {
            None => {
                let added = Service::new(wanted.service(), wanted.scheduler());
                self.change(Step::AddService(added), memory.scheduler.is_some())
            }
            Some(found) if found.service.scheduler != wanted.scheduler() => {
                let by_another =
                    memory.scheduler.as_ref().is_some_and(|told| *told != found.service.scheduler);
                // Persistence is the operator's.
                let edited = Service { scheduler: wanted.scheduler().to_owned(), ..found.service.clone() };
                self.change(Step::EditService(edited), by_another)
            }
            Some(found) => {
                memory.scheduler = Some(found.service.scheduler.clone());
                return;
            }
        };
        self.first.push(change);
    }

    fn wanted(&mut self, wanted: &WantedDestination, found: Option<&Destination>, memory: &mut Memory) {
        let told = memory.told.get(&wanted.address).copied();
        memory.leaving.remove(&wanted.address);
        let Some(found) = found else {
            let added = Destination::new(wanted.address, wanted.forwarding, wanted.weight);
            self.more.push(self.change(Step::Add(added), told.is_some()));
            return;
        };
        let keeps_way = found.way.is(wanted.forwarding);
        if keeps_way && found.weight == wanted.weight {
            memory.note(found);
            return;
        }
        let way = if keeps_way { found.way } else { wanted.forwarding.into() };
        let edited = Destination { weight: wanted.weight, way, ..*found };
        let change = self.change(Step::Edit(edited), is_by_another(told, found));
        if wanted.weight < found.weight { &mut self.less } else { &mut self.more }.push(change);
    }

    fn leaving(&mut self, found: &Destination, wanted: &WantedService, memory: &mut Memory, now: Time) {
        let told = memory.told.get(&found.address).copied();
        let is_known = told.is_some() || memory.leaving.contains_key(&found.address);
        if !is_known && now.since(memory.since) < wanted.settle {
            return;
        }
        let since = *memory.leaving.entry(found.address).or_insert(now);
        let waited = now.since(since);
        if waited >= wanted.drain_timeout && found.weight == 0 {
            self.last.push(self.change(Step::Delete(found.address), false));
        } else if found.weight != 0 {
            let quiesced = Destination { weight: 0, ..*found };
            // It leaves for the first time, or another has called it back.
            let by_another = !waited.is_zero() && told.is_some_and(|told| told.weight == 0);
            self.less.push(self.change(Step::Quiesce(quiesced), by_another));
        } else if found.active == 0 && waited >= HANDSHAKE {
            self.last.push(self.change(Step::Delete(found.address), false));
        }
    }
}

fn is_by_another(told: Option<Told>, found: &Destination) -> bool {
    told.is_some_and(|told| {
        told.weight != found.weight || told.forwarding.is_some_and(|forwarding| !found.way.is(forwarding))
    })
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
