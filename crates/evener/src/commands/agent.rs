use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use evener_load::measure::Answer;
use evener_load::settings::Source;
use evener_load::{Sample, Sampler, Settings};
use evener_model::{Report, Time};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Wrong;
use crate::output::Status;

/// Measures this node.
///
/// Reads what the kernel says of CPUs, network, disks, memory and open files, or of the control group that limits
/// them, and asks the servers, programs and metrics that --source or the configuration names for jobs. Prints what it
/// finds once a second, until it is interrupted.
///
/// With --once, exit status 1 if something could not be measured.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evener agent
  evener agent --once --json --source 'connections = { port = 80 }'
  evener agent --source 'mysql = { address = \"127.0.0.1:3306\", user = \"evener\" }'
  evener agent --once --source 'program = { run = [\"/usr/local/bin/health\"] }'
  evener agent -c /etc/evener/agent.toml --once --json | jq .report.jobs")]
pub(crate) struct Agent {
    /// A file with a table `[agent]` that says what to measure
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Ask this too, as in a table [[agent.source]]: connections, mysql, redis, memcached, nginx, json, prometheus
    /// or program; can be repeated
    #[arg(long = "source", value_name = "TOML", value_parser = source)]
    sources: Vec<Source>,
    /// Measure once, over one interval
    #[arg(long)]
    once: bool,
    /// Print JSON; without --once, a line each time
    #[arg(long)]
    json: bool,
}

/// A file for an agent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    agent: Settings,
}

impl Agent {
    pub(crate) fn run(self) -> anyhow::Result<Status> {
        let mut settings = match &self.config {
            None => Settings::default(),
            Some(path) => {
                let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
                let file = toml::from_str::<File>(&text);
                file.map_err(|error| Wrong(format!("{}: {}", path.display(), error.to_string().trim_end())))?
                    .agent
            }
        };
        settings.sources.extend(self.sources.iter().cloned());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.measure(&settings))
    }

    async fn measure(&self, settings: &Settings) -> anyhow::Result<Status> {
        let start = Instant::now();
        let mut sampler = Sampler::start(settings, Time::ZERO);
        let mut rounds = tokio::time::interval(sampler.interval());
        // A machine that was asleep needs no samples of that time.
        rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        rounds.tick().await;
        loop {
            rounds.tick().await;
            let now = Time::ZERO + start.elapsed();
            let sample =
                if self.once { sampler.sample_patiently(now).await } else { sampler.sample(now).await };
            let text = match (self.json, self.once) {
                (true, true) => format!("{:#}\n", describe(&sample)),
                (true, false) => format!("{}\n", describe(&sample)),
                (false, _) => summary(&sample),
            };
            match io::stdout().lock().write_all(text.as_bytes()) {
                // Nobody reads any more: `evener agent | head`.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Status::Done),
                result => result?,
            }
            if self.once {
                return Ok(if sample.failed.is_empty() { Status::Done } else { Status::Failed });
            }
        }
    }
}

fn source(text: &str) -> Result<Source, String> {
    toml::from_str(text).map_err(|error: toml::de::Error| error.message().to_owned())
}

/// For machines.
fn describe(sample: &Sample) -> Value {
    let sources = sample
        .answers
        .iter()
        .map(|(name, answer)| json!({ "name": name, "answer": answer.as_ref().map(fields) }));
    let services = sample.services.iter().map(|(name, report)| (name.clone(), fields(&said(report))));
    json!({
        "report": fields(&said(&sample.report)),
        "services": services.collect::<serde_json::Map<_, _>>(),
        "parts": sample.parts,
        "readings": sample.readings,
        "sources": sources.collect::<Vec<_>>(),
        "failed": sample.failed,
    })
}

/// A report without its time, which is now.
fn said(report: &Report) -> Answer {
    Answer {
        jobs: report.jobs,
        load: report.load,
        health: report.health,
        credits: report.credits,
        jobs_per_s: report.jobs_per_s,
        errors_per_s: report.errors_per_s,
        latency: report.latency,
    }
}

fn fields(answer: &Answer) -> Value {
    json!({
        "health": answer.health.map(|health| health.value()),
        "load": answer.load,
        "jobs": answer.jobs,
        "credits": answer.credits,
        "jobs_per_s": answer.jobs_per_s,
        "errors_per_s": answer.errors_per_s,
        "latency_ms": answer.latency.map(|latency| latency.as_secs_f64() * 1000.0),
    })
}

/// For people: a line, and one for each thing that could not be measured.
fn summary(sample: &Sample) -> String {
    let report = &sample.report;
    let shown = |value: Option<f32>| value.map_or("-".into(), |value| format!("{value:.2}"));
    let mut out = format!(
        "health {}  load {}  jobs {}",
        report.health.map_or("-".into(), |health| health.value().to_string()),
        shown(report.load),
        report.jobs.map_or("-".into(), |jobs| jobs.to_string()),
    );
    if let Some(jobs) = report.jobs_per_s {
        out += &format!("  jobs/s {jobs:.1}");
    }
    let parts = sample.parts.iter().map(|part| {
        let load = shown(part.load.map(|load| load as f32));
        if part.factor == 1.0 {
            format!("{} {load}", part.name)
        } else {
            format!("{} {load} × {}", part.name, part.factor)
        }
    });
    out += &format!("  ({})\n", parts.collect::<Vec<_>>().join(", "));
    for failure in &sample.failed {
        out += &format!("  {}: {}\n", failure.source, failure.reason);
    }
    out
}
