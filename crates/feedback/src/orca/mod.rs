//! ORCA, Open Request Cost Aggregation: what a node says of itself in the answer to a job.
//!
//! In the header `endpoint-load-metrics`, as `TEXT name=value, …`, `JSON {…}` or `BIN …`, and in `endpoint-load-metrics-bin`
//! (a header, or a trailer of gRPC): the message `xds.data.orca.v3.OrcaLoadReport` in base64. What is said by name goes
//! to a visitor, so that reading TEXT and the binary form's numbers costs no allocation.
//!
//! Numbers must be finite, and not negative unless the application names them; otherwise nothing of a header is used.
//! Metrics that are not known are ignored: later versions have more.

mod binary;
mod json;
mod text;

use evener_model::{Report, Time};
use thiserror::Error;

pub use binary::{decode, encode};

/// The header of text, JSON, and prefixed binary.
pub const HEADER: &str = "endpoint-load-metrics";
/// The header, or trailer, of binary.
pub const HEADER_BINARY: &str = "endpoint-load-metrics-bin";
/// Bytes of a header's value at the most.
pub const VALUE_BYTES_MAX: usize = 16 * 1024;
/// Metrics that are named at the most.
pub const NAMED_MAX: u32 = 256;

/// The metrics that have names of their own. What was not said is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Metrics {
    /// CPU in use, of what is available; above 1 beyond a limit of the node's own.
    pub cpu_utilization: Option<f64>,
    /// Memory in use, of what is available.
    pub mem_utilization: Option<f64>,
    /// What the application says is in use of it.
    pub application_utilization: Option<f64>,
    /// Jobs in a second.
    pub rps: Option<f64>,
    /// Errors in a second.
    pub eps: Option<f64>,
}

/// A kind of metrics that the application names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// What a job cost.
    RequestCost,
    /// What is in use of a resource, 0–1.
    Utilization,
    /// Anything.
    Named,
}

impl Group {
    const ALL: [Group; 3] = [Group::RequestCost, Group::Utilization, Group::Named];

    /// As in text and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Group::RequestCost => "request_cost",
            Group::Utilization => "utilization",
            Group::Named => "named_metrics",
        }
    }
}

/// What is wrong with a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// It is longer than [`VALUE_BYTES_MAX`], or names more than [`NAMED_MAX`] metrics.
    #[error("ORCA report too long")]
    Length,
    /// It is neither TEXT, JSON nor BIN, or not what it says.
    #[error("malformed ORCA report")]
    Form,
    /// A value is no number, infinite, or negative where it cannot be.
    #[error("impossible number in an ORCA report")]
    Number,
    /// A metric is said twice in a text.
    #[error("a metric twice in an ORCA report")]
    Twice,
}

/// Who hears of metrics that the application names.
pub type Visitor<'a> = &'a mut dyn FnMut(Group, &str, f64);

/// Reads the value of [`HEADER`].
///
/// # Errors
/// A [`Fault`]; what the visitor heard until then is not to be used.
pub fn parse(value: &[u8], visit: Visitor<'_>) -> Result<Metrics, Fault> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(Fault::Length);
    }
    let text = std::str::from_utf8(value).map_err(|_| Fault::Form)?.trim_ascii();
    let (form, rest) = text.split_once(' ').ok_or(Fault::Form)?;
    match form {
        "TEXT" => text::parse(rest, visit),
        "JSON" => json::parse(rest, visit),
        "BIN" => parse_binary(rest.as_bytes(), visit),
        _ => Err(Fault::Form),
    }
}

/// Reads the value of [`HEADER_BINARY`].
///
/// # Errors
/// A [`Fault`]; what the visitor heard until then is not to be used.
pub fn parse_binary(value: &[u8], visit: Visitor<'_>) -> Result<Metrics, Fault> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(Fault::Length);
    }
    decode(&binary::from_base64(value.trim_ascii())?, visit)
}

/// Appends the value of [`HEADER`] as text, with these named metrics; nothing, if there is nothing to say.
pub fn write_text<'a>(
    out: &mut Vec<u8>,
    metrics: &Metrics,
    named: impl IntoIterator<Item = (Group, &'a str, f64)>,
) {
    text::write(out, metrics, named);
}

/// Appends the value of [`HEADER_BINARY`], with these named metrics.
pub fn write_binary<'a>(
    out: &mut Vec<u8>,
    metrics: &Metrics,
    named: impl IntoIterator<Item = (Group, &'a str, f64)>,
) {
    let mut message = Vec::new();
    encode(&mut message, metrics, named);
    binary::to_base64(&message, out);
}

impl Metrics {
    /// As a report of that time: the load is the application's word, or else the CPU's.
    pub fn report(&self, measured_at: Time) -> Report {
        let load = self.application_utilization.or(self.cpu_utilization);
        Report {
            measured_at,
            load: load.map(|load| load as f32),
            jobs_per_s: self.rps.map(|rps| rps as f32),
            errors_per_s: self.eps.map(|eps| eps as f32),
            ..Report::default()
        }
    }
}

/// What has been read so far.
struct Reading<'a> {
    metrics: Metrics,
    /// Jobs in a second as versions before `rps_fractional` say it.
    rps: Option<f64>,
    named: u32,
    visit: Visitor<'a>,
}

/// Which metric of its own name.
#[derive(Clone, Copy)]
enum Scalar {
    Cpu,
    Memory,
    Application,
    Rps,
    RpsFractional,
    Eps,
}

impl Scalar {
    const ALL: [Scalar; 6] =
        [Scalar::Cpu, Scalar::Memory, Scalar::Rps, Scalar::RpsFractional, Scalar::Eps, Scalar::Application];

    const fn name(self) -> &'static str {
        match self {
            Scalar::Cpu => "cpu_utilization",
            Scalar::Memory => "mem_utilization",
            Scalar::Application => "application_utilization",
            Scalar::Rps => "rps",
            Scalar::RpsFractional => "rps_fractional",
            Scalar::Eps => "eps",
        }
    }

    fn of(self, metrics: &Metrics) -> Option<f64> {
        match self {
            Scalar::Cpu => metrics.cpu_utilization,
            Scalar::Memory => metrics.mem_utilization,
            Scalar::Application => metrics.application_utilization,
            Scalar::RpsFractional => metrics.rps,
            Scalar::Eps => metrics.eps,
            Scalar::Rps => None,
        }
    }
}

impl<'a> Reading<'a> {
    fn new(visit: Visitor<'a>) -> Reading<'a> {
        Reading { metrics: Metrics::default(), rps: None, named: 0, visit }
    }

    /// Takes a metric of its own name; gives what it was before.
    fn scalar(&mut self, scalar: Scalar, value: f64) -> Result<Option<f64>, Fault> {
        if !value.is_finite() || value < 0.0 {
            return Err(Fault::Number);
        }
        let place = match scalar {
            Scalar::Cpu => &mut self.metrics.cpu_utilization,
            Scalar::Memory => &mut self.metrics.mem_utilization,
            Scalar::Application => &mut self.metrics.application_utilization,
            Scalar::RpsFractional => &mut self.metrics.rps,
            Scalar::Eps => &mut self.metrics.eps,
            Scalar::Rps => &mut self.rps,
        };
        Ok(place.replace(value))
    }

    fn named(&mut self, group: Group, name: &str, value: f64) -> Result<(), Fault> {
        if !value.is_finite() || value < 0.0 && group != Group::Named {
            return Err(Fault::Number);
        }
        self.named += 1;
        if self.named > NAMED_MAX {
            return Err(Fault::Length);
        }
        (self.visit)(group, name, value);
        Ok(())
    }

    fn done(self) -> Metrics {
        Metrics { rps: self.metrics.rps.or(self.rps), ..self.metrics }
    }
}
