//! The thread that writes the access log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use evener_engine::LogDrain;

use crate::config::LogOutput;

/// A failing disk is complained about this often.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(60);

/// Where batches go, and how that is changed.
#[derive(Debug)]
pub(crate) struct LogWriter {
    target: Arc<Mutex<Option<Target>>>,
    /// Lines that workers could not hand over.
    pub(crate) dropped: Arc<AtomicU64>,
    /// Batches that could not be written.
    pub(crate) failed: Arc<AtomicU64>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
enum Target {
    Stdout,
    File(File),
}

impl LogWriter {
    /// Starts the thread; it ends when all workers have.
    pub(crate) fn start(drain: LogDrain) -> io::Result<LogWriter> {
        let target = Arc::new(Mutex::new(None));
        let failed = Arc::new(AtomicU64::new(0));
        let dropped = drain.dropped();
        let (thread_target, thread_failed) = (Arc::clone(&target), Arc::clone(&failed));
        let thread = thread::Builder::new().name("access-log".into()).spawn(move || {
            let mut last_complaint: Option<Instant> = None;
            let mut write = |batch: &[u8]| {
                let mut target = thread_target.lock().unwrap_or_else(PoisonError::into_inner);
                let written = match target.as_mut() {
                    None => Ok(()),
                    Some(Target::Stdout) => io::stdout().write_all(batch).and_then(|()| io::stdout().flush()),
                    Some(Target::File(file)) => file.write_all(batch),
                };
                if let Err(error) = written {
                    thread_failed.fetch_add(1, Ordering::Relaxed);
                    if last_complaint.is_none_or(|last| last.elapsed() >= COMPLAINT_INTERVAL) {
                        tracing::error!(%error, "the access log cannot be written");
                        last_complaint = Some(Instant::now());
                    }
                }
            };
            while drain.next(Duration::from_secs(1), &mut write) {}
        })?;
        Ok(LogWriter { target, dropped, failed, thread: Mutex::new(Some(thread)) })
    }

    /// Opens the output anew (after a log rotation, or because it is another one).
    ///
    /// # Errors
    /// If the file cannot be opened; then the old one stays.
    pub(crate) fn open(&self, output: Option<&LogOutput>) -> io::Result<()> {
        let target = match output {
            None => None,
            Some(LogOutput::Stdout) => Some(Target::Stdout),
            Some(LogOutput::File(path)) => {
                Some(Target::File(OpenOptions::new().append(true).create(true).open(path)?))
            }
        };
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
        Ok(())
    }

    /// Waits until everything is written; the workers have ended.
    pub(crate) fn finish(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of the writer is in the log already.
            let _ = thread.join();
        }
    }
}
