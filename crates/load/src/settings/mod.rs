//! What is to be measured, as the table `[agent]` of a configuration says it.
//!
//! Types hold only what is valid: what cannot be is an error where it stands in the file.

mod source;
mod value;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

pub use source::{Ask, Connections, Json, Mysql, Program, ProgramAnswer, Prometheus, Redis, Source};
pub use value::{Address, Factor, Pointer, Positive, Share, Url, Words};
use value::{expected, period};

/// What is measured, how often, and how much each part counts.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct Settings {
    /// Time from one sample to the next.
    #[serde(deserialize_with = "period")]
    pub interval: Duration,
    /// How long a sample waits for sources. Of those that take longer, the answer before counts.
    #[serde(deserialize_with = "period")]
    pub patience: Duration,
    /// Where the kernel tells of processes: another folder than `/proc` in a container that sees the host's.
    pub proc: PathBuf,
    /// Where the kernel tells of devices.
    pub sys: PathBuf,
    /// The control group whose limits are the node's capacity.
    pub cgroup: Cgroup,
    /// Load of the CPUs.
    pub cpu: Cpu,
    /// Load of the network.
    pub network: Network,
    /// Use of disks.
    pub disk: Disk,
    /// Use of memory, and the guard against the want of it.
    pub memory: Memory,
    /// Open files, and the guard against the want of them.
    pub descriptors: Descriptors,
    /// How a health comes of a load.
    pub health: Health,
    /// Servers, programs and metrics that are asked.
    #[serde(rename = "source")]
    pub sources: Vec<Source>,
}

impl Settings {
    /// The names of all keys, for whoever has others beside them in the same table.
    pub const KEYS: &'static [&'static str] = &[
        "interval",
        "patience",
        "proc",
        "sys",
        "cgroup",
        "cpu",
        "network",
        "disk",
        "memory",
        "descriptors",
        "health",
        "source",
    ];
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            interval: Duration::from_secs(1),
            patience: Duration::from_millis(200),
            proc: "/proc".into(),
            sys: "/sys".into(),
            cgroup: Cgroup::default(),
            cpu: Cpu::default(),
            network: Network::default(),
            disk: Disk::default(),
            memory: Memory::default(),
            descriptors: Descriptors::default(),
            health: Health::default(),
            sources: Vec::new(),
        }
    }
}

/// Which control group's limits are the node's capacity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cgroup {
    /// `"own"`: that of this process, or the one above it with the tightest limit.
    #[default]
    Own,
    /// `"none"`: the whole host is the node.
    None,
    /// A path, as `/proc/PID/cgroup` names it: that of a service that is not in the agent's own group.
    Path(PathBuf),
}

impl<'de> Deserialize<'de> for Cgroup {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cgroup, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "own" => Ok(Cgroup::Own),
            "none" => Ok(Cgroup::None),
            path if path.starts_with('/') && !path.split('/').any(|part| part == "..") => {
                Ok(Cgroup::Path(path.into()))
            }
            other => Err(expected("\"own\", \"none\" or a path such as /system.slice/nginx.service", other)),
        }
    }
}

/// Load of the CPUs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct Cpu {
    /// How much it counts.
    pub factor: Factor,
    /// What says how much waits when the CPUs are in use.
    pub source: CpuSource,
}

/// What says how much waits when the CPUs are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuSource {
    /// The queue of the scheduler and its average: knows how many wait, and is up to a minute behind.
    #[default]
    Estimate,
    /// Pressure stall information: the share of time in which a task waited is added. Prompt, and at most 2.
    Pressure,
}

/// Load of the network.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct Network {
    /// How much it counts. A packet's wait is short beside a job: a tenth, unless jobs are mostly transfers.
    pub factor: Factor,
    /// The interfaces that matter; none: all but the loopback.
    pub interfaces: Vec<String>,
    /// Speeds of interfaces whose drivers know none, in Mbit/s. They go before what a driver says.
    pub speed_mbit_per_s: BTreeMap<String, NonZeroU32>,
}

impl Default for Network {
    fn default() -> Network {
        Network { factor: Factor::of(0.1), interfaces: Vec::new(), speed_mbit_per_s: BTreeMap::new() }
    }
}

/// Use of disks.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct Disk {
    /// How much the busiest disk's share of busy time counts. What is busy may still have room: nothing.
    pub factor: Factor,
    /// The disks that matter; none: all, without partitions and without those in memory.
    pub devices: Vec<String>,
}

impl Default for Disk {
    fn default() -> Disk {
        Disk { factor: Factor::NONE, devices: Vec::new() }
    }
}

/// Use of memory, and the guard against the want of it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct Memory {
    /// How much the share in use counts. A database takes its memory at the start: nothing.
    pub factor: Factor,
    /// With nothing done for want of memory in this share of the last 10 s, health is 1. 0: no guard.
    pub stall_max: Share,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory { factor: Factor::NONE, stall_max: Share::of(0.2) }
    }
}

/// Open files, and the guard against the want of them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct Descriptors {
    /// Up to this share in use, health does not suffer. 1: no guard.
    pub used_max: Share,
}

impl Default for Descriptors {
    fn default() -> Descriptors {
        Descriptors { used_max: Share::of(0.9) }
    }
}

/// How a health comes of a load.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct Health {
    /// The load at which health is 1.
    pub load_max: Positive,
}

impl Default for Health {
    fn default() -> Health {
        Health { load_max: Positive::of(1.0) }
    }
}

#[cfg(test)]
mod tests;
