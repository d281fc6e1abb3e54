use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a file is of no use, and what to do about it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TrustError {
    /// It cannot be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is a folder, a pipe or a device.
    #[error("{}: expected a regular file", .0.display())]
    NoFile(PathBuf),
    /// Others may read or change what must be secret.
    #[error(
        "{}: its mode is {mode:04o}, so that others can read or change it; do this: chmod 600 {}",
        path.display(),
        path.display()
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It belongs to somebody who is neither we nor root.
    #[error(
        "{}: it belongs to user {owner}, who can read and change it; do this: chown {expected} {} && chmod 600 {}",
        path.display(),
        path.display(),
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Whose it is, as a number.
        owner: u32,
        /// Who we are, as a number.
        expected: u32,
    },
    /// What it says is not what it should.
    #[error("{}:{line}: {what}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What was expected.
        what: String,
    },
    /// What it holds as a whole is not what it should.
    #[error("{}: {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What was expected.
        what: String,
    },
}

impl TrustError {
    pub(crate) fn content(path: &Path, what: impl Into<String>) -> TrustError {
        TrustError::Content { path: path.into(), what: what.into() }
    }
}
