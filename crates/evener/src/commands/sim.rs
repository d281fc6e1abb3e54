//! `evener sim`: compares policies on a simulated cluster.

mod html;
mod matrix;
mod papers;
mod progress;
mod svg;
mod table;

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use clap::{Args, Subcommand};
use evener_control::Errors;
use evener_control::config::{ConfigError, Source};
use evener_sim::papers::Effort;
use evener_sim::{Experiment, Located, Overrides, Results, TraceFile};
use serde::Serialize;

use self::html::Part;
use self::matrix::Matrix;
use self::progress::ProgressLine;
use super::sim_replay::{self, SimReplay};
use crate::output::{self, Status};
use crate::trace;

/// What a process has ended with that was interrupted from the keyboard: 128 + SIGINT.
const INTERRUPTED: i32 = 130;

/// Compares policies on a cluster that is simulated from a file.
///
/// Each policy meets the same jobs at the same times, at each load and with each seed. Every figure comes with the 95 %
/// interval of its mean over the seeds. The same file and seed give the same output on every machine.
///
/// Exit status 2 if something is wrong with a file.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:
  evener sim examples/sim/unequal.toml
  evener sim examples/sim/unequal.toml --quick
  evener sim my.toml --seeds 30 --html my.html
  evener sim --paper 003
  evener sim examples/matrix/*.toml --all-policies --matrix matrix.md
  evener sim my.toml --json | jq '.experiments[0].points[0].policies[] | {policy, p99: .figures.p99_ms}'"
)]
pub(crate) struct Sim {
    #[command(subcommand)]
    command: Option<SimCommand>,
    #[command(flatten)]
    compare: Compare,
}

#[derive(Debug, Args)]
struct Compare {
    /// Scenarios, and what is compared on them
    #[arg(value_name = "SCENARIO", required_unless_present = "paper")]
    files: Vec<PathBuf>,
    /// Instead of scenarios: what a paper reports, beside what comes of it here. Exit status 1 if a figure is not within
    /// its tolerance
    #[arg(long, value_name = "PAPER", conflicts_with_all = ["files", "seeds", "seed", "html"])]
    paper: Option<papers::Which>,
    /// Runs of each policy at each load, instead of what the file says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    seeds: Option<u32>,
    /// The first seed, instead of what the file says; the others follow it
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Threads; all cores if it is not said. The output does not depend on it
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// A short look: few seeds, few jobs, figures that are not to be trusted
    #[arg(long)]
    quick: bool,
    /// Print the results as JSON; of a paper, one object a row
    #[arg(long)]
    json: bool,
    /// Compare all policies that do not go by keys, instead of those that the files name
    #[arg(long, conflicts_with = "paper")]
    all_policies: bool,
    /// Write a table of all scenarios against all policies, in Markdown, and beside it a picture of it
    #[arg(long, value_name = "FILE.md", requires = "all_policies")]
    matrix: Option<PathBuf>,
    /// Write a page with plots and tables
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum SimCommand {
    Replay(SimReplay),
}

/// An experiment, and the file it is from.
struct Loaded {
    experiment: Experiment,
    source: Arc<Source>,
}

#[derive(Serialize)]
struct Output<'a> {
    experiments: &'a [Results],
}

impl Sim {
    pub(crate) fn run(self) -> anyhow::Result<Status> {
        match self.command {
            Some(SimCommand::Replay(replay)) => sim_replay::run(replay),
            None => self.compare.run(),
        }
    }
}

impl Compare {
    fn run(self) -> anyhow::Result<Status> {
        if let Some(which) = self.paper {
            let effort = if self.quick { Effort::Trial } else { Effort::Full };
            let threads = self.threads.or(NonZeroUsize::new(threads())).unwrap_or(NonZeroUsize::MIN);
            return papers::run(which, effort, threads, self.json);
        }
        let experiments = match self.read()? {
            Ok(experiments) => experiments,
            Err(errors) => {
                eprint!("{}", errors.render(output::colour_on_stderr()));
                return Ok(Status::Wrong);
            }
        };
        // Nothing is worth keeping of a comparison that is not complete.
        let at_once = Arc::new(AtomicBool::new(true));
        signal_hook::flag::register_conditional_shutdown(signal_hook::consts::SIGINT, INTERRUPTED, at_once)?;
        for path in [&self.html, &self.matrix].into_iter().flatten() {
            // Better now than after the last run.
            writable(path)?;
        }
        let threads = self.threads.map_or_else(threads, NonZeroUsize::get);
        let mut all = Vec::new();
        for Loaded { experiment, .. } in &experiments {
            let mut line = ProgressLine::new(&experiment.name);
            let results = experiment.run(threads, progress::INTERVAL, |progress| line.show(progress));
            line.clear();
            let results = results.context("runs were left out")?;
            if !self.json {
                output::print(&table::render(&results))?;
            }
            all.push(results);
        }
        if self.json {
            output::json(&Output { experiments: &all })?;
        }
        if let Some(path) = &self.html {
            let parts = all.iter().zip(&experiments);
            let parts: Vec<_> =
                parts.map(|(results, loaded)| Part { results, source: &loaded.source.text }).collect();
            fs::write(path, html::page(&parts)).with_context(|| path.display().to_string())?;
        }
        if let Some(path) = &self.matrix {
            let picture = path.with_extension("svg");
            let picture_name = picture.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let matrix = Matrix::new(&all);
            let command =
                format!("evener sim SCENARIO… --all-policies --seeds {} --matrix", all[0].replications);
            fs::write(path, matrix.markdown(&picture_name, &command))
                .with_context(|| path.display().to_string())?;
            fs::write(&picture, matrix.picture()).with_context(|| picture.display().to_string())?;
        }
        Ok(Status::Done)
    }

    /// All files, or all that is wrong with them.
    fn read(&self) -> anyhow::Result<Result<Vec<Loaded>, Errors>> {
        let overrides = Overrides { seed: self.seed, replications: self.seeds, quick: self.quick };
        let (mut experiments, mut errors) = (Vec::new(), Vec::new());
        for file in &self.files {
            let source = Arc::new(read(file)?);
            // Where the scenario is, there is its trace.
            let folder = file.parent().unwrap_or(Path::new(""));
            let mut traces = |wanted: &TraceFile| trace::read(&folder.join(&wanted.file), wanted);
            match Experiment::parse(&source.text, &overrides, &mut traces) {
                Ok((mut experiment, warnings)) => {
                    let warnings = located(&source, warnings);
                    if !warnings.is_empty() {
                        eprint!("{}", Errors::new(warnings).render_as_warnings(output::colour_on_stderr()));
                    }
                    if self.all_policies {
                        experiment.contenders = matrix::contenders();
                    }
                    if experiment.name.is_empty() {
                        experiment.name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                    }
                    experiments.push(Loaded { experiment, source });
                }
                Err(found) => errors.extend(located(&source, found)),
            }
        }
        Ok(if errors.is_empty() { Ok(experiments) } else { Err(Errors::new(errors)) })
    }
}

fn read(file: &Path) -> anyhow::Result<Source> {
    let name = file.display().to_string();
    let text = fs::read_to_string(file).map_err(|error| crate::Wrong(format!("{name}: {error}")))?;
    Ok(Source { name, text })
}

/// Fails if a file cannot be written.
fn writable(path: &Path) -> anyhow::Result<()> {
    let open = fs::OpenOptions::new().append(true).create(true).open(path);
    open.map_err(|error| crate::Wrong(format!("{}: {error}", path.display())))?;
    Ok(())
}

fn located(source: &Arc<Source>, found: Vec<Located>) -> Vec<ConfigError> {
    let error = |Located { span, finding }| {
        ConfigError::new(source, span, finding.key, finding.message, finding.help)
    };
    found.into_iter().map(error).collect()
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}
