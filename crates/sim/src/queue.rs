//! What will happen, by time.

use evener_model::Outcome;

use crate::node::CopyId;

/// Something that happens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A batch of jobs comes.
    Arrive { jobs: u32 },
    /// A client of a closed system asks.
    Ask { client: u32 },
    /// The first running job of a node is done, if nothing changed there since.
    Complete { node: u32, epoch: u32 },
    /// A job reaches the node it was sent to.
    Deliver { copy: CopyId },
    /// An answer reaches the dispatcher.
    Answer { copy: CopyId, outcome: Outcome },
    /// A job has waited for an answer as long as it does.
    TimeOut { task: u32, generation: u32 },
    /// A job has waited for an answer so long that a second node is tried.
    Hedge { task: u32, generation: u32 },
    /// A job has waited in a dispatcher as long as it may.
    QueueTimeOut { task: u32, generation: u32 },
    /// A node reports.
    Report { node: u32 },
    /// All nodes report.
    ReportAll,
    /// A report reaches the dispatchers, or one of them.
    Reported { letter: u32 },
    /// A dispatcher's question reaches a node.
    Probe { dispatcher: u32, node: u32 },
    /// A node tells the others how many jobs it has.
    Inform { node: u32 },
    /// The others hear it.
    Informed { node: u32, jobs: u32 },
    /// A node looks whether to hand jobs over.
    Activate { node: u32 },
    /// A fault begins or ends.
    Change { change: u32 },
    /// Dispatchers look which nodes live.
    Check,
    /// Jobs on nodes are written down.
    Sample,
    /// The warm-up is over.
    Warm,
    /// No more jobs come.
    Close,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at_nanos: u64,
    /// Of two at the same time, the one that was said first comes first.
    number: u64,
    event: Event,
}

impl Entry {
    #[inline]
    fn is_before(&self, other: &Entry) -> bool {
        (self.at_nanos, self.number) < (other.at_nanos, other.number)
    }
}

/// Children of a place in the heap: four lie in two or three cache lines, and the heap is half as deep as a binary one.
const ARITY: usize = 4;

/// Events in the order of their time.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    heap: Vec<Entry>,
    pushed: u64,
}

impl Queue {
    #[inline]
    pub(crate) fn push(&mut self, at_nanos: u64, event: Event) {
        let entry = Entry { at_nanos, number: self.pushed, event };
        self.pushed += 1;
        let mut at = self.heap.len();
        self.heap.push(entry);
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if self.heap[parent].is_before(&entry) {
                break;
            }
            self.heap[at] = self.heap[parent];
            at = parent;
        }
        self.heap[at] = entry;
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        let first = *self.heap.first()?;
        let last = self.heap.pop()?;
        let len = self.heap.len();
        if len > 0 {
            let mut at = 0;
            loop {
                let begin = at * ARITY + 1;
                if begin >= len {
                    break;
                }
                let mut least = begin;
                for child in begin + 1..len.min(begin + ARITY) {
                    if self.heap[child].is_before(&self.heap[least]) {
                        least = child;
                    }
                }
                if last.is_before(&self.heap[least]) {
                    break;
                }
                self.heap[at] = self.heap[least];
                at = least;
            }
            self.heap[at] = last;
        }
        Some((first.at_nanos, first.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn events_come_in_order_and_equals_as_they_were_said() {
        let mut queue = Queue::default();
        let mut random = Random::new(1, 1);
        let mut expected = Vec::new();
        for i in 0..10_000 {
            let at = u64::from(random.below(500));
            queue.push(at, Event::Arrive { jobs: i });
            expected.push((at, i));
        }
        expected.sort_unstable();
        for (at, jobs) in expected {
            assert!(matches!(queue.pop(), Some((t, Event::Arrive { jobs: j })) if (t, j) == (at, jobs)));
        }
        assert!(queue.pop().is_none());
    }
}
