//! Bytes that go from socket to socket without coming up into user space.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::io::Received;

/// Bytes asked of one splice. The kernel gives a pipe 64 KiB unless it is told otherwise.
const PIPE_BYTES: usize = 256 * 1024;

/// A pipe between two sockets.
#[derive(Debug)]
pub(crate) struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    held: usize,
}

impl Pipe {
    pub(crate) fn new() -> io::Result<Pipe> {
        let mut ends = [0; 2];
        // SAFETY: the kernel writes two descriptors to where the pointer points, which is two integers.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: pipe2 returned two fresh descriptors that nobody else owns.
        let (read, write) = unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
        // SAFETY: plain system call on a descriptor that we own. Where the limit on pipes is
        // reached, the pipe keeps its size.
        unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES as libc::c_int) };
        Ok(Pipe { read, write, held: 0 })
    }

    /// Takes bytes from `socket` into the pipe, which must be empty.
    pub(crate) fn fill(&mut self, socket: RawFd) -> io::Result<Received> {
        debug_assert!(self.held == 0, "a pipe is drained before it is filled again");
        match splice(socket, self.write.as_raw_fd(), PIPE_BYTES)? {
            None => Ok(Received::Blocked),
            Some(0) => Ok(Received::Eof),
            Some(n) => {
                self.held = n;
                Ok(Received::Data(n))
            }
        }
    }

    /// Gives what is in the pipe to `socket`; says whether the pipe is empty.
    pub(crate) fn drain(&mut self, socket: RawFd) -> io::Result<bool> {
        while self.held > 0 {
            match splice(self.read.as_raw_fd(), socket, self.held)? {
                None => return Ok(false),
                Some(n) => self.held -= n,
            }
        }
        Ok(true)
    }
}

/// `None`: it would block.
fn splice(from: RawFd, to: RawFd, bytes: usize) -> io::Result<Option<usize>> {
    loop {
        let flags = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK;
        // SAFETY: no memory is passed; the kernel checks the descriptors.
        let n = unsafe { libc::splice(from, std::ptr::null_mut(), to, std::ptr::null_mut(), bytes, flags) };
        if n >= 0 {
            return Ok(Some(n as usize));
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock => return Ok(None),
            io::ErrorKind::Interrupted => {}
            _ => return Err(error),
        }
    }
}
