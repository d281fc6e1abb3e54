//! One connection of one agent: bytes and time go into the session, and what it says goes to the director.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use evener_feedback::necp::session::{self, DirectorEvent, DirectorSettings, Reason, Rhythm, Values};
use evener_feedback::necp::{Key, Port, Service};
use evener_model::Time;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};

use super::registry::Handle;
use super::{Shared, lock};
use crate::feedback::credentials::{Credentials, Speaker, is_shared};
use crate::feedback::refusal::Refusal;
use crate::feedback::{Dialect, NodeRef};

/// Bytes that are read at once: more than an answer about ten services.
const READ_BYTES: usize = 2048;
/// How long the last words of a connection may take.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);
/// Sessions wake up together that would within this.
const SLOT_MAX: Duration = Duration::from_millis(100);
/// No agent is asked more often.
const PHASE_MIN: Duration = Duration::from_millis(50);
/// An agent that is asked often must be silent for so long, and not only for some questions, to be called dead.
const SILENCE_MIN: Duration = Duration::from_secs(15);

/// Drives a session from its first message to its end.
pub(super) async fn drive<S: AsyncRead + AsyncWrite + Unpin>(
    shared: &Shared,
    stream: S,
    handle: &Handle,
    credentials: &Credentials,
    place: OwnedSemaphorePermit,
) {
    let phase = shared.director.phase_at(handle.agent);
    let settings = DirectorSettings {
        keys: credentials.keys.iter().map(|key| Key::new(key.secret())).collect(),
        rhythm: rhythm(phase.unwrap_or(Rhythm::default().interval)),
        ..DirectorSettings::default()
    };
    handle.set_phase(phase.unwrap_or_default());
    let now = shared.director.now();
    let session = session::Director::new(settings, handle.agent, now, random(), random());
    let connection = Connection {
        shared,
        stream,
        handle,
        credentials,
        session,
        place: Some(place),
        started: Vec::new(),
        stopped: Vec::new(),
        buffer: vec![0; READ_BYTES].into(),
    };
    connection.run().await;
}

struct Connection<'a, S> {
    shared: &'a Shared,
    stream: S,
    handle: &'a Handle,
    /// Those that counted when it began.
    credentials: &'a Credentials,
    session: session::Director,
    /// Among those who have proved nothing yet.
    place: Option<OwnedSemaphorePermit>,
    started: Vec<Service>,
    /// Ports of services that it had started and then stopped.
    stopped: Vec<u16>,
    buffer: Box<[u8]>,
}

/// What a connection has waited for.
enum Woken {
    Read(usize),
    Closed,
    Deadline,
    Told,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<'_, S> {
    async fn run(mut self) {
        let mut sleep = pin!(tokio::time::sleep(Duration::ZERO));
        let mut armed = None;
        let reason = loop {
            let now = self.shared.director.now();
            if let Some(reason) = self.take_events(now) {
                break reason;
            }
            let deadline = self.session.deadline();
            if let Some(at) = deadline.filter(|_| deadline != armed) {
                sleep.as_mut().reset(Instant::now() + self.in_company(at).since(now));
                armed = deadline;
            }
            match self.wait(sleep.as_mut()).await {
                Woken::Read(length) => self.received(length),
                Woken::Closed => self.session.closed(),
                Woken::Deadline => {
                    armed = None;
                    self.session.timeout(self.shared.director.now());
                }
                Woken::Told => self.review(),
            }
        };
        self.ended(reason);
        let last_words = async {
            // Nobody may be there to hear them.
            let _ = self.stream.write_all(self.session.output()).await;
            let _ = self.stream.shutdown().await;
        };
        let _ = tokio::time::timeout(FAREWELL_TIMEOUT, last_words).await;
    }

    /// A time after `at` at which other sessions wake up, too: the thread then wakes once for all of them, and once for
    /// their answers. It is a fiftieth of the phase at the most: agents do not fall in step by it.
    fn in_company(&self, at: Time) -> Time {
        let slot = self.handle.phase().div_f64(50.0).min(SLOT_MAX).as_nanos() as u64;
        Time::from_nanos(at.as_nanos().next_multiple_of(slot.max(1)))
    }

    /// Writes what is to be written, and waits until something happens.
    async fn wait(&mut self, mut sleep: Pin<&mut Sleep>) -> Woken {
        let mut told = pin!(self.handle.woken.notified());
        let Connection { stream, session, buffer, .. } = self;
        poll_fn(|cx| {
            if !write(stream, session.output(), cx) {
                return Poll::Ready(Woken::Closed);
            }
            let mut read = ReadBuf::new(buffer);
            match Pin::new(&mut *stream).poll_read(cx, &mut read) {
                Poll::Ready(Ok(())) if !read.filled().is_empty() => {
                    return Poll::Ready(Woken::Read(read.filled().len()));
                }
                Poll::Ready(_) => return Poll::Ready(Woken::Closed),
                Poll::Pending => {}
            }
            if sleep.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Woken::Deadline);
            }
            told.as_mut().poll(cx).map(|()| Woken::Told)
        })
        .await
    }

    fn received(&mut self, length: usize) {
        let now = self.shared.director.now();
        let mut exceptions = lock(&self.shared.exceptions);
        let before = exceptions.changes();
        self.session.received(now, &self.buffer[..length], &mut exceptions);
        let is_changed = exceptions.changes() != before;
        drop(exceptions);
        if is_changed {
            self.shared.tell_exceptions(self.handle.agent);
        }
    }

    /// Looks at what has changed around it.
    fn review(&mut self) {
        let current = self.shared.credentials();
        let is_known = match self.session.key() {
            Some(place) => current.keys.contains(&self.credentials.keys[place]),
            None => current.keys.is_empty(),
        };
        let is_good = is_known && current.tls.is_some() == self.credentials.tls.is_some();
        // Who has not begun yet is told the same as who comes now: nothing else would be of use.
        if self.handle.is_unwanted() || !is_good {
            return self.session.end(Reason::Ended);
        }
        if let Some(phase) = self.shared.director.phase_at(self.handle.agent) {
            let before = self.handle.phase();
            if phase != before {
                self.handle.set_phase(phase);
                self.session.change_rhythm(rhythm(phase));
                if phase < before {
                    self.session.ask(self.shared.director.now());
                }
            }
        }
        // Nodes may have come that its services belong to.
        if self.handle.speaker().is_some() {
            self.stop_what_is_not_started();
            for service in &self.started {
                if self.shared.registry().speaks(self.handle, service.port) {
                    self.note(*service, Some(true));
                }
            }
        }
    }

    /// Tells the director what the session says; gives the reason when that is over.
    fn take_events(&mut self, now: Time) -> Option<Reason> {
        while let Some(event) = self.session.poll() {
            match event {
                DirectorEvent::Opened => self.opened(),
                DirectorEvent::Started(service) => self.start(service),
                DirectorEvent::Stopped(port) => self.stop(port),
                DirectorEvent::Reported { port, values, asked_at } => {
                    self.reported(port, &values, asked_at.min(now))
                }
                DirectorEvent::Ended(reason) => return Some(reason),
            }
        }
        None
    }

    fn opened(&mut self) {
        self.place = None;
        let speaker = match self.session.key() {
            Some(place) => Speaker::with(&self.credentials.keys[place]),
            // Of which nodes follows from its address anyhow.
            None => Speaker::Any,
        };
        tracing::info!(agent = %self.handle.agent, "NECP: an agent is connected");
        self.started.clear();
        self.stopped.clear();
        if self.handle.speaker().is_none() {
            self.shared.director.reports.count_agent(true);
        }
        self.shared.registry().open(self.handle, speaker);
        self.stop_what_is_not_started();
    }

    /// Until an agent starts a service, the node gets no jobs. Where other agents may be on the same address, nobody can
    /// tell which nodes are this one's before it says so.
    fn stop_what_is_not_started(&self) {
        if is_shared(self.handle.agent) {
            return;
        }
        for node in self.nodes(None) {
            let Some(address) = self.shared.director.address_of(node) else { continue };
            let is_started = self.started.iter().any(|service| service.port.number == address.port());
            if !is_started && !self.shared.registry().is_foreign(self.handle, address.port()) {
                self.shared.director.note_service(node, Some(false), None);
            }
        }
    }

    fn start(&mut self, service: Service) {
        self.started.retain(|known| known.port != service.port);
        self.stopped.retain(|port| *port != service.port.number);
        self.started.push(service);
        self.shared.registry().start(self.handle, service.port);
        if self.may_join() {
            self.shared.director.join(self.handle.agent, service);
        }
        if !self.note(service, Some(true)) {
            self.shared.director.refuse(Dialect::Necp, Refusal::Unknown);
            tracing::info!(agent = %self.handle.agent, service = %service.port, "NECP: no node is of that service");
        }
    }

    fn stop(&mut self, port: Port) {
        let service =
            self.started.iter().position(|known| known.port == port).map(|at| self.started.remove(at));
        let Some(service) = service else { return };
        self.stopped.push(port.number);
        if self.shared.registry().give_up(self.handle, port) {
            self.note(service, Some(false));
            if self.may_join() {
                self.shared.director.leave(self.handle.agent, port);
            }
        }
    }

    fn reported(&self, port: Port, values: &Values, asked_at: Time) {
        if *values == Values::default() || !self.shared.registry().speaks(self.handle, port) {
            return;
        }
        let report = values.report(asked_at);
        for node in self.nodes(Some(port.number)) {
            self.shared.director.reported(node, Dialect::Necp, report);
        }
    }

    fn ended(&mut self, reason: Reason) {
        let agent = self.handle.agent;
        self.count(reason);
        if self.handle.speaker().is_none() {
            tracing::debug!(%agent, %reason, "NECP: a connection ended before it began");
            return;
        }
        self.shared.director.reports.count_agent(false);
        tracing::info!(%agent, %reason, "NECP: an agent is gone");
        if self.shared.is_stopping() {
            return;
        }
        for service in std::mem::take(&mut self.started) {
            if self.shared.registry().give_up(self.handle, service.port) {
                self.note(service, None);
            }
        }
        // Another session of the agent's has said anew what holds.
        if self.shared.registry().has_others(self.handle) {
            return;
        }
        if !is_shared(agent) {
            for node in self.nodes(None) {
                // What was stopped in so many words stays so: that is what an agent says last on a node that goes down.
                let port = self.shared.director.address_of(node).map(|address| address.port());
                if port.is_none_or(|port| !self.stopped.contains(&port)) {
                    self.shared.director.note_service(node, None, None);
                }
            }
        }
        lock(&self.shared.exceptions).reset(agent);
        self.shared.tell_exceptions(agent);
    }

    /// Tells whether a service of this agent's is started; says whether there is a node of it.
    fn note(&self, service: Service, started: Option<bool>) -> bool {
        let nodes = self.nodes(Some(service.port.number));
        for node in &nodes {
            self.shared.director.note_service(*node, started, Some(service.forwarding));
        }
        !nodes.is_empty()
    }

    /// The nodes at the agent's address, of that port, of which it may speak.
    fn nodes(&self, port: Option<u16>) -> Vec<NodeRef> {
        let director = &self.shared.director;
        let mut nodes = director.nodes_at(Dialect::Necp, self.handle.agent, port);
        if let Some(speaker) = self.handle.speaker().filter(|speaker| **speaker != Speaker::Any) {
            nodes.retain(|node| speaker.may_speak_of(director, *node));
        }
        nodes
    }

    /// Nodes that join are called after their address: a key for nodes of another name is none for them.
    fn may_join(&self) -> bool {
        self.handle.speaker() == Some(&Speaker::Any)
    }

    fn count(&self, reason: Reason) {
        let refusal = match reason {
            Reason::Unauthenticated => Refusal::Key,
            Reason::Silent | Reason::NotOpened => Refusal::Silence,
            Reason::Fault(_) | Reason::BadMessages | Reason::Unread | Reason::Version(_) => Refusal::Form,
            _ => return,
        };
        self.shared.director.refuse(Dialect::Necp, refusal);
    }
}

/// Writes as much as there is room for; says whether there is still somebody to read it.
fn write<S: AsyncWrite + Unpin>(stream: &mut S, output: &mut Vec<u8>, cx: &mut Context<'_>) -> bool {
    let mut written = 0;
    let is_open = loop {
        if written == output.len() {
            break true;
        }
        match Pin::new(&mut *stream).poll_write(cx, &output[written..]) {
            Poll::Ready(Ok(0) | Err(_)) => break false,
            Poll::Ready(Ok(count)) => written += count,
            Poll::Pending => break true,
        }
    };
    if written > 0 {
        output.drain(..written);
        // Of TLS, what was taken may still lie there.
        return is_open && !matches!(Pin::new(stream).poll_flush(cx), Poll::Ready(Err(_)));
    }
    is_open
}

/// Asks every `phase`, more or less.
fn rhythm(phase: Duration) -> Rhythm {
    let phase = phase.max(PHASE_MIN);
    let unanswered = SILENCE_MIN.as_nanos().div_ceil(phase.as_nanos());
    Rhythm {
        interval: phase,
        jitter: phase / 5,
        unanswered_max: u8::try_from(unanswered).unwrap_or(u8::MAX).max(3),
    }
}

/// Eight bytes that nobody can guess.
fn random() -> u64 {
    let mut bytes = [0; 8];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    assert_eq!(filled, Ok(8), "the system gives random bytes");
    u64::from_ne_bytes(bytes)
}
