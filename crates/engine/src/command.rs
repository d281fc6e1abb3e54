//! How the control plane speaks to the workers.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use evener_model::{Event, Time};
use evener_scheduler::{NodeView, Placement};

use crate::bell::{Bell, Calls};
use crate::snapshot::{PoolId, Snapshot};

/// What a worker is asked to do. Commands are carried out in the order they were sent,
/// between two turns of the worker's loop.
#[derive(Debug)]
pub enum Command {
    /// Serve this from now on.
    Apply(Arc<Snapshot>),
    /// Tell a pool's scheduler something that is not worth a snapshot (a health check's verdict, a
    /// weight, draining).
    Event {
        /// Whose scheduler.
        pool: PoolId,
        /// What happened.
        event: Event,
    },
    /// The same for many at once, in order: for reports, which come from all nodes in every period. One list
    /// serves all workers.
    Events(Arc<[(PoolId, Event)]>),
    /// Tell what the pool's scheduler holds of its nodes.
    Inspect {
        /// Which pool.
        pool: PoolId,
        /// Gets one answer; dropped without one if the pool is not there.
        reply: Sender<PoolView>,
    },
    /// Tell the last placements of a pool, the newest first.
    Explain {
        /// Which pool.
        pool: PoolId,
        /// How many at the most.
        count: usize,
        /// Gets one answer; dropped without one if the pool is not there.
        reply: Sender<Explanation>,
    },
    /// Stop accepting, finish what is open, close idle connections; then the worker ends.
    /// What is still open after the deadline is cut off.
    Drain {
        /// How long open jobs may take.
        deadline: Duration,
    },
}

/// What one worker's scheduler holds of the nodes of a pool.
#[derive(Debug)]
pub struct PoolView {
    /// When the worker answered, on its clock.
    pub now: Time,
    /// The nodes.
    pub nodes: Vec<NodeView>,
}

/// The last placements of one worker.
#[derive(Debug)]
pub struct Explanation {
    /// When the worker answered, on its clock: the ages of signals count from here.
    pub now: Time,
    /// The newest first.
    pub placements: Vec<Placement>,
}

/// The control plane's end of a worker.
#[derive(Debug)]
pub struct WorkerHandle {
    /// `None` only while it is dropped.
    commands: Option<Sender<Command>>,
    bell: Arc<Bell>,
    thread: std::thread::JoinHandle<()>,
}

impl Drop for WorkerHandle {
    /// A worker whose handle is gone ends: it cuts off what is open.
    fn drop(&mut self) {
        self.commands = None;
        self.bell.ring(Calls::COMMANDS);
    }
}

/// The worker's end.
pub(crate) type CommandQueue = Receiver<Command>;

impl WorkerHandle {
    pub(crate) fn new(
        bell: Arc<Bell>,
        spawn: impl FnOnce(CommandQueue) -> io::Result<std::thread::JoinHandle<()>>,
    ) -> io::Result<WorkerHandle> {
        let (commands, queue) = mpsc::channel();
        Ok(WorkerHandle { commands: Some(commands), bell, thread: spawn(queue)? })
    }

    /// Asks the worker for something. A worker that has ended ignores it.
    ///
    /// Cheap: only the first of many commands that a worker has not come to yet wakes it.
    pub fn send(&self, command: Command) {
        if self.commands.as_ref().is_some_and(|commands| commands.send(command).is_ok()) {
            self.bell.ring(Calls::COMMANDS);
        }
    }

    /// Whether the worker has ended (after [`Command::Drain`]).
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}
