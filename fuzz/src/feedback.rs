//! What must hold for any bytes that claim to be reports: checked by the fuzzers on bytes they invent, and by
//! the tests of `evener-feedback` on the corpus that the fuzzers found.

use std::time::Duration;

use evener_feedback::agent_check::{Answer, LINE_BYTES_MAX};
use evener_feedback::datagram::{self, Receiver, Sender};
use evener_feedback::json::{self, Said};
use evener_feedback::necp::session::{Agent, AgentSettings, Director, DirectorSettings, Exceptions};
use evener_feedback::necp::{Exception, Frame, Key, Query, Service, frame};
use evener_feedback::orca::{self, Group, Metrics};
use evener_feedback::signature::{Signer, Verifier};
use evener_model::Time;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// A NECP message is parsed or refused, never read beyond its end; what is understood is written the same
/// way again.
pub fn necp(bytes: &[u8]) {
    let key = Key::new(b"key");
    let mut rest = bytes;
    while let Ok(Some(parsed)) = Frame::parse(rest) {
        let length = parsed.len();
        assert!(length <= rest.len() && length <= frame::MESSAGE_BYTES_MAX);
        for cut in [0, 1, frame::HEADER_BYTES, length - 1] {
            assert_eq!(Frame::parse(&rest[..cut.min(length - 1)]), Ok(None), "a part of a message waits");
        }
        let signed = parsed.is_signed_by(&key);
        if let Ok((opcode, units)) = parsed.message() {
            assert!(units.count() <= frame::UNITS_MAX);
            for unit in units {
                if let Some(query) = Query::from_unit(unit) {
                    assert_eq!(Query::from_unit(query.unit()), Some(query));
                }
                if let Some(service) = Service::from_unit(unit) {
                    assert_eq!(Service::from_unit(service.unit()), Some(service));
                }
                if let Some(exception) = Exception::from_unit(unit) {
                    assert_eq!(Exception::from_unit(exception.unit()), Some(exception));
                }
            }
            let mut out = Vec::new();
            let header = parsed.header;
            let sign = signed.then_some((&key, header.seq_num));
            frame::write(&mut out, opcode, header.flags, header.request_id, sign, units);
            if signed && units.count() > 0 {
                assert_eq!(out, &rest[..length], "what is signed is as we write it");
            }
            let again = Frame::parse(&out).expect("what is written").expect("whole");
            let (opcode_again, units_again) = again.message().expect("what is written is understood");
            assert_eq!(opcode, opcode_again);
            assert!(units.eq(units_again));
        }
        rest = &rest[length..];
    }
}

/// Both sides of a connection take any bytes, whole or in pieces alike, and hold and say no more than they may.
pub fn necp_session(bytes: &[u8]) {
    let (peer, now) = ([10, 9, 0, 1].into(), Time::from_nanos(1));
    let mut whole = Exceptions::new(true);
    let mut director = Director::new(DirectorSettings::default(), peer, now, 1, 2);
    director.received(now, bytes, &mut whole);
    let mut parts = Exceptions::new(true);
    let mut pieces = Director::new(DirectorSettings::default(), peer, now, 1, 2);
    for byte in bytes.chunks(7) {
        pieces.received(now, byte, &mut parts);
    }
    assert!(std::iter::from_fn(|| director.poll()).eq(std::iter::from_fn(|| pieces.poll())));
    assert_eq!(director.output(), pieces.output());
    assert!(whole.iter().eq(parts.iter()) && whole.iter().count() <= Exceptions::NODE_MAX);
    let mut answers = &director.output()[..];
    while !answers.is_empty() {
        let answer = Frame::parse(answers).expect("our message").expect("whole");
        answers = &answers[answer.len()..];
    }
    let mut agent = Agent::new(AgentSettings::default(), now, 1);
    agent.timeout(now);
    agent.connected(now, 2);
    agent.received(now, bytes, &mut |query| (query.kind.0 < 9).then_some(query.kind.0));
    agent.timeout(Time::from_nanos(u64::MAX));
}

/// An answer is read or refused; what is read is written the same way again.
pub fn agent_check(bytes: &[u8]) {
    for end in [false, true] {
        if let Ok(Some(answer)) = Answer::parse(bytes, end) {
            let mut out = Vec::new();
            answer.write(&mut out);
            assert!(out.len() <= LINE_BYTES_MAX);
            let again = Answer::parse(&out, false).expect("what is written").expect("a whole line");
            let short = answer.description.len() < LINE_BYTES_MAX / 2;
            assert_eq!(Answer { description: "", ..again }, Answer { description: "", ..answer });
            assert!(!short || again.description == answer.description);
        }
    }
}

/// A header is read or refused in each of its forms; what is read is written the same way again.
pub fn orca(bytes: &[u8]) {
    let mut heard = Vec::new();
    let mut hear = |group: Group, name: &str, value: f64| heard.push((group, name.to_owned(), value));
    if let Ok(metrics) = orca::parse(bytes, &mut hear) {
        orca_again(&metrics, &heard);
    }
    heard.clear();
    let mut hear = |group: Group, name: &str, value: f64| heard.push((group, name.to_owned(), value));
    if let Ok(metrics) = orca::decode(bytes, &mut hear) {
        orca_again(&metrics, &heard);
    }
    let _ = orca::parse_binary(bytes, &mut |_, _, _| ());
}

fn orca_again(metrics: &Metrics, named: &[(Group, String, f64)]) {
    let mut message = Vec::new();
    orca::encode(&mut message, metrics, named.iter().map(|(group, name, value)| (*group, &name[..], *value)));
    let mut heard = Vec::new();
    let mut hear = |group: Group, name: &str, value: f64| heard.push((group, name.to_owned(), value));
    assert_eq!(orca::decode(&message, &mut hear), Ok(*metrics));
    assert_eq!(heard, named);
}

/// A body is read or refused; what is read is written the same way again.
pub fn json(bytes: &[u8]) {
    if let Ok(said) = json::parse(bytes) {
        let mut out = Vec::new();
        json::write(&mut out, &said);
        assert_eq!(json::parse(&out), Ok(said));
    }
}

/// Nothing passes that nobody signed; what somebody did sign, however it looks, is read or refused, and passes once.
pub fn datagram(bytes: &[u8]) {
    let key = datagram::Key::new(b"key");
    let mut receiver = Receiver::new(vec![key.clone()], Duration::from_secs(u64::MAX >> 24), 4);
    let now = Duration::from_secs(1_790_000_000);
    assert!(receiver.received(now, bytes).is_err());
    let mut signed = bytes.to_vec();
    let keyed: Hmac<Sha256> = Hmac::new_from_slice(b"key").expect("any length");
    signed.extend_from_slice(&keyed.chain_update(bytes).finalize().into_bytes());
    if let Ok(said) = receiver.received(now, &signed) {
        assert!(receiver.received(now, &signed).is_err(), "once only");
        let name = said.first().and_then(|said| said.node.clone());
        assert!(said.iter().all(|said| said.node == name));
        let Some(name) = name else { return };
        let mut sender = Sender::new(key.clone(), &name).expect("a name that passed");
        let mut out = Vec::new();
        if sender.write(now, &said, &mut out).is_ok() {
            let mut receiver = Receiver::new(vec![key], Duration::from_secs(1), 1);
            let again: Vec<Said> = receiver.received(now, &out).expect("what is written");
            assert_eq!(again, said);
        }
    }
}

/// A line that is a push's signature, and its body: nothing passes that nobody signed; what somebody did sign passes once,
/// and is written the same way again.
pub fn signature(bytes: &[u8]) {
    let key = datagram::Key::new(b"key");
    let mut verifier = Verifier::new(vec![key.clone()], Duration::from_secs(u64::MAX >> 24), 4);
    let now = Duration::from_secs(1_790_000_000);
    let length = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (line, body) = (&bytes[..length], bytes.get(length + 1..).unwrap_or(&[]));
    let Ok(line) = std::str::from_utf8(line) else { return };
    assert!(verifier.verify(now, line, body).is_err());
    // The same, signed: what stands for the signature is replaced.
    let Some((start, rest)) = line.split_once(" - ") else { return };
    let keyed: Hmac<Sha256> = Hmac::new_from_slice(b"key").expect("any length");
    let message = [format!("evener-push {start} {rest}\n").as_bytes(), body].concat();
    let digits: String = keyed
        .chain_update(&message)
        .finalize()
        .into_bytes()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let signed = format!("{start} {digits} {rest}");
    if let Ok(node) = verifier.verify(now, &signed, body).map(str::to_owned) {
        assert!(verifier.verify(now, &signed, body).is_err(), "once only");
        let stamp: u64 = start.strip_prefix("v1 ").and_then(|stamp| stamp.parse().ok()).expect("a stamp");
        let mut signer = Signer::new(key, &node).expect("a name that passed");
        let again = signer.sign(Duration::from_micros(stamp), body);
        // None is sent with a stamp of 0.
        assert!(again == signed || stamp == 0, "{again}");
    }
}
