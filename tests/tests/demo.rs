//! `evener demo` into a pipe: plain text, to its end, with a summary.

use evener_tests::director::{evener, texts};

#[test]
fn the_demo_runs_into_a_pipe() {
    let (help, _) = texts(&evener(&["demo", "--help"]));
    assert!(help.contains("--seconds"), "{help}");
    let output = evener(&["demo", "--seconds", "1"]);
    let (stdout, stderr) = texts(&output);
    let said = stdout.to_lowercase();
    assert!(output.status.success(), "{stderr}");
    assert!(!stdout.contains('\x1b'), "no cursor movements into a pipe: {stdout:?}");
    for word in ["round-robin", "least-jobs", "two-choices", "p50", "p99", "p99.9"] {
        assert!(said.contains(word), "the summary speaks of {word}: {stdout}");
    }
}
