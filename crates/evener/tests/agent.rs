//! What `evener agent` can be told, and what the guide says of it.

use std::collections::BTreeSet;
use std::process::Command;

const GUIDE: &str = include_str!("../../../docs/agent.md");

fn flags(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| c.is_whitespace() || "`|,()".contains(c));
    words
        .filter(|word| word.strip_prefix("--").is_some_and(|name| name.starts_with(char::is_alphabetic)))
        .collect()
}

#[test]
fn the_guide_names_the_flags_that_there_are() {
    let help = Command::new(env!("CARGO_BIN_EXE_evener")).args(["agent", "-h"]).output().expect("it runs");
    let help = String::from_utf8(help.stdout).expect("text");
    let options =
        help.split("\nOptions:").nth(1).and_then(|rest| rest.split("\nExamples:").next()).expect("options");
    let mut existing = flags(options);
    assert!(existing.remove("--help") && existing.remove("--version"), "{options}");
    let table =
        GUIDE.split("## On the command line").nth(1).and_then(|rest| rest.split("\n`--source`").next());
    assert_eq!(flags(table.expect("a table")), existing);
}
