//! Load of the CPUs: 0 idle, 1 all of them in use, above 1 work waits.
//!
//! Three sources say something of it, and each is wrong in its own way: the busy share sees no more than 1, the load
//! average is a minute behind, and the count of runnable tasks is a moment's chance. [`estimate`] reads one by the
//! others.
//!
//! Source: Haney and Madsen, "Load-balancing for MySQL", 4.1.

use std::time::Duration;

use evener_model::Time;

use super::cgroup::CpuUse;
use super::text::{integer, lines, number, words};
use super::{Malformed, pressure};

/// How long an average must be old for a newer one to be called higher. The kernel moves its averages every 5 s:
/// compared within that time they would look steady for ever.
const AVERAGE_AGE_MIN: Duration = Duration::from_millis(4_500);

/// What CPUs did since the system came up, from `/proc/stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// Time in which they had work, or another system had them; in ticks.
    pub busy: u64,
    /// All time; in ticks.
    pub total: u64,
    /// How many are online.
    pub cpus: u32,
}

impl CpuTimes {
    /// Reads `/proc/stat`.
    ///
    /// Idle is what the kernel counts as idle or as waiting for I/O. Time of guests is within the user's already.
    ///
    /// # Errors
    /// [`Malformed`] without a line `cpu` of at least four numbers and one line a CPU.
    pub fn parse(text: &[u8]) -> Result<CpuTimes, Malformed> {
        const WRONG: Malformed = Malformed("/proc/stat");
        let mut lines = lines(text);
        let mut first = words(lines.next().ok_or(WRONG)?);
        if first.next() != Some(b"cpu") {
            return Err(WRONG);
        }
        let (mut total, mut idle, mut fields) = (0u64, 0u64, 0);
        for word in first.take(8) {
            let ticks = integer(word).ok_or(WRONG)?;
            total = total.saturating_add(ticks);
            // The fourth is idle, the fifth waits for I/O.
            if matches!(fields, 3 | 4) {
                idle = idle.saturating_add(ticks);
            }
            fields += 1;
        }
        let is_cpu = |line: &&[u8]| line.starts_with(b"cpu") && line.get(3).is_some_and(u8::is_ascii_digit);
        let cpus = lines.take_while(is_cpu).count();
        if fields < 4 || cpus == 0 {
            return Err(WRONG);
        }
        Ok(CpuTimes {
            busy: total.saturating_sub(idle),
            total,
            cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
        })
    }

    /// The share of the time since `earlier` in which the CPUs were busy, 0–1; `None` if no tick has passed.
    pub fn busy_since(&self, earlier: &CpuTimes) -> Option<f64> {
        let total = self.total.saturating_sub(earlier.total);
        let busy = self.busy.saturating_sub(earlier.busy);
        (total > 0).then(|| (busy as f64 / total as f64).min(1.0))
    }
}

/// The queue of the scheduler, from `/proc/loadavg`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RunQueue {
    /// The average over a minute of tasks that run, could run, or wait for a disk.
    pub average: f64,
    /// Tasks that run or could run now, without the one that reads.
    pub runnable: u32,
}

impl RunQueue {
    /// Reads `/proc/loadavg`, such as `0.35 0.41 0.54 4/148 10011`.
    ///
    /// # Errors
    /// [`Malformed`] without three averages and the counts.
    pub fn parse(text: &[u8]) -> Result<RunQueue, Malformed> {
        const WRONG: Malformed = Malformed("/proc/loadavg");
        let mut words = words(text);
        let average = words.next().and_then(number).filter(|average| *average >= 0.0).ok_or(WRONG)?;
        let counts = words.nth(2).ok_or(WRONG)?;
        let slash = counts.iter().position(|&byte| byte == b'/').ok_or(WRONG)?;
        let runnable = integer(&counts[..slash]).ok_or(WRONG)?;
        Ok(RunQueue { average, runnable: u32::try_from(runnable.saturating_sub(1)).unwrap_or(u32::MAX) })
    }
}

/// The load of each CPU, out of the busy share since the last look (0–1), the queue now, and whether the average
/// rises.
///
/// Up to 95 % busy it is that share. Above, the load average says how much waits; where it has not caught up yet, 1
/// if it is steady, 2 if it rises, so that a node on which work begins gets no more of it at once. A queue that is
/// far above the average counts half.
pub fn estimate(busy: f64, queue: RunQueue, cpus: u32, is_rising: bool) -> f64 {
    let cpus = f64::from(cpus.max(1));
    let runnable = f64::from(queue.runnable);
    let average = queue.average;
    if busy < 0.95 {
        busy
    } else if average < 0.3 * cpus || (average < 1.2 * cpus && !is_rising) {
        1.0
    } else if average < 1.2 * cpus {
        2.0
    } else if runnable > 3.0 * cpus && runnable > 2.0 * average {
        (average + runnable) / (2.0 * cpus)
    } else {
        average / cpus
    }
}

/// Remembers the last look, for what is a difference.
#[derive(Clone, Debug, Default)]
pub struct Cpu {
    times: Option<CpuTimes>,
    average: Option<Average>,
}

#[derive(Clone, Copy, Debug)]
struct Average {
    at: Time,
    value: f64,
    /// The one before, from which on it rose or not.
    previous: Option<f64>,
}

impl Cpu {
    /// Takes a look; returns the busy share since the last one (`None` at the first) and the estimate.
    pub fn look(&mut self, now: Time, times: CpuTimes, queue: RunQueue) -> Option<(f64, f64)> {
        let is_rising = self.is_rising(now, queue.average);
        let earlier = self.times.replace(times)?;
        let busy = times.busy_since(&earlier)?;
        Some((busy, estimate(busy, queue, times.cpus, is_rising)))
    }

    /// Whether the average is more than a quarter above that of the last kernel's period. A floor keeps noise on an
    /// idle node from looking like a rise.
    fn is_rising(&mut self, now: Time, value: f64) -> bool {
        let average = match self.average {
            None => Average { at: now, value, previous: None },
            Some(old) if now.since(old.at) >= AVERAGE_AGE_MIN => {
                Average { at: now, value, previous: Some(old.value) }
            }
            Some(old) => old,
        };
        self.average = Some(average);
        average.previous.is_some_and(|previous| value > 1.25 * previous.max(0.05))
    }
}

/// Remembers the last look at a control group with a quota.
#[derive(Clone, Debug, Default)]
pub struct QuotaCpu {
    last: Option<(Time, CpuUse)>,
    waits: pressure::Meter,
}

impl QuotaCpu {
    /// Takes a look; returns the share of the quota of `cpus` that was used since the last look (`None` at the
    /// first), and the load.
    ///
    /// The load average is that of the whole host, so it says nothing of a group. Where the quota is used up, the
    /// share of time in which some task of the group waited for a CPU stands for it: the load is then from 1 to 2. It
    /// is also used up where that happened in half of its periods, however much of them there was: who has used up
    /// the quota at the beginning of a period waits for the rest of it.
    pub fn look(
        &mut self,
        now: Time,
        stat: CpuUse,
        cpus: f64,
        waits: Option<pressure::Pressure>,
    ) -> Option<(f64, f64)> {
        let waiting = waits.and_then(|waits| self.waits.look(now, waits.some));
        let (then, before) = self.last.replace((now, stat))?;
        let span = now.since(then).as_secs_f64() * cpus;
        if span <= 0.0 {
            return None;
        }
        let busy = (stat.used.saturating_sub(before.used).as_secs_f64() / span).min(1.0);
        let periods = stat.periods.saturating_sub(before.periods);
        let throttled = stat.throttled.saturating_sub(before.throttled);
        let is_used_up = busy >= 0.95 || (throttled > 0 && throttled >= periods.div_ceil(2));
        let load = if is_used_up { 1.0 + waiting.unwrap_or(0.0) } else { busy };
        Some((busy, load))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &[u8] = include_bytes!("../../tests/fixtures/host/proc/stat");

    fn queue(average: f64, runnable: u32) -> RunQueue {
        RunQueue { average, runnable }
    }

    fn seconds(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn times_are_read_as_the_kernel_writes_them() {
        let times = CpuTimes::parse(STAT).expect("it comes from a kernel");
        assert_eq!(times, CpuTimes { busy: 858_326, total: 4_503_674, cpus: 2 });
        // As Linux 2.4 wrote it, and the paper prints it.
        let old = b"cpu 186520020 27617445 30850976 12999990579\ncpu0 74115796 9838026 13861517 6524674171\n";
        assert_eq!(CpuTimes::parse(old).map(|times| times.cpus), Ok(1));
        for wrong in ["", "cpu 1 2 3\ncpu0 1 2 3\n", "cpu 1 2 3 4\n", "cpu 1 2 x 4\ncpu0 1 2 3 4\n", "cp"] {
            assert!(CpuTimes::parse(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn busy_is_all_but_idle_and_waiting_for_disks() {
        let then = CpuTimes::parse(b"cpu 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0\n").expect("valid");
        let now = CpuTimes::parse(b"cpu 10 5 5 50 20 2 3 5\ncpu0 10 5 5 50 20\n").expect("valid");
        assert_eq!(now.busy_since(&then), Some(0.3));
        assert_eq!(now.busy_since(&now), None);
        // Idle time may be corrected backwards; that is never a negative share.
        assert_eq!(then.busy_since(&now), None);
    }

    #[test]
    fn the_queue_is_read_without_the_reader() {
        assert_eq!(RunQueue::parse(b"0.35 0.41 0.54 4/148 10011\n"), Ok(queue(0.35, 3)));
        assert_eq!(RunQueue::parse(b"0.35 0.41 0.54 0/148 1\n"), Ok(queue(0.35, 0)));
        for wrong in ["", "0.35", "0.35 0.41 0.54 4 1", "x 0.41 0.54 4/1 1", "-1 0 0 1/1 1"] {
            assert!(RunQueue::parse(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn each_branch_of_the_estimate_says_what_the_paper_says() {
        let steady = |busy, average, runnable| estimate(busy, queue(average, runnable), 2, false);
        let rising = |busy, average, runnable| estimate(busy, queue(average, runnable), 2, true);
        assert_eq!(steady(0.5, 9.0, 9), 0.5, "CPUs with time to spare have no queue");
        assert_eq!(rising(1.0, 0.5, 9), 1.0, "too low an average to be read");
        assert_eq!(steady(1.0, 2.0, 2), 1.0, "a task for each CPU");
        assert_eq!(rising(1.0, 2.0, 2), 2.0, "work that begins");
        assert_eq!(steady(1.0, 3.0, 8), 2.75, "a queue far above its average");
        assert_eq!(steady(1.0, 6.0, 8), 3.0, "a queue near its average");
    }

    #[test]
    fn an_average_rises_only_against_that_of_the_kernels_last_period() {
        let mut cpu = Cpu::default();
        let mut look = |second, average| {
            let ticks = second * 200;
            let times = CpuTimes { busy: ticks, total: ticks, cpus: 2 };
            cpu.look(seconds(second), times, queue(average, 3)).map(|(_, load)| load)
        };
        assert_eq!(look(0, 1.0), None, "there is nothing to compare with");
        assert_eq!(look(1, 1.4), Some(1.0), "nor an earlier average");
        assert_eq!(look(5, 1.4), Some(2.0), "1.4 is more than 1.25 × 1.0");
        assert_eq!(look(6, 1.4), Some(2.0), "and still is, until the kernel moves its average");
        assert_eq!(look(10, 1.5), Some(1.0), "1.5 is less than 1.25 × 1.4");
    }

    #[test]
    fn noise_on_an_idle_node_is_no_rise() {
        let mut cpu = Cpu::default();
        assert!(!cpu.is_rising(seconds(0), 0.01));
        assert!(!cpu.is_rising(seconds(5), 0.06));
        assert!(cpu.is_rising(seconds(10), 0.08));
    }

    #[test]
    fn a_quota_is_the_capacity_of_its_group() {
        let mut cpu = QuotaCpu::default();
        let waits = |total_ms| {
            let some = pressure::Stall { share_10s: 0.0, total: Duration::from_millis(total_ms) };
            Some(pressure::Pressure { some, full: None })
        };
        let stat =
            |used_ms, periods, throttled| CpuUse { used: Duration::from_millis(used_ms), periods, throttled };
        assert_eq!(cpu.look(seconds(0), stat(0, 0, 0), 0.5, waits(0)), None);
        assert_eq!(cpu.look(seconds(1), stat(250, 10, 4), 0.5, waits(100)), Some((0.5, 0.5)));
        assert_eq!(cpu.look(seconds(2), stat(750, 20, 4), 0.5, waits(850)), Some((1.0, 1.75)));
        assert_eq!(cpu.look(seconds(3), stat(1250, 30, 4), 0.5, None), Some((1.0, 1.0)));
        // Seen from a machine that is itself short of time, and of bursts at the beginning of each period.
        assert_eq!(cpu.look(seconds(4), stat(1625, 40, 13), 0.5, waits(2350)), Some((0.75, 1.75)));
    }
}
