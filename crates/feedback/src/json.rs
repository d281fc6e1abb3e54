//! Reports as JSON: for agents that push them over HTTP, for those that answer when asked, and inside datagrams.
//!
//! One object, or a list of them:
//! `{"node": "rat", "service": "tcp/80", "age_ms": 40, "health": 75, "load": 0.4, "jobs": 3}`.
//! Everything may be left out but one thing that is said. Names that are not known are ignored.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use evener_model::{Health, Report, Time};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::necp::{Port, Protocol};

/// Bytes of a body at the most.
pub const BODY_BYTES_MAX: usize = 256 * 1024;
/// Reports of a body at the most.
pub const REPORTS_MAX: usize = 1024;
/// Bytes of a node's name at the most.
pub const NAME_BYTES_MAX: usize = 253;

/// What a node says of itself, or of one of its services. What it does not say is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Said {
    /// The node's name; `None`: whoever was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The service; `None`: the node as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "service")]
    pub service: Option<Port>,
    /// How long before it was sent it was measured, in milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub age_ms: u64,
    /// How well the node is, 0–100; 0: send nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<u8>,
    /// How much of its capacity was in use: 0 idle, 1 all of it, above 1 work waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<f32>,
    /// Jobs on it, waiting ones included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u32>,
    /// Jobs that it can take beyond those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credits: Option<u32>,
    /// Jobs that it ends in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs_per_s: Option<f32>,
    /// Of these, with an error of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors_per_s: Option<f32>,
    /// How long a job takes that comes now, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<f64>,
}

/// What is wrong with a body.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// It is longer than [`BODY_BYTES_MAX`], or has more than [`REPORTS_MAX`] reports.
    #[error("too many reports, or too long")]
    Length,
    /// It is not JSON of this form.
    #[error("not a report, nor a list of reports: {0}")]
    Form(String),
    /// A value is out of its range.
    #[error("{0} is out of its range")]
    Range(&'static str),
    /// A report says nothing.
    #[error("a report without a value")]
    Empty,
}

/// Reads a body: all of its reports are good, or none is used.
///
/// # Errors
/// A [`Fault`], which may be told to whoever sent it.
pub fn parse(body: &[u8]) -> Result<Vec<Said>, Fault> {
    if body.len() > BODY_BYTES_MAX {
        return Err(Fault::Length);
    }
    let said = match body.trim_ascii_start().first() {
        // Each form by itself: whoever made a mistake is told where.
        Some(b'[') => serde_json::from_slice(body).map_err(form)?,
        _ => vec![serde_json::from_slice(body).map_err(form)?],
    };
    if said.len() > REPORTS_MAX {
        return Err(Fault::Length);
    }
    said.iter().try_for_each(Said::check)?;
    Ok(said)
}

/// Appends a body: an object for one report, else a list.
pub fn write(out: &mut Vec<u8>, said: &[Said]) {
    let written = match said {
        [one] => serde_json::to_writer(&mut *out, one),
        list => serde_json::to_writer(&mut *out, list),
    };
    written.expect("numbers and names can be written");
}

impl Said {
    /// What `report` says, as of `now`.
    pub fn of(node: &str, report: &Report, now: Time) -> Said {
        Said {
            node: Some(node.to_owned()),
            service: None,
            age_ms: u64::try_from(now.since(report.measured_at).as_millis()).unwrap_or(u64::MAX),
            health: report.health.map(Health::value),
            load: report.load,
            jobs: report.jobs,
            credits: report.credits,
            jobs_per_s: report.jobs_per_s,
            errors_per_s: report.errors_per_s,
            latency_ms: report.latency.map(|latency| latency.as_secs_f64() * 1e3),
        }
    }

    /// The report, received at that time. It was measured before, by as much as it says.
    pub fn report(&self, received_at: Time) -> Report {
        Report {
            measured_at: received_at - Duration::from_millis(self.age_ms),
            jobs: self.jobs,
            load: self.load,
            health: self.health.map(Health::saturating),
            credits: self.credits,
            jobs_per_s: self.jobs_per_s,
            errors_per_s: self.errors_per_s,
            latency: self.latency_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok()),
        }
    }

    fn check(&self) -> Result<(), Fault> {
        let name = self.node.as_ref().is_none_or(|name| !name.is_empty() && name.len() <= NAME_BYTES_MAX);
        let is_count = |value: Option<f32>| value.is_none_or(|value| value.is_finite() && value >= 0.0);
        let latency = self.latency_ms.is_none_or(|ms| (0.0..=86_400_000.0).contains(&ms));
        for (what, holds) in [
            ("node", name),
            ("health", self.health.is_none_or(|health| health <= 100)),
            ("load", is_count(self.load)),
            ("jobs_per_s", is_count(self.jobs_per_s)),
            ("errors_per_s", is_count(self.errors_per_s)),
            ("latency_ms", latency),
        ] {
            if !holds {
                return Err(Fault::Range(what));
            }
        }
        let said = Said { node: None, service: None, age_ms: 0, ..self.clone() };
        if said == Said::default() { Err(Fault::Empty) } else { Ok(()) }
    }
}

fn form(error: serde_json::Error) -> Fault {
    Fault::Form(error.to_string())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A service as `tcp/80`.
mod service {
    use super::*;

    pub(super) fn serialize<S: Serializer>(port: &Option<Port>, out: S) -> Result<S::Ok, S::Error> {
        match port {
            Some(port) => out.collect_str(port),
            None => out.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Port>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        let port = text.map(|text| text.parse().map_err(|_| serde::de::Error::custom(SERVICE_FORM)));
        port.transpose()
    }
}

const SERVICE_FORM: &str = "expected a service such as tcp/80 or udp/53";

/// Not a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{SERVICE_FORM}")]
pub struct PortError;

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        };
        write!(f, "{protocol}/{}", self.number)
    }
}

impl FromStr for Port {
    type Err = PortError;

    fn from_str(text: &str) -> Result<Port, PortError> {
        let (protocol, number) = text.split_once('/').ok_or(PortError)?;
        let protocol = match protocol {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            _ => return Err(PortError),
        };
        let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        let number = number.parse().ok().filter(|&number| digits && number > 0).ok_or(PortError)?;
        Ok(Port { protocol, number })
    }
}
