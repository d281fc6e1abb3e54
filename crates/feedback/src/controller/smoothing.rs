//! The weight follows the health, smoothed.

use evener_model::Health;

use super::{Node, Settings};

/// Moves the node by one report that came `interval_s` seconds after the one before.
///
/// Source: J. Kerr, Using Dynamic Feedback to Optimise Load Balancing Decisions, 2002, equation 1; but
/// health 0 is followed at once, as the protocol demands.
pub(super) fn step(node: &mut Node, settings: &Settings, alpha: f64, health: Health, interval_s: f64) {
    let least = 0.01;
    if health == Health::NONE {
        // When it is back it grows from nothing, as a weight does that was 0.
        (node.smoothed, node.factor) = (least, least);
        return;
    }
    let wanted = f64::from(health.value()) / 100.0;
    node.smoothed = alpha * wanted + (1.0 - alpha) * node.smoothed;
    let off = node.smoothed - node.factor;
    if off > -settings.dead_band && off < settings.dead_band {
        return;
    }
    let step_max = settings.step_per_s_max * interval_s;
    node.factor = (node.factor + off.clamp(-step_max, step_max)).max(least);
}
