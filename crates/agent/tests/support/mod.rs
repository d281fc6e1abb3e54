//! Agents that run in the test's process, and directors for them.
#![allow(dead_code, reason = "each test uses a part")]

use std::fs::{self, Permissions};
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use evener_agent::{Agent, Settings};
use evener_feedback::necp::Key;
use evener_feedback::necp::session::{Director, DirectorEvent, DirectorSettings, Exceptions, Rhythm};
use evener_model::Time;
use evener_trust::rustls::ServerConfig;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// What is waited for must come within this time.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
pub(crate) const SECRET: &str = "0123456789abcdef-ours";

/// Settings that look at nothing of the machine, so that only sources count.
const QUIET: &str = "interval = \"20ms\"\nreconnect = { min = \"10ms\", max = \"50ms\" }\nkeepalive = \"100ms\"\n\
    period = \"30ms\"\nage_max = \"20s\"\ncpu = { factor = 0 }\nnetwork = { factor = 0 }\nmemory = { stall_max = 0 }\n\
    descriptors = { used_max = 1 }\n";

/// An agent that runs.
pub(crate) struct Running {
    pub(crate) http: Option<SocketAddr>,
    pub(crate) checks: Vec<SocketAddr>,
    pub(crate) datagrams: Option<SocketAddr>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<()>>,
}

/// These settings, and for the rest those of quiet.
pub(crate) fn settings(text: &str) -> Settings {
    let table = |text: &str| text.parse::<toml::Table>().unwrap_or_else(|error| panic!("{error}"));
    let mut all = table(QUIET);
    all.extend(table(text));
    all.try_into().unwrap_or_else(|error: toml::de::Error| panic!("{error}"))
}

/// Starts an agent with these settings.
pub(crate) fn start(text: &str) -> Running {
    let agent = Agent::prepare(settings(text)).unwrap_or_else(|error| panic!("{error}"));
    let (http, checks, datagrams) =
        (agent.http_address(), agent.agent_check_addresses(), agent.datagram_address());
    let (stop, stopped) = oneshot::channel();
    let task =
        tokio::spawn(
            async move { agent.run(async { drop(stopped.await) }, |_| ControlFlow::Continue(())).await },
        );
    Running { http, checks, datagrams, stop, task }
}

impl Running {
    /// Ends it in good order.
    pub(crate) async fn end(self) {
        let _ = self.stop.send(());
        within(self.task).await.expect("it did not panic").expect("it ran");
    }
}

pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(DEADLINE, future).await.expect("in time")
}

/// Asks until the answer is what is waited for.
pub(crate) async fn until<T, F: Future<Output = T>>(
    mut ask: impl FnMut() -> F,
    is_it: impl Fn(&T) -> bool,
) -> T {
    within(async {
        loop {
            let answer = ask().await;
            if is_it(&answer) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}

/// The body of `GET path` and its status.
pub(crate) async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.expect("connected");
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("read");
    let status = answer[9..12].parse().expect("a status");
    (status, answer.split_once("\r\n\r\n").expect("a head").1.to_owned())
}

/// A folder for files.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

/// A file of that content which only we may read.
pub(crate) fn secret_file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).expect("written");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("set");
    path
}

/// A director that listens.
pub(crate) struct Listening {
    pub(crate) address: SocketAddr,
    /// What agents did, and the handshakes of TLS that failed.
    pub(crate) heard: mpsc::UnboundedReceiver<Heard>,
    pub(crate) exceptions: Arc<Mutex<Exceptions>>,
    task: JoinHandle<()>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Heard {
    Accepted,
    Handshake(String),
    Event(DirectorEvent),
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A director at that address, or a free one, that authenticates agents by these keys.
pub(crate) async fn director(
    at: Option<SocketAddr>,
    keys: &[&str],
    tls: Option<Arc<ServerConfig>>,
) -> Listening {
    let address = at.unwrap_or_else(|| "127.0.0.1:0".parse().expect("an address"));
    // The one before may need a moment to let go.
    let listener = until(|| TcpListener::bind(address), Result::is_ok).await.expect("bound");
    let address = listener.local_addr().expect("bound");
    let exceptions = Arc::new(Mutex::new(Exceptions::new(false)));
    let settings = DirectorSettings {
        keys: keys.iter().map(|key| Key::new(key.as_bytes())).collect(),
        rhythm: Rhythm {
            interval: Duration::from_millis(30),
            jitter: Duration::from_millis(5),
            ..Rhythm::default()
        },
        ..DirectorSettings::default()
    };
    let (tell, heard) = mpsc::unbounded_channel();
    let shared = exceptions.clone();
    let task = tokio::spawn(async move {
        // They end with this task.
        let mut connections = JoinSet::new();
        loop {
            let (stream, from) = listener.accept().await.expect("accepted");
            let (settings, tell, shared, tls) = (settings.clone(), tell.clone(), shared.clone(), tls.clone());
            let _ = tell.send(Heard::Accepted);
            connections.spawn(async move {
                match tls {
                    None => serve(stream, from.ip(), settings, &tell, &shared).await,
                    Some(tls) => match TlsAcceptor::from(tls).accept(stream).await {
                        Ok(stream) => serve(stream, from.ip(), settings, &tell, &shared).await,
                        Err(error) => drop(tell.send(Heard::Handshake(error.to_string()))),
                    },
                }
            });
        }
    });
    Listening { address, heard, exceptions, task }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    from: IpAddr,
    settings: DirectorSettings,
    tell: &mpsc::UnboundedSender<Heard>,
    exceptions: &Mutex<Exceptions>,
) {
    let start = Instant::now();
    let now = || Time::ZERO + start.elapsed();
    let mut session = Director::new(settings, from, now(), 1, 0x1234_5678_9abc_def0);
    let mut buffer = [0; 4096];
    loop {
        let mut is_over = false;
        while let Some(event) = session.poll() {
            is_over |= matches!(event, DirectorEvent::Ended(_));
            let _ = tell.send(Heard::Event(event));
        }
        let output = std::mem::take(session.output());
        let written = stream.write_all(&output).await.is_ok() && stream.flush().await.is_ok();
        if is_over {
            return;
        }
        if !written {
            session.closed();
            continue;
        }
        let wait = session.deadline().map_or(DEADLINE, |deadline| deadline.since(now()));
        tokio::select! {
            read = stream.read(&mut buffer) => match read {
                Ok(length @ 1..) => {
                    session.received(now(), &buffer[..length], &mut exceptions.lock().expect("not poisoned"));
                }
                Ok(0) | Err(_) => session.closed(),
            },
            () = tokio::time::sleep(wait) => session.timeout(now()),
        }
    }
}

impl Listening {
    /// Waits for something that `pick` makes something of.
    pub(crate) async fn wait_for<T>(&mut self, mut pick: impl FnMut(&Heard) -> Option<T>) -> T {
        within(async {
            loop {
                let heard = self.heard.recv().await.expect("the director runs");
                if let Some(picked) = pick(&heard) {
                    return picked;
                }
            }
        })
        .await
    }

    pub(crate) async fn wait_for_event(&mut self, wanted: DirectorEvent) {
        self.wait_for(|heard| (*heard == Heard::Event(wanted)).then_some(())).await;
    }

    /// All that has been heard so far.
    pub(crate) async fn so_far(&mut self) -> Vec<Heard> {
        let mut all = Vec::new();
        poll_fn(|context| {
            while let Poll::Ready(Some(heard)) = self.heard.poll_recv(context) {
                all.push(heard);
            }
            Poll::Ready(())
        })
        .await;
        all
    }
}
