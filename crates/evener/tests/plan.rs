//! `evener plan` as its users meet it: answers that are known beforehand, what it prints, and what it refuses.
//!
//! With `BLESS=1` what is printed is written to `tests/plan/`.

mod json;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use evener_replay::Random;
use serde_json::Value;

/// Mean time of a job.
const MEAN_S: f64 = 0.010;

#[test]
fn as_many_nodes_are_needed_as_the_formula_says() {
    let rate = 430.0;
    let folder = tempfile::tempdir().unwrap();
    let log = poisson(folder.path(), 20_000, rate);
    // With one queue for all, nodes of one core are M/M/c: half way between 5 and 6 nodes.
    let limit_ms = (erlang_ms(rate, 5, 0.99) + erlang_ms(rate, 6, 0.99)) / 2.0;
    let within = format!("{limit_ms:.1}ms");
    let plan = json(
        &log,
        &["--within", &within, "--percentile", "99", "--policies", "central,two-choices", "--quick"],
    );
    let central = &plan["policies"][0];
    assert_eq!(central["nodes"], 6, "limit {limit_ms} ms: {central}");
    for (figure, nodes) in [("percentile_ms", 6), ("one_less_ms", 5)] {
        let (found, expected) = (central[figure]["mean"].as_f64().unwrap(), erlang_ms(rate, nodes, 0.99));
        assert!((found / expected - 1.0).abs() < 0.15, "{nodes} nodes: {found} ms, expected {expected} ms");
    }
    // Two choices know less, so they need more; and only they can be had.
    let nodes = plan["recommended"]["nodes"].as_u64().unwrap() as u32;
    assert!(nodes >= 6, "{plan}");
    // What one queue could do on as many: the rate at which the formula passes the limit.
    let (mut low, mut high) = (rate, f64::from(nodes) / MEAN_S - 1.0);
    for _ in 0..50 {
        let middle = f64::midpoint(low, high);
        if erlang_ms(middle, nodes, 0.99) < limit_ms { low = middle } else { high = middle }
    }
    let capacity = &plan["on_these_nodes"][0]["capacity"];
    assert_eq!(capacity["kind"], "at", "{plan}");
    let found = capacity["rate"].as_f64().unwrap();
    assert!((found / low - 1.0).abs() < 0.05, "{found} jobs a second, expected {low}");
    assert_eq!(plan["recommended"]["policy"], "two-choices");
    assert_eq!(plan["work"]["from"], "logged");
}

#[test]
fn waiting_in_the_log_is_not_planned_for_twice() {
    // A log of one core, 60 % in use: its times have waiting in them, 25 ms on average instead of 10 ms.
    let (mut random, mut at, mut free, mut text) = (Random::new(23), 0.0_f64, 0.0_f64, String::new());
    for _ in 0..20_000 {
        at += random.exponential() / 60.0;
        free = free.max(at) + random.exponential() * MEAN_S;
        writeln!(text, "{at:.6},{:.4}", (free - at) * 1e3).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let log = file(folder.path(), "waited.csv", &text);
    let goal =
        ["--within", "100ms", "--percentile", "95", "--quick", "--policies", "random", "--nodes", "count=1"];
    let plan = json(&log, &goal);
    assert_eq!(plan["work"]["from"], "quiet");
    let mean = plan["work"]["mean_ms"].as_f64().unwrap();
    assert!((mean / 10.0 - 1.0).abs() < 0.05, "{mean}");
    // The same core takes as long as it took: ln 20 times the mean of M/M/1.
    let expected = 20_f64.ln() * 1e3 / (100.0 - 60.0);
    let found = plan["recommended"]["percentile_ms"]["mean"].as_f64().unwrap();
    assert!((found / expected - 1.0).abs() < 0.15, "{found} ms, expected {expected} ms");
}

#[test]
fn the_text_is_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let goal = ["--within", "60ms", "--percentile", "95", "--load", "1.5"];
    let nodes = ["--nodes", "count=1,cores=2", "--nodes", "speed=0.5"];
    // Those that will not learn anything new.
    let policies = ["--policies", "weighted-least-jobs,two-choices,weighted-round-robin,central"];
    let arguments = [&goal[..], &nodes, &policies].concat();
    let text = succeeds(&poisson(folder.path(), 3000, 200.0), &arguments);
    same("mixed.txt", &text);
}

#[test]
fn threads_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let log = poisson(folder.path(), 3000, 100.0);
    let of = |threads| {
        succeeds(&log, &["--within", "60ms", "--percentile", "95", "--quick", "--json", "--threads", threads])
    };
    assert_eq!(of("1"), of("3"));
}

#[test]
fn nodes_that_are_too_few_are_a_failure_that_says_how_many_it_takes() {
    let folder = tempfile::tempdir().unwrap();
    let log = poisson(folder.path(), 3000, 300.0);
    let goal = ["--within", "60ms", "--percentile", "95", "--quick", "--json", "--nodes"];
    let output = plan(&log, &[&goal[..], &["count=3"]].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let few: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(few["met"], false);
    assert!(few["recommended"]["nodes"].as_u64().unwrap() > 3, "{few}");
    let enough: Value = serde_json::from_str(&succeeds(&log, &[&goal[..], &["count=9"]].concat())).unwrap();
    assert_eq!((&enough["met"], &enough["recommended"]["nodes"]), (&Value::Bool(true), &Value::from(9)));
    assert!(enough["policies"][0]["nodes"].as_u64().unwrap() < 9, "{enough}");
}

#[test]
fn a_limit_below_what_jobs_take_alone_is_met_by_no_number_of_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let output = plan(&poisson(folder.path(), 3000, 100.0), &["--within", "10ms", "--percentile", "95"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("No number of nodes meets it") && said.contains("faster cores"), "{said}");
}

#[test]
fn a_combined_log_is_planned_for() {
    let folder = tempfile::tempdir().unwrap();
    let (mut random, mut text) = (Random::new(5), String::new());
    for job in 0..1200 {
        let took = random.exponential() * MEAN_S;
        writeln!(text, "{} {took:.3}", line(job / 100)).unwrap();
    }
    let plan = json(
        &file(folder.path(), "access.log", &text),
        &["--within", "80ms", "--percentile", "95", "--quick", "--nodes", "cores=2"],
    );
    assert_eq!((&plan["met"], &plan["log"]["jobs"]), (&Value::Bool(true), &Value::from(1200)), "{plan}");
    assert!(plan["assumed"].to_string().contains("whole seconds"), "{plan}");
}

#[test]
fn what_is_wrong_is_said_with_its_place_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let good = poisson(folder, 300, 100.0);
    let years = file(folder, "years.csv", "0.5,1\n50030000.5,1\n");
    let timed = format!("{} 0.010\n", line(1));
    let damaged = file(folder, "damaged.log", &format!("{timed}{timed}1.2.3.4 - - [10/Oct/2"));
    let untimed = file(folder, "untimed.log", &format!("{0}\n{0}\n", line(1)));
    let json_line = "{\"time\":\"2026-10-10T13:55:36Z\",\"pool\":\"app\"}\n";
    let untimed_json = file(folder, "untimed.json", json_line);
    let toml = file(folder, "nodes.toml", "[[node]]\ncount = 2\ncore = 4\n");
    let toml = toml.to_str().unwrap();
    let within = ["--within", "50ms"];
    for (log, arguments, expected) in [
        (
            &damaged,
            &[][..],
            &["damaged.log:3: no time such as [10/Oct/2026:13:55:36 +0000]", "mend that line"][..],
        ),
        (&untimed, &[], &["untimed.log:1: no time at the end", "$request_time", "%D", "evener run --record"]),
        (&untimed_json, &[], &["untimed.json: it does not say how long", "$request_time"]),
        (&good, &[], &["p99.5 needs 2000 jobs, and there are 300", "a longer log", "--percentile"]),
        (&years, &["--load", "0.5"], &["years.csv: at 0.5 times its load it would last 3.173 years"]),
        (&good, &["--nodes", "core=2"], &["--nodes 'core=2'", "`core`", "count=4,cores=2"]),
        (&good, &["--nodes", "cores=0"], &["--nodes: node[0].cores: expected an integer of 1 or more"]),
        (&good, &["--nodes", "count=4000000000", "--nodes", "count=4000000000"], &["--nodes-max is 1000"]),
        (&good, &["--nodes", "speed=-1"], &["node[0].speed"]),
        (&good, &["--nodes", "cores=1", "--nodes", "cores=2"], &["more than one kind has no `count`"]),
        (&good, &["--nodes", toml], &["nodes.toml:3:1", "`core`"]),
        (&good, &["--policies", "two-choice"], &["--policies", "two-choices"]),
        (&good, &["--policies", "central"], &["central"]),
        (&good, &["--percentile", "100"], &["from 50 to 99.99"]),
        (&good, &["--load", "0"], &["from 0.001 to 1000"]),
        (&folder.join("missing"), &[], &["missing: No such file"]),
    ] {
        let output = plan(log, &[&within[..], arguments].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        for part in expected {
            assert!(said.contains(part), "{part:?} is missing: {said}");
        }
    }
}

#[test]
fn every_name_of_the_json_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let goal = ["--within", "60ms", "--percentile", "95", "--quick", "--seeds", "2"];
    let nodes = ["--nodes", "count=1,cores=2", "--nodes", "count=1"];
    let plan = json(&poisson(folder.path(), 1000, 50.0), &[&goal[..], &nodes].concat());
    let all = json::names(&plan);
    assert!(all.len() > 80, "{plan}");
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/planning.md");
    json::assert_explained(&all, &fs::read_to_string(guide).unwrap());
}

/// The start of a line of a combined log, all but the time that the job took.
fn line(second: u32) -> String {
    format!("192.0.2.1 - - [10/Oct/2026:13:55:{second:02} +0000] \"GET / HTTP/1.1\" 200 12 \"-\" \"curl\"")
}

/// A list of jobs that come independently and take exponential times.
fn poisson(folder: &Path, jobs: u32, rate: f64) -> PathBuf {
    let (mut random, mut at, mut text) = (Random::new(11), 0.0, "seconds,ms\n".to_owned());
    for _ in 0..jobs {
        at += random.exponential() / rate;
        writeln!(text, "{at:.6},{:.4}", random.exponential() * MEAN_S * 1e3).unwrap();
    }
    file(folder, "poisson.csv", &text)
}

/// A percentile of the response time of M/M/c, by bisection of its tail.
fn erlang_ms(rate: f64, servers: u32, percentile: f64) -> f64 {
    let (service_rate, c) = (1.0 / MEAN_S, f64::from(servers));
    let offered = rate / service_rate;
    let (mut term, mut sum) = (1.0, 0.0);
    for k in 0..servers {
        sum += term;
        term *= offered / f64::from(k + 1);
    }
    let all_busy = term * c / (c - offered);
    let waits = all_busy / (sum + all_busy);
    let free = c - 1.0 - offered;
    let tail =
        |t: f64| (-service_rate * t).exp() * (1.0 + waits / free * (1.0 - (-service_rate * free * t).exp()));
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if tail(middle) > 1.0 - percentile { low = middle } else { high = middle }
    }
    low * 1e3
}

fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path
}

fn plan(log: &Path, arguments: &[&str]) -> Output {
    // The name of the log is printed.
    let name = log.file_name().unwrap();
    Command::new(env!("CARGO_BIN_EXE_evener"))
        .arg("plan")
        .arg(name)
        .args(arguments)
        .current_dir(log.parent().unwrap())
        .output()
        .unwrap()
}

fn succeeds(log: &Path, arguments: &[&str]) -> String {
    let output = plan(log, arguments);
    assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(log: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&succeeds(log, &[arguments, &["--json"]].concat())).unwrap()
}

fn same(name: &str, printed: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plan").join(name);
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, printed).unwrap();
    }
    assert_eq!(printed, fs::read_to_string(&path).unwrap_or_default(), "BLESS=1 if it is meant");
}
