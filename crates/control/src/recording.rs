//! The thread that writes what schedulers were told and chose to a file.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use evener_engine::{Drained, RecordDrain};
use evener_record::{End, EndReason, Head, end_frame, head_frame};

/// Where a director records, and how much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordTo {
    /// The file. One that is there already gets the name with `.old` behind it.
    pub path: PathBuf,
    /// Bytes of the file at the most; then the recording ends.
    pub bytes_max: u64,
}

impl RecordTo {
    /// What is recorded if nothing is said: 1 GiB.
    pub const BYTES_MAX_DEFAULT: u64 = 1 << 30;
    /// Less would not hold a beginning and an end.
    pub const BYTES_MAX_LEAST: u64 = 4096;
}

/// The writing thread.
#[derive(Debug)]
pub(crate) struct Recording {
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Recording {
    /// Begins the file and starts the thread; it ends when all workers have.
    pub(crate) fn start(to: &RecordTo, workers: usize, drain: RecordDrain) -> io::Result<Recording> {
        let path = to.path.clone();
        let mut output = Output::create(to, workers)?;
        tracing::info!(file = %path.display(), bytes_max = to.bytes_max, "recording");
        let thread = thread::Builder::new().name("record".into()).spawn(move || {
            loop {
                let drained = drain.next(Duration::from_secs(1), |block| output.block(block));
                match drained {
                    Drained::Open if output.ended.is_none() => {}
                    // Blocks that still come are taken, so that workers find room, and let go.
                    Drained::Open => drain.stop(),
                    Drained::Behind => output.end(EndReason::WriterBehind),
                    Drained::Ended => break,
                }
            }
            output.end(if drain.is_behind() { EndReason::WriterBehind } else { EndReason::Complete });
        })?;
        Ok(Recording { thread: Mutex::new(Some(thread)) })
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

/// The file, always a whole number of frames.
#[derive(Debug)]
struct Output {
    path: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
    blocks: u64,
    ended: Option<EndReason>,
}

impl Output {
    fn create(to: &RecordTo, workers: usize) -> io::Result<Output> {
        if to.path.is_file() {
            fs::rename(&to.path, old(&to.path))?;
        }
        let mut file = File::create(&to.path)?;
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let head = head_frame(&Head {
            program: concat!("evener ", env!("CARGO_PKG_VERSION")).into(),
            started_unix_ms: since_1970.as_millis() as u64,
            workers: workers as u16,
        });
        file.write_all(&head)?;
        let (bytes, bytes_max) = (head.len() as u64, to.bytes_max);
        Ok(Output { path: to.path.clone(), file, bytes, bytes_max, blocks: 0, ended: None })
    }

    fn block(&mut self, block: &[u8]) {
        if self.ended.is_some() {
            return;
        }
        let end = end_frame(&End { reason: EndReason::SizeLimit, blocks: u64::MAX });
        if self.bytes + (block.len() + end.len()) as u64 > self.bytes_max {
            return self.end(EndReason::SizeLimit);
        }
        match self.file.write_all(block) {
            Ok(()) => {
                self.bytes += block.len() as u64;
                self.blocks += 1;
            }
            Err(error) => {
                tracing::error!(file = %self.path.display(), %error, "the recording cannot be written");
                self.end(EndReason::WriteFailed);
            }
        }
    }

    /// Writes the end mark, once.
    fn end(&mut self, reason: EndReason) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some(reason);
        let mark = end_frame(&End { reason, blocks: self.blocks });
        let written =
            self.cut().and_then(|()| self.file.write_all(&mark)).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            tracing::error!(file = %self.path.display(), %error, "the recording has no end mark");
        }
        let (file, bytes) = (self.path.display(), self.bytes + mark.len() as u64);
        if reason == EndReason::Complete {
            tracing::info!(%file, bytes, blocks = self.blocks, "recorded");
        } else {
            let reason = reason.name();
            tracing::warn!(%file, bytes, blocks = self.blocks, reason, "the recording ends here; traffic goes on");
        }
    }

    /// Takes back what was written of a block that did not get in whole.
    fn cut(&mut self) -> io::Result<()> {
        if self.ended == Some(EndReason::WriteFailed) {
            self.file.set_len(self.bytes)?;
            self.file.seek(SeekFrom::Start(self.bytes))?;
        }
        Ok(())
    }
}

fn old(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".old");
    name.into()
}
