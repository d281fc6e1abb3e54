//! Network interfaces: how long a packet waits, as queueing theory has it.
//!
//! An interface in use for a share ρ of its speed makes a packet wait for ρ/(1 − ρ) others. The two directions of a
//! link do not hinder each other: the busier one counts.
//!
//! Source: Haney and Madsen, "Load-balancing for MySQL", 4.3.

use evener_model::Time;

use super::Malformed;
use super::text::{integer, lines, words};

/// Above this share an interface counts as if it had this share: the load stays finite, 99 at the most.
const SHARE_MAX: f64 = 0.99;

/// A line of `/proc/net/dev`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters<'a> {
    /// The interface's name.
    pub name: &'a str,
    /// Bytes that came in.
    pub received_bytes: u64,
    /// Bytes that went out.
    pub sent_bytes: u64,
}

/// Reads `/proc/net/dev`, below its two lines of headings.
///
/// # Errors
/// [`Malformed`], in place of a line without a name or with fewer than nine numbers.
pub fn parse(text: &[u8]) -> impl Iterator<Item = Result<Counters<'_>, Malformed>> {
    lines(text).skip(2).map(|line| counters(line).ok_or(Malformed("/proc/self/net/dev")))
}

fn counters(line: &[u8]) -> Option<Counters<'_>> {
    // Right behind the colon there may be a number without a space, and a name may hold colons.
    let colon = line.iter().rposition(|&byte| byte == b':')?;
    let name = std::str::from_utf8(&line[..colon]).ok()?;
    let mut words = words(&line[colon + 1..]);
    let received_bytes = integer(words.next()?)?;
    let sent_bytes = integer(words.nth(7)?)?;
    Some(Counters { name, received_bytes, sent_bytes })
}

/// Reads a link's speed from `/sys/class/net/…/speed`, in bytes a second; `None` where the driver knows none (−1).
pub fn parse_speed(text: &[u8]) -> Option<f64> {
    integer(text.trim_ascii())
        .filter(|&mbit_per_s| mbit_per_s > 0 && mbit_per_s < u64::from(u32::MAX))
        .map(bytes_per_s)
}

/// Bytes a second of a link of so many Mbit/s.
pub fn bytes_per_s(mbit_per_s: u64) -> f64 {
    mbit_per_s as f64 * 125_000.0
}

/// The load of an interface that uses a share of its speed: ρ/(1 − ρ).
pub fn load(share: f64) -> f64 {
    let share = share.clamp(0.0, SHARE_MAX);
    share / (1.0 - share)
}

/// What an interface does.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Bytes a second that come in.
    pub received_bytes_per_s: f64,
    /// Bytes a second that go out.
    pub sent_bytes_per_s: f64,
    /// The busier direction's share of the speed, 0–1; `None` if no speed is known.
    pub share: Option<f64>,
    /// How many packets one waits for; `None` if no speed is known.
    pub load: Option<f64>,
}

/// Remembers the last look.
#[derive(Clone, Debug, Default)]
pub struct Interfaces {
    last: Vec<(String, u64, u64)>,
    then: Option<Time>,
}

impl Interfaces {
    /// Takes a look; `speed` says of an interface whether it is meant (`None`: not), and how many bytes a second it
    /// carries, if that is known. The first look finds nothing: it has nothing to compare with.
    ///
    /// # Errors
    /// [`Malformed`]; what was remembered stays.
    pub fn look(
        &mut self,
        now: Time,
        text: &[u8],
        mut speed: impl FnMut(&str) -> Option<Option<f64>>,
    ) -> Result<Vec<Interface>, Malformed> {
        let mut interfaces = Vec::with_capacity(self.last.len());
        let mut seen = Vec::with_capacity(self.last.len());
        let span = self.then.map_or(0.0, |then| now.since(then).as_secs_f64());
        for counters in parse(text) {
            let Counters { name, received_bytes, sent_bytes } = counters?;
            let Some(speed) = speed(name) else { continue };
            let last = self.last.iter().find(|(known, ..)| known == name);
            if let Some((_, received_then, sent_then)) = last.filter(|_| span > 0.0) {
                // A counter that fell belongs to another interface of that name, or began anew.
                let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / span;
                let received = rate(received_bytes, *received_then);
                let sent = rate(sent_bytes, *sent_then);
                let share = speed.map(|speed| (received.max(sent) / speed).min(1.0));
                interfaces.push(Interface {
                    name: name.into(),
                    received_bytes_per_s: received,
                    sent_bytes_per_s: sent,
                    share,
                    load: share.map(load),
                });
            }
            seen.push((name.into(), received_bytes, sent_bytes));
        }
        self.last = seen;
        self.then = Some(now);
        Ok(interfaces)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const DEV: &[u8] = include_bytes!("../../tests/fixtures/host/proc/self/net/dev");

    #[test]
    fn interfaces_are_read_as_the_kernel_writes_them() {
        let all: Vec<_> = parse(DEV).collect::<Result<_, _>>().expect("it comes from a kernel");
        let names: Vec<_> = all.iter().map(|counters| counters.name).collect();
        assert_eq!(names, ["lo", "ifb0", "ifb1", "eth0"]);
        assert!(all[3].received_bytes > 600_000_000 && all[3].sent_bytes > 2_000_000);
        // As Linux 2.4 wrote it, and for an alias of those days.
        let old = b"h\nh\neth0:1:1234 1 0 0 0 0 0 0 5678 1 0 0 0 0 0 0\n";
        let alias = parse(old).next();
        assert_eq!(alias, Some(Ok(Counters { name: "eth0:1", received_bytes: 1234, sent_bytes: 5678 })));
        assert!(matches!(parse(b"h\nh\neth0 1 2\n").next(), Some(Err(_))));
    }

    #[test]
    fn a_driver_may_not_know_its_speed() {
        assert_eq!(parse_speed(b"1000\n"), Some(125_000_000.0));
        for unknown in ["-1\n", "4294967295\n", "0\n", "", "fast"] {
            assert_eq!(parse_speed(unknown.as_bytes()), None, "{unknown:?}");
        }
    }

    #[test]
    fn load_is_the_wait_of_a_packet() {
        assert_eq!(load(0.0), 0.0);
        assert_eq!(load(0.5), 1.0);
        assert!((load(0.8) - 4.0).abs() < 1e-9);
        assert!(load(1.0) < 99.1 && load(7.0) == load(1.0));
    }

    #[test]
    fn the_busier_direction_counts() {
        let mut interfaces = Interfaces::default();
        let mut look = |second, received: u64, sent: u64| {
            let text = format!(
                "h\nh\n eth0: {received} 0 0 0 0 0 0 0 {sent} 0 0 0 0 0 0 0\n lo: 1 0 0 0 0 0 0 0 1 0\n"
            );
            let speed = |name: &str| (name == "eth0").then_some(Some(1000.0));
            let now = Time::ZERO + Duration::from_secs(second);
            interfaces.look(now, text.as_bytes(), speed).expect("valid").pop()
        };
        assert_eq!(look(0, 500, 500), None);
        let busy = look(2, 700, 1500).expect("a rate");
        assert_eq!((busy.received_bytes_per_s, busy.sent_bytes_per_s), (100.0, 500.0));
        assert_eq!((busy.share, busy.load), (Some(0.5), Some(1.0)));
        assert_eq!(look(3, 0, 0).and_then(|anew| anew.share), Some(0.0));
    }
}
