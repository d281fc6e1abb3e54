//! What the kernel answers about its virtual services: what it really said, what fuzzers found, and any bytes.

#[path = "../../../fuzz/src/ipvs.rs"]
#[allow(unreachable_pub, reason = "the fuzzers use it too")]
mod invariants;

#[path = "../../../fuzz/src/corpus.rs"]
#[allow(unreachable_pub, reason = "the tests of several crates use it")]
mod corpus;

use std::net::SocketAddr;
use std::num::NonZeroU32;

use evener_plane::ipvs::{
    Destination, Family, Forwarding, Service, Transport, VirtualService, WireError, message,
};
use proptest::prelude::*;

/// What Linux 6.1 sent.
macro_rules! said {
    ($name:literal) => {
        include_bytes!(concat!("../../../fuzz/corpus/ipvs/", $name))
    };
}

#[test]
fn answers_of_the_corpus() {
    corpus::replay("ipvs", 11, invariants::ipvs);
}

#[test]
fn a_kernel_names_its_family() {
    let mut family = None;
    assert_eq!(message::read_family(said!("family-0"), 1, &mut family), Ok(false));
    assert!(family.is_some_and(|family| family >= 0x10), "{family:?}");
    assert_eq!(message::read_family(said!("family-1"), 1, &mut family), Ok(true));
}

#[test]
fn a_kernel_lists_services() {
    let mut services = Vec::new();
    assert_eq!(message::read_services(said!("services-0"), 2, &mut services), Ok(false));
    assert_eq!(message::read_services(said!("services-1"), 2, &mut services), Ok(true));
    services.sort_by_key(|service| service.key);
    let told: Vec<_> =
        services.iter().map(|service| (service.key.to_string(), &*service.scheduler)).collect();
    assert_eq!(
        told,
        [
            ("tcp 10.0.0.1:80".to_owned(), "wrr"),
            ("udp [fd00::1]:53".to_owned(), "rr"),
            ("fwmark 7 (IPv6)".to_owned(), "rr")
        ]
    );
    let [tcp, udp, mark] = &services[..] else { panic!("three") };
    assert_eq!(tcp.stats.connections, 9);
    assert!(tcp.stats.bytes_in > 0 && tcp.stats.bytes_out > 0, "{tcp:?}");
    // Flags as `linux/ip_vs.h` has them: in the table 2, persistent 1, one packet 4.
    assert_eq!([tcp.flags, udp.flags, mark.flags], [2, 2 | 4, 2 | 1]);
    assert_eq!((mark.timeout_s, mark.netmask, tcp.netmask), (120, 128, u32::MAX));
}

#[test]
fn a_kernel_lists_destinations() {
    let mut destinations = Vec::new();
    let read = message::read_destinations(said!("destinations-0"), 3, Family::Ipv4, &mut destinations);
    assert_eq!(read, Ok(false));
    destinations.sort_by_key(|destination| destination.address);
    let [first, second, third] = &destinations[..] else { panic!("three: {destinations:?}") };
    let told =
        |it: &Destination| (it.address.to_string(), it.weight, it.way.forwarding(), it.stats.connections);
    assert_eq!(told(first), ("10.0.1.1:8000".to_owned(), 3, Some(Forwarding::Nat), 6));
    assert_eq!(told(second), ("10.0.1.2:8000".to_owned(), 1, Some(Forwarding::Nat), 3));
    // A tunnel that Evener does not make, and limits.
    assert_eq!(told(third), ("10.0.1.3:80".to_owned(), 0, None, 0));
    assert_eq!((third.connections_max, third.connections_resume), (50, 40));
    assert_eq!((first.active + second.active, first.inactive + second.inactive), (1, 8));
    let mut others = Vec::new();
    let read = message::read_destinations(said!("destinations6-0"), 4, Family::Ipv6, &mut others);
    assert_eq!(
        (read, others[0].address.to_string(), others[0].weight),
        (Ok(false), "[fd00::2]:53".to_owned(), 256)
    );
    assert_eq!(others.len(), 1);
}

#[test]
fn a_kernel_refuses_and_does() {
    const NO_SUCH_PROCESS: i32 = 3;
    const NO_ENTRY: i32 = 2;
    let refused = message::read_done(said!("refused-0"), 5);
    assert_eq!(refused, Err(WireError::Refused(NO_SUCH_PROCESS)), "it has no such service");
    assert_eq!(message::read_done(said!("done-0"), 6), Ok(true));
    assert_eq!(message::read_done(said!("unknown-0"), 7), Err(WireError::Refused(NO_ENTRY)));
}

#[test]
fn answers_to_others_are_passed_over() {
    let mut services = Vec::new();
    assert_eq!(message::read_services(said!("services-0"), 99, &mut services), Ok(false));
    assert_eq!(message::read_done(said!("refused-0"), 99), Ok(false));
    assert_eq!(services, []);
}

#[test]
fn a_list_that_was_interrupted_is_known() {
    let mut bytes = said!("services-1").to_vec();
    // NLM_F_DUMP_INTR, in the flags of the header.
    bytes[6] |= 0x10;
    assert_eq!(message::read_services(&bytes, 2, &mut Vec::new()), Err(WireError::Interrupted));
}

fn address() -> impl Strategy<Value = SocketAddr> {
    prop_oneof![
        any::<([u8; 4], u16)>().prop_map(SocketAddr::from),
        any::<([u8; 16], u16)>().prop_map(SocketAddr::from)
    ]
}

fn key() -> impl Strategy<Value = VirtualService> {
    let transport = prop_oneof![Just(Transport::Tcp), Just(Transport::Udp), Just(Transport::Sctp)];
    let family = prop_oneof![Just(Family::Ipv4), Just(Family::Ipv6)];
    prop_oneof![
        (transport, address())
            .prop_map(|(transport, address)| VirtualService::Address { transport, address }),
        (1u32.., family).prop_map(|(mark, family)| VirtualService::Mark {
            mark: NonZeroU32::new(mark).expect("from 1"),
            family
        }),
    ]
}

fn service() -> impl Strategy<Value = Service> {
    let name = || proptest::option::of("[a-z]{1,15}");
    (key(), "[a-z_0-9]{0,15}", any::<(u32, u32, u32)>(), name()).prop_map(
        |(key, scheduler, (flags, timeout_s, netmask), engine)| Service {
            flags,
            timeout_s,
            netmask,
            engine,
            ..Service::new(key, &scheduler)
        },
    )
}

fn destination() -> impl Strategy<Value = Destination> {
    const WAYS: [Forwarding; 4] = [Forwarding::Nat, Forwarding::Direct, Forwarding::Ipip, Forwarding::Gre];
    (address(), proptest::sample::select(&WAYS[..]), any::<[u32; 3]>()).prop_map(
        |(address, way, [weight, connections_max, connections_resume])| Destination {
            connections_max,
            connections_resume,
            ..Destination::new(address, way, weight)
        },
    )
}

proptest! {
    #[test]
    fn what_is_told_is_what_is_read(service in service(), destination in destination()) {
        invariants::service_survives(&service);
        invariants::destination_survives(&service, &destination);
    }

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        invariants::ipvs(&bytes);
    }

    #[test]
    fn real_answers_with_bytes_changed(
        which in 0usize..4,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let answers: [&[u8]; 4] =
            [said!("services-0"), said!("destinations-0"), said!("destinations6-0"), said!("family-0")];
        let mut bytes = answers[which].to_vec();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        invariants::ipvs(&bytes);
        bytes.truncate(cut.index(bytes.len()));
        invariants::ipvs(&bytes);
    }
}
