//! The keys of a pool that are its scheduler's settings.

use std::ops::RangeInclusive;
use std::time::Duration;

use evener_scheduler::{Order, Outlier, Policy, Settings, Variant};

use super::reader::{Problems, Table, Value, nearest};

/// What a pool says of its scheduler, and whether the time between reports is tuned while running.
pub(super) fn settings(p: &mut Problems, t: &mut Table<'_>) -> (Settings, bool) {
    let mut settings = Settings::default();
    settings.policy = t.or(p, "scheduler", settings.policy, |value, p| {
        let text = value.string(p)?;
        let policy = text.parse::<Policy>().ok();
        if policy.is_none() {
            let names = Policy::ALL.iter().map(|policy| policy.name());
            let help = nearest(text, names.clone())
                .unwrap_or_else(|| format!("schedulers: {}", names.collect::<Vec<_>>().join(", ")));
            p.add_with_help(value, format!("expected the name of a scheduler, found \"{text}\""), Some(help));
        }
        policy
    });
    let orders = [("smooth", Order::Smooth), ("tokens", Order::Tokens)];
    settings.order = t.or(p, "order", settings.order, |v, p| v.choice(p, &orders));
    let variants =
        [Variant::Least, Variant::Among, Variant::Artificial].map(|variant| (variant.name(), variant));
    settings.variant = t.or(p, "variant", settings.variant, |v, p| v.choice(p, &variants));
    settings.among = t.or(p, "among", u64::from(settings.among), |v, p| v.integer(p, 1..=16)) as u8;
    settings.interval_percent = percent(p, t, "within", settings.interval_percent, 0.0..=1.0);
    settings.error_penalty_percent =
        percent(p, t, "error_penalty", settings.error_penalty_percent, 0.0..=100.0);
    settings.dispatchers =
        t.or(p, "dispatchers", u64::from(settings.dispatchers), |v, p| v.integer(p, 0..=1000)) as u16;
    settings.affinity =
        t.or(p, "affinity", u64::from(settings.affinity), |v, p| v.integer(p, 0..=1000)) as u16;
    settings.report_expiry = t.or(p, "report_expiry", settings.report_expiry, longer_than_nothing);
    settings.choices = t.or(p, "choices", u64::from(settings.choices), |v, p| v.integer(p, 1..=16)) as u8;
    let phase = t.or(p, "phase", Some(settings.phase), |value, p| {
        if value.string(&mut Problems::default()) == Some("auto") {
            return Some(None);
        }
        longer_than_nothing(value, p).map(Some)
    });
    settings.phase = phase.unwrap_or(settings.phase);
    settings.load_bound_percent = percent(p, t, "load_bound", settings.load_bound_percent, 1.0..=10.0);
    settings.current_bonus_percent =
        percent(p, t, "current_bonus", settings.current_bonus_percent, 0.0..=100.0);
    settings.slow_start = t.or(p, "slow_start", settings.slow_start, Value::duration);
    settings.panic_percent =
        t.or(p, "panic_threshold", u64::from(settings.panic_percent), |v, p| v.integer(p, 0..=100)) as u8;
    settings.outlier = match t.take("eject") {
        None => Some(Outlier::default()),
        Some(value) if value.string(&mut Problems::default()) == Some("off") => None,
        Some(value) => value.table(p).map(|mut e| {
            let d = Outlier::default();
            let outlier = Outlier {
                consecutive: e.or(p, "failures", u64::from(d.consecutive), |v, p| v.integer(p, 1..=1_000_000))
                    as u32,
                error_percent: e
                    .or(p, "error_share", u64::from(d.error_percent), |v, p| v.integer(p, 1..=100))
                    as u8,
                requests_min: e
                    .or(p, "requests", u64::from(d.requests_min), |v, p| v.integer(p, 1..=1_000_000))
                    as u32,
                interval: e.or(p, "interval", d.interval, Value::duration),
                ejection: e.or(p, "base", d.ejection, Value::duration),
                ejection_max: e.or(p, "max", d.ejection_max, Value::duration),
            };
            e.finish(p);
            outlier
        }),
    };
    (settings, phase.is_none())
}

fn longer_than_nothing(v: &Value<'_>, p: &mut Problems) -> Option<Duration> {
    let duration = v.duration(p)?;
    if duration.is_zero() {
        p.add(v, "expected a duration above 0");
    }
    Some(duration)
}

/// A share that is written as a number, 1 being the whole.
fn percent(
    p: &mut Problems,
    t: &mut Table<'_>,
    key: &'static str,
    default: u32,
    range: RangeInclusive<f64>,
) -> u32 {
    let share = t.or(p, key, f64::from(default) / 100.0, |v, p| v.number(p, range));
    (share * 100.0).round() as u32
}
