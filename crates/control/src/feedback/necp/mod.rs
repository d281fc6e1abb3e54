//! The director's side of NECP: agents connect, say what they serve, and answer how they are.
//!
//! A task for each connection drives the session of `evener_feedback`, see `connection.rs`; what sessions of one agent
//! have to know of each other is in `registry.rs`. Sessions look at what they depend on (whether they are still
//! wanted, their key, how often to ask, which nodes there are) when they are told to: they cost nothing in between.

mod connection;
mod registry;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evener_feedback::necp::session::Exceptions;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::director::Director;
use crate::feedback::credentials::{Credentials, is_shared};
use crate::feedback::refusal::Refusal;
use crate::feedback::{Dialect, transports};
use registry::{Handle, Registry};

/// Agents at once.
const AGENTS_MAX: usize = 4096;
/// Of these, from one address, unless that is the loopback.
const AGENTS_PER_ADDRESS_MAX: usize = 8;
/// Connections at once that have still to say, or to prove, who they are; more wait to be accepted.
const UNPROVEN_MAX: usize = 512;
/// How long TLS may take to begin.
const TLS_TIMEOUT: Duration = Duration::from_secs(10);
/// How often it is looked whether exceptions have expired or agents are to be asked in another rhythm.
const TICK: Duration = Duration::from_secs(1);

/// A listener of NECP.
#[derive(Debug)]
pub(super) struct Necp {
    address: SocketAddr,
    socket: OwnedFd,
    shared: Arc<Shared>,
    tasks: [JoinHandle<()>; 2],
}

/// What all sessions know.
#[derive(Debug)]
struct Shared {
    director: Arc<Director>,
    credentials: Mutex<Arc<Credentials>>,
    registry: Mutex<Registry>,
    exceptions: Mutex<Exceptions>,
    unproven: Arc<Semaphore>,
    /// The nodes are another process's affair now.
    stopping: AtomicBool,
}

impl Necp {
    /// Accepts agents on `socket`.
    ///
    /// # Errors
    /// If the socket is of no use.
    pub(super) fn start(
        address: SocketAddr,
        socket: OwnedFd,
        director: &Arc<Director>,
        global_exceptions: bool,
    ) -> std::io::Result<Necp> {
        let listener = transports::listener(&socket)?;
        let shared = Arc::new(Shared {
            director: Arc::clone(director),
            credentials: Mutex::default(),
            registry: Mutex::default(),
            exceptions: Mutex::new(Exceptions::new(global_exceptions)),
            unproven: Arc::new(Semaphore::new(UNPROVEN_MAX)),
            stopping: AtomicBool::new(false),
        });
        let tasks = [
            tokio::spawn(accept(listener, Arc::clone(&shared))),
            tokio::spawn(look_after_time(Arc::clone(&shared))),
        ];
        Ok(Necp { address, socket, shared, tasks })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Believes these from now on. Who is not believed any more has to go.
    pub(super) fn follow(&self, credentials: Arc<Credentials>, global_exceptions: bool) {
        *lock(&self.shared.credentials) = credentials;
        let mut exceptions = lock(&self.shared.exceptions);
        let before = exceptions.changes();
        exceptions.allow_global(global_exceptions);
        let is_changed = exceptions.changes() != before;
        drop(exceptions);
        if is_changed {
            for agent in self.shared.registry().addresses() {
                self.shared.tell_exceptions(agent);
            }
        }
        self.review();
    }

    /// Lets sessions look at what has changed around them.
    pub(super) fn review(&self) {
        self.shared.registry().handles().for_each(|handle| handle.wake());
    }

    /// Accepts nobody any more, and closes what is open. If the process ends, nodes stay as they are: those that their
    /// agents have stopped must not get jobs for it.
    pub(super) fn stop(self, process_ends: bool) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.shared.stopping.store(process_ends, Ordering::Relaxed);
        self.shared.registry().handles().for_each(|handle| handle.end());
    }
}

impl Shared {
    fn registry(&self) -> MutexGuard<'_, Registry> {
        lock(&self.registry)
    }

    fn credentials(&self) -> Arc<Credentials> {
        Arc::clone(&lock(&self.credentials))
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Tells what the agent at that address wants its nodes to be spared now.
    fn tell_exceptions(&self, agent: IpAddr) {
        let held = lock(&self.exceptions).of(self.director.now(), agent);
        self.director.set_exceptions(agent, held);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that is held here can be half done: what panicked has ended.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok(place) = Arc::clone(&shared.unproven).acquire_owned().await else { return };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "NECP: accept");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let agent = peer.ip().to_canonical();
        let handle = {
            let mut registry = shared.registry();
            let per_address = if is_shared(agent) { AGENTS_MAX } else { AGENTS_PER_ADDRESS_MAX };
            registry.enter(agent, AGENTS_MAX, per_address)
        };
        let Some(handle) = handle else {
            shared.director.refuse(Dialect::Necp, Refusal::Crowded);
            tracing::debug!(%agent, "NECP: too many connections");
            continue;
        };
        tokio::spawn(converse(Arc::clone(&shared), stream, handle, place));
    }
}

/// From a connection's first byte to its last.
async fn converse(
    shared: Arc<Shared>,
    stream: TcpStream,
    handle: Arc<Handle>,
    place: tokio::sync::OwnedSemaphorePermit,
) {
    // Whatever comes of it, its place is free again afterwards.
    let _leave = registry::Leave { shared: &shared, handle: &handle };
    let credentials = shared.credentials();
    match &credentials.tls {
        None => connection::drive(&shared, stream, &handle, &credentials, place).await,
        Some(tls) => {
            let accepted = tokio_rustls::TlsAcceptor::from(Arc::clone(tls)).accept(stream);
            match tokio::time::timeout(TLS_TIMEOUT, accepted).await {
                Ok(Ok(stream)) => connection::drive(&shared, stream, &handle, &credentials, place).await,
                Ok(Err(error)) => {
                    shared.director.refuse(Dialect::Necp, Refusal::Tls);
                    tracing::info!(agent = %handle.agent, %error, "NECP: no TLS");
                }
                Err(_) => shared.director.refuse(Dialect::Necp, Refusal::Tls),
            }
        }
    }
}

/// Exceptions expire, and the time between reports changes: nobody else says so.
async fn look_after_time(shared: Arc<Shared>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let expired = lock(&shared.exceptions).expire(shared.director.now());
        for agent in expired {
            shared.tell_exceptions(agent);
        }
        for handle in shared.registry().handles() {
            if shared.director.phase_at(handle.agent).is_some_and(|phase| phase != handle.phase()) {
                handle.wake();
            }
        }
    }
}
