use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// Wakes a poll at a point in time, finer than the millisecond to which the timeout of a poll is rounded.
#[derive(Debug)]
pub struct Alarm {
    timer: OwnedFd,
    at: Option<Instant>,
}

impl Alarm {
    /// An alarm that makes `token` readable when it goes off.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn new(registry: &Registry, token: Token) -> io::Result<Alarm> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        registry.register(&mut SourceFd(&timer.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Alarm { timer, at: None })
    }

    /// Goes off at `at` (at once, if that has passed) and at no other time.
    ///
    /// # Errors
    /// Never on Linux with a valid timer.
    pub fn set(&mut self, at: Instant, now: Instant) -> io::Result<()> {
        if self.at == Some(at) && at > now {
            return Ok(());
        }
        // Zero would disarm the timer.
        let after = at.saturating_duration_since(now).max(Duration::from_nanos(1));
        let value = Timespec { tv_sec: after.as_secs() as i64, tv_nsec: i64::from(after.subsec_nanos()) };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let setting = Itimerspec { it_interval: never, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &setting)?;
        self.at = Some(at);
        Ok(())
    }
}
