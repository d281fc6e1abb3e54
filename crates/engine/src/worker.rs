//! A worker: one thread, one epoll loop, its own connections and schedulers.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::TryRecvError;
use std::thread;
use std::time::Duration;

use evener_model::{Event, Time};
use mio::{Events, Poll};

use crate::access_log::LogSink;
use crate::bell::{Bell, Calls};
use crate::clock::Clock;
use crate::command::{Command, CommandQueue, Explanation, PoolView, WorkerHandle};
use crate::core::{Core, HEADROOM, READ_MAX, Random};
use crate::io::Buffers;
use crate::listener::Listener;
use crate::pool::{Pool, Waiting};
use crate::record::RecordSink;
use crate::service::http::{Http, Readiness};
use crate::service::tcp::Relays;
use crate::snapshot::{ListenerId, PoolId, Service, Snapshot};
use crate::timer::Timers;
use crate::token::{Kind, Token};

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 1024;
/// Connections accepted before others get their turn.
const ACCEPTS_PER_TURN: usize = 64;
/// The clock is read once for so many events.
const EVENTS_PER_CLOCK: usize = 16;
/// Commands carried out before connections get their turn.
const COMMANDS_PER_TURN: usize = 1024;
/// When no descriptor or memory is left, accepting is tried again after this.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// An idle client of a draining worker may still send a request for so long, at the most.
const IDLE_GRACE_MAX: Duration = Duration::from_secs(5);

/// Starts `workers` workers, which serve nothing until they are told.
///
/// `seed` makes their random choices; `sinks` is where they log, one each, and `records` where their schedulers
/// are recorded, one each or none.
///
/// # Errors
/// If the kernel gives no epoll or no thread.
pub fn start(
    workers: usize,
    seed: u64,
    sinks: Vec<LogSink>,
    records: Vec<RecordSink>,
) -> io::Result<Vec<WorkerHandle>> {
    assert_eq!(sinks.len(), workers, "each worker has a sink of its own");
    let records = records.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
    let polls = (0..workers)
        .map(|_| {
            let poll = Poll::new()?;
            let bell = Arc::new(Bell::new(poll.registry(), Token::new(Kind::Worker, 0).into())?);
            Ok((poll, bell))
        })
        .collect::<io::Result<Vec<_>>>()?;
    let bells: Arc<[Arc<Bell>]> = polls.iter().map(|(_, bell)| Arc::clone(bell)).collect();
    polls
        .into_iter()
        .zip(sinks)
        .zip(records)
        .enumerate()
        .map(|(number, (((poll, bell), sink), record))| {
            let bells = Arc::clone(&bells);
            let mut seeds = Random::new(seed ^ number as u64);
            WorkerHandle::new(bell, |commands| {
                thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
                    let sinks = (sink, record);
                    let worker = Worker::new(poll, number, workers, seeds.next(), sinks, bells, commands);
                    match worker {
                        Ok(worker) => worker.run(),
                        Err(error) => tracing::error!(worker = number, %error, "worker did not start"),
                    }
                })
            })
        })
        .collect()
}

struct Worker {
    poll: Poll,
    workers: usize,
    core: Core,
    http: Http,
    relays: Relays,
    pools: HashMap<PoolId, usize>,
    listeners: HashMap<ListenerId, usize>,
    commands: CommandQueue,
    /// What the worker is called for and has not come to.
    calls: Calls,
    /// When what is still open is cut off.
    drain_until: Option<Time>,
}

impl Worker {
    fn new(
        poll: Poll,
        number: usize,
        workers: usize,
        seed: u64,
        (log, record): (LogSink, Option<RecordSink>),
        bells: Arc<[Arc<Bell>]>,
        commands: CommandQueue,
    ) -> io::Result<Worker> {
        let clock = Clock::new();
        let core = Core {
            worker: number,
            registry: poll.registry().try_clone()?,
            timers: Timers::new(clock.now()),
            clock,
            buffers: Buffers::default(),
            scratch: vec![0; HEADROOM + READ_MAX],
            listeners: slab::Slab::new(),
            pools: slab::Slab::new(),
            excluded: Vec::new(),
            again: Vec::new(),
            log,
            record: record.map(|sink| Rc::new(RefCell::new(sink))),
            random: Random::new(seed),
            bells,
            draining: false,
        };
        Ok(Worker {
            poll,
            workers,
            core,
            http: Http::new(),
            relays: Relays::new(),
            pools: HashMap::new(),
            listeners: HashMap::new(),
            commands,
            calls: Calls::NONE,
            drain_until: None,
        })
    }

    fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut due = Vec::new();
        let mut again = Vec::new();
        loop {
            let wait = if self.core.again.is_empty() && self.calls == Calls::NONE {
                self.core.timers.wait(self.core.now())
            } else {
                Some(Duration::ZERO)
            };
            let wait = self.core.record.as_ref().map_or(wait, |record| record.borrow().wait(wait));
            match self.poll.poll(&mut events, wait) {
                // What has happened since comes with the next events, and before timers that are due: after a stop
                // (SIGSTOP) answers that are there must not count as late.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    self.core.clock.update();
                    continue;
                }
                Err(error) => tracing::error!(worker = self.core.worker, %error, "epoll"),
                Ok(()) => {}
            }
            self.core.clock.update();
            for (count, event) in events.iter().enumerate() {
                if count % EVENTS_PER_CLOCK == EVENTS_PER_CLOCK - 1 {
                    self.core.clock.update();
                }
                let token = Token::from(event.token());
                let ready = Readiness {
                    readable: event.is_readable(),
                    writable: event.is_writable(),
                    read_closed: event.is_read_closed(),
                    failed: event.is_error() || (event.is_read_closed() && event.is_write_closed()),
                };
                match token.kind() {
                    Kind::HttpClient => self.http.client_ready(&mut self.core, token.index(), ready),
                    Kind::HttpNode => self.http.link_ready(&mut self.core, token.index(), ready),
                    Kind::RelayClient => self.relays.client_ready(&mut self.core, token.index(), ready),
                    Kind::RelayNode => self.relays.node_ready(&mut self.core, token.index(), ready),
                    Kind::Listener => self.accept(token.index()),
                    Kind::Worker => self.calls.add(self.core.bells[self.core.worker].answer()),
                    Kind::Pool => {}
                }
            }
            std::mem::swap(&mut again, &mut self.core.again);
            for token in again.drain(..) {
                self.advance(token);
            }
            self.core.timers.expire(self.core.clock.now(), &mut due);
            for token in due.drain(..) {
                self.timeout(token);
            }
            for tunnel in std::mem::take(&mut self.http.tunnels) {
                self.relays.adopt(&mut self.core, tunnel);
            }
            self.http.reap();
            self.relays.reap();
            if let Some(record) = &self.core.record {
                record.borrow_mut().advance(self.core.clock.now());
            }
            if !self.obey() {
                return;
            }
            if self.drain_until.is_some() && self.is_drained() {
                self.core.log.flush(self.core.worker);
                return;
            }
        }
    }

    /// Goes on with what has more to do.
    fn advance(&mut self, token: Token) {
        match token.kind() {
            Kind::HttpClient => self.http.advance_client(&mut self.core, token.index()),
            Kind::HttpNode => self.http.advance_link(&mut self.core, token.index()),
            Kind::RelayClient => self.relays.advance(&mut self.core, token.index()),
            Kind::Listener => self.accept(token.index()),
            Kind::Pool => self.place_waiting(token.index()),
            Kind::RelayNode | Kind::Worker => {}
        }
    }

    fn timeout(&mut self, token: Token) {
        match token.kind() {
            Kind::HttpClient => self.http.client_timeout(&mut self.core, token.index()),
            Kind::HttpNode => self.http.link_timeout(&mut self.core, token.index()),
            Kind::RelayClient => self.relays.client_timeout(&mut self.core, token.index()),
            Kind::RelayNode => self.relays.node_timeout(&mut self.core, token.index()),
            Kind::Listener => self.accept(token.index()),
            Kind::Pool => self.queue_timeout(token.index()),
            Kind::Worker if token.index() == 0 => self.core.log.flush(self.core.worker),
            Kind::Worker => {}
        }
    }

    fn accept(&mut self, index: usize) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(listener) = self.core.listeners.get_mut(index) else { return };
            if listener.is_removed {
                if listener.open == 0 {
                    self.core.listeners.remove(index);
                }
                return;
            }
            listener.is_full = listener.open >= listener.spec.clients_max;
            if listener.is_full {
                listener.stats(self.core.worker).limited.add(1);
                return;
            }
            match listener.accept() {
                Ok(Some((stream, address))) => match listener.spec.service {
                    Service::Http(_) => self.http.accept(&mut self.core, index, stream, address),
                    Service::Tcp(_) => self.relays.accept(&mut self.core, index, stream, address),
                },
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(listener = listener.spec.name, %error, "accept");
                    listener.stats(self.core.worker).limited.add(1);
                    self.core.set_timer(Token::new(Kind::Listener, index), ACCEPT_RETRY);
                    return;
                }
            }
        }
        self.core.again.push(Token::new(Kind::Listener, index));
    }

    /// Lets jobs that wait for a node of a pool go on, the oldest first, as far as there is room.
    fn place_waiting(&mut self, index: usize) {
        let mut place = 0;
        while let Some(&waiting) = self.core.pools.get(index).and_then(|pool| pool.queue.get(place)) {
            let is_placed = self.place_one(waiting);
            let pool = &mut self.core.pools[index];
            if !is_placed {
                if pool.spec.exceptions.is_empty() {
                    return;
                }
                // The room there is may be at a node that does not want this client, and wants others.
                place += 1;
                continue;
            }
            // Placing may have failed for good and taken the job out already.
            if pool.queue.get(place).is_some_and(|first| first.token == waiting.token) {
                pool.queue.remove(place);
            }
            pool.publish_queue(self.core.worker);
        }
    }

    fn place_one(&mut self, waiting: Waiting) -> bool {
        match waiting.token.kind() {
            Kind::HttpClient => self.http.place_waiting(&mut self.core, waiting.token.index()),
            _ => self.relays.place_waiting(&mut self.core, waiting.token.index()),
        }
    }

    /// Refuses jobs that have waited too long, and looks again when the next one may have.
    fn queue_timeout(&mut self, index: usize) {
        // Room that came without a sign, as when a node recovered, is found here at the latest.
        self.place_waiting(index);
        let now = self.core.now();
        while let Some(pool) = self.core.pools.get_mut(index) {
            let timeout = pool.spec.queue_timeout;
            let Some(&first) = pool.queue.front() else { return };
            let waited = now.since(first.since);
            if waited < timeout {
                self.core.set_timer(Token::new(Kind::Pool, index), timeout - waited);
                return;
            }
            pool.queue.pop_front();
            pool.publish_queue(self.core.worker);
            match first.token.kind() {
                Kind::HttpClient => self.http.queue_timeout(&mut self.core, first.token.index()),
                _ => self.relays.queue_timeout(&mut self.core, first.token.index()),
            }
        }
    }

    /// Comes to what the worker is called for; `false` if the control plane is gone.
    fn obey(&mut self) -> bool {
        let calls = std::mem::replace(&mut self.calls, Calls::NONE);
        if calls.has(Calls::FREED) {
            let pools: Vec<usize> = self.core.pools.iter().map(|(index, _)| index).collect();
            for pool in pools {
                self.place_waiting(pool);
            }
        }
        if !calls.has(Calls::COMMANDS) {
            return true;
        }
        // Reports are weighed by their age.
        self.core.clock.update();
        for _ in 0..COMMANDS_PER_TURN {
            match self.commands.try_recv() {
                Ok(command) => self.carry_out(command),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => {
                    self.http.abort(&mut self.core);
                    self.relays.abort(&mut self.core);
                    self.core.log.flush(self.core.worker);
                    return false;
                }
            }
        }
        // Nobody will ring for those that are left.
        self.calls.add(Calls::COMMANDS);
        true
    }

    /// Tells a pool's scheduler what happened, and lets waiting jobs go on if that may have made room.
    fn tell(&mut self, pool: PoolId, event: Event) {
        let Some(&index) = self.pools.get(&pool) else { return };
        let now = self.core.now();
        let pool = &mut self.core.pools[index];
        let members = pool.scheduler.members();
        pool.scheduler.handle(now, event);
        // What a node reports makes room only if that lets the node in again, which is seldom.
        let makes_room = !matches!(event, Event::Report { .. }) || pool.scheduler.members() > members;
        if makes_room && !pool.queue.is_empty() {
            self.place_waiting(index);
        }
    }

    fn carry_out(&mut self, command: Command) {
        let now = self.core.now();
        match command {
            Command::Apply(snapshot) => self.apply(&snapshot),
            Command::Event { pool, event } => self.tell(pool, event),
            Command::Events(events) => events.iter().for_each(|&(pool, event)| self.tell(pool, event)),
            Command::Inspect { pool, reply } => {
                if let Some(&index) = self.pools.get(&pool) {
                    let nodes = self.core.pools[index].scheduler.nodes(now).collect();
                    // Who asked may have given up.
                    let _ = reply.send(PoolView { now, nodes });
                }
            }
            Command::Explain { pool, count, reply } => {
                if let Some(&index) = self.pools.get(&pool) {
                    let scheduler = &self.core.pools[index].scheduler;
                    let placements = scheduler.placements().take(count).cloned().collect();
                    let _ = reply.send(Explanation { now, placements });
                }
            }
            Command::Drain { deadline } => self.drain(deadline),
        }
    }

    fn apply(&mut self, snapshot: &Snapshot) {
        let now = self.core.now();
        for spec in &snapshot.pools {
            match self.pools.get(&spec.id) {
                Some(&index) => {
                    let orphans = self.core.pools[index].apply(Arc::clone(spec), now);
                    self.http.close_links(&mut self.core, orphans);
                }
                None => {
                    let seed = self.core.random.next();
                    let pool = Pool::new(Arc::clone(spec), now, seed, self.core.record.as_ref());
                    self.pools.insert(spec.id, self.core.pools.insert(pool));
                }
            }
        }
        let place = |id: PoolId| self.pools[&id];
        let share = (self.core.worker, self.workers);
        for bound in &snapshot.listeners {
            let registry = &self.core.registry;
            let spec = &bound.spec;
            let applied = match self.listeners.get(&spec.id) {
                Some(&index) => {
                    let token = Token::new(Kind::Listener, index);
                    self.core.listeners[index].apply(bound, registry, token, share, place).map(|()| index)
                }
                None => {
                    let entry = self.core.listeners.vacant_entry();
                    let index = entry.key();
                    let token = Token::new(Kind::Listener, index);
                    Listener::new(bound, registry, token, share, place).map(|listener| {
                        entry.insert(listener);
                        self.listeners.insert(spec.id, index);
                        index
                    })
                }
            };
            match applied {
                // Its limit may have changed, and connections may wait.
                Ok(index) => self.core.again.push(Token::new(Kind::Listener, index)),
                Err(error) => tracing::error!(listener = spec.name, %error, "listen"),
            }
        }
        let stays = |id: &ListenerId| snapshot.listeners.iter().any(|bound| bound.spec.id == *id);
        let gone: Vec<usize> =
            self.listeners.extract_if(|id, _| !stays(id)).map(|(_, index)| index).collect();
        for index in gone {
            self.close_listener(index);
        }
        let gone: Vec<usize> = self
            .pools
            .extract_if(|id, _| !snapshot.pools.iter().any(|spec| spec.id == *id))
            .map(|(_, index)| index)
            .collect();
        for index in gone {
            // Its place stays: exchanges under way still name it.
            let pool = &mut self.core.pools[index];
            pool.is_removed = true;
            let idle = pool.drain_idle();
            self.http.close_links(&mut self.core, idle);
        }
        let pools: Vec<usize> = self.pools.values().copied().collect();
        for index in pools {
            self.place_waiting(index);
        }
        self.http.reap();
    }

    /// Stops accepting at a listener. Connections that wait already are taken: closing would reset them.
    fn close_listener(&mut self, index: usize) {
        self.accept(index);
        let listener = &mut self.core.listeners[index];
        listener.close(&self.core.registry);
        listener.is_removed = true;
        self.core.again.push(Token::new(Kind::Listener, index));
    }

    fn drain(&mut self, deadline: Duration) {
        let now = self.core.now();
        self.drain_until = Some(now + deadline);
        self.core.draining = true;
        let open: Vec<usize> = std::mem::take(&mut self.listeners).into_values().collect();
        for index in open {
            self.close_listener(index);
        }
        let idle_grace = (deadline / 2).min(IDLE_GRACE_MAX);
        self.http.drain(&mut self.core, idle_grace);
        self.core.set_timer(Token::new(Kind::Worker, 1), deadline);
    }

    fn is_drained(&mut self) -> bool {
        if self.drain_until.is_some_and(|until| self.core.now() >= until) {
            self.http.abort(&mut self.core);
            self.relays.abort(&mut self.core);
        }
        self.http.open() + self.relays.open() == 0
    }
}
