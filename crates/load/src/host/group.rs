//! The control group whose limits are the node's capacity.

use std::fs;
use std::path::{Path, PathBuf};

use evener_model::Time;

use super::file::KernelFile;
use crate::measure::cgroup;
use crate::measure::cpu::QuotaCpu;
use crate::measure::memory::Memory;
use crate::measure::pressure::Pressure;
use crate::settings::{Cgroup, Settings};

/// A group with a quota of CPU time.
#[derive(Debug)]
pub(super) struct CpuGroup {
    max: KernelFile,
    stat: KernelFile,
    pressure: KernelFile,
    cpu: QuotaCpu,
}

/// A group with a limit of memory.
#[derive(Debug)]
pub(super) struct MemoryGroup {
    max: KernelFile,
    current: KernelFile,
    stat: KernelFile,
    pub(super) pressure: KernelFile,
}

/// Finds the groups with the tightest limits, at or above the one that is meant. Of equal limits the outermost
/// counts: it holds more of what uses them.
pub(super) fn find(settings: &Settings) -> (Option<CpuGroup>, Option<MemoryGroup>) {
    let folders = folders(settings).unwrap_or_default();
    let read = |folder: &Path, name: &str| fs::read(folder.join(name)).ok();
    let cpu = tightest(&folders, |folder| cgroup::parse_cpu_max(&read(folder, "cpu.max")?).ok().flatten());
    let memory = tightest(&folders, |folder| {
        cgroup::parse_memory_max(&read(folder, "memory.max")?).ok().flatten().map(|bytes| bytes as f64)
    });
    let cpu = cpu.map(|folder| CpuGroup {
        max: KernelFile::new(folder.join("cpu.max")),
        stat: KernelFile::new(folder.join("cpu.stat")),
        pressure: KernelFile::new(folder.join("cpu.pressure")),
        cpu: QuotaCpu::default(),
    });
    let memory = memory.map(|folder| MemoryGroup {
        max: KernelFile::new(folder.join("memory.max")),
        current: KernelFile::new(folder.join("memory.current")),
        stat: KernelFile::new(folder.join("memory.stat")),
        pressure: KernelFile::new(folder.join("memory.pressure")),
    });
    (cpu, memory)
}

fn folders(settings: &Settings) -> Option<Vec<PathBuf>> {
    let proc = settings.proc.join("self");
    let mounts = fs::read(proc.join("mountinfo")).ok()?;
    let (point, root) = cgroup::parse_mount(&mounts)?;
    let read;
    let own = match &settings.cgroup {
        Cgroup::None => return None,
        Cgroup::Path(path) => path,
        Cgroup::Own => {
            read = fs::read(proc.join("cgroup")).ok()?;
            cgroup::parse_own(&read)?
        }
    };
    Some(cgroup::folders(point, root, own))
}

fn tightest(folders: &[PathBuf], limit: impl Fn(&Path) -> Option<f64>) -> Option<&Path> {
    let limits = folders.iter().filter_map(|folder| Some((folder.as_path(), limit(folder)?)));
    // The folders come inmost first; of equal ones the last stays.
    limits.reduce(|tight, next| if next.1 <= tight.1 { next } else { tight }).map(|(folder, _)| folder)
}

/// What a group's CPUs do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct GroupCpu {
    /// How many CPUs the quota is worth.
    pub(super) cpus: f64,
    /// The share of the quota in use, and the load; `None` at the first look.
    pub(super) load: Option<(f64, f64)>,
}

impl CpuGroup {
    /// Takes a look; `None` if there is no quota any more, or it is no tighter than the host's CPUs.
    pub(super) fn look(
        &mut self,
        now: Time,
        host_cpus: u32,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<GroupCpu>, String> {
        let quota = self.max.read(buffer, cgroup::parse_cpu_max)?;
        let Some(cpus) = quota.filter(|&cpus| cpus < f64::from(host_cpus)) else {
            return Ok(None);
        };
        let stat = self.stat.read(buffer, cgroup::parse_cpu_stat)?;
        // Without pressure stall information, a quota that is used up is a load of 1.
        let waits = self.pressure.read(buffer, Pressure::parse).ok();
        Ok(Some(GroupCpu { cpus, load: self.cpu.look(now, stat, cpus, waits) }))
    }
}

impl MemoryGroup {
    /// Takes a look; `None` if there is no limit any more, or it is no tighter than the host's memory.
    pub(super) fn look(&mut self, host_bytes: u64, buffer: &mut Vec<u8>) -> Result<Option<Memory>, String> {
        let limit = self.max.read(buffer, cgroup::parse_memory_max)?;
        let Some(limit) = limit.filter(|&bytes| bytes < host_bytes) else {
            return Ok(None);
        };
        let used = self.current.read(buffer, cgroup::parse_memory_used)?;
        let cache = self.stat.read(buffer, cgroup::parse_memory_cache)?;
        Ok(Some(Memory::of_group(limit, used, cache)))
    }
}
