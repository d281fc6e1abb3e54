//! What a process hands to the one that takes its place: listening sockets, by number.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The environment variable that says which descriptors are what.
const VARIABLE: &str = "EVENER_INHERIT";

/// The successor has to be ready within this.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// Descriptors by what they are.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Descriptors {
    /// By address, in the order of the workers.
    listeners: BTreeMap<String, Vec<RawFd>>,
    admin: Option<RawFd>,
    /// Where reports come, by what it is.
    #[serde(default)]
    feedback: BTreeMap<String, RawFd>,
    /// The successor writes a byte here when it serves.
    ready: Option<RawFd>,
}

/// What this process was handed.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    /// Listening sockets by address.
    pub(crate) listeners: BTreeMap<String, Vec<OwnedFd>>,
    /// The admin API's listening socket.
    pub(crate) admin: Option<OwnedFd>,
    /// Where reports come, by what it is.
    pub(crate) feedback: BTreeMap<String, OwnedFd>,
    ready: Option<OwnedFd>,
}

impl Inherited {
    /// Takes what the predecessor handed over, if there is one.
    pub(crate) fn take() -> Inherited {
        let Ok(text) = std::env::var(VARIABLE) else { return Inherited::default() };
        let Ok(numbers) = serde_json::from_str::<Descriptors>(&text) else {
            tracing::warn!(variable = VARIABLE, "not understood, ignored");
            return Inherited::default();
        };
        let own = |fd: RawFd| {
            // SAFETY: asking for flags changes nothing, whatever the number is.
            let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
            if flags < 0 {
                return None;
            }
            // SAFETY: as above; programs that this process starts must not inherit the socket.
            unsafe { libc::fcntl(fd, libc::F_SETFD, flags | libc::FD_CLOEXEC) };
            // SAFETY: the descriptor is open, and the predecessor passed it for us to own; nothing
            // else in this process, which has just started, refers to it.
            Some(unsafe { OwnedFd::from_raw_fd(fd) })
        };
        Inherited {
            listeners: numbers
                .listeners
                .into_iter()
                .map(|(address, fds)| (address, fds.into_iter().filter_map(own).collect()))
                .collect(),
            admin: numbers.admin.and_then(own),
            feedback: numbers.feedback.into_iter().filter_map(|(name, fd)| Some((name, own(fd)?))).collect(),
            ready: numbers.ready.and_then(own),
        }
    }

    /// Tells the predecessor that this process serves now.
    pub(crate) fn announce(&mut self) {
        if let Some(ready) = self.ready.take() {
            // A predecessor that is gone needs no word.
            let _ = std::fs::File::from(ready).write_all(b"1");
        }
    }
}

/// Starts `program` with this process's arguments and hands it the sockets; waits until it serves.
///
/// # Errors
/// If it cannot be started, ends, or is not ready in time. Then it is no longer running.
pub(crate) fn hand_over(
    program: &Path,
    listeners: &[(String, Vec<Arc<OwnedFd>>)],
    admin: Option<BorrowedFd<'_>>,
    feedback: &[(String, OwnedFd)],
) -> io::Result<Child> {
    let (mut reader, writer) = io::pipe()?;
    let numbers = Descriptors {
        listeners: listeners
            .iter()
            .map(|(address, fds)| (address.clone(), fds.iter().map(|fd| fd.as_raw_fd()).collect()))
            .collect(),
        admin: admin.as_ref().map(AsRawFd::as_raw_fd),
        feedback: feedback.iter().map(|(name, fd)| (name.clone(), fd.as_raw_fd())).collect(),
        ready: Some(writer.as_raw_fd()),
    };
    let listeners = numbers.listeners.values().flatten().chain(numbers.feedback.values()).copied();
    let passed: Vec<RawFd> = listeners.chain(numbers.admin).chain(numbers.ready).collect();
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1));
    // It names this process: the next one must not take the watchdog for somebody else's.
    command.env_remove("WATCHDOG_PID");
    command.env(VARIABLE, serde_json::to_string(&numbers).map_err(io::Error::other)?);
    // SAFETY: between fork and exec the closure only calls fcntl, which is async-signal-safe, on
    // descriptors that the parent holds open; it touches no memory but the list, made before.
    unsafe {
        command.pre_exec(move || {
            for &fd in &passed {
                if libc::fcntl(fd, libc::F_SETFD, 0) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    let mut child = command.spawn()?;
    drop(writer);
    let (done, word) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut byte = [0];
        // Nobody listens any more if it took too long.
        let _ = done.send(reader.read_exact(&mut byte));
    });
    match word.recv_timeout(READY_TIMEOUT) {
        Ok(Ok(())) => Ok(child),
        result => {
            // It may have ended by itself.
            let _ = child.kill();
            let status = child.wait()?;
            Err(io::Error::other(match result {
                Ok(_) => format!("the new process ended before it was ready ({status}); its log says why"),
                Err(_) => format!("the new process was not ready within {READY_TIMEOUT:?}"),
            }))
        }
    }
}
