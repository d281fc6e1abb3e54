use std::io;
use std::os::fd::OwnedFd;

use tokio::io::unix::AsyncFd;

/// A descriptor that the runtime watches.
#[allow(unsafe_code, reason = "the runtime cannot check that a descriptor stays the same; its type does")]
pub(super) fn watched(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd is open, stays the same descriptor, and is closed only when it is dropped, which AsyncFd
    // does after it has ended the watching. Nobody puts another descriptor in its place.
    Ok(unsafe { AsyncFd::register(descriptor) }?)
}
