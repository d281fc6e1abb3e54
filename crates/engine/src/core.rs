//! What every service of a worker uses: events, time, buffers, pools, the log.

use std::sync::Arc;
use std::time::Duration;

use evener_model::{NodeId, Outcome, Time};
use mio::Registry;

use crate::access_log::LogSink;
use crate::bell::{Bell, Calls};
use crate::clock::Clock;
use crate::io::Buffers;
use crate::listener::Listener;
use crate::placer::SharedSink;
use crate::pool::Pool;
use crate::timer::Timers;
use crate::token::{Kind, Token};

/// Room before what is read, for a response head that grows when it is rewritten.
pub(crate) const HEADROOM: usize = 8 * 1024;
/// Read at once at the most.
pub(crate) const READ_MAX: usize = 128 * 1024;
/// Reads of one connection before others get their turn.
pub(crate) const READS_PER_TURN: usize = 8;

/// The parts of a worker that its services share.
pub(crate) struct Core {
    /// This worker's number, from 0.
    pub(crate) worker: usize,
    pub(crate) registry: Registry,
    pub(crate) clock: Clock,
    pub(crate) timers: Timers,
    pub(crate) buffers: Buffers,
    /// One for all connections: `HEADROOM`, then what is read. Taken while in use.
    pub(crate) scratch: Vec<u8>,
    /// By place in the slab, which is stable while anything refers to it.
    pub(crate) listeners: slab::Slab<Listener>,
    pub(crate) pools: slab::Slab<Pool>,
    /// For use within a pick: nodes that do not want the client.
    pub(crate) excluded: Vec<NodeId>,
    /// What has more to do, though no event will say so.
    pub(crate) again: Vec<Token>,
    pub(crate) log: LogSink,
    /// Where what schedulers are told and choose is recorded.
    pub(crate) record: Option<SharedSink>,
    pub(crate) random: Random,
    /// All workers', for calling those that wait for a node.
    pub(crate) bells: Arc<[Arc<Bell>]>,
    /// Finishing: no new jobs on old connections.
    pub(crate) draining: bool,
}

impl Core {
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(crate) fn set_timer(&mut self, token: Token, after: Duration) {
        self.timers.set(token, self.clock.now(), after);
    }

    /// Ends a job on a node, and lets a waiting one go on.
    pub(crate) fn finish_job(
        &mut self,
        pool_index: usize,
        node: NodeId,
        outcome: Outcome,
        latency: Option<Duration>,
    ) {
        let pool = &mut self.pools[pool_index];
        if !pool.finish(self.worker, self.clock.now(), node, outcome, latency) {
            return;
        }
        if !pool.queue.is_empty() {
            self.again.push(Token::new(Kind::Pool, pool_index));
        }
        for worker in pool.spec.waiting.others(self.worker) {
            self.bells[worker].ring(Calls::FREED);
        }
    }

    /// Writes a line of the access log. Takes the parts of a core that it needs, so that the line
    /// can be made of the others.
    pub(crate) fn log_line(
        log: &mut LogSink,
        timers: &mut Timers,
        now: Time,
        worker: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        if log.is_empty() {
            timers.set(Token::new(Kind::Worker, 0), now, LOG_DELAY_MAX);
        }
        log.line(worker, write);
    }

    /// A client connection of a listener is closed: there is room for another.
    pub(crate) fn connection_closed(&mut self, listener_index: usize) {
        let listener = &mut self.listeners[listener_index];
        listener.open -= 1;
        listener.stats(self.worker).open.sub(1);
        if listener.is_full || (listener.is_removed && listener.open == 0) {
            self.again.push(Token::new(Kind::Listener, listener_index));
        }
    }
}

/// A line reaches the log's writer within this.
const LOG_DELAY_MAX: Duration = Duration::from_millis(200);

/// Numbers for request ids and seeds: unpredictable enough to be unique, not secret.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// SplitMix64 (Steele, Lea, Flood 2014).
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 32 hexadecimal digits.
    #[inline]
    pub(crate) fn id(&mut self) -> [u8; 32] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut id = [0; 32];
        for half in id.chunks_exact_mut(16) {
            let mut bits = self.next();
            for digit in half {
                *digit = DIGITS[(bits & 15) as usize];
                bits >>= 4;
            }
        }
        id
    }
}
