//! Seeing and steering: the admin API and `evener ctl`, which speaks it.

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;

use evener_tests::director::{Director, evener, texts, web_with};
use evener_tests::http::Client;
use evener_tests::nodes::{self, Node};
use evener_tests::{free_address, prometheus, wait_until};

const POOL: &str = "scheduler = \"weighted-round-robin\"";

fn start() -> (Director, SocketAddr, [Node; 2]) {
    let nodes = [nodes::named("a"), nodes::named("b")];
    let address = free_address();
    let addresses = [nodes[0].address, nodes[1].address];
    let director = Director::start_with("workers = 1", &web_with(address, "", &addresses, POOL));
    (director, address, nodes)
}

/// How many of 40 requests node a answers.
fn share(address: SocketAddr) -> usize {
    let mut client = Client::connect(address).expect("the listener accepts");
    (0..40).filter(|_| client.get("/x").expect("an answer").text() == "a").count()
}

#[test]
fn pools_tell_what_each_node_does() {
    let (director, address, _nodes) = start();
    share(address);
    let pools = director.json("/pools");
    let pool = &pools["pools"][0];
    assert_eq!(
        (pool["name"].as_str(), pool["scheduler"].as_str()),
        (Some("app"), Some("weighted-round-robin"))
    );
    assert_eq!(pool["queued"], 0);
    for (i, node) in pool["nodes"].as_array().expect("nodes").iter().enumerate() {
        assert_eq!(node["name"], format!("n{}", i + 1));
        assert_eq!(
            (node["weight"].as_u64(), node["jobs"].as_u64(), node["picks"].as_u64()),
            (Some(1), Some(0), Some(20))
        );
        assert_eq!(node["outcomes"]["success"], 20, "{node}");
        assert!(node["connections"].as_u64() >= Some(1) && node["idle"].as_u64() >= Some(1), "{node}");
        for quantile in ["p50", "p90", "p99"] {
            assert!(node["latency_ms"][quantile].as_f64().is_some_and(|ms| ms > 0.0), "{node}");
        }
        for signal in node["signals"].as_array().expect("signals") {
            assert!(
                signal["name"].is_string() && (signal["age_ms"].is_number() || signal["age_ms"].is_null()),
                "{signal}"
            );
        }
    }
    assert_eq!(director.json("/pools/app")["name"], "app");
    let missing = director.admin("GET", "/pools/ap", "");
    assert_eq!(missing.status, 404);
    assert!(missing.text().contains("error"), "{}", missing.text());
}

#[test]
fn weights_and_drains_are_set_while_it_runs() {
    let (director, address, _nodes) = start();
    assert_eq!(share(address), 20);
    assert!(director.ctl(&["weight", "app", "n1", "3"]).status.success());
    wait_until("the weight to count", || share(address) == 30);
    assert!(director.ctl(&["drain", "app", "n1"]).status.success());
    wait_until("the drain to count", || share(address) == 0);
    assert_eq!(director.reload().status, 200);
    assert_eq!(share(address), 0, "what an operator set survives a reload");
    assert!(director.node("app", "n1")["state"].to_string().to_lowercase().contains("drain"));
    assert!(director.ctl(&["ready", "app", "n1"]).status.success());
    wait_until("the node to be back, with its weight", || share(address) == 30);

    for path in ["/pools/app/nodes/n9/weight", "/pools/none/nodes/n1/weight"] {
        let answer = director.admin("POST", path, "{\"weight\": 1}");
        assert_eq!(answer.status, 404, "{path}");
    }
    for body in ["{\"weight\": 257}", "{\"weight\": \"heavy\"}", "{", "{\"wieght\": 1}"] {
        let answer = director.admin("POST", "/pools/app/nodes/n1/weight", body);
        assert!(
            (400..500).contains(&answer.status) && answer.text().contains("error"),
            "{body}: {}",
            answer.text()
        );
    }
    let output = director.ctl(&["weight", "app", "n9", "1"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(texts(&output).1.contains("n9"), "{output:?}");
    assert_eq!(director.ctl(&["weight", "app", "n1", "heavy"]).status.code(), Some(2));
}

#[test]
fn a_weight_changed_in_the_file_wins_over_the_operators() {
    let (director, address, nodes) = start();
    assert!(director.ctl(&["weight", "app", "n1", "3"]).status.success());
    wait_until("the weight to count", || share(address) == 30);
    let config = web_with(address, "", &[nodes[0].address, nodes[1].address], POOL);
    director.write_config(&config.replace("name = \"n1\",", "name = \"n1\", weight = 7,"));
    assert_eq!(director.reload().status, 200);
    wait_until("the file's weight to count", || share(address) == 35);
}

#[test]
fn placements_are_explained() {
    let (director, address, _nodes) = start();
    share(address);
    let explained = director.json("/explain?pool=app&n=5");
    let text = explained.to_string();
    let list = explained
        .as_object()
        .into_iter()
        .flat_map(|fields| fields.values())
        .find_map(|value| value.as_array());
    assert_eq!(list.map(Vec::len), Some(5), "{text}");
    assert!(text.contains("candidates") && text.contains("n1") && text.contains("n2"), "{text}");

    let admin = director.admin.to_string();
    for arguments in [
        &["explain", "--admin", &admin, "app", "-n", "3"][..],
        &["ctl", "--admin", &admin, "explain", "app", "-n", "3"],
    ] {
        let output = evener(arguments);
        let (stdout, stderr) = texts(&output);
        assert!(output.status.success(), "{arguments:?}: {stderr}");
        assert!(stdout.contains("n1") || stdout.contains("n2"), "{stdout}");
    }
    assert_eq!(director.admin("GET", "/explain?pool=none", "").status, 404);
}

#[test]
fn metrics_are_what_prometheus_reads() {
    let (director, address, _nodes) = start();
    share(address);
    let answer = director.admin("GET", "/metrics", "");
    assert!(
        answer.header("Content-Type").is_some_and(|kind| kind.starts_with("text/plain")),
        "{:?}",
        answer.head
    );
    let families = prometheus::parse(answer.text()).unwrap_or_else(|error| panic!("{error}"));
    assert!(
        families.keys().all(|name| name.starts_with("evener_") || name.starts_with("process_")),
        "{:?}",
        families.keys()
    );
    let picks = families.iter().find(|(name, _)| name.contains("picks")).expect("picks of the nodes").1;
    assert_eq!((picks.sum(&[("pool", "app"), ("node", "n1")]), picks.sum(&[])), (20.0, 40.0));
    let histograms = families.values().filter(|family| family.kind == "histogram").count();
    assert!(histograms >= 1, "{:?}", families.keys());
    let samples: usize = families.values().map(|family| family.samples.len()).sum();
    assert!(samples < 500, "{samples} samples for two nodes");
    let output = director.ctl(&["metrics"]);
    prometheus::parse(&texts(&output).0).unwrap_or_else(|error| panic!("ctl metrics: {error}"));
}

#[test]
fn ctl_prints_tables_and_json() {
    let (director, address, _nodes) = start();
    share(address);
    let (table, _) = texts(&director.ctl(&["pools"]));
    assert!(table.contains("app") && table.contains("n1") && table.contains("n2"), "{table}");
    assert!(!table.contains('\x1b'), "no colour into a pipe: {table:?}");
    let (json, _) = texts(&director.ctl(&["pools", "--json"]));
    let parsed: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(parsed["pools"][0]["name"], "app");
    assert!(director.ctl(&["health"]).status.success());
    assert!(director.ctl(&["reload"]).status.success());

    let nobody = free_address().to_string();
    let output = evener(&["ctl", "--admin", &nobody, "pools"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(texts(&output).1.contains(&nobody), "{output:?}");
}

#[test]
fn health_fails_when_a_pool_has_no_node() {
    let address = free_address();
    let pool = "check = { tcp = true, interval = \"50ms\", fall = 1 }";
    let director = Director::start(&web_with(address, "", &[free_address()], pool));
    assert_eq!(director.admin("GET", "/healthz", "").status, 200, "the director itself is well");
    wait_until("ctl health to fail", || director.ctl(&["health"]).status.code() == Some(1));
}

#[test]
fn the_api_listens_on_a_unix_socket() {
    let node = nodes::named("a");
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("admin.sock");
    let listen = format!("unix:{}", socket.display());
    let address = free_address();
    let config = format!("[process]\nworkers = 1\n[admin]\nlisten = \"{listen}\"\n")
        + &web_with(address, "", &[node.address], "");
    let path = folder.path().join("evener.toml");
    std::fs::write(&path, config).expect("a file");
    let mut child = std::process::Command::new(evener_tests::director::program())
        .args(["run", "-c"])
        .arg(&path)
        .spawn()
        .expect("evener starts");
    wait_until("the socket", || UnixStream::connect(&socket).is_ok());
    let output = evener(&["ctl", "--admin", &listen, "pools", "--json"]);
    let _ = child.kill();
    let _ = child.wait();
    assert!(output.status.success() && texts(&output).0.contains("\"app\""), "{output:?}");
}

#[test]
fn nonsense_is_answered_with_an_error() {
    let (director, _address, _nodes) = start();
    for (method, path, status) in
        [("GET", "/nothing", 404), ("DELETE", "/pools", 405), ("GET", "/reload", 405)]
    {
        assert_eq!(director.admin(method, path, "").status, status, "{method} {path}");
    }
}
