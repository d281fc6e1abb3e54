//! What one source says of a node, be it a server, a program or a metric.

use std::time::Duration;

use evener_model::{Health, Time};
use thiserror::Error;

use super::text::{lines, number};

/// What a source said; what it did not say is `None`. The fields mean what they mean in [`evener_model::Report`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "they are those of Report")]
pub struct Answer {
    pub jobs: Option<u32>,
    pub load: Option<f32>,
    pub health: Option<Health>,
    pub credits: Option<u32>,
    pub jobs_per_s: Option<f32>,
    pub errors_per_s: Option<f32>,
    pub latency: Option<Duration>,
}

/// Names of what can be said, as programs and the configuration write them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Field {
    /// Jobs on the node.
    Jobs,
    /// The share of its capacity that is in use; above 1 work waits.
    Load,
    /// How well it is, 0–100.
    Health,
    /// Jobs that it can take beyond those it has.
    Credits,
    /// Jobs that it ends in a second.
    JobsPerS,
    /// Jobs in a second that end with an error.
    ErrorsPerS,
    /// How long a job takes, in milliseconds.
    LatencyMs,
}

impl Field {
    const ALL: [(&'static str, Field); 7] = [
        ("jobs", Field::Jobs),
        ("load", Field::Load),
        ("health", Field::Health),
        ("credits", Field::Credits),
        ("jobs_per_s", Field::JobsPerS),
        ("errors_per_s", Field::ErrorsPerS),
        ("latency_ms", Field::LatencyMs),
    ];

    fn named(name: &[u8]) -> Option<Field> {
        Field::ALL.iter().find(|(known, _)| known.as_bytes() == name).map(|&(_, field)| field)
    }

    fn name(self) -> &'static str {
        Field::ALL.iter().find(|(_, field)| *field == self).map_or("", |(name, _)| name)
    }
}

/// Why an answer is none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// Nothing was said.
    #[error("it said nothing; expected a number from 0 to 100, or lines such as jobs=3")]
    Empty,
    /// A line that is no `key=value`.
    #[error("expected a number from 0 to 100, or lines such as jobs=3; found \"{0}\"")]
    Line(String),
    /// A key that means nothing.
    #[error(
        "\"{0}\" means nothing; known are jobs, load, health, credits, jobs_per_s, errors_per_s, latency_ms"
    )]
    Key(String),
    /// A value that its key cannot have.
    #[error("{key}: expected {expected}, found {value}")]
    Value {
        /// What was to be said.
        key: &'static str,
        /// What it can be.
        expected: &'static str,
        /// What was said.
        value: String,
    },
}

impl Answer {
    /// An answer of one field.
    ///
    /// # Errors
    /// [`AnswerError::Value`] if the field cannot have the value.
    pub fn of(field: Field, value: f64) -> Result<Answer, AnswerError> {
        let mut answer = Answer::default();
        answer.put(field, value)?;
        Ok(answer)
    }

    /// Reads what a program printed: a number from 0 to 100 is its health; else lines of `key=value`.
    ///
    /// # Errors
    /// [`AnswerError`], of the first line that is wrong.
    pub fn parse(text: &[u8]) -> Result<Answer, AnswerError> {
        let mut answer = Answer::default();
        let only = text.trim_ascii();
        if let Some(health) = number(only) {
            answer.put(Field::Health, health)?;
            return Ok(answer);
        }
        for line in lines(text) {
            let Some(sign) = line.iter().position(|&byte| byte == b'=') else {
                return Err(AnswerError::Line(shown(line)));
            };
            let (key, value) = (line[..sign].trim_ascii(), line[sign + 1..].trim_ascii());
            let field = Field::named(key).ok_or_else(|| AnswerError::Key(shown(key)))?;
            let value = number(value).ok_or_else(|| wrong(field, "a number", shown(value)))?;
            answer.put(field, value)?;
        }
        if answer == Answer::default() { Err(AnswerError::Empty) } else { Ok(answer) }
    }

    /// Reads the exit status of a program whose exit status is the answer: its health.
    ///
    /// # Errors
    /// [`AnswerError::Value`] above 100.
    pub fn from_status(status: i32) -> Result<Answer, AnswerError> {
        Answer::of(Field::Health, f64::from(status))
    }

    fn put(&mut self, field: Field, value: f64) -> Result<(), AnswerError> {
        let found = || value.to_string();
        if value < 0.0 || !value.is_finite() {
            return Err(wrong(field, "a number from 0", found()));
        }
        // Casts saturate: nothing below 0 comes here.
        match field {
            Field::Jobs => self.jobs = Some(value.round() as u32),
            Field::Load => self.load = Some(value as f32),
            Field::Health if value > 100.0 => return Err(wrong(field, "a number from 0 to 100", found())),
            Field::Health => self.health = Some(Health::saturating(rounded_health(value))),
            Field::Credits => self.credits = Some(value as u32),
            Field::JobsPerS => self.jobs_per_s = Some(value as f32),
            Field::ErrorsPerS => self.errors_per_s = Some(value as f32),
            Field::LatencyMs => self.latency = Some(milliseconds(value)),
        }
        Ok(())
    }
}

/// Only 0 is 0: a node that is a little alive must not be taken for one that wants nothing.
fn rounded_health(value: f64) -> u8 {
    if value > 0.0 { (value.round() as u8).max(1) } else { 0 }
}

fn milliseconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value / 1000.0).unwrap_or(Duration::MAX)
}

fn wrong(field: Field, expected: &'static str, value: String) -> AnswerError {
    AnswerError::Value { key: field.name(), expected, value }
}

/// The first of it, printable: a program may print anything.
fn shown(text: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 60;
    text[..text.len().min(SHOWN_BYTES_MAX)].escape_ascii().to_string()
}

/// Makes a rate of a counter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rate {
    last: Option<(Time, u64)>,
}

impl Rate {
    /// How much it rose in a second since the last look; `None` at the first, and after it began anew.
    pub fn look(&mut self, now: Time, count: u64) -> Option<f32> {
        let (then, before) = self.last.replace((now, count))?;
        let span = now.since(then).as_secs_f64();
        (span > 0.0 && count >= before).then(|| ((count - before) as f64 / span) as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_number_is_health() {
        let health = |text: &str| Answer::parse(text.as_bytes()).ok().and_then(|answer| answer.health);
        assert_eq!(health("75\n"), Some(Health::saturating(75)));
        assert_eq!(health(" 0 "), Some(Health::NONE));
        assert_eq!(health("0.2"), Some(Health::saturating(1)));
        for wrong in ["101", "-1", "NaN"] {
            assert!(Answer::parse(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn lines_say_more() {
        let text =
            b"jobs=12\nload = 0.5\n\nhealth=80\ncredits=3.9\njobs_per_s=10\nerrors_per_s=0\nlatency_ms=2.5\n";
        let answer = Answer {
            jobs: Some(12),
            load: Some(0.5),
            health: Some(Health::saturating(80)),
            credits: Some(3),
            jobs_per_s: Some(10.0),
            errors_per_s: Some(0.0),
            latency: Some(Duration::from_micros(2_500)),
        };
        assert_eq!(Answer::parse(text), Ok(answer));
    }

    #[test]
    fn errors_say_what_was_said() {
        let error = |text: &str| Answer::parse(text.as_bytes()).expect_err("it is wrong").to_string();
        assert!(error("").starts_with("it said nothing"));
        assert!(error("all is well\n").ends_with("found \"all is well\""));
        assert!(error("helth=1\n").starts_with("\"helth\" means nothing"));
        assert_eq!(error("jobs=many\n"), "jobs: expected a number, found many");
        assert_eq!(error("jobs=-1\n"), "jobs: expected a number from 0, found -1");
        assert_eq!(error("health=101\n"), "health: expected a number from 0 to 100, found 101");
        assert!(error(&"x".repeat(1000)).len() < 200);
    }

    #[test]
    fn an_exit_status_is_health_up_to_100() {
        assert_eq!(Answer::from_status(42).map(|answer| answer.health), Ok(Some(Health::saturating(42))));
        assert!(Answer::from_status(127).is_err());
    }

    #[test]
    fn a_counter_that_begins_anew_has_no_rate() {
        let mut rate = Rate::default();
        let mut look = |second, count| rate.look(Time::ZERO + Duration::from_secs(second), count);
        assert_eq!(look(0, 100), None);
        assert_eq!(look(2, 150), Some(25.0));
        assert_eq!(look(3, 10), None);
        assert_eq!(look(4, 20), Some(10.0));
    }
}
