//! What several tests ask of output for machines.

use serde_json::Value;

/// All names in a value.
pub(crate) fn names(value: &Value) -> Vec<String> {
    fn gather(value: &Value, into: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                for (name, value) in object {
                    into.push(name.clone());
                    gather(value, into);
                }
            }
            Value::Array(values) => values.iter().for_each(|value| gather(value, into)),
            _ => {}
        }
    }
    let mut all = Vec::new();
    gather(value, &mut all);
    all
}

/// Fails if the part of a guide for machines leaves out one of the names.
pub(crate) fn assert_explained(names: &[String], guide: &str) {
    let guide = guide.split("## For machines").nth(1).unwrap();
    for name in names {
        assert!(guide.contains(&format!("\"{name}\"")) || guide.contains(&format!("`{name}`")), "{name}");
    }
}
