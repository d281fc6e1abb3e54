//! What the fuzzers found, once more: the invariants hold for every file of the corpus.

#[path = "../../../fuzz/src/invariants.rs"]
#[allow(unreachable_pub, reason = "the fuzzers use it too")]
mod invariants;

#[path = "../../../fuzz/src/corpus.rs"]
#[allow(unreachable_pub, reason = "the tests of several crates use it")]
mod corpus;

#[test]
fn requests() {
    corpus::replay("http1_request", 10, invariants::http1_request);
}

#[test]
fn responses() {
    corpus::replay("http1_response", 10, invariants::http1_response);
}

#[test]
fn chunked_bodies() {
    corpus::replay("http1_chunked", 10, invariants::http1_chunked);
}

#[test]
fn proxy_headers() {
    corpus::replay("proxy_protocol", 10, invariants::proxy_protocol);
}
