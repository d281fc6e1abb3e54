//! For bytes of any kind, and for what the fuzzers found: the invariants hold.

#[path = "../../../fuzz/src/feedback.rs"]
#[allow(unreachable_pub, reason = "the fuzzers use it too")]
mod invariants;

#[path = "../../../fuzz/src/corpus.rs"]
#[allow(unreachable_pub, reason = "the tests of several crates use it")]
mod corpus;

use proptest::prelude::*;

#[test]
fn necp_messages() {
    corpus::replay("necp", 5, invariants::necp);
}

#[test]
fn necp_sessions() {
    corpus::replay("necp_session", 5, invariants::necp_session);
}

#[test]
fn agent_check_answers() {
    corpus::replay("agent_check", 5, invariants::agent_check);
}

#[test]
fn orca_headers() {
    corpus::replay("orca", 5, invariants::orca);
}

#[test]
fn json_bodies() {
    corpus::replay("json", 5, invariants::json);
}

#[test]
fn datagrams() {
    corpus::replay("datagram", 5, invariants::datagram);
}

#[test]
fn signatures() {
    corpus::replay("signature", 5, invariants::signature);
}

/// Pieces that reports are made of, in every dialect that is text.
fn words() -> impl Strategy<Value = Vec<u8>> {
    let word = prop::sample::select(vec![
        "TEXT ",
        "JSON ",
        "BIN ",
        "cpu_utilization",
        "rps",
        "named_metrics",
        "utilization.x",
        "=",
        "0.5",
        "-1",
        "1e309",
        "nan",
        ",",
        ", ",
        "{",
        "}",
        "[",
        "]",
        ":",
        "\"",
        "\"health\"",
        "\"load\"",
        "\"node\"",
        "\"service\"",
        "\"tcp/80\"",
        "100",
        "null",
        "up",
        "down",
        "ready",
        "%",
        "maxconn:",
        "#",
        " ",
        "\n",
        "\r",
        "é",
    ]);
    prop::collection::vec(word, 0..20).prop_map(|words| words.concat().into_bytes())
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        invariants::necp(&bytes);
        invariants::necp_session(&bytes);
        invariants::agent_check(&bytes);
        invariants::orca(&bytes);
        invariants::json(&bytes);
        invariants::datagram(&bytes);
        invariants::signature(&bytes);
    }

    #[test]
    fn words_in_any_order_are_parsed_or_refused(bytes in words()) {
        invariants::agent_check(&bytes);
        invariants::orca(&bytes);
        invariants::json(&bytes);
    }

    #[test]
    fn messages_that_look_nearly_right_keep_the_invariants(
        flags in 0u16..0x40,
        version in 0u8..3,
        opcode in 0u8..0x30,
        units in 0usize..4,
        stray in 0usize..40,
        bytes in prop::collection::vec(any::<u8>(), 200),
    ) {
        let length = units * 32 + stray;
        let mut message = vec![0x41, 0x4a, 0, flags as u8, version, opcode];
        message.extend_from_slice(&bytes[..10]);
        message.extend_from_slice(&(length as u32).to_be_bytes());
        message.extend_from_slice(&bytes[..length.min(200)]);
        invariants::necp(&message);
        invariants::necp_session(&message);
    }
}
