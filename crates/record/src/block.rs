//! Frames: how entries are packed on their way to the disk.

use evener_model::Time;

use crate::checksum::checksum;
use crate::entry::{self, Entry};
use crate::wire::{Input, Wrong, put_number, put_text};
use crate::{MAGIC, VERSION, WORKERS_MAX};

pub(crate) const HEAD: u8 = 0;
pub(crate) const BLOCK: u8 = 1;
pub(crate) const END: u8 = 2;

/// Length and checksum.
pub(crate) const FRAME_PREFIX: usize = 8;

/// What a recording says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The program that recorded, with its version.
    pub program: String,
    /// When it began, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// Workers of the director.
    pub workers: u16,
}

/// How a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Why.
    pub reason: EndReason,
    /// Blocks in the file.
    pub blocks: u64,
}

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The director ended: all is there.
    Complete,
    /// The file has as many bytes as it may.
    SizeLimit,
    /// More happened than the writer could keep up with.
    WriterBehind,
    /// The system refused to write.
    WriteFailed,
}

impl EndReason {
    /// All reasons, in the order of their numbers in files.
    pub const ALL: [EndReason; 4] =
        [EndReason::Complete, EndReason::SizeLimit, EndReason::WriterBehind, EndReason::WriteFailed];

    /// The name in logs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            EndReason::Complete => "complete",
            EndReason::SizeLimit => "size limit",
            EndReason::WriterBehind => "writer behind",
            EndReason::WriteFailed => "write failed",
        }
    }
}

/// The first bytes of a recording: magic, version, and the head.
pub fn head_frame(head: &Head) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&frame(|out| {
        out.push(HEAD);
        put_text(out, &head.program);
        put_number(out, head.started_unix_ms);
        put_number(out, u64::from(head.workers));
    }));
    out
}

/// The last bytes of a recording.
pub fn end_frame(end: &End) -> Vec<u8> {
    frame(|out| {
        out.push(END);
        put_number(out, end.reason as u64);
        put_number(out, end.blocks);
    })
}

fn frame(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![0; FRAME_PREFIX];
    write(&mut out);
    seal(&mut out);
    out
}

/// Fills in length and checksum, for which there is room at the front.
fn seal(frame: &mut [u8]) {
    let (prefix, payload) = frame.split_at_mut(FRAME_PREFIX);
    prefix[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    prefix[4..].copy_from_slice(&checksum(payload).to_le_bytes());
}

pub(crate) fn read_head(input: &mut Input<'_>) -> Result<Head, Wrong> {
    let program = input.text()?.to_owned();
    let started_unix_ms = input.number()?;
    let workers = input.small()?;
    if usize::from(workers) > WORKERS_MAX {
        return Err(Wrong("there are more workers than any director has"));
    }
    Ok(Head { program, started_unix_ms, workers })
}

pub(crate) fn read_end(input: &mut Input<'_>) -> Result<End, Wrong> {
    let reason = EndReason::ALL.get(input.small::<usize>()?).copied();
    let reason = reason.ok_or(Wrong("it ends for no known reason"))?;
    Ok(End { reason, blocks: input.number()? })
}

/// Packs the entries of one worker into blocks.
#[derive(Debug)]
pub struct Encoder {
    worker: u16,
    /// Of the next block.
    number: u64,
    last: Time,
    /// The block so far; empty between blocks.
    bytes: Vec<u8>,
}

impl Encoder {
    /// An encoder for the entries of `worker`, from the beginning.
    pub fn new(worker: u16) -> Encoder {
        Encoder { worker, number: 0, last: Time::ZERO, bytes: Vec::new() }
    }

    /// Bytes of the block so far.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether no entry waits to be taken.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Adds an entry. Time must not run backwards from entry to entry.
    ///
    /// The block must be [taken](Encoder::take) before it has [`FRAME_BYTES_MAX`](crate::FRAME_BYTES_MAX) bytes; one
    /// entry has less than 64 KiB.
    #[inline]
    pub fn put(&mut self, entry: &Entry<'_>) {
        if self.bytes.is_empty() {
            self.begin(entry.now);
        }
        let since_last = entry.now.as_nanos().saturating_sub(self.last.as_nanos());
        entry::put(&mut self.bytes, entry, since_last);
        self.last = entry.now;
    }

    fn begin(&mut self, now: Time) {
        self.bytes.resize(FRAME_PREFIX, 0);
        self.bytes.push(BLOCK);
        put_number(&mut self.bytes, u64::from(self.worker));
        put_number(&mut self.bytes, self.number);
        put_number(&mut self.bytes, now.as_nanos());
        self.number += 1;
        self.last = now;
    }

    /// Takes the block, ready to be written; `None` if it has no entry. The next one uses the memory of
    /// `next`, which must be empty.
    pub fn take(&mut self, next: Vec<u8>) -> Option<Vec<u8>> {
        if self.bytes.is_empty() {
            return None;
        }
        debug_assert!(next.is_empty(), "a block begins in an empty buffer");
        let mut block = std::mem::replace(&mut self.bytes, next);
        seal(&mut block);
        Some(block)
    }
}
