//! A pool's scheduler as its worker calls it, and what is recorded of that.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use evener_model::{Event, Job, JobCounts, NodeId, Outcome, Time};
use evener_record::{Entry, What};
use evener_scheduler::{NodeView, PickError, Placement, Scheduler, Settings};

use crate::record::RecordSink;
use crate::snapshot::PoolSpec;

/// Reservations that fail because others took the last place, before the pool counts as full.
const RACES_MAX: usize = 8;

/// A worker's recording, shared by its pools.
pub(crate) type SharedSink = Rc<RefCell<RecordSink>>;

/// Passes calls on to a [`Scheduler`]; where the director records, it also writes them down.
#[derive(Debug)]
pub(crate) struct Placer {
    scheduler: Scheduler,
    recorder: Option<Box<Recorder>>,
}

/// What makes a scheduler's picks repeatable though other workers change the counts at any time.
///
/// The scheduler works on counts of its own. Right before each pick they are brought up to date with the
/// shared ones, and the recording says where that changed them; the reservation is then made in both.
#[derive(Debug)]
struct Recorder {
    pool: u32,
    shared: Arc<JobCounts>,
    own: Arc<JobCounts>,
    /// The limits of all nodes that ever joined, by id.
    jobs_max: Vec<Option<u32>>,
    /// For use within a pick.
    changes: Vec<(NodeId, u32)>,
    sink: SharedSink,
}

impl Placer {
    /// A scheduler for `spec`, without nodes; recorded if there is a `sink`.
    pub(crate) fn new(spec: &PoolSpec, now: Time, seed: u64, sink: Option<&SharedSink>) -> Placer {
        let settings = spec.scheduler.clone();
        let Some(sink) = sink else {
            let scheduler = Scheduler::new(settings, Arc::clone(&spec.counts), seed);
            return Placer { scheduler, recorder: None };
        };
        let recorder = Recorder {
            pool: spec.id.0,
            shared: Arc::clone(&spec.counts),
            own: Arc::new(JobCounts::new(spec.counts.len())),
            jobs_max: Vec::new(),
            changes: Vec::new(),
            sink: Rc::clone(sink),
        };
        let nodes_max = spec.counts.len() as u32;
        recorder.put(now, What::Pool { name: &spec.name, nodes_max, seed, settings: settings.clone() });
        let scheduler = Scheduler::new(settings, Arc::clone(&recorder.own), seed);
        Placer { scheduler, recorder: Some(Box::new(recorder)) }
    }

    /// Says what a node is called that is about to join.
    pub(crate) fn name(&mut self, now: Time, node: NodeId, name: &str) {
        if let Some(recorder) = &self.recorder {
            recorder.put(now, What::Name { node, name });
        }
    }

    /// As [`Scheduler::reconfigure`].
    pub(crate) fn reconfigure(&mut self, now: Time, settings: Settings) {
        if let Some(recorder) = &self.recorder {
            recorder.put(now, What::Settings(settings.clone()));
        }
        self.scheduler.reconfigure(now, settings);
    }

    /// As [`Scheduler::handle`].
    #[inline]
    pub(crate) fn handle(&mut self, now: Time, event: Event) {
        self.scheduler.handle(now, event);
        if let Some(recorder) = &mut self.recorder {
            recorder.note(now, event);
        }
    }

    /// As [`Scheduler::pick`].
    #[inline]
    pub(crate) fn pick(&mut self, now: Time, job: &Job<'_>) -> Result<NodeId, PickError> {
        match &mut self.recorder {
            None => self.scheduler.pick(now, job),
            Some(recorder) => recorder.pick(&mut self.scheduler, now, job),
        }
    }

    /// As [`Scheduler::members`].
    #[inline]
    pub(crate) fn members(&self) -> usize {
        self.scheduler.members()
    }

    /// As [`Scheduler::nodes`].
    pub(crate) fn nodes(&self, now: Time) -> impl Iterator<Item = NodeView> + '_ {
        self.scheduler.nodes(now)
    }

    /// As [`Scheduler::placements`].
    pub(crate) fn placements(&self) -> impl Iterator<Item = &Placement> {
        self.scheduler.placements()
    }
}

impl Recorder {
    fn put(&self, now: Time, what: What<'_>) {
        self.sink.borrow_mut().put(&Entry { pool: self.pool, now, what });
    }

    /// Writes down what the scheduler was told, and releases in the shared counts what it released in its own.
    fn note(&mut self, now: Time, event: Event) {
        match event {
            Event::Join { node, spec } => {
                if self.jobs_max.len() <= node.index() {
                    self.jobs_max.resize(node.index() + 1, None);
                }
                self.jobs_max[node.index()] = spec.jobs_max;
            }
            Event::Finish { node, .. } => self.shared.release(node),
            _ => {}
        }
        self.put(now, What::Event(event));
    }

    #[cold]
    fn pick(&mut self, scheduler: &mut Scheduler, now: Time, job: &Job<'_>) -> Result<NodeId, PickError> {
        for _ in 0..RACES_MAX {
            self.follow();
            let choice = scheduler.pick(now, job);
            self.put(now, What::Pick { jobs: &self.changes, job: *job, choice });
            let node = choice?;
            if self.shared.reserve(node, self.jobs_max[node.index()]) {
                return Ok(node);
            }
            // Another worker took the last place in between. The scheduler shall see that and choose again; the
            // recording tells it as a job that came to nothing.
            let event = Event::Finish { node, outcome: Outcome::Cancelled, latency: None };
            scheduler.handle(now, event);
            self.put(now, What::Event(event));
        }
        Err(PickError::Full)
    }

    /// Brings the scheduler's counts up to date with the shared ones; `changes` says where that changed them.
    fn follow(&mut self) {
        self.changes.clear();
        for index in 0..self.jobs_max.len() {
            let node = NodeId(index as u32);
            let jobs = self.shared.jobs(node);
            if self.own.jobs(node) != jobs {
                self.own.set(node, jobs);
                self.changes.push((node, jobs));
            }
        }
    }
}
