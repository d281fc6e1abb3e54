//! What the fuzzers found, for tests that replay it.

/// Checks every file of a target's corpus, of which there are `files_min` at least.
pub fn replay(target: &str, files_min: usize, check: fn(&[u8])) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/").to_owned() + target;
    let mut files = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is committed") {
        let path = entry.expect("a readable folder").path();
        let bytes = std::fs::read(&path).expect("a readable file");
        println!("{}", path.display());
        check(&bytes);
        files += 1;
    }
    assert!(files >= files_min, "{folder} has {files} files: part of the corpus is missing");
}
