//! Memory: how much is in use. It is no load: a database takes its memory at the start. What warns is
//! [`pressure`](super::pressure): time in which nothing got done for want of memory.

use super::Malformed;
use super::text::{integer, lines, words};

/// How much of the memory is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Memory {
    /// What there is, in bytes.
    pub total_bytes: u64,
    /// What programs could still take without swapping, in bytes.
    pub available_bytes: u64,
}

impl Memory {
    /// Reads `/proc/meminfo`.
    ///
    /// # Errors
    /// [`Malformed`] without `MemTotal` or `MemAvailable` (Linux 3.14 and later write it).
    pub fn parse(text: &[u8]) -> Result<Memory, Malformed> {
        let (mut total, mut available) = (None, None);
        for line in lines(text) {
            let mut words = words(line);
            let place = match words.next() {
                Some(b"MemTotal:") => &mut total,
                Some(b"MemAvailable:") => &mut available,
                _ => continue,
            };
            *place = words.next().and_then(integer).map(|kib| kib.saturating_mul(1024));
            if let (Some(total_bytes), Some(available_bytes)) = (total, available) {
                return Ok(Memory { total_bytes, available_bytes });
            }
        }
        Err(Malformed("/proc/meminfo"))
    }

    /// What a control group may use: `limit_bytes` in all, of which it uses `used_bytes`, of which the kernel can take
    /// back `cache_bytes` at once.
    pub fn of_group(limit_bytes: u64, used_bytes: u64, cache_bytes: u64) -> Memory {
        let used = used_bytes.saturating_sub(cache_bytes);
        Memory { total_bytes: limit_bytes, available_bytes: limit_bytes.saturating_sub(used) }
    }

    /// The share in use, 0–1.
    pub fn used(&self) -> f64 {
        if self.total_bytes == 0 {
            return 0.0;
        }
        (1.0 - self.available_bytes as f64 / self.total_bytes as f64).clamp(0.0, 1.0)
    }
}

/// The files that all processes have open, and may have, from `/proc/sys/fs/file-nr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Descriptors {
    /// Open files.
    pub open: u64,
    /// Open files at the most. Kernels of today set none that could be reached.
    pub max: u64,
}

impl Descriptors {
    /// Reads `/proc/sys/fs/file-nr`: allocated, of these free, and the most.
    ///
    /// # Errors
    /// [`Malformed`] if it is not three numbers.
    pub fn parse(text: &[u8]) -> Result<Descriptors, Malformed> {
        const WRONG: Malformed = Malformed("/proc/sys/fs/file-nr");
        let mut words = words(text).map(integer);
        match (words.next().flatten(), words.next().flatten(), words.next().flatten()) {
            (Some(allocated), Some(free), Some(max)) => {
                Ok(Descriptors { open: allocated.saturating_sub(free), max })
            }
            _ => Err(WRONG),
        }
    }

    /// The share in use, 0–1.
    pub fn used(&self) -> f64 {
        if self.max == 0 { 0.0 } else { (self.open as f64 / self.max as f64).min(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_as_the_kernel_writes_it() {
        let text = include_bytes!("../../tests/fixtures/host/proc/meminfo");
        let memory = Memory::parse(text).expect("it comes from a kernel");
        assert_eq!(memory.total_bytes, 24_684_084 * 1024);
        assert!(memory.used() > 0.0 && memory.used() < 0.2, "{memory:?}");
        for wrong in ["", "MemTotal: 1 kB\n", "MemTotal: x kB\nMemAvailable: 1 kB\n"] {
            assert!(Memory::parse(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn cache_that_can_be_taken_back_is_not_in_use() {
        assert_eq!(Memory::of_group(1000, 900, 650).used(), 0.25);
        assert_eq!(Memory::of_group(1000, 1200, 0).used(), 1.0);
        assert_eq!(Memory::default().used(), 0.0);
    }

    #[test]
    fn descriptors_are_read_as_the_kernel_writes_them() {
        let few = Descriptors::parse(b"768\t256\t1024\n").expect("valid");
        assert_eq!((few.open, few.used()), (512, 0.5));
        assert_eq!(Descriptors::parse(b"1 0 0").map(|none| none.used()), Ok(0.0));
        assert!(Descriptors::parse(b"1 0\n").is_err());
    }
}
