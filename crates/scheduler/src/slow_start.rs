//! A node that is new or back has cold caches: it gets a tenth of its share at first, then more.

use std::time::Duration;

use evener_model::Time;

use crate::nodes::UNIT;

/// Steps from nothing to the full share.
const STEPS: u32 = 20;

/// The part of its share that a node gets which has been back since `since`: the elapsed part of
/// `slow_start`, at least a tenth, in [`UNIT`]s. `None` when slow start is over.
pub(crate) fn ramp(since: Time, now: Time, slow_start: Duration) -> Option<u32> {
    let elapsed = now.since(since);
    if elapsed >= slow_start {
        return None;
    }
    let part = elapsed.as_nanos() * u128::from(UNIT) / slow_start.as_nanos();
    Some((part as u32).max(UNIT / 10))
}

/// When to look again.
pub(crate) fn next_step(now: Time, slow_start: Duration) -> Time {
    now + (slow_start / STEPS).max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_grows_from_a_tenth_to_all() {
        let at =
            |seconds| ramp(Time::ZERO, Time::ZERO + Duration::from_secs(seconds), Duration::from_secs(8));
        assert_eq!([at(0), at(2), at(7), at(8)], [Some(25), Some(64), Some(224), None]);
    }
}
