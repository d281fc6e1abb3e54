//! What a machine can do, by short probes of its own.
//!
//! Each probe runs as one copy, which shows how fast one job is done, and as a copy for each CPU, which shows how much
//! the machine can do at once. Rounds go through all of them in turn, so that a disturbance of some seconds touches
//! all probes a little and none wholly.

mod disk;
mod hash;
mod kernel;
mod memory;
mod network;

use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use self::disk::Disk;
use self::memory::Memory;
use self::network::Connections;
use super::host::Room;

/// A probe. Its order here is that of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    Hash,
    MemoryStream,
    MemoryRandom,
    Syscalls,
    Switches,
    TcpRequests,
    TcpStream,
    DiskWrite,
    DiskRead,
}

impl Probe {
    pub(super) const ALL: [Probe; 9] = [
        Probe::Hash,
        Probe::MemoryStream,
        Probe::MemoryRandom,
        Probe::Syscalls,
        Probe::Switches,
        Probe::TcpRequests,
        Probe::TcpStream,
        Probe::DiskWrite,
        Probe::DiskRead,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Probe::Hash => "hash",
            Probe::MemoryStream => "memory-stream",
            Probe::MemoryRandom => "memory-random",
            Probe::Syscalls => "syscalls",
            Probe::Switches => "switches",
            Probe::TcpRequests => "tcp-requests",
            Probe::TcpStream => "tcp-stream",
            Probe::DiskWrite => "disk-write",
            Probe::DiskRead => "disk-read",
        }
    }

    /// What its figures count, each second.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Probe::Hash | Probe::MemoryStream | Probe::TcpStream | Probe::DiskWrite => "B/s",
            Probe::MemoryRandom | Probe::DiskRead => "reads/s",
            Probe::Syscalls => "calls/s",
            Probe::Switches => "switches/s",
            Probe::TcpRequests => "requests/s",
        }
    }

    /// The figure of one copy on the reference machine: one CPU of an AMD EPYC 9004 (Zen 4) under KVM, with 2 CPUs,
    /// 24 GiB and a virtual disk, Linux 6.18, transparent huge pages as the kernel chooses.
    ///
    /// Measured on 2026-11-21 by this command, with priority before the other work on that machine: medians of six
    /// rounds.
    pub(super) fn reference(self) -> f64 {
        match self {
            Probe::Hash => 260e6,
            Probe::MemoryStream => 23e9,
            Probe::MemoryRandom => 5.2e6,
            Probe::Syscalls => 4.1e6,
            Probe::Switches => 370e3,
            Probe::TcpRequests => 104e3,
            Probe::TcpStream => 5.2e9,
            Probe::DiskWrite => 300e6,
            Probe::DiskRead => 19e3,
        }
    }

    pub(super) fn is_disk(self) -> bool {
        matches!(self, Probe::DiskWrite | Probe::DiskRead)
    }

    fn is_memory(self) -> bool {
        matches!(self, Probe::MemoryStream | Probe::MemoryRandom)
    }

    /// The probe with this name, or those whose names begin with it and a hyphen.
    pub(super) fn named(name: &str) -> Vec<Probe> {
        let is_meant = |probe: &Probe| {
            probe.name() == name || probe.name().strip_prefix(name).is_some_and(|rest| rest.starts_with('-'))
        };
        Probe::ALL.into_iter().filter(is_meant).collect()
    }
}

/// What is to be run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) probes: Vec<Probe>,
    pub(super) rounds: usize,
    /// How long each probe runs each time.
    pub(super) slot: Duration,
    /// Where files are put.
    pub(super) folder: PathBuf,
}

/// What a probe found: a figure for each round.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) probe: Probe,
    pub(super) one: Vec<f64>,
    /// With a copy for each CPU.
    pub(super) all: Vec<f64>,
    /// Why there are none.
    pub(super) skipped: Option<String>,
}

/// What all probes found.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) found: Vec<Found>,
    pub(super) took: Duration,
    /// What makes the figures other than those of other machines.
    pub(super) notes: Vec<String>,
}

/// How far it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub(super) probe: Probe,
    pub(super) copies: usize,
    /// Of all there is to do, from 0 to 1.
    pub(super) share: f64,
}

/// A round before the others is shorter and does not count: caches, clocks and the kernel's estimates find their way.
const WARM_UP: u32 = 4;

/// Runs all probes. What cannot be measured here is left out, and why is said.
pub(super) fn run(plan: &Plan, room: &Room, mut progress: impl FnMut(Progress)) -> Outcome {
    let begin = Instant::now();
    let mut notes = Vec::new();
    let sizes = Sizes::new(plan, room, &mut notes);
    let found = plan.probes.iter().map(|&probe| {
        let skipped = sizes.reason(probe);
        Found { probe, one: Vec::new(), all: Vec::new(), skipped }
    });
    let mut found: Vec<Found> = found.collect();
    let mut copies: Vec<Runner> = (0..room.copies).map(|index| Runner::new(index, plan, &sizes)).collect();
    let (mut done, steps) = (0, plan.rounds * found.len());
    for round in 0..=plan.rounds {
        let slot = if round == 0 { plan.slot / WARM_UP } else { plan.slot };
        for found in found.iter_mut().filter(|found| found.skipped.is_none()) {
            let share = done as f64 / steps as f64;
            done += usize::from(round > 0);
            let mut figure = |copies: &mut [Runner]| {
                progress(Progress { probe: found.probe, copies: copies.len(), share });
                for copy in copies.iter_mut() {
                    // One copy meets all CPUs in turn: on a busy machine they are not the same.
                    copy.cpu = room.cpus[(copy.index + round) % room.cpus.len()];
                }
                measure(found.probe, copies, slot)
            };
            // With one copy, one and all are the same.
            let one = if room.copies > 1 { Some(figure(&mut copies[..1])) } else { None };
            let all = figure(&mut copies);
            match (one.unwrap_or_else(|| all.as_ref().map(|rate| *rate).map_err(String::clone)), all) {
                (Ok(one), Ok(all)) if round > 0 => {
                    found.one.push(one);
                    found.all.push(all);
                }
                (Ok(_), Ok(_)) => {}
                (Err(reason), _) | (_, Err(reason)) => found.skipped = Some(reason),
            }
        }
    }
    let cached = copies.iter().any(|copy| copy.disk.as_ref().is_some_and(|disk| !disk.direct));
    if cached {
        notes.push(format!(
            "{} takes no transfers around the kernel's cache: disk-write went through it",
            plan.folder.display()
        ));
    }
    Outcome { found, took: begin.elapsed(), notes }
}

/// All copies at once: what they do in a second together.
fn measure(probe: Probe, copies: &mut [Runner], slot: Duration) -> Result<f64, String> {
    // What a copy needs is made before the clock runs.
    together(copies, |copy| copy.prepare(probe).map(|()| 0.0))?;
    together(copies, |copy| copy.run(probe, slot))
}

fn together(
    copies: &mut [Runner],
    work: impl Fn(&mut Runner) -> io::Result<f64> + Sync,
) -> Result<f64, String> {
    let work = &work;
    let results: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = copies.iter_mut().map(|copy| scope.spawn(move || work(copy))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, io::Result<f64>>| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the probe has ended")))
        };
        threads.into_iter().map(join).collect()
    });
    results.into_iter().map(|result| result.map_err(|error| error.to_string())).sum()
}

/// Repeats `batch`, which says how much it did, until `slot` is over; how much that was in a second.
fn repeat(slot: Duration, mut batch: impl FnMut() -> io::Result<u64>) -> io::Result<f64> {
    let begin = Instant::now();
    let mut done = 0;
    loop {
        done += batch()?;
        let elapsed = begin.elapsed();
        if elapsed >= slot {
            return Ok(done as f64 / elapsed.as_secs_f64());
        }
    }
}

/// How large things are that copies work on.
struct Sizes {
    /// Bytes of memory of a copy, or why there are too few.
    memory: Result<u64, String>,
    disk: Result<u64, String>,
}

impl Sizes {
    fn new(plan: &Plan, room: &Room, notes: &mut Vec<String>) -> Sizes {
        let copies = room.copies as u64;
        let memory = memory::BYTES.min(room.memory / 4 / copies);
        let memory = if memory < memory::BYTES_MIN {
            Err(format!("there are less than {} MiB of memory free for each copy", memory::BYTES_MIN >> 20))
        } else {
            if memory < memory::BYTES && plan.probes.iter().any(|probe| probe.is_memory()) {
                notes.push(format!(
                    "memory was measured on {} MiB a copy instead of {}, since little is free: more of it lies in caches",
                    memory >> 20,
                    memory::BYTES >> 20
                ));
            }
            Ok(memory)
        };
        let disk = disk::FILE_BYTES.min(disk::ALL_BYTES_MAX / copies).max(disk::FILE_BYTES_MIN);
        let disk = match plan.probes.iter().any(|probe| probe.is_disk()) {
            true => disk::check(&plan.folder, disk * copies).map(|()| disk),
            false => Ok(disk),
        };
        Sizes { memory, disk }
    }

    /// Why a probe cannot be run.
    fn reason(&self, probe: Probe) -> Option<String> {
        match probe {
            _ if probe.is_memory() => self.memory.clone().err(),
            _ if probe.is_disk() => self.disk.clone().err(),
            _ => None,
        }
    }
}

/// One of those that do the same at the same time, and what it does it with.
struct Runner {
    index: usize,
    cpu: usize,
    folder: PathBuf,
    memory_bytes: u64,
    disk_bytes: u64,
    memory: Option<Memory>,
    connections: Option<Connections>,
    disk: Option<Disk>,
}

impl Runner {
    fn new(index: usize, plan: &Plan, sizes: &Sizes) -> Runner {
        let size = |size: &Result<u64, String>| size.as_ref().map_or(0, |bytes| *bytes);
        Runner {
            index,
            cpu: 0,
            folder: plan.folder.clone(),
            memory_bytes: size(&sizes.memory),
            disk_bytes: size(&sizes.disk),
            memory: None,
            connections: None,
            disk: None,
        }
    }

    fn prepare(&mut self, probe: Probe) -> io::Result<()> {
        let seed = self.index as u64;
        match probe {
            Probe::MemoryStream | Probe::MemoryRandom if self.memory.is_none() => {
                self.memory = Some(Memory::new(self.memory_bytes, seed));
            }
            Probe::TcpRequests if self.connections.is_none() => self.connections = Some(Connections::new()?),
            Probe::DiskWrite | Probe::DiskRead if self.disk.is_none() => {
                self.disk = Some(Disk::new(&self.folder, self.disk_bytes, seed)?);
            }
            _ => {}
        }
        let cached = self.disk.as_ref().is_some_and(|disk| !disk.direct);
        if probe == Probe::DiskRead && cached {
            return Err(io::Error::other("its file system takes no transfers around the kernel's cache"));
        }
        Ok(())
    }

    fn run(&mut self, probe: Probe, slot: Duration) -> io::Result<f64> {
        const PREPARED: &str = "what a probe needs has been made";
        match probe {
            Probe::Hash => hash::run(slot),
            Probe::MemoryStream => self.memory.as_mut().expect(PREPARED).stream(slot),
            Probe::MemoryRandom => self.memory.as_mut().expect(PREPARED).random(slot),
            Probe::Syscalls => kernel::calls(slot),
            Probe::Switches => kernel::switches(slot, self.cpu),
            Probe::TcpRequests => self.connections.as_mut().expect(PREPARED).requests(slot),
            Probe::TcpStream => network::stream(slot),
            Probe::DiskWrite => self.disk.as_mut().expect(PREPARED).writes(slot),
            Probe::DiskRead => self.disk.as_mut().expect(PREPARED).reads(slot),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(copies: usize) -> Room {
        Room { copies, memory: 1 << 30, ..Room::look() }
    }

    #[test]
    fn every_probe_finds_something_or_says_why_not() {
        let folder = std::env::current_dir().unwrap();
        let slot = Duration::from_millis(4);
        let plan = Plan { probes: Probe::ALL.into(), rounds: 2, slot, folder };
        let mut shares = Vec::new();
        let outcome = run(&plan, &room(2), |progress| shares.push(progress.share));
        for found in &outcome.found {
            match &found.skipped {
                None => {
                    assert_eq!((found.one.len(), found.all.len()), (2, 2), "{found:?}");
                    assert!(found.one.iter().chain(&found.all).all(|rate| *rate > 0.0), "{found:?}");
                }
                // What depends on the machine: a build on a file system in memory, for one.
                Some(reason) => assert!(found.probe.is_disk() && !reason.is_empty(), "{found:?}"),
            }
        }
        assert!(shares.is_sorted() && shares.iter().all(|share| (0.0..1.0).contains(share)), "{shares:?}");
    }

    #[test]
    fn a_probe_that_cannot_run_takes_nothing_from_the_others() {
        let folder = PathBuf::from("/nowhere");
        let probes = vec![Probe::MemoryRandom, Probe::Syscalls, Probe::DiskRead];
        let plan = Plan { probes, rounds: 1, slot: Duration::from_millis(1), folder };
        let outcome = run(&plan, &Room { memory: 1 << 20, ..room(1) }, |_| {});
        let reasons: Vec<_> = outcome.found.iter().map(|found| found.skipped.as_deref()).collect();
        assert!(reasons[0].unwrap().contains("memory free") && reasons[2].unwrap().contains("/nowhere"));
        assert_eq!((reasons[1], outcome.found[1].all.len()), (None, 1));
    }

    #[test]
    fn a_name_may_stand_for_several() {
        let names = |name| Probe::named(name).into_iter().map(Probe::name).collect::<Vec<_>>();
        assert_eq!(names("disk"), ["disk-write", "disk-read"]);
        assert_eq!(names("tcp-stream"), ["tcp-stream"]);
        assert!(names("dis").is_empty() && names("").is_empty());
    }
}
