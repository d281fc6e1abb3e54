//! Jobs from text, a line each: access logs (common, combined, Evener's JSON) and plain lists.

use std::io::BufRead;

use evener_sim::TraceFile;
use serde::Deserialize;

use super::{Job, Jobs, key, next_line};

/// What the lines of a file look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// An object in each line, as `evener run` writes them.
    Json,
    /// Common or combined, perhaps with the time that the job took at the end.
    Common,
    /// Seconds, and perhaps the work in milliseconds and a key, with commas between.
    List,
}

/// What of a JSON line is needed.
#[derive(Deserialize)]
struct JsonLine<'a> {
    time: &'a str,
    #[serde(default)]
    pool: Option<&'a str>,
    #[serde(default)]
    client: Option<&'a str>,
    /// From the first byte of the request to the last of the answer.
    #[serde(default)]
    duration_us: Option<u64>,
    /// On the node.
    #[serde(default)]
    latency_us: Option<u64>,
}

/// All jobs, or the number of the line that is wrong.
pub(super) fn read(mut from: impl BufRead, wanted: &TraceFile) -> Result<Jobs, (usize, String)> {
    let mut jobs = Jobs::default();
    let (mut line, mut number, mut form) = (String::new(), 0, None);
    while next_line(&mut from, &mut line).map_err(|wrong| (number + 1, wrong))? {
        number += 1;
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let first = form.is_none();
        let form = *form.get_or_insert_with(|| Form::of(&line));
        let job = match form {
            Form::Json => json(&line, wanted),
            Form::Common => common(&line, wanted).map(Some),
            // The first line may name the columns.
            Form::List if first && !line.starts_with(|c: char| c.is_ascii_digit()) => Ok(None),
            Form::List => list(&line).map(Some),
        };
        if let Some(job) = job.map_err(|wrong| (number, wrong))? {
            jobs.add(job).map_err(|wrong| (number, wrong))?;
        }
    }
    Ok(jobs)
}

impl Form {
    fn of(line: &str) -> Form {
        if line.starts_with('{') {
            Form::Json
        } else if line.contains('[') {
            Form::Common
        } else {
            Form::List
        }
    }
}

fn json(line: &str, wanted: &TraceFile) -> Result<Option<Job>, String> {
    let line: JsonLine<'_> =
        serde_json::from_str(line).map_err(|error| format!("no line of Evener's access log: {error}"))?;
    if wanted.pool.is_some() && wanted.pool.as_deref() != line.pool {
        return Ok(None);
    }
    let at_nanos = rfc3339_nanos(line.time).ok_or_else(|| format!("no time: \"{}\"", line.time))?;
    let work_nanos = line.latency_us.or(line.duration_us).map(|us| us.saturating_mul(1000).max(1));
    Ok(Some(Job { at_nanos, work_nanos, key: line.client.map(key) }))
}

fn common(line: &str, wanted: &TraceFile) -> Result<Job, String> {
    if wanted.pool.is_some() {
        return Err("this format has no pools: leave out `pool`".into());
    }
    let time = line.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(time, _)| time);
    let at_nanos = time.and_then(common_nanos).ok_or("no time such as [10/Oct/2026:13:55:36 +0000]")?;
    let client = line.split(' ').next().unwrap_or_default();
    let work_nanos = if wanted.work { common_work(line) } else { None };
    if wanted.work && work_nanos.is_none() {
        return Err(
            "no time at the end that the job took: seconds such as 0.012, or whole microseconds".into()
        );
    }
    Ok(Job { at_nanos, work_nanos, key: Some(key(client)) })
}

/// What stands behind all that the format has: seconds with a point, as nginx writes them, or microseconds, as Apache.
fn common_work(line: &str) -> Option<u64> {
    let (before, after) = line.rsplit_once('"')?;
    let mut rest = after.split_whitespace();
    // In the common format the last quotes are those of the request: status and bytes follow.
    if before.matches('"').count() == 1 {
        rest.next()?;
        rest.next()?;
    }
    let last = rest.next_back()?;
    let nanos =
        if last.contains('.') { last.parse::<f64>().ok()? * 1e9 } else { last.parse::<f64>().ok()? * 1e3 };
    (0.0..1e17).contains(&nanos).then_some((nanos as u64).max(1))
}

fn list(line: &str) -> Result<Job, String> {
    let mut columns = line.split([',', ';', '\t']).map(str::trim);
    let number = |text: &str, what: &str, most: f64| match text.parse::<f64>() {
        Ok(number) if (0.0..=most).contains(&number) => Ok(number),
        _ => Err(format!("expected {what}, found \"{text}\"")),
    };
    let at = number(columns.next().unwrap_or_default(), "seconds", 1e9)?;
    let work = columns.next().filter(|text| !text.is_empty());
    let work = work.map(|text| number(text, "the work in milliseconds", 1e11)).transpose()?;
    let key = columns.next().filter(|text| !text.is_empty()).map(key);
    Ok(Job {
        at_nanos: (at * 1e9).round() as u64,
        work_nanos: work.map(|ms| ((ms * 1e6) as u64).max(1)),
        key,
    })
}

/// Nanoseconds since 1970 of `2026-10-10T13:55:36.123Z`, or with an offset at its end.
fn rfc3339_nanos(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(['T', ' '])?;
    let mut date = date.split('-');
    let (year, month, day) = (digits(date.next()?)?, digits(date.next()?)?, digits(date.next()?)?);
    let zone_at = time.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = time.split_at(zone_at);
    let offset = if zone.eq_ignore_ascii_case("z") { 0 } else { offset_s(&zone.replace(':', ""))? };
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let fraction = format!("{fraction:0<9}").get(..9)?.parse::<u64>().ok()?;
    Some(seconds(year, month, day, clock, offset)?.checked_mul(1_000_000_000)? + fraction)
}

/// Nanoseconds since 1970 of `10/Oct/2026:13:55:36 +0000`.
fn common_nanos(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (date, rest) = text.split_once(':')?;
    let (clock, zone) = rest.split_once(' ')?;
    let mut date = date.split('/');
    let (day, month, year) = (digits(date.next()?)?, date.next()?, digits(date.next()?)?);
    let month = MONTHS.iter().position(|name| *name == month)? as i64 + 1;
    seconds(year, month, day, clock, offset_s(zone)?)?.checked_mul(1_000_000_000)
}

/// `+0130` in seconds.
fn offset_s(zone: &str) -> Option<i64> {
    let sign = match zone.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = (digits(zone.get(1..3)?)?, digits(zone.get(3..5)?)?);
    Some(sign * (hours * 3600 + minutes * 60))
}

fn seconds(year: i64, month: i64, day: i64, clock: &str, offset_s: i64) -> Option<u64> {
    let mut clock = clock.split(':');
    let (hour, minute, second) = (digits(clock.next()?)?, digits(clock.next()?)?, digits(clock.next()?)?);
    if !(1970..=2200).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset_s;
    u64::try_from(seconds).ok()
}

/// Days from 1970 to a day of the Gregorian calendar. Years begin with March here, so that a leap day ends one.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    365 * year + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

fn digits(text: &str) -> Option<i64> {
    (!text.is_empty() && text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(common_nanos("01/Jan/1970:00:00:00 +0000"), Some(0));
        assert_eq!(common_nanos("29/Feb/2024:12:00:00 +0200"), Some(1_709_200_800 * 1_000_000_000));
        assert_eq!(rfc3339_nanos("2024-02-29T10:00:00.250Z"), Some(1_709_200_800_250_000_000));
        assert_eq!(rfc3339_nanos("2024-02-29T12:00:00+02:00"), Some(1_709_200_800_000_000_000));
        for wrong in
            ["", "29/Feb/2024", "29/Foo/2024:12:00:00 +0000", "29/Feb/2024:25:00:00 +0000", "é/é/é:é é"]
        {
            assert_eq!(common_nanos(wrong), None, "{wrong}");
        }
        for wrong in
            ["", "2024-02-29", "2024-02-29T12:00:00", "2024-13-29T12:00:00Z", "2024-02-29T12:00:00.éZ"]
        {
            assert_eq!(rfc3339_nanos(wrong), None, "{wrong}");
        }
    }
}
