//! What must hold for any bytes that claim to come from a kernel, a server or a program: checked by the fuzzers on
//! bytes they invent, and by the tests of `evener-load` on the corpus that the fuzzers found.

use std::path::Path;
use std::time::Duration;

use evener_load::measure::answer::{Answer, Rate};
use evener_load::measure::cpu::{self, Cpu, CpuTimes, RunQueue};
use evener_load::measure::disk::Disks;
use evener_load::measure::memory::{Descriptors, Memory};
use evener_load::measure::network::{self, Interfaces};
use evener_load::measure::pressure::{Meter, Pressure};
use evener_load::measure::prometheus::Selector;
use evener_load::measure::servers::{MemcachedStats, RedisInfo, StubStatus, redis_reply};
use evener_load::measure::sock_diag;
use evener_load::measure::{cgroup, combine};
use evener_model::Time;

fn second(second: u64) -> Time {
    Time::ZERO + Duration::from_secs(second)
}

fn is_share(share: f64) -> bool {
    (0.0..=1.0).contains(&share)
}

fn is_load(load: f64) -> bool {
    load.is_finite() && load >= 0.0
}

/// Two looks, one at each half of the bytes: whatever is understood of them makes shares that are shares and loads
/// that are numbers.
pub fn load_kernel(bytes: &[u8]) {
    let (first, then) = bytes.split_at(bytes.len() / 2);
    for text in [bytes, first, then] {
        let _ = Memory::parse(text).map(|memory| assert!(is_share(memory.used())));
        let _ = Descriptors::parse(text).map(|descriptors| assert!(is_share(descriptors.used())));
        let _ = cgroup::parse_cpu_max(text)
            .map(|cpus| assert!(cpus.is_none_or(|cpus| cpus > 0.0 && is_load(cpus))));
        let _ = cgroup::parse_cpu_stat(text);
        let _ = cgroup::parse_memory_max(text);
        let _ = cgroup::parse_memory_used(text);
        let _ = cgroup::parse_memory_cache(text);
        assert!(network::parse_speed(text).is_none_or(|speed| speed > 0.0 && is_load(speed)));
        if let Ok(pressure) = Pressure::parse(text) {
            assert!(is_share(pressure.some.share_10s));
            let mut meter = Meter::default();
            meter.look(second(0), pressure.some);
            assert!(meter.look(second(1), pressure.some).is_some_and(is_share));
        }
        if let Ok(queue) = RunQueue::parse(text) {
            for (busy, is_rising) in [(0.5, true), (1.0, false), (1.0, true)] {
                assert!(is_load(cpu::estimate(busy, queue, 2, is_rising)));
            }
        }
    }
    let (mut disks, mut interfaces, mut cpu) = (Disks::default(), Interfaces::default(), Cpu::default());
    for (at, text) in [first, then].into_iter().enumerate() {
        let now = second(at as u64);
        for disk in disks.look(now, text, |_| true).unwrap_or_default() {
            assert!(disk.busy.is_none_or(is_share));
        }
        for interface in interfaces.look(now, text, |_| Some(Some(1e9))).unwrap_or_default() {
            assert!(is_load(interface.received_bytes_per_s) && is_load(interface.sent_bytes_per_s));
            assert!(interface.share.is_some_and(is_share) && interface.load.is_some_and(is_load));
        }
        if let Ok(times) = CpuTimes::parse(text) {
            assert!(times.busy <= times.total && times.cpus > 0);
            let looked = cpu.look(now, times, RunQueue::default());
            assert!(looked.is_none_or(|(busy, load)| is_share(busy) && is_load(load)));
        }
    }
    let root = Path::new("/sys/fs/cgroup");
    for own in cgroup::parse_own(bytes).into_iter().chain([Path::new("/a/b")]) {
        let (point, mounted) = cgroup::parse_mount(bytes).unwrap_or((root, Path::new("/")));
        for folder in cgroup::folders(point, mounted, own) {
            assert!(folder.starts_with(point), "nothing above the mount is read");
        }
    }
}

/// Answers are understood whole or not at all, and what is understood can be reported.
pub fn load_answers(bytes: &[u8]) {
    if let Ok(answer) = Answer::parse(bytes) {
        assert_ne!(answer, Answer::default(), "an answer says something");
        for number in [answer.load, answer.jobs_per_s, answer.errors_per_s].into_iter().flatten() {
            assert!(number >= 0.0);
        }
        let load = answer.load.map_or(0.0, f64::from);
        assert!((1..=100).contains(&combine::health_of_load(load, 1.0).value()));
    }
    if let Ok(Some((_, length))) = redis_reply(bytes, 4096) {
        assert!(length <= bytes.len());
        for cut in 0..length {
            assert_eq!(redis_reply(&bytes[..cut], 4096), Ok(None), "a part of a valid reply waits");
        }
    }
    if let Ok(Some(stats)) = MemcachedStats::parse(bytes) {
        let mut rate = Rate::default();
        rate.look(second(0), 0);
        assert!(rate.look(second(1), stats.commands).is_some_and(|rate| is_load(f64::from(rate))));
    }
    let _ = RedisInfo::parse(bytes);
    let _ = StubStatus::parse(bytes).map(|status| assert!(status.jobs() <= status.connections));
}

/// The first line is a selector, the rest is metrics: a sum is a number, and lines of other metrics do not change it.
pub fn load_metrics(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (selector, metrics) = text.split_once('\n').unwrap_or((text, ""));
    let Ok(selector) = selector.parse::<Selector>() else { return };
    let sum = selector.sum(metrics);
    if let Ok(sum) = sum {
        assert!(sum.is_finite());
    }
    let more = format!("# HELP x 1\nevener_other{{ 1\n{metrics}");
    if !selector_is(&selector, "evener_other") {
        assert_eq!(selector.sum(&more), sum);
    }
}

fn selector_is(selector: &Selector, name: &str) -> bool {
    // It finds a sample that is broken only if it is its own.
    selector.sum(&format!("{name}{{ 1")) != Err(evener_load::measure::prometheus::MetricError::Missing)
}

/// A datagram of the kernel's is counted or refused, and holds no more connections than messages have room.
pub fn load_netlink(bytes: &[u8]) {
    for sequence in [0, 1] {
        if let Ok(counted) = sock_diag::count(bytes, sequence) {
            assert!(counted.connections as usize <= bytes.len() / 16);
        }
    }
}
