//! `evener weigh`: what weight a node should have.

mod compare;
mod document;
mod drive;
mod host;
mod measured;
mod probes;
mod report;
mod search;
mod trial;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use evener_replay::{Arrivals, Target};

use self::document::{Document, Node, SCHEMA, Verdict, Weight};
use self::measured::Wish;
use self::probes::{Probe, Progress};
use super::load::{Gaps, duration, rate};
use crate::Wrong;
use crate::output::{self, Status};

/// What a process has ended with that was interrupted from the keyboard: 128 + SIGINT.
const INTERRUPTED: i32 = 130;

/// Suggests the weight that a node should have.
///
/// By itself, it runs short probes on this machine: hashing, memory, system calls, changes between threads, TCP over the
/// loopback and the disk, each as one copy and as a copy for each CPU. The geometric mean of what all copies did, against
/// a reference machine, is the weight. Nodes that were weighed each by itself have weights in proportion.
///
/// With --drive, it sends ever more requests to a node, to the highest rate at which a percentile of the answers stays
/// within a limit. That is to be trusted before the probes: it is measured with the node's own jobs. It overloads the
/// node for about a minute: take the node out of service first.
///
/// Exit status 1 if there is no answer: no probe ran, or a node did not carry even the lowest rate.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evener weigh
  evener weigh --skip disk --json > rat.json
  evener weigh --only hash,memory,tcp --seconds 20
  evener weigh --drive http://10.0.0.1/ --limit 200ms --reference 500
  evener weigh --drive http://10.0.0.1/ --drive http://10.0.0.5/ --limit 200ms --percentile 99 --success 99.5%
  evener weigh --compare rat.json ox.json")]
pub(crate) struct Weigh {
    /// What the node is called in what is printed; else the name of this machine, or what the URL says
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// A short look: a tenth of the time, figures that are not to be trusted
    #[arg(long)]
    quick: bool,
    /// Print what was found as JSON
    #[arg(long)]
    json: bool,
    /// Weights for a pool from files that --json wrote, as a table and as TOML to paste. Files of the same node (by
    /// its name) are put together
    #[arg(long, help_heading = "A pool", value_name = "FILE", num_args = 1.., conflicts_with_all = ["drive", "name", "quick"])]
    #[arg(conflicts_with_all = Probing::NAMES)]
    compare: Vec<PathBuf>,
    #[command(flatten)]
    probing: Probing,
    #[command(flatten)]
    driving: Driving,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Probes of this machine")]
struct Probing {
    /// Run only these: hash, memory-stream, memory-random, syscalls, switches, tcp-requests, tcp-stream, disk-write,
    /// disk-read; `memory`, `tcp` and `disk` mean both of theirs
    #[arg(long, value_name = "PROBE", value_delimiter = ',', value_parser = choice)]
    only: Vec<Choice>,
    /// Leave these out
    #[arg(long, value_name = "PROBE", value_delimiter = ',', value_parser = choice)]
    skip: Vec<Choice>,
    /// About how long they take together; 5 s for each if it is not said
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Where to measure the disk: a file of 32 MiB for each CPU, 1 GiB at the most; /var/tmp if it is not said
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// The weight for each CPU of the reference machine; take the same for all nodes; 10 if it is not said
    #[arg(long, value_name = "WEIGHT", value_parser = scale)]
    scale: Option<f64>,
}

impl Probing {
    const NAMES: [&'static str; 5] = ["only", "skip", "seconds", "folder", "scale"];
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Driving a node")]
struct Driving {
    /// Drive this node; several are driven one after the other, and get weights in proportion. An
    /// n in braces becomes the number of the request
    #[arg(long, value_name = "URL", requires = "limit", conflicts_with_all = Probing::NAMES)]
    drive: Vec<Target>,
    /// The time within which the percentile of the answers must stay
    #[arg(long, value_name = "TIME", requires = "drive", value_parser = duration)]
    limit: Option<Duration>,
    /// Which percentile, from 50 to 99.9
    #[arg(long, value_name = "P", requires = "drive", default_value_t = 99.0, value_parser = percentile)]
    percentile: f64,
    /// The least share of requests that must succeed; a status of 400 or above is no success
    #[arg(long, value_name = "SHARE", requires = "drive", default_value = "99.5%", value_parser = share)]
    success: f64,
    /// The rate that is worth a weight of 100
    #[arg(long, value_name = "RATE", requires = "drive", value_parser = rate)]
    reference: Option<f64>,
    /// The rate to begin with; else half of what the node does when requests come one by one
    #[arg(long, value_name = "RATE", requires = "drive", value_parser = rate)]
    start: Option<f64>,
    /// The highest rate to try
    #[arg(long, value_name = "RATE", requires = "drive", default_value_t = 100_000.0, value_parser = rate)]
    rate_max: f64,
    /// The least time of each trial; 5 s if it is not said. It is longer if the limit or the percentile ask for it
    #[arg(long, value_name = "TIME", requires = "drive", value_parser = duration)]
    trial: Option<Duration>,
    /// Gaps between requests: random as from many users, or all the same
    #[arg(long, value_enum, requires = "drive", default_value_t = Gaps::Poisson)]
    arrivals: Gaps,
    /// Drive nodes outside private networks too. Do it to your own only
    #[arg(long, requires = "drive")]
    yes: bool,
}

/// The probes that a name stands for.
#[derive(Clone, Debug)]
struct Choice(Vec<Probe>);

impl Weigh {
    pub(crate) fn run(self) -> anyhow::Result<Status> {
        if !self.compare.is_empty() {
            return self.compare();
        }
        if !self.driving.drive.is_empty() {
            return self.drive();
        }
        let wish = self.wish()?;
        // Files have no names, so nothing is left behind.
        let at_once = Arc::new(AtomicBool::new(true));
        signal_hook::flag::register_conditional_shutdown(signal_hook::consts::SIGINT, INTERRUPTED, at_once)?;
        let shown = io::stderr().is_terminal();
        let document = wish.measure(|step, elapsed| {
            if shown {
                output::rewrite_line(&progress_line(step, elapsed));
            }
        });
        clear(shown);
        self.print(&document, |document| report::probes(document, wish.scale))?;
        let found = document.nodes.iter().all(|node| node.weight.is_some());
        Ok(if found { Status::Done } else { Status::Failed })
    }

    fn wish(&self) -> anyhow::Result<Wish> {
        let Probing { only, skip, seconds, folder, scale } = &self.probing;
        let is_in = |choices: &[Choice], probe: &Probe| choices.iter().any(|choice| choice.0.contains(probe));
        let probes: Vec<Probe> = Probe::ALL
            .into_iter()
            .filter(|probe| only.is_empty() || is_in(only, probe))
            .filter(|probe| !is_in(skip, probe))
            .collect();
        if probes.is_empty() {
            return Err(Wrong("--only and --skip leave no probe".to_owned()).into());
        }
        Ok(Wish {
            probes,
            time: *seconds,
            quick: self.quick,
            folder: folder.clone().unwrap_or_else(usual_folder),
            scale: scale.unwrap_or(measured::SCALE),
            name: self.name.clone(),
        })
    }

    fn drive(&self) -> anyhow::Result<Status> {
        let Driving { drive: targets, reference, .. } = &self.driving;
        let names = self.names()?;
        if let Some(far) = targets.iter().find(|target| !drive::is_near(target) && !self.driving.yes) {
            return Err(Wrong(format!(
                "{} ({}) is in no private network: this would overload it. If it is yours, say --yes",
                far.host,
                far.address.ip()
            ))
            .into());
        }
        let wish = drive::Wish {
            limit: self.driving.limit.expect("it is required"),
            percentile: self.driving.percentile,
            success: self.driving.success,
            arrivals: match self.driving.arrivals {
                Gaps::Poisson => Arrivals::Poisson,
                Gaps::Even => Arrivals::Even,
            },
            start: self.driving.start,
            rate_max: self.driving.rate_max,
            trial: self.driving.trial,
            quick: self.quick,
        };
        eprintln!("This overloads {} for a while, on purpose. Ctrl-C stops it at once.", names.join(", "));
        let interrupted = crate::demo::interrupts()?;
        let mut nodes: Vec<Node> = Vec::new();
        for (target, name) in targets.iter().zip(&names) {
            nodes.push(drive::run(&wish, name, target, &interrupted)?);
            clear(io::stderr().is_terminal());
            if interrupted.load(Ordering::Relaxed) {
                break;
            }
        }
        let is_all = nodes.len() == names.len();
        let is_found = |node: &Node| node.drive.as_ref().is_some_and(|drive| drive.verdict == Verdict::Found);
        let done = is_all && nodes.iter().all(is_found);
        let mut document = Document { schema: SCHEMA, nodes };
        match reference {
            Some(reference) => by_reference(&mut document, *reference),
            None if is_all && document.nodes.len() > 1 => {
                // Where one of them could not be driven, there is nothing to be in proportion to.
                if let Ok(compared) = compare::weigh(document.nodes.clone()) {
                    document = compared;
                }
            }
            None => {}
        }
        self.print(&document, |document| {
            let mut out = report::driven(document);
            if document.nodes.len() > 1 && document.nodes.iter().all(|node| node.weight.is_some()) {
                out += &format!("\n{}\n{}", report::weights(document), report::toml(document));
            }
            out
        })?;
        Ok(if done { Status::Done } else { Status::Failed })
    }

    /// What the nodes to be driven are called.
    fn names(&self) -> anyhow::Result<Vec<String>> {
        let targets = &self.driving.drive;
        let names: Vec<String> = match (&self.name, &targets[..]) {
            (None, _) => targets.iter().map(|target| target.host.clone()).collect(),
            (Some(name), [_]) => vec![name.clone()],
            (Some(_), _) => return Err(Wrong("--name is for one node, not for several".to_owned()).into()),
        };
        match names.iter().enumerate().find(|(index, name)| names[..*index].contains(name)) {
            Some((_, twice)) => Err(Wrong(format!("{twice} is to be driven twice")).into()),
            None => Ok(names),
        }
    }

    fn compare(&self) -> anyhow::Result<Status> {
        let mut nodes = Vec::new();
        for path in &self.compare {
            nodes.extend(compare::read(path)?);
        }
        let document = compare::weigh(nodes).map_err(Wrong)?;
        self.print(&document, report::compared)?;
        Ok(Status::Done)
    }

    fn print(&self, document: &Document, text: impl Fn(&Document) -> String) -> anyhow::Result<()> {
        if self.json { output::json(document) } else { Ok(output::print(&text(document))?) }
    }
}

/// Gives nodes weights by the rate that is worth 100.
fn by_reference(document: &mut Document, reference: f64) {
    for node in &mut document.nodes {
        let rate = node.drive.as_ref().and_then(|drive| drive.rate);
        node.weight = rate.map(|rate| Weight::of(rate.times(100.0 / reference)));
    }
}

fn clear(shown: bool) {
    if shown {
        output::rewrite_line("");
    }
}

/// Where files lie that may be large and may last; on systems without such a place, the current folder.
fn usual_folder() -> PathBuf {
    let usual = Path::new("/var/tmp");
    if usual.is_dir() { usual.to_owned() } else { PathBuf::from(".") }
}

fn progress_line(step: Progress, elapsed: Duration) -> String {
    let copies = if step.copies == 1 { "1 copy".to_owned() } else { format!("{} copies", step.copies) };
    format!(
        "weighing: {:3.0} %, {:.0} s, {} ({copies})",
        step.share * 100.0,
        elapsed.as_secs_f64(),
        step.probe.name()
    )
}

fn choice(text: &str) -> Result<Choice, String> {
    let probes = Probe::named(text);
    if probes.is_empty() {
        let names: Vec<_> = Probe::ALL.into_iter().map(Probe::name).collect();
        return Err(format!("expected one of {}, or memory, tcp, disk", names.join(", ")));
    }
    Ok(Choice(probes))
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (1.0..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected seconds, from 1 to 3600".to_owned()),
    }
}

fn percentile(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percentile) if (50.0..=99.9).contains(&percentile) => Ok(percentile),
        _ => Err("expected a percentile from 50 to 99.9".to_owned()),
    }
}

/// A share from 0 to 1, said in percent.
fn share(text: &str) -> Result<f64, String> {
    match text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>() {
        Ok(percent) if (1.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("expected percents such as 99.5%".to_owned()),
    }
}

fn scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if (0.01..=256.0).contains(&scale) => Ok(scale),
        _ => Err("expected a number from 0.01 to 256".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_probe_is_told_what_there_is() {
        assert!(choice("disks").unwrap_err().contains("disk-write"));
        assert_eq!(choice("tcp").unwrap().0, [Probe::TcpRequests, Probe::TcpStream]);
        assert_eq!((share("99.5%"), share("100")), (Ok(0.995), Ok(1.0)));
        assert!(share("0.5").is_err() && percentile("100").is_err());
    }
}
