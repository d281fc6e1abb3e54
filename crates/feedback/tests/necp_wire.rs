//! NECP messages as bytes.

use std::net::Ipv4Addr;

use evener_feedback::necp::frame::{self, HEADER_BYTES, MESSAGE_BYTES_MAX, UNITS_MAX};
use evener_feedback::necp::{
    Exception, Fault, Flags, Flows, Forwarding, Frame, Key, Malformed, Opcode, Port, Prefix, Protocol, Query,
    QueryType, Scope, Service, Unit,
};
use proptest::prelude::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

fn zeros(bytes: usize) -> String {
    "00".repeat(bytes)
}

fn parse(bytes: &[u8]) -> Frame<'_> {
    Frame::parse(bytes).expect("a message").expect("all of it")
}

const HTTP: Port = Port { protocol: Protocol::Tcp, number: 80 };

#[test]
fn init() {
    let bytes = hex(&format!("414a0001 01010001 0000000000000000 00000020 {}", zeros(32)));
    let init = parse(&bytes);
    assert_eq!((init.header.flags, init.header.request_id), (Flags::BASIC_PAYLOAD, 1));
    let (opcode, units) = init.message().unwrap();
    assert_eq!(opcode, Opcode::Init);
    assert_eq!(units.collect::<Vec<_>>(), [Unit::default()]);
    let mut out = Vec::new();
    frame::write(&mut out, Opcode::Init, Flags::NONE, 1, None, [Unit::default()]);
    assert_eq!(out, bytes);
}

#[test]
fn keepalive_ack() {
    let bytes = hex(&format!(
        "414a0001 01040002 0000000000000000 00000020  00000001 00000006 00000050 0000004b {}",
        zeros(16)
    ));
    let (opcode, mut units) = parse(&bytes).message().unwrap();
    assert_eq!(opcode, Opcode::KeepaliveAck);
    let unit = units.next().unwrap();
    let health = Query { kind: QueryType::HEALTH, port: HTTP };
    assert_eq!((Query::from_unit(unit), unit.0[3]), (Some(health), 75));
    let mut out = Vec::new();
    frame::write(&mut out, Opcode::KeepaliveAck, Flags::NONE, 2, None, [health.answer_unit(75)]);
    assert_eq!(out, bytes);
}

#[test]
fn a_credential_is_counted_before_it_is_made() {
    let bytes = hex(&format!(
        "414a0003 01050007 0000000000000009 00000034  00000003 00000006 00000050 {} \
         4b0308e07da9a0a85b351b1d7fddb0d17ea60e2f",
        zeros(20)
    ));
    let key = Key::new(b"secret");
    let service = Service { forwarding: Forwarding::Layer3, port: HTTP };
    let mut out = Vec::new();
    frame::write(&mut out, Opcode::Start, Flags::NONE, 7, Some((&key, 9)), [service.unit()]);
    assert_eq!(out, bytes);
    assert!(parse(&out).is_signed_by(&key));
    assert!(!parse(&out).is_signed_by(&Key::new(b"Secret")));
    assert_eq!(parse(&out).message().unwrap().1.next().and_then(Service::from_unit), Some(service));
    for at in 0..out.len() {
        let mut changed = out.clone();
        changed[at] ^= 1;
        if let Ok(Some(frame)) = Frame::parse(&changed) {
            assert!(!frame.is_signed_by(&key), "byte {at} is not covered");
        }
    }
}

#[test]
fn an_acknowledgement_has_no_payload() {
    let mut out = Vec::new();
    frame::write(&mut out, Opcode::StartAck, Flags::NONE, 7, None, []);
    assert_eq!(out, hex("414a0000 01060007 0000000000000000 00000000"));
    out.clear();
    let key = Key::new(b"secret");
    frame::write(&mut out, Opcode::StartAck, Flags::NONE, 7, Some((&key, 1)), []);
    assert_eq!(out[..HEADER_BYTES], hex("414a0002 01060007 0000000000000001 00000014"));
    assert_eq!(out.len(), HEADER_BYTES + 20);
}

#[test]
fn another_version_is_refused_with_ours() {
    let bytes = hex("414a0000 02050007 0000000000000000 00000003 aabbcc");
    let start = parse(&bytes);
    assert_eq!(start.message().unwrap_err(), Malformed::Version);
    let mut out = Vec::new();
    frame::write_version_mismatch(&mut out, &start.header, None);
    assert_eq!(out, hex("414a000c 01060007 0000000000000000 00000000"));
}

#[test]
fn what_is_no_message_is_refused() {
    let unit = zeros(32);
    let refused = |bytes: &str| parse(&hex(bytes)).message().unwrap_err();
    assert_eq!(Frame::parse(b"GET / HTTP/1.1\r\n"), Err(Fault::Magic));
    assert_eq!(Frame::parse(&[0x41]), Ok(None));
    assert_eq!(Frame::parse(&[0x41, 0x4b]), Err(Fault::Magic));
    let length = |length: usize| hex(&format!("414a0001 01030001 0000000000000000 {length:08x}"));
    assert_eq!(Frame::parse(&length(u32::MAX as usize)), Err(Fault::Length));
    assert_eq!(Frame::parse(&length(MESSAGE_BYTES_MAX - HEADER_BYTES + 1)), Err(Fault::Length));
    assert_eq!(Frame::parse(&length(MESSAGE_BYTES_MAX - HEADER_BYTES)), Ok(None));
    // No such opcode; a payload that is not units; half a unit; no room for the credential.
    assert_eq!(refused("414a0000 01090001 0000000000000000 00000000"), Malformed::Opcode);
    let opaque = format!("414a0000 01030001 0000000000000000 00000020 {unit}");
    assert_eq!(refused(&opaque), Malformed::Payload);
    assert_eq!(refused("414a0001 01030001 0000000000000000 00000004 00000000"), Malformed::Payload);
    assert_eq!(refused("414a0002 01030001 0000000000000000 00000004 00000000"), Malformed::Payload);
}

#[test]
fn numbers_that_mean_nothing_are_refused() {
    let service =
        |forwarding, protocol, port| Service::from_unit(Unit([forwarding, protocol, port, 0, 0, 0, 0, 0]));
    assert_eq!(service(3, 6, 80), Some(Service { forwarding: Forwarding::Layer3, port: HTTP }));
    assert!(service(1, 17, 53).is_some() && service(2, 6, 65535).is_some());
    for (forwarding, protocol, port) in [(0, 6, 80), (4, 6, 80), (3, 1, 80), (3, 6, 0), (3, 6, 65536)] {
        assert_eq!(service(forwarding, protocol, port), None);
    }
    let exception = |data| Exception::from_unit(Unit(data));
    assert!(exception([0, 0, 0, 0, 0, 0, 0, 0]).is_some());
    assert!(exception([3, 0, 0, 0, 0, 0, 0, 0]).is_none(), "scope");
    assert!(exception([1, 0, 0x0a00_0000, 33, 0, 0, 0, 0]).is_none(), "prefix length");
    assert!(exception([1, 0, 0x0a00_0000, 0, 0, 0, 0, 0]).is_none(), "an address without a length");
    assert!(exception([1, 0, 0, 0, 0, 0, 256, 0]).is_none(), "protocol");
    assert!(exception([1, 0, 0, 0, 0, 0, 0, 65536]).is_none(), "port");
}

#[test]
fn a_prefix_holds_the_addresses_that_begin_with_it() {
    let net = Prefix::new(Ipv4Addr::new(10, 1, 2, 3), 16).unwrap();
    assert_eq!(net, Prefix::new(Ipv4Addr::new(10, 1, 0, 0), 16).unwrap());
    assert!(net.contains(Ipv4Addr::new(10, 1, 255, 0)) && !net.contains(Ipv4Addr::new(10, 2, 0, 0)));
    let host = Prefix::new(Ipv4Addr::new(10, 1, 2, 3), 32).unwrap();
    assert!(host.contains(Ipv4Addr::new(10, 1, 2, 3)) && !host.contains(Ipv4Addr::new(10, 1, 2, 2)));
    assert!(Prefix::ALL.contains(Ipv4Addr::BROADCAST));
    let exception = Exception {
        scope: Scope::Local,
        ttl_s: 60,
        flows: Flows { source: net, destination: Prefix::ALL, protocol: 6, port: 80 },
    };
    assert_eq!(exception.unit(), Unit([1, 60, 0x0a01_0000, 16, 0, 0, 6, 80]));
    assert_eq!(exception.installed_unit(Ipv4Addr::new(10, 9, 0, 1)).0[1], 0x0a09_0001);
}

fn opcode() -> impl Strategy<Value = Opcode> {
    prop::sample::select(Opcode::ALL.to_vec())
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        opcode in opcode(),
        flags in 0u16..0x40,
        request_id: u16,
        sign in prop::option::of(any::<u64>()),
        units in prop::collection::vec(any::<[u32; 8]>(), 0..20),
        after in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let key = Key::new(b"a key");
        let flags = Flags(flags & !0x03);
        let mut out = Vec::new();
        frame::write(&mut out, opcode, flags, request_id, sign.map(|seq| (&key, seq)), units.iter().map(|&u| Unit(u)));
        let len = out.len();
        out.extend_from_slice(&after);
        let read = parse(&out);
        prop_assert_eq!(read.len(), len);
        prop_assert_eq!(read.header.request_id, request_id);
        prop_assert_eq!(read.header.seq_num, sign.unwrap_or(0));
        prop_assert!(read.header.flags.has(flags));
        prop_assert_eq!(read.is_signed_by(&key), sign.is_some());
        let (read_opcode, read_units) = read.message().unwrap();
        prop_assert_eq!(read_opcode, opcode);
        prop_assert_eq!(read_units.map(|unit| unit.0).collect::<Vec<_>>(), units);
        for cut in 0..len {
            prop_assert_eq!(Frame::parse(&out[..cut]), Ok(None));
        }
    }

    #[test]
    fn messages_have_an_end(count in 0usize..UNITS_MAX + 5) {
        let mut out = Vec::new();
        frame::write(&mut out, Opcode::Keepalive, Flags::NONE, 0, None, (0..count).map(|_| Unit::default()));
        prop_assert_eq!(parse(&out).message().unwrap().1.count(), count.min(UNITS_MAX));
    }
}
