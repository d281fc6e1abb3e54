use thiserror::Error;

use crate::VERSION;

/// Why a file cannot be read as a recording, or not to its end.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It does not begin as a recording does.
    #[error("this is not a recording of evener run --record")]
    NotARecording,
    /// A later or an earlier version of the format.
    #[error("the recording has version {found} of the format; this program reads version {VERSION}")]
    Version {
        /// Its version.
        found: u16,
    },
    /// What is there cannot have been recorded.
    #[error("the recording is damaged at byte {offset}: {what}")]
    Damaged {
        /// Where the frame begins that is damaged.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// It ends in the middle, or without its end mark.
    #[error(
        "the recording is cut off after byte {offset}: the director was killed, or the file was not copied whole"
    )]
    Cut {
        /// Where the last whole frame ends.
        offset: u64,
    },
    /// There is more after the end mark.
    #[error("the recording goes on after its end mark, at byte {offset}")]
    Trailing {
        /// Where that begins.
        offset: u64,
    },
}

/// Why a recording cannot be replayed, though it can be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// An entry is about a pool that was not introduced.
    #[error("worker {worker}: something happens to pool {pool}, which is not there")]
    Pool {
        /// On which worker.
        worker: u16,
        /// The pool's number.
        pool: u32,
    },
    /// An entry is about a node that the pool has no place for.
    #[error(
        "worker {worker}, pool \"{pool}\": something happens to node {node}, for which there is no place"
    )]
    Node {
        /// On which worker.
        worker: u16,
        /// The pool's name.
        pool: String,
        /// The node's number.
        node: u32,
    },
    /// A job ends where none is, and the picks so far were equal.
    #[error("worker {worker}, pool \"{pool}\": a job ends on node {node}, which has none")]
    Finish {
        /// On which worker.
        worker: u16,
        /// The pool's name.
        pool: String,
        /// The node's number.
        node: u32,
    },
    /// More schedulers than any director has.
    #[error("the recording has more than {0} schedulers")]
    Schedulers(usize),
}
