//! Control groups, version 2: what a container may use.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use super::Malformed;
use super::text::{integer, lines, words};

/// The path of this process's group, from `/proc/self/cgroup`; `None` where version 2 is not in use.
pub fn parse_own(text: &[u8]) -> Option<&Path> {
    let path = lines(text).find_map(|line| line.strip_prefix(b"0::"))?;
    std::str::from_utf8(path).ok().filter(|path| path.starts_with('/')).map(Path::new)
}

/// Where version 2 is mounted, and which of its groups is the root of the mount, from `/proc/self/mountinfo`.
pub fn parse_mount(text: &[u8]) -> Option<(&Path, &Path)> {
    lines(text).find_map(|line| {
        let line = std::str::from_utf8(line).ok()?;
        let (mount, file_system) = line.split_once(" - ")?;
        let mut words = mount.split(' ').skip(3);
        let (root, point) = (words.next()?, words.next()?);
        (file_system.split(' ').next() == Some("cgroup2")).then(|| (Path::new(point), Path::new(root)))
    })
}

/// The folder of the group `own` below a mount, and those of the groups above it, up to the mount; the inmost first.
pub fn folders(point: &Path, root: &Path, own: &Path) -> Vec<PathBuf> {
    let is_plain = |path: &Path| path.components().all(|part| matches!(part, Component::Normal(_)));
    // A group that lies outside what is mounted here is named by `..`; what is seen of it is the mount itself.
    let below = own.strip_prefix(root).ok().filter(|below| is_plain(below)).unwrap_or(Path::new(""));
    point.join(below).ancestors().take_while(|folder| folder.starts_with(point)).map(Path::to_owned).collect()
}

/// Reads `cpu.max`: how many CPUs the group may use, or `None` if as many as there are.
///
/// # Errors
/// [`Malformed`] if it is not a quota and a period.
pub fn parse_cpu_max(text: &[u8]) -> Result<Option<f64>, Malformed> {
    const WRONG: Malformed = Malformed("cpu.max");
    let mut words = words(text);
    let quota = words.next().ok_or(WRONG)?;
    let period = words.next().and_then(integer).filter(|&period| period > 0).ok_or(WRONG)?;
    if quota == b"max" {
        return Ok(None);
    }
    let quota = integer(quota).filter(|&quota| quota > 0).ok_or(WRONG)?;
    Ok(Some(quota as f64 / period as f64))
}

/// What a group did with its quota, from `cpu.stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuUse {
    /// CPU time that all of it used.
    pub used: Duration,
    /// Periods of the quota that there were.
    pub periods: u64,
    /// Of these, those in which the quota was used up and something had to wait for the next.
    pub throttled: u64,
}

/// Reads `cpu.stat`.
///
/// # Errors
/// [`Malformed`] without `usage_usec`. A group that never had a quota has no periods.
pub fn parse_cpu_stat(text: &[u8]) -> Result<CpuUse, Malformed> {
    Ok(CpuUse {
        used: value(text, b"usage_usec").map(Duration::from_micros).ok_or(Malformed("cpu.stat"))?,
        periods: value(text, b"nr_periods").unwrap_or(0),
        throttled: value(text, b"nr_throttled").unwrap_or(0),
    })
}

/// Reads `memory.max`: bytes, or `None` if as many as there are.
///
/// # Errors
/// [`Malformed`] if it is neither a number nor `max`.
pub fn parse_memory_max(text: &[u8]) -> Result<Option<u64>, Malformed> {
    match text.trim_ascii() {
        b"max" => Ok(None),
        number => integer(number).map(Some).ok_or(Malformed("memory.max")),
    }
}

/// Reads `memory.current`, in bytes.
///
/// # Errors
/// [`Malformed`] if it is no number.
pub fn parse_memory_used(text: &[u8]) -> Result<u64, Malformed> {
    integer(text.trim_ascii()).ok_or(Malformed("memory.current"))
}

/// Reads what the kernel can take back at once, in bytes, from `memory.stat`: pages of files that were not used of late.
///
/// # Errors
/// [`Malformed`] without `inactive_file`.
pub fn parse_memory_cache(text: &[u8]) -> Result<u64, Malformed> {
    value(text, b"inactive_file").ok_or(Malformed("memory.stat"))
}

fn value(text: &[u8], key: &[u8]) -> Option<u64> {
    lines(text).find_map(|line| {
        let mut words = words(line);
        (words.next() == Some(key)).then(|| words.next().and_then(integer)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_cpu_max(b"max 100000\n"), Ok(None));
        assert_eq!(parse_cpu_max(b"150000 100000\n"), Ok(Some(1.5)));
        for wrong in ["", "max", "1 0", "0 100000", "x 100000", "-1 100000"] {
            assert!(parse_cpu_max(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
        assert_eq!(parse_memory_max(b"max\n"), Ok(None));
        assert_eq!(parse_memory_max(b"268435456\n"), Ok(Some(268_435_456)));
        assert!(parse_memory_max(b"lots\n").is_err());
    }

    #[test]
    fn usage_is_read_as_the_kernel_writes_it() {
        let stat =
            b"usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\nnr_periods 9\nnr_throttled 4\n";
        let used = Duration::from_millis(1500);
        assert_eq!(parse_cpu_stat(stat), Ok(CpuUse { used, periods: 9, throttled: 4 }));
        assert_eq!(parse_cpu_stat(b"usage_usec 1500000\n").map(|stat| stat.periods), Ok(0));
        assert!(parse_cpu_stat(b"user_usec 1\n").is_err());
        assert_eq!(parse_memory_cache(b"anon 7\ninactive_anon 1\ninactive_file 8192\n"), Ok(8192));
        assert_eq!(parse_memory_used(b"4096\n"), Ok(4096));
    }

    #[test]
    fn the_own_group_and_those_above_are_found() {
        let own = b"9:name=systemd:/\n1:cpu:/\n0::/system.slice/app.service\n";
        assert_eq!(parse_own(own), Some(Path::new("/system.slice/app.service")));
        assert_eq!(parse_own(b"1:cpu:/\n"), None);
        let mounts = b"30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
        assert_eq!(parse_mount(mounts), Some((Path::new("/sys/fs/cgroup"), Path::new("/"))));
        assert_eq!(parse_mount(b"30 23 0:26 / /proc rw - proc proc rw\n30\n"), None);

        let folders = |root: &str, own: &str| folders(Path::new("/mnt"), Path::new(root), Path::new(own));
        assert_eq!(folders("/", "/a/b"), [Path::new("/mnt/a/b"), Path::new("/mnt/a"), Path::new("/mnt")]);
        assert_eq!(folders("/a", "/a/b"), [Path::new("/mnt/b"), Path::new("/mnt")]);
        assert_eq!(folders("/", "/"), [Path::new("/mnt")]);
        for outside in ["/../b", "/a/../../../etc"] {
            assert_eq!(folders("/", outside), [Path::new("/mnt")], "{outside}");
        }
    }
}
