//! A node: jobs in service, which share its cores, and jobs that wait.

use std::collections::VecDeque;

use crate::scenario::{Lie, NodeGroup};

/// An attempt at a job, as nodes know it: a small number, reused when it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyId(pub(crate) u32);

/// A job in service, and how far the node's work clock must get for it to be done.
#[derive(Clone, Copy, Debug)]
struct Running {
    done_at: f64,
    copy: CopyId,
}

/// What a node does with what comes to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mode {
    Working,
    Stalled,
    Dead,
}

/// How its reports differ from the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Voice {
    pub(crate) silent: bool,
    pub(crate) lie: Option<Lie>,
    pub(crate) ahead_s: f64,
}

/// `running` jobs all progress alike: by `speed` times their share of a core. So one clock serves them all: the
/// work that each has got since the node was last idle. A job is done when that clock has moved by its work.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) group: usize,
    cores: u32,
    concurrency: usize,
    queue_max: usize,
    speed: f64,
    factor: f64,
    pub(crate) mode: Mode,
    /// Share of jobs that fail at once.
    pub(crate) failing: f64,
    pub(crate) voice: Voice,

    /// A heap: the first is done first.
    running: Vec<Running>,
    waiting: VecDeque<CopyId>,
    /// Of those waiting, how many were given up and go when it is their turn.
    given_up: usize,

    /// Work that each running job has got, in nanoseconds at speed 1.
    clock: f64,
    /// How fast the clock goes.
    rate: f64,
    updated_at: u64,
    /// What the event of the next completion says, to know old ones.
    pub(crate) epoch: u32,
    scheduled: Option<(f64, f64)>,

    pub(crate) gauge: Gauge,
    pub(crate) window: Window,
}

/// What is measured of a node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gauge {
    /// Cores in use, times nanoseconds.
    pub(crate) busy_nanos: f64,
    /// Jobs, times nanoseconds.
    pub(crate) jobs_nanos: f64,
    pub(crate) jobs_max: u32,
}

/// What a node measures of itself, for its reports.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window {
    begun_at: u64,
    busy_nanos: f64,
    done: u32,
    failed: u32,
    load: f32,
    jobs_per_s: f32,
    errors_per_s: f32,
    sojourn_nanos: f64,
}

impl Node {
    pub(crate) fn new(group: usize, spec: &NodeGroup) -> Node {
        let concurrency = match spec.concurrency {
            None => spec.cores as usize,
            Some(0) => usize::MAX,
            Some(most) => most as usize,
        };
        Node {
            group,
            cores: spec.cores,
            concurrency,
            queue_max: spec.queue_max.map_or(usize::MAX, |max| max as usize),
            speed: spec.speed,
            factor: 1.0,
            mode: Mode::Working,
            failing: 0.0,
            voice: Voice::default(),
            running: Vec::new(),
            waiting: VecDeque::new(),
            given_up: 0,
            clock: 0.0,
            rate: 0.0,
            updated_at: 0,
            epoch: 0,
            scheduled: None,
            gauge: Gauge::default(),
            window: Window::default(),
        }
    }

    /// Jobs here, waiting ones included.
    #[inline]
    pub(crate) fn jobs(&self) -> u32 {
        (self.running.len() + self.waiting.len() - self.given_up) as u32
    }

    pub(crate) fn in_service(&self) -> u32 {
        self.running.len() as u32
    }

    pub(crate) fn cores(&self) -> u32 {
        self.cores
    }

    /// Jobs that it can take before any must wait or share a core, less those it has.
    pub(crate) fn credits(&self) -> u32 {
        let room = match self.queue_max {
            usize::MAX => self.cores,
            max => u32::try_from(self.concurrency.saturating_add(max)).unwrap_or(u32::MAX),
        };
        room.saturating_sub(self.jobs())
    }

    /// Whether a job that comes now is begun at once, on a core of its own.
    pub(crate) fn is_free(&self) -> bool {
        self.mode == Mode::Working && self.running.len() < self.concurrency.min(self.cores as usize)
    }

    /// The speed that one more job would get, with what else is here.
    pub(crate) fn speed_for_next(&self) -> f64 {
        let running = self.running.len() + 1;
        self.speed * self.factor * (f64::from(self.cores) / running as f64).min(1.0)
    }

    pub(crate) fn shares_cores(&self) -> bool {
        self.concurrency > self.cores as usize
    }

    /// Whether a job that comes now is refused for want of a place.
    pub(crate) fn is_full(&self) -> bool {
        self.running.len() >= self.concurrency && self.waiting.len() - self.given_up >= self.queue_max
    }

    /// Brings work and measures up to `now`.
    #[inline]
    pub(crate) fn advance(&mut self, now: u64) {
        let elapsed = (now - self.updated_at) as f64;
        self.updated_at = now;
        if self.running.is_empty() {
            self.gauge.jobs_nanos += elapsed * f64::from(self.jobs());
            return;
        }
        self.clock += elapsed * self.rate;
        let busy = elapsed * self.running.len().min(self.cores as usize) as f64;
        self.gauge.busy_nanos += busy;
        self.window.busy_nanos += busy;
        self.gauge.jobs_nanos += elapsed * f64::from(self.jobs());
    }

    /// Takes a job of this work: begins it if there is a place in service, else lets it wait. Says whether it began.
    #[inline]
    pub(crate) fn take(&mut self, copy: CopyId, work_nanos: f64) -> bool {
        let begun = self.running.len() < self.concurrency;
        if begun {
            self.begin(copy, work_nanos);
        } else {
            self.waiting.push_back(copy);
        }
        self.gauge.jobs_max = self.gauge.jobs_max.max(self.jobs());
        begun
    }

    /// Begins a job, for which there is a place.
    #[inline]
    pub(crate) fn begin(&mut self, copy: CopyId, work_nanos: f64) {
        if self.running.is_empty() {
            self.clock = 0.0;
            self.scheduled = None;
        }
        self.running.push(Running { done_at: self.clock + work_nanos, copy });
        self.sift_up(self.running.len() - 1);
        self.set_rate();
    }

    /// The next waiting job, if there is one and a place for it: to be begun, or passed by.
    #[inline]
    pub(crate) fn next_waiting(&mut self) -> Option<CopyId> {
        if self.running.len() < self.concurrency { self.waiting.pop_front() } else { None }
    }

    /// The last waiting job, if there is one: to be handed over, or passed by.
    pub(crate) fn last_waiting(&mut self) -> Option<CopyId> {
        self.waiting.pop_back()
    }

    /// A job that was given up has left the queue.
    pub(crate) fn passed_by(&mut self) {
        self.given_up -= 1;
    }

    /// Ends the job that is done first: called when its time has come.
    #[inline]
    pub(crate) fn end_first(&mut self) -> CopyId {
        let first = self.running.swap_remove(0);
        if !self.running.is_empty() {
            self.sift_down(0);
        }
        // Rounding must not leave the clock behind what it has completed.
        self.clock = self.clock.max(first.done_at);
        self.set_rate();
        first.copy
    }

    /// When the next job is done, and with which epoch; `None` if nothing changed since it was last asked, or none is.
    #[inline]
    pub(crate) fn reschedule(&mut self) -> Option<(u64, u32)> {
        let next = self.running.first().map(|first| (first.done_at, self.rate));
        if next == self.scheduled {
            return None;
        }
        self.scheduled = next;
        self.epoch = self.epoch.wrapping_add(1);
        let (done_at, rate) = next?;
        if rate <= 0.0 {
            return None;
        }
        let nanos = ((done_at - self.clock) / rate).ceil().max(0.0);
        Some((self.updated_at.saturating_add(nanos as u64), self.epoch))
    }

    /// The event of the next completion has come: the next call of `reschedule` answers anew.
    #[inline]
    pub(crate) fn fired(&mut self) {
        self.scheduled = None;
    }

    /// Work that is no job takes the node's time.
    pub(crate) fn charge(&mut self, nanos: f64) {
        if nanos > 0.0 && !self.running.is_empty() {
            self.clock -= nanos * self.rate;
            self.scheduled = None;
        }
    }

    /// Makes a waiting job one that goes without service when its turn comes.
    pub(crate) fn give_up_waiting(&mut self) {
        self.given_up += 1;
    }

    /// Loses all jobs.
    pub(crate) fn lose_all(&mut self, lost: &mut Vec<CopyId>) {
        lost.extend(self.running.drain(..).map(|running| running.copy));
        lost.extend(self.waiting.drain(..));
        self.given_up = 0;
        self.set_rate();
    }

    /// The node goes on in this mode, at this fraction of its speed.
    pub(crate) fn change(&mut self, mode: Mode, factor: f64, failing: f64) {
        (self.mode, self.factor, self.failing) = (mode, factor, failing);
        self.set_rate();
    }

    /// Begins to measure anew.
    pub(crate) fn restart_gauge(&mut self) {
        self.gauge = Gauge { jobs_max: self.jobs(), ..Gauge::default() };
    }

    #[inline]
    fn set_rate(&mut self) {
        let speed = if self.mode == Mode::Working { self.speed * self.factor } else { 0.0 };
        let running = self.running.len();
        self.rate = if running <= self.cores as usize {
            speed
        } else {
            speed * f64::from(self.cores) / running as f64
        };
    }

    #[inline]
    fn sift_up(&mut self, mut at: usize) {
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.running[parent].done_at <= self.running[at].done_at {
                break;
            }
            self.running.swap(parent, at);
            at = parent;
        }
    }

    #[inline]
    fn sift_down(&mut self, mut at: usize) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let mut least = at;
            if left < self.running.len() && self.running[left].done_at < self.running[least].done_at {
                least = left;
            }
            if right < self.running.len() && self.running[right].done_at < self.running[least].done_at {
                least = right;
            }
            if least == at {
                break;
            }
            self.running.swap(at, least);
            at = least;
        }
    }
}

/// A node closes its window of measurement no sooner than this: a shorter one says nothing.
const WINDOW_NANOS_MIN: u64 = 100_000_000;

impl Window {
    /// A job ended well after this long on the node.
    #[inline]
    pub(crate) fn done(&mut self, sojourn_nanos: f64) {
        self.done += 1;
        self.sojourn_nanos += (sojourn_nanos - self.sojourn_nanos) / 8.0;
    }

    pub(crate) fn failed(&mut self) {
        self.failed += 1;
    }

    /// Closes the window if it is long enough, and says what was measured in the last that was.
    pub(crate) fn look(&mut self, now: u64, cores: u32) -> Measured {
        let elapsed = now - self.begun_at;
        if elapsed >= WINDOW_NANOS_MIN {
            let seconds = elapsed as f64 / 1e9;
            self.load = (self.busy_nanos / elapsed as f64 / f64::from(cores)) as f32;
            self.jobs_per_s = (f64::from(self.done) / seconds) as f32;
            self.errors_per_s = (f64::from(self.failed) / seconds) as f32;
            (self.begun_at, self.busy_nanos, self.done, self.failed) = (now, 0.0, 0, 0);
        }
        Measured {
            load: self.load,
            jobs_per_s: self.jobs_per_s,
            errors_per_s: self.errors_per_s,
            sojourn_nanos: self.sojourn_nanos as u64,
        }
    }
}

/// What a node says of itself besides its jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) load: f32,
    pub(crate) jobs_per_s: f32,
    pub(crate) errors_per_s: f32,
    pub(crate) sojourn_nanos: u64,
}
