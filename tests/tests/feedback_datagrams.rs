//! Reports in datagrams: to the director and to a group, and those that are spoofed, replayed or of another time.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

use evener_feedback::datagram::{Key, Sender};
use evener_feedback::json::Said;
use evener_tests::director::{Director, web_with};
use evener_tests::http::Client;
use evener_tests::nodes::{self, Node};
use evener_tests::{free_address, wait_until};
use tempfile::TempPath;

const KEY: &str = "a-secret-of-all-nodes";
const RAT: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 1);
const MOLE: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 2);

struct Stage {
    director: Director,
    web: SocketAddr,
    datagrams: SocketAddr,
    _nodes: [Node; 2],
    _keys: TempPath,
}

impl Stage {
    fn new(keys: &str, more: &str) -> Stage {
        let nodes = [nodes::named_on(RAT, "rat"), nodes::named_on(MOLE, "mole")];
        let (web, datagrams) = (free_address(), free_address());
        let file = tempfile::NamedTempFile::new().expect("a file of keys").into_temp_path();
        std::fs::write(&file, keys).expect("the file is written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("its mode");
        let addresses = [nodes[0].address, nodes[1].address];
        let config =
            format!(
                "[feedback]\nkeys = \"{}\"\ndatagrams = {{ listen = \"{datagrams}\"{more} }}\n",
                file.display()
            ) + &web_with(web, "", &addresses, "scheduler = \"round-robin\"\nreport_expiry = \"1m\"");
        Stage { director: Director::start(&config), web, datagrams, _nodes: nodes, _keys: file }
    }

    fn send(&self, from: Ipv4Addr, datagram: &[u8]) {
        let socket = UdpSocket::bind((from, 0)).expect("a socket");
        socket.send_to(datagram, self.datagrams).expect("it is sent");
    }

    fn wait_refused(&self, reason: &str, count: u64) {
        wait_until(&format!("{count} to be dropped: {reason}"), || {
            self.director.refused("datagram", reason) == count
        });
    }

    fn wait_health(&self, node: &str, health: f64) {
        wait_until("the report", || {
            self.director.said("app", node, "datagram", "health").is_some_and(|(said, _)| said == health)
        });
    }

    fn answers(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        let mut client = Client::connect(self.web).expect("the listener accepts");
        for _ in 0..10 {
            *counts.entry(client.get("/x").expect("an answer").text().to_owned()).or_default() += 1;
        }
        counts
    }
}

fn unix() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970")
}

fn sender(secret: &str, node: &str) -> Sender {
    Sender::new(Key::new(secret.as_bytes()), node).expect("a name")
}

fn health(sender: &mut Sender, now: Duration, health: u8) -> Vec<u8> {
    let mut datagram = Vec::new();
    let said = Said { health: Some(health), ..Said::default() };
    sender.write(now, &[said], &mut datagram).expect("it fits");
    datagram
}

#[test]
fn a_signed_datagram_counts_once_and_from_its_own_node() {
    let stage = Stage::new(&format!("all {KEY}\n"), "");
    let mut rat = sender(KEY, "n1");
    let none = health(&mut rat, unix(), 0);
    stage.send(RAT, &none);
    stage.wait_health("n1", 0.0);
    assert_eq!(stage.answers(), BTreeMap::from([("mole".into(), 10)]));
    let full = health(&mut rat, unix(), 100);
    stage.send(RAT, &full);
    stage.wait_health("n1", 100.0);
    // Recorded, and sent again.
    stage.send(RAT, &none);
    stage.wait_refused("replay", 1);
    // Signed with the key that all have, in another's name.
    stage.send(MOLE, &health(&mut rat, unix(), 0));
    stage.wait_refused("foreign", 1);
    // With a wrong key, with none, and as nonsense.
    stage.send(RAT, &health(&mut sender("another-secret-of-nobody", "n1"), unix(), 0));
    stage.wait_refused("key", 1);
    stage.send(RAT, b"{\"node\": \"n1\", \"health\": 0}");
    stage.send(RAT, &[0; 1500]);
    stage.wait_refused("form", 2);
    // Of clocks that are wrong.
    for skew in [-60, 60] {
        let now = Duration::from_secs((unix().as_secs() as i64 + skew) as u64);
        stage.send(RAT, &health(&mut sender(KEY, "n1"), now, 0));
    }
    stage.wait_refused("time", 2);
    assert_eq!(stage.answers().len(), 2);
}

#[test]
fn a_node_with_a_key_of_its_own_may_be_anywhere_and_speaks_of_no_other() {
    let stage = Stage::new("node:n1 the-secret-of-the-rat\n", "");
    stage.send(MOLE, &health(&mut sender("the-secret-of-the-rat", "n1"), unix(), 0));
    stage.wait_health("n1", 0.0);
    stage.send(MOLE, &health(&mut sender("the-secret-of-the-rat", "n2"), unix(), 0));
    stage.wait_refused("foreign", 1);
    assert_eq!(stage.answers(), BTreeMap::from([("mole".into(), 10)]));
}

#[test]
fn what_is_sent_to_the_group_is_heard() {
    let group = Ipv4Addr::new(239, 255, 32, 62);
    let stage = Stage::new(&format!("all {KEY}\n"), &format!(", group = \"{group}\""));
    let socket = UdpSocket::bind((RAT, 0)).expect("a socket");
    socket2::SockRef::from(&socket).set_multicast_if_v4(&Ipv4Addr::LOCALHOST).expect("the loopback");
    let mut rat = sender(KEY, "n1");
    let datagram = health(&mut rat, unix(), 0);
    socket.send_to(&datagram, (group, stage.datagrams.port())).expect("it is sent");
    stage.wait_health("n1", 0.0);
    // To the director alone, too.
    stage.send(RAT, &health(&mut rat, unix(), 100));
    stage.wait_health("n1", 100.0);
}
