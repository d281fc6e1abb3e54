//! Jobs on their way, and the attempts at them.

use evener_model::{NodeId, Report};

use crate::node::CopyId;

/// Attempts at a job that are under way at the same time: one, and one to hedge.
const COPIES: usize = 2;
/// Nodes that failed a job and are remembered, so that it is not tried there again.
const TRIED_MAX: usize = 4;
/// No client.
pub(crate) const NOBODY: u32 = u32::MAX;

/// A job from its coming until nothing of it is left anywhere.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) came_at: u64,
    pub(crate) work_nanos: f64,
    pub(crate) key: u64,
    pub(crate) dispatcher: u32,
    /// Who waits for it in a closed system.
    pub(crate) client: u32,
    /// Changes when the place is used again: timers and queues know by it that theirs is gone.
    pub(crate) generation: u32,
    pub(crate) attempts: u8,
    /// Copies that are not over.
    pub(crate) open: u8,
    pub(crate) ended: bool,
    pub(crate) queued: bool,
    tried_len: u8,
    tried: [NodeId; TRIED_MAX],
    copies: [Copy; COPIES],
}

/// Where an attempt is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// There is none.
    #[default]
    Over,
    /// On its way to a node.
    Sent,
    /// In the queue of a node.
    Waiting,
    /// In service, or its answer on its way.
    Begun,
}

/// An attempt at a job.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Copy {
    /// The node that was picked, and holds the reservation while `reserved`.
    pub(crate) picked: u32,
    /// The node that has it: another, if it was handed over.
    pub(crate) at: u32,
    pub(crate) stage: Stage,
    pub(crate) reserved: bool,
    /// Nobody waits for it any more.
    pub(crate) given_up: bool,
    pub(crate) placed_at: u64,
    pub(crate) taken_at: u64,
    /// What the node said with its answer.
    pub(crate) report: Option<Report>,
}

impl Task {
    /// The nodes that have failed it or have it.
    pub(crate) fn tried(&self) -> &[NodeId] {
        &self.tried[..usize::from(self.tried_len)]
    }

    pub(crate) fn remember(&mut self, node: u32) {
        if let Some(place) = self.tried.get_mut(usize::from(self.tried_len)) {
            *place = NodeId(node);
            self.tried_len += 1;
        }
    }
}

/// All jobs under way. Places are used again, so it grows with what is under way, not with what has been.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    tasks: Vec<Task>,
    free: Vec<u32>,
}

impl Tasks {
    pub(crate) fn under_way(&self) -> usize {
        self.tasks.len() - self.free.len()
    }

    #[inline]
    pub(crate) fn add(
        &mut self,
        came_at: u64,
        work_nanos: f64,
        key: u64,
        dispatcher: u32,
        client: u32,
    ) -> u32 {
        let fresh = |generation| Task {
            came_at,
            work_nanos,
            key,
            dispatcher,
            client,
            generation,
            attempts: 0,
            open: 0,
            ended: false,
            queued: false,
            tried_len: 0,
            tried: [NodeId(0); TRIED_MAX],
            copies: [Copy::default(); COPIES],
        };
        match self.free.pop() {
            Some(id) => {
                let task = &mut self.tasks[id as usize];
                *task = fresh(task.generation);
                id
            }
            None => {
                self.tasks.push(fresh(0));
                (self.tasks.len() - 1) as u32
            }
        }
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> &Task {
        &self.tasks[id as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: u32) -> &mut Task {
        &mut self.tasks[id as usize]
    }

    /// Jobs without an end that came at this time or later.
    pub(crate) fn pending_since(&self, came_at: u64) -> u64 {
        let mut is_free = vec![false; self.tasks.len()];
        self.free.iter().for_each(|id| is_free[*id as usize] = true);
        let pending = |(id, task): &(usize, &Task)| !is_free[*id] && !task.ended && task.came_at >= came_at;
        self.tasks.iter().enumerate().filter(pending).count() as u64
    }

    /// The task if it is still the one that is meant, and has no end yet.
    pub(crate) fn pending(&self, id: u32, generation: u32) -> Option<&Task> {
        Some(self.get(id)).filter(|task| task.generation == generation && !task.ended)
    }

    /// Gives the place back if nothing is left of the task.
    #[inline]
    pub(crate) fn sweep(&mut self, id: u32) {
        let task = self.get_mut(id);
        if task.ended && task.open == 0 {
            task.generation = task.generation.wrapping_add(1);
            self.free.push(id);
        }
    }

    /// Opens an attempt.
    #[inline]
    pub(crate) fn open(&mut self, id: u32, copy: Copy) -> CopyId {
        let task = self.get_mut(id);
        let place = usize::from(task.copies[0].stage != Stage::Over);
        debug_assert!(task.copies[place].stage == Stage::Over, "a third copy of a job");
        task.copies[place] = copy;
        task.open += 1;
        task.attempts += 1;
        CopyId(id * COPIES as u32 + place as u32)
    }

    /// Closes an attempt.
    #[inline]
    pub(crate) fn close(&mut self, copy: CopyId) {
        self.copy_mut(copy).stage = Stage::Over;
        self.get_mut(Tasks::of(copy)).open -= 1;
    }

    /// The task of an attempt.
    #[inline]
    pub(crate) fn of(copy: CopyId) -> u32 {
        copy.0 / COPIES as u32
    }

    /// The attempts of a task that are under way.
    pub(crate) fn copies(&self, id: u32) -> impl Iterator<Item = CopyId> + use<> {
        let under_way = self.get(id).copies.map(|copy| copy.stage != Stage::Over);
        (0..COPIES)
            .filter(move |place| under_way[*place])
            .map(move |place| CopyId(id * COPIES as u32 + place as u32))
    }

    #[inline]
    pub(crate) fn copy(&self, copy: CopyId) -> &Copy {
        &self.tasks[copy.0 as usize / COPIES].copies[copy.0 as usize % COPIES]
    }

    #[inline]
    pub(crate) fn copy_mut(&mut self, copy: CopyId) -> &mut Copy {
        &mut self.tasks[copy.0 as usize / COPIES].copies[copy.0 as usize % COPIES]
    }

    /// The work of an attempt that is to begin; `None` if nobody waits for it.
    #[inline]
    pub(crate) fn begin(&mut self, copy: CopyId) -> Option<f64> {
        let attempt = self.copy_mut(copy);
        if attempt.given_up {
            return None;
        }
        attempt.stage = Stage::Begun;
        Some(self.get(Tasks::of(copy)).work_nanos)
    }
}
