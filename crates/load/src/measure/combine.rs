//! One load out of several, and one health out of that and of the guards.
//!
//! Source: Haney and Madsen, "Load-balancing for MySQL", 4.6: loads are added up.

use evener_model::Health;

/// A part of a node's load.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Part {
    /// What it is the load of.
    pub name: String,
    /// The load; `None` if it should be known and is not.
    pub load: Option<f64>,
    /// How much it counts; 0: it is only told.
    pub factor: f64,
}

/// The sum of the parts, each times its factor. `None` if nothing counts, or if one that counts is not known: a
/// part that is missing must not look like idleness.
pub fn load(parts: &[Part]) -> Option<f64> {
    let mut sum = None;
    for part in parts.iter().filter(|part| part.factor > 0.0) {
        sum = Some(sum.unwrap_or(0.0) + part.load? * part.factor);
    }
    sum
}

/// The health of a node with this load: 100 without load, falling in proportion to 1 at `load_max` and above. It does
/// not fall to 0: a node under full load still works.
pub fn health_of_load(load: f64, load_max: f64) -> Health {
    falling(load, 0.0, load_max)
}

/// A health that falls from 100 at `from` to 1 at `to` and above; a guard is 100 as long as it sees nothing.
pub fn falling(value: f64, from: f64, to: f64) -> Health {
    let left = if to > from { (to - value) / (to - from) } else { f64::from(value <= from) };
    // What cannot be computed is no good sign.
    let left = if left.is_nan() { 0.0 } else { left };
    Health::saturating((left * 100.0).round().clamp(1.0, 100.0) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(load: Option<f64>, factor: f64) -> Part {
        Part { name: "part".into(), load, factor }
    }

    #[test]
    fn loads_are_added_up_by_their_factors() {
        assert_eq!(load(&[part(Some(0.5), 1.0), part(Some(4.0), 0.25)]), Some(1.5));
        assert_eq!(load(&[part(Some(0.5), 1.0), part(Some(9.0), 0.0), part(None, 0.0)]), Some(0.5));
        assert_eq!(load(&[part(Some(0.5), 1.0), part(None, 0.1)]), None);
        assert_eq!(load(&[part(Some(0.5), 0.0)]), None);
    }

    #[test]
    fn health_falls_with_load_but_never_to_nothing() {
        let health = |load| health_of_load(load, 2.0).value();
        assert_eq!([0.0, 0.5, 1.0, 1.99, 2.0, 7.0].map(health), [100, 75, 50, 1, 1, 1]);
        assert_eq!(falling(f64::NAN, 0.0, 1.0).value(), 1);
        assert_eq!((falling(0.0, 0.0, 0.0).value(), falling(0.1, 0.0, 0.0).value()), (100, 1));
    }

    #[test]
    fn a_guard_says_nothing_until_there_is_something() {
        let guard = |used| falling(used, 0.9, 1.0).value();
        assert_eq!([0.5, 0.9, 0.95, 1.0].map(guard), [100, 100, 50, 1]);
    }
}
