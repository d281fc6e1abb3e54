//! Takes reports: schedulers are told, weights follow, views show them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use evener_engine::snapshot::PoolId;
use evener_feedback::controller::Law;
use evener_feedback::necp::{Exception, Forwarding, Port, Service};
use evener_model::{Event, Health, Report, Time, Weight};

use crate::director::{Director, NodeState, PoolState, State};
use crate::feedback::{Dialect, Index, NodeRef, Refusal, TICK};

/// What comes within this after workers were told waits until it is over.
const TOLD_TOGETHER: Duration = Duration::from_millis(20);

/// Tells the workers what came, and looks after time, for ever.
pub(super) async fn run(director: Arc<Director>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = director.reports_wait.notified() => {
                director.tell(&mut director.state());
                // Waking all workers for each of many reports would cost more than all else about it.
                tokio::time::sleep(TOLD_TOGETHER).await;
            }
            _ = ticks.tick() => director.tick(),
        }
    }
}

impl Director {
    /// Now, on the clock of the workers and of reports.
    pub(crate) fn now(&self) -> Time {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Time::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    /// The nodes whose jobs go to `address` (to `port` of it, if there is one), of pools that hear `dialect`.
    pub(crate) fn nodes_at(&self, dialect: Dialect, address: IpAddr, port: Option<u16>) -> Vec<NodeRef> {
        let state = self.state();
        let nodes = state.index.at(address, port);
        nodes.filter(|node| state.hears(node.pool, dialect)).collect()
    }

    /// The nodes of this name, of `pool` or of all pools, that hear `dialect`.
    pub(crate) fn nodes_named(&self, dialect: Dialect, pool: Option<&str>, node: &str) -> Vec<NodeRef> {
        let state = self.state();
        let is_meant = |node: &NodeRef| pool.is_none_or(|pool| state.index.pool(node.pool) == Some(pool));
        let nodes = state.index.named(node).filter(is_meant);
        nodes.filter(|node| state.hears(node.pool, dialect)).collect()
    }

    /// The address of a node, while there is such a node.
    pub(crate) fn address_of(&self, node: NodeRef) -> Option<SocketAddr> {
        let mut state = self.state();
        let state = &mut *state;
        let (pool, place) = find(&state.index, &mut state.pools, node)?;
        Some(pool.nodes[place].node.address)
    }

    /// The name of a node, while there is such a node.
    pub(crate) fn name_of(&self, node: NodeRef) -> Option<String> {
        let mut state = self.state();
        let state = &mut *state;
        let (pool, place) = find(&state.index, &mut state.pools, node)?;
        Some(pool.nodes[place].node.name.clone())
    }

    /// How often the nodes of a pool are to be asked how they are.
    pub(crate) fn phase_of(&self, pool: &str) -> Duration {
        self.state().pools.get(pool).map_or(TICK, |pool| pool.phase)
    }

    /// How long a pool's reports are believed.
    pub(crate) fn expiry_of(&self, pool: &str) -> Duration {
        self.state().pools.get(pool).map_or(TICK, |pool| pool.expiry)
    }

    /// Counts what was not believed.
    pub(crate) fn refuse(&self, dialect: Dialect, why: Refusal) {
        self.reports.count_refused(dialect, why);
    }

    /// How often the nodes at `address` are to be asked how they are: as often as the most curious pool wants.
    pub(crate) fn phase_at(&self, address: IpAddr) -> Option<Duration> {
        let state = self.state();
        let pools =
            state.index.at(address, None).filter_map(|node| state.pools.get(state.index.pool(node.pool)?));
        pools.map(|pool| pool.phase).min()
    }

    /// Takes what a node said of itself. Schedulers are told within [`TOLD_TOGETHER`]; at once that it wants no jobs, or
    /// wants them again.
    pub(crate) fn reported(&self, node: NodeRef, dialect: Dialect, report: Report) {
        let now = self.now();
        let mut state = self.state();
        let state = &mut *state;
        let Some((pool, place)) = find(&state.index, &mut state.pools, node) else {
            return self.refuse(dialect, Refusal::Unknown);
        };
        let known = &mut pool.nodes[place];
        if !known.told.take(now, dialect, report, pool.expiry) {
            return self.refuse(dialect, Refusal::Stale);
        }
        self.reports.count_taken(dialect);
        match pool.learn(now, place, report, &mut state.untold) {
            true => self.tell(state),
            false => self.reports_wait.notify_one(),
        }
    }

    /// An agent speaks for the node, and its service is `started` or not; `None`: no agent speaks for it any
    /// more. Then it is placed on as configured, and what it reported ages out.
    pub(crate) fn note_service(&self, node: NodeRef, started: Option<bool>, forwarding: Option<Forwarding>) {
        let mut state = self.state();
        let state = &mut *state;
        let Some((pool, place)) = find(&state.index, &mut state.pools, node) else { return };
        let known = &mut pool.nodes[place];
        let was_draining = known.drains();
        known.service = started;
        known.forwarding = forwarding.or(known.forwarding);
        if known.drains() != was_draining {
            let event = Event::Drain { node: node.node, draining: known.drains() };
            state.untold.push((node.pool, event));
        }
        if started.is_none() {
            let address = known.node.address.ip();
            state.members.fall_silent(address);
        }
        self.tell(state);
    }

    /// A service was started at an address: pools that let it join take it as a node. The nodes that it is now.
    pub(crate) fn join(&self, address: IpAddr, service: Service) -> Vec<NodeRef> {
        let mut state = self.state();
        let state = &mut *state;
        if state.members.join(&state.base, address, service) {
            self.change_members(state);
        }
        let nodes = state.index.at(address, Some(service.port.number));
        nodes.filter(|node| state.hears(node.pool, Dialect::Necp)).collect()
    }

    /// A service was stopped at an address: what joined leaves.
    pub(crate) fn leave(&self, address: IpAddr, port: Port) {
        let mut state = self.state();
        if state.members.leave(address, port) {
            self.change_members(&mut state);
        }
    }

    /// What the agent at `owner` wants its nodes to be spared, instead of what it wanted before.
    pub(crate) fn set_exceptions(&self, owner: IpAddr, exceptions: Vec<Exception>) {
        let mut state = self.state();
        let owner = owner.to_canonical();
        let known = match exceptions.is_empty() {
            true => state.exceptions.remove(&owner).unwrap_or_default(),
            false => state.exceptions.insert(owner, exceptions.clone()).unwrap_or_default(),
        };
        if known != exceptions {
            self.publish(&mut state);
        }
    }

    /// Serves the nodes that have joined, and those that have left no more.
    fn change_members(&self, state: &mut State) {
        let base = state.base.clone();
        if let Err(error) = self.install(state, base) {
            tracing::error!(%error, "the nodes of the pools stay as they were");
        }
        self.members_changed.notify_one();
    }

    /// Looks after what changes by time: reports that age out, weights, phases, nodes whose agents are gone.
    pub(crate) fn tick(&self) {
        let now = self.now();
        let mut state = self.state();
        let state = &mut *state;
        for pool in state.pools.values_mut() {
            pool.hear_responses(now, &mut state.untold);
            pool.age(now, &mut state.untold);
            pool.weigh(now, pool.id, &mut state.untold);
        }
        let phases = state.pools.values_mut().map(|pool| pool.tune(now));
        // All pools are tuned, whatever comes of the first.
        let retuned = phases.fold(false, |any, changed| any | changed);
        if state.members.follow(&state.base) {
            self.change_members(state);
        } else if retuned {
            self.publish(state);
        }
        if !state.untold.is_empty() {
            self.reports_wait.notify_one();
        }
    }
}

/// A node's pool and its place in it.
fn find<'p>(
    index: &Index,
    pools: &'p mut BTreeMap<String, PoolState>,
    node: NodeRef,
) -> Option<(&'p mut PoolState, usize)> {
    let pool = pools.get_mut(index.pool(node.pool)?)?;
    let place = pool.place(node.node)?;
    Some((pool, place))
}

impl State {
    fn hears(&self, pool: PoolId, dialect: Dialect) -> bool {
        let Some(name) = self.index.pool(pool) else { return false };
        self.pools.get(name).is_some_and(|pool| pool.hears[dialect.index()])
    }
}

impl PoolState {
    /// Takes what nodes said in responses since the last time. The worker that forwarded the response has told its
    /// own scheduler; the others learn it here.
    fn hear_responses(&mut self, now: Time, untold: &mut Vec<(PoolId, Event)>) {
        if !self.hears[Dialect::Orca.index()] {
            return;
        }
        for place in 0..self.nodes.len() {
            let node = &mut self.nodes[place];
            let Some(report) = node.stats.said() else { continue };
            if node.told.is_news(Dialect::Orca, &report)
                && node.told.take(now, Dialect::Orca, report, self.expiry)
            {
                self.learn(now, place, report, untold);
            }
        }
    }

    /// Draws the conclusions from what a node has just said. Schedulers are told just that, with its own time: they
    /// put together by themselves what nodes say in several ways. Says whether the node wants jobs now and did not, or
    /// the reverse.
    fn learn(&mut self, now: Time, place: usize, said: Report, untold: &mut Vec<(PoolId, Event)>) -> bool {
        let node = &mut self.nodes[place];
        let Some(report) = node.told.merged(now, self.expiry) else { return false };
        let id = node.id;
        let refuses = report.health == Some(Health::NONE);
        let turned = std::mem::replace(&mut node.refuses, refuses) != refuses;
        if let Some(tuner) = &mut self.tuner {
            tuner.reported(now, id, &report);
        }
        // What says neither load nor health is no fault: it is for the scheduler.
        if let Err(ignored) = self.controller.reported(now, id, &report) {
            tracing::trace!(node = %id, %ignored, "not used for weights");
        }
        untold.push((self.id, Event::Report { node: id, report: said }));
        if turned {
            self.weigh(now, self.id, untold);
        }
        turned
    }

    /// Brings weights up to date with what was reported.
    pub(crate) fn weigh(&mut self, now: Time, id: PoolId, untold: &mut Vec<(PoolId, Event)>) {
        let mut weights = std::mem::take(&mut self.weights);
        self.controller.counted(now, |node| self.counts.jobs(node));
        self.controller.weights(now, &mut weights);
        let is_steered = self.controller.law() != Law::Off;
        for &(node, weight) in &weights {
            let Some(place) = self.place(node) else { continue };
            let known = &mut self.nodes[place];
            known.wanted = weight;
            let steered = is_steered.then_some(weight);
            if known.steered != steered {
                known.steered = steered;
                untold.push((id, Event::Weight { node, weight: known.weight() }));
            }
        }
        self.weights = weights;
    }

    /// Forgets what is not believed any more, as schedulers do by themselves.
    fn age(&mut self, now: Time, untold: &mut Vec<(PoolId, Event)>) {
        let (expiry, id) = (self.expiry, self.id);
        for node in &mut self.nodes {
            if !node.told.age(now, expiry) {
                continue;
            }
            let left = node.told.merged(now, expiry);
            node.refuses = left.is_some_and(|report| report.health == Some(Health::NONE));
            // No news, but jobs that wait because of what was reported learn by it that this is over.
            untold.push((id, Event::Check { node: node.id, up: node.up }));
        }
    }

    /// Takes the phase that the tuner finds best now; says whether it is another.
    fn tune(&mut self, now: Time) -> bool {
        let Some(tuner) = &mut self.tuner else { return false };
        let phase = tuner.period(now);
        std::mem::replace(&mut self.phase, phase) != phase
    }
}

impl NodeState {
    /// Whether it gets no new jobs, because an operator or its own agent wants so.
    pub(crate) fn drains(&self) -> bool {
        self.draining || self.service == Some(false)
    }

    /// The weight for another balancer: that which follows from reports, 0 where the node gets no new jobs.
    pub(crate) fn wanted_weight(&self) -> Weight {
        if self.up { self.weight_if_up() } else { Weight::DRAIN }
    }

    /// The same, whatever health checks say.
    pub(crate) fn weight_if_up(&self) -> Weight {
        match self.drains() {
            true => Weight::DRAIN,
            false => self.steered.unwrap_or_else(|| self.allowance.weight(self.wanted)),
        }
    }
}
