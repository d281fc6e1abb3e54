//! Reports that are posted as JSON: who may speak of whom, what is answered, and what traffic does.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

use evener_feedback::datagram::Key;
use evener_feedback::signature::{HEADER, Signer};
use evener_tests::agents::connect_from;
use evener_tests::director::{Director, web_with};
use evener_tests::http::{Client, Response};
use evener_tests::nodes::{self, Node};
use evener_tests::{free_address, wait_until};
use tempfile::TempPath;

const KEY: &str = "a-secret-of-all-nodes";
const RAT: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 1);
const MOLE: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 2);

struct Stage {
    director: Director,
    web: SocketAddr,
    http: SocketAddr,
    _nodes: [Node; 2],
    _keys: TempPath,
}

impl Stage {
    /// A director that takes reports of n1 (at [`RAT`]) and n2 (at [`MOLE`]), with these keys if there are any.
    fn new(keys: &str, pool: &str) -> Stage {
        let nodes = [nodes::named_on(RAT, "rat"), nodes::named_on(MOLE, "mole")];
        let (web, http) = (free_address(), free_address());
        let file = tempfile::NamedTempFile::new().expect("a file of keys").into_temp_path();
        std::fs::write(&file, keys).expect("the file is written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("its mode");
        let key_line =
            if keys.is_empty() { String::new() } else { format!("keys = \"{}\"\n", file.display()) };
        let pool = format!("scheduler = \"round-robin\"\n{pool}");
        let addresses = [nodes[0].address, nodes[1].address];
        let config =
            format!("[feedback]\nhttp = \"{http}\"\n{key_line}") + &web_with(web, "", &addresses, &pool);
        Stage { director: Director::start(&config), web, http, _nodes: nodes, _keys: file }
    }

    fn post(&self, from: impl Into<IpAddr>, headers: &str, body: &[u8]) -> Response {
        let mut client = Client::new(connect_from(self.http, from).expect("the director accepts"));
        let head =
            format!("POST /report HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
        client.send([head.as_bytes(), body].concat()).expect("it is sent");
        client.response().expect("an answer")
    }

    fn signed(&self, from: impl Into<IpAddr>, signer: &mut Signer, now: Duration, body: &str) -> Response {
        let header = format!("{HEADER}: {}\r\n", signer.sign(now, body.as_bytes()));
        self.post(from, &header, body.as_bytes())
    }

    fn answers(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        let mut client = Client::connect(self.web).expect("the listener accepts");
        for _ in 0..10 {
            *counts.entry(client.get("/x").expect("an answer").text().to_owned()).or_default() += 1;
        }
        counts
    }

    fn health(&self, node: &str) -> Option<f64> {
        self.director.said("app", node, "push", "health").map(|(health, _)| health)
    }
}

fn unix() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970")
}

fn signer(secret: &str, name: &str) -> Signer {
    Signer::new(Key::new(secret.as_bytes()), name).expect("a name")
}

#[test]
fn a_posted_report_takes_a_node_out_and_is_not_believed_for_ever() {
    let stage = Stage::new("", "report_expiry = \"1s\"");
    let answer = stage.post(RAT, "", br#"{"health": 0, "load": 1.5, "age_ms": 20}"#);
    assert_eq!((answer.status, answer.text()), (200, r#"{"taken":1}"#));
    let (load, age_ms) = stage.director.said("app", "n1", "push", "load").expect("it is shown");
    assert!((load - 1.5).abs() < 1e-6 && age_ms >= 20.0);
    assert_eq!(stage.answers(), BTreeMap::from([("mole".into(), 10)]));
    wait_until("the report to be old", || stage.answers().len() == 2);
    let stale = stage.post(RAT, "", br#"{"health": 0, "age_ms": 60000}"#);
    assert_eq!(stale.status, 200);
    assert_eq!(stage.answers().len(), 2, "what was measured a minute ago is not believed");
    assert_eq!(stage.director.refused("push", "stale"), 1);
}

#[test]
fn many_reports_come_at_once_and_each_is_answered_for() {
    let stage = Stage::new("", "");
    let list = br#"[{"node": "n1", "health": 40}, {"node": "n2", "health": 60}, {"node": "toad", "service": "tcp/1", "health": 0}]"#;
    let answer = stage.post(Ipv4Addr::LOCALHOST, "", list);
    assert_eq!(answer.status, 200);
    let outcome: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!((&outcome["taken"], &outcome["refused"][0]["report"]), (&2.into(), &2.into()));
    assert!(outcome["refused"][0]["error"].as_str().is_some_and(|error| error.contains("\"toad\"")));
    assert_eq!((stage.health("n1"), stage.health("n2")), (Some(40.0), Some(60.0)));
    assert_eq!(stage.director.refused("push", "unknown"), 1);
}

#[test]
fn what_is_wrong_is_said() {
    let stage = Stage::new("", "");
    let error = |answer: Response| {
        let said: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
        (answer.status, said["error"].as_str().expect("an error").to_owned())
    };
    let (status, what) = error(stage.post(RAT, "", b"{\"load\": }"));
    assert!(status == 400 && what.contains("line 1 column"), "{status}: {what}");
    let (status, what) = error(stage.post(RAT, "", b"{\"health\": 101}"));
    assert!(status == 400 && what.contains("health is out of its range"), "{status}: {what}");
    let (status, what) = error(stage.post(RAT, "", &vec![b' '; 300 * 1024]));
    assert!(status == 413 && what.contains("at most 262144 bytes"), "{status}: {what}");
    let (status, _) = error(stage.post(Ipv4Addr::new(127, 0, 9, 9), "", b"{\"load\": 1}"));
    assert_eq!(status, 404);
    let mut client = Client::connect(stage.http).expect("the director accepts");
    assert_eq!(client.get("/report").expect("an answer").status, 405);
    assert_eq!(client.get("/pools").expect("an answer").status, 404);
    let answer = stage.post(RAT, &format!("X: {}\r\n", "x".repeat(20_000)), b"{}");
    assert_eq!(answer.status, 431);
    assert_eq!(stage.answers().len(), 2);
}

#[test]
fn with_keys_what_is_not_signed_by_one_counts_for_nothing() {
    let stage = Stage::new(&format!("all {KEY}\n"), "");
    let body = r#"{"health": 0}"#;
    assert_eq!(stage.post(RAT, "", body.as_bytes()).status, 401);
    let mut stranger = signer("another-secret-of-nobody", "n1");
    assert_eq!(stage.signed(RAT, &mut stranger, unix(), body).status, 401);
    assert_eq!(stage.answers().len(), 2);
    let mut rat = signer(KEY, "n1");
    // Skewed beyond the window, behind and ahead, and within it.
    for (skew, status) in [(-60, 401), (60, 401), (20, 200)] {
        let now = Duration::from_secs((unix().as_secs() as i64 + skew) as u64);
        assert_eq!(stage.signed(RAT, &mut signer(KEY, "n1"), now, body).status, status, "{skew} s");
    }
    assert_eq!(stage.answers(), BTreeMap::from([("mole".into(), 10)]));
    assert_eq!(stage.director.refused("push", "time"), 2);
    assert_eq!(stage.director.refused("push", "key"), 2);
    let answer = stage.signed(RAT, &mut rat, unix(), r#"{"health": 100}"#);
    assert_eq!(answer.status, 401, "older than the last: {}", answer.text());
}

#[test]
fn a_recording_is_of_no_use() {
    let stage = Stage::new(&format!("all {KEY}\n"), "");
    let mut rat = signer(KEY, "n1");
    let body = br#"{"health": 0}"#;
    let header = format!("{HEADER}: {}\r\n", rat.sign(unix(), body));
    assert_eq!(stage.post(RAT, &header, body).status, 200);
    assert_eq!(stage.signed(RAT, &mut rat, unix(), r#"{"health": 100}"#).status, 200);
    assert_eq!(stage.answers().len(), 2);
    let again = stage.post(RAT, &header, body);
    assert_eq!(again.status, 401, "{}", again.text());
    assert_eq!(stage.answers().len(), 2);
    assert_eq!(stage.director.refused("push", "replay"), 1);
    // Nor after a reload of the same keys.
    assert_eq!(stage.director.reload().status, 200);
    assert_eq!(stage.post(RAT, &header, body).status, 401);
}

#[test]
fn a_key_of_one_node_speaks_for_that_node_alone() {
    let stage = Stage::new("node:n1 the-secret-of-the-rat\n", "");
    let mut rat = signer("the-secret-of-the-rat", "n1");
    let other = stage.signed(RAT, &mut rat, unix(), r#"{"node": "n2", "health": 0}"#);
    assert_eq!(other.status, 403, "{}", other.text());
    assert_eq!(stage.signed(MOLE, &mut rat, unix(), r#"{"health": 55}"#).status, 200);
    assert_eq!((stage.health("n1"), stage.health("n2")), (Some(55.0), None));
    assert_eq!(stage.director.refused("push", "foreign"), 1);
    // On this machine the secret itself will do.
    let bearer = "Authorization: Bearer the-secret-of-the-rat\r\n";
    assert_eq!(stage.post(RAT, bearer, br#"{"node": "n1", "health": 0}"#).status, 200);
    assert_eq!(stage.answers(), BTreeMap::from([("mole".into(), 10)]));
}
