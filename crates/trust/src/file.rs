//! Reading files, and refusing those whose secret is none.

use std::fs::{File, Metadata, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::TrustError;

/// Bytes of a file at the most: thousands of keys, or a long chain of certificates.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Reads a file that may be known to all.
pub(crate) fn read(path: &Path) -> Result<String, TrustError> {
    let (file, _) = open(path)?;
    text(path, file)
}

/// Reads a file that must be secret.
pub(crate) fn read_secret(path: &Path) -> Result<String, TrustError> {
    // What is asked is the open file: one of that name may meanwhile be another.
    let (file, metadata) = open(path)?;
    let us = rustix::process::geteuid().as_raw();
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
    if owner != us && owner != 0 {
        return Err(TrustError::Foreign { path: path.into(), owner, expected: us });
    }
    let open_to = if is_credential(path, &metadata) { mode & 0o037 } else { mode & 0o077 };
    if open_to != 0 {
        return Err(TrustError::Open { path: path.into(), mode });
    }
    text(path, file)
}

/// Whether it is a file that systemd gives to a service (`LoadCredential=`). It belongs to root then, and one entry of
/// its access list lets the service's user read it; of such a list, the mode shows what it grants at most as the rights
/// of the group, which is root's.
fn is_credential(path: &Path, metadata: &Metadata) -> bool {
    let folder = std::env::var_os("CREDENTIALS_DIRECTORY");
    let lies_there = folder.is_some_and(|folder| path.parent() == Some(Path::new(&folder)));
    lies_there && metadata.uid() == 0 && metadata.gid() == 0
}

fn open(path: &Path) -> Result<(File, Metadata), TrustError> {
    let unreadable = |error| TrustError::Unreadable { path: path.into(), error };
    // A pipe without a writer would keep us waiting before we could see that it is one.
    let no_waiting = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(no_waiting).open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(TrustError::NoFile(path.into()));
    }
    Ok((file, metadata))
}

fn text(path: &Path, file: File) -> Result<String, TrustError> {
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| TrustError::Unreadable { path: path.into(), error })?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(TrustError::content(path, "longer than 1 MiB"));
    }
    Ok(text)
}
