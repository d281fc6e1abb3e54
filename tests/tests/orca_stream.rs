//! Nodes that say how they are in a gRPC stream: real servers of gRPC's own library, in Go.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::{net::TcpStream, path::PathBuf};

use evener_tests::director::{Director, web_with};
use evener_tests::nodes;
use evener_tests::{cache, checkout, free_address, wait_until};

/// The path of the server, built once.
fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = cache().join("orca-node");
        let mut go = Command::new("go");
        go.current_dir(checkout().join("tests/clients/orca")).args(["build", "-o"]).arg(&program).arg(".");
        let built = go.envs([("GOFLAGS", "-mod=mod"), ("GOTOOLCHAIN", "local")]).output().expect("go runs");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        program
    })
}

/// A gRPC server that says how it is; ends with the value.
struct OrcaNode {
    child: Child,
}

impl OrcaNode {
    fn start(address: SocketAddr, arguments: &[&str]) -> OrcaNode {
        let mut command = Command::new(program());
        let child = command.arg(address.to_string()).args(arguments).stdin(Stdio::piped()).spawn();
        let node = OrcaNode { child: child.expect("the server starts") };
        wait_until("the server to listen", || TcpStream::connect(address).is_ok());
        node
    }
}

impl Drop for OrcaNode {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(stream: SocketAddr, lines: &str) -> (Director, nodes::Node) {
    let node = nodes::named("rat");
    let pool = format!(
        "feedback = {{ orca_stream = {{ port = {}, interval = \"50ms\" }} }}\n{lines}",
        stream.port()
    );
    (Director::start(&web_with(free_address(), "", &[node.address], &pool)), node)
}

/// The load that the node said, as the director shows it.
fn load(director: &Director) -> Option<f64> {
    let node = director.node("app", "n1");
    let mut signals = node["signals"].as_array().expect("signals").iter();
    let said = signals.find(|signal| signal["source"] == "orca" && signal["name"] == "reported_load")?;
    said["value"].as_f64()
}

#[test]
fn what_grpcs_own_service_says_is_known_and_again_after_it_was_away() {
    let address = free_address();
    let server = OrcaNode::start(address, &["0.25"]);
    let (director, _node) = start(address, "report_expiry = \"2s\"");
    wait_until("the load to be known", || load(&director) == Some(0.25));
    drop(server);
    wait_until("the load to be forgotten", || load(&director).is_none());
    let _server = OrcaNode::start(address, &["0.75"]);
    wait_until("the load to be known", || load(&director) == Some(0.75));
}

#[test]
fn each_report_of_a_stream_counts() {
    let address = free_address();
    let _server = OrcaNode::start(address, &["0.1", "20ms"]);
    let (director, _node) = start(address, "");
    let reached = |least| load(&director).is_some_and(|load| load >= least);
    wait_until("ten reports", || reached(0.2));
    // Each has been a hundredth above the last.
    let metrics = director.admin("GET", "/metrics", "");
    let page = evener_tests::prometheus::parse(metrics.text()).expect("a page of metrics");
    assert!(page["evener_reports_total"].sum(&[("source", "orca")]) >= 10.0);
}

#[test]
fn a_node_without_such_a_stream_is_left_as_it_is() {
    // It speaks HTTP/1.1 and nothing else.
    let other = nodes::named("mole");
    let (director, node) = start(other.address, "");
    wait_until("the director to give up", || director.stderr().contains("does not say in a stream"));
    assert_eq!(load(&director), None);
    assert_eq!(director.node("app", "n1")["state"], "up");
    drop(node);
}
