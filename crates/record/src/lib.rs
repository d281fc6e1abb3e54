//! Recordings of what a director's schedulers were told and what they chose, and their replay.
//!
//! A scheduler is deterministic: the same settings, seed, counts and calls give the same picks. So a
//! recording holds just these, for each scheduler of each worker, and [`Replay`] gives them to fresh
//! schedulers and compares what they pick.
//!
//! # Format, version 1
//!
//! A file begins with [`MAGIC`] and the version, 2 bytes. Then come frames, each of them
//!
//! | bytes | |
//! |---|---|
//! | 4 | length of the payload, at most [`FRAME_BYTES_MAX`] |
//! | 4 | CRC-32 (IEEE 802.3) of the payload |
//! | … | the payload; its first byte is the kind: 0 head, 1 block, 2 end |
//!
//! Fixed numbers are little-endian. `n` below is a variable-length number: seven bits a byte, the low ones
//! first, the high bit set in all but the last; the shortest form is the only one. `text` is its
//! length `n` and so many bytes of UTF-8. `dt` is `n` nanoseconds.
//!
//! - *head*, the first frame: `text` the program that recorded · `n` when, in ms since 1970 · `n` workers
//! - *block*: `n` worker · `n` number of the block among those of this worker, from 0 · `n` time in ns, on
//!   the director's monotonic clock · entries to the end of the frame
//! - *end*, the last frame: `n` why it ends (0 the director ended, 1 the size limit, 2 the disk did not keep
//!   up, 3 the disk failed) · `n` blocks in the file
//!
//! An entry is a byte that says what it is · `n` pool · `dt` since the entry before (or the block's time) ·
//! and
//!
//! | byte | | |
//! |---|---|---|
//! | 0 | pool | `text` name · `n` node ids are below · 8 bytes seed · settings |
//! | 1 | name | `n` node · `text` name |
//! | 2 | settings | settings |
//! | 3 | join | `n` node · `n` weight · `n` most jobs + 1, 0 none · 8 bytes hash of the name |
//! | 4 | leave | `n` node |
//! | 5 | weight | `n` node · `n` weight |
//! | 6, 7 | drains, ready | `n` node |
//! | 8, 9 | up, down | `n` node |
//! | 10 | report | `n` node · `n` measured at, ns · a byte of flags · what they say is there, see `entry.rs` |
//! | 11 | finish | `n` node · a byte for the outcome · `n` latency in ns + 1, 0 none |
//! | 12 | pick | a byte of flags · what they say is there · `n` choice: 0 no node, 1 all full, else node + 2 |
//!
//! The flags of a pick: 1 counts, `n` and so many pairs of `n` node and `n` jobs that it has by now, where
//! others than this scheduler changed it; 2 key, 8 bytes; 4 avoid, `n` and so many `n` nodes; 8 current,
//! `n` node; 16 excluded, as avoid; 32 nothing more, but a choice of 0 means that the job excluded all nodes that there
//! were. Settings are `n` and so many pairs of `text` name and `text` value.
//!
//! Entries of one worker are in the order in which they happened; blocks of different workers are not.

mod block;
mod checksum;
mod entry;
mod error;
mod jobs;
mod reader;
mod replay;
mod settings;
mod wire;

pub use block::{Encoder, End, EndReason, Head, end_frame, head_frame};
pub use entry::{Entry, What};
pub use error::{ReadError, ReplayError};
pub use jobs::{Jobs, RecordedJob};
pub use reader::{Block, Entries, Piece, Reader};
pub use replay::{Difference, NodeContext, Replay, Tally};

/// How a recording begins.
pub const MAGIC: [u8; 8] = *b"\x93evener\n";
/// The version of the format that this crate writes and reads.
pub const VERSION: u16 = 1;
/// Bytes of a frame's payload at the most.
pub const FRAME_BYTES_MAX: usize = 1 << 20;
/// Workers of a recording at the most.
pub const WORKERS_MAX: usize = 4096;
/// Bytes of a name; longer ones are cut.
pub const NAME_BYTES_MAX: usize = 1024;
