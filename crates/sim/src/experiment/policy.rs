use std::time::Duration;

use evener_scheduler::{Order, Outlier, Policy, Settings};
use serde::Deserialize;
use toml::Spanned;
use toml::de::DeValue;

use super::document::{Located, nearest, read};
use crate::Dispatch;
use crate::check::Finding;

/// The dispatch that knows everything, by the name it has in files.
const CENTRAL: &str = "central";

/// A policy in a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// What it is called in results: unique.
    pub label: String,
    /// What it is.
    pub dispatch: Dispatch,
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

    /// Whether it is [`Dispatch::Central`], which nobody can build.
    pub fn is_central(&self) -> bool {
        self.dispatch == Dispatch::Central
    }
}

/// One entry of `policies`: a name, or a table.
pub(super) struct Entry;

/// What is wrong with an entry.
pub(super) enum Wrong {
    /// Its form.
    Form(Located),
    /// A value in it.
    Value(Finding),
}

impl Entry {
    pub(super) fn read(entry: &Spanned<DeValue<'_>>, path: &str) -> Result<Contender, Wrong> {
        let name = entry.get_ref().as_str();
        let options = match name {
            Some(name) => Options { policy: name.to_owned(), ..Options::default() },
            None if entry.get_ref().is_table() => read(entry, path, &[]).map_err(Wrong::Form)?,
            None => {
                let message = "expected the name of a policy, or a table with its settings".into();
                return Err(Wrong::Value(Finding {
                    is_warning: false,
                    key: path.into(),
                    message,
                    help: None,
                }));
            }
        };
        options.contender().map_err(|bad| {
            let key = if name.is_some() { path.to_owned() } else { format!("{path}.{}", bad.key) };
            Wrong::Value(Finding { is_warning: false, key, message: bad.message, help: bad.help })
        })
    }
}

/// A policy with settings, named as in the director's configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Options {
    policy: String,
    label: Option<String>,
    order: Option<String>,
    choices: Option<u8>,
    #[serde(default, with = "humantime_serde")]
    phase: Option<Duration>,
    #[serde(alias = "load_bound")]
    load_bound: Option<f64>,
    #[serde(default, with = "humantime_serde", alias = "slow_start")]
    slow_start: Option<Duration>,
    #[serde(alias = "panic_threshold")]
    panic_threshold: Option<u8>,
    eject: Option<Eject>,
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
            return Ok(Contender { label: self.label.unwrap_or(self.policy), dispatch: Dispatch::Central });
        }
        let Ok(policy) = self.policy.parse::<Policy>() else { return Err(unknown(&self.policy)) };
        let mut settings = Settings { policy, ..Settings::default() };
        let mut said = Vec::new();
        if let Some(order) = &self.order {
            settings.order = order.parse().map_err(|_| {
                bad(
                    "order",
                    format!("expected \"{}\" or \"{}\", found \"{order}\"", Order::Smooth, Order::Tokens),
                )
            })?;
            said.push(order.clone());
        }
        if let Some(choices) = self.choices {
            settings.choices = within("choices", choices, 1, 16)?;
            said.push(format!("{choices} choices"));
        }
        if let Some(phase) = self.phase {
            if phase.is_zero() {
                return Err(bad("phase", "expected a duration above 0".into()));
            }
            settings.phase = phase;
            said.push(format!("phase {phase:?}"));
        }
        if let Some(bound) = self.load_bound {
            settings.load_bound_percent = (within("load-bound", bound, 1.0, 10.0)? * 100.0).round() as u32;
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
        match self.eject {
            None => {}
            Some(Eject::Word(word)) if word == "off" => {
                settings.outlier = None;
                said.push("no ejection".into());
            }
            Some(Eject::Word(word)) => {
                return Err(bad("eject", format!("expected \"off\" or a table, found \"{word}\"")));
            }
            Some(Eject::Table(options)) => {
                settings.outlier = Some(options.outlier()?);
                said.push("own ejection".into());
            }
        }
        let suffix = if said.is_empty() { String::new() } else { format!(" ({})", said.join(", ")) };
        let label = self.label.unwrap_or_else(|| format!("{policy}{suffix}"));
        Ok(Contender { label, dispatch: Dispatch::Scheduler(settings) })
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

fn within<T: PartialOrd + std::fmt::Display>(key: &'static str, value: T, from: T, to: T) -> Result<T, Bad> {
    if value >= from && value <= to {
        return Ok(value);
    }
    Err(bad(key, format!("expected {from} to {to}, found {value}")))
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
