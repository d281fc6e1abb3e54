//! The life of a director's process: start, signals, reload, hot restart, end.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::admin::{Admin, Order};
use crate::config::{Config, Errors, Flags};
use crate::director::{Director, DirectorError};
use crate::feedback::{Feedback, TransportError};
use crate::health::Checks;
use crate::inherit::{self, Inherited};
use crate::output::Outputs;
use crate::recording::RecordTo;

/// Latencies are copied this often, see [`Director::copy_latencies`].
const LATENCY_COPY_INTERVAL: Duration = Duration::from_secs(10);
/// While draining, it is looked this often whether all is done.
const DRAIN_POLL: Duration = Duration::from_millis(10);
/// Beside client connections: nodes' connections, files, pipes.
const DESCRIPTORS_RESERVED: u64 = 1024;

/// Where a director's configuration comes from.
#[derive(Clone, Debug)]
pub enum Origin {
    /// A file, read again at each reload.
    File(PathBuf),
    /// The command line.
    Flags(Flags),
}

/// How to run a director.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Its configuration.
    pub origin: Origin,
    /// Where it records what its schedulers are told and choose.
    pub record: Option<RecordTo>,
}

/// Why a director did not run, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] Errors),
    /// It cannot be served.
    #[error(transparent)]
    Director(#[from] DirectorError),
    /// The admin API cannot listen.
    #[error("cannot listen on the admin address: {0}")]
    Admin(io::Error),
    /// Reports cannot be heard.
    #[error(transparent)]
    Feedback(#[from] TransportError),
    /// The system gives no signals, threads or timers.
    #[error("cannot start: {0}")]
    System(io::Error),
}

impl Origin {
    /// Reads the configuration.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn config(&self) -> Result<Config, Errors> {
        match self {
            Origin::File(path) => Config::load(path),
            Origin::Flags(flags) => flags.config(),
        }
    }
}

/// Runs a director until it is told to end.
///
/// # Errors
/// If it cannot start.
pub fn run(options: &RunOptions, config: Config) -> Result<(), RunError> {
    // The path of the program may name another program later: that is the one to start then.
    let program = std::env::current_exe().map_err(RunError::System)?;
    let mut inherited = Inherited::take();
    raise_descriptor_limit(&config);
    let director = Arc::new(Director::start_with(config, &mut inherited, options.record.as_ref())?);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RunError::System)?;
    let result = runtime.block_on(async {
        let mut life = Life::begin(options.origin.clone(), program, Arc::clone(&director), inherited)?;
        life.go_on().await.map_err(RunError::System)
    });
    // Checks that hang must not hold the end up.
    runtime.shutdown_background();
    director.finish();
    result
}

struct Life {
    origin: Origin,
    program: PathBuf,
    director: Arc<Director>,
    checks: Checks,
    feedback: Feedback,
    outputs: Outputs,
    admin: Option<Admin>,
    orders: mpsc::Receiver<Order>,
    order_sender: mpsc::Sender<Order>,
    successor: Option<Child>,
    /// A new process that is coming up, and who asked for it.
    upgrade: Option<Upgrade>,
}

#[derive(Debug)]
struct Upgrade {
    coming: JoinHandle<io::Result<Child>>,
    asked_by: Option<oneshot::Sender<Result<(), String>>>,
}

impl Life {
    fn begin(
        origin: Origin,
        program: PathBuf,
        director: Arc<Director>,
        mut inherited: Inherited,
    ) -> Result<Life, RunError> {
        let (order_sender, orders) = mpsc::channel(4);
        let config = director.config();
        let admin = match &config.admin {
            Some(address) => Some(
                Admin::start(address, inherited.admin.take(), Arc::clone(&director), order_sender.clone())
                    .map_err(RunError::Admin)?,
            ),
            None => None,
        };
        let mut checks = Checks::default();
        checks.follow(&director);
        let mut feedback = Feedback::start(&director);
        let opened = feedback.open(&config, &mut inherited.feedback)?;
        feedback.follow(&director, Some(opened));
        let mut outputs = Outputs::default();
        outputs.follow(&director);
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        for listener in &config.listeners {
            let addresses: Vec<&str> = listener.binds.iter().map(|bind| bind.text.as_str()).collect();
            tracing::info!(listener = listener.name, addresses = addresses.join(" "), "listening");
        }
        notify(&[NotifyState::Ready, NotifyState::MainPid(std::process::id())]);
        inherited.announce();
        Ok(Life {
            origin,
            program,
            director,
            checks,
            feedback,
            outputs,
            admin,
            orders,
            order_sender,
            successor: None,
            upgrade: None,
        })
    }

    /// Obeys signals and the admin API until the process is to end.
    async fn go_on(&mut self) -> io::Result<()> {
        let mut hangup = signal(SignalKind::hangup())?;
        let mut upgrade = signal(SignalKind::user_defined2())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut copies = tokio::time::interval(LATENCY_COPY_INTERVAL);
        let watchdog = sd_notify::watchdog_enabled().map(|timeout| timeout / 2);
        let mut watchdog_ticks = tokio::time::interval(watchdog.unwrap_or(Duration::from_secs(3600)));
        loop {
            tokio::select! {
                _ = hangup.recv() => {
                    // The log has said what was wrong.
                    let _ = self.reload().await;
                }
                _ = upgrade.recv() => self.begin_upgrade(None),
                result = come_up(&mut self.upgrade) => {
                    if self.end_upgrade(result).await { break }
                }
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                () = self.director.members_changed.notified() => {
                    self.checks.follow(&self.director);
                    self.feedback.follow(&self.director, None);
                }
                _ = copies.tick() => self.director.copy_latencies(),
                _ = watchdog_ticks.tick() => {
                    if watchdog.is_some() { notify(&[NotifyState::Watchdog]) }
                }
                Some(order) = self.orders.recv() => match order {
                    Order::Reload(done) => {
                        let result = self.reload().await;
                        answer(done, result);
                    }
                    Order::Upgrade(done) => self.begin_upgrade(Some(done)),
                },
            }
        }
        self.end(&mut terminate, &mut interrupt).await;
        Ok(())
    }

    /// Takes the configuration anew; if it is wrong, all stays as it is.
    async fn reload(&mut self) -> Result<(), String> {
        let microseconds = monotonic_usec();
        notify(&[NotifyState::Reloading, NotifyState::Custom(&format!("MONOTONIC_USEC={microseconds}"))]);
        let result = self.try_reload().await;
        match &result {
            Ok(()) => tracing::info!("reloaded"),
            Err(error) => tracing::error!("the configuration stays as it was: {error}"),
        }
        notify(&[NotifyState::Ready]);
        result
    }

    async fn try_reload(&mut self) -> Result<(), String> {
        // Names of nodes are resolved, which may take a while.
        let origin = self.origin.clone();
        let config = tokio::task::spawn_blocking(move || origin.config()).await;
        let config = config.map_err(|error| error.to_string())?.map_err(|errors| errors.to_string())?;
        let opened = self.feedback.open(&config, &mut BTreeMap::new()).map_err(|error| error.to_string())?;
        if config.admin.as_ref() != self.admin.as_ref().map(Admin::address) {
            // Listen at the new address before the old one is given up.
            let admin = match &config.admin {
                Some(address) => Some(
                    Admin::start(address, None, Arc::clone(&self.director), self.order_sender.clone())
                        .map_err(|error| RunError::Admin(error).to_string())?,
                ),
                None => None,
            };
            if let Err(error) = self.director.reload(config) {
                if let Some(admin) = admin {
                    admin.stop(false);
                }
                return Err(error.to_string());
            }
            if let Some(old) = std::mem::replace(&mut self.admin, admin) {
                old.stop(false);
            }
        } else {
            self.director.reload(config).map_err(|error| error.to_string())?;
        }
        self.checks.follow(&self.director);
        self.feedback.follow(&self.director, Some(opened));
        self.outputs.follow(&self.director);
        let director = Arc::clone(&self.director);
        tokio::task::spawn_blocking(move || director.settle()).await.map_err(|error| error.to_string())
    }

    /// Starts a new process that is to take over the sockets.
    fn begin_upgrade(&mut self, asked_by: Option<oneshot::Sender<Result<(), String>>>) {
        if self.upgrade.is_some() {
            if let Some(asked_by) = asked_by {
                answer(asked_by, Err("a new process is coming up already".into()));
            }
            return;
        }
        tracing::info!(program = %self.program.display(), "a new process takes over");
        let sockets = self.director.sockets();
        let program = self.program.clone();
        let admin = self.admin.as_ref().map(|admin| admin.socket().try_clone_to_owned()).transpose();
        let feedback = self.feedback.sockets().into_iter().map(|(name, fd)| Ok((name, fd.try_clone()?)));
        let feedback: io::Result<Vec<_>> = feedback.collect();
        let coming = tokio::task::spawn_blocking(move || {
            let admin = admin?;
            inherit::hand_over(&program, &sockets, admin.as_ref().map(AsFd::as_fd), &feedback?)
        });
        self.upgrade = Some(Upgrade { coming, asked_by });
    }

    /// The new process serves, or it does not come up: then all stays as it is. Says whether this
    /// process is to end.
    async fn end_upgrade(&mut self, result: io::Result<Child>) -> bool {
        let asked_by = self.upgrade.take().and_then(|upgrade| upgrade.asked_by);
        let told = match &result {
            Ok(child) => {
                tracing::info!(pid = child.id(), "the new process serves; this one drains");
                notify(&[NotifyState::MainPid(child.id())]);
                Ok(())
            }
            Err(error) => {
                tracing::error!(%error, "no new process took over: this one goes on");
                Err(error.to_string())
            }
        };
        if let Some(asked_by) = asked_by {
            answer(asked_by, told);
            // The answer still has to go out.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.successor = result.ok();
        self.successor.is_some()
    }

    /// Drains and returns when all is done, when time is up, or at a second signal.
    async fn end(&mut self, terminate: &mut Signal, interrupt: &mut Signal) {
        let deadline = self.director.config().process.drain_timeout;
        if self.successor.is_none() {
            notify(&[NotifyState::Stopping]);
        }
        tracing::info!(?deadline, "draining");
        if let Some(admin) = self.admin.take() {
            admin.stop(self.successor.is_some());
        }
        // Before agents are let go: their nodes are as well as they were.
        self.outputs.stop();
        self.feedback.stop();
        self.director.begin_drain(deadline);
        let started = Instant::now();
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                () = tokio::time::sleep(DRAIN_POLL) => {
                    if self.director.is_drained() {
                        tracing::info!(took = ?started.elapsed(), "drained");
                        return;
                    }
                }
            }
        }
        tracing::warn!("asked again: what is still open is cut off");
        self.director.begin_drain(Duration::ZERO);
        let patience = Instant::now() + Duration::from_secs(2);
        while !self.director.is_drained() && Instant::now() < patience {
            tokio::time::sleep(DRAIN_POLL).await;
        }
    }
}

/// Waits for the new process, for ever if none is coming.
async fn come_up(upgrade: &mut Option<Upgrade>) -> io::Result<Child> {
    match upgrade {
        Some(upgrade) => (&mut upgrade.coming).await.map_err(io::Error::other).and_then(|result| result),
        None => std::future::pending().await,
    }
}

fn answer(done: oneshot::Sender<Result<(), String>>, result: Result<(), String>) {
    // Who asked may be gone.
    let _ = done.send(result);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "systemd was not told");
    }
}

fn monotonic_usec() -> u128 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec to where the pointer points, which is one.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u128 * 1_000_000 + time.tv_nsec as u128 / 1000
}

/// Takes as many descriptors as the system allows; says so if clients may need more.
fn raise_descriptor_limit(config: &Config) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one rlimit to where the pointer points, which is one.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return;
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the kernel reads one rlimit, which is there.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    let clients: u64 = config.listeners.iter().map(|listener| u64::from(listener.clients_max)).sum();
    // Each client may have a node's connection beside its own.
    let wanted = clients * 2 + DESCRIPTORS_RESERVED;
    if wanted > limit.rlim_max {
        tracing::warn!(
            limit = limit.rlim_max,
            wanted,
            "more clients are allowed than there are descriptors for"
        );
    }
}
