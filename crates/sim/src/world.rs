//! The simulation: what each event does.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use evener_model::{Event as Told, Job, JobCounts, NodeId, NodeSpec, Outcome, Time, Weight};
use evener_scheduler::{PickError, Scheduler, hash_bytes};

use crate::Dispatch;
use crate::arrivals::Source;
use crate::node::{CopyId, Mode, Node, Voice};
use crate::queue::{Event, Queue};
use crate::random::Random;
use crate::record::Record;
use crate::reports::{Letter, Rounds};
use crate::run::Run;
use crate::scenario::{Arrivals, Failure, Scenario, When};
use crate::size::Sizes;
use crate::steering::Helm;
use crate::task::{Copy, NOBODY, Stage, Tasks};
use crate::transfers::Handing;

/// A client of a closed system whose job failed waits at least this long: a cluster that refuses at once must not
/// make time stand still.
const SULK_NANOS: u64 = 1_000_000;
/// After the last job came, a run goes on for this many times its duration, and for [`PATIENCE_NANOS`].
const OVERTIME: u64 = 2;
const PATIENCE_NANOS: u64 = 60_000_000_000;
/// Samples of the jobs on nodes in a run.
pub(crate) const SAMPLES: u64 = 200;
/// Failed looks that make a node count as down, and good ones that make it count as up.
const FALL: i8 = -3;
const RISE: i8 = 2;

/// The independent sequences of random numbers. What is drawn for jobs is drawn when they come, so that
/// it is the same whatever the policy.
mod stream {
    pub(super) const ARRIVALS: u64 = 1;
    pub(super) const JOBS: u64 = 2;
    pub(super) const CLIENTS: u64 = 3;
    pub(super) const FAULTS: u64 = 4;
    pub(super) const SIGNALS: u64 = 5;
    pub(super) const PHASES: u64 = 6;
    pub(super) const SCHEDULERS: u64 = 7;
    pub(super) const LIES: u64 = 8;
}

pub(crate) struct Dispatcher {
    pub(crate) scheduler: Option<Scheduler>,
    pub(crate) helm: Option<Helm>,
    /// Its jobs in flight.
    pub(crate) counts: Arc<JobCounts>,
    /// Jobs that wait, with their generations; those that are over are passed by.
    pub(crate) queue: VecDeque<(u32, u32)>,
    pub(crate) queued: u32,
    /// Until when it is at work on picks.
    pub(crate) busy_until: u64,
}

pub(crate) struct World<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) now: u64,
    pub(crate) queue: Queue,
    pub(crate) source: Source,
    pub(crate) sizes: Sizes,
    pub(crate) jobs: Random,
    pub(crate) clients: Random,
    pub(crate) faults: Random,
    pub(crate) signals: Random,
    pub(crate) lies: Random,
    pub(crate) nodes: Vec<Node>,
    pub(crate) tasks: Tasks,
    pub(crate) dispatchers: Vec<Dispatcher>,
    /// Jobs that wait in the one queue of [`Dispatch::Central`], with their generations.
    pub(crate) central: VecDeque<(u32, u32)>,
    pub(crate) is_central: bool,
    pub(crate) letters: Vec<Letter>,
    pub(crate) letters_free: Vec<u32>,
    pub(crate) rounds: Rounds,
    /// Transfer between nodes, if there is any.
    pub(crate) handing: Option<Handing<'a>>,
    /// When faults begin and end, and at which node.
    pub(crate) changes: Vec<(u64, u32)>,
    /// Good looks in a row, or bad ones below 0.
    pub(crate) looks: Vec<i8>,
    pub(crate) is_down: Vec<bool>,
    pub(crate) lost: Vec<CopyId>,
    /// Which job of the trace comes next.
    pub(crate) traced: usize,
    pub(crate) closed: bool,
    pub(crate) hop: u64,
    pub(crate) record: Record,
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl<'a> World<'a> {
    pub(crate) fn new(scenario: &'a Scenario, dispatch: &Dispatch, seed: u64) -> World<'a> {
        let groups = scenario.nodes.iter().enumerate();
        let nodes: Vec<Node> =
            groups.flat_map(|(group, spec)| (0..spec.count).map(move |_| Node::new(group, spec))).collect();
        let mut seeds = Random::new(seed, stream::SCHEDULERS);
        let shared = Arc::new(JobCounts::new(nodes.len()));
        let dispatchers = (0..scenario.dispatchers.count).map(|_| {
            let counts = match scenario.dispatchers.share_counts {
                true => Arc::clone(&shared),
                false => Arc::new(JobCounts::new(nodes.len())),
            };
            let seed = seeds.bits();
            let scheduler = match dispatch {
                Dispatch::Scheduler(settings) => {
                    Some(Scheduler::new(settings.clone(), Arc::clone(&counts), seed))
                }
                Dispatch::Central => None,
            };
            let helm = Helm::new(scenario);
            Dispatcher { scheduler, helm, counts, queue: VecDeque::new(), queued: 0, busy_until: 0 }
        });
        let mut world = World {
            scenario,
            now: 0,
            queue: Queue::default(),
            source: Source::new(&scenario.arrivals, Random::new(seed, stream::ARRIVALS)),
            sizes: Sizes::new(&scenario.size),
            jobs: Random::new(seed, stream::JOBS),
            clients: Random::new(seed, stream::CLIENTS),
            faults: Random::new(seed, stream::FAULTS),
            signals: Random::new(seed, stream::SIGNALS),
            lies: Random::new(seed, stream::LIES),
            tasks: Tasks::default(),
            dispatchers: dispatchers.collect(),
            central: VecDeque::new(),
            is_central: *dispatch == Dispatch::Central,
            letters: Vec::new(),
            letters_free: Vec::new(),
            rounds: Rounds::new(scenario, nodes.len()),
            handing: scenario.transfer.as_ref().map(|settings| Handing::new(settings, nodes.len())),
            changes: Vec::new(),
            looks: vec![0; nodes.len()],
            is_down: vec![false; nodes.len()],
            lost: Vec::new(),
            traced: 0,
            closed: false,
            hop: nanos(scenario.hop),
            record: Record::new(scenario, nodes.len()),
            nodes,
        };
        world.join();
        world.begin(seed);
        world
    }

    /// Tells the schedulers which nodes there are.
    fn join(&mut self) {
        for (id, node) in self.nodes.iter().enumerate() {
            let group = &self.scenario.nodes[node.group];
            let spec = NodeSpec {
                weight: Weight::new(u64::from(group.weight)).unwrap_or(Weight::MAX),
                jobs_max: group.jobs_max,
                name_hash: hash_bytes(&(id as u64).to_le_bytes()),
            };
            for scheduler in self.dispatchers.iter_mut().filter_map(|d| d.scheduler.as_mut()) {
                scheduler.handle(Time::ZERO, Told::Join { node: NodeId(id as u32), spec });
            }
        }
    }

    /// Says the first of everything that goes on by itself.
    fn begin(&mut self, seed: u64) {
        let scenario = self.scenario;
        let mut phases = Random::new(seed, stream::PHASES);
        let mut spread = |period: Duration| (phases.unit() * nanos(period) as f64) as u64;
        match &scenario.arrivals {
            Arrivals::Closed { clients, think } => {
                for client in 0..*clients {
                    self.queue.push(spread(*think), Event::Ask { client });
                }
            }
            _ => self.arrive_next(),
        }
        match scenario.signals.when {
            When::Periodic { .. } => {
                let first = self.period();
                self.report_all_at(first);
            }
            When::Continuous { .. } => {
                let first = Duration::from_nanos(self.period());
                (0..self.nodes.len() as u32).for_each(|node| self.report_at(node, spread(first)));
            }
            When::Never | When::Exact | When::OnAccess => {}
        }
        if let Some(transfer) = &scenario.transfer {
            for node in 0..self.nodes.len() as u32 {
                self.queue.push(spread(transfer.information), Event::Inform { node });
                self.queue.push(spread(transfer.activation), Event::Activate { node });
            }
        }
        if let Some(every) = scenario.dispatchers.check_every {
            self.queue.push(nanos(every), Event::Check);
        }
        for (id, node) in self.nodes.iter().enumerate() {
            for fault in &scenario.nodes[node.group].faults {
                let ends = fault.to.into_iter().chain([fault.from]);
                self.changes.extend(ends.map(|at| (nanos(at), id as u32)));
            }
        }
        self.changes.sort_unstable();
        for (change, (at, _)) in self.changes.iter().enumerate() {
            self.queue.push(*at, Event::Change { change: change as u32 });
        }
        if !scenario.warm_up.is_zero() {
            self.queue.push(nanos(scenario.warm_up), Event::Warm);
        }
        self.queue.push(0, Event::Sample);
        self.queue.push(nanos(scenario.duration), Event::Close);
    }

    /// Simulates until all jobs have ended, or it is of no use to wait for the rest.
    pub(crate) fn run(mut self) -> Run {
        let duration = nanos(self.scenario.duration);
        let given_up_at = duration.saturating_mul(1 + OVERTIME).saturating_add(PATIENCE_NANOS);
        while let Some((at, event)) = self.queue.pop() {
            if at > given_up_at || (self.closed && self.tasks.under_way() == 0) {
                break;
            }
            debug_assert!(at >= self.now, "time runs backwards");
            self.now = at;
            self.record.run.events += 1;
            self.happen(event);
        }
        self.record.finish(&self.tasks)
    }

    #[inline]
    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { jobs } => {
                self.arrive_next();
                (0..jobs).for_each(|_| self.arrive(NOBODY));
            }
            Event::Ask { client } if !self.closed => self.arrive(client),
            Event::Ask { .. } => {}
            Event::Complete { node, epoch } => self.complete(node, epoch),
            Event::Deliver { copy } => self.deliver(copy),
            Event::Answer { copy, outcome } => self.answered(copy, outcome),
            Event::TimeOut { task, generation } => self.time_out(task, generation),
            Event::Hedge { task, generation } => self.hedge(task, generation),
            Event::QueueTimeOut { task, generation } => self.queue_time_out(task, generation),
            Event::Report { node } => self.report_in_time(node),
            Event::ReportAll => self.report_all_in_time(),
            Event::Reported { letter } => {
                self.letters_free.push(letter);
                let Letter { to, node, report } = self.letters[letter as usize];
                self.reported(to, node, report);
            }
            Event::Probe { dispatcher, node } => self.report(node, Some(dispatcher)),
            Event::Inform { node } => self.inform(node),
            Event::Informed { node, jobs } => self.informed(node, jobs),
            Event::Activate { node } => self.activate(node),
            Event::Change { change } => self.change(self.changes[change as usize].1),
            Event::Check => self.check(),
            Event::Sample => {
                let warm = self.now >= nanos(self.scenario.warm_up);
                self.record.sample(self.nodes.iter().map(Node::jobs), warm);
                // Of a short run samples are close: none may go on while jobs end, or fail to.
                let next = self.now + self.record.step_nanos();
                if next <= nanos(self.scenario.duration) {
                    self.queue.push(next, Event::Sample);
                }
            }
            Event::Warm => {
                for node in &mut self.nodes {
                    node.advance(self.now);
                    node.restart_gauge();
                }
            }
            Event::Close => {
                self.closed = true;
                self.nodes.iter_mut().for_each(|node| node.advance(self.now));
                self.record.close(&self.nodes);
            }
        }
    }

    // Jobs come.

    fn arrive_next(&mut self) {
        if let Some(batch) = self.source.next().filter(|batch| batch.at_nanos < nanos(self.scenario.duration))
        {
            self.queue.push(batch.at_nanos, Event::Arrive { jobs: batch.jobs });
        }
    }

    fn arrive(&mut self, client: u32) {
        // Drawn whether or not the trace says otherwise: the other draws stay the same.
        let (mut work, mut key) = (self.sizes.draw(&mut self.jobs), self.jobs.bits());
        let dispatchers = self.dispatchers.len() as u32;
        let dispatcher = if dispatchers == 1 { 0 } else { self.jobs.below(dispatchers) };
        if let Arrivals::Trace(trace) = &self.scenario.arrivals {
            work = trace.work_nanos.get(self.traced).map_or(work, |nanos| (*nanos as f64).max(1.0));
            key = trace.keys.get(self.traced).copied().unwrap_or(key);
            self.traced += 1;
        }
        let task = self.tasks.add(self.now, work, key, dispatcher, client);
        self.record.arrived(self.now);
        if let Some(timeout) = self.scenario.patience.timeout {
            let generation = self.tasks.get(task).generation;
            self.queue.push(self.now + nanos(timeout), Event::TimeOut { task, generation });
        }
        self.place(task);
    }

    // Dispatchers place them.

    fn place(&mut self, task: u32) {
        if self.is_central {
            return self.place_centrally(task);
        }
        match self.pick(task) {
            Ok(node) => self.send(task, node),
            Err(PickError::Full) => self.wait_in_dispatcher(task),
            Err(PickError::NoNode | PickError::Excluded) => self.reject(task),
        }
    }

    fn pick(&mut self, task: u32) -> Result<NodeId, PickError> {
        let task = self.tasks.get(task);
        let job = Job { key: task.key, avoid: task.tried(), ..Job::default() };
        let Some(scheduler) = &mut self.dispatchers[task.dispatcher as usize].scheduler else {
            return Err(PickError::NoNode);
        };
        scheduler.pick(Time::from_nanos(self.now), &job)
    }

    fn send(&mut self, task: u32, node: NodeId) {
        let id = task;
        let copy = Copy {
            picked: node.0,
            at: node.0,
            stage: Stage::Sent,
            reserved: !self.is_central,
            placed_at: self.now,
            ..Copy::default()
        };
        let copy = self.tasks.open(id, copy);
        let task = self.tasks.get(id);
        let (dispatcher, generation) = (task.dispatcher, task.generation);
        if self.is_central {
            // It knows at once what a node has: the hop is made up for by the answer.
            return self.deliver(copy);
        }
        if let Some(after) = self.scenario.patience.hedge_after.filter(|_| task.attempts == 1) {
            self.queue.push(self.now + nanos(after), Event::Hedge { task: id, generation });
        }
        let mut leaves_at = self.now;
        let cost = nanos(self.scenario.costs.pick);
        if cost > 0 {
            let dispatcher = &mut self.dispatchers[dispatcher as usize];
            dispatcher.busy_until = dispatcher.busy_until.max(self.now) + cost;
            leaves_at = dispatcher.busy_until;
        }
        for _ in 0..self.scenario.signals.probes {
            let node = self.signals.below(self.nodes.len() as u32);
            self.queue.push(self.now + self.hop, Event::Probe { dispatcher, node });
        }
        match leaves_at + self.hop {
            at if at == self.now => self.deliver(copy),
            at => self.queue.push(at, Event::Deliver { copy }),
        }
    }

    fn wait_in_dispatcher(&mut self, id: u32) {
        let limits = &self.scenario.dispatchers;
        let task = self.tasks.get_mut(id);
        let dispatcher = &mut self.dispatchers[task.dispatcher as usize];
        if dispatcher.queued >= limits.queue_max {
            return self.reject(id);
        }
        task.queued = true;
        dispatcher.queued += 1;
        dispatcher.queue.push_back((id, task.generation));
        let event = Event::QueueTimeOut { task: id, generation: task.generation };
        self.queue.push(self.now + nanos(limits.queue_timeout), event);
    }

    fn queue_time_out(&mut self, id: u32, generation: u32) {
        if self.tasks.pending(id, generation).is_some_and(|task| task.queued) {
            self.leave_queue(id);
            self.reject(id);
        }
    }

    fn leave_queue(&mut self, id: u32) {
        let task = self.tasks.get_mut(id);
        if std::mem::take(&mut task.queued) {
            self.dispatchers[task.dispatcher as usize].queued -= 1;
        }
    }

    /// Places what waits in dispatchers, as far as there is room now.
    fn place_waiting(&mut self) {
        for dispatcher in 0..self.dispatchers.len() {
            while self.dispatchers[dispatcher].queued > 0 {
                let Some(&(id, generation)) = self.dispatchers[dispatcher].queue.front() else { break };
                if !self.tasks.pending(id, generation).is_some_and(|task| task.queued) {
                    self.dispatchers[dispatcher].queue.pop_front();
                    continue;
                }
                match self.pick(id) {
                    Err(PickError::Full) => break,
                    picked => {
                        self.dispatchers[dispatcher].queue.pop_front();
                        self.leave_queue(id);
                        match picked {
                            Ok(node) => self.send(id, node),
                            Err(_) => self.reject(id),
                        }
                    }
                }
            }
        }
    }

    /// No node for this job.
    fn reject(&mut self, id: u32) {
        self.record.rejected(self.tasks.get(id).came_at);
        self.end(id, true);
    }

    fn place_centrally(&mut self, task: u32) {
        let mut best: Option<(f64, u32)> = None;
        for (id, node) in self.nodes.iter().enumerate() {
            if node.is_free() || (node.mode == Mode::Working && node.shares_cores()) {
                let speed = node.speed_for_next();
                if best.is_none_or(|(other, _)| speed > other) {
                    best = Some((speed, id as u32));
                }
            }
        }
        match best {
            Some((_, node)) => self.send(task, NodeId(node)),
            None => self.central.push_back((task, self.tasks.get(task).generation)),
        }
    }

    fn place_waiting_centrally(&mut self, node: u32) {
        while self.nodes[node as usize].is_free() {
            let Some((task, generation)) = self.central.pop_front() else { break };
            if self.tasks.pending(task, generation).is_some() {
                self.send(task, NodeId(node));
            }
        }
    }

    // Nodes do them.

    pub(crate) fn deliver(&mut self, copy: CopyId) {
        let at = self.tasks.copy(copy).at;
        let node = &mut self.nodes[at as usize];
        node.advance(self.now);
        if node.mode == Mode::Dead || node.is_full() {
            return self.answer(copy, Outcome::Refused);
        }
        if self.faults.chance(node.failing) {
            node.window.failed();
            return self.answer(copy, Outcome::Error);
        }
        let work = self.tasks.get(Tasks::of(copy)).work_nanos;
        let attempt = self.tasks.copy_mut(copy);
        if attempt.given_up {
            self.tasks.close(copy);
            return self.tasks.sweep(Tasks::of(copy));
        }
        let begun = node.take(copy, work);
        attempt.stage = if begun { Stage::Begun } else { Stage::Waiting };
        attempt.taken_at = self.now;
        self.reschedule(at);
        self.changed(at);
    }

    #[inline]
    pub(crate) fn reschedule(&mut self, node: u32) {
        if let Some((at, epoch)) = self.nodes[node as usize].reschedule() {
            self.queue.push(at, Event::Complete { node, epoch });
        }
    }

    fn complete(&mut self, id: u32, epoch: u32) {
        let node = &mut self.nodes[id as usize];
        if node.epoch != epoch {
            self.record.run.events -= 1;
            return;
        }
        node.fired();
        node.advance(self.now);
        let copy = node.end_first();
        let attempt = self.tasks.copy(copy);
        node.window.done((self.now - attempt.taken_at) as f64);
        self.record.served(id, self.tasks.get(Tasks::of(copy)).came_at);
        self.begin_waiting(id);
        self.changed(id);
        self.answer(copy, Outcome::Success);
        if self.is_central {
            self.place_waiting_centrally(id);
        }
    }

    /// Begins what waits at a node, as far as there is room, and says when the next job there is done.
    fn begin_waiting(&mut self, id: u32) {
        let node = &mut self.nodes[id as usize];
        while let Some(copy) = node.next_waiting() {
            match self.tasks.begin(copy) {
                Some(work) => node.begin(copy, work),
                None => {
                    node.passed_by();
                    self.tasks.close(copy);
                    self.tasks.sweep(Tasks::of(copy));
                }
            }
        }
        self.reschedule(id);
    }

    fn change(&mut self, id: u32) {
        let now = self.now;
        let node = &mut self.nodes[id as usize];
        node.advance(now);
        let (mut mode, mut factor, mut failing) = (Mode::Working, 1.0, 0.0);
        let mut voice = Voice::default();
        for fault in &self.scenario.nodes[node.group].faults {
            if nanos(fault.from) <= now && fault.to.is_none_or(|to| now < nanos(to)) {
                match fault.what {
                    Failure::Dead => mode = Mode::Dead,
                    Failure::Stalled if mode != Mode::Dead => mode = Mode::Stalled,
                    Failure::Stalled => {}
                    Failure::Slow(by) => factor *= by,
                    Failure::Failing(share) => failing = share,
                    Failure::Silent => voice.silent = true,
                    Failure::Says(lie) => voice.lie = Some(lie),
                    Failure::Ahead(seconds) => voice.ahead_s += seconds,
                }
            }
        }
        node.change(mode, factor, failing);
        node.voice = voice;
        if mode == Mode::Dead {
            let mut lost = std::mem::take(&mut self.lost);
            node.lose_all(&mut lost);
            for copy in lost.drain(..) {
                self.tasks.copy_mut(copy).stage = Stage::Begun;
                self.answer(copy, Outcome::Reset);
            }
            self.lost = lost;
        }
        self.reschedule(id);
        if self.is_central {
            self.place_waiting_centrally(id);
        }
    }

    // Answers.

    fn answer(&mut self, copy: CopyId, outcome: Outcome) {
        if matches!(self.scenario.signals.when, When::OnAccess) && outcome == Outcome::Success {
            let at = self.tasks.copy(copy).at;
            if !self.nodes[at as usize].voice.silent {
                let report = self.look(at);
                self.tasks.copy_mut(copy).report = Some(report);
            }
        }
        match self.hop * if self.is_central { 2 } else { 1 } {
            0 if outcome == Outcome::Success => self.answered(copy, outcome),
            // Failures are heard of by an event even where that takes no time: else each place that is tried in
            // turn would be one call deeper.
            delay => self.queue.push(self.now + delay, Event::Answer { copy, outcome }),
        }
    }

    fn answered(&mut self, copy: CopyId, outcome: Outcome) {
        let id = Tasks::of(copy);
        let Copy { picked, at, report, .. } = *self.tasks.copy(copy);
        self.release(copy, outcome);
        self.tasks.close(copy);
        if let Some(report) = report {
            self.reported(Some(self.tasks.get(id).dispatcher), at, report);
        }
        let task = self.tasks.get_mut(id);
        if !task.ended {
            let patience = &self.scenario.patience;
            if outcome == Outcome::Success {
                self.record.done(task.came_at, self.now);
                self.end(id, false);
            } else if task.attempts <= patience.retries {
                task.remember(picked);
                self.record.run.retries += 1;
                self.place(id);
            } else if task.open == 0 {
                self.record.failed(task.came_at, outcome);
                self.end(id, true);
            }
        } else {
            self.tasks.sweep(id);
        }
        self.place_waiting();
    }

    /// Tells the scheduler that an attempt is over for it.
    fn release(&mut self, copy: CopyId, outcome: Outcome) {
        let attempt = self.tasks.copy_mut(copy);
        if !std::mem::take(&mut attempt.reserved) {
            return;
        }
        let latency = Some(Duration::from_nanos(self.now - attempt.placed_at));
        let latency = latency.filter(|_| outcome != Outcome::Cancelled);
        let event = Told::Finish { node: NodeId(attempt.picked), outcome, latency };
        let dispatcher = self.tasks.get(Tasks::of(copy)).dispatcher;
        if let Some(scheduler) = &mut self.dispatchers[dispatcher as usize].scheduler {
            scheduler.handle(Time::from_nanos(self.now), event);
        }
    }

    /// A job has come to its end; attempts that are still under way are of no use.
    fn end(&mut self, id: u32, failed: bool) {
        self.leave_queue(id);
        let task = self.tasks.get_mut(id);
        task.ended = true;
        let client = task.client;
        if task.open > 0 {
            self.give_up(id);
        }
        self.tasks.sweep(id);
        if let Arrivals::Closed { think, .. } = self.scenario.arrivals {
            let thought = (nanos(think) as f64 * self.clients.exponential()) as u64;
            let ready_at = self.now + if failed { thought.max(SULK_NANOS) } else { thought };
            self.queue.push(ready_at, Event::Ask { client });
        }
    }

    /// Gives up the attempts that are left of a job: those that wait go; what is begun, its node goes on with.
    fn give_up(&mut self, id: u32) {
        for copy in self.tasks.copies(id) {
            self.release(copy, Outcome::Cancelled);
            let attempt = self.tasks.copy_mut(copy);
            if attempt.stage == Stage::Waiting && !attempt.given_up {
                self.nodes[attempt.at as usize].give_up_waiting();
            }
            attempt.given_up = true;
        }
    }

    fn time_out(&mut self, id: u32, generation: u32) {
        let Some(task) = self.tasks.pending(id, generation) else { return };
        self.record.timed_out(task.came_at, self.now);
        for copy in self.tasks.copies(id) {
            self.release(copy, Outcome::Timeout);
        }
        self.end(id, true);
        self.place_waiting();
    }

    fn hedge(&mut self, id: u32, generation: u32) {
        if self.tasks.pending(id, generation).is_none_or(|task| task.open != 1) || self.is_central {
            return;
        }
        let first = self.tasks.copies(id).map(|copy| self.tasks.copy(copy).picked).next();
        if let Some(first) = first {
            self.tasks.get_mut(id).remember(first);
        }
        if let Ok(node) = self.pick(id) {
            self.record.run.hedges += 1;
            self.send(id, node);
        }
    }

    // Checks.

    fn check(&mut self) {
        for (id, node) in self.nodes.iter().enumerate() {
            let alive = node.mode == Mode::Working;
            let look = &mut self.looks[id];
            *look = if alive { (*look).max(0) + 1 } else { (*look).min(0) - 1 }.clamp(FALL, RISE);
            let down = if self.is_down[id] { *look < RISE } else { *look <= FALL };
            if down != self.is_down[id] {
                self.is_down[id] = down;
                let event = Told::Check { node: NodeId(id as u32), up: !down };
                for scheduler in self.dispatchers.iter_mut().filter_map(|d| d.scheduler.as_mut()) {
                    scheduler.handle(Time::from_nanos(self.now), event);
                }
            }
        }
        self.place_waiting();
        if let Some(every) = self.scenario.dispatchers.check_every {
            self.queue.push(self.now + nanos(every), Event::Check);
        }
    }
}
