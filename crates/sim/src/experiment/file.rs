//! From TOML to an [`Experiment`].

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;
use toml::de::DeValue;

use super::document::{Document, Located, read};
use super::policy::{Wrong, contender};
use super::trace::{self, TraceReader};
use super::{Contender, Experiment, Point};
use crate::Scenario;
use crate::check::Finding;
use crate::scenario::Arrivals;

/// Policies in an experiment at the most.
const CONTENDERS_MAX: usize = 64;
/// Loads at the most.
const POINTS_MAX: usize = 200;
/// Replications at the most.
const REPLICATIONS_MAX: u32 = 10_000;
/// Runs in all at the most: their figures are kept.
const RUNS_MAX: usize = 100_000;
/// Jobs over all runs at the most: some hours of simulation.
const JOBS_MAX: f64 = 1e11;
/// Jobs in each run of a quick experiment, about.
const QUICK_JOBS: f64 = 20_000.0;
/// Replications of a quick experiment, if none are asked for.
const QUICK_REPLICATIONS: u32 = 3;

/// What the caller says instead of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// The seed of the first replication.
    pub seed: Option<u64>,
    /// Replications.
    pub replications: Option<u32>,
    /// Few jobs and few replications: to see that it works, not to trust the figures. All times of the scenario that
    /// say when something happens shrink alike.
    pub quick: bool,
}

/// The keys beside those of a [`Scenario`].
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Keys {
    name: String,
    description: String,
    seed: u64,
    seeds: u32,
    rates: Vec<f64>,
    loads: Vec<f64>,
}

impl Default for Keys {
    fn default() -> Keys {
        Keys {
            name: String::new(),
            description: String::new(),
            seed: 1,
            seeds: 10,
            rates: Vec::new(),
            loads: Vec::new(),
        }
    }
}

const KEYS: [&str; 6] = ["name", "description", "seed", "seeds", "rates", "loads"];
/// All that are not the scenario's.
const OWN: [&str; 7] = ["name", "description", "policies", "seed", "seeds", "rates", "loads"];

impl Experiment {
    /// Reads an experiment, and warns of what is allowed in it but probably not meant. What a trace names is read by
    /// `traces`.
    ///
    /// # Errors
    /// All that is wrong, with its place in the text.
    pub fn parse(
        text: &str,
        overrides: &Overrides,
        traces: &mut TraceReader<'_>,
    ) -> Result<(Experiment, Vec<Located>), Vec<Located>> {
        let mut document = Document::parse(text)?;
        let trace = trace::take(&mut document, traces).map_err(|error| vec![error])?;
        let sweeps = document.has("rates") || document.has("loads");
        let has_rate = trace.is_none() && document.has("arrivals.rate");
        if sweeps && trace.is_none() && !has_rate && document.text("arrivals", "kind") != Some("closed") {
            // What is swept need not be said twice.
            document.insert("arrivals", "rate", "1.0");
        }
        let mut errors = Vec::new();
        let scenario: Option<Scenario> =
            read(&document.without(&OWN), "", &OWN).map_err(|error| errors.push(error)).ok();
        let keys: Option<Keys> =
            read(&document.only(&KEYS), "", &[]).map_err(|error| errors.push(error)).ok();
        let contenders = contenders(&document, &mut errors);
        let (Some(mut scenario), Some(keys)) = (scenario, keys) else { return Err(errors) };
        if let Some(trace) = trace {
            trace.put(&mut scenario);
        }
        if sweeps && has_rate {
            let help = "leave out one of them".to_owned();
            errors.push(document.error("arrivals.rate", "is also said by `rates` or `loads`", Some(help)));
        }
        let mut experiment = Experiment {
            name: keys.name,
            description: keys.description,
            scenario,
            contenders,
            points: Vec::new(),
            seed: overrides.seed.unwrap_or(keys.seed),
            replications: overrides.replications.unwrap_or(keys.seeds),
        };
        let sweep = match (keys.rates.is_empty(), keys.loads.is_empty()) {
            (false, _) => Some(Sweep::Rates(keys.rates)),
            (true, false) => Some(Sweep::Loads(keys.loads)),
            (true, true) => None,
        };
        if document.has("rates") && document.has("loads") {
            errors.push(document.error(
                "loads",
                "`rates` says the same",
                Some("leave out one of them".into()),
            ));
        }
        if overrides.quick && overrides.replications.is_none() {
            experiment.replications = experiment.replications.min(QUICK_REPLICATIONS);
        }
        let found = experiment.complete(sweep, overrides.quick);
        errors.extend(found.into_iter().map(|finding| document.locate(finding)));
        errors.sort_by_key(|located| located.span.start);
        let (warnings, errors): (Vec<Located>, Vec<Located>) =
            errors.into_iter().partition(|located| located.finding.is_warning);
        if errors.is_empty() { Ok((experiment, warnings)) } else { Err(errors) }
    }

    /// Adds the points, and says what is wrong: with the scenario at each of them, and with the size of it all.
    fn complete(&mut self, sweep: Option<Sweep>, quick: bool) -> Vec<Finding> {
        let base = self.scenario.check();
        if base.iter().any(|finding| !finding.is_warning) {
            return base;
        }
        let key = sweep.as_ref().map(Sweep::key);
        match self.points(sweep) {
            Ok(points) => self.points = points,
            Err(findings) => return findings,
        }
        self.scenario = self.scenario_at(&self.points[0]);
        if quick {
            self.hurry();
        }
        let mut findings = self.check_size();
        findings.extend(self.check_contenders());
        for (index, point) in self.points.iter().enumerate() {
            for mut finding in self.scenario_at(point).check() {
                if let Some(key) = key.filter(|_| finding.key.starts_with("arrivals")) {
                    finding.key = format!("{key}[{index}]");
                }
                // What is said of one load need not be said of all above it.
                let known =
                    |other: &Finding| other.is_warning && other.help == finding.help || *other == finding;
                if !findings.iter().any(known) {
                    findings.push(finding);
                }
            }
        }
        findings
    }

    fn points(&self, sweep: Option<Sweep>) -> Result<Vec<Point>, Vec<Finding>> {
        let capacity = self.scenario.capacity();
        let Some(sweep) = sweep else {
            let (rate, load) = (self.scenario.arrivals.rate(), self.scenario.offered());
            return Ok(vec![Point { rate, load }]);
        };
        let key = sweep.key();
        if matches!(self.scenario.arrivals, Arrivals::Closed { .. }) {
            let help = "say `clients` and `think`, one file for each load";
            return Err(vec![error(key, "clients that wait for answers have no rate", Some(help))]);
        }
        let (listed, high, expected) = match &sweep {
            Sweep::Rates(rates) => (rates, 1e9, "jobs a second, above 0 and at most 1000000000"),
            Sweep::Loads(loads) => (loads, 10.0, "a share of what the nodes can do, above 0 and at most 10"),
        };
        let mut findings = Vec::new();
        if listed.len() > POINTS_MAX {
            let message = format!("expected {POINTS_MAX} at the most, found {}", listed.len());
            findings.push(error(key, message, None));
        }
        for (index, value) in listed.iter().enumerate() {
            if !(*value > 0.0 && *value <= high) {
                findings.push(error(
                    format!("{key}[{index}]"),
                    format!("expected {expected}, found {value}"),
                    None,
                ));
            }
        }
        if !findings.is_empty() {
            return Err(findings);
        }
        let point = |value: &f64| {
            let (rate, load) = match sweep {
                Sweep::Rates(_) => (*value, value / capacity),
                Sweep::Loads(_) => (value * capacity, *value),
            };
            Point { rate: Some(rate), load: Some(load) }
        };
        Ok(listed.iter().map(point).collect())
    }

    fn check_size(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        if self.replications == 0 || self.replications > REPLICATIONS_MAX {
            let message = format!("expected 1 to {REPLICATIONS_MAX}, found {}", self.replications);
            findings.push(error("seeds", message, None));
            return findings;
        }
        let jobs: f64 = self.points.iter().map(|point| self.scenario_at(point).jobs_expected()).sum();
        let jobs = jobs * self.contenders.len() as f64 * f64::from(self.replications);
        if self.runs() > RUNS_MAX {
            let message =
                format!("{} runs in all (policies × loads × seeds); {RUNS_MAX} is the limit", self.runs());
            findings.push(error("seeds", message, Some("lower `seeds`")));
        } else if jobs > JOBS_MAX {
            let message = format!("{jobs:.1e} jobs over all runs; {JOBS_MAX:e} is the limit");
            findings.push(error("seeds", message, Some("lower `seeds` or the duration")));
        }
        findings
    }

    /// What is wrong with what policies say of reports themselves.
    fn check_contenders(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (index, contender) in self.contenders.iter().enumerate() {
            for mut finding in contender.scenario(&self.scenario).check() {
                let said = [
                    ("signals.when", "reports", contender.reports.is_some()),
                    ("steering", "steering", contender.steering.is_some()),
                ];
                let own = said.iter().find(|(key, _, own)| *own && finding.key.starts_with(key));
                if let Some((_, key, _)) = own {
                    finding.key = format!("policies[{index}].{key}");
                    findings.push(finding);
                }
            }
        }
        findings
    }

    /// Shortens all times that say when something happens alike, so that jobs are few.
    fn hurry(&mut self) {
        let jobs =
            self.points.iter().map(|point| self.scenario_at(point).jobs_expected()).fold(0.0, f64::max);
        let factor = QUICK_JOBS / jobs;
        if factor >= 1.0 {
            return;
        }
        let shorten = |time: &mut Duration| *time = time.mul_f64(factor);
        let scenario = &mut self.scenario;
        shorten(&mut scenario.duration);
        shorten(&mut scenario.warm_up);
        for fault in scenario.nodes.iter_mut().flat_map(|group| &mut group.faults) {
            shorten(&mut fault.from);
            if let Some(to) = &mut fault.to {
                shorten(to);
            }
        }
    }
}

/// What the loads are said in.
#[derive(Debug)]
enum Sweep {
    Rates(Vec<f64>),
    Loads(Vec<f64>),
}

impl Sweep {
    fn key(&self) -> &'static str {
        match self {
            Sweep::Rates(_) => "rates",
            Sweep::Loads(_) => "loads",
        }
    }
}

fn contenders(document: &Document<'_>, errors: &mut Vec<Located>) -> Vec<Contender> {
    let entries: &[Spanned<DeValue<'_>>] = match document.value("policies").map(Spanned::get_ref) {
        Some(DeValue::Array(entries)) if entries.is_empty() => {
            errors.push(document.error("policies", "expected one policy at least, found none", None));
            return Vec::new();
        }
        Some(DeValue::Array(entries)) if entries.len() > CONTENDERS_MAX => {
            let message = format!("expected {CONTENDERS_MAX} at the most, found {}", entries.len());
            errors.push(document.error("policies", message, None));
            return Vec::new();
        }
        Some(DeValue::Array(entries)) => entries,
        found => {
            let message = match found {
                Some(_) => "expected a list of policies",
                None => "`policies` is missing",
            };
            let help = "such as policies = [\"round-robin\", \"least-jobs\"]".to_owned();
            errors.push(document.error("policies", message, Some(help)));
            return Vec::new();
        }
    };
    let mut contenders: Vec<Contender> = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let path = format!("policies[{index}]");
        match contender(entry, &path) {
            Ok(contender) if contenders.iter().any(|other| other.label == contender.label) => {
                let message = format!("\"{}\" is there already", contender.label);
                let help = "tell them apart with `label`".to_owned();
                errors.push(document.error(&path, message, Some(help)));
            }
            Ok(contender) => contenders.push(contender),
            Err(Wrong::Form(located)) => errors.push(located),
            Err(Wrong::Value(finding)) => errors.push(document.locate(finding)),
        }
    }
    contenders
}

fn error(key: impl Into<String>, message: impl Into<String>, help: Option<&str>) -> Finding {
    Finding { is_warning: false, key: key.into(), message: message.into(), help: help.map(Into::into) }
}
