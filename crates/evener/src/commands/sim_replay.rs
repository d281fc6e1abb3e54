//! `evener sim replay`: a recorded run once more, pick by pick.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use evener_record::{
    Difference, End, EndReason, Head, NodeContext, Piece, ReadError, Reader, Replay, ReplayError, Tally,
};
use evener_scheduler::PickError;
use serde_json::{Value, json};

use crate::output::{self, Status};

/// Read at once.
const PIECE_BYTES: usize = 1 << 20;

/// Gives a recorded run to fresh schedulers and compares every pick.
///
/// `evener run --record FILE` writes down what the director's schedulers are told and choose. Here the same
/// calls are made once more, in the same order: every pick must be the same.
///
/// Exit status 1 if a pick differs, or if the recording is not whole; 2 if it is no recording that this program
/// can read.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evener run -c evener.toml --record run.rec
  evener sim replay run.rec
  evener sim replay run.rec --json | jq '.pools[] | {pool, policy, picks, equal}'")]
pub(crate) struct SimReplay {
    /// The recording
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// What a file has told.
#[derive(Debug, Default)]
struct Told {
    head: Option<Head>,
    end: Option<End>,
    replay: Replay,
}

/// Why a file has told no more.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    #[error(transparent)]
    Recording(#[from] ReadError),
    #[error("the recording is damaged: {0}")]
    Replay(#[from] ReplayError),
}

pub(crate) fn run(args: SimReplay) -> anyhow::Result<Status> {
    let mut told = Told::default();
    let stop = told.read(&args.file).err();
    let wrong = told.head.is_none();
    let differs = told.replay.tallies().iter().any(|tally| tally.equal < tally.picks);
    if args.json {
        output::json(&told.json(stop.as_ref()))?;
    } else if !wrong {
        output::print(&told.text())?;
    }
    if let Some(stop) = &stop {
        let label = if output::colour_on_stderr() { "\x1b[1;31merror:\x1b[0m" } else { "error:" };
        eprintln!("{label} {}: {stop}", args.file.display());
    }
    Ok(match (wrong, stop.is_some() || differs) {
        (true, _) => Status::Wrong,
        (false, true) => Status::Failed,
        (false, false) => Status::Done,
    })
}

impl Told {
    fn read(&mut self, path: &Path) -> Result<(), Stop> {
        let mut file = File::open(path)?;
        let mut reader = Reader::new();
        let mut piece = vec![0; PIECE_BYTES];
        let mut progress = Progress::new(file.metadata()?.len());
        loop {
            let read = match file.read(&mut piece) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            if read == 0 {
                return Ok(reader.finish()?);
            }
            reader.feed(&piece[..read]);
            progress.show(read);
            while let Some(piece) = reader.next()? {
                self.take(piece)?;
            }
        }
    }

    fn take(&mut self, piece: Piece<'_>) -> Result<(), Stop> {
        match piece {
            Piece::Head(head) => self.head = Some(head),
            Piece::End(end) => self.end = Some(end),
            Piece::Block(block) => {
                let worker = block.worker;
                let mut entries = block.entries();
                while let Some(entry) = entries.next()? {
                    self.replay.take(worker, &entry)?;
                }
            }
        }
        Ok(())
    }

    fn picks(&self) -> (u64, u64) {
        let tallies = self.replay.tallies().iter();
        tallies.fold((0, 0), |(picks, equal), tally| (picks + tally.picks, equal + tally.equal))
    }

    fn text(&self) -> String {
        let mut out = String::new();
        if let Some(head) = &self.head {
            let span = self.replay.span().as_secs_f64();
            let entries = self.replay.entries();
            let _ = writeln!(
                out,
                "recorded by {}, {} workers, {span:.1} s, {entries} entries",
                head.program, head.workers
            );
        }
        if let Some(reason) = self.end.map(|end| end.reason).filter(|reason| *reason != EndReason::Complete) {
            let why = match reason {
                EndReason::SizeLimit => "it had reached the size that --record-max allows",
                EndReason::WriterBehind => "the disk did not keep up",
                _ => "the disk refused to take more",
            };
            let _ = writeln!(out, "the recording ends before the run did: {why}");
        }
        let mut table = output::table(&["pool", "policy", "picks", "equal"], &[2, 3]);
        for tally in self.replay.tallies() {
            table.add_row(vec![
                tally.pool.clone(),
                tally.policy.to_string(),
                tally.picks.to_string(),
                tally.equal.to_string(),
            ]);
        }
        out.push_str(&output::lines(&table));
        for tally in self.replay.tallies() {
            if let Some(difference) = &tally.first_difference {
                describe(&mut out, tally, difference, self);
            }
        }
        let (picks, equal) = self.picks();
        let _ = writeln!(out, "{equal} of {picks} picks equal");
        out
    }

    fn json(&self, stop: Option<&Stop>) -> Value {
        let (picks, equal) = self.picks();
        let pools = self.replay.tallies().iter().map(|tally| {
            json!({
                "pool": tally.pool,
                "policy": tally.policy.name(),
                "picks": tally.picks,
                "equal": tally.equal,
                "first_difference": tally.first_difference.as_ref().map(|found| self.difference(found)),
            })
        });
        json!({
            "program": self.head.as_ref().map(|head| &head.program),
            "started_unix_ms": self.head.as_ref().map(|head| head.started_unix_ms),
            "workers": self.head.as_ref().map(|head| head.workers),
            "end": self.end.map(|end| end.reason.name()),
            "duration_s": self.replay.span().as_secs_f64(),
            "entries": self.replay.entries(),
            "picks": picks,
            "equal": equal,
            "pools": pools.collect::<Vec<_>>(),
            "error": stop.map(Stop::to_string),
        })
    }

    fn difference(&self, found: &Difference) -> Value {
        let node = |NodeContext { name, view }: &NodeContext| {
            json!({
                "node": name,
                "state": view.state.name(),
                "weight": view.weight.value(),
                "jobs": view.jobs,
                "latency_ms": view.latency.map(|(latency, _)| latency.as_secs_f64() * 1e3),
                "failure_share": view.failure_share,
            })
        };
        json!({
            "worker": found.worker,
            "pick": found.pick,
            "at_s": self.at_s(found),
            "key": found.key,
            "avoid": found.avoid,
            "excluded": found.excluded,
            "current": found.current,
            "recorded": choice(&found.recorded),
            "replayed": choice(&found.replayed),
            "nodes": found.nodes.iter().map(node).collect::<Vec<_>>(),
        })
    }

    /// Since the recording began.
    fn at_s(&self, difference: &Difference) -> f64 {
        difference.at.since(self.replay.started().unwrap_or_default()).as_secs_f64()
    }
}

/// How much of a long recording is replayed, on a terminal only.
#[derive(Debug)]
struct Progress {
    bytes: u64,
    done: u64,
    shown: Option<u64>,
    is_silent: bool,
}

impl Progress {
    fn new(bytes: u64) -> Progress {
        // What takes a moment needs no line.
        let is_silent = bytes < 32 * PIECE_BYTES as u64 || !io::stderr().is_terminal();
        Progress { bytes, done: 0, shown: None, is_silent }
    }

    fn show(&mut self, read: usize) {
        self.done += read as u64;
        let percent = self.done * 100 / self.bytes.max(1);
        if !self.is_silent && self.shown != Some(percent) {
            self.shown = Some(percent);
            self.write(&format!("replayed {percent} %"));
        }
    }

    /// Standard error that takes no more is no reason to stop.
    fn write(&self, line: &str) {
        let mut out = io::stderr().lock();
        let _ = write!(out, "\r{line:20}\r{line}").and_then(|()| out.flush());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() {
            self.write("");
        }
    }
}

fn choice(choice: &Result<String, PickError>) -> String {
    match choice {
        Ok(node) => node.clone(),
        Err(error) => format!("none: {error}"),
    }
}

/// What was known when a pick went another way, for people.
fn describe(out: &mut String, tally: &Tally, found: &Difference, told: &Told) {
    let Difference { worker, pick, key, avoid, excluded, current, nodes, .. } = found;
    let _ = writeln!(
        out,
        "\npool {}, {}: pick {pick} of worker {worker}, at {:.6} s, is the first to differ",
        tally.pool,
        tally.policy,
        told.at_s(found)
    );
    let _ = writeln!(out, "  recorded  {}", choice(&found.recorded));
    let _ = writeln!(out, "  replayed  {}", choice(&found.replayed));
    let mut job = if *key == 0 { "no key".to_owned() } else { format!("key {key:#x}") };
    if !avoid.is_empty() {
        let _ = write!(job, ", to avoid {}", avoid.join(" "));
    }
    if !excluded.is_empty() {
        let _ = write!(job, ", not on {}", excluded.join(" "));
    }
    if let Some(current) = current {
        let _ = write!(job, ", client on {current}");
    }
    let _ = writeln!(out, "  job       {job}");
    let mut table = output::table(&["node", "state", "weight", "jobs", "latency", "failures"], &[2, 3, 4, 5]);
    for NodeContext { name, view } in nodes {
        table.add_row(vec![
            name.clone(),
            view.state.name().to_owned(),
            view.weight.value().to_string(),
            view.jobs.to_string(),
            output::ms(view.latency.map(|(latency, _)| latency.as_secs_f64() * 1e3)),
            format!("{:.0} %", view.failure_share * 100.0),
        ]);
    }
    for line in output::lines(&table).lines() {
        let _ = writeln!(out, "  {line}");
    }
    out.push('\n');
}
