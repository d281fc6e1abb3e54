//! Jobs of a director's recording.

use std::io::Read;

use evener_record::{Jobs as Recorded, Piece, Reader};
use evener_sim::TraceFile;

use super::{Job, Jobs};

/// Read at once.
const PIECE_BYTES: usize = 1 << 20;

pub(super) fn read(mut file: impl Read, wanted: &TraceFile) -> Result<Jobs, String> {
    let mut reader = Reader::new();
    let mut piece = vec![0; PIECE_BYTES];
    let (mut recorded, mut jobs) = (Recorded::new(), Jobs::default());
    loop {
        let read = file.read(&mut piece).map_err(|error| error.to_string())?;
        if read == 0 {
            // What was recorded until it was cut off is as good as a whole recording.
            return Ok(jobs);
        }
        reader.feed(&piece[..read]);
        while let Some(piece) = reader.next().map_err(|error| error.to_string())? {
            let Piece::Block(block) = piece else { continue };
            let worker = block.worker;
            let mut entries = block.entries();
            while let Some(entry) = entries.next().map_err(|error| error.to_string())? {
                let Some(job) = recorded.take(worker, &entry) else { continue };
                if job.is_retry || wanted.pool.as_ref().is_some_and(|pool| pool != job.pool) {
                    continue;
                }
                let took = job.latency.unwrap_or(job.took);
                jobs.add(Job {
                    at_nanos: job.at.as_nanos(),
                    work_nanos: Some(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1)),
                    // Recorded only where the policy has a use for it.
                    key: (job.key != 0).then_some(job.key),
                })?;
            }
        }
    }
}
