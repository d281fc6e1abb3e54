//! Recordings as a director makes them, of runs that a seed invents, and what reads them.

use std::sync::Arc;
use std::time::Duration;

use evener_model::{Event, Health, Job, JobCounts, NodeId, NodeSpec, Outcome, Report, Time, Weight};
use evener_record::{
    Encoder, End, EndReason, Entry, Head, Piece, ReadError, Reader, Replay, What, end_frame, head_frame,
};
use evener_scheduler::{Policy, Scheduler, Settings, hash_bytes};

/// Nodes of a pool; seeds from 100 have one so large that policies keep trees instead of scanning.
const NODES: u32 = 12;
const NODES_MANY: u32 = 100;

/// A run of `calls` calls to a scheduler, with nodes that come and go, fail and report, and with other
/// dispatchers that share its counts; as a recording.
pub(crate) fn record(policy: Policy, seed: u64, calls: usize) -> Vec<u8> {
    let mut file = Recording::new(1);
    let mut run = Run::new(policy, seed);
    for entry in run.begin() {
        entry.put(&mut file, 0);
    }
    for _ in 0..calls {
        run.step(&mut file);
    }
    file.end(EndReason::Complete)
}

/// A file that is being written.
pub(crate) struct Recording {
    bytes: Vec<u8>,
    encoders: Vec<Encoder>,
    blocks: u64,
}

impl Recording {
    pub(crate) fn new(workers: u16) -> Recording {
        let head = Head { program: "evener 0.0.0".into(), started_unix_ms: 1_700_000_000_000, workers };
        let encoders = (0..workers).map(Encoder::new).collect();
        Recording { bytes: head_frame(&head), encoders, blocks: 0 }
    }

    pub(crate) fn put(&mut self, worker: usize, entry: &Entry<'_>) {
        self.encoders[worker].put(entry);
        if self.encoders[worker].len() > 700 {
            self.flush(worker);
        }
    }

    fn flush(&mut self, worker: usize) {
        if let Some(block) = self.encoders[worker].take(Vec::new()) {
            self.bytes.extend_from_slice(&block);
            self.blocks += 1;
        }
    }

    pub(crate) fn end(mut self, reason: EndReason) -> Vec<u8> {
        for worker in 0..self.encoders.len() {
            self.flush(worker);
        }
        self.bytes.extend_from_slice(&end_frame(&End { reason, blocks: self.blocks }));
        self.bytes
    }
}

/// An entry that owns its name.
struct Opening(String, What<'static>);

impl Opening {
    fn put(self, file: &mut Recording, worker: usize) {
        let what = match self.1 {
            What::Pool { nodes_max, seed, settings, .. } => {
                What::Pool { name: &self.0, nodes_max, seed, settings }
            }
            What::Name { node, .. } => What::Name { node, name: &self.0 },
            other => other,
        };
        file.put(worker, &Entry { pool: 7, now: Time::ZERO, what });
    }
}

struct Run {
    nodes: u32,
    scheduler: Scheduler,
    counts: Arc<JobCounts>,
    /// Jobs of other dispatchers, of which the scheduler learns when it picks.
    others: Vec<u32>,
    settings: Settings,
    seed: u64,
    random: u64,
    now: Time,
    /// Nodes with a job of this scheduler, one entry a job.
    open: Vec<NodeId>,
}

impl Run {
    fn new(policy: Policy, seed: u64) -> Run {
        let settings = Settings {
            policy,
            slow_start: Duration::from_millis(seed % 3 * 20),
            phase: Duration::from_millis(30),
            affinity: (seed % 2 * 4) as u16,
            current_bonus_percent: seed as u32 % 4 * 30,
            ..Settings::default()
        };
        let nodes = if seed >= 100 { NODES_MANY } else { NODES };
        let counts = Arc::new(JobCounts::new(nodes as usize));
        Run {
            nodes,
            scheduler: Scheduler::new(settings.clone(), Arc::clone(&counts), seed),
            counts,
            others: vec![0; nodes as usize],
            settings,
            seed,
            random: seed,
            now: Time::ZERO,
            open: Vec::new(),
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % limit
    }

    fn begin(&mut self) -> Vec<Opening> {
        let settings = self.settings.clone();
        let pool = What::Pool { name: "", nodes_max: self.nodes, seed: self.seed, settings };
        let mut openings = vec![Opening("app".into(), pool)];
        for number in 0..self.nodes {
            openings.push(Opening(format!("n{number}"), What::Name { node: NodeId(number), name: "" }));
        }
        for number in 0..self.nodes / 2 {
            let (_, event) = self.join(number);
            self.scheduler.handle(self.now, event);
            openings.push(Opening(String::new(), What::Event(event)));
        }
        openings
    }

    fn join(&mut self, number: u32) -> (NodeId, Event) {
        let node = NodeId(number);
        let weight = Weight::new(self.below(6)).expect("a small weight");
        let jobs_max = (self.below(2) == 0).then_some(3);
        let spec = NodeSpec { weight, jobs_max, name_hash: hash_bytes(format!("n{number}").as_bytes()) };
        (node, Event::Join { node, spec })
    }

    fn step(&mut self, file: &mut Recording) {
        let later = Duration::from_micros(self.below(2000));
        self.now += later;
        let node = NodeId(self.below(u64::from(self.nodes)) as u32);
        match self.below(40) {
            0 => {
                let number = self.below(u64::from(self.nodes)) as u32;
                let (_, event) = self.join(number);
                self.tell(file, event);
            }
            1 => self.tell(file, Event::Leave { node }),
            2 => {
                let draining = self.below(2) == 0;
                self.tell(file, Event::Drain { node, draining });
            }
            3 => {
                let up = self.below(3) > 0;
                self.tell(file, Event::Check { node, up });
            }
            4 => {
                let weight = Weight::new(self.below(6)).expect("a small weight");
                self.tell(file, Event::Weight { node, weight });
            }
            5 => {
                let report = Report {
                    measured_at: self.now - Duration::from_millis(1),
                    jobs: Some(self.below(9) as u32),
                    load: Some(self.below(100) as f32 / 64.0),
                    health: (self.below(2) == 0).then_some(Health::saturating(90)),
                    latency: Some(Duration::from_micros(self.below(5000))),
                    ..Report::default()
                };
                self.tell(file, Event::Report { node, report });
            }
            6 => {
                self.settings.choices = 2 + self.below(3) as u8;
                self.scheduler.reconfigure(self.now, self.settings.clone());
                file.put(0, &Entry { pool: 7, now: self.now, what: What::Settings(self.settings.clone()) });
            }
            7..=10 => {
                let others = &mut self.others[node.index()];
                *others = if self.random & 1 << 40 == 0 { *others + 1 } else { others.saturating_sub(1) };
            }
            11..=24 => self.finish(file),
            _ => self.pick(file),
        }
    }

    fn tell(&mut self, file: &mut Recording, event: Event) {
        self.scheduler.handle(self.now, event);
        file.put(0, &Entry { pool: 7, now: self.now, what: What::Event(event) });
    }

    fn finish(&mut self, file: &mut Recording) {
        if self.open.is_empty() {
            return;
        }
        let place = self.below(self.open.len() as u64) as usize;
        let node = self.open.swap_remove(place);
        let outcome = Outcome::ALL[self.below(6) as usize * usize::from(self.below(3) == 0)];
        let latency = (self.below(4) > 0).then(|| Duration::from_micros(self.now.as_nanos() % 9000));
        self.tell(file, Event::Finish { node, outcome, latency });
    }

    fn pick(&mut self, file: &mut Recording) {
        let jobs = self.changes();
        let avoid = [NodeId(self.below(6) as u32), NodeId(self.below(6) as u32)];
        let avoid = &avoid[..self.below(3) as usize];
        let current = (self.below(4) == 0).then_some(NodeId(1));
        let excluded = [0, 2, 1, 4, 3, 5].map(NodeId);
        let excluded = if self.below(4) == 0 { &excluded[..self.below(7) as usize] } else { &[] };
        let job = Job { key: self.below(50) * 0x9e37_79b9, avoid, excluded, current };
        let choice = self.scheduler.pick(self.now, &job);
        file.put(0, &Entry { pool: 7, now: self.now, what: What::Pick { jobs: &jobs, job, choice } });
        if let Ok(node) = choice {
            self.open.push(node);
        }
    }

    /// Brings the counts up to date with what others have done, and says where that changed them.
    fn changes(&mut self) -> Vec<(NodeId, u32)> {
        let all = |node: NodeId| {
            let own = self.open.iter().filter(|open| **open == node).count() as u32;
            (node, own + self.others[node.index()])
        };
        let now = (0..self.nodes).map(NodeId).map(all);
        let changed: Vec<_> = now.filter(|(node, jobs)| self.counts.jobs(*node) != *jobs).collect();
        for (node, jobs) in &changed {
            self.counts.set(*node, *jobs);
        }
        changed
    }
}

/// Reads a recording in pieces of `step` bytes and replays it.
pub(crate) fn replay(bytes: &[u8], step: usize) -> Result<Replay, Box<dyn std::error::Error>> {
    let mut replay = Replay::new();
    each(bytes, step, |worker, entry| Ok(replay.take(worker, entry)?))?;
    Ok(replay)
}

/// Reads a recording in pieces of `step` bytes; gives each entry to `take`.
pub(crate) fn each(
    bytes: &[u8],
    step: usize,
    mut take: impl FnMut(u16, &Entry<'_>) -> Result<(), Box<dyn std::error::Error>>,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut reader = Reader::new();
    for piece in bytes.chunks(step) {
        reader.feed(piece);
        while let Some(piece) = reader.next()? {
            if let Piece::Block(block) = piece {
                let worker = block.worker;
                let mut entries = block.entries();
                while let Some(entry) = entries.next()? {
                    take(worker, &entry)?;
                }
            }
        }
    }
    reader.finish()?;
    Ok(())
}

/// Why a recording cannot be read.
pub(crate) fn read_error(bytes: &[u8]) -> Option<ReadError> {
    let error = each(bytes, 4096, |_, _| Ok(())).err()?;
    error.downcast_ref().cloned()
}
