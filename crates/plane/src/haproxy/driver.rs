//! The driver: looks, plans, does, and tells.

use std::collections::BTreeMap;
use std::time::Duration;

use evener_model::Time;
use tracing::{debug, info, warn};

use super::answer::{self, AnswerError, Process, Refusal, Server};
use super::command::Command;
use super::error::HaproxyError;
use super::plan::{Cause, Change, Memory, Step, has_leaving, matched, plan};
use super::socket::{Connection, Endpoint};
use super::wanted::Wanted;

/// How long HAProxy may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For an answer, and for a connection.
    pub answer_timeout: Duration,
    /// For all of an application.
    pub apply_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { answer_timeout: Duration::from_secs(2), apply_timeout: Duration::from_secs(10) }
    }
}

/// A HAProxy, as this process steers it.
///
/// Calls block until HAProxy has answered, some 50 µs for each command, and at the most for what [`Limits`] allow.
#[derive(Debug)]
pub struct Haproxy {
    endpoint: Endpoint,
    limits: Limits,
    process: Option<Process>,
    /// By proxy.
    memories: BTreeMap<String, Memory>,
}

/// What was changed.
#[derive(Debug, Default)]
pub struct Changes {
    /// What was done.
    pub done: Vec<Change>,
    /// What HAProxy refused; the rest was done nevertheless. It is tried again half a minute later, or when HAProxy is
    /// started anew.
    pub failed: Vec<Failure>,
    /// Servers that leave and have sessions yet.
    pub leaving: usize,
    /// Whether another process of HAProxy answered than the last time: it was restarted or reloaded.
    pub restarted: bool,
}

/// What HAProxy refused.
#[derive(Debug)]
pub struct Failure {
    /// What it was to do.
    pub change: Change,
    /// Why it did not.
    pub refusal: Refusal,
}

impl Haproxy {
    /// The HAProxy whose runtime API is there. Nothing is connected yet.
    pub fn new(endpoint: Endpoint) -> Haproxy {
        Haproxy::with_limits(endpoint, Limits::default())
    }

    /// The same with other limits.
    pub fn with_limits(endpoint: Endpoint, limits: Limits) -> Haproxy {
        Haproxy { endpoint, limits, process: None, memories: BTreeMap::new() }
    }

    /// Where it is.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The process that answered last.
    pub fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// The servers of a proxy, as they are now.
    ///
    /// # Errors
    /// [`HaproxyError`] if HAProxy does not say.
    pub fn servers(&self, proxy: &str) -> Result<Vec<Server>, HaproxyError> {
        Session::open(&self.endpoint, self.limits)?.servers(proxy)
    }

    /// The weights of the nodes of a proxy that somebody has steered already: those of its servers, by the place of the
    /// node. Empty if all servers have the weights of HAProxy's configuration.
    ///
    /// # Errors
    /// [`HaproxyError`] if HAProxy does not say.
    pub fn present(&self, wanted: &Wanted) -> Result<Vec<(usize, u32)>, HaproxyError> {
        let found = self.servers(wanted.proxy())?;
        if found.iter().all(|server| server.weight == server.initial_weight) {
            return Ok(Vec::new());
        }
        let places = matched(wanted, &found).into_iter().enumerate();
        Ok(places.filter_map(|(node, place)| Some((node, found[place?].weight))).collect())
    }

    /// Makes a proxy what is wanted, with as few changes as that takes.
    ///
    /// - A node's server is the one of its name, else one at its address. A node that has none gets a new one, where
    ///   the proxy's algorithm allows it.
    /// - Of weight 0, it drains. What is in maintenance stays there: that is the operator's.
    /// - A server that is no node and never was one is left alone, unless a director added it. One that was a node
    ///   drains; if a director added it, a later call deletes it, when its sessions have ended or their time is up.
    /// - What another changed since is made what is wanted again, and logged. A HAProxy that was started anew is
    ///   told everything again.
    ///
    /// To be called whenever something is wanted that was not, and every second or so beside.
    ///
    /// # Errors
    /// [`HaproxyError`] if nothing can be done, or nothing more. What HAProxy refuses of several things is in
    /// [`Changes::failed`].
    pub fn apply(&mut self, now: Time, wanted: &Wanted) -> Result<Changes, HaproxyError> {
        let mut session = Session::open(&self.endpoint, self.limits)?;
        let process = session.process()?;
        if process.stopping {
            return Err(HaproxyError::Stopping(self.endpoint.clone(), process.pid));
        }
        let mut changes = Changes::default();
        if self.process.as_ref() != Some(&process) {
            changes.restarted = self.process.is_some();
            self.memories.values_mut().for_each(Memory::restart);
            let (endpoint, version, pid) = (&self.endpoint, &process.version, process.pid);
            info!(%endpoint, version, pid, restarted = changes.restarted, "HAProxy answers");
            self.process = Some(process);
        }
        let proxy = wanted.proxy();
        let found = session.servers(proxy)?;
        let sessions = match has_leaving(wanted, &found) {
            true => session.sessions(proxy)?,
            false => BTreeMap::new(),
        };
        let memory = self.memories.entry(proxy.to_owned()).or_insert_with(|| Memory::new(now));
        let plan = plan(wanted, &found, &sessions, memory, now);
        session.carry_out(now, wanted, plan, memory, &mut changes)?;
        changes.leaving = memory.leaving();
        Ok(changes)
    }
}

/// A connection, and what is asked on it.
struct Session<'a> {
    endpoint: &'a Endpoint,
    connection: Connection<'a>,
}

impl<'a> Session<'a> {
    fn open(endpoint: &'a Endpoint, limits: Limits) -> Result<Session<'a>, HaproxyError> {
        Ok(Session { endpoint, connection: Connection::open(endpoint, limits)? })
    }

    fn process(&mut self) -> Result<Process, HaproxyError> {
        let answer = answer::process(self.connection.ask(Command::ShowInfo)?);
        self.understood(answer)
    }

    fn servers(&mut self, proxy: &str) -> Result<Vec<Server>, HaproxyError> {
        let answer = answer::servers(self.connection.ask(Command::ShowServers(proxy))?, proxy);
        self.understood(answer)
    }

    fn sessions(&mut self, proxy: &str) -> Result<BTreeMap<String, u64>, HaproxyError> {
        let answer = answer::sessions(self.connection.ask(Command::ShowSessions(proxy))?, proxy);
        Ok(self.understood(answer)?.into_iter().collect())
    }

    fn understood<T>(&self, answer: Result<T, AnswerError>) -> Result<T, HaproxyError> {
        answer.map_err(|error| HaproxyError::Answer(self.endpoint.clone(), error))
    }

    fn carry_out(
        &mut self,
        now: Time,
        wanted: &Wanted,
        plan: Vec<Change>,
        memory: &mut Memory,
        changes: &mut Changes,
    ) -> Result<(), HaproxyError> {
        let proxy = wanted.proxy();
        // Of a server that could not be made the rest would only be refused, too.
        let mut unmade = None;
        for change in plan {
            if unmade.as_ref() == Some(&change.server) {
                continue;
            }
            if memory.is_static && matches!(change.step, Step::Weight(_)) {
                continue;
            }
            let command = command(proxy, &change, wanted.options());
            match answer::obeyed(self.connection.ask(command)?, command.done()) {
                Ok(()) => {
                    log(proxy, &change);
                    memory.done(&change);
                    changes.done.push(change);
                }
                Err(AnswerError::Refused(refusal)) => match refusal {
                    Refusal::Denied | Refusal::NoProxy => {
                        return self.understood(Err(AnswerError::Refused(refusal)));
                    }
                    // It is tried again when they have ended.
                    Refusal::Busy => {}
                    Refusal::Static => {
                        memory.is_static = true;
                        changes.failed.push(Failure { change, refusal });
                    }
                    Refusal::Other(_) => {
                        if matches!(change.step, Step::Add(..)) {
                            unmade = Some(change.server.clone());
                        }
                        memory.refused(&change, now);
                        changes.failed.push(Failure { change, refusal });
                    }
                },
                Err(error) => return self.understood(Err(error)),
            }
        }
        Ok(())
    }
}

fn command<'a>(proxy: &'a str, change: &'a Change, options: &'a str) -> Command<'a> {
    let server = change.server.as_str();
    match change.step {
        Step::Weight(weight) => Command::Weight(proxy, server, weight),
        Step::Ready => Command::Ready(proxy, server),
        Step::Drain => Command::Drain(proxy, server),
        Step::Add(address, weight) => Command::Add(proxy, server, address, weight, options),
        Step::CheckHealth => Command::EnableHealth(proxy, server),
        Step::CheckAgent => Command::EnableAgent(proxy, server),
        Step::Maintain => Command::Maintain(proxy, server),
        Step::Delete => Command::Delete(proxy, server),
    }
}

fn log(proxy: &str, change: &Change) {
    match (change.cause, change.step) {
        (Cause::Corrected, _) => {
            warn!(proxy, %change, "another had changed a server of HAProxy's: corrected")
        }
        // Weights follow what nodes report: that is no event.
        (_, Step::Weight(_)) => debug!(proxy, %change, "server of HAProxy's changed"),
        _ => info!(proxy, %change, "server of HAProxy's changed"),
    }
}
