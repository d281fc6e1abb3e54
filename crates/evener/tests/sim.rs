//! `evener sim` as its users meet it: what it prints, what it refuses, and what its guide says.
//!
//! With `BLESS=1` what is printed is written to `tests/sim/`.

mod json;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use evener_sim::{Experiment, Overrides};
use serde_json::Value;

/// A guide with commands that run and scenarios that are right.
const GUIDE: &str = "docs/simulator.md";

#[test]
fn the_table_is_as_it_was() {
    same("tiny.txt", &sim(&[&tiny(), "--threads", "1"]));
}

#[test]
fn the_json_is_as_it_was() {
    same("tiny.json", &sim(&[&tiny(), "--json"]));
}

#[test]
fn threads_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let all: Vec<(String, String)> = ["1", "2", "7"]
        .into_iter()
        .map(|threads| {
            let page = folder.path().join(threads);
            let printed = sim(&[&tiny(), "--json", "--threads", threads, "--html", page.to_str().unwrap()]);
            (printed, fs::read_to_string(page).unwrap())
        })
        .collect();
    assert_eq!(all[0], all[1]);
    assert_eq!(all[0], all[2]);
}

#[test]
fn a_seed_is_another_run() {
    assert_ne!(
        sim(&[&tiny(), "--seeds", "1", "--seed", "1"]),
        sim(&[&tiny(), "--seeds", "1", "--seed", "2"])
    );
}

#[test]
fn the_page_needs_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let names = folder.path().join("names.toml");
    let text = fs::read_to_string(tiny()).unwrap();
    fs::write(&names, text.replace("\"Tiny\"", "\"<b>Names & more\"")).unwrap();
    sim(&[names.to_str().unwrap(), "--html", page.to_str().unwrap()]);
    let page = fs::read_to_string(page).unwrap();
    for elsewhere in ["http:", "https:", "<script", "<link", "<img", "@import", "url("] {
        assert!(!page.contains(elsewhere), "{elsewhere}");
    }
    assert!(page.contains("<h1>&lt;b&gt;Names &amp; more</h1>"));
    assert!(!page.contains("<b>"));
    assert!(page.contains("prefers-color-scheme: dark"));
    // Six curves (for p99.9 there are too few jobs), four comparisons and two plots over time at each of two loads.
    assert_eq!(page.matches("role=\"img\"").count(), 6 + 2 * (4 + 2));
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    assert!(!page.contains("NaN"));
}

#[test]
fn examples_run() {
    let mut count = 0;
    for entry in fs::read_dir(root().join("examples/sim")).unwrap() {
        let path = entry.unwrap().path();
        let output = evener(&["sim", path.to_str().unwrap(), "--quick", "--seeds", "1"], &root());
        assert!(output.status.success() && output.stderr.is_empty(), "{}: {output:?}", path.display());
        count += 1;
    }
    assert!(count >= 5, "{count} examples");
}

#[test]
fn scenarios_of_the_guide_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guide.toml");
    for text in blocks("toml scenario") {
        fs::write(&path, text).unwrap();
        let output = evener(&["sim", path.to_str().unwrap(), "--quick", "--seeds", "1"], folder.path());
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
}

#[test]
fn commands_of_the_guide_run() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(root().join("examples"), folder.path().join("examples")).unwrap();
    let mut count = 0;
    for command in blocks("sh").iter().flat_map(|block| block.lines()) {
        let mut arguments: Vec<&str> =
            command.strip_prefix("evener ").expect(command).split_whitespace().collect();
        // For the guide's readers to wait for, not for a test.
        if !arguments.contains(&"--quick") {
            arguments.push("--quick");
        }
        let output = evener(&arguments, folder.path());
        assert!(output.status.success(), "{command}: {output:?}");
        count += 1;
    }
    assert!(count >= 4, "{count} commands");
    assert!(folder.path().join("unequal.html").exists());
}

#[test]
fn every_name_of_the_json_is_explained() {
    let all = json::names(&serde_json::from_str(&sim(&[&tiny(), "--json"])).unwrap());
    assert!(all.contains(&"p99_9_ms".to_string()));
    json::assert_explained(&all, &fs::read_to_string(root().join(GUIDE)).unwrap());
}

#[test]
fn every_key_of_a_scenario_is_explained() {
    let guide = fs::read_to_string(root().join(GUIDE)).unwrap();
    let tables = [
        "#",
        "policies = [{ # }]",
        "arrivals = { kind = \"poisson\", rate = 1, # }",
        "arrivals = { kind = \"bursts\", rate = 1, # }",
        "arrivals = { kind = \"on-off\", rate = 1, # }",
        "arrivals = { kind = \"closed\", # }",
        "arrivals = { kind = \"trace\", # }",
        "size = { kind = \"exponential\", # }",
        "size = { kind = \"lognormal\", # }",
        "size = { kind = \"pareto\", # }",
        "size = { kind = \"mix\", # }",
        "size = { kind = \"empirical\", # }",
        "node = [{ # }]",
        "node = [{ fault = [{ # }] }]",
        "dispatchers = { # }",
        "signals = { # }",
        "signals = { when = { kind = \"periodic\", # } }",
        "steering = { law = \"smoothing\", # }",
        "steering = { law = \"integral\", # }",
        "transfer = { # }",
        "costs = { # }",
        "patience = { # }",
    ];
    let mut keys = 0;
    for table in tables {
        for key in known_keys(&table.replace('#', "qqqqqqqqqqqqqqqq = 1")) {
            let names = [format!("`{key}`"), format!("{key} = "), format!("\"{key}\""), format!("[{key}]")];
            assert!(names.iter().any(|name| guide.contains(name)), "{table}: {key}");
            keys += 1;
        }
    }
    assert!(keys > 60, "{keys}");
}

/// What a scenario may say in the place of a key that it may not.
fn known_keys(text: &str) -> Vec<String> {
    let errors = Experiment::parse(text, &Overrides::default(), &mut |_| unreachable!()).unwrap_err();
    let unknown = errors.iter().find(|error| error.finding.message == "unknown key").expect(text);
    let help = unknown.finding.help.as_ref().unwrap();
    help.strip_prefix("known keys: ").expect(help).split(", ").map(Into::into).collect()
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("bad.toml"), "policies = [\"least-job\"]\nduration = \"1s\"\n").unwrap();
    let output = evener(&["sim", "bad.toml"], folder.path());
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    let expected = "bad.toml:1:13: policies[0]: expected the name of a policy, found \"least-job\" (did you mean \
                    \"least-jobs\"?)";
    let said = said.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
    assert!(said.contains(expected), "{said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn overload_is_warned_of_and_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        fs::read_to_string(tiny()).unwrap().replace("[60, 110]", "[200]").replace(", queue-max = 5", "");
    fs::write(folder.path().join("over.toml"), text).unwrap();
    let output = evener(&["sim", "over.toml", "--quick"], folder.path());
    assert!(output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("over.toml:4:10") && said.contains("queue-max"), "{said}");
}

#[test]
fn a_trace_is_played_beside_its_scenario() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = "policies = [\"round-robin\"]\nseeds = 1\nloads = [0.5, 2.0]\nnode = [{}]\n[arrivals]\nkind = \
                    \"trace\"\nfile = \"jobs.csv\"\nwork = true\n[patience]\ntimeout = \"10s\"\n";
    fs::create_dir(folder.path().join("in")).unwrap();
    fs::write(folder.path().join("in/trace.toml"), scenario).unwrap();
    let jobs: String = (0..200).map(|job| format!("{},5\n", f64::from(job) * 0.02)).collect();
    fs::write(folder.path().join("in/jobs.csv"), jobs).unwrap();
    let output = evener(&["sim", "in/trace.toml", "--json"], folder.path());
    assert!(output.status.success(), "{output:?}");
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let points = printed["experiments"][0]["points"].as_array().unwrap();
    let figure = |point: &Value, name: &str| point["policies"][0]["figures"][name]["mean"].as_f64().unwrap();
    for (point, rate) in points.iter().zip([100.0, 400.0]) {
        assert_eq!(point["policies"][0]["jobs"], 200.0);
        assert!((figure(point, "throughput") / rate - 1.0).abs() < 0.02, "{point}");
    }
    assert!((figure(&points[0], "mean_ms") - 5.0).abs() < 0.1, "no job waits");
    assert!(figure(&points[1], "mean_ms") > 100.0, "jobs wait");

    fs::write(folder.path().join("in/jobs.csv"), "1\nsoon\n").unwrap();
    let output = evener(&["sim", "in/trace.toml"], folder.path());
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    let said = said.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("trace.toml:7:8: arrivals.file: in/jobs.csv:2: expected seconds, found \"soon\""),
        "{said}"
    );
}

#[test]
fn what_cannot_be_read_or_written_is_told_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let missing = evener(&["sim", "missing.toml"], folder.path());
    assert_eq!(missing.status.code(), Some(2));
    let nowhere = evener(&["sim", &tiny(), "--html", "no/such/folder.html"], folder.path());
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(nowhere.stdout.is_empty());
}

#[test]
fn an_interrupt_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    // Minutes of work.
    let long = fs::read_to_string(tiny()).unwrap().replace("20s", "100h");
    fs::write(folder.path().join("long.toml"), long).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_evener"))
        .args(["sim", "long.toml"])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // It reacts to signals from when its threads run, before which the signal itself would end it.
    let begun = Instant::now() + Duration::from_secs(20);
    while threads(&child) < 2 {
        assert!(Instant::now() < begun, "it does not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let asked = Instant::now();
    let status = child.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(130), None));
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
}

fn threads(child: &Child) -> usize {
    fs::read_dir(format!("/proc/{}/task", child.id())).map_or(0, Iterator::count)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn tiny() -> String {
    golden("tiny.toml").to_str().unwrap().to_owned()
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sim").join(name)
}

fn same(name: &str, printed: &str) {
    if std::env::var_os("BLESS").is_some() {
        return fs::write(golden(name), printed).unwrap();
    }
    assert_eq!(printed, fs::read_to_string(golden(name)).unwrap(), "BLESS=1 if that was meant");
}

/// Fenced blocks of the guide in a language.
fn blocks(language: &str) -> Vec<String> {
    let guide = fs::read_to_string(root().join(GUIDE)).unwrap();
    let fences: Vec<&str> = guide.split("```").collect();
    let blocks = fences.iter().skip(1).step_by(2);
    let texts: Vec<String> = blocks
        .filter_map(|block| block.split_once('\n'))
        .filter(|(said, _)| *said == language)
        .map(|(_, text)| text.to_owned())
        .collect();
    assert!(!texts.is_empty(), "{language}");
    texts
}

fn sim(arguments: &[&str]) -> String {
    let output = evener(&[&["sim"], arguments].concat(), &root());
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn evener(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_evener"))
        .args(arguments)
        .current_dir(folder)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}
