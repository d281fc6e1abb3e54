//! Settings of a scheduler as pairs of names and values, so that a recording says what it was made with in
//! words that other programs can read too.

use std::str::FromStr;
use std::time::Duration;

use evener_scheduler::{Outlier, Settings};

use crate::wire::{Input, Wrong, nanos, put_number, put_text};

/// Beside the settings themselves: how many pairs there are at the most.
const PAIRS_MAX: usize = 256;

/// All settings by name, in the order in which they are declared.
fn pairs(settings: &Settings) -> Vec<(&'static str, String)> {
    let time = |duration: Duration| nanos(duration).to_string();
    let mut pairs = vec![
        ("policy", settings.policy.name().to_owned()),
        ("order", settings.order.name().to_owned()),
        ("variant", settings.variant.name().to_owned()),
        ("among", settings.among.to_string()),
        ("interval_percent", settings.interval_percent.to_string()),
        ("choices", settings.choices.to_string()),
        ("phase", time(settings.phase)),
        ("error_penalty_percent", settings.error_penalty_percent.to_string()),
        ("dispatchers", settings.dispatchers.to_string()),
        ("load_bound_percent", settings.load_bound_percent.to_string()),
        ("affinity", settings.affinity.to_string()),
        ("current_bonus_percent", settings.current_bonus_percent.to_string()),
        ("tuning.jobs_steady", settings.tuning.jobs_steady.to_string()),
        ("tuning.jobs_recent", settings.tuning.jobs_recent.to_string()),
        ("tuning.errors", settings.tuning.errors.to_string()),
        ("tuning.cap", settings.tuning.cap.to_string()),
        ("tuning.memory_s", settings.tuning.memory_s.to_string()),
        ("slow_start", time(settings.slow_start)),
        ("outlier", settings.outlier.is_some().to_string()),
        ("report_expiry", time(settings.report_expiry)),
        ("panic_percent", settings.panic_percent.to_string()),
    ];
    if let Some(outlier) = &settings.outlier {
        pairs.extend([
            ("outlier.consecutive", outlier.consecutive.to_string()),
            ("outlier.error_percent", outlier.error_percent.to_string()),
            ("outlier.requests_min", outlier.requests_min.to_string()),
            ("outlier.interval", time(outlier.interval)),
            ("outlier.ejection", time(outlier.ejection)),
            ("outlier.ejection_max", time(outlier.ejection_max)),
        ]);
    }
    pairs
}

pub(crate) fn put(out: &mut Vec<u8>, settings: &Settings) {
    let pairs = pairs(settings);
    put_number(out, pairs.len() as u64);
    for (name, value) in pairs {
        put_text(out, name);
        put_text(out, &value);
    }
}

/// What is not said is as by default. A name that is not known is an error: what it stands for may steer picks.
pub(crate) fn read(input: &mut Input<'_>) -> Result<Settings, Wrong> {
    let count: usize = input.small()?;
    if count > PAIRS_MAX {
        return Err(Wrong("too many settings"));
    }
    let mut settings = Settings::default();
    let mut outlier = Outlier::default();
    let mut is_judged = settings.outlier.is_some();
    for _ in 0..count {
        let (name, value) = (input.text()?, input.text()?);
        match name {
            "policy" => settings.policy = parse(value)?,
            "order" => settings.order = parse(value)?,
            "variant" => settings.variant = parse(value)?,
            "among" => settings.among = parse(value)?,
            "interval_percent" => settings.interval_percent = parse(value)?,
            "choices" => settings.choices = parse(value)?,
            "phase" => settings.phase = time(value)?,
            "error_penalty_percent" => settings.error_penalty_percent = parse(value)?,
            "dispatchers" => settings.dispatchers = parse(value)?,
            "load_bound_percent" => settings.load_bound_percent = parse(value)?,
            "affinity" => settings.affinity = parse(value)?,
            "current_bonus_percent" => settings.current_bonus_percent = parse(value)?,
            "tuning.jobs_steady" => settings.tuning.jobs_steady = parse(value)?,
            "tuning.jobs_recent" => settings.tuning.jobs_recent = parse(value)?,
            "tuning.errors" => settings.tuning.errors = parse(value)?,
            "tuning.cap" => settings.tuning.cap = parse(value)?,
            "tuning.memory_s" => settings.tuning.memory_s = parse(value)?,
            "slow_start" => settings.slow_start = time(value)?,
            "outlier" => is_judged = parse(value)?,
            "outlier.consecutive" => outlier.consecutive = parse(value)?,
            "outlier.error_percent" => outlier.error_percent = parse(value)?,
            "outlier.requests_min" => outlier.requests_min = parse(value)?,
            "outlier.interval" => outlier.interval = time(value)?,
            "outlier.ejection" => outlier.ejection = time(value)?,
            "outlier.ejection_max" => outlier.ejection_max = time(value)?,
            "report_expiry" => settings.report_expiry = time(value)?,
            "panic_percent" => settings.panic_percent = parse(value)?,
            _ => return Err(Wrong("a setting is not known to this program")),
        }
    }
    settings.outlier = is_judged.then_some(outlier);
    Ok(settings)
}

fn parse<T: FromStr>(text: &str) -> Result<T, Wrong> {
    text.parse().map_err(|_| Wrong("a setting's value is not known to this program"))
}

fn time(text: &str) -> Result<Duration, Wrong> {
    parse(text).map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_setting_is_forgotten() {
        let settings = Settings::default();
        let shown = format!("{settings:?}");
        let declared: BTreeSet<&str> = shown
            .split(['{', ','])
            .filter_map(|part| part.split_once(": "))
            .map(|(name, _)| name.trim())
            .filter(|name| *name != "tuning")
            .collect();
        let recorded: BTreeSet<String> = pairs(&settings)
            .into_iter()
            .map(|(name, _)| name.rsplit('.').next().unwrap_or_default().to_owned())
            .collect();
        let recorded: BTreeSet<&str> = recorded.iter().map(String::as_str).collect();
        assert_eq!(recorded, declared, "settings.rs must say what each setting is called in a recording");
    }

    #[test]
    fn every_value_comes_back() {
        let change = |(name, value): (&'static str, String), by: u64| match name {
            "policy" => (name, "maglev".to_owned()),
            "order" => (name, "tokens".to_owned()),
            "variant" => (name, "among".to_owned()),
            _ => (name, value.parse::<u64>().map_or(value, |number| (number * by + by).to_string())),
        };
        for by in [0, 1] {
            let changed = pairs(&Settings::default()).into_iter().map(|pair| change(pair, by));
            let changed: Vec<_> = changed.collect();
            let mut bytes = Vec::new();
            put_number(&mut bytes, changed.len() as u64);
            for (name, value) in &changed {
                put_text(&mut bytes, name);
                put_text(&mut bytes, value);
            }
            let read = read(&mut Input { rest: &bytes }).expect("settings");
            assert_eq!(pairs(&read), changed);
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let mut bytes = Vec::new();
        put_number(&mut bytes, 1);
        put_text(&mut bytes, "gravity");
        put_text(&mut bytes, "1");
        let read = read(&mut Input { rest: &bytes });
        assert_eq!(read, Err(Wrong("a setting is not known to this program")));
    }
}
