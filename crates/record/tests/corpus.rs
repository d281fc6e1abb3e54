//! What the fuzzer found, once more: what must hold holds for every file of the corpus.

#[path = "../../../fuzz/src/recordings.rs"]
#[allow(unreachable_pub, reason = "the fuzzer uses it too")]
mod recordings;

#[path = "../../../fuzz/src/corpus.rs"]
#[allow(unreachable_pub, reason = "the tests of several crates use it")]
mod corpus;

#[test]
fn recordings_are_read_or_refused() {
    corpus::replay("recording", 10, recordings::recording);
}
