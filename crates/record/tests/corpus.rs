//! What the fuzzer found, once more: what must hold holds for every file of the corpus.

#[path = "../../../fuzz/src/recordings.rs"]
#[allow(unreachable_pub, reason = "the fuzzer uses it too")]
mod recordings;

#[test]
fn recordings_are_read_or_refused() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/recording");
    let mut files = 0;
    for entry in std::fs::read_dir(folder).expect("the corpus is committed") {
        let path = entry.expect("a readable folder").path();
        let bytes = std::fs::read(&path).expect("a readable file");
        println!("{}", path.display());
        recordings::recording(&bytes);
        files += 1;
    }
    assert!(files >= 10, "{folder} has {files} files: part of the corpus is missing");
}
