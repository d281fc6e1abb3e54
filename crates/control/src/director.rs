//! The director: workers, and what outlives a configuration: ids, counters, what an operator set.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use evener_engine::snapshot::{
    self, HttpSpec, ListenerId, ListenerSpec, NodeSpec, Orca, PoolId, PoolSpec, Service, TcpSpec, Waiting,
};
use evener_engine::stats::{Histogram, ListenerStats, NodeStats, PerWorker, PoolStats};
use evener_engine::{Command, Snapshot, WorkerHandle, log_channel, record_channel};
use evener_feedback::controller::{Controller, Law};
use evener_feedback::necp::{Exception, Forwarding, Scope};
use evener_feedback::phase::{self, Phase};
use evener_model::{Event, JobCounts, NodeId, Weight};
use tokio::sync::Notify;

use crate::access_log::LogWriter;
use crate::config::{self, Bind, Config, Protocol};
use crate::feedback::{Allowance, Counters, Dialect, Index, Members, Told};
use crate::inherit::Inherited;
use crate::output::OutputStats;
use crate::recording::{RecordTo, Recording};
use crate::socket;

/// A node's id is given to another node only when it was gone for so long.
const NODE_ID_REST: Duration = Duration::from_secs(60);
/// Copies of a node's latencies, one every 10 s: quantiles are of the last minute.
const LATENCY_COPIES: usize = 7;

/// What keeps a director from starting, or from taking a new configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectorError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// As configured.
        address: String,
        /// What the system says.
        error: io::Error,
    },
    /// The access log cannot be opened.
    #[error("cannot open the access log: {0}")]
    AccessLog(io::Error),
    /// The file of the recording cannot be begun.
    #[error("cannot record to {path}: {error}")]
    Record {
        /// The file.
        path: String,
        /// What the system says.
        error: io::Error,
    },
    /// The workers cannot be started.
    #[error("cannot start the workers: {0}")]
    Workers(io::Error),
    /// A pool has had so many nodes in so short a time that no id is free.
    #[error("pool {0} changes its nodes too fast: try again in a minute")]
    NodeIds(String),
    /// There is no such pool or node.
    #[error("there is no {0}")]
    Unknown(String),
}

/// Workers that balance, as a configuration says.
#[derive(Debug)]
pub struct Director {
    workers: Vec<WorkerHandle>,
    pub(crate) log: LogWriter,
    recording: Option<Recording>,
    pub(crate) started: Instant,
    pub(crate) reports: Counters,
    /// Workers have not been told all yet.
    pub(crate) reports_wait: Notify,
    /// Nodes have joined or left.
    pub(crate) members_changed: Notify,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    /// As configured.
    pub(crate) base: Config,
    /// With the nodes that joined.
    pub(crate) config: Config,
    pub(crate) members: Members,
    pub(crate) index: Index,
    /// What agents want their nodes to be spared, by address.
    pub(crate) exceptions: BTreeMap<IpAddr, Vec<Exception>>,
    /// What workers have not been told yet.
    pub(crate) untold: Vec<(PoolId, Event)>,
    version: u64,
    next_id: u32,
    pub(crate) listeners: BTreeMap<String, ListenerState>,
    pub(crate) pools: BTreeMap<String, PoolState>,
    sockets: BTreeMap<String, Vec<Arc<OwnedFd>>>,
}

#[derive(Clone, Debug)]
pub(crate) struct ListenerState {
    id: ListenerId,
    pub(crate) stats: Arc<PerWorker<ListenerStats>>,
}

#[derive(Clone, Debug)]
pub(crate) struct PoolState {
    pub(crate) id: PoolId,
    pub(crate) counts: Arc<JobCounts>,
    pub(crate) waiting: Arc<Waiting>,
    pub(crate) stats: Arc<PerWorker<PoolStats>>,
    pub(crate) output: Arc<OutputStats>,
    pub(crate) nodes: Vec<NodeState>,
    places: HashMap<NodeId, usize>,
    gone: Vec<(NodeId, Instant)>,
    next_node: u32,
    /// By [`Dialect::index`].
    pub(crate) hears: [bool; Dialect::ALL.len()],
    /// How long reports are believed.
    pub(crate) expiry: Duration,
    /// The time between reports.
    pub(crate) phase: Duration,
    /// What changes it, if that was asked for.
    pub(crate) tuner: Option<Phase>,
    pub(crate) controller: Controller,
    /// The controller's answer, kept for its memory.
    pub(crate) weights: Vec<(NodeId, Weight)>,
}

#[derive(Clone, Debug)]
pub(crate) struct NodeState {
    pub(crate) id: NodeId,
    pub(crate) node: config::Node,
    /// What an operator set instead of the configured weight.
    weight: Option<Weight>,
    pub(crate) draining: bool,
    pub(crate) up: bool,
    /// What its agents said last.
    pub(crate) told: Told,
    /// Whether they said that it must get nothing.
    pub(crate) refuses: bool,
    /// Whether its agent has started the service; `None`: no agent speaks for it.
    pub(crate) service: Option<bool>,
    /// How packets are to reach it, as its agent said.
    pub(crate) forwarding: Option<Forwarding>,
    /// The weight that follows from reports, as the pool's controller has it.
    pub(crate) wanted: Weight,
    /// The same if jobs are placed by it.
    pub(crate) steered: Option<Weight>,
    /// What its agent-check wants it to get of what is configured.
    pub(crate) allowance: Allowance,
    /// What the last health check said, and when.
    pub(crate) check: Option<(String, Instant)>,
    pub(crate) stats: Arc<PerWorker<NodeStats>>,
    latencies: VecDeque<Box<[u64; Histogram::BUCKETS]>>,
}

impl NodeState {
    /// The weight by which jobs are placed.
    pub(crate) fn weight(&self) -> Weight {
        self.steered.unwrap_or_else(|| self.allowance.weight(self.base_weight()))
    }

    /// Jobs on it at the most.
    pub(crate) fn jobs_max(&self) -> Option<u32> {
        self.allowance.jobs_max(self.node.jobs_max)
    }

    /// The weight that was configured, or set by an operator since.
    pub(crate) fn base_weight(&self) -> Weight {
        self.weight.unwrap_or(self.node.weight)
    }

    /// A latency that the share `quantile` of jobs of the last minute did not exceed, in milliseconds.
    pub(crate) fn latency_ms(&self, quantile: f64) -> Option<f64> {
        let oldest = self.latencies.front();
        let counts: Vec<u64> = (0..Histogram::BUCKETS)
            .map(|bucket| {
                self.stats.sum(|stats| stats.latency.count(bucket))
                    - oldest.map_or(0, |oldest| oldest[bucket])
            })
            .collect();
        let total: u64 = counts.iter().sum();
        if total == 0 {
            return None;
        }
        let rank = (total as f64 * quantile).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bucket = counts.iter().position(|&count| {
            seen += count;
            seen >= rank
        })?;
        Some(Histogram::upper_us(bucket) as f64 / 1000.0)
    }
}

impl Director {
    /// Starts workers that serve `config`.
    ///
    /// # Errors
    /// If an address, the access log or the threads cannot be had.
    pub fn start(config: Config) -> Result<Director, DirectorError> {
        Director::start_with(config, &mut Inherited::default(), None)
    }

    pub(crate) fn start_with(
        config: Config,
        inherited: &mut Inherited,
        record: Option<&RecordTo>,
    ) -> Result<Director, DirectorError> {
        let workers = config.process.workers;
        let (sinks, drain) = log_channel(workers);
        let log = LogWriter::start(drain).map_err(DirectorError::AccessLog)?;
        let (records, recording) = match record {
            None => (Vec::new(), None),
            Some(to) => {
                let (records, drain) = record_channel(workers);
                let recording = Recording::start(to, workers, drain);
                let wrong = |error| DirectorError::Record { path: to.path.display().to_string(), error };
                (records, Some(recording.map_err(wrong)?))
            }
        };
        let handles =
            evener_engine::start(workers, random_seed(), sinks, records).map_err(DirectorError::Workers)?;
        let mut sockets = BTreeMap::new();
        for (address, fds) in std::mem::take(&mut inherited.listeners) {
            sockets.insert(address, fds.into_iter().map(Arc::new).collect());
        }
        let empty = Config { listeners: Vec::new(), pools: Vec::new(), ..config.clone() };
        let director = Director {
            workers: handles,
            log,
            recording,
            started: Instant::now(),
            reports: Counters::default(),
            reports_wait: Notify::new(),
            members_changed: Notify::new(),
            state: Mutex::new(State {
                base: empty.clone(),
                config: empty,
                members: Members::default(),
                index: Index::default(),
                exceptions: BTreeMap::new(),
                untold: Vec::new(),
                version: 0,
                next_id: 0,
                listeners: BTreeMap::new(),
                pools: BTreeMap::new(),
                sockets,
            }),
        };
        director.reload(config)?;
        Ok(director)
    }

    /// Serves `config` from now on. Connections, and what is known of nodes that stay, survive.
    ///
    /// # Errors
    /// Then nothing has changed.
    pub fn reload(&self, config: Config) -> Result<(), DirectorError> {
        self.install(&mut self.state(), config)
    }

    /// Serves `base` and the nodes that have joined.
    pub(crate) fn install(&self, state: &mut State, base: Config) -> Result<(), DirectorError> {
        let workers = self.workers.len();
        let mut members = state.members.clone();
        members.follow(&base);
        let config = members.added_to(&base);
        if config.process.workers != workers {
            tracing::warn!(workers, "the number of workers changes only with a restart");
        }
        let sockets = open_sockets(&config, &state.sockets, workers)?;
        let mut next_id = state.next_id;
        let mut pools = BTreeMap::new();
        for pool in &config.pools {
            let known = state.pools.get(&pool.name).cloned();
            let known = known.unwrap_or_else(|| PoolState::new(PoolId(take_id(&mut next_id)), pool, workers));
            pools.insert(pool.name.clone(), known.follow(pool, workers)?);
        }
        let mut listeners = BTreeMap::new();
        for listener in &config.listeners {
            let known = state.listeners.get(&listener.name).cloned();
            listeners.insert(
                listener.name.clone(),
                known.unwrap_or_else(|| ListenerState {
                    id: ListenerId(take_id(&mut next_id)),
                    stats: Arc::new(PerWorker::new(workers)),
                }),
            );
        }
        self.log.open(config.access_log.output.as_ref()).map_err(DirectorError::AccessLog)?;
        // From here on nothing can fail.
        state.base = base;
        state.config = config;
        state.members = members;
        state.index = Index::new(&pools);
        state.sockets = sockets;
        state.pools = pools;
        state.listeners = listeners;
        state.next_id = next_id;
        // Weights that follow reports are in a scale of their own: a new node's must be in it from the beginning.
        let now = self.now();
        for pool in state.pools.values_mut() {
            pool.weigh(now, pool.id, &mut state.untold);
        }
        self.publish(state);
        Ok(())
    }

    /// Hands the present state to all workers.
    pub(crate) fn publish(&self, state: &mut State) {
        self.tell(state);
        state.version += 1;
        let snapshot = Arc::new(state.snapshot(self.workers.len()));
        self.send(|| Command::Apply(Arc::clone(&snapshot)));
    }

    /// Tells the workers what they have not been told yet. In order, which is why all that is told goes this way.
    pub(crate) fn tell(&self, state: &mut State) {
        if !state.untold.is_empty() {
            let untold: Arc<[(PoolId, Event)]> = std::mem::take(&mut state.untold).into();
            self.send(|| Command::Events(Arc::clone(&untold)));
        }
    }

    pub(crate) fn send(&self, command: impl Fn() -> Command) {
        for worker in &self.workers {
            worker.send(command());
        }
    }

    pub(crate) fn workers(&self) -> &[WorkerHandle] {
        &self.workers
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves the state as it was before: it is replaced whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The configuration that is served, nodes that joined included.
    pub fn config(&self) -> Config {
        self.state().config.clone()
    }

    /// Sets a node's weight until it is set again, or configured differently.
    ///
    /// # Errors
    /// If there is no such node.
    pub fn set_weight(&self, pool: &str, node: &str, weight: Weight) -> Result<(), DirectorError> {
        self.change_node(pool, node, |state| {
            state.weight = Some(weight);
            Event::Weight { node: state.id, weight: state.weight() }
        })?;
        // Weights that follow reports follow from this one now.
        if let Some(pool) = self.state().pools.get_mut(pool) {
            pool.configure_controller();
        }
        Ok(())
    }

    /// Drains a node, or takes it back, also one whose agent has stopped the service.
    ///
    /// # Errors
    /// If there is no such node.
    pub fn set_draining(&self, pool: &str, node: &str, draining: bool) -> Result<(), DirectorError> {
        self.change_node(pool, node, |state| {
            state.draining = draining;
            state.service = state.service.filter(|started| draining || *started);
            Event::Drain { node: state.id, draining: state.drains() }
        })
    }

    /// Tells what a health check of the node at `address` saw, and its verdict if that changed. One
    /// about a node that is gone, or elsewhere now, is ignored.
    pub(crate) fn note_check(
        &self,
        pool: &str,
        node: &str,
        address: SocketAddr,
        verdict: Option<bool>,
        seen: String,
    ) {
        let mut state = self.state();
        let Some(pool_state) = state.pools.get_mut(pool) else { return };
        let id = pool_state.id;
        let is_meant = |known: &&mut NodeState| known.node.name == node && known.node.address == address;
        let Some(known) = pool_state.nodes.iter_mut().find(is_meant) else { return };
        known.check = Some((seen, Instant::now()));
        if let Some(up) = verdict {
            known.up = up;
            let event = Event::Check { node: known.id, up };
            state.untold.push((id, event));
            self.tell(&mut state);
        }
    }

    fn change_node(
        &self,
        pool: &str,
        node: &str,
        change: impl FnOnce(&mut NodeState) -> Event,
    ) -> Result<(), DirectorError> {
        let mut state = self.state();
        let pool_state =
            state.pools.get_mut(pool).ok_or_else(|| DirectorError::Unknown(format!("pool \"{pool}\"")))?;
        let id = pool_state.id;
        let node_state = pool_state
            .nodes
            .iter_mut()
            .find(|state| state.node.name == node)
            .ok_or_else(|| DirectorError::Unknown(format!("node \"{node}\" in pool \"{pool}\"")))?;
        let event = change(node_state);
        state.untold.push((id, event));
        self.tell(&mut state);
        Ok(())
    }

    /// Copies the latencies, from which quantiles of the last minute are made; to be called every 10 s.
    pub(crate) fn copy_latencies(&self) {
        let mut state = self.state();
        for node in state.pools.values_mut().flat_map(|pool| &mut pool.nodes) {
            if node.latencies.len() == LATENCY_COPIES {
                node.latencies.pop_front();
            }
            let stats = &node.stats;
            let copy = std::array::from_fn(|bucket| stats.sum(|stats| stats.latency.count(bucket)));
            node.latencies.push_back(Box::new(copy));
        }
    }

    /// The listening sockets, by address.
    pub(crate) fn sockets(&self) -> Vec<(String, Vec<Arc<OwnedFd>>)> {
        self.state().sockets.iter().map(|(address, fds)| (address.clone(), fds.clone())).collect()
    }

    /// Stops accepting and waits until open jobs are done, at most for `deadline`.
    pub fn shutdown(&self, deadline: Duration) {
        self.begin_drain(deadline);
        while !self.is_drained() {
            thread::sleep(Duration::from_millis(10));
        }
        self.finish();
    }

    /// Waits until logs and recordings are written; the workers have ended.
    pub(crate) fn finish(&self) {
        self.log.finish();
        if let Some(recording) = &self.recording {
            recording.finish();
        }
    }

    pub(crate) fn begin_drain(&self, deadline: Duration) {
        // The sockets close when the workers let go of them, if no successor holds them.
        let mut state = self.state();
        state.sockets.clear();
        self.send(|| Command::Drain { deadline });
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.workers.iter().all(WorkerHandle::is_finished)
    }
}

impl PoolState {
    fn new(id: PoolId, pool: &config::Pool, workers: usize) -> PoolState {
        PoolState {
            id,
            counts: Arc::new(JobCounts::new(JobCounts::POOL_NODES_MAX)),
            waiting: Arc::new(Waiting::new(workers)),
            stats: Arc::new(PerWorker::new(workers)),
            output: Arc::default(),
            nodes: Vec::new(),
            places: HashMap::new(),
            gone: Vec::new(),
            next_node: 0,
            hears: [false; Dialect::ALL.len()],
            expiry: pool.scheduler.report_expiry,
            phase: pool.scheduler.phase,
            tuner: None,
            controller: Controller::new(pool.feedback.weights, &[]),
            weights: Vec::new(),
        }
    }

    /// The place of a node among [`PoolState::nodes`].
    pub(crate) fn place(&self, node: NodeId) -> Option<usize> {
        self.places.get(&node).copied()
    }

    /// Tells the controller which nodes there are, and with what weights.
    fn configure_controller(&mut self) {
        let nodes: Vec<(NodeId, Weight)> =
            self.nodes.iter().map(|node| (node.id, node.base_weight())).collect();
        self.controller.configure(&nodes);
    }

    /// What the pool's configuration says of reports.
    fn follow_feedback(&mut self, pool: &config::Pool) {
        let feedback = &pool.feedback;
        self.hears = Dialect::ALL.map(|dialect| feedback.from.contains(&dialect));
        self.expiry = pool.scheduler.report_expiry;
        self.tuner = feedback
            .auto_phase
            .then(|| self.tuner.take().unwrap_or_else(|| Phase::new(phase::Settings::default())));
        if !feedback.auto_phase {
            self.phase = pool.scheduler.phase;
        }
        self.controller.reconfigure(feedback.weights);
        self.configure_controller();
        if feedback.weights.law == Law::Off {
            for node in &mut self.nodes {
                node.steered = None;
            }
        }
        // Who is not heard any more has no say either.
        for dialect in Dialect::ALL.into_iter().filter(|dialect| !self.hears[dialect.index()]) {
            for node in &mut self.nodes {
                node.told.forget(dialect);
                if dialect == Dialect::Necp {
                    node.service = None;
                }
            }
        }
    }

    /// The same pool with the nodes that are configured now.
    fn follow(mut self, pool: &config::Pool, workers: usize) -> Result<PoolState, DirectorError> {
        let mut old = std::mem::take(&mut self.nodes);
        for node in &pool.nodes {
            let known = old
                .iter()
                .position(|known| known.node.name == node.name && known.node.address == node.address);
            let state = match known.map(|place| old.swap_remove(place)) {
                Some(mut known) => {
                    if known.node.weight != node.weight {
                        known.weight = None;
                    }
                    if pool.check.is_none() {
                        known.up = true;
                        known.check = None;
                    }
                    known.node = node.clone();
                    known
                }
                None => NodeState {
                    id: self.free_id().ok_or_else(|| DirectorError::NodeIds(pool.name.clone()))?,
                    node: node.clone(),
                    weight: None,
                    draining: false,
                    up: true,
                    told: Told::default(),
                    refuses: false,
                    service: None,
                    forwarding: None,
                    wanted: node.weight,
                    steered: None,
                    allowance: Allowance::default(),
                    check: None,
                    stats: Arc::new(PerWorker::new(workers)),
                    latencies: VecDeque::new(),
                },
            };
            self.nodes.push(state);
        }
        self.gone.extend(old.into_iter().map(|node| (node.id, Instant::now())));
        self.places = self.nodes.iter().enumerate().map(|(place, node)| (node.id, place)).collect();
        self.follow_feedback(pool);
        Ok(self)
    }

    fn free_id(&mut self) -> Option<NodeId> {
        let rested =
            |(id, since): &(NodeId, Instant)| self.counts.jobs(*id) == 0 && since.elapsed() >= NODE_ID_REST;
        if let Some(place) = self.gone.iter().position(rested) {
            return Some(self.gone.swap_remove(place).0);
        }
        let id = NodeId(self.next_node);
        (id.index() < self.counts.len()).then(|| {
            self.next_node += 1;
            id
        })
    }
}

impl State {
    fn snapshot(&self, workers: usize) -> Snapshot {
        let pool_id = |name: &str| self.pools[name].id;
        let format = self.config.access_log.output.as_ref().map(|_| self.config.access_log.format);
        let listeners = self.config.listeners.iter().map(|listener| {
            let state = &self.listeners[&listener.name];
            let service = match &listener.protocol {
                Protocol::Tcp { pool, idle_timeout } => Service::Tcp(TcpSpec {
                    pool: pool_id(pool),
                    idle_timeout: *idle_timeout,
                    access_log: format,
                }),
                Protocol::Http(http) => Service::Http(HttpSpec {
                    routes: http
                        .routes
                        .iter()
                        .map(|route| snapshot::Route {
                            host: route.host.clone(),
                            path: route.path.clone(),
                            pool: pool_id(&route.pool),
                        })
                        .collect(),
                    pool: http.pool.as_deref().map(pool_id),
                    limits: http.limits,
                    timeouts: http.timeouts,
                    headers: http.headers.clone(),
                    trusted: http.trusted.clone(),
                    access_log: format,
                }),
            };
            snapshot::Bound {
                spec: Arc::new(ListenerSpec {
                    id: state.id,
                    name: listener.name.clone(),
                    accept_proxy: listener.accept_proxy,
                    clients_max: listener.clients_max.div_ceil(workers as u32),
                    service,
                    stats: Arc::clone(&state.stats),
                }),
                sockets: listener
                    .binds
                    .iter()
                    .flat_map(|bind| self.sockets[&key(bind)].iter().cloned())
                    .collect(),
            }
        });
        let pools = self.config.pools.iter().map(|pool| {
            let state = &self.pools[&pool.name];
            let nodes = state.nodes.iter().map(|node| {
                Arc::new(NodeSpec {
                    id: node.id,
                    name: node.node.name.clone(),
                    address: node.node.address,
                    weight: node.weight(),
                    jobs_max: node.jobs_max(),
                    draining: node.drains(),
                    up: node.up,
                    stats: Arc::clone(&node.stats),
                })
            });
            Arc::new(PoolSpec {
                id: state.id,
                name: pool.name.clone(),
                scheduler: evener_scheduler::Settings { phase: state.phase, ..pool.scheduler.clone() },
                hash_key: pool.hash.clone(),
                nodes: nodes.collect(),
                counts: Arc::clone(&state.counts),
                queue_max: pool.queue_max,
                queue_timeout: pool.queue_timeout,
                retry: pool.retry,
                timeouts: pool.timeouts,
                idle_connections_max: pool.idle_connections,
                send_proxy: pool.send_proxy,
                exceptions: self.exceptions_of(&state.nodes),
                // What is not heard is none of the director's business.
                orca: if state.hears[Dialect::Orca.index()] { pool.feedback.orca } else { Orca::Off },
                waiting: Arc::clone(&state.waiting),
                stats: Arc::clone(&state.stats),
            })
        });
        Snapshot { version: self.version, listeners: listeners.collect(), pools: pools.collect() }
    }

    /// Flows that these nodes do not want: what an agent says holds for the nodes at its address, or for all.
    fn exceptions_of(&self, nodes: &[NodeState]) -> Vec<snapshot::Exception> {
        let mut exceptions = Vec::new();
        for node in nodes.iter().filter(|_| !self.exceptions.is_empty()) {
            let address = node.node.address;
            for (owner, wanted) in &self.exceptions {
                let is_own = *owner == address.ip().to_canonical();
                let concerned = wanted.iter().filter(|it| is_own || it.scope == Scope::Global);
                exceptions.extend(concerned.map(|it| snapshot::Exception {
                    node: node.id,
                    address,
                    flows: it.flows,
                }));
            }
        }
        exceptions
    }
}

/// Sockets for all binds: those there are, and new ones for what is new.
fn open_sockets(
    config: &Config,
    open: &BTreeMap<String, Vec<Arc<OwnedFd>>>,
    workers: usize,
) -> Result<BTreeMap<String, Vec<Arc<OwnedFd>>>, DirectorError> {
    let mut sockets = BTreeMap::new();
    for wanted in config.listeners.iter().flat_map(|listener| &listener.binds) {
        let bind = wanted;
        let wrong = |error| DirectorError::Listen { address: bind.text.clone(), error };
        let mut these = open.get(&key(bind)).cloned().unwrap_or_default();
        // A port that this director holds already, under another address, is not somebody else's.
        let is_ours = || open.keys().any(|key| key.ends_with(&format!(":{}", bind.address.port())));
        if these.is_empty() && !is_ours() && socket::is_taken(bind).map_err(wrong)? {
            return Err(wrong(io::ErrorKind::AddrInUse.into()));
        }
        // More than there are workers, from a predecessor that had more, are all served on.
        let mut bind = bind.clone();
        while these.len() < workers {
            let socket = socket::listen(&bind).map_err(wrong)?;
            // If any port would do, the first socket's is the one for all.
            bind.address.set_port(socket::port(&socket).map_err(wrong)?);
            these.push(Arc::new(socket));
        }
        sockets.insert(key(wanted), these);
    }
    Ok(sockets)
}

/// What tells sockets apart, for this process and the next.
fn key(bind: &Bind) -> String {
    let kind = if bind.dual_stack { "dual " } else { "" };
    format!("{kind}{}", bind.address)
}

fn take_id(next: &mut u32) -> u32 {
    let id = *next;
    *next += 1;
    id
}

/// From the operating system: two directors must not choose alike.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
