//! What `evener agent` finds out of real servers.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use evener_tests::director::{evener, program};
use evener_tests::servers::Server;
use evener_tests::wait_for;
use serde_json::Value;

/// Runs the agent once, with these tables `[[agent.source]]`.
fn run(sources: &str) -> Output {
    let file = tempfile::NamedTempFile::new().expect("a file");
    // A tick of the kernel's clock is 10 ms at most: in this time there are some.
    std::fs::write(file.path(), format!("[agent]\ninterval = \"100ms\"\n{sources}")).expect("written");
    evener(&["agent", "--once", "--json", "-c", file.path().to_str().expect("a plain path")])
}

/// What the agent found, of which nothing failed.
fn measured(sources: &str) -> Value {
    let output = run(sources);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{text}{errors}"));
    // A kernel may have no pressure stall information; that is told and is no fault of what is tested here.
    let failed = found["failed"].as_array().expect("a list").iter();
    let failed: Vec<_> = failed.filter(|failure| failure["source"] != "memory stall").collect();
    assert!(failed.is_empty(), "{failed:?}");
    found["report"].clone()
}

/// Waits until the agent finds so many jobs: what a server was told just now it may not count yet.
fn await_jobs(sources: &str, jobs: u64) {
    let mut last = Value::Null;
    wait_for("the jobs that there are", || {
        let report = measured(sources);
        if report["jobs"] != last {
            println!("{sources}: {}", report["jobs"]);
            last = report["jobs"].clone();
        }
        (report["jobs"] == jobs).then_some(())
    });
}

#[test]
fn statements_that_run_are_the_jobs_of_mariadb() {
    let mariadb = Server::mariadb();
    let password = mariadb.password_file("secret");
    let source = |password: &str| {
        format!(
            "[[agent.source]]\nmysql = {{ address = \"{}\", user = \"evener\", password_file = \"{password}\" }}\n",
            mariadb.address
        )
    };
    let source = source(password.to_str().expect("a plain path"));
    await_jobs(&source, 0);
    let statements: Vec<_> = (0..5).map(|_| mariadb.statement("SELECT SLEEP(600)")).collect();
    await_jobs(&source, 5);
    // Connections that do nothing are no jobs.
    let idle = mariadb.connect(3);
    await_jobs(&source, 5);
    drop((statements, idle));
}

#[test]
fn a_password_that_is_wrong_is_told() {
    let mariadb = Server::mariadb();
    let password = mariadb.password_file("wrong");
    let output = run(&format!(
        "[[agent.source]]\nname = \"database\"\nrequired = true\n\
         mysql = {{ address = \"{}\", user = \"evener\", password_file = \"{}\" }}\n",
        mariadb.address,
        password.display()
    ));
    assert_eq!(output.status.code(), Some(1));
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let failure =
        found["failed"].as_array().expect("a list").iter().find(|failure| failure["source"] == "database");
    let reason = failure.and_then(|failure| failure["reason"].as_str()).expect("it is told");
    assert!(reason.contains("Access denied for user 'evener'"), "{reason}");
    assert_eq!((&found["report"]["jobs"], &found["report"]["health"]), (&Value::Null, &Value::from(0)));
}

#[test]
fn clients_are_the_jobs_of_redis() {
    let redis = Server::redis();
    let password = redis.password_file("secret");
    let source = format!(
        "[[agent.source]]\nredis = {{ address = \"{}\", password_file = \"{}\" }}\n",
        redis.address,
        password.display()
    );
    await_jobs(&source, 0);
    let _clients = redis.connect(4);
    await_jobs(&source, 4);
    let without =
        format!("[[agent.source]]\nname = \"cache\"\nredis = {{ address = \"{}\" }}\n", redis.address);
    let text = String::from_utf8(run(&without).stdout).expect("JSON");
    assert!(text.contains("NOAUTH"), "{text}");
}

#[test]
fn connections_are_the_jobs_of_memcached() {
    let memcached = Server::memcached();
    let source = format!("[[agent.source]]\nmemcached = \"{}\"\n", memcached.address);
    await_jobs(&source, 0);
    let _clients = memcached.connect(4);
    await_jobs(&source, 4);
}

#[test]
fn requests_under_way_are_the_jobs_of_nginx() {
    let nginx = Server::nginx_status();
    let source = format!("[[agent.source]]\nnginx = \"http://{}/status\"\n", nginx.address);
    await_jobs(&source, 0);
    let mut clients = nginx.connect(4);
    for client in &mut clients {
        client.write_all(b"GET /status HTTP/1.1\r\nHost: nginx\r\n").expect("sent");
    }
    await_jobs(&source, 4);
    // Whose request is answered and who keeps the connection waits.
    clients[0].write_all(b"\r\n").expect("sent");
    await_jobs(&source, 3);
}

#[test]
fn connections_are_counted_for_any_server() {
    let redis = Server::redis();
    let source = format!("[[agent.source]]\nconnections = {{ port = {} }}\n", redis.address.port());
    await_jobs(&source, 0);
    let _clients = redis.connect(300);
    await_jobs(&source, 300);
}

#[test]
fn a_program_without_an_answer_takes_nothing_from_the_others() {
    let memcached = Server::memcached();
    let _clients = memcached.connect(2);
    let sources = format!(
        "[[agent.source]]\nname = \"hangs\"\ntimeout = \"1s\"\nprogram = {{ run = [\"/bin/sleep\", \"600\"] }}\n\
         [[agent.source]]\nmemcached = \"{}\"\n",
        memcached.address
    );
    let start = Instant::now();
    let output = run(&sources);
    assert!(start.elapsed() < Duration::from_secs(60), "the program was waited for");
    assert_eq!(output.status.code(), Some(1));
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(found["report"]["jobs"], 2);
    let failures = found["failed"].as_array().expect("a list");
    assert!(
        failures
            .iter()
            .any(|failure| failure["source"] == "hangs" && failure["reason"] == "no answer within 1s")
    );
}

#[test]
fn work_on_all_cpus_is_a_full_load() {
    struct Hog(Child);
    impl Drop for Hog {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
    let cpus = std::thread::available_parallelism().expect("known").get();
    let hog =
        |_| Hog(Command::new("/bin/sh").args(["-c", "while :; do :; done"]).spawn().expect("a shell runs"));
    let _hogs: Vec<Hog> = (0..2 * cpus).map(hog).collect();
    for source in ["estimate", "pressure"] {
        // Without pressure stall information there is no load by it, and that is told.
        if source == "pressure" && !Path::new("/proc/pressure/cpu").exists() {
            let text = String::from_utf8(run("[agent.cpu]\nsource = \"pressure\"\n").stdout).expect("JSON");
            assert!(text.contains("pressure/cpu"), "{text}");
            continue;
        }
        wait_for("a full load", || {
            let report = measured(&format!("[agent.cpu]\nsource = \"{source}\"\n"));
            let load = report["load"].as_f64().expect("a load");
            (load >= 0.95 && report["health"].as_u64()? <= 5).then_some(())
        });
    }
}

#[test]
fn what_is_not_a_source_is_wrong_usage() {
    let output = evener(&["agent", "--once", "--source", "memcache = \"127.0.0.1:11211\""]);
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("unknown field `memcache`, expected one of"), "{told}");
    let output = run("[agent.cpu]\nfaktor = 1\n");
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("line 4, column 1") && told.contains("expected `factor` or `source`"), "{told}");
}

#[test]
fn without_once_there_is_a_line_each_time_until_nobody_reads() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let sources = "[[agent.source]]\nservice = \"web\"\nprogram = { run = [\"/bin/echo\", \"jobs=3\"] }\n";
    std::fs::write(file.path(), format!("[agent]\ninterval = \"50ms\"\n{sources}")).expect("written");
    let mut agent = Command::new(program())
        .args(["agent", "--json", "-c", file.path().to_str().expect("a plain path")])
        .stdout(Stdio::piped())
        .spawn()
        .expect("evener runs");
    let lines = BufReader::new(agent.stdout.take().expect("a pipe")).lines();
    // The first may come before the program has answered.
    let answered =
        lines.take(100).map(|line| serde_json::from_str::<Value>(&line.expect("a line")).expect("JSON"));
    let found =
        answered.skip_while(|found| found["report"]["jobs"].is_null()).take(3).last().expect("an answer");
    assert_eq!(
        (&found["report"]["jobs"], &found["services"]["web"]["jobs"]),
        (&Value::from(3), &Value::from(3))
    );
    let ended = wait_for("the agent to end", || agent.try_wait().expect("it is our child"));
    assert!(ended.success(), "{ended}");
}
