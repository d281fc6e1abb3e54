//! What `evener agent` can be told, and what the guide says of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
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

#[test]
fn the_unit_is_one_for_systemd_and_its_command_one_for_the_agent() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/evener-agent.service");
    let unit = fs::read_to_string(path).expect("readable");
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/evener agent "));
    let arguments: Vec<&str> = command.expect("it starts an agent").split(' ').collect();
    let mut agent = Command::new(env!("CARGO_BIN_EXE_evener"));
    let help = agent.arg("agent").args(arguments).arg("--help").output().expect("it runs");
    assert!(help.status.success(), "{}", String::from_utf8_lossy(&help.stderr));

    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("evener-agent.service");
    // A program that is there, wherever this runs.
    fs::write(&copy, unit.replace("/usr/local/bin/evener", "/bin/true")).expect("written");
    match Command::new("systemd-analyze").arg("verify").arg(&copy).output() {
        Ok(verified) => {
            let told = String::from_utf8_lossy(&verified.stderr);
            assert!(verified.status.success() && !told.contains("evener-agent.service:"), "{told}");
        }
        Err(error) => println!("not verified: systemd-analyze: {error}"),
    }
}
