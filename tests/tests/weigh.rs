//! `evener weigh` against what is known: nodes of a known capacity, control groups of a known quota.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use evener_tests::director::{evener, program, texts};
use evener_tests::nodes::{Node, respond};
use evener_tests::{checkout, wait_for, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Held by tests that measure: those of this file are not to disturb each other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Measures up to three times, until it is as it should be: others on this machine may take what is measured.
fn measured(mut measure: impl FnMut() -> Result<(), String>) {
    let mut seen = Vec::new();
    while let Err(reason) = measure() {
        seen.push(reason);
        assert!(seen.len() < 3, "{}", seen.join("\n"));
    }
}

/// A node that does its jobs one after the other, each in this time: it carries the inverse of that a second.
fn one_by_one(time: Duration) -> Node {
    let free_at = Arc::new(Mutex::new(Instant::now()));
    Node::http(move |_, stream| {
        let done = {
            let mut free_at = free_at.lock().expect("no node thread panics");
            *free_at = (*free_at).max(Instant::now()) + time;
            *free_at
        };
        thread::sleep(done.saturating_duration_since(Instant::now()));
        respond(stream, "200 OK", "", b"done")
    })
}

fn url(node: &Node) -> String {
    format!("http://{}/", node.address)
}

/// Drives nodes with trials that are short, and gaps that are even: then what a node carries is known.
fn drive(arguments: &[&str]) -> Output {
    let settings =
        ["weigh", "--quick", "--limit", "50ms", "--percentile", "90", "--trial", "1s", "--arrivals", "even"];
    evener(&[&settings[..], arguments].concat())
}

fn parsed(output: &Output) -> Value {
    let (stdout, stderr) = texts(output);
    serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}{stderr}"))
}

/// Fails if the guide leaves out a name of what is printed for machines.
fn assert_explained(value: &Value) {
    let guide = fs::read_to_string(checkout().join("docs/weigh.md")).expect("a guide");
    let guide = guide.split("## For machines").nth(1).expect("a part for machines");
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                let is_range = ["median", "low", "high"].contains(&name.as_str());
                assert!(is_range || guide.contains(&format!("`{name}`")), "{name} is not explained");
                assert_explained(value);
            }
        }
        Value::Array(values) => values.iter().for_each(assert_explained),
        _ => {}
    }
}

#[test]
fn probes_give_a_weight_and_say_how_they_came_to_it() {
    let _alone = alone();
    let output = evener(&["weigh", "--only", "syscalls,tcp", "--seconds", "1", "--name", "rat", "--json"]);
    let found = parsed(&output);
    assert_eq!(output.status.code(), Some(0), "{found:#}");
    assert_explained(&found);
    let node = &found["nodes"][0];
    assert_eq!((&node["name"], &node["trusted"]), (&Value::from("rat"), &Value::from("probes")));
    let value = |name: &str| node["weight"][name].as_u64().expect("a weight");
    assert!(1 <= value("low") && value("low") <= value("value") && value("value") <= value("high"));
    for probe in node["probes"]["list"].as_array().expect("a list") {
        let rates = probe["all"].as_array().expect("rounds");
        assert!(rates.len() == 5 && rates.iter().all(|rate| rate.as_f64() > Some(0.0)), "{probe}");
    }
}

#[test]
fn a_drive_finds_what_a_node_carries() {
    let _alone = alone();
    let node = one_by_one(Duration::from_millis(4));
    measured(|| {
        let output = drive(&["--drive", &url(&node), "--reference", "500", "--json"]);
        let found = parsed(&output);
        assert_explained(&found);
        let node = &found["nodes"][0];
        assert_eq!(node["trusted"], "drive");
        let Some(rate) = node["drive"]["rate"]["median"].as_f64().filter(|_| output.status.success()) else {
            return Err(node["drive"].to_string());
        };
        let weight = node["weight"]["exact"].as_f64().expect("a weight");
        assert!((weight - rate / 5.0).abs() < 0.01, "{weight} of {rate}");
        // It does 250 a second.
        if (210.0..290.0).contains(&rate) { Ok(()) } else { Err(node["drive"].to_string()) }
    });
}

#[test]
fn a_node_that_refuses_what_is_too_much_carries_what_it_does_not_refuse() {
    let _alone = alone();
    let free_at = Arc::new(Mutex::new(Instant::now()));
    let node = Node::http(move |_, stream| {
        let job = Duration::from_millis(4);
        let done = {
            let mut free_at = free_at.lock().expect("no node thread panics");
            let now = Instant::now();
            // Some may wait; nobody would wait for longer than the limit.
            let is_full = free_at.saturating_duration_since(now) > 6 * job;
            if !is_full {
                *free_at = (*free_at).max(now) + job;
            }
            (!is_full).then_some(*free_at)
        };
        let Some(done) = done else { return respond(stream, "503 Service Unavailable", "", b"too much") };
        thread::sleep(done.saturating_duration_since(Instant::now()));
        respond(stream, "200 OK", "", b"done")
    });
    measured(|| {
        let found = parsed(&drive(&["--drive", &url(&node), "--success", "95%", "--json"]));
        let drive = &found["nodes"][0]["drive"];
        let is_refused = |trial: &Value| trial["carried"] == false && trial["failed"].as_u64() > Some(0);
        let any_refused = drive["trials"].as_array().expect("trials").iter().any(is_refused);
        let rate = drive["rate"]["median"].as_f64().unwrap_or(0.0);
        if any_refused && (200.0..300.0).contains(&rate) { Ok(()) } else { Err(drive.to_string()) }
    });
}

#[test]
fn nodes_that_are_driven_get_weights_in_proportion() {
    let _alone = alone();
    let (fast, slow) = (one_by_one(Duration::from_millis(4)), one_by_one(Duration::from_millis(8)));
    let mut found = Value::Null;
    let weights = |found: &Value| [0, 1].map(|node| found["nodes"][node]["weight"]["value"].as_u64());
    measured(|| {
        let output = drive(&["--drive", &url(&fast), "--drive", &url(&slow), "--json"]);
        found = parsed(&output);
        let is_good = matches!(weights(&found), [Some(100), Some(43..=58)]) && output.status.success();
        if is_good { Ok(()) } else { Err(found["nodes"].to_string()) }
    });
    let weights = weights(&found).map(|weight| weight.expect("a weight"));

    // What was saved is compared to the same weights, and the TOML is a part of a configuration.
    let folder = tempfile::tempdir().expect("a folder");
    let saved = folder.path().join("pool.json");
    fs::write(&saved, found.to_string()).expect("written");
    let (compared, _) = texts(&evener(&["weigh", "--compare", saved.to_str().expect("a plain path")]));
    let nodes = compared.split("node = [").nth(1).and_then(|rest| rest.split("\n]").next()).expect("TOML");
    assert!(nodes.contains(&format!("weight = {} }}", weights[1])), "{compared}");
    let configuration = folder.path().join("evener.toml");
    let text = format!(
        "[listener.web]\nbind = \"127.0.0.1:0\"\nprotocol = \"http\"\npool = \"app\"\n[pool.app]\nnode = [{nodes}\n]\n"
    );
    fs::write(&configuration, text).expect("written");
    let checked = evener(&["check", configuration.to_str().expect("a plain path")]);
    assert!(checked.status.success(), "{compared}{}", texts(&checked).1);
}

#[test]
fn a_node_that_cannot_be_driven_is_told_and_is_no_success() {
    let failing = Node::http(|_, stream| respond(stream, "503 Service Unavailable", "", b"no"));
    let output = drive(&["--drive", &url(&failing)]);
    let (stdout, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(1), "{stdout}{stderr}");
    assert!(stdout.contains("a status of 5xx"), "{stdout}");
    assert!(stderr.contains("overloads"), "{stderr}");

    // Every answer is later than the limit.
    let slow = Node::http(|_, stream| {
        thread::sleep(Duration::from_millis(90));
        respond(stream, "200 OK", "", b"late")
    });
    let output = drive(&["--drive", &url(&slow), "--json"]);
    let found = parsed(&output);
    assert_eq!((output.status.code(), &found["nodes"][0]["weight"]), (Some(1), &Value::Null), "{found:#}");
    assert_eq!(found["nodes"][0]["drive"]["verdict"], "below", "{found:#}");
}

#[test]
fn a_node_elsewhere_is_not_driven_without_a_word() {
    let output = drive(&["--drive", "http://192.0.2.1/"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(texts(&output).1.contains("--yes"), "{:?}", texts(&output));
    let output = evener(&["weigh", "--drive", "http://127.0.0.1/"]);
    assert_eq!(output.status.code(), Some(2), "a drive needs a limit");
}

#[test]
fn an_interrupted_drive_ends_at_once_and_says_how_far_it_came() {
    let node = one_by_one(Duration::from_millis(2));
    let mut child = Command::new(program())
        .args(["weigh", "--drive", &url(&node), "--limit", "200ms", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("evener runs");
    // In the midst of a trial: after the first requests one by one.
    wait_until("requests", || node.seen().len() > 50);
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    let ended = wait_for("an end", || child.try_wait().expect("it is our child"));
    let mut text = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("it is text");
    let found: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((ended.code(), &found["nodes"][0]["drive"]["verdict"]), (Some(1), &Value::from("stopped")));
}

#[test]
fn interrupted_probes_leave_nothing_behind() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let path = folder.path().to_str().expect("a plain path");
    let mut child = Command::new(program())
        .args(["weigh", "--only", "disk", "--folder", path])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("evener runs");
    let files = PathBuf::from(format!("/proc/{}/fd", child.id()));
    let has_file = |_: &()| {
        let links = fs::read_dir(&files).into_iter().flatten().flatten();
        links.filter_map(|link| fs::read_link(link.path()).ok()).any(|link| link.starts_with(path))
    };
    let ended = wait_for("a file to be measured on, or an end", || {
        match child.try_wait().expect("it is our child") {
            None => has_file(&()).then_some(None),
            Some(status) => Some(Some(status)),
        }
    });
    if ended.is_some() {
        println!("left out: {path} lies in memory, where no disk is measured");
        return;
    }
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    let ended = wait_for("an end", || child.try_wait().expect("it is our child"));
    assert_eq!(ended.code(), Some(130));
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

/// A control group with a quota of CPU time.
struct Group(PathBuf);

impl Group {
    /// `None` if this machine lets nobody make one.
    fn new(name: &str, cpus: f64) -> Option<Group> {
        let name = format!("evener-weigh-{}-{name}", std::process::id());
        let quota = (cpus * 100_000.0).round();
        // Others on this machine must not take what the quota gives: the group goes before them.
        let first = ("cpu.cfs_quota_us", quota.to_string(), ("cpu.shares", "262144"));
        for (root, (file, limit, (share, most))) in [
            ("/sys/fs/cgroup", ("cpu.max", format!("{quota} 100000"), ("cpu.weight", "10000"))),
            ("/sys/fs/cgroup/cpu", first.clone()),
            ("/sys/fs/cgroup/cpu,cpuacct", first),
        ] {
            let folder = Path::new(root).join(&name);
            // Elsewhere than in a file system of groups, a folder has no such file.
            if fs::create_dir(&folder).is_ok() {
                let group = Group(folder);
                let set = |file: &str, value: &str| {
                    group.0.join(file).exists() && fs::write(group.0.join(file), value).is_ok()
                };
                if set(file, &limit) && set(share, most) {
                    return Some(group);
                }
            }
        }
        None
    }

    /// Runs a command in the group.
    fn evener(&self, arguments: &[&str]) -> Output {
        let script = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
        Command::new("/bin/sh")
            .args(["-c", script])
            .arg(&self.0)
            .arg(program())
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("a shell runs")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Whoever was in it has ended; the kernel may need a moment to see that.
        wait_until("the group to be empty", || fs::remove_dir(&self.0).is_ok() || !self.0.exists());
    }
}

#[test]
fn half_a_cpu_is_half_the_weight() {
    let _alone = alone();
    let weigh = |cpus: f64| {
        let group = Group::new(&cpus.to_string(), cpus)?;
        let output =
            group.evener(&["weigh", "--only", "hash,syscalls", "--quick", "--scale", "100", "--json"]);
        let found = parsed(&output);
        assert_eq!(output.status.code(), Some(0), "{found:#}");
        let node = &found["nodes"][0];
        assert!(cpus >= 1.0 || node["probes"]["quota"] == cpus, "{node}");
        Some(node["weight"]["exact"].as_f64().expect("a weight"))
    };
    // Where others leave no whole CPU to this, a quarter of one beside a half shows the same.
    let mut wholes = [1.0, 0.5, 0.5].into_iter();
    measured(|| {
        let whole = wholes.next().expect("three attempts at the most");
        let Some((half, whole)) = weigh(whole / 2.0).zip(weigh(whole)) else {
            println!("left out: this machine lets nobody make a control group with a quota");
            return Ok(());
        };
        let ratio = half / whole;
        if (0.4..=0.6).contains(&ratio) { Ok(()) } else { Err(format!("{ratio:.2} of the weight")) }
    });
}

#[test]
fn what_is_not_known_is_wrong_usage() {
    for (arguments, told) in [
        (&["--only", "disks"][..], "expected one of hash"),
        (&["--only", "disk", "--skip", "disk"], "leave no probe"),
        (&["--compare", "/nowhere.json"], "/nowhere.json"),
        (&["--compare", "/dev/null"], "expected what evener weigh --json prints"),
        (&["--limit", "200ms"], "--drive"),
    ] {
        let output = evener(&[&["weigh"], arguments].concat());
        let (_, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(told), "{arguments:?}: {stderr}");
    }
}
