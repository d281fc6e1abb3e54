//! Recording leaves the path of a job as blocks of bytes; a thread of the control plane writes them.
//!
//! Nothing is left out in between: a record with a gap could not be replayed. A worker that cannot hand
//! over a block ends the recording for all workers instead, and goes on with its jobs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::time::Duration;

use evener_model::Time;
use evener_record::{Encoder, Entry};

/// Bytes after which a block is handed over.
const BLOCK_BYTES: usize = 32 * 1024;
/// Blocks under way from one worker at the most; beyond, the recording ends. 16 MiB.
const BLOCKS_MAX: usize = 512;
/// A block is handed over after so long, however small it is.
const BLOCK_DELAY_MAX: Duration = Duration::from_secs(1);

/// A worker's end: entries go in.
#[derive(Debug)]
pub struct RecordSink {
    encoder: Encoder,
    /// When the block at hand was begun.
    begun: Time,
    worker: usize,
    full: SyncSender<(usize, Vec<u8>)>,
    empty: Receiver<Vec<u8>>,
    state: Arc<State>,
}

/// The writing thread's end: blocks come out, those of each worker in order.
#[derive(Debug)]
pub struct RecordDrain {
    full: Receiver<(usize, Vec<u8>)>,
    empty: Vec<SyncSender<Vec<u8>>>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Nothing more is recorded.
    stopped: AtomicBool,
    /// Because a worker could not hand over a block.
    behind: AtomicBool,
}

/// What a drain has for its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// A block came, or would have if there had been one: there may be more.
    Open,
    /// A worker could not hand over a block, and no block is left: nothing more will come.
    Behind,
    /// All workers have ended.
    Ended,
}

/// A sink for each worker and the drain that they all flow to.
pub fn record_channel(workers: usize) -> (Vec<RecordSink>, RecordDrain) {
    let state = Arc::new(State::default());
    let (full, drain) = mpsc::sync_channel(BLOCKS_MAX * workers.max(1));
    let (sinks, empty) = (0..workers)
        .map(|worker| {
            let (back, empty) = mpsc::sync_channel(BLOCKS_MAX);
            let sink = RecordSink {
                encoder: Encoder::new(worker as u16),
                begun: Time::ZERO,
                worker,
                full: full.clone(),
                empty,
                state: Arc::clone(&state),
            };
            (sink, back)
        })
        .unzip();
    (sinks, RecordDrain { full: drain, empty, state })
}

impl RecordSink {
    /// Whether the recording has ended.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state.stopped.load(Ordering::Relaxed)
    }

    /// Appends an entry, unless the recording has ended.
    pub(crate) fn put(&mut self, entry: &Entry<'_>) {
        if self.is_stopped() {
            return;
        }
        if self.encoder.is_empty() {
            self.begun = entry.now;
        }
        self.encoder.put(entry);
        if self.encoder.len() >= BLOCK_BYTES {
            self.flush();
        }
    }

    /// Hands over what has waited long enough.
    pub(crate) fn advance(&mut self, now: Time) {
        if !self.encoder.is_empty() && now.since(self.begun) >= BLOCK_DELAY_MAX {
            self.flush();
        }
    }

    /// The worker's loop may wait so long, if it would have waited for `wait`.
    pub(crate) fn wait(&self, wait: Option<Duration>) -> Option<Duration> {
        if self.encoder.is_empty() {
            return wait;
        }
        Some(wait.map_or(BLOCK_DELAY_MAX, |wait| wait.min(BLOCK_DELAY_MAX)))
    }

    /// Hands over what is there. Never blocks: if the writer is behind, the recording ends.
    fn flush(&mut self) {
        let next = self.empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(BLOCK_BYTES + 4096));
        let Some(block) = self.encoder.take(next) else { return };
        if self.is_stopped() {
            return;
        }
        match self.full.try_send((self.worker, block)) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                self.state.behind.store(true, Ordering::Relaxed);
                self.state.stopped.store(true, Ordering::Relaxed);
            }
            Err(TrySendError::Disconnected(_)) => self.state.stopped.store(true, Ordering::Relaxed),
        }
    }
}

impl Drop for RecordSink {
    /// The worker ends: what it did last belongs to the recording.
    fn drop(&mut self) {
        self.flush();
    }
}

impl RecordDrain {
    /// Waits for a block and gives it to `write`.
    pub fn next(&self, timeout: Duration, write: impl FnOnce(&[u8])) -> Drained {
        match self.full.recv_timeout(timeout) {
            Ok((worker, mut bytes)) => {
                write(&bytes);
                bytes.clear();
                // Nobody to take it back: the worker has ended.
                let _ = self.empty[worker].try_send(bytes);
                Drained::Open
            }
            Err(RecvTimeoutError::Timeout) if self.is_behind() => Drained::Behind,
            Err(RecvTimeoutError::Timeout) => Drained::Open,
            Err(RecvTimeoutError::Disconnected) => Drained::Ended,
        }
    }

    /// Whether a worker could not hand over a block.
    pub fn is_behind(&self) -> bool {
        self.state.behind.load(Ordering::Relaxed)
    }

    /// Ends the recording: workers record nothing more.
    pub fn stop(&self) {
        self.state.stopped.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use evener_model::{Event, NodeId};
    use evener_record::What;

    use super::*;

    fn put(sink: &mut RecordSink, at: u64) {
        let what = What::Event(Event::Leave { node: NodeId(0) });
        sink.put(&Entry { pool: 0, now: Time::from_nanos(at), what });
    }

    #[test]
    fn the_recording_ends_for_all_when_the_writer_is_behind() {
        let (mut sinks, drain) = record_channel(2);
        for block in 0..2 * BLOCKS_MAX as u64 + 1 {
            put(&mut sinks[0], block);
            sinks[0].flush();
        }
        assert!(drain.is_behind());
        put(&mut sinks[1], 1);
        assert!(sinks[1].encoder.is_empty(), "nothing is recorded any more");
        let mut blocks = 0;
        let end = loop {
            match drain.next(Duration::from_millis(1), |_| blocks += 1) {
                Drained::Open => {}
                end => break end,
            }
        };
        assert_eq!((blocks, end), (2 * BLOCKS_MAX, Drained::Behind));
    }

    #[test]
    fn what_a_worker_did_last_is_handed_over_when_it_ends() {
        let (mut sinks, drain) = record_channel(1);
        put(&mut sinks[0], 1);
        assert_eq!(sinks[0].wait(None), Some(BLOCK_DELAY_MAX));
        drop(sinks);
        let mut blocks = 0;
        while drain.next(Duration::from_secs(5), |_| blocks += 1) == Drained::Open {}
        assert_eq!(blocks, 1);
    }
}
