//! The access log leaves the path of a job as bytes in a buffer; a thread of the
//! control plane writes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::time::Duration;

/// Bytes after which a batch is handed over.
const BATCH_BYTES: usize = 32 * 1024;
/// Batches under way from one worker at the most; beyond, lines are dropped and counted.
const BATCHES_MAX: usize = 64;

/// A worker's end: lines go in.
#[derive(Debug)]
pub struct LogSink {
    batch: Vec<u8>,
    lines: u64,
    full: SyncSender<Batch>,
    empty: Receiver<Vec<u8>>,
    dropped: Arc<AtomicU64>,
}

/// The writing thread's end: batches of whole lines come out.
#[derive(Debug)]
pub struct LogDrain {
    full: Receiver<Batch>,
    empty: Vec<SyncSender<Vec<u8>>>,
    dropped: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Batch {
    worker: usize,
    bytes: Vec<u8>,
}

/// A sink for each worker and the drain that they all flow to.
pub fn log_channel(workers: usize) -> (Vec<LogSink>, LogDrain) {
    let dropped = Arc::new(AtomicU64::new(0));
    let (full, drain) = mpsc::sync_channel(BATCHES_MAX * workers.max(1));
    let (sinks, empty) = (0..workers)
        .map(|_| {
            let (back, empty) = mpsc::sync_channel(BATCHES_MAX);
            let sink = LogSink {
                batch: Vec::new(),
                lines: 0,
                full: full.clone(),
                empty,
                dropped: Arc::clone(&dropped),
            };
            (sink, back)
        })
        .unzip();
    (sinks, LogDrain { full: drain, empty, dropped })
}

impl LogSink {
    /// Whether nothing waits to be handed over.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Appends a line by writing it, with its line feed, to the buffer that `write` gets.
    #[inline]
    pub fn line(&mut self, worker: usize, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.batch);
        self.lines += 1;
        if self.batch.len() >= BATCH_BYTES {
            self.flush(worker);
        }
    }

    /// Hands over what is there. Never blocks: if the writer is behind, the lines are dropped and counted.
    pub fn flush(&mut self, worker: usize) {
        if self.batch.is_empty() {
            return;
        }
        let next = self.empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(BATCH_BYTES + 1024));
        let bytes = std::mem::replace(&mut self.batch, next);
        if let Err(TrySendError::Full(batch) | TrySendError::Disconnected(batch)) =
            self.full.try_send(Batch { worker, bytes })
        {
            self.dropped.fetch_add(self.lines, Ordering::Relaxed);
            self.batch = batch.bytes;
            self.batch.clear();
        }
        self.lines = 0;
    }
}

impl LogDrain {
    /// Lines dropped so far.
    pub fn dropped(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.dropped)
    }

    /// Waits for a batch and gives it to `write`; `false` when all sinks are gone.
    pub fn next(&self, timeout: Duration, write: impl FnOnce(&[u8])) -> bool {
        match self.full.recv_timeout(timeout) {
            Ok(Batch { worker, mut bytes }) => {
                write(&bytes);
                bytes.clear();
                // Nobody to take it back: the worker has ended.
                let _ = self.empty[worker].try_send(bytes);
                true
            }
            Err(RecvTimeoutError::Timeout) => true,
            Err(RecvTimeoutError::Disconnected) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_dropped_and_counted_when_the_writer_is_behind() {
        let (mut sinks, drain) = log_channel(1);
        for _ in 0..BATCHES_MAX + 3 {
            sinks[0].line(0, |out| out.extend_from_slice(b"a line\n"));
            sinks[0].flush(0);
        }
        assert_eq!(drain.dropped().load(Ordering::Relaxed), 3);
        drop(sinks);
        let mut bytes = 0;
        while drain.next(Duration::from_secs(1), |batch| bytes += batch.len()) {}
        assert_eq!(bytes, BATCHES_MAX * "a line\n".len());
    }
}
