//! Nodes that tell each other by datagrams.

mod support;

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

use evener_feedback::json;
use support::{SECRET, folder, get, secret_file, start, until};

fn node(name: &str, keys: &Path, datagrams: &str, jobs: u32) -> support::Running {
    start(&format!(
        "node = \"{name}\"\nkeys = {keys:?}\nlisten = \"127.0.0.1:0\"\ndatagrams = {{ {datagrams} }}\n\
         [[source]]\nprogram = {{ run = [\"/bin/echo\", \"jobs={jobs}\"] }}\n"
    ))
}

/// Names and jobs of all nodes that this one tells of.
async fn nodes(http: SocketAddr) -> Vec<(String, Option<u32>)> {
    let (status, body) = get(http, "/nodes").await;
    if status != 200 {
        return Vec::new();
    }
    let said = json::parse(body.as_bytes()).expect("reports");
    said.into_iter().map(|said| (said.node.expect("a name"), said.jobs)).collect()
}

fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").expect("bound").local_addr().expect("bound").port()
}

#[tokio::test]
async fn each_node_of_a_group_knows_all() {
    let folder = folder();
    let keys = secret_file(folder.path(), "keys", &format!("ours {SECRET}\n"));
    let port = free_port();
    let group = format!("to = [\"239.255.32.62:{port}\"], listen = \":{port}\", interface = \"127.0.0.1\"");
    let (rat, mole) = (node("rat", &keys, &group, 3), node("mole", &keys, &group, 5));
    let wanted = [("mole".to_owned(), Some(5)), ("rat".to_owned(), Some(3))];
    for agent in [&rat, &mole] {
        let http = agent.http.expect("it listens");
        until(|| nodes(http), |known| known == &wanted).await;
    }
    rat.end().await;
    mole.end().await;
}

#[tokio::test]
async fn what_another_key_signed_or_was_recorded_is_dropped_and_counted() {
    let folder = folder();
    let keys = secret_file(folder.path(), "keys", &format!("ours {SECRET}\n"));
    let other_keys = secret_file(folder.path(), "other", "other 0123456789abcdef-other\n");
    let rat = node("rat", &keys, "listen = \"127.0.0.1:0\"", 3);
    let (heard_at, http) = (rat.datagrams.expect("it hears"), rat.http.expect("it listens"));
    let stranger = node("stranger", &other_keys, &format!("to = [\"{heard_at}\"]"), 0);
    // What mole says is recorded on its way, and sent on twice.
    let way = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("bound");
    let on_the_way = way.local_addr().expect("bound");
    let mole = node("mole", &keys, &format!("to = [\"{on_the_way}\"]"), 5);
    let mut datagram = [0; 1500];
    let length = support::within(way.recv(&mut datagram)).await.expect("received");
    for _ in 0..2 {
        way.send_to(&datagram[..length], heard_at).await.expect("sent");
    }
    let counted = |body: &str| !body.contains("\"signature\":0,") && body.contains("\"replay\":1,");
    until(|| get(http, "/dropped"), |(status, body)| *status == 200 && counted(body)).await;
    let wanted = [("mole".to_owned(), Some(5)), ("rat".to_owned(), Some(3))];
    until(|| nodes(http), |known| known == &wanted).await;
    for agent in [rat, stranger, mole] {
        agent.end().await;
    }
}
