//! HAProxy's agent-check: a line of words that a node sends to whoever connects.
//!
//! The director asks agents that speak it; our agent answers HAProxy in it. Words are separated by spaces, tabs
//! or commas, in any case and order; of words that contradict each other the last holds; a sharp begins a
//! description.

use std::fmt;
use std::io::Write;

use evener_model::{Health, Report, Time};
use thiserror::Error;

/// Bytes of an answer at the most.
pub const LINE_BYTES_MAX: usize = 1024;
/// The largest percentage: the largest weight of a node whose weight is 1.
pub const PERCENT_MAX: u16 = 25_600;

/// What an agent answered. What it did not say is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer<'a> {
    /// The weight to use, in percent of the configured one, at most [`PERCENT_MAX`].
    pub weight_percent: Option<u16>,
    /// Jobs on the node at the most.
    pub jobs_max: Option<u32>,
    /// What the operator of the node wants.
    pub mode: Option<Mode>,
    /// How the service is.
    pub state: Option<State>,
    /// Why, in words; empty: not said.
    pub description: &'a str,
}

/// What the operator of a node wants of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It takes jobs.
    Ready,
    /// It finishes its jobs and gets no new ones.
    Drain,
    /// It is not to be used.
    Maintenance,
}

/// How a service is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It works.
    Up,
    /// It does not.
    Down,
    /// It does not, for a reason that the agent has tested.
    Failed,
    /// It was stopped.
    Stopped,
}

/// What is wrong with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// No end of the line within [`LINE_BYTES_MAX`].
    #[error("agent-check answer too long")]
    Length,
    /// It is not UTF-8.
    #[error("agent-check answer that is no text")]
    Text,
    /// A word has no meaning.
    #[error("unknown word in an agent-check answer")]
    Word,
    /// A number is none, or too large.
    #[error("impossible number in an agent-check answer")]
    Number,
    /// It says nothing.
    #[error("empty agent-check answer")]
    Empty,
}

impl<'a> Answer<'a> {
    /// Reads an answer from what has come so far; `end` says that no more will. `Ok(None)`: more is to come.
    ///
    /// # Errors
    /// The [`Fault`] of an answer that is complete, or can no longer become one. HAProxy ignores words that it does
    /// not know; here an answer is used whole or not at all.
    pub fn parse(bytes: &'a [u8], end: bool) -> Result<Option<Answer<'a>>, Fault> {
        let window = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
        // Empty lines before the answer are no answers.
        let start = window.iter().position(|b| !matches!(b, b'\r' | b'\n')).unwrap_or(window.len());
        let line = &window[start..];
        let line = match line.iter().position(|b| matches!(b, b'\r' | b'\n' | b'\0')) {
            Some(length) => &line[..length],
            None if bytes.len() > LINE_BYTES_MAX => return Err(Fault::Length),
            None if end => line,
            None => return Ok(None),
        };
        let text = std::str::from_utf8(line).map_err(|_| Fault::Text)?;
        let (words, description) = text.split_once('#').unwrap_or((text, ""));
        let mut answer = Answer { description: description.trim(), ..Answer::default() };
        for word in words.split([' ', '\t', ',']).filter(|word| !word.is_empty()) {
            answer.take(word)?;
        }
        let said = Answer { description: "", ..answer };
        if said == Answer::default() { Err(Fault::Empty) } else { Ok(Some(answer)) }
    }

    fn take(&mut self, word: &str) -> Result<(), Fault> {
        if let Some(percent) = word.strip_suffix('%') {
            let percent = number(percent)?;
            let percent = u16::try_from(percent).ok().filter(|&percent| percent <= PERCENT_MAX);
            self.weight_percent = Some(percent.ok_or(Fault::Number)?);
            return Ok(());
        }
        if let Some((key, value)) = word.split_once(':') {
            if !key.eq_ignore_ascii_case("maxconn") {
                return Err(Fault::Word);
            }
            self.jobs_max = Some(number(value)?);
            return Ok(());
        }
        let modes = [("ready", Mode::Ready), ("drain", Mode::Drain), ("maint", Mode::Maintenance)];
        let states = [
            ("up", State::Up),
            ("down", State::Down),
            ("fail", State::Failed),
            ("failed", State::Failed),
            ("stopped", State::Stopped),
        ];
        if let Some((_, mode)) = modes.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name)) {
            self.mode = Some(mode);
        } else if let Some((_, state)) = states.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name))
        {
            self.state = Some(state);
        } else {
            return Err(Fault::Word);
        }
        Ok(())
    }

    /// What tells HAProxy of a node of that health, and nothing of what its operators may have said of
    /// the node's mode: that is theirs to change.
    pub fn of_health(health: Health) -> Answer<'static> {
        Answer { weight_percent: Some(health.value().into()), state: Some(State::Up), ..Answer::default() }
    }

    /// The health that the answer means: none if the node is not to be used, else its weight; `None` if it
    /// says no more than that it works.
    pub fn health(&self) -> Option<Health> {
        let refuses = matches!(self.mode, Some(Mode::Drain | Mode::Maintenance))
            || matches!(self.state, Some(State::Down | State::Failed | State::Stopped));
        if refuses {
            return Some(Health::NONE);
        }
        self.weight_percent.map(|percent| Health::saturating(u8::try_from(percent).unwrap_or(u8::MAX)))
    }

    /// As a report that was measured at that time.
    pub fn report(&self, measured_at: Time) -> Report {
        Report { measured_at, health: self.health(), ..Report::default() }
    }

    /// Appends the answer as a line. Of the description, only the first line, as far as there is room.
    pub fn write(&self, out: &mut Vec<u8>) {
        writeln!(out, "{self}").expect("writing to memory cannot fail");
    }
}

impl fmt::Display for Answer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = self.mode.map(|mode| match mode {
            Mode::Ready => "ready",
            Mode::Drain => "drain",
            Mode::Maintenance => "maint",
        });
        let state = self.state.map(|state| match state {
            State::Up => "up",
            State::Down => "down",
            State::Failed => "fail",
            State::Stopped => "stopped",
        });
        let mut between = "";
        for word in [mode, state].into_iter().flatten() {
            write!(f, "{between}{word}")?;
            between = " ";
        }
        if let Some(percent) = self.weight_percent {
            write!(f, "{between}{percent}%")?;
            between = " ";
        }
        if let Some(jobs) = self.jobs_max {
            write!(f, "{between}maxconn:{jobs}")?;
            between = " ";
        }
        let line = self.description.split(['\r', '\n', '\0']).next().unwrap_or("").trim();
        let room = LINE_BYTES_MAX - 64;
        let end = if line.len() <= room { line.len() } else { line.floor_char_boundary(room) };
        if end > 0 { write!(f, "{between}#{}", &line[..end]) } else { Ok(()) }
    }
}

/// Decimal digits, no sign.
fn number(text: &str) -> Result<u32, Fault> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if digits { text.parse().map_err(|_| Fault::Number) } else { Err(Fault::Number) }
}
