//! Jobs from files that recorded them: access logs, recordings of a director, and plain lists.

mod lines;
mod recording;

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use evener_scheduler::hash_bytes;
use evener_sim::{Trace, TraceFile};

/// Jobs of a trace at the most: they are kept in memory.
const JOBS_MAX: usize = 50_000_000;

/// Bytes of a line at the most.
const LINE_BYTES_MAX: usize = 1 << 20;

/// A job as a file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Job {
    at_nanos: u64,
    work_nanos: Option<u64>,
    key: Option<u64>,
}

/// Jobs as they are read.
#[derive(Debug, Default)]
struct Jobs {
    list: Vec<Job>,
    /// Whether all times are whole seconds.
    coarse: bool,
}

/// Reads a trace; what is wrong is said with the file's name and, if it has lines, the line.
pub(crate) fn read(path: &Path, wanted: &TraceFile) -> Result<Trace, String> {
    let name = path.display();
    let mut file = BufReader::new(File::open(path).map_err(|error| format!("{name}: {error}"))?);
    let begin = file.fill_buf().map_err(|error| format!("{name}: {error}"))?;
    let jobs = if begin.starts_with(&evener_record::MAGIC) {
        recording::read(file, wanted).map_err(|wrong| format!("{name}: {wrong}"))?
    } else {
        lines::read(file, wanted).map_err(|(line, wrong)| format!("{name}:{line}: {wrong}"))?
    };
    if jobs.list.is_empty() {
        return Err(match &wanted.pool {
            Some(pool) => format!("{name}: no job of pool {pool}"),
            None => format!("{name}: no job"),
        });
    }
    jobs.trace(wanted).map_err(|wrong| format!("{name}: {wrong}"))
}

impl Jobs {
    fn add(&mut self, job: Job) -> Result<(), String> {
        if self.list.len() == JOBS_MAX {
            return Err(format!("more than {JOBS_MAX} jobs"));
        }
        if self.list.is_empty() {
            self.coarse = true;
        }
        self.coarse &= job.at_nanos.is_multiple_of(1_000_000_000);
        self.list.push(job);
        Ok(())
    }

    fn trace(mut self, wanted: &TraceFile) -> Result<Trace, String> {
        // Logs are written when jobs end, and by several threads.
        self.list.sort_by_key(|job| job.at_nanos);
        if self.coarse {
            self.spread();
        }
        let begin = self.list[0].at_nanos;
        let mut trace = Trace {
            at_nanos: self.list.iter().map(|job| job.at_nanos - begin).collect(),
            ..Trace::default()
        };
        if wanted.work {
            let work: Option<Vec<u64>> = self.list.iter().map(|job| job.work_nanos).collect();
            trace.work_nanos = work.ok_or("it does not say how long each job took")?;
        }
        if let Some(keys) = self.list.iter().map(|job| job.key).collect::<Option<Vec<u64>>>() {
            trace.keys = keys;
        }
        Ok(trace)
    }

    /// Jobs of the same second come spread over it, not all at its begin: nobody knows better.
    fn spread(&mut self) {
        for second in self.list.chunk_by_mut(|a, b| a.at_nanos == b.at_nanos) {
            let count = second.len() as u128;
            for (index, job) in second.iter_mut().enumerate() {
                job.at_nanos += ((2 * index as u128 + 1) * 1_000_000_000 / (2 * count)) as u64;
            }
        }
    }
}

/// A key for schedulers that hash, of the text that stands for the client.
fn key(text: &str) -> u64 {
    hash_bytes(text.as_bytes())
}

/// Reads a line without its end; false where there is no other.
fn next_line(from: &mut impl BufRead, line: &mut String) -> Result<bool, String> {
    let mut bytes = std::mem::take(line).into_bytes();
    bytes.clear();
    let mut from = io::Read::take(from, LINE_BYTES_MAX as u64);
    let read = from.read_until(b'\n', &mut bytes).map_err(|error| error.to_string())?;
    if read == LINE_BYTES_MAX {
        return Err(format!("a line of more than {LINE_BYTES_MAX} bytes"));
    }
    // What a client sent may be no text; of it nothing is needed.
    *line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
    Ok(read > 0)
}

#[cfg(test)]
mod tests;
