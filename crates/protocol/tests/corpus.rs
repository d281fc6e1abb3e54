//! What the fuzzers found, once more: the invariants hold for every file of the corpus.

#[path = "../../../fuzz/src/invariants.rs"]
#[allow(unreachable_pub, reason = "the fuzzers use it too")]
mod invariants;

fn replay(target: &str, check: fn(&[u8])) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/").to_owned() + target;
    let mut files = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is committed") {
        let path = entry.expect("a readable folder").path();
        let bytes = std::fs::read(&path).expect("a readable file");
        println!("{}", path.display());
        check(&bytes);
        files += 1;
    }
    assert!(files >= 10, "{folder} has {files} files: part of the corpus is missing");
}

#[test]
fn requests() {
    replay("http1_request", invariants::http1_request);
}

#[test]
fn responses() {
    replay("http1_response", invariants::http1_response);
}

#[test]
fn chunked_bodies() {
    replay("http1_chunked", invariants::http1_chunked);
}

#[test]
fn proxy_headers() {
    replay("proxy_protocol", invariants::proxy_protocol);
}
