//! The documentation says what is true: its configurations are valid, its commands are accepted,
//! its quick start runs.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use evener_scheduler::Policy;

/// A fenced block of a Markdown file.
struct Block {
    file: PathBuf,
    line: usize,
    language: String,
    text: String,
}

#[test]
fn configurations_are_valid() {
    let blocks = blocks().into_iter().filter(|block| block.language == "toml");
    let folder = tempfile::tempdir().unwrap();
    let mut count = 0;
    for block in blocks {
        let path = folder.path().join("evener.toml");
        fs::write(&path, &block.text).unwrap();
        check(&path, &format!("{}:{}", block.file.display(), block.line));
        count += 1;
    }
    assert!(count >= 3, "{count} configurations were found in the documentation");
    for entry in fs::read_dir(root().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            check(&path, &path.display().to_string());
        }
    }
}

#[test]
fn commands_are_accepted() {
    let mut count = 0;
    for block in blocks().into_iter().filter(|block| block.language == "sh") {
        for line in block.text.replace("\\\n", " ").lines() {
            for command in line.split(['&', ';', '|']).map(str::trim) {
                let Some(arguments) = command.strip_prefix("evener ") else { continue };
                // Options that are wrong are refused before help is given.
                let output = evener(&arguments.split_whitespace().chain(["--help"]).collect::<Vec<_>>());
                let place = format!("{}:{}", block.file.display(), block.line);
                assert!(output.status.success(), "{place}: {command}: {}", text(&output.stderr));
                count += 1;
            }
        }
    }
    assert!(count >= 10, "{count} commands were found in the documentation");
}

#[test]
fn verbs_of_make_exist() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let verbs: BTreeSet<&str> =
        makefile.lines().filter_map(|line| line.split_once(": ")?.0.split(' ').next()).collect();
    for block in blocks().into_iter().filter(|block| block.language == "sh") {
        for verb in block.text.lines().filter_map(|line| line.strip_prefix("make ")) {
            assert!(verbs.contains(verb), "{}:{}: make {verb}", block.file.display(), block.line);
        }
    }
}

#[test]
fn every_scheduler_is_described() {
    let guide = fs::read_to_string(root().join("docs/schedulers.md")).unwrap();
    let table = guide.split("## All of them").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let described: BTreeSet<&str> =
        table.lines().filter_map(|row| row.strip_prefix("| `")?.split('`').next()).collect();
    let existing: BTreeSet<&str> = Policy::ALL.iter().map(|policy| policy.name()).collect();
    assert_eq!(described, existing);
    for short in table.lines().filter(|row| row.starts_with("| `")).filter_map(|row| row.split('|').nth(2)) {
        for alias in
            short.split(',').map(|alias| alias.trim().trim_matches('`')).filter(|alias| !alias.is_empty())
        {
            assert!(alias.parse::<Policy>().is_ok(), "{alias} is no name of a scheduler");
        }
    }
}

#[test]
fn links_lead_somewhere() {
    for file in files() {
        let text = fs::read_to_string(&file).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = link.split('#').next().unwrap_or_default();
            if path.is_empty() || path.contains("://") {
                continue;
            }
            assert!(file.parent().unwrap().join(path).exists(), "{}: {link} is not there", file.display());
        }
    }
}

#[test]
fn the_quick_start_runs() {
    // A port that is free now may be somebody else's when it is listened to.
    let mut said = quick_start();
    for _ in 0..2 {
        said = said.or_else(|_| quick_start());
    }
    said.unwrap();
}

/// Runs the README's commands; what they said if that was not all that is expected.
fn quick_start() -> Result<(), String> {
    let block = blocks()
        .into_iter()
        .find(|block| block.file.ends_with("README.md") && block.text.contains("python3 -m http.server"))
        .expect("the README has a quick start");
    // The same commands on ports that are free.
    let mut script = block.text;
    let ports = ["9001", "9002", "8080", "9900"].map(|port| {
        let free = free_port().to_string();
        script = script.replace(port, &free);
        free
    });
    // To sleep and hope is for readers.
    let wait = format!(
        "for port in {}; do until (: >/dev/tcp/127.0.0.1/$port) 2>/dev/null; do sleep 0.05; done; done;",
        ports.join(" ")
    );
    assert!(script.contains("sleep 1;"), "{script}");
    let script = format!("{}\ntouch done\nwait", script.replace("sleep 1;", &wait));
    let admin = format!("127.0.0.1:{}", ports[3]);
    let folder = tempfile::tempdir().unwrap();
    let bin = Path::new(env!("CARGO_BIN_EXE_evener")).parent().unwrap();
    // Servers keep the output open: it goes to a file. They end with their group.
    let output = fs::File::create(folder.path().join("output")).unwrap();
    let mut command = Command::new("bash");
    let mut child = command
        .process_group(0)
        .args(["-c", &script])
        .current_dir(folder.path())
        .env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default()))
        .env("EVENER_ADMIN", admin)
        .stdin(Stdio::null())
        .stderr(output.try_clone().unwrap())
        .stdout(output)
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !folder.path().join("done").exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    let group = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
    child.wait().unwrap();
    let said = fs::read_to_string(folder.path().join("output")).unwrap();
    for expected in ["one\n", "two\n", "pool nodes (informed)", "placed on 127.0.0.1:"] {
        if !said.contains(expected) {
            return Err(format!("{expected:?} is missing: {said}"));
        }
    }
    Ok(())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn files() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "ARCHITECTURE.md"]
        .map(|name| root().join(name))
        .into();
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn blocks() -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for file in files() {
        let mut open: Option<Block> = None;
        for (index, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
            match (line.strip_prefix("```"), &mut open) {
                (Some(language), None) => {
                    let language = language.trim().to_string();
                    open = Some(Block { file: file.clone(), line: index + 2, language, text: String::new() });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (None, Some(block)) => block.text += &format!("{line}\n"),
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a block is not closed", file.display());
    }
    blocks
}

fn check(path: &Path, place: &str) {
    let output = evener(&["check", path.to_str().unwrap()]);
    assert!(output.status.success(), "{place}: {}", text(&output.stderr));
}

fn evener(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_evener")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
