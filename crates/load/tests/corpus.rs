//! For bytes of any kind, for what kernels and servers really say with some of it changed, and for what the fuzzers
//! found: the invariants hold.

#[path = "../../../fuzz/src/load.rs"]
#[allow(unreachable_pub, reason = "the fuzzers use it too")]
mod invariants;

use proptest::prelude::*;

fn replay(target: &str, check: fn(&[u8])) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/").to_owned() + target;
    let mut files = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is committed") {
        let path = entry.expect("a readable folder").path();
        println!("{}", path.display());
        check(&std::fs::read(&path).expect("a readable file"));
        files += 1;
    }
    assert!(files >= 5, "{folder} has {files} files: part of the corpus is missing");
}

#[test]
fn what_kernels_say() {
    replay("load_kernel", invariants::load_kernel);
}

#[test]
fn what_servers_and_programs_say() {
    replay("load_answers", invariants::load_answers);
}

#[test]
fn metrics() {
    replay("load_metrics", invariants::load_metrics);
}

#[test]
fn datagrams_of_netlink() {
    replay("load_netlink", invariants::load_netlink);
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
    "jobs=3\nhealth=80\nlatency-ms=2.5\n",
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
