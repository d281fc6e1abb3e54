//! The machine under a measurement: what of it this process may use, and what disturbed it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use evener_load::measure::cgroup;
use evener_load::measure::pressure::Pressure;
use rustix::thread::{CpuSet, sched_getaffinity};
use rustix::time::{ClockId, clock_gettime};

/// What this process may use.
#[derive(Clone, Debug)]
pub(super) struct Room {
    /// The CPUs it may run on; at least one.
    pub(super) cpus: Vec<usize>,
    /// How many CPUs' time a control group gives it, where one does.
    pub(super) quota: Option<f64>,
    /// As many copies as can run at once.
    pub(super) copies: usize,
    /// Bytes of memory that are free.
    pub(super) memory: u64,
}

impl Room {
    pub(super) fn look() -> Room {
        let cpus: Vec<usize> = match sched_getaffinity(None) {
            Ok(set) => (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
            // More CPUs than the set has room for: as many as the library counts.
            Err(_) => (0..std::thread::available_parallelism().map_or(1, usize::from)).collect(),
        };
        let quota = limits(Path::new("/proc"), "cpu", cpu_quota)
            .into_iter()
            .filter(|quota| *quota < cpus.len() as f64)
            .reduce(f64::min);
        let copies = quota.map_or(cpus.len(), |quota| (quota.ceil() as usize).clamp(1, cpus.len()));
        let limit = limits(Path::new("/proc"), "memory", memory_left).into_iter().reduce(f64::min);
        let available = available_memory(Path::new("/proc")).unwrap_or(1 << 30);
        let memory = limit.map_or(available, |limit| available.min(limit as u64));
        Room { cpus, quota, copies, memory }
    }
}

/// What the groups of this process say, the inmost first, by either version of control groups.
fn limits(proc: &Path, controller: &str, read: fn(&Path) -> Option<f64>) -> Vec<f64> {
    let text = |name: &str| fs::read(proc.join("self").join(name)).unwrap_or_default();
    let (groups, mounts) = (text("cgroup"), text("mountinfo"));
    let mut folders: Vec<PathBuf> = Vec::new();
    if let (Some(own), Some((point, root))) = (cgroup::parse_own(&groups), cgroup::parse_mount(&mounts)) {
        folders.extend(cgroup::folders(point, root, own));
    }
    let (groups, mounts) = (String::from_utf8_lossy(&groups), String::from_utf8_lossy(&mounts));
    if let (Some(own), Some((point, root))) =
        (first_own(&groups, controller), first_mount(&mounts, controller))
    {
        folders.extend(cgroup::folders(Path::new(point), Path::new(root), Path::new(own)));
    }
    folders.iter().filter_map(|folder| read(folder)).collect()
}

/// The group by a controller of version 1, from `/proc/self/cgroup`.
fn first_own<'a>(text: &'a str, controller: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        controllers.split(',').any(|name| name == controller).then_some(path)
    })
}

/// Where a controller of version 1 is mounted, and which group is the root of that, from `/proc/self/mountinfo`.
fn first_mount<'a>(text: &'a str, controller: &str) -> Option<(&'a str, &'a str)> {
    text.lines().find_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut words = mount.split(' ').skip(3);
        let (root, point) = (words.next()?, words.next()?);
        let mut words = file_system.split(' ');
        let is_first = words.next()? == "cgroup" && words.nth(1)?.split(',').any(|name| name == controller);
        is_first.then_some((point, root))
    })
}

/// How many CPUs a group's quota is worth.
fn cpu_quota(folder: &Path) -> Option<f64> {
    let second = fs::read(folder.join("cpu.max")).ok().and_then(|text| cgroup::parse_cpu_max(&text).ok());
    second.unwrap_or_else(|| {
        let quota = number(&folder.join("cpu.cfs_quota_us"))?;
        let period = number(&folder.join("cpu.cfs_period_us"))?;
        (quota > 0.0 && period > 0.0).then(|| quota / period)
    })
}

/// Bytes that a group may still take.
fn memory_left(folder: &Path) -> Option<f64> {
    let left =
        |limit: &str, used: &str| Some((number(&folder.join(limit))? - number(&folder.join(used))?).max(0.0));
    left("memory.max", "memory.current").or_else(|| left("memory.limit_in_bytes", "memory.usage_in_bytes"))
}

fn available_memory(proc: &Path) -> Option<u64> {
    let text = fs::read_to_string(proc.join("meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

fn number(path: &Path) -> Option<f64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// What this machine's CPUs are called.
pub(super) fn cpu_name() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    named.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

/// What this machine is called.
pub(super) fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A share of the CPUs that others used or took, from which figures are not to be relied on.
const OTHERS_MAX: f64 = 0.05;
const STOLEN_MAX: f64 = 0.01;
/// Waiting for CPUs before we began, in percent of the last 10 s.
const WAITING_MAX: f64 = 0.1;

/// What the machine did until now.
#[derive(Debug)]
pub(super) struct Look {
    folders: Folders,
    room: Room,
    at: Instant,
    ticks: Option<Ticks>,
    /// CPU time of this process.
    own: Duration,
    /// How often CPUs were slowed down because of heat.
    hot: u64,
    /// Share of the last 10 s in which something waited for a CPU.
    waiting: Option<f64>,
}

/// Where the kernel tells; elsewhere in tests.
#[derive(Clone, Debug)]
struct Folders {
    proc: PathBuf,
    sys: PathBuf,
}

/// CPU times from `/proc/stat`, in ticks of the kernel's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Ticks {
    /// User and system time, without interrupts.
    busy: f64,
    stolen: f64,
    total: f64,
}

impl Ticks {
    /// Of these CPUs together; `None` if the kernel tells of none of them.
    fn parse(text: &str, cpus: &[usize]) -> Option<Ticks> {
        let of_cpu = |line: &str| {
            let (number, values) = line.strip_prefix("cpu")?.split_once(' ')?;
            cpus.contains(&number.parse().ok()?).then_some(())?;
            let values: Vec<f64> =
                values.split_whitespace().map_while(|word| word.parse().ok()).take(8).collect();
            let [user, nice, system, _, _, _, _, stolen] = values[..] else { return None };
            Some(Ticks { busy: user + nice + system, stolen, total: values.iter().sum() })
        };
        text.lines().filter_map(of_cpu).reduce(|one, other| Ticks {
            busy: one.busy + other.busy,
            stolen: one.stolen + other.stolen,
            total: one.total + other.total,
        })
    }
}

impl Look {
    /// At the machine of this process, as far as it may use it.
    pub(super) fn now(room: &Room) -> Look {
        Look::at(Folders { proc: "/proc".into(), sys: "/sys".into() }, room.clone())
    }

    fn at(folders: Folders, room: Room) -> Look {
        let read = |name: &str| fs::read_to_string(folders.proc.join(name)).ok();
        let pressure = read("pressure/cpu").and_then(|text| Pressure::parse(text.as_bytes()).ok());
        let own = clock_gettime(ClockId::ProcessCPUTime);
        let hot =
            cpus(&folders.sys).filter_map(|cpu| number(&cpu.join("thermal_throttle/core_throttle_count")));
        Look {
            at: Instant::now(),
            ticks: read("stat").and_then(|text| Ticks::parse(&text, &room.cpus)),
            own: Duration::new(own.tv_sec as u64, own.tv_nsec as u32),
            hot: hot.sum::<f64>() as u64,
            waiting: pressure.map(|pressure| pressure.some.share_10s),
            folders,
            room,
        }
    }

    /// What disturbed a measurement that began with this look, as sentences without their point.
    pub(super) fn disturbances(&self) -> Vec<String> {
        let end = Look::at(self.folders.clone(), self.room.clone());
        let mut found = self.of_cpus(&end);
        if let Some(waiting) = self.waiting.filter(|waiting| *waiting > WAITING_MAX) {
            found.push(format!(
                "before it began, work waited for CPUs in {:.0} % of the time",
                waiting * 100.0
            ));
        }
        if end.hot > self.hot {
            found.push("CPUs were slowed down because of heat".to_owned());
        }
        found.extend(frequencies(&self.folders.sys));
        if on_battery(&self.folders.sys) {
            found.push("the machine runs on its battery".to_owned());
        }
        found
    }

    fn of_cpus(&self, end: &Look) -> Vec<String> {
        let mut found = Vec::new();
        let Some((before, after)) = self.ticks.zip(end.ticks) else { return found };
        let total = after.total - before.total;
        if total <= 0.0 {
            return found;
        }
        let stolen = (after.stolen - before.stolen) / total;
        if stolen > STOLEN_MAX {
            found.push(format!(
                "the host kept {:.1} % of the CPU time for others (steal time): this is a share of a machine, and what \
                 it gets may change",
                stolen * 100.0
            ));
        }
        let per_second = rustix::param::clock_ticks_per_second() as f64;
        let own = (end.own - self.own).as_secs_f64() * per_second;
        let others = (after.busy - before.busy - own) / total;
        // In ticks of 10 ms little can be told of less than a second. Beside a quota there may be CPUs to spare.
        let is_known = end.at - self.at > Duration::from_secs(1) && self.room.quota.is_none();
        if others > OTHERS_MAX && is_known {
            found.push(format!("other processes used {:.0} % of the CPU time", others * 100.0));
        }
        found
    }
}

fn cpus(sys: &Path) -> impl Iterator<Item = PathBuf> {
    let folder = fs::read_dir(sys.join("devices/system/cpu")).into_iter().flatten().flatten();
    folder.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.strip_prefix("cpu").is_some_and(|rest| rest.parse::<u32>().is_ok())
    })
}

/// CPUs that may not run as fast as they can.
fn frequencies(sys: &Path) -> Option<String> {
    let slowed = cpus(sys).any(|cpu| {
        let value = |name: &str| number(&cpu.join("cpufreq").join(name));
        let capped =
            value("scaling_max_freq").zip(value("cpuinfo_max_freq")).is_some_and(|(may, can)| may < can);
        let text = |name: &str| fs::read_to_string(cpu.join("cpufreq").join(name)).unwrap_or_default();
        // Drivers that leave the choice to the CPU call a governor so that does not hold it down.
        let held =
            text("scaling_governor").trim() == "powersave" && !text("scaling_driver").contains("pstate");
        capped || held
    });
    slowed.then(|| "CPUs are set to run below their highest frequency".to_owned())
}

fn on_battery(sys: &Path) -> bool {
    let supplies = fs::read_dir(sys.join("class/power_supply")).into_iter().flatten().flatten();
    supplies.map(|entry| entry.path()).any(|supply| {
        let is = |name: &str, value: &str| {
            fs::read_to_string(supply.join(name)).is_ok_and(|text| text.trim() == value)
        };
        // Mice and keyboards have batteries too, of their own.
        is("type", "Battery") && is("status", "Discharging") && !is("scope", "Device")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine of files.
    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new() -> Machine {
            Machine(tempfile::tempdir().unwrap())
        }

        fn file(&self, path: &str, text: &str) -> &Machine {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            self
        }

        fn look(&self) -> Look {
            let room = Room { cpus: vec![0], quota: None, copies: 1, memory: 0 };
            Look::at(Folders { proc: self.0.path().join("proc"), sys: self.0.path().join("sys") }, room)
        }
    }

    #[test]
    fn a_quiet_machine_disturbs_nothing() {
        let machine = Machine::new();
        machine
            .file("proc/stat", "cpu  9 9 9 9 9\ncpu0 100 0 50 1000 5 0 3 0 0 0\n")
            .file("proc/pressure/cpu", "some avg10=0.00 avg60=9.00 avg300=9.00 total=9\n")
            .file("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n")
            .file("sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "intel_pstate\n")
            .file("sys/class/power_supply/BAT0/type", "Battery\n")
            .file("sys/class/power_supply/BAT0/status", "Full\n");
        let look = machine.look();
        machine.file("proc/stat", "cpu0 102 0 50 2000 5 0 3 1 0 0\n");
        assert_eq!(look.disturbances(), Vec::<String>::new());
    }

    #[test]
    fn what_disturbs_is_told() {
        let machine = Machine::new();
        machine
            .file("proc/stat", "cpu0 100 0 50 1000 5 0 3 0 0 0\n")
            .file("proc/pressure/cpu", "some avg10=40.00 avg60=9.00 avg300=9.00 total=9\n")
            .file("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "3\n")
            .file("sys/devices/system/cpu/cpu1/cpufreq/scaling_max_freq", "1200000\n")
            .file("sys/devices/system/cpu/cpu1/cpufreq/cpuinfo_max_freq", "3600000\n")
            .file("sys/class/power_supply/BAT0/type", "Battery\n")
            .file("sys/class/power_supply/BAT0/status", "Discharging\n");
        let mut look = machine.look();
        look.at -= Duration::from_secs(2);
        machine
            .file("proc/stat", "cpu1 0 0 0 9 0 0 0 9 0 0\ncpu0 300 0 50 1400 5 0 3 100 0 0\n")
            .file("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "4\n");
        let told = look.disturbances().join("\n");
        for part in
            ["steal time", "other processes", "waited for CPUs in 40 %", "heat", "frequency", "battery"]
        {
            assert!(told.contains(part), "{part}: {told}");
        }
    }

    #[test]
    fn quotas_of_both_versions_are_found() {
        let machine = Machine::new();
        let root = machine.0.path();
        let mounts = format!(
            "30 23 0:26 / {0}/two rw - cgroup2 cgroup2 rw\n31 23 0:27 / {0}/one rw - cgroup cgroup rw,cpu,cpuacct\n",
            root.display()
        );
        machine.file("proc/self/mountinfo", &mounts).file("proc/self/cgroup", "3:cpuacct,cpu:/a/b\n0::/c\n");
        let quotas = || limits(&root.join("proc"), "cpu", cpu_quota);
        assert!(quotas().is_empty());
        machine.file("two/c/cpu.max", "150000 100000\n").file("two/cpu.max", "max 100000\n");
        machine.file("one/a/cpu.cfs_quota_us", "50000\n").file("one/a/cpu.cfs_period_us", "100000\n");
        machine.file("one/a/b/cpu.cfs_quota_us", "-1\n").file("one/a/b/cpu.cfs_period_us", "100000\n");
        assert_eq!(quotas(), [1.5, 0.5]);
    }

    #[test]
    fn there_is_room_for_a_copy_on_every_machine() {
        let room = Room::look();
        assert!(room.copies >= 1 && room.copies <= room.cpus.len() && room.memory > 0, "{room:?}");
    }
}
