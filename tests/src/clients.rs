//! Other people's clients: curl, Python and Go.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::director::texts;
use crate::{cache, checkout};

/// Runs curl with these arguments; what it printed.
///
/// # Panics
/// If curl fails.
pub fn curl(arguments: &[&str]) -> String {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "20"]).args(arguments);
    succeed("curl", command)
}

/// Runs `tests/clients/NAME` in the environment of `tests/setup`; what it printed.
///
/// # Panics
/// If it fails.
pub fn python(name: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(python_program());
    command.arg(script(name)).args(arguments);
    succeed(name, command)
}

/// The Python that has h11 and websockets.
pub fn python_program() -> PathBuf {
    cache().join("venv/bin/python")
}

/// The path of `tests/clients/NAME`.
pub fn script(name: &str) -> PathBuf {
    checkout().join("tests/clients").join(name)
}

/// Runs the Go client; what it printed.
///
/// # Panics
/// If it fails.
pub fn go(arguments: &[&str]) -> String {
    let mut command = Command::new(cache().join("go-client"));
    command.args(arguments);
    succeed("the Go client", command)
}

fn succeed(name: &str, mut command: Command) -> String {
    let output: Output =
        command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{name}: {error}"));
    let (stdout, stderr) = texts(&output);
    assert!(output.status.success(), "{name} ended with {}\n{stdout}{stderr}", output.status);
    stdout
}
