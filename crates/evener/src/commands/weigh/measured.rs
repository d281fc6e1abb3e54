//! This machine by the probes: from what they found to a weight.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::document::{Document, Node, Probed, Probes, Range, SCHEMA, Trusted, Weight};
use super::host::{self, Look, Room};
use super::probes::{self, Plan, Probe, Progress};
use super::report;

/// The weight for each CPU of the reference machine, unless it is said otherwise.
pub(super) const SCALE: f64 = 10.0;

/// Spreads from which figures are not to be relied on.
const SPREAD_MAX: f64 = 0.15;
const PROBE_SPREAD_MAX: f64 = 0.3;
/// Beside a weight without the disk that differs by more, a hint is worth its line.
const DISK_MATTERS: f64 = 0.2;

/// Time for each probe, all its rounds together.
const PROBE_TIME: Duration = Duration::from_secs(5);
const QUICK_PROBE_TIME: Duration = Duration::from_millis(600);
const ROUNDS: usize = 5;
const QUICK_ROUNDS: usize = 3;
/// A quota is given anew every 100 ms: over less than some of these times, what was measured would be chance.
const QUOTA_SLOT: Duration = Duration::from_millis(500);

/// What is to be measured.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) probes: Vec<Probe>,
    /// All probes together.
    pub(super) time: Option<Duration>,
    pub(super) quick: bool,
    pub(super) folder: PathBuf,
    pub(super) scale: f64,
    pub(super) name: Option<String>,
}

impl Wish {
    /// Runs the probes.
    pub(super) fn measure(&self, mut progress: impl FnMut(Progress, Duration)) -> Document {
        let room = Room::look();
        let plan = self.plan(&room);
        let begin = Instant::now();
        let look = Look::now(&room);
        let outcome = probes::run(&plan, &room, |step| progress(step, begin.elapsed()));
        let mut warnings = look.disturbances();
        warnings.extend(outcome.notes);
        let list = outcome.found.into_iter().map(|found| Probed {
            name: found.probe.name().to_owned(),
            unit: found.probe.unit().to_owned(),
            reference: found.probe.reference(),
            one: found.one,
            all: found.all,
            skipped: found.skipped,
        });
        let none = Range { median: 0.0, low: 0.0, high: 0.0 };
        let mut probes = Probes {
            cpu: host::cpu_name(),
            architecture: std::env::consts::ARCH.to_owned(),
            optimised: !cfg!(debug_assertions),
            cpus: room.cpus.len(),
            quota: room.quota,
            copies: room.copies,
            seconds: outcome.took.as_secs_f64(),
            score: none,
            speed: none,
            list: list.collect(),
        };
        let score = probes.score_over(Probed::ran);
        probes.score = score.unwrap_or(none);
        probes.speed = probes.speed_over(Probed::ran).unwrap_or(none);
        let weight = score.map(|score| Weight::of(score.times(self.scale)));
        warnings.extend(doubts(&probes));
        let node = Node {
            name: self.name.clone().unwrap_or_else(host::name),
            address: None,
            weight,
            trusted: Trusted::Probes,
            why: "nothing else is known; a weight from --drive would be trusted before it, since it is measured with the \
                  node's own jobs"
                .to_owned(),
            probes: Some(probes),
            drive: None,
            warnings,
        };
        Document { schema: SCHEMA, nodes: vec![node] }
    }

    fn plan(&self, room: &Room) -> Plan {
        let (each, rounds) = if self.quick { (QUICK_PROBE_TIME, QUICK_ROUNDS) } else { (PROBE_TIME, ROUNDS) };
        let count = self.probes.len() as u32;
        let time = self.time.unwrap_or(each * count);
        let slots = rounds as u32 * count * if room.copies > 1 { 2 } else { 1 };
        let slot = time / slots;
        let slot = if room.quota.is_some() { slot.max(QUOTA_SLOT) } else { slot };
        Plan { probes: self.probes.clone(), rounds, slot, folder: self.folder.clone() }
    }
}

/// Why the figures are not to be relied on, as far as they show it themselves.
fn doubts(probes: &Probes) -> Vec<String> {
    let mut doubts = Vec::new();
    if !probes.optimised {
        doubts.push("this program was built without optimisation: its weights are worth nothing".to_owned());
    }
    for probe in probes.list.iter().filter(|probe| probe.ran()) {
        let range = Range::of(&probe.all);
        if range.spread() > PROBE_SPREAD_MAX {
            let (low, high) = (report::si(range.low, &probe.unit), report::si(range.high, &probe.unit));
            doubts.push(format!("{} was between {low} and {high}", probe.name));
        }
    }
    if probes.score.spread() > SPREAD_MAX {
        let percent = probes.score.spread() * 100.0;
        doubts.push(format!("its rounds differ by {percent:.0} %: weigh it again when less is going on"));
    }
    let without_disk = probes.score_over(|probe| probe.ran() && !is_disk(probe));
    if let Some(without) = without_disk
        && (without.median / probes.score.median - 1.0).abs() > DISK_MATTERS
    {
        doubts.push(
            "the disk is far from what the rest would make one expect: where jobs do not wait for it, weigh with --skip disk"
                .to_owned(),
        );
    }
    doubts
}

pub(super) fn is_disk(probe: &Probed) -> bool {
    Probe::named(&probe.name).iter().any(|probe| probe.is_disk())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(probes: &[Probe]) -> Wish {
        let time = Some(Duration::from_millis(40));
        Wish { probes: probes.into(), time, quick: true, folder: "/tmp".into(), scale: SCALE, name: None }
    }

    #[test]
    fn what_was_measured_becomes_a_weight() {
        let wish = wish(&[Probe::Hash, Probe::Syscalls]);
        let document = wish.measure(|_, _| {});
        let node = &document.nodes[0];
        let (probes, weight) = (node.probes.as_ref().unwrap(), node.weight.unwrap());
        assert!(weight.low <= weight.value && weight.value <= weight.high, "{weight:?}");
        assert!((weight.exact / SCALE - probes.score.median).abs() < 1e-9);
        assert_eq!(probes.list.len(), 2);
        // It is written and read without a change.
        let text = serde_json::to_string(&document).unwrap();
        let read: Document = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }

    #[test]
    fn under_a_quota_each_probe_runs_for_several_of_its_periods() {
        let room = Room { cpus: vec![0, 1], quota: Some(0.5), copies: 1, memory: 1 << 30 };
        assert_eq!(wish(&[Probe::Hash]).plan(&room).slot, QUOTA_SLOT);
        assert!(wish(&[Probe::Hash]).plan(&Room { quota: None, ..room }).slot < QUOTA_SLOT);
    }

    #[test]
    fn doubts_are_told() {
        let probed = |probe: Probe, all: &[f64]| Probed {
            name: probe.name().into(),
            unit: probe.unit().into(),
            reference: 1.0,
            one: all.into(),
            all: all.into(),
            skipped: None,
        };
        let mut probes = wish(&[Probe::Hash]).measure(|_, _| {}).nodes.remove(0).probes.unwrap();
        probes.optimised = true;
        probes.list = vec![probed(Probe::Hash, &[8.0, 8.0]), probed(Probe::DiskRead, &[2.0, 4.0])];
        probes.score = probes.score_over(Probed::ran).unwrap();
        let told = doubts(&probes).join("\n");
        for part in ["disk-read was between 2 reads/s and 4 reads/s", "differ by", "--skip disk"] {
            assert!(told.contains(part), "{part}: {told}");
        }
        probes.list = vec![probed(Probe::Hash, &[8.0, 8.0]), probed(Probe::DiskRead, &[8.0, 8.1])];
        probes.score = probes.score_over(Probed::ran).unwrap();
        let none = doubts(&probes);
        assert!(none.is_empty(), "{none:?}");
    }
}
