//! Configuration: what is wrong is said with its place, and changes nothing.

use evener_tests::director::{Director, evener, texts, web};
use evener_tests::http::Client;
use evener_tests::{free_address, nodes, wait_until};
use rustix::process::Signal;

const GOOD: &str = r#"[process]
workers = 1

[listener.web]
bind = "127.0.0.1:8080"
protocol = "http"
pool = "app"

[pool.app]
scheduler = "least-jobs"
node = [
  { name = "rat", address = "10.0.0.1:80", weight = 5 },
  { address = "10.0.0.2:80" },
]
"#;

/// Checks a configuration: exit code, and all that was said.
fn check(config: &str, json: bool) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("evener.toml");
    std::fs::write(&path, config).expect("a file");
    let path = path.display().to_string();
    let arguments = ["check", &path, "--json"];
    let output = evener(&arguments[..if json { 3 } else { 2 }]);
    let (stdout, stderr) = texts(&output);
    (output.status.code(), stdout + &stderr)
}

#[test]
fn a_good_file_passes() {
    let (code, said) = check(GOOD, false);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn errors_have_a_place_and_an_expectation() {
    // What is replaced by what; the place of the error; words that must be there.
    let cases: &[(&str, &str, &str, &[&str])] = &[
        ("weight = 5", "weight = \"heavy\"", ":12:", &["pool.app.node[0].weight", "0 to 256", "heavy"]),
        ("weight = 5", "weight = 257", ":12:", &["0 to 256", "257"]),
        ("weight = 5", "wieght = 5", ":12:", &["wieght", "weight"]),
        ("scheduler = ", "shceduler = ", ":10:", &["shceduler", "scheduler"]),
        ("least-jobs", "least-job", ":10:", &["least-job", "least-jobs"]),
        ("pool = \"app\"", "pool = \"ap\"", ":7:", &["ap", "app"]),
        ("protocol = \"http\"", "protocol = \"htpp\"", ":6:", &["http", "htpp"]),
        ("bind = \"127.0.0.1:8080\"", "bind = \"127.0.0.1\"", ":5:", &["bind"]),
        ("10.0.0.1:80", "10.0.0.1:99999", ":12:", &["address"]),
        ("workers = 1", "workers = 1\ndrain_timeout = \"soon\"", ":3:", &["drain_timeout", "soon"]),
        ("workers = 1", "workers = ", ":2:", &[]),
        ("[process]", "[admin]\nlisten = \"0.0.0.0:9900\"\n[process]", ":2:", &["allow_remote"]),
        ("{ address = \"10.0.0.2:80\" }", "{ name = \"rat\", address = \"10.0.0.2:80\" }", ":13:", &["rat"]),
    ];
    for (from, to, place, words) in cases {
        assert!(GOOD.contains(from), "{from}");
        let (code, said) = check(&GOOD.replacen(from, to, 1), false);
        assert_eq!(code, Some(2), "{to}: {said}");
        assert!(said.contains("evener.toml") && said.contains(place), "{to} has its place {place}: {said}");
        for word in *words {
            assert!(said.contains(word), "{to} speaks of {word}: {said}");
        }
    }
}

#[test]
fn errors_are_there_for_machines_too() {
    let (code, said) = check(&GOOD.replace("weight = 5", "weight = 999"), true);
    assert_eq!(code, Some(2));
    let json: serde_json::Value =
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    let text = json.to_string();
    assert!(text.contains("\"line\":12") && text.contains("weight"), "{text}");
}

#[test]
fn a_missing_file_is_wrong_usage() {
    let output = evener(&["check", "/nowhere/evener.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(texts(&output).1.contains("/nowhere/evener.toml"));
    assert_eq!(evener(&["run", "-c", "/nowhere/evener.toml"]).status.code(), Some(2));
}

#[test]
fn a_bad_file_changes_nothing() {
    let (a, b) = (nodes::named("a"), nodes::named("b"));
    let address = free_address();
    let director = Director::start(&web(address, &[a.address]));
    let mut client = Client::connect(address).expect("the listener accepts");
    assert_eq!(client.get("/x").expect("an answer").text(), "a");

    director
        .write_config(&web(address, &[b.address]).replace("protocol = \"http\"", "protocol = \"gopher\""));
    let answer = director.reload();
    assert!((400..500).contains(&answer.status), "{}", answer.status);
    assert!(answer.text().contains("gopher"), "{}", answer.text());
    assert_eq!(director.ctl(&["reload"]).status.code(), Some(1));
    director.signal(director.pid(), Signal::HUP);
    wait_until("the error to be logged", || director.stderr().contains("gopher"));
    assert_eq!(client.get("/x").expect("an answer").text(), "a");

    director.write_config(&web(address, &[b.address]));
    assert_eq!(director.reload().status, 200);
    // The workers take it over at their next turn.
    wait_until("the new node", || client.get("/x").expect("the connection is still open").text() == "b");
}

#[test]
fn listeners_come_and_go_with_a_reload() {
    let node = nodes::named("a");
    let (first, second) = (free_address(), free_address());
    let director = Director::start(&web(first, &[node.address]));
    let both = web(first, &[node.address])
        .replace(&format!("bind = \"{first}\""), &format!("bind = [\"{first}\", \"{second}\"]"));
    director.write_config(&both);
    assert_eq!(director.reload().status, 200);
    for address in [first, second] {
        assert_eq!(
            Client::connect(address).and_then(|mut client| client.get("/x")).expect("an answer").text(),
            "a"
        );
    }
    director.write_config(&web(second, &[node.address]));
    assert_eq!(director.reload().status, 200);
    wait_until("the first to be closed", || Client::connect(first).is_err());
    assert_eq!(
        Client::connect(second).and_then(|mut client| client.get("/x")).expect("an answer").text(),
        "a"
    );

    // An address that is taken by someone else: nothing changes.
    let taken = std::net::TcpListener::bind(free_address()).expect("bound");
    director.write_config(&web(taken.local_addr().expect("an address"), &[node.address]));
    let answer = director.reload();
    assert!(answer.status >= 400, "{}", answer.text());
    assert_eq!(
        Client::connect(second).and_then(|mut client| client.get("/x")).expect("an answer").text(),
        "a"
    );
}
