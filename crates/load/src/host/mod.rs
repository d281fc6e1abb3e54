//! Reads what the kernel says of this machine, or of the control group that is the node.

mod file;
mod group;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use evener_model::{Health, Time};
use serde::Serialize;

use crate::measure::combine::{Part, falling};
use crate::measure::cpu::{self, CpuTimes, RunQueue};
use crate::measure::disk::{Disk, Disks};
use crate::measure::memory::{Descriptors, Memory};
use crate::measure::network::{self, Interface, Interfaces};
use crate::measure::pressure::{Meter, Pressure};
use crate::sampler::Failure;
use crate::settings::{CpuSource, Settings};
use file::KernelFile;
use group::{CpuGroup, MemoryGroup};

/// Devices come and go, and links change their speed, but seldom.
const DEVICES_AGE_MAX: Duration = Duration::from_secs(60);

/// What the kernel says of the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Readings {
    /// CPUs; `None` at the first look.
    pub cpu: Option<CpuReading>,
    /// Network interfaces; none at the first look.
    pub network: Vec<Interface>,
    /// Disks.
    pub disk: Vec<Disk>,
    /// Memory.
    pub memory: Option<Memory>,
    /// The share of the last 10 s in which nothing was done for want of memory.
    pub memory_stall: Option<f64>,
    /// Open files.
    pub descriptors: Option<Descriptors>,
}

/// What CPUs do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CpuReading {
    /// How many there are, or how many the group's quota is worth.
    pub cpus: f64,
    /// The share of them that was in use since the last look.
    pub busy: f64,
    /// Their load: up to 1 the share in use, above it what waits besides.
    pub load: f64,
    /// Tasks of the whole host that run or could run, without ourselves.
    pub runnable: u32,
    /// The load average of the whole host over a minute.
    pub average: f64,
}

/// The files of this machine, open, and what they said last.
#[derive(Debug)]
pub(crate) struct Host {
    settings: Settings,
    stat: KernelFile,
    loadavg: KernelFile,
    cpu_pressure: KernelFile,
    memory_pressure: KernelFile,
    meminfo: KernelFile,
    file_nr: KernelFile,
    net_dev: KernelFile,
    diskstats: KernelFile,
    cpu: cpu::Cpu,
    cpu_waits: Meter,
    cpu_group: Option<CpuGroup>,
    memory_group: Option<MemoryGroup>,
    interfaces: Interfaces,
    disks: Disks,
    devices: Devices,
    buffer: Vec<u8>,
}

/// What a look found.
#[derive(Debug, Default)]
pub(crate) struct Look {
    pub(crate) readings: Readings,
    pub(crate) parts: Vec<Part>,
    /// The most health that the guards leave.
    pub(crate) guards: Vec<Health>,
    pub(crate) failed: Vec<Failure>,
}

impl Host {
    pub(crate) fn new(settings: &Settings) -> Host {
        let proc = |name: &str| KernelFile::new(settings.proc.join(name));
        let (cpu_group, memory_group) = group::find(settings);
        Host {
            settings: settings.clone(),
            stat: proc("stat"),
            loadavg: proc("loadavg"),
            cpu_pressure: proc("pressure/cpu"),
            memory_pressure: proc("pressure/memory"),
            meminfo: proc("meminfo"),
            file_nr: proc("sys/fs/file-nr"),
            // That of our own network namespace, where there are several.
            net_dev: proc("self/net/dev"),
            diskstats: proc("diskstats"),
            cpu: cpu::Cpu::default(),
            cpu_waits: Meter::default(),
            cpu_group,
            memory_group,
            interfaces: Interfaces::default(),
            disks: Disks::default(),
            devices: Devices::default(),
            buffer: Vec::new(),
        }
    }

    /// Reads all files. One that cannot be read is told in `failed`, and the others are read.
    pub(crate) fn look(&mut self, now: Time) -> Look {
        let mut look = Look::default();
        self.devices.follow(now, &self.settings);
        let (cpu, network) = (self.cpu(now), self.network(now));
        let (disk, memory) = (self.disk(now), self.memory());
        let (stall, descriptors) = (self.memory_stall(), self.descriptors());
        self.tell(&mut look, "cpu", cpu, |look, host, cpu| {
            let load = cpu.map(|cpu| cpu.load);
            look.part("cpu", load, host.settings.cpu.factor.value());
            look.readings.cpu = cpu;
        });
        self.tell(&mut look, "network", network, |look, host, interfaces| {
            // Without a speed there is no load: nothing is known of it, and nothing is wrong.
            let loads = interfaces.iter().filter_map(|interface| interface.load);
            if let Some(worst) = loads.reduce(f64::max) {
                look.part("network", Some(worst), host.settings.network.factor.value());
            }
            look.readings.network = interfaces;
        });
        self.tell(&mut look, "disk", disk, |look, host, disks| {
            if let Some(worst) = disks.iter().filter_map(|disk| disk.busy).reduce(f64::max) {
                look.part("disk", Some(worst), host.settings.disk.factor.value());
            }
            look.readings.disk = disks;
        });
        self.tell(&mut look, "memory", memory, |look, host, memory| {
            look.part("memory", Some(memory.used()), host.settings.memory.factor.value());
            look.readings.memory = Some(memory);
        });
        let stall_max = self.settings.memory.stall_max.value();
        if stall_max > 0.0 {
            self.tell(&mut look, "memory stall", stall, |look, _, stall| {
                look.guards.extend(stall.map(|stall| falling(stall, 0.0, stall_max)));
                look.readings.memory_stall = stall;
            });
        }
        self.tell(&mut look, "descriptors", descriptors, |look, host, descriptors| {
            look.guards.push(falling(descriptors.used(), host.settings.descriptors.used_max.value(), 1.0));
            look.readings.descriptors = Some(descriptors);
        });
        look
    }

    /// Puts what was read into the look, or why it was not.
    fn tell<T>(
        &self,
        look: &mut Look,
        name: &str,
        read: Result<T, String>,
        put: impl FnOnce(&mut Look, &Host, T),
    ) {
        match read {
            Ok(value) => put(look, self, value),
            Err(reason) => {
                let factor = match name {
                    "cpu" => self.settings.cpu.factor,
                    "network" => self.settings.network.factor,
                    "disk" => self.settings.disk.factor,
                    "memory" => self.settings.memory.factor,
                    _ => crate::settings::Factor::NONE,
                };
                // What counts and cannot be read leaves the whole unknown.
                look.part(name, None, factor.value());
                look.failed.push(Failure { source: name.into(), reason });
            }
        }
    }

    fn cpu(&mut self, now: Time) -> Result<Option<CpuReading>, String> {
        let buffer = &mut self.buffer;
        let times = self.stat.read(buffer, CpuTimes::parse)?;
        let queue = self.loadavg.read(buffer, RunQueue::parse)?;
        let estimated = self.cpu.look(now, times, queue);
        let reading = |cpus, (busy, load)| CpuReading {
            cpus,
            busy,
            load,
            runnable: queue.runnable,
            average: queue.average,
        };
        if let Some(group) = &mut self.cpu_group
            && let Some(group) = group.look(now, times.cpus, buffer)?
        {
            return Ok(group.load.map(|load| reading(group.cpus, load)));
        }
        let Some((busy, estimate)) = estimated else {
            // The meter needs a first look, too.
            if self.settings.cpu.source == CpuSource::Pressure {
                self.cpu_waits(now)?;
            }
            return Ok(None);
        };
        let load = match self.settings.cpu.source {
            CpuSource::Estimate => estimate,
            CpuSource::Pressure => busy + self.cpu_waits(now)?,
        };
        Ok(Some(reading(f64::from(times.cpus), (busy, load))))
    }

    fn cpu_waits(&mut self, now: Time) -> Result<f64, String> {
        let pressure = self.cpu_pressure.read(&mut self.buffer, Pressure::parse)?;
        Ok(self.cpu_waits.look(now, pressure.some).unwrap_or(0.0))
    }

    fn network(&mut self, now: Time) -> Result<Vec<Interface>, String> {
        let (interfaces, devices) = (&mut self.interfaces, &self.devices);
        let wanted = &self.settings.network.interfaces;
        self.net_dev.read(&mut self.buffer, |text| {
            interfaces.look(now, text, |name| {
                let is_meant =
                    if wanted.is_empty() { name != "lo" } else { wanted.iter().any(|known| known == name) };
                is_meant.then(|| devices.speeds.get(name).copied())
            })
        })
    }

    fn disk(&mut self, now: Time) -> Result<Vec<Disk>, String> {
        let (disks, devices) = (&mut self.disks, &self.devices);
        let wanted = &self.settings.disk.devices;
        self.diskstats.read(&mut self.buffer, |text| {
            disks.look(now, text, |name| {
                let meant = if wanted.is_empty() { &devices.disks } else { wanted };
                meant.iter().any(|known| known == name)
            })
        })
    }

    fn memory(&mut self) -> Result<Memory, String> {
        let host = self.meminfo.read(&mut self.buffer, Memory::parse)?;
        let group = match &mut self.memory_group {
            Some(group) => group.look(host.total_bytes, &mut self.buffer)?,
            None => None,
        };
        Ok(group.unwrap_or(host))
    }

    fn memory_stall(&mut self) -> Result<Option<f64>, String> {
        let file = match &mut self.memory_group {
            // A group may have a limit on a host without pressure stall information of groups.
            Some(group) if group.pressure.path().exists() => &mut group.pressure,
            _ => &mut self.memory_pressure,
        };
        let pressure = file.read(&mut self.buffer, Pressure::parse)?;
        Ok(pressure.full.map(|full| full.share_10s))
    }

    fn descriptors(&mut self) -> Result<Descriptors, String> {
        self.file_nr.read(&mut self.buffer, Descriptors::parse)
    }
}

impl Look {
    fn part(&mut self, name: &str, load: Option<f64>, factor: f64) {
        self.parts.push(Part { name: name.into(), load, factor });
    }
}

/// What is known of devices from `/sys`.
#[derive(Debug, Default)]
struct Devices {
    read_at: Option<Time>,
    /// Bytes a second.
    speeds: BTreeMap<String, f64>,
    disks: Vec<String>,
}

impl Devices {
    fn follow(&mut self, now: Time, settings: &Settings) {
        if self.read_at.is_some_and(|then| now.since(then) < DEVICES_AGE_MAX) {
            return;
        }
        self.read_at = Some(now);
        let names = |folder: &str| {
            let entries = fs::read_dir(settings.sys.join(folder)).into_iter().flatten().flatten();
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect::<Vec<_>>()
        };
        let in_memory = ["loop", "ram", "zram"];
        self.disks = names("block");
        self.disks.retain(|name| !in_memory.iter().any(|kind| name.starts_with(kind)));
        self.speeds.clear();
        for name in names("class/net") {
            // It is an error to ask an interface that is down or has no speed.
            let text = fs::read(settings.sys.join("class/net").join(&name).join("speed")).unwrap_or_default();
            if let Some(speed) = network::parse_speed(&text) {
                self.speeds.insert(name, speed);
            }
        }
        let configured = settings.network.speed_mbit_per_s.iter();
        self.speeds.extend(
            configured.map(|(name, speed)| (name.clone(), network::bytes_per_s(u64::from(speed.get())))),
        );
    }
}
