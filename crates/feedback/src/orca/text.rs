//! `cpu_utilization=0.3, named_metrics.queue=4`

use std::io::Write;

use super::{Fault, Group, Metrics, Reading, Scalar, Visitor};

pub(super) fn parse(text: &str, visit: Visitor<'_>) -> Result<Metrics, Fault> {
    let mut reading = Reading::new(visit);
    for pair in text.split(',').map(str::trim_ascii).filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or(Fault::Form)?;
        let (name, value) = (name.trim_ascii(), number(value.trim_ascii())?);
        if let Some((group, name)) = name.split_once('.') {
            if let Some(group) = Group::ALL.into_iter().find(|known| known.name() == group) {
                reading.named(group, name, value)?;
            }
        } else if let Some(scalar) = Scalar::ALL.into_iter().find(|known| known.name() == name)
            && reading.scalar(scalar, value)?.is_some()
        {
            return Err(Fault::Twice);
        }
    }
    Ok(reading.done())
}

/// A decimal number. Rust reads `inf` and `nan` too, which are refused later.
pub(super) fn number(text: &str) -> Result<f64, Fault> {
    text.parse().map_err(|_| Fault::Number)
}

pub(super) fn write<'a>(
    out: &mut Vec<u8>,
    metrics: &Metrics,
    named: impl IntoIterator<Item = (Group, &'a str, f64)>,
) {
    let mut between = "TEXT ";
    let scalars = Scalar::ALL.into_iter().filter_map(|scalar| Some((scalar.name(), scalar.of(metrics)?)));
    for (name, value) in scalars {
        write!(out, "{between}{name}={value}").expect("writing to memory cannot fail");
        between = ", ";
    }
    for (group, name, value) in named {
        write!(out, "{between}{}.{name}={value}", group.name()).expect("writing to memory cannot fail");
        between = ", ";
    }
}
