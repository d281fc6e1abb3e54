//! A director that asks by NECP: sockets and a clock for the session.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use evener_feedback::necp::session::{Agent, AgentEvent, AgentSettings};
use evener_feedback::necp::{Exception, Query, Service};
use evener_model::Health;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::{sleep_until, timeout};
use tracing::{info, warn};

use crate::latest::Latest;
use crate::net::{Connection, Target};
use crate::settings::{self, Start};

/// How long what is left to say to a director may take, when the connection is over.
const LAST_WORDS: Duration = Duration::from_secs(1);
const READ_BYTES: usize = 4096;

/// A director.
pub(crate) struct Link {
    pub(crate) url: String,
    pub(crate) target: Target,
    pub(crate) settings: AgentSettings,
    pub(crate) exceptions: Vec<Exception>,
}

type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Connection>>> + Send>>;

/// A connection, open or not yet.
#[derive(Default)]
struct Wire {
    connecting: Option<Connecting>,
    read: Option<ReadHalf<Box<dyn Connection>>>,
    write: Option<WriteHalf<Box<dyn Connection>>>,
    /// Whether TLS may hold back what was written.
    needs_flush: bool,
    /// Why the connection could not be opened, or broke.
    failed: Option<io::Error>,
}

/// Reports to the director until `stop` says otherwise, and takes all services back then.
pub(crate) async fn report(link: Link, mut latest: Latest, mut stop: watch::Receiver<bool>) {
    let clock = latest.told.clock;
    let mut session = Agent::new(link.settings.clone(), clock.now(), random());
    for exception in &link.exceptions {
        session.except(clock.now(), *exception);
    }
    let mut waiting = latest.told.services.clone();
    let mut wire = Wire::default();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        waiting.retain(|service| {
            let starts = is_to_start(service, &latest);
            if starts {
                session.start(clock.now(), Service { forwarding: service.forwarding, port: service.port });
            }
            !starts
        });
        while let Some(event) = session.poll() {
            match event {
                AgentEvent::Connect => {
                    let target = link.target.clone();
                    wire.connecting = Some(Box::pin(async move { target.connect().await }));
                }
                AgentEvent::Closed(reason) => {
                    let error = wire.failed.take().map(|error| error.to_string());
                    let reason = error.unwrap_or_else(|| reason.to_string());
                    warn!(director = link.url, reason, "not connected");
                    wire.close(session.output()).await;
                }
                AgentEvent::Ended => {
                    wire.close(session.output()).await;
                    info!(director = link.url, "ended");
                    return;
                }
                event => tell(&link.url, event),
            }
        }
        let deadline = session.deadline().map(|deadline| clock.instant(deadline));
        let Wire { connecting, read, write, needs_flush, failed } = &mut wire;
        let is_stopping = *stop.borrow();
        let has_output = !session.output().is_empty();
        tokio::select! {
            // What has just come goes before what time does: a machine that was asleep has heard of its peers.
            biased;
            _ = stop.changed(), if !is_stopping => session.shutdown(clock.now()),
            connected = async { match connecting { Some(future) => future.await, None => pending().await } } => {
                *connecting = None;
                match connected {
                    Ok(stream) => {
                        let (read, write) = tokio::io::split(stream);
                        wire = Wire { read: Some(read), write: Some(write), ..Wire::default() };
                        session.connected(clock.now(), random());
                    }
                    Err(error) => {
                        *failed = Some(error);
                        session.closed(clock.now());
                    }
                }
            }
            result = async { match read { Some(read) => read.read(&mut buffer).await, None => pending().await } } => {
                match result {
                    Ok(length @ 1..) => {
                        let mut answer = |query: Query| latest.values(query.port)?.answer(query);
                        session.received(clock.now(), &buffer[..length], &mut answer);
                    }
                    Ok(0) => session.closed(clock.now()),
                    Err(error) => {
                        *failed = Some(error);
                        session.closed(clock.now());
                    }
                }
            }
            put = put(write, session.output(), *needs_flush), if has_output || *needs_flush => match put {
                Ok(Put::Some(length @ 1..)) => {
                    session.output().drain(..length);
                    *needs_flush = true;
                }
                Ok(Put::All) => *needs_flush = false,
                Ok(Put::Some(0)) => session.closed(clock.now()),
                Err(error) => {
                    *failed = Some(error);
                    session.closed(clock.now());
                }
            },
            () = async { match deadline { Some(deadline) => sleep_until(deadline).await, None => pending().await } } => {
                session.timeout(clock.now());
            }
            () = latest.changed(), if !waiting.is_empty() => {}
        }
    }
}

/// What was put on the wire.
enum Put {
    /// So many bytes of the output.
    Some(usize),
    /// All that was held back.
    All,
}

/// Writes some of the output, or what TLS holds back of it. Loses nothing if it is dropped.
async fn put(
    write: &mut Option<WriteHalf<Box<dyn Connection>>>,
    output: &[u8],
    needs_flush: bool,
) -> io::Result<Put> {
    match write {
        Some(write) if !output.is_empty() => write.write(output).await.map(Put::Some),
        Some(write) if needs_flush => write.flush().await.map(|()| Put::All),
        _ => pending().await,
    }
}

impl Wire {
    /// Says what is left, and closes.
    async fn close(&mut self, output: &mut Vec<u8>) {
        let wire = std::mem::take(self);
        if let Some(mut write) = wire.write {
            let last = async {
                write.write_all(output).await?;
                write.shutdown().await
            };
            // Whoever does not listen any more is left alone.
            let _ = timeout(LAST_WORDS, last).await;
        }
        output.clear();
    }
}

fn tell(director: &str, event: AgentEvent) {
    match event {
        AgentEvent::Opened => info!(director, "connected"),
        AgentEvent::Refused(service) => {
            warn!(director, service = %service.port, "the director does not take the service")
        }
        AgentEvent::ExceptionRefused(exception) => {
            warn!(director, ?exception, "the director does not take the exception");
        }
        // Asked for by nobody, or dealt with before.
        AgentEvent::Exceptions(_) | AgentEvent::Connect | AgentEvent::Closed(_) | AgentEvent::Ended => {}
    }
}

/// Whether the service is to be offered now. Where a sample does not say how it is, nothing forbids it.
fn is_to_start(service: &settings::Service, latest: &Latest) -> bool {
    match service.start {
        Start::Always => true,
        Start::Healthy => latest
            .report(service.name.as_deref())
            .is_some_and(|report| report.health.is_none_or(|health| health > Health::NONE)),
    }
}

/// Of the system: nobody can guess it.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    assert_eq!(filled, Ok(bytes.len()), "the system has random numbers");
    u64::from_ne_bytes(bytes)
}
