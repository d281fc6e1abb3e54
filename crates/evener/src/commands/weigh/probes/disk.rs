//! The disk under a folder: writes that must be safe, and reads at random places.
//!
//! The file has no name: whatever ends this process, the kernel takes it away.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use evener_replay::Random;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, fstatfs};

use super::repeat;

/// A copy's file.
pub(super) const FILE_BYTES: u64 = 32 << 20;
/// With less, the disk's own cache would hold all of it.
pub(super) const FILE_BYTES_MIN: u64 = 4 << 20;
/// All files together.
pub(super) const ALL_BYTES_MAX: u64 = 1 << 30;
/// What is written at a time, and then made safe.
const WRITE_BYTES: usize = 1 << 20;
/// What is written in a slot at the most: disks wear.
const SLOT_BYTES_MAX: u64 = 256 << 20;
const READ_BYTES: usize = 4096;
/// Where transfers that go around the kernel's cache must begin in memory.
const ALIGNMENT: usize = 4096;
/// What a file system in memory calls itself (`statfs(2)`).
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// A copy's file, written once from its start to its end.
pub(super) struct Disk {
    file: File,
    bytes: u64,
    /// Whether transfers go around the kernel's cache.
    pub(super) direct: bool,
    buffer: Buffer,
    at: u64,
    random: Random,
}

/// Whether a folder can be measured; else why not.
pub(super) fn check(folder: &Path, wanted: u64) -> Result<(), String> {
    let place = folder.display();
    let file = tempfile::tempfile_in(folder).map_err(|error| format!("{place}: {error}"))?;
    let found = fstatfs(&file).map_err(|error| format!("{place}: {error}"))?;
    if IN_MEMORY.contains(&(found.f_type as u64)) {
        return Err(format!("{place} is in memory; name a folder on a disk with --folder"));
    }
    let free = found.f_bavail.saturating_mul(found.f_bsize as u64);
    // Not the last of it: others write too.
    if free / 4 < wanted {
        return Err(format!("{place} has not four times the {} MiB free that it takes", wanted >> 20));
    }
    Ok(())
}

impl Disk {
    pub(super) fn new(folder: &Path, bytes: u64, seed: u64) -> io::Result<Disk> {
        let file = tempfile::tempfile_in(folder)?;
        let flags = fcntl_getfl(&file)?;
        // A file system that cannot do it says so here, or at the first write.
        let direct = fcntl_setfl(&file, flags | OFlags::DIRECT).is_ok();
        let bytes = bytes - bytes % WRITE_BYTES as u64;
        let mut disk =
            Disk { file, bytes, direct, buffer: Buffer::new(WRITE_BYTES), at: 0, random: Random::new(seed) };
        // Zeros would be squeezed by some disks.
        for word in disk.buffer.bytes_mut().as_chunks_mut::<8>().0 {
            *word = disk.random.bits().to_le_bytes();
        }
        if direct && disk.file.write_all_at(disk.buffer.bytes(), 0).is_err() {
            fcntl_setfl(&disk.file, flags)?;
            disk.direct = false;
        }
        while disk.at < bytes {
            disk.file.write_all_at(disk.buffer.bytes(), disk.at)?;
            disk.at += WRITE_BYTES as u64;
        }
        disk.file.sync_all()?;
        Ok(disk)
    }

    /// Bytes in a second that are written in order and known to be safe, 1 MiB at a time.
    pub(super) fn writes(&mut self, slot: Duration) -> io::Result<f64> {
        let begin = Instant::now();
        let mut written = 0;
        loop {
            if self.at >= self.bytes {
                self.at = 0;
            }
            self.file.write_all_at(self.buffer.bytes(), self.at)?;
            self.file.sync_data()?;
            self.at += WRITE_BYTES as u64;
            written += WRITE_BYTES as u64;
            let elapsed = begin.elapsed();
            if elapsed >= slot || written >= SLOT_BYTES_MAX {
                return Ok(written as f64 / elapsed.as_secs_f64());
            }
        }
    }

    /// Reads of 4 KiB in a second, at random places, one after the other.
    pub(super) fn reads(&mut self, slot: Duration) -> io::Result<f64> {
        let places = self.bytes / READ_BYTES as u64;
        repeat(slot, || {
            let place = (self.random.uniform() * places as f64) as u64;
            self.file.read_exact_at(&mut self.buffer.bytes_mut()[..READ_BYTES], place * READ_BYTES as u64)?;
            Ok(1)
        })
    }
}

/// Bytes that begin where the kernel wants them.
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    fn new(length: usize) -> Buffer {
        let bytes = vec![0; length + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        Buffer { bytes, start, length }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}
