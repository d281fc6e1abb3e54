use std::time::Duration;

use evener_scheduler::{Order, Outlier, Policy, Settings, Variant};
use serde::Deserialize;
use toml::Spanned;
use toml::de::DeValue;

use super::document::{Located, nearest, read};
use crate::check::Finding;
use crate::{Dispatch, Period, Scenario, Steering, When};

/// The dispatch that knows everything, by the name it has in files.
const CENTRAL: &str = "central";

/// A policy in a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// What it is called in results: unique.
    pub label: String,
    /// What it is.
    pub dispatch: Dispatch,
    /// How often nodes report to it, where that is not as the scenario says.
    pub reports: Option<Period>,
    /// How weights follow the reports, where that is not as the scenario says.
    pub steering: Option<Steering>,
}

impl Contender {
    /// A policy by name, with the settings that a pool has by default.
    ///
    /// # Errors
    /// Says which name may have been meant.
    pub fn named(name: &str) -> Result<Contender, String> {
        Options { policy: name.into(), ..Options::default() }.contender().map_err(|bad| match bad.help {
            Some(help) => format!("{} ({help})", bad.message),
            None => bad.message,
        })
    }

    /// The scenario as this policy meets it.
    pub fn scenario(&self, scenario: &Scenario) -> Scenario {
        let mut scenario = scenario.clone();
        if let Some(period) = self.reports {
            let in_step = matches!(scenario.signals.when, When::Periodic { .. });
            scenario.signals.when = match in_step {
                true => When::Periodic { phase: period },
                false => When::Continuous { phase: period },
            };
        }
        scenario.steering = self.steering.or(scenario.steering);
        scenario
    }

    /// Whether it is [`Dispatch::Central`], which nobody can build.
    pub fn is_central(&self) -> bool {
        self.dispatch == Dispatch::Central
    }
}

/// What is wrong with an entry of `policies`.
pub(super) enum Wrong {
    /// Its form.
    Form(Located),
    /// A value in it.
    Value(Finding),
}

/// Reads an entry of `policies`: a name, or a table.
pub(super) fn contender(entry: &Spanned<DeValue<'_>>, path: &str) -> Result<Contender, Wrong> {
    let value = |key, message, help| Wrong::Value(Finding { is_warning: false, key, message, help });
    match entry.get_ref() {
        DeValue::String(name) => {
            let options = Options { policy: name.to_string(), ..Options::default() };
            options.contender().map_err(|bad| value(path.to_owned(), bad.message, bad.help))
        }
        DeValue::Table(_) => {
            let options: Options = read(entry, path, &[]).map_err(Wrong::Form)?;
            let key = |bad: &Bad| format!("{path}.{}", bad.key);
            options.contender().map_err(|bad| value(key(&bad), bad.message, bad.help))
        }
        _ => {
            let message = "expected the name of a policy, or a table with its settings";
            Err(value(path.to_owned(), message.to_owned(), None))
        }
    }
}

/// A policy with settings, named as in the director's configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Options {
    policy: String,
    label: Option<String>,
    order: Option<String>,
    variant: Option<String>,
    among: Option<u8>,
    within: Option<f64>,
    affinity: Option<u16>,
    choices: Option<u8>,
    #[serde(default, with = "humantime_serde")]
    phase: Option<Duration>,
    #[serde(alias = "error_penalty")]
    error_penalty: Option<f64>,
    dispatchers: Option<u16>,
    #[serde(alias = "current_bonus")]
    current_bonus: Option<f64>,
    #[serde(default, with = "humantime_serde", alias = "report_expiry")]
    report_expiry: Option<Duration>,
    #[serde(alias = "load_bound")]
    load_bound: Option<f64>,
    #[serde(default, with = "humantime_serde", alias = "slow_start")]
    slow_start: Option<Duration>,
    #[serde(alias = "panic_threshold")]
    panic_threshold: Option<u8>,
    tuning: Option<TuningOptions>,
    reports: Option<Period>,
    steering: Option<Steering>,
    eject: Option<Eject>,
}

/// What `informed` goes by: not for the director, but to see what each is good for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TuningOptions {
    jobs_steady: Option<f64>,
    jobs_recent: Option<f64>,
    errors: Option<f64>,
    cap: Option<f64>,
    memory_s: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected \"off\", or a table of failures, error-share, requests, interval, base and max"
)]
enum Eject {
    Word(String),
    Table(EjectOptions),
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct EjectOptions {
    failures: u32,
    #[serde(alias = "error_share")]
    error_share: u8,
    requests: u32,
    #[serde(with = "humantime_serde")]
    interval: Duration,
    #[serde(with = "humantime_serde")]
    base: Duration,
    #[serde(with = "humantime_serde")]
    max: Duration,
}

impl Default for EjectOptions {
    fn default() -> EjectOptions {
        let outlier = Outlier::default();
        EjectOptions {
            failures: outlier.consecutive,
            error_share: outlier.error_percent,
            requests: outlier.requests_min,
            interval: outlier.interval,
            base: outlier.ejection,
            max: outlier.ejection_max,
        }
    }
}

/// A value that does not do.
struct Bad {
    key: &'static str,
    message: String,
    help: Option<String>,
}

impl Options {
    fn contender(self) -> Result<Contender, Bad> {
        if self.policy == CENTRAL {
            let label = self.label.unwrap_or(self.policy);
            let (reports, steering) = (self.reports, self.steering);
            return Ok(Contender { label, dispatch: Dispatch::Central, reports, steering });
        }
        let Ok(policy) = self.policy.parse::<Policy>() else { return Err(unknown(&self.policy)) };
        let mut settings = Settings { policy, ..Settings::default() };
        let mut said = self.tune(&mut settings)?;
        if let Some(eject) = self.eject {
            settings.outlier = eject.outlier()?;
            said.push(if settings.outlier.is_some() { "own ejection" } else { "no ejection" }.into());
        }
        let (reports, steering) = (self.reports, self.steering);
        said.extend(reports.map(|period| format!("reports {period}")));
        said.extend(steering.map(name));
        let suffix = if said.is_empty() { String::new() } else { format!(" ({})", said.join(", ")) };
        let label = self.label.unwrap_or_else(|| format!("{policy}{suffix}"));
        Ok(Contender { label, dispatch: Dispatch::Scheduler(settings), reports, steering })
    }

    /// Sets what is said, and says it again for the label.
    fn tune(&self, settings: &mut Settings) -> Result<Vec<String>, Bad> {
        let mut said = Vec::new();
        if let Some(order) = &self.order {
            let names = format!("\"{}\" or \"{}\"", Order::Smooth, Order::Tokens);
            settings.order = order.parse().map_err(|_| no_name("order", &names, order))?;
            said.push(order.clone());
        }
        if let Some(variant) = &self.variant {
            let names =
                [Variant::Least, Variant::Among, Variant::Artificial].map(|name| format!("\"{name}\""));
            settings.variant =
                variant.parse().map_err(|_| no_name("variant", &names.join(" or "), variant))?;
            said.push(variant.clone());
        }
        if let Some(among) = self.among {
            settings.among = within("among", among, 1, 16)?;
            said.push(format!("among {among}"));
        }
        if let Some(share) = self.within {
            settings.interval_percent = percent(within("within", share, 0.0, 1.0)?);
            said.push(format!("within {share}"));
        }
        if let Some(nodes) = self.affinity {
            settings.affinity = nodes;
            said.push(format!("affinity {nodes}"));
        }
        if let Some(choices) = self.choices {
            settings.choices = within("choices", choices, 1, 16)?;
            said.push(format!("{choices} choices"));
        }
        if let Some(phase) = self.phase {
            settings.phase = positive("phase", phase)?;
            said.push(format!("phase {phase:?}"));
        }
        if let Some(penalty) = self.error_penalty {
            settings.error_penalty_percent = percent(within("error-penalty", penalty, 0.0, 100.0)?);
            said.push(format!("error penalty {penalty}"));
        }
        if let Some(dispatchers) = self.dispatchers {
            settings.dispatchers = within("dispatchers", dispatchers, 0, 1000)?;
            said.push(format!("{dispatchers} dispatchers"));
        }
        if let Some(bonus) = self.current_bonus {
            settings.current_bonus_percent = percent(within("current-bonus", bonus, 0.0, 100.0)?);
            said.push(format!("current bonus {bonus}"));
        }
        if let Some(expiry) = self.report_expiry {
            settings.report_expiry = positive("report-expiry", expiry)?;
            said.push(format!("reports for {expiry:?}"));
        }
        if let Some(bound) = self.load_bound {
            settings.load_bound_percent = percent(within("load-bound", bound, 1.0, 10.0)?);
            said.push(format!("bound {bound}"));
        }
        if let Some(slow_start) = self.slow_start {
            settings.slow_start = slow_start;
            said.push(format!("slow start {slow_start:?}"));
        }
        if let Some(percent) = self.panic_threshold {
            settings.panic_percent = within("panic-threshold", percent, 0, 100)?;
            said.push(format!("panic {percent} %"));
        }
        if let Some(tuning) = &self.tuning {
            let mut set = |key, from: Option<f64>, to: &mut f64| {
                if let Some(number) = from {
                    *to = within(key, number, 0.0, 1e9)?;
                    said.push(format!("{} {number}", key.trim_start_matches("tuning.")));
                }
                Ok(())
            };
            set("tuning.jobs-steady", tuning.jobs_steady, &mut settings.tuning.jobs_steady)?;
            set("tuning.jobs-recent", tuning.jobs_recent, &mut settings.tuning.jobs_recent)?;
            set("tuning.errors", tuning.errors, &mut settings.tuning.errors)?;
            set("tuning.cap", tuning.cap, &mut settings.tuning.cap)?;
            set("tuning.memory-s", tuning.memory_s, &mut settings.tuning.memory_s)?;
        }
        Ok(said)
    }
}

impl Eject {
    fn outlier(self) -> Result<Option<Outlier>, Bad> {
        match self {
            Eject::Word(word) if word == "off" => Ok(None),
            Eject::Word(word) => Err(bad("eject", format!("expected \"off\" or a table, found \"{word}\""))),
            Eject::Table(options) => options.outlier().map(Some),
        }
    }
}

impl EjectOptions {
    fn outlier(self) -> Result<Outlier, Bad> {
        Ok(Outlier {
            consecutive: within("eject.failures", self.failures, 1, 1_000_000)?,
            error_percent: within("eject.error-share", self.error_share, 1, 100)?,
            requests_min: within("eject.requests", self.requests, 1, 1_000_000)?,
            interval: self.interval,
            ejection: self.base,
            ejection_max: self.max,
        })
    }
}

/// What a way of steering is called in labels.
fn name(steering: Steering) -> String {
    match steering {
        Steering::Smoothing { alpha, .. } => format!("smoothing {alpha}"),
        Steering::Integral { gain_per_s, .. } => format!("integral {gain_per_s}"),
    }
}

fn within<T: PartialOrd + std::fmt::Display>(key: &'static str, value: T, from: T, to: T) -> Result<T, Bad> {
    if value >= from && value <= to {
        return Ok(value);
    }
    Err(bad(key, format!("expected {from} to {to}, found {value}")))
}

/// 1.25 is 125 %.
fn percent(share: f64) -> u32 {
    (share * 100.0).round() as u32
}

fn positive(key: &'static str, duration: Duration) -> Result<Duration, Bad> {
    if duration.is_zero() {
        return Err(bad(key, "expected a duration above 0".into()));
    }
    Ok(duration)
}

fn no_name(key: &'static str, names: &str, found: &str) -> Bad {
    bad(key, format!("expected {names}, found \"{found}\""))
}

fn bad(key: &'static str, message: String) -> Bad {
    Bad { key, message, help: None }
}

fn unknown(name: &str) -> Bad {
    let names: Vec<&str> = Policy::ALL.iter().map(|policy| policy.name()).chain([CENTRAL]).collect();
    let help = nearest(name, &names).unwrap_or_else(|| format!("policies: {}", names.join(", ")));
    Bad {
        key: "policy",
        message: format!("expected the name of a policy, found \"{name}\""),
        help: Some(help),
    }
}
