//! For bytes of any kind, for what kernels and servers really say with some of it changed, and for what the fuzzers
//! found: the invariants hold.

#[path = "../../../fuzz/src/load.rs"]
#[allow(unreachable_pub, reason = "the fuzzers use it too")]
mod invariants;

#[path = "../../../fuzz/src/corpus.rs"]
#[allow(unreachable_pub, reason = "the tests of several crates use it")]
mod corpus;

use proptest::prelude::*;

#[test]
fn what_kernels_say() {
    corpus::replay("load_kernel", 5, invariants::load_kernel);
}

#[test]
fn what_servers_and_programs_say() {
    corpus::replay("load_answers", 5, invariants::load_answers);
}

#[test]
fn metrics() {
    corpus::replay("load_metrics", 5, invariants::load_metrics);
}

#[test]
fn datagrams_of_netlink() {
    corpus::replay("load_netlink", 5, invariants::load_netlink);
}

fn check_all(bytes: &[u8]) {
    invariants::load_kernel(bytes);
    invariants::load_answers(bytes);
    invariants::load_metrics(bytes);
    invariants::load_netlink(bytes);
}

/// Texts as they really are.
const REAL: [&str; 8] = [
    include_str!("fixtures/host/proc/stat"),
    include_str!("fixtures/host/proc/diskstats"),
    include_str!("fixtures/host/proc/self/net/dev"),
    include_str!("fixtures/host/proc/pressure/io"),
    "0.35 0.41 0.54 4/148 10011\n",
    "jobs=3\nhealth=80\nlatency_ms=2.5\n",
    "$5\r\nhello\r\n+OK\r\n",
    "running{model=\"m\"}\nrunning{model=\"m\",x=\"\\\"\"} 2\nrunning_total 7\n",
];

proptest! {
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        check_all(&bytes);
    }

    #[test]
    fn words_of_those_who_speak(words in proptest::collection::vec(
        prop_oneof!["cpu[0-9]?", " ", "\n", "-?[0-9]{1,22}", "[0-9]\\.[0-9]e[0-9]{3}", "some avg10=", "total=",
            "health=", "\\$[0-9]{1,3}\r\n", "STAT curr_connections", "END\r\n", "a\\{b=\"", "\"\\}", "eth0:"], 0..60,
    )) {
        check_all(words.concat().as_bytes());
    }

    #[test]
    fn real_texts_with_a_byte_changed(
        which in 0..REAL.len(), place in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = REAL[which].as_bytes().to_vec();
        let place = place.index(bytes.len());
        bytes[place] = byte;
        check_all(&bytes);
        bytes.truncate(cut.index(bytes.len()));
        check_all(&bytes);
    }
}
