//! Which sessions there are, and which of them speaks for a service.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use evener_feedback::necp::Port;
use tokio::sync::Notify;

use super::Shared;
use crate::feedback::credentials::{Speaker, is_shared};

/// What others see of a session.
#[derive(Debug)]
pub(super) struct Handle {
    id: u64,
    pub(super) agent: IpAddr,
    /// Of whom it speaks, once that is proven.
    speaker: OnceLock<Speaker>,
    phase_nanos: AtomicU64,
    is_unwanted: AtomicBool,
    pub(super) woken: Notify,
}

impl Handle {
    /// Lets the session look at what has changed around it.
    pub(super) fn wake(&self) {
        self.woken.notify_one();
    }

    /// Lets the session end.
    pub(super) fn end(&self) {
        self.is_unwanted.store(true, Ordering::Relaxed);
        self.wake();
    }

    pub(super) fn is_unwanted(&self) -> bool {
        self.is_unwanted.load(Ordering::Relaxed)
    }

    pub(super) fn phase(&self) -> Duration {
        Duration::from_nanos(self.phase_nanos.load(Ordering::Relaxed))
    }

    pub(super) fn set_phase(&self, phase: Duration) {
        let nanos = u64::try_from(phase.as_nanos()).unwrap_or(u64::MAX);
        self.phase_nanos.store(nanos, Ordering::Relaxed);
    }

    pub(super) fn speaker(&self) -> Option<&Speaker> {
        self.speaker.get()
    }
}

/// All sessions.
#[derive(Debug, Default)]
pub(super) struct Registry {
    next_id: u64,
    by_address: HashMap<IpAddr, Vec<Arc<Handle>>>,
    count: usize,
    /// The session that speaks for a service: whichever started it last.
    services: HashMap<(IpAddr, Port), u64>,
}

impl Registry {
    /// A new session of an agent at that address, unless there are too many.
    pub(super) fn enter(&mut self, agent: IpAddr, max: usize, per_address_max: usize) -> Option<Arc<Handle>> {
        let here = self.by_address.get(&agent).map_or(0, Vec::len);
        if self.count >= max || here >= per_address_max {
            return None;
        }
        self.next_id += 1;
        let handle = Arc::new(Handle {
            id: self.next_id,
            agent,
            speaker: OnceLock::new(),
            phase_nanos: AtomicU64::new(0),
            is_unwanted: AtomicBool::new(false),
            woken: Notify::new(),
        });
        self.by_address.entry(agent).or_default().push(Arc::clone(&handle));
        self.count += 1;
        Some(handle)
    }

    /// The session's agent has begun, perhaps anew: what it said before is void, also what it said in other sessions, and
    /// those have to end. Where several agents share an address, theirs cannot be told from its own; they
    /// are left alone: on one machine, a connection ends with its process.
    pub(super) fn open(&mut self, handle: &Handle, speaker: Speaker) {
        let agent = handle.agent;
        let others: Vec<&Arc<Handle>> = self.here(agent).filter(|other| other.id != handle.id).collect();
        let mut void = BTreeSet::from([handle.id]);
        if !is_shared(agent) {
            for other in others.into_iter().filter(|other| other.speaker.get() == Some(&speaker)) {
                other.end();
                void.insert(other.id);
            }
        }
        self.services.retain(|(address, _), id| *address != agent || !void.contains(id));
        // An agent that begins anew on the same connection is the same as before.
        let _ = handle.speaker.set(speaker);
    }

    /// The session speaks for a service from now on.
    pub(super) fn start(&mut self, handle: &Handle, port: Port) {
        self.services.insert((handle.agent, port), handle.id);
    }

    /// Whether it is this session that speaks for a service.
    pub(super) fn speaks(&self, handle: &Handle, port: Port) -> bool {
        self.services.get(&(handle.agent, port)) == Some(&handle.id)
    }

    /// Whether another session speaks for a service of that port number.
    pub(super) fn is_foreign(&self, handle: &Handle, number: u16) -> bool {
        use evener_feedback::necp::Protocol::{Tcp, Udp};
        [Tcp, Udp].into_iter().any(|protocol| {
            let owner = self.services.get(&(handle.agent, Port { protocol, number }));
            owner.is_some_and(|id| *id != handle.id)
        })
    }

    /// The session does not speak for a service any more; says whether it did.
    pub(super) fn give_up(&mut self, handle: &Handle, port: Port) -> bool {
        let did = self.speaks(handle, port);
        if did {
            self.services.remove(&(handle.agent, port));
        }
        did
    }

    /// Whether a session of that address has begun, other than this one.
    pub(super) fn has_others(&self, handle: &Handle) -> bool {
        self.here(handle.agent).any(|other| other.id != handle.id && other.speaker.get().is_some())
    }

    fn leave(&mut self, handle: &Handle) {
        let Some(here) = self.by_address.get_mut(&handle.agent) else { return };
        let before = here.len();
        here.retain(|known| known.id != handle.id);
        self.count -= before - here.len();
        if here.is_empty() {
            self.by_address.remove(&handle.agent);
        }
    }

    fn here(&self, agent: IpAddr) -> impl Iterator<Item = &Arc<Handle>> {
        self.by_address.get(&agent).into_iter().flatten()
    }

    pub(super) fn handles(&self) -> impl Iterator<Item = &Arc<Handle>> {
        self.by_address.values().flatten()
    }

    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        self.by_address.keys().copied().collect()
    }
}

/// Gives a session's place back.
pub(super) struct Leave<'a> {
    pub(super) shared: &'a Shared,
    pub(super) handle: &'a Handle,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.shared.registry().leave(self.handle);
    }
}

#[cfg(test)]
mod tests {
    use evener_feedback::necp::Protocol;

    use super::*;

    const PORT: Port = Port { protocol: Protocol::Tcp, number: 80 };

    fn enter(registry: &mut Registry, agent: &str) -> Arc<Handle> {
        registry.enter(agent.parse().unwrap(), 100, 2).expect("room")
    }

    #[test]
    fn an_agent_that_begins_anew_ends_its_other_sessions_and_nobody_elses() {
        let mut registry = Registry::default();
        let (old, elsewhere) = (enter(&mut registry, "10.0.0.1"), enter(&mut registry, "10.0.0.2"));
        for handle in [&old, &elsewhere] {
            registry.open(handle, Speaker::Any);
            registry.start(handle, PORT);
        }
        let new = enter(&mut registry, "10.0.0.1");
        assert!(!old.is_unwanted(), "a connection that has proved nothing yet");
        registry.open(&new, Speaker::Any);
        assert!(old.is_unwanted() && !elsewhere.is_unwanted());
        assert!(!registry.give_up(&old, PORT), "what it said is void");
        assert!(registry.speaks(&elsewhere, PORT));
    }

    #[test]
    fn agents_on_one_machine_speak_each_for_what_they_started_last() {
        let mut registry = Registry::default();
        let (first, second) = (enter(&mut registry, "127.0.0.1"), enter(&mut registry, "127.0.0.1"));
        registry.open(&first, Speaker::Any);
        registry.start(&first, PORT);
        registry.open(&second, Speaker::Any);
        assert!(!first.is_unwanted() && registry.is_foreign(&second, 80));
        registry.start(&second, PORT);
        assert!(registry.speaks(&second, PORT) && !registry.speaks(&first, PORT));
    }

    #[test]
    fn there_is_a_limit_to_sessions_of_an_address_and_places_become_free() {
        let mut registry = Registry::default();
        let first = enter(&mut registry, "10.0.0.1");
        enter(&mut registry, "10.0.0.1");
        assert!(registry.enter("10.0.0.1".parse().unwrap(), 100, 2).is_none());
        assert!(registry.enter("10.0.0.2".parse().unwrap(), 2, 2).is_none());
        registry.leave(&first);
        enter(&mut registry, "10.0.0.1");
    }
}
