use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

use super::watched::watched;
use crate::measure::Answer;
use crate::settings::{self, ProgramAnswer};

/// An answer may be so long.
const ANSWER_BYTES_MAX: u64 = 16 * 1024;
/// So much of what it writes to stderr is told.
const ERRORS_BYTES_MAX: u64 = 200;
/// A process that left the group may hold on to stdout; what the program itself wrote is there by then.
const LATE_OUTPUT: Duration = Duration::from_millis(100);

/// A program that is run for each answer.
#[derive(Debug)]
pub(crate) struct Program {
    settings: settings::Program,
}

impl Program {
    pub(super) fn new(settings: &settings::Program) -> Program {
        Program { settings: settings.clone() }
    }

    /// Runs it. If this is dropped before the end, the program is killed, with all of its process group.
    pub(super) async fn ask(&mut self) -> Result<Answer, String> {
        let run = &self.settings.run;
        let mut child = Command::new(run.program())
            .args(run.arguments())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| format!("{}: {error}", run.program()))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let mut group = Group::of(child)?;
        let (mut answer, mut errors) = (Vec::new(), Vec::new());
        let mut outputs = Box::pin(async {
            tokio::join!(
                read(stdout, ANSWER_BYTES_MAX + 1, &mut answer),
                read(stderr, ERRORS_BYTES_MAX, &mut errors)
            )
        });
        // They are read while it runs: a full pipe would stop it.
        let is_read = tokio::select! {
            _ = &mut outputs => true,
            ended = group.ended() => { ended?; false }
        };
        group.ended().await?;
        let status = group.end().await?;
        if !is_read {
            let _ = tokio::time::timeout(LATE_OUTPUT, &mut outputs).await;
        }
        drop(outputs);
        self.answer(status, &answer, &errors)
    }

    fn answer(&self, status: ExitStatus, stdout: &[u8], stderr: &[u8]) -> Result<Answer, String> {
        let told = || {
            let errors = String::from_utf8_lossy(stderr.trim_ascii());
            let first = errors.lines().next().unwrap_or_default().replace(char::is_control, " ");
            if first.is_empty() { status.to_string() } else { format!("{status}: {first}") }
        };
        match (self.settings.answer, status.code()) {
            (ProgramAnswer::Stdout, Some(0)) if stdout.len() as u64 > ANSWER_BYTES_MAX => {
                Err("it printed more than 16 KiB".into())
            }
            (ProgramAnswer::Stdout, Some(0)) => Answer::parse(stdout).map_err(|error| error.to_string()),
            (ProgramAnswer::ExitStatus, Some(code)) => Answer::from_status(code).map_err(|_| told()),
            _ => Err(told()),
        }
    }
}

/// Reads to the end. What is beyond `bytes_max` is read too, so that the writer need not wait, and is dropped.
async fn read(from: Option<impl AsyncRead + Unpin>, bytes_max: u64, bytes: &mut Vec<u8>) {
    if let Some(mut from) = from {
        // An output that breaks off ends there.
        let _ = (&mut from).take(bytes_max).read_to_end(bytes).await;
        let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    }
}

/// A running program and all that it starts, which end with the value.
struct Group {
    child: Child,
    leader: Pid,
    /// Readable as soon as the leader has ended. Waiting for that does not take its process number from it, so that
    /// a signal to the group can reach nobody else.
    ended: AsyncFd<std::os::fd::OwnedFd>,
    is_reaped: bool,
}

impl Group {
    fn of(child: Child) -> Result<Group, String> {
        let leader =
            child.id().and_then(|id| Pid::from_raw(id.cast_signed())).ok_or("it has no process number")?;
        let ended = pidfd_open(leader, PidfdFlags::NONBLOCK).map_err(std::io::Error::from).and_then(watched);
        let ended = ended.map_err(|error| {
            let _ = kill_process_group(leader, Signal::KILL);
            format!("cannot watch it: {error}")
        })?;
        Ok(Group { child, leader, ended, is_reaped: false })
    }

    async fn ended(&self) -> Result<(), String> {
        // Left ready: once ended, it stays so.
        self.ended.readable().await.map(|_| ()).map_err(|error| error.to_string())
    }

    /// After the leader has ended: ends what it left running, and gives its exit status.
    async fn end(&mut self) -> Result<ExitStatus, String> {
        let _ = kill_process_group(self.leader, Signal::KILL);
        self.is_reaped = true;
        self.child.wait().await.map_err(|error| error.to_string())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.is_reaped {
            let _ = kill_process_group(self.leader, Signal::KILL);
        }
    }
}
