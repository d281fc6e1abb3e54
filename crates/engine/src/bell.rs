//! How other threads call a worker: once, however many of them have something for it.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use mio::{Registry, Token, Waker};

/// Why a worker is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Calls(u8);

impl Calls {
    pub(crate) const NONE: Calls = Calls(0);
    /// There are commands for it, or there will never be any more.
    pub(crate) const COMMANDS: Calls = Calls(1);
    /// Another worker has freed a slot on a node.
    pub(crate) const FREED: Calls = Calls(2);

    pub(crate) fn has(self, call: Calls) -> bool {
        self.0 & call.0 != 0
    }

    pub(crate) fn add(&mut self, calls: Calls) {
        self.0 |= calls.0;
    }
}

/// Interrupts a worker's wait for events.
///
/// Who rings first pays a system call, and the worker a turn of its loop; all who ring until the worker has come
/// pay an atomic operation each.
#[derive(Debug)]
pub(crate) struct Bell {
    waker: Waker,
    /// The calls that the worker has not taken yet. Only read-modify-write operations touch it: so they have
    /// one order, and each sees what was done before all earlier ones.
    calls: AtomicU8,
}

impl Bell {
    /// A bell that shows as an event of `token`.
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Bell> {
        Ok(Bell { waker: Waker::new(registry, token)?, calls: AtomicU8::new(0) })
    }

    /// Calls the worker. What it is to find must be there already. Says whether nobody else had called.
    pub(crate) fn ring(&self, call: Calls) -> bool {
        let before = self.calls.fetch_or(call.0, Ordering::AcqRel);
        if before != 0 {
            // Whoever came first rings. The worker takes the calls after that, and this one with them.
            return false;
        }
        if self.waker.wake().is_err() {
            // The worker is gone, or else the next one has to try.
            self.calls.swap(0, Ordering::AcqRel);
        }
        true
    }

    /// The worker takes its calls, and must then look at everything they are about: whoever rings from now on
    /// rings anew.
    pub(crate) fn answer(&self) -> Calls {
        Calls(self.calls.swap(0, Ordering::AcqRel))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{self, TryRecvError};
    use std::time::Duration;

    use mio::{Events, Poll};

    use super::*;

    fn bell() -> (Poll, Arc<Bell>) {
        let poll = Poll::new().unwrap();
        let bell = Arc::new(Bell::new(poll.registry(), Token(0)).unwrap());
        (poll, bell)
    }

    #[test]
    fn a_thousand_calls_ring_once_until_they_are_answered() {
        let (_poll, bell) = bell();
        assert_eq!((0..1000).filter(|_| bell.ring(Calls::COMMANDS)).count(), 1);
        assert!(!bell.ring(Calls::FREED));
        let calls = bell.answer();
        assert!(calls.has(Calls::COMMANDS) && calls.has(Calls::FREED));
        assert_eq!(bell.answer(), Calls::NONE);
        assert!(bell.ring(Calls::FREED));
        assert!(!bell.answer().has(Calls::COMMANDS));
    }

    /// Were a ring lost, the worker here would sleep for ever with work before it.
    #[test]
    fn no_call_is_lost_between_the_answer_and_the_look() {
        const EACH: u32 = 20_000;
        let (mut poll, bell) = bell();
        let (send, receive) = mpsc::channel();
        let callers: Vec<_> = (0..4)
            .map(|_| {
                let (send, bell) = (send.clone(), Arc::clone(&bell));
                std::thread::spawn(move || {
                    for number in 0..EACH {
                        send.send(number).unwrap();
                        bell.ring(Calls::COMMANDS);
                    }
                })
            })
            .collect();
        drop(send);
        let mut events = Events::with_capacity(8);
        let mut taken = 0;
        'turns: while taken < 4 * EACH {
            poll.poll(&mut events, Some(Duration::from_secs(20))).unwrap();
            assert!(!events.is_empty(), "asleep after {taken} with work to do");
            bell.answer();
            loop {
                match receive.try_recv() {
                    Ok(_) => taken += 1,
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => break 'turns,
                }
            }
        }
        assert_eq!(taken, 4 * EACH);
        callers.into_iter().for_each(|caller| caller.join().unwrap());
    }
}
