//! Nodes, clients and the ways between them, in a guest.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use rustix::fd::AsFd;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Runs a line of shell and gives what it printed.
///
/// # Panics
/// If it fails.
pub(crate) fn sh(line: &str) -> String {
    let output = Command::new("sh").args(["-c", line]).output().expect("there is a shell");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What `ipvsadm` says of services and destinations: words of a line separated by one space.
pub(crate) fn ipvsadm() -> Vec<String> {
    let table = sh("ipvsadm -L -n");
    // Three lines are its heading.
    table.lines().skip(3).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// An address of this machine for a node.
pub(crate) fn local(node: u8) -> (u8, SocketAddr) {
    sh(&format!("ip address add 10.0.1.{node}/32 dev lo"));
    (node, SocketAddr::from(([10, 0, 1, node], 8000)))
}

/// A node that says its number whenever it is asked.
pub(crate) struct Node {
    pub(crate) address: SocketAddr,
}

impl Node {
    pub(crate) fn listen((number, address): (u8, SocketAddr)) -> Node {
        let listener = TcpListener::bind(address).expect("its address is free");
        let name = number.to_string();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let name = name.clone();
                std::thread::spawn(move || answer(client, &name));
            }
        });
        Node { address }
    }
}

fn answer(mut client: TcpStream, name: &str) {
    let mut byte = [0];
    while client.read(&mut byte).is_ok_and(|length| length > 0) && client.write_all(name.as_bytes()).is_ok() {
    }
}

/// Connects to a virtual service.
pub(crate) fn connect(service: SocketAddr) -> TcpStream {
    let connection = TcpStream::connect_timeout(&service, Duration::from_secs(10)).expect("somebody accepts");
    connection.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
    connection
}

/// Asks the node behind a connection for its number.
pub(crate) fn say(connection: &mut TcpStream) -> Option<String> {
    let mut byte = [0];
    connection.write_all(b"?").and_then(|()| connection.read_exact(&mut byte)).ok()?;
    Some(char::from(byte[0]).to_string())
}

/// How many of so many connections each of three nodes got.
pub(crate) fn counts(service: SocketAddr, connections: usize) -> [usize; 3] {
    let mut counts = [0; 3];
    for _ in 0..connections {
        let name = say(&mut connect(service)).expect("it answers");
        counts[name.parse::<usize>().expect("a number") - 1] += 1;
    }
    counts
}

/// Answers datagrams with a number.
pub(crate) fn echo_datagrams(number: u8, address: SocketAddr) {
    let socket = UdpSocket::bind(address).expect("its address is free");
    std::thread::spawn(move || {
        let mut byte = [0];
        while let Ok((_, client)) = socket.recv_from(&mut byte) {
            let _ = socket.send_to(&[b'0' + number], client);
        }
    });
}

/// As [`counts`], of clients that send a datagram each.
pub(crate) fn datagram_counts(service: SocketAddr, clients: usize) -> [usize; 3] {
    let mut counts = [0; 3];
    for _ in 0..clients {
        let socket = UdpSocket::bind(("::", 0)).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
        let mut byte = [0];
        socket.send_to(b"?", service).and_then(|_| socket.recv(&mut byte)).expect("it answers");
        counts[usize::from(byte[0] - b'1')] += 1;
    }
    counts
}

/// A client and three nodes in namespaces of their own. The director, which is where the test runs, lies between them;
/// and each node has a link of its own to the client:
///
/// ```text
/// client ── director ─┬─ n1 ── client     direct: same link
///                     ├─ n2 ── client     IP in IP
///                     └─ n3 ── client     GRE
/// ```
pub(crate) struct Topology;

impl Topology {
    pub(crate) fn build() -> Topology {
        sh("/bin/ip netns add client && /bin/ip -n client link set lo up");
        // Packets for the service go on to nodes, and it is nobody's here.
        sh("echo 1 >/proc/sys/net/ipv4/ip_forward");
        link("", "toc", "10.2.0.1/24", "client", "todir", "10.2.0.2/24");
        sh("/bin/ip -n client route add 10.0.0.1/32 via 10.2.0.1");
        sh("ip address add 10.0.0.1/32 dev lo");
        for number in 1..=3u8 {
            let node = format!("n{number}");
            sh(&format!("/bin/ip netns add {node} && /bin/ip -n {node} link set lo up"));
            link(
                "",
                &format!("to{node}"),
                &format!("10.3.{number}.1/24"),
                &node,
                "todir",
                &format!("10.3.{number}.2/24"),
            );
            link(
                "client",
                &format!("to{node}"),
                &format!("10.4.{number}.1/24"),
                &node,
                "toclient",
                &format!("10.4.{number}.2/24"),
            );
            // Answers go to the client on the node's own link.
            sh(&format!("/bin/ip -n {node} route add 10.2.0.2/32 via 10.4.{number}.1"));
            sh(&format!("/bin/ip -n {node} address add 10.0.0.1/32 dev lo"));
            let address = SocketAddr::from(([10, 0, 0, 1], 80));
            within(&node, move || Node::listen((number, address)));
        }
        // Devices that unpack whatever tunnel ends here; their packets seem to come from nowhere.
        for (node, device) in [("n2", "tunl0"), ("n3", "gre0")] {
            sh(&format!("/bin/ip -n {node} link set {device} up"));
            sh(&format!(
                "/bin/ip netns exec {node} sh -c 'for f in all default {device}; do echo 0 >/proc/sys/net/ipv4/conf/$f/rp_filter; done'"
            ));
        }
        Topology
    }

    /// Where the nodes are.
    pub(crate) fn nodes(&self) -> [SocketAddr; 3] {
        [1, 2, 3].map(|number| SocketAddr::from(([10, 3, number, 2], 80)))
    }

    /// As [`counts`], from the client.
    pub(crate) fn counts_from_client(&self, service: SocketAddr, connections: usize) -> [usize; 3] {
        within("client", move || counts(service, connections))
    }
}

/// A link between two namespaces; the empty name is the test's own.
fn link(here: &str, name: &str, address: &str, there: &str, name_there: &str, address_there: &str) {
    let of = |space: &str| if space.is_empty() { String::new() } else { format!("-n {space} ") };
    sh(&format!("/bin/ip {}link add {name} type veth peer name {name_there} netns {there}", of(here)));
    for (space, name, address) in [(here, name, address), (there, name_there, address_there)] {
        let ip = format!("/bin/ip {}", of(space));
        sh(&format!("{ip} address add {address} dev {name} && {ip} link set {name} up"));
    }
}

/// Runs something in a namespace.
fn within<T: Send + 'static>(space: &str, body: impl FnOnce() -> T + Send + 'static) -> T {
    let path = format!("/run/netns/{space}");
    let thread = std::thread::spawn(move || {
        let file = std::fs::File::open(path).expect("the namespace is there");
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may");
        body()
    });
    thread.join().expect("it ends well")
}
