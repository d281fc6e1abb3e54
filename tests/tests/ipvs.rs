//! Linux Virtual Server as `evener_plane::ipvs` steers it, in a kernel of its own.
//!
//! What was done is seen by three witnesses: what the kernel says to us, what it says to `ipvsadm`, and where connections
//! arrive.
#![cfg(target_arch = "x86_64")]

use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU32;
use std::process::Command;
use std::time::Duration;

use evener_model::Time;
use evener_plane::ipvs::{
    Cause, Changes, Family, Forwarding, Ipvs, IpvsError, Step, Transport, VirtualService, Wanted,
    WantedDestination, WantedService,
};
use evener_tests::guest::network::{
    Node, build_direct, connect, counts, counts_from_client, datagram_counts, echo_datagrams, ipvsadm, local,
    say, sh, virtual_address as vip,
};
use evener_tests::guest::{Guest, IPVS, scenario};
use evener_tests::{wait_for, wait_until};
use rustix::thread::{
    CapabilitySet, CapabilitySets, Uid, set_capabilities, set_keep_capabilities, set_thread_res_uid,
};
use socket2::{Domain, Socket, Type};

fn in_guest(body: impl FnOnce()) {
    let modules: Vec<_> =
        IPVS.into_iter().chain(["veth", "tunnel4", "ip_tunnel", "ipip", "gre", "ip_gre"]).collect();
    scenario(|| Guest::new(&modules), body);
}

fn tcp(address: SocketAddr) -> VirtualService {
    VirtualService::Address { transport: Transport::Tcp, address }
}

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

fn by(forwarding: Forwarding) -> impl Fn((SocketAddr, u32)) -> WantedDestination {
    move |(address, weight)| WantedDestination { address, forwarding, weight }
}

/// A service by NAT.
fn wanted(service: VirtualService, scheduler: &str, nodes: &[(SocketAddr, u32)]) -> Wanted {
    let destinations = nodes.iter().copied().map(by(Forwarding::Nat)).collect();
    only(WantedService::new(service, scheduler, destinations).expect("it can be wanted"))
}

fn only(service: WantedService) -> Wanted {
    Wanted::new(vec![service]).expect("one service")
}

fn apply(ipvs: &mut Ipvs, seconds: u64, wanted: &Wanted) -> Changes {
    let changes = ipvs.apply(at(seconds), wanted).expect("the kernel is there");
    let failed: Vec<_> =
        changes.failed.iter().map(|failure| format!("{}: {}", failure.change, failure.error)).collect();
    assert!(failed.is_empty(), "{:#?}", &failed[..failed.len().min(5)]);
    changes
}

/// What was changed, as text.
fn texts(changes: &Changes) -> Vec<String> {
    let service = tcp(vip()).to_string() + ": ";
    changes.done.iter().map(|change| change.to_string().replace(&service, "")).collect()
}

#[test]
fn without_modules_the_error_names_the_remedy() {
    in_guest(|| {
        let error = Ipvs::open().expect_err("this kernel has no IPVS");
        assert!(matches!(error, IpvsError::Missing), "{error:?}");
        assert!(error.to_string().contains("modprobe ip_vs"), "{error}");
    });
}

#[test]
fn without_privileges_the_error_names_the_remedy() {
    in_guest(|| {
        become_nobody_with(CapabilitySet::NET_BIND_SERVICE);
        let error = Ipvs::open().expect_err("nobody may not");
        assert!(matches!(error, IpvsError::Denied), "{error:?}");
        assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
    });
}

#[test]
fn one_capability_is_enough() {
    in_guest(|| {
        become_nobody_with(CapabilitySet::NET_ADMIN);
        let mut ipvs = Ipvs::open().expect("it is allowed");
        let node = SocketAddr::from(([10, 0, 1, 1], 80));
        assert_eq!(apply(&mut ipvs, 0, &wanted(tcp(vip()), "rr", &[(node, 1)])).done.len(), 2);
    });
}

/// Makes this thread, and it alone, a user who has nothing of root's but this.
fn become_nobody_with(capability: CapabilitySet) {
    let nobody = Uid::from_raw(65534);
    set_keep_capabilities(true).expect("root may");
    set_thread_res_uid(nobody, nobody, nobody).expect("root may");
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: capability, permitted: capability, inheritable: none };
    set_capabilities(None, sets).expect("fewer are always possible");
}

#[test]
fn without_its_scheduler_a_service_fails_alone() {
    in_guest(|| {
        let mut ipvs = Ipvs::open().expect("there is IPVS");
        let other = tcp(SocketAddr::from(([10, 0, 0, 2], 80)));
        let node = SocketAddr::from(([10, 0, 1, 1], 80));
        let service = |key, scheduler| {
            WantedService::new(key, scheduler, vec![by(Forwarding::Nat)((node, 1))]).expect("wanted")
        };
        let both = Wanted::new(vec![service(tcp(vip()), "sed"), service(other, "rr")]).expect("two");
        let changes = ipvs.apply(at(0), &both).expect("the kernel is there");
        let [failure] = &changes.failed[..] else { panic!("{changes:?}") };
        assert!(matches!(&failure.error, IpvsError::NoScheduler(name) if name == "sed"), "{failure:?}");
        assert!(failure.error.to_string().contains("modprobe ip_vs_sed"), "{failure:?}");
        assert_eq!(ipvsadm(), ["TCP 10.0.0.2:80 rr", "-> 10.0.1.1:80 Masq 1 0 0"]);
    });
}

#[test]
fn ipvsadm_sees_what_is_wanted_and_nothing_is_done_twice() {
    in_guest(|| {
        let mut ipvs = Ipvs::open().expect("there is IPVS");
        let address = |last| SocketAddr::from(([10, 0, 1, last], 80));
        let ways = [Forwarding::Nat, Forwarding::Direct, Forwarding::Ipip, Forwarding::Gre];
        let destinations = (1..).zip(ways).map(|(last, way)| by(way)((address(last), u32::from(last) * 10)));
        let service = WantedService::new(tcp(vip()), "wrr", destinations.collect()).expect("wanted");
        let mark = NonZeroU32::new(7).expect("not 0");
        let other = |last: u16| SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, last], 53));
        let key = VirtualService::Address { transport: Transport::Udp, address: other(1) };
        let udp = WantedService::new(key, "rr", vec![by(Forwarding::Nat)((other(2), 256))]).expect("wanted");
        let key = VirtualService::Mark { mark, family: Family::Ipv4 };
        let marked =
            WantedService::new(key, "wlc", vec![by(Forwarding::Direct)((address(9), 1))]).expect("wanted");
        let all = Wanted::new(vec![service, udp, marked]).expect("three");
        assert_eq!(apply(&mut ipvs, 0, &all).done.len(), 3 + 6);
        let mut seen = ipvsadm();
        seen.sort();
        assert_eq!(
            seen,
            [
                "-> 10.0.1.1:80 Masq 10 0 0",
                "-> 10.0.1.2:80 Route 20 0 0",
                "-> 10.0.1.3:80 Tunnel 30 0 0",
                "-> 10.0.1.4:80 Tunnel 40 0 0",
                "-> 10.0.1.9:80 Route 1 0 0",
                "-> [fd00::2]:53 Masq 256 0 0",
                "FWM 7 wlc",
                "TCP 10.0.0.1:80 wrr",
                "UDP [fd00::1]:53 rr",
            ]
        );
        let tunnels = sh("ipvsadm -L -n --tun-info");
        assert!(tunnels.contains("gre") && tunnels.contains("ipip"), "{tunnels}");
        let table = std::fs::read_to_string("/proc/net/ip_vs").expect("the kernel's own table");
        assert!(
            table.contains("TCP  0A000001:0050 wrr") && table.contains("0A000102:0050      Route   20"),
            "{table}"
        );
        assert_eq!(apply(&mut ipvs, 1, &all).done, []);
        // A director that comes after us finds all as it is.
        let mut successor = Ipvs::open().expect("there is IPVS");
        assert_eq!(apply(&mut successor, 0, &Wanted::default()).done, [], "they are nothing to it");
        assert_eq!(apply(&mut successor, 0, &all).done, []);
    });
}

#[test]
fn connections_follow_the_weights() {
    in_guest(|| {
        let nodes: Vec<_> = (1..=3).map(|node| Node::listen(local(node))).collect();
        let [a, b, c] = [nodes[0].address, nodes[1].address, nodes[2].address];
        sh("ip address add 10.0.0.1/32 dev lo");
        let mut ipvs = Ipvs::open().expect("there is IPVS");
        apply(&mut ipvs, 0, &wanted(tcp(vip()), "wrr", &[(a, 3), (b, 1), (c, 0)]));
        assert_eq!(counts(vip(), 40), [30, 10, 0]);
        let edits = apply(&mut ipvs, 1, &wanted(tcp(vip()), "wrr", &[(a, 1), (b, 1), (c, 2)]));
        assert_eq!(edits.done.len(), 2, "{edits:?}");
        assert!(edits.done.iter().all(|change| matches!(change.step, Step::Edit(_))), "{edits:?}");
        assert_eq!(counts(vip(), 40), [10, 10, 20]);
        // The kernel sums its figures up every two seconds.
        let told = wait_for("the kernel's figures", || {
            let told = ipvs.destinations(tcp(vip())).expect("told");
            (told.iter().map(|node| node.stats.connections).sum::<u64>() == 80).then_some(told)
        });
        let connections =
            |address| told.iter().find(|node| node.address == address).map(|it| it.stats.connections);
        assert_eq!([a, b, c].map(connections), [Some(40), Some(20), Some(20)]);
        assert!(told.iter().all(|node| node.stats.bytes_out > 0 && node.stats.packets_in > 0), "{told:?}");
        // The scheduler changes, and connections go on.
        let mut held = connect(vip());
        let changes = apply(&mut ipvs, 2, &wanted(tcp(vip()), "wlc", &[(a, 1), (b, 1), (c, 2)]));
        assert_eq!(texts(&changes), ["scheduler wlc"]);
        assert!(say(&mut held).is_some());
    });
}

#[test]
fn ipv6_and_udp_are_carried_too() {
    in_guest(|| {
        let address = |last: u16, port| SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, last], port));
        for last in [1, 0x11, 0x12] {
            sh(&format!("ip -6 address add fd00::{last:x}/128 dev lo"));
        }
        let nodes = [0x11, 0x12].map(|last| address(last, 8000));
        for (number, node) in (1..).zip(nodes) {
            // An address is not ours before the kernel has looked for others that have it.
            wait_until("the address", || TcpListener::bind(node).is_ok());
            Node::listen((number, node));
            echo_datagrams(number, node);
        }
        let mut ipvs = Ipvs::open().expect("there is IPVS");
        let vip = address(1, 80);
        let service = |transport| {
            let destinations = nodes.map(|node| by(Forwarding::Nat)((node, 1))).to_vec();
            let key = VirtualService::Address { transport, address: vip };
            WantedService::new(key, "rr", destinations).expect("wanted")
        };
        let both = Wanted::new(vec![service(Transport::Tcp), service(Transport::Udp)]).expect("two");
        apply(&mut ipvs, 0, &both);
        assert_eq!(counts(vip, 10), [5, 5, 0]);
        assert_eq!(datagram_counts(vip, 10), [5, 5, 0]);
        // What has no end is active until it times out; the kernel says so.
        let udp = ipvs.destinations(VirtualService::Address { transport: Transport::Udp, address: vip });
        assert_eq!(udp.expect("told").iter().map(|node| node.active + node.inactive).sum::<u32>(), 10);
    });
}

#[test]
fn what_is_marked_is_one_service_whatever_its_port() {
    in_guest(|| {
        let nodes = [1, 2].map(|node| Node::listen(local(node)).address);
        sh("ip address add 10.0.0.1/32 dev lo");
        let mark = NonZeroU32::new(7).expect("not 0");
        let key = VirtualService::Mark { mark, family: Family::Ipv4 };
        let mut ipvs = Ipvs::open().expect("there is IPVS");
        apply(&mut ipvs, 0, &wanted(key, "rr", &nodes.map(|node| (node, 1))));
        let mut names = [81, 82, 83, 84].map(|port| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            // What a firewall would do to packets that come in.
            socket.set_mark(mark.get()).expect("root may");
            socket.connect(&SocketAddr::new(vip().ip(), port).into()).expect("somebody accepts");
            say(&mut socket.into()).expect("an answer")
        });
        names.sort();
        assert_eq!(names, ["1", "1", "2", "2"]);
    });
}

#[test]
fn quiesced_nodes_keep_their_connections() {
    in_guest(|| {
        let nodes: Vec<_> = (1..=2).map(|node| Node::listen(local(node))).collect();
        let [a, b] = [nodes[0].address, nodes[1].address];
        sh("ip address add 10.0.0.1/32 dev lo");
        let mut ipvs = Ipvs::open().expect("there is IPVS");
        apply(&mut ipvs, 0, &wanted(tcp(vip()), "rr", &[(a, 1), (b, 1)]));
        let mut held: Vec<_> = (0..4).map(|_| connect(vip())).collect();
        let names: Vec<_> = held.iter_mut().map(|connection| say(connection).expect("it answers")).collect();
        assert_eq!(names.iter().filter(|name| *name == "2").count(), 2, "{names:?}");

        // Health 0: it stays, without new connections.
        apply(&mut ipvs, 1, &wanted(tcp(vip()), "rr", &[(a, 1), (b, 0)]));
        assert_eq!(counts(vip(), 10)[..2], [10, 0]);
        for (connection, name) in held.iter_mut().zip(&names) {
            assert_eq!(say(connection).as_ref(), Some(name));
        }

        // STOP: it leaves, and is there until its connections have ended.
        let one = wanted(tcp(vip()), "rr", &[(a, 1)]);
        let changes = apply(&mut ipvs, 2, &one);
        assert_eq!((changes.done.len(), changes.leaving), (0, 1), "{changes:?}");
        for (connection, name) in held.iter_mut().zip(&names) {
            assert_eq!(say(connection).as_ref(), Some(name));
        }
        assert_eq!(apply(&mut ipvs, 3, &one).leaving, 1);
        held.retain_mut(|connection| say(connection).as_deref() == Some("1"));
        wait_until("the kernel to see that its connections have ended", || {
            let told = ipvs.destinations(tcp(vip())).expect("told");
            told.iter().any(|node| node.address == b && node.active == 0)
        });
        let changes = apply(&mut ipvs, 4, &one);
        assert_eq!(texts(&changes), [format!("delete {b}")]);
        assert_eq!(changes.leaving, 0);
        assert!(held.iter_mut().all(|connection| say(connection).is_some()), "others go on");

        // The last one, too, but its connections do not end: after the time for that it goes nevertheless.
        let none = wanted(tcp(vip()), "rr", &[]);
        assert_eq!(texts(&apply(&mut ipvs, 5, &none)), [format!("quiesce {a}")]);
        let last = 5 + WantedService::DRAIN_TIMEOUT.as_secs();
        assert_eq!(apply(&mut ipvs, last - 1, &none).leaving, 1);
        assert_eq!(texts(&apply(&mut ipvs, last, &none)), [format!("delete {a}")]);
    });
}

#[test]
fn a_module_that_is_loaded_anew_is_found() {
    in_guest(|| {
        let mut ipvs = Ipvs::open().expect("there is IPVS");
        let node = SocketAddr::from(([10, 0, 1, 1], 80));
        let one = wanted(tcp(vip()), "rr", &[(node, 1)]);
        apply(&mut ipvs, 0, &one);
        sh("ipvsadm -C");
        let modules = "ip_vs_rr ip_vs_wrr ip_vs_wlc ip_vs";
        // Namespaces of scenarios before this one go in their own time, with what they had.
        wait_until("the module to be free", || {
            modules.split(' ').for_each(|module| drop(Command::new("rmmod").arg(module).output()));
            !std::fs::read_to_string("/proc/modules").expect("there are modules").contains("ip_vs")
        });
        let error = ipvs.apply(at(1), &one).expect_err("it is gone");
        assert!(matches!(error, IpvsError::Missing), "{error:?}");
        for module in modules.split(' ').rev() {
            sh(&format!("insmod /mod/{module}.ko"));
        }
        let texts = texts(&apply(&mut ipvs, 2, &one));
        let again = ["add with rr", "add 10.0.1.1:80 weight 1"]
            .map(|text| text.to_owned() + " (another had changed it)");
        assert_eq!(texts, again);
        assert_eq!(ipvsadm(), ["TCP 10.0.0.1:80 rr", "-> 10.0.1.1:80 Masq 1 0 0"]);
    });
}

#[test]
fn what_an_operator_changes_is_corrected_and_foreign_services_stay() {
    in_guest(|| {
        let mut ipvs = Ipvs::open().expect("there is IPVS");
        let [a, b] = [1, 2].map(|last| SocketAddr::from(([10, 0, 1, last], 80)));
        sh("ipvsadm -A -t 10.9.9.9:99 -s rr && ipvsadm -a -t 10.9.9.9:99 -r 10.9.9.1:99 -m -w 3");
        // Persistence and limits are the operator's from the beginning.
        sh(
            "ipvsadm -A -t 10.0.0.1:80 -s rr -p 120 && ipvsadm -a -t 10.0.0.1:80 -r 10.0.1.1:80 -m -w 1 -x 50 -y 40",
        );
        let both = wanted(tcp(vip()), "wrr", &[(a, 2), (b, 5)]);
        let changes = apply(&mut ipvs, 0, &both);
        assert!(changes.done.iter().all(|change| change.cause == Cause::Wanted), "{changes:?}");
        let foreign = ["TCP 10.9.9.9:99 rr", "-> 10.9.9.1:99 Masq 3 0 0"];
        let expected = || {
            let seen = ipvsadm();
            assert!(foreign.iter().all(|line| seen.iter().any(|seen| seen == line)), "{seen:?}");
            let mut seen: Vec<_> =
                seen.into_iter().filter(|line| !foreign.contains(&line.as_str())).collect();
            seen.sort();
            assert_eq!(
                seen,
                [
                    "-> 10.0.1.1:80 Masq 2 0 0",
                    "-> 10.0.1.2:80 Masq 5 0 0",
                    "TCP 10.0.0.1:80 wrr persistent 120"
                ]
            );
            let limits = sh("ipvsadm -L -n --thresholds");
            assert!(
                limits.lines().any(|line| line.contains("10.0.1.1:80") && line.contains("50")),
                "{limits}"
            );
        };
        expected();
        let hands = [
            ("ipvsadm -e -t 10.0.0.1:80 -r 10.0.1.2:80 -m -w 77", "edit 10.0.1.2:80 weight 5"),
            ("ipvsadm -e -t 10.0.0.1:80 -r 10.0.1.2:80 -g -w 5", "edit 10.0.1.2:80 weight 5"),
            ("ipvsadm -d -t 10.0.0.1:80 -r 10.0.1.2:80", "add 10.0.1.2:80 weight 5"),
            ("ipvsadm -E -t 10.0.0.1:80 -s rr -p 120", "scheduler wrr"),
        ];
        for (second, (by_hand, correction)) in (1..).zip(hands) {
            sh(by_hand);
            let changes = apply(&mut ipvs, second, &both);
            assert_eq!(texts(&changes), [format!("{correction} (another had changed it)")], "{by_hand}");
            expected();
        }
        // A node that nobody wants leaves as any other.
        sh("ipvsadm -a -t 10.0.0.1:80 -r 10.0.1.3:80 -m -w 1");
        assert_eq!(texts(&apply(&mut ipvs, 10, &both)), ["quiesce 10.0.1.3:80"]);
        assert_eq!(texts(&apply(&mut ipvs, 12, &both)), ["delete 10.0.1.3:80"]);
        expected();
        // All of it.
        sh("ipvsadm -D -t 10.0.0.1:80");
        assert_eq!(apply(&mut ipvs, 13, &both).done.len(), 3);

        // No longer wanted: it drains and goes, and the foreign one is there yet.
        for second in [20, 22, 23] {
            apply(&mut ipvs, second, &Wanted::default());
        }
        assert_eq!(ipvsadm(), foreign);
    });
}

#[test]
fn answers_of_direct_routing_and_tunnels_do_not_come_back_this_way() {
    in_guest(|| {
        let [direct, ipip, gre] = build_direct();
        let mut ipvs = Ipvs::open().expect("there is IPVS");
        let ways = [(direct, Forwarding::Direct), (ipip, Forwarding::Ipip), (gre, Forwarding::Gre)];
        let destinations = ways.map(|(address, way)| by(way)((address, 1))).to_vec();
        apply(&mut ipvs, 0, &only(WantedService::new(tcp(vip()), "rr", destinations).expect("wanted")));
        assert_eq!(counts_from_client(12), [4, 4, 4]);
        let told = wait_for("the kernel's figures", || {
            let told = ipvs.destinations(tcp(vip())).expect("told");
            told.iter().all(|node| node.stats.connections == 4).then_some(told)
        });
        for node in told {
            assert!(node.stats.bytes_in > 0 && node.stats.bytes_out == 0, "{node:?}");
        }
    });
}

#[test]
fn hundreds_of_nodes_take_several_datagrams() {
    in_guest(|| {
        let mut ipvs = Ipvs::open().expect("there is IPVS");
        let address = |node: u16| SocketAddr::from(([10, 1, (node / 250) as u8, (node % 250) as u8 + 1], 80));
        let nodes: Vec<_> = (0..1000).map(|node| (address(node), u32::from(node % 256) + 1)).collect();
        let all = wanted(tcp(vip()), "wlc", &nodes);
        assert_eq!(apply(&mut ipvs, 0, &all).done.len(), 1001);
        assert_eq!(ipvs.destinations(tcp(vip())).expect("told").len(), 1000);
        assert_eq!(apply(&mut ipvs, 1, &all).done, []);
        assert_eq!(ipvsadm().len(), 1001);
    });
}
