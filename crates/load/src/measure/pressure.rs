//! Pressure stall information: the share of time in which tasks waited for a resource.
//!
//! *some*: at least one task waited. *full*: all that were not idle waited, so nothing got done.

use std::time::Duration;

use evener_model::Time;

use super::Malformed;
use super::text::{integer, lines, number, words};

/// `/proc/pressure/…`, or a control group's `….pressure`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// At least one task waited.
    pub some: Stall,
    /// All waited; `None` where the kernel does not say it, as for CPUs before Linux 5.13.
    pub full: Option<Stall>,
}

/// How long was waited.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stall {
    /// The share of the last 10 s, 0–1, recent seconds counted more.
    pub share_10s: f64,
    /// All waiting since the system came up.
    pub total: Duration,
}

impl Pressure {
    /// Reads lines such as `some avg10=0.41 avg60=0.94 avg300=1.29 total=73103043`, in percent and microseconds.
    ///
    /// # Errors
    /// [`Malformed`] without a line `some`.
    pub fn parse(text: &[u8]) -> Result<Pressure, Malformed> {
        const WRONG: Malformed = Malformed("pressure stall information");
        let (mut some, mut full) = (None, None);
        for line in lines(text) {
            let mut words = words(line);
            let place = match words.next() {
                Some(b"some") => &mut some,
                Some(b"full") => &mut full,
                // What later kernels add is not for us.
                _ => continue,
            };
            let percent = words.next().and_then(|word| number(word.strip_prefix(b"avg10=")?)).ok_or(WRONG)?;
            let micros = words.nth(2).and_then(|word| integer(word.strip_prefix(b"total=")?)).ok_or(WRONG)?;
            let share_10s = (percent / 100.0).clamp(0.0, 1.0);
            *place = Some(Stall { share_10s, total: Duration::from_micros(micros) });
        }
        Ok(Pressure { some: some.ok_or(WRONG)?, full })
    }
}

/// Remembers the last look, for the share of the time since.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter {
    last: Option<(Time, Duration)>,
}

impl Meter {
    /// The share of the time since the last look in which was waited, 0–1; `None` at the first.
    pub fn look(&mut self, now: Time, stall: Stall) -> Option<f64> {
        let (then, total) = self.last.replace((now, stall.total))?;
        let span = now.since(then).as_secs_f64();
        (span > 0.0).then(|| (stall.total.saturating_sub(total).as_secs_f64() / span).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_read_as_the_kernel_writes_it() {
        let text = include_bytes!("../../tests/fixtures/host/proc/pressure/io");
        let pressure = Pressure::parse(text).expect("it comes from a kernel");
        assert_eq!(pressure.some.total, Duration::from_micros(73_103_043));
        assert_eq!(pressure.some.share_10s, 0.41 / 100.0);
        assert_eq!(pressure.full.map(|full| full.total), Some(Duration::from_micros(50_711_778)));
    }

    #[test]
    fn a_kernel_without_full_is_read_too() {
        let old = b"some avg10=150.00 avg60=0.00 avg300=0.00 total=7\n";
        let pressure = Pressure::parse(old).expect("valid");
        assert_eq!((pressure.some.share_10s, pressure.full), (1.0, None));
        for wrong in
            ["", "full avg10=0 avg60=0 avg300=0 total=0", "some", "some avg10=x avg60=0 avg300=0 total=0"]
        {
            assert!(Pressure::parse(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_meter_gives_the_share_since_the_last_look() {
        let mut meter = Meter::default();
        let mut look = |second, total_ms| {
            let stall = Stall { share_10s: 0.0, total: Duration::from_millis(total_ms) };
            meter.look(Time::ZERO + Duration::from_secs(second), stall)
        };
        assert_eq!(look(10, 400), None);
        assert_eq!(look(12, 900), Some(0.25));
        assert_eq!(look(12, 900), None, "no time has passed");
        assert_eq!(look(13, 100), Some(0.0), "a counter that fell tells nothing");
    }
}
