//! Nodes that hand waiting jobs to each other.

use evener_model::NodeId;
use evener_scheduler::transfer::{Move, Transfer};

use crate::node::{CopyId, Mode};
use crate::queue::Event;
use crate::scenario::Transfers;
use crate::task::{Stage, Tasks};
use crate::world::{World, nanos};

/// What nodes know of each other, and how they use it.
pub(crate) struct Handing<'a> {
    pub(crate) settings: &'a Transfers,
    algorithm: Transfer,
    /// What each node said last: all know the same.
    board: Vec<u32>,
    /// The board as the node that decides sees it, with its own jobs as they are.
    view: Vec<u32>,
    moves: Vec<Move>,
}

impl<'a> Handing<'a> {
    pub(crate) fn new(settings: &'a Transfers, nodes: usize) -> Handing<'a> {
        Handing {
            settings,
            algorithm: settings.algorithm,
            board: vec![0; nodes],
            view: Vec::with_capacity(nodes),
            moves: Vec::with_capacity(nodes),
        }
    }
}

impl World<'_> {
    /// A node tells the others how many jobs it has.
    pub(crate) fn inform(&mut self, id: u32) {
        let Some(settings) = self.handing.as_ref().map(|handing| handing.settings) else { return };
        self.queue.push(self.now + nanos(settings.information), Event::Inform { node: id });
        if self.nodes[id as usize].mode == Mode::Dead {
            return;
        }
        let jobs = self.comparable(id, settings.count_in_service);
        self.charge(id, self.scenario.costs.report);
        match self.hop {
            0 => self.informed(id, jobs),
            hop => self.queue.push(self.now + hop, Event::Informed { node: id, jobs }),
        }
    }

    pub(crate) fn informed(&mut self, id: u32, jobs: u32) {
        if let Some(handing) = &mut self.handing {
            handing.board[id as usize] = jobs;
        }
    }

    fn comparable(&self, id: u32, count_in_service: bool) -> u32 {
        let node = &self.nodes[id as usize];
        if count_in_service { node.jobs() } else { node.jobs() - node.in_service() }
    }

    /// A node hands over what is too much.
    pub(crate) fn activate(&mut self, id: u32) {
        let Some(mut handing) = self.handing.take() else { return };
        let settings = handing.settings;
        self.queue.push(self.now + nanos(settings.activation), Event::Activate { node: id });
        let in_service = if settings.count_in_service { self.nodes[id as usize].in_service() } else { 0 };
        handing.view.clear();
        handing.view.extend_from_slice(&handing.board);
        handing.view[id as usize] = self.comparable(id, settings.count_in_service);
        handing.moves.clear();
        handing.algorithm.plan(NodeId(id), &handing.view, in_service, &mut handing.moves);
        let delay = self.hop + nanos(settings.delay);
        let each = handing.moves.iter().flat_map(|step| (0..step.jobs).map(|_| step.to.0));
        for to in each {
            let Some(copy) = self.take_from_tail(id) else { break };
            let attempt = self.tasks.copy_mut(copy);
            (attempt.at, attempt.stage) = (to, Stage::Sent);
            self.record.run.transfers += 1;
            self.charge(id, self.scenario.costs.transfer);
            self.charge(to, self.scenario.costs.transfer);
            match delay {
                0 => self.deliver(copy),
                delay => self.queue.push(self.now + delay, Event::Deliver { copy }),
            }
        }
        self.handing = Some(handing);
        self.changed(id);
    }

    fn take_from_tail(&mut self, id: u32) -> Option<CopyId> {
        let node = &mut self.nodes[id as usize];
        node.advance(self.now);
        while let Some(copy) = node.last_waiting() {
            if !self.tasks.copy(copy).given_up {
                return Some(copy);
            }
            node.passed_by();
            self.tasks.close(copy);
            self.tasks.sweep(Tasks::of(copy));
        }
        None
    }
}
