//! The message in the JSON of protocol buffers: names in either spelling, numbers perhaps as strings.

use serde_json::{Map, Value};

use super::{Fault, Group, Metrics, Reading, Scalar, Visitor, text};

pub(super) fn parse(json: &str, visit: Visitor<'_>) -> Result<Metrics, Fault> {
    let fields: Map<String, Value> = serde_json::from_str(json).map_err(|_| Fault::Form)?;
    let mut reading = Reading::new(visit);
    for (name, value) in &fields {
        if let Some(scalar) = Scalar::ALL.into_iter().find(|scalar| is(name, scalar.name())) {
            if let Some(value) = number(value)? {
                reading.scalar(scalar, value)?;
            }
        } else if let Some(group) = Group::ALL.into_iter().find(|group| is(name, group.name())) {
            match value {
                Value::Null => {}
                Value::Object(named) => {
                    for (name, value) in named {
                        let value = number(value)?.ok_or(Fault::Number)?;
                        reading.named(group, name, value)?;
                    }
                }
                _ => return Err(Fault::Form),
            }
        }
    }
    Ok(reading.done())
}

/// Whether `name` is `snake_case`, or the same in lowerCamelCase.
fn is(name: &str, snake_case: &str) -> bool {
    if name == snake_case {
        return true;
    }
    let mut upper = false;
    let camel = snake_case.chars().filter_map(|c| {
        if c == '_' {
            upper = true;
            return None;
        }
        Some(if std::mem::take(&mut upper) { c.to_ascii_uppercase() } else { c })
    });
    camel.eq(name.chars())
}

fn number(value: &Value) -> Result<Option<f64>, Fault> {
    match value {
        Value::Null => Ok(None),
        Value::Number(number) => number.as_f64().map(Some).ok_or(Fault::Number),
        Value::String(text) => text::number(text).map(Some),
        _ => Err(Fault::Form),
    }
}
