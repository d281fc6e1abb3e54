use std::path::{Path, PathBuf};

use super::*;

/// A tree such as the kernel's, from a real machine, that a test may change.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Tree {
        let tree = Tree(tempfile::tempdir().expect("a folder"));
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/host"), tree.0.path());
        tree
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().expect("a file in a folder")).expect("a folder");
        fs::write(path, text).expect("written");
    }

    fn settings(&self, text: &str) -> Settings {
        let mut settings: Settings = toml::from_str(text).expect("valid settings");
        settings.proc = self.path("proc");
        settings.sys = self.path("sys");
        settings
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A mount of control groups, with our group `/app/part` in it.
    fn groups(&self) {
        let point = self.path("cgroup");
        self.write(
            "proc/self/mountinfo",
            &format!("30 23 0:26 / {} rw - cgroup2 cgroup2 rw\n", point.display()),
        );
        self.write("proc/self/cgroup", "0::/app/part\n");
        self.write("cgroup/app/part/cgroup.procs", "");
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("a folder").flatten() {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir_all(&to).expect("a folder");
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).expect("a file");
        }
    }
}

fn seconds(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

fn loads(look: &Look) -> Vec<(&str, Option<f64>)> {
    look.parts.iter().map(|part| (part.name.as_str(), part.load)).collect()
}

#[test]
fn a_look_reads_all_that_the_kernel_says() {
    let tree = Tree::new();
    let mut host = Host::new(&tree.settings(""));
    let first = host.look(seconds(0));
    assert!(first.failed.is_empty(), "{:?}", first.failed);
    assert_eq!(first.parts[0].load, None, "at the first look there is nothing to compare with");

    // 200 ticks, half of them busy; 12.5 MB received, a tenth of what eth0 can; a disk that was busy for 0.25 s.
    tree.write("proc/stat", "cpu 539546 67228 202202 3638218 7230 0 48199 1251 0 0\ncpu0 1 2\ncpu1 1 2\n");
    let dev = fs::read_to_string(tree.path("proc/self/net/dev")).expect("read");
    tree.write("proc/self/net/dev", &dev.replace("611297334", "623797334"));
    let stats = fs::read_to_string(tree.path("proc/diskstats")).expect("read");
    tree.write("proc/diskstats", &stats.replace(" 148004 ", " 148254 "));
    let second = host.look(seconds(1));
    assert!(second.failed.is_empty(), "{:?}", second.failed);
    let parts = loads(&second);
    assert_eq!(parts[0], ("cpu", Some(0.5)));
    assert!(matches!(parts[1], ("network", Some(load)) if (load - 1.0 / 9.0).abs() < 1e-9), "{parts:?}");
    assert_eq!(parts[2], ("disk", Some(0.25)));
    assert_eq!(second.guards, [Health::FULL, Health::FULL]);
    let names: Vec<_> = second.readings.disk.iter().map(|disk| disk.name.as_str()).collect();
    assert_eq!(names, ["vda"], "neither loops nor disks in memory");
    assert_eq!(second.readings.cpu.map(|cpu| cpu.cpus), Some(2.0));
}

#[test]
fn what_cannot_be_read_is_told_and_leaves_the_rest() {
    let tree = Tree::new();
    fs::remove_file(tree.path("proc/pressure/memory")).expect("removed");
    tree.write("proc/loadavg", "what?\n");
    let look = Host::new(&tree.settings("")).look(seconds(0));
    let failed: Vec<_> = look.failed.iter().map(|failure| failure.source.as_str()).collect();
    assert_eq!(failed, ["cpu", "memory stall"]);
    assert!(
        look.failed[0].reason.ends_with("loadavg: not in the form of /proc/loadavg"),
        "{:?}",
        look.failed
    );
    assert_eq!(loads(&look)[0], ("cpu", None));
    assert!(look.readings.memory.is_some());
}

#[test]
fn a_speed_that_is_configured_goes_before_the_drivers() {
    let tree = Tree::new();
    tree.write("sys/class/net/eth0/speed", "-1\n");
    let second = |text: &str| {
        let mut host = Host::new(&tree.settings(text));
        host.look(seconds(0));
        host.look(seconds(1)).readings.network
    };
    assert!(second("").iter().all(|interface| interface.share.is_none()), "nobody knows a speed");
    let known = second("network = { interfaces = [\"eth0\"], speed_mbit_per_s = { eth0 = 10 } }");
    assert_eq!(known.len(), 1);
    assert_eq!(known[0].share, Some(0.0));
}

#[test]
fn a_quota_is_the_capacity() {
    let tree = Tree::new();
    tree.groups();
    tree.write("cgroup/app/cpu.max", "50000 100000\n");
    tree.write("cgroup/app/part/cpu.max", "100000 100000\n");
    tree.write("cgroup/app/cpu.stat", "usage_usec 1000000\n");
    tree.write("cgroup/app/cpu.pressure", "some avg10=0 avg60=0 avg300=0 total=0\n");
    tree.write("cgroup/app/memory.max", "1000000\n");
    tree.write("cgroup/app/memory.current", "900000\n");
    tree.write("cgroup/app/memory.stat", "anon 1\ninactive_file 400000\n");
    tree.write(
        "cgroup/app/memory.pressure",
        "some avg10=9 avg60=0 avg300=0 total=0\nfull avg10=5 avg60=0 avg300=0 total=0\n",
    );
    let mut host = Host::new(&tree.settings(""));
    assert_eq!(host.look(seconds(0)).readings.cpu, None);
    tree.write("cgroup/app/cpu.stat", "usage_usec 1500000\n");
    tree.write("cgroup/app/cpu.pressure", "some avg10=0 avg60=0 avg300=0 total=600000\n");
    let look = host.look(seconds(1));
    let cpu = look.readings.cpu.expect("a second look");
    assert_eq!((cpu.cpus, cpu.busy, cpu.load), (0.5, 1.0, 1.6));
    assert_eq!(look.readings.memory.map(|memory| memory.used()), Some(0.5));
    assert_eq!(look.readings.memory_stall, Some(0.05));
    assert_eq!(look.guards[0].value(), 75);

    // The limit goes: the host is the node again, without a restart.
    tree.write("cgroup/app/cpu.max", "max 100000\n");
    tree.write("proc/stat", "cpu 539546 67228 202202 3638418 7230 0 48199 1251 0 0\ncpu0 1 2\ncpu1 1 2\n");
    assert_eq!(host.look(seconds(2)).readings.cpu.map(|cpu| (cpu.cpus, cpu.busy)), Some((2.0, 0.25)));
}

#[test]
fn the_host_is_the_node_if_it_is_said_so() {
    let tree = Tree::new();
    tree.groups();
    tree.write("cgroup/app/cpu.max", "50000 100000\n");
    tree.write("cgroup/other/cpu.max", "20000 100000\n");
    tree.write("cgroup/other/cpu.stat", "usage_usec 0\n");
    let cpus = |text: &str| {
        let mut host = Host::new(&tree.settings(text));
        host.look(seconds(0));
        tree.write(
            "proc/stat",
            "cpu 539546 67228 202202 3638218 7230 0 48199 1251 0 0\ncpu0 1 2\ncpu1 1 2\n",
        );
        let look = host.look(seconds(1));
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/host/proc"), &tree.path("proc"));
        look.readings.cpu.map(|cpu| cpu.cpus)
    };
    assert_eq!(cpus("cgroup = \"none\""), Some(2.0));
    assert_eq!(cpus("cgroup = \"/other\""), Some(0.2));
    assert_eq!(cpus(""), None, "the group has no cpu.stat: that is a failure, not the host's load");
}

#[test]
fn this_machine_can_be_read() {
    let mut host = Host::new(&Settings::default());
    host.look(Time::ZERO);
    // Until a tick has passed.
    let deadline = std::time::Duration::from_secs(10);
    let start = std::time::Instant::now();
    let look = loop {
        let elapsed = start.elapsed();
        let look = host.look(Time::ZERO + elapsed);
        if look.readings.cpu.is_some() || !look.failed.is_empty() {
            break look;
        }
        assert!(elapsed < deadline, "no tick in {deadline:?}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    let without_stalls: Vec<_> =
        look.failed.iter().filter(|failure| failure.source != "memory stall").collect();
    assert!(without_stalls.is_empty(), "{without_stalls:?}");
    assert!(look.readings.memory.is_some_and(|memory| memory.used() > 0.0));
    assert!(look.readings.descriptors.is_some_and(|descriptors| descriptors.open > 0));
}
