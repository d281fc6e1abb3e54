//! What the kernel does for a job: system calls, and changing from one thread to another.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};

use super::repeat;

const BATCH: u64 = 64;

/// System calls in a second: one that does nothing, one that reads 512 bytes and one that writes them, by turns.
pub(super) fn calls(slot: Duration) -> io::Result<f64> {
    let zero = File::open("/dev/zero")?;
    let null = File::options().write(true).open("/dev/null")?;
    let mut bytes = [0; 512];
    repeat(slot, || {
        for _ in 0..BATCH {
            black_box(rustix::process::getppid());
            zero.read_exact_at(&mut bytes, 0)?;
            (&null).write_all(&bytes)?;
        }
        Ok(3 * BATCH)
    })
}

/// Changes from one thread to another in a second, by a byte that two threads on `cpu` send each other.
///
/// On one CPU, since it would be chance otherwise whether the two are on one or on two.
pub(super) fn switches(slot: Duration, cpu: usize) -> io::Result<f64> {
    let (there_reader, mut there) = io::pipe()?;
    let (mut back_reader, back) = io::pipe()?;
    thread::scope(|scope| {
        let echo = scope.spawn(move || {
            let (mut reader, mut writer) = (there_reader, back);
            pin(cpu)?;
            let mut byte = [0];
            // It ends when the other side has closed its pipe.
            while reader.read(&mut byte)? == 1 {
                writer.write_all(&byte)?;
            }
            io::Result::Ok(())
        });
        pin(cpu)?;
        let mut byte = [0];
        let rate = repeat(slot, || {
            for _ in 0..BATCH {
                there.write_all(&byte)?;
                back_reader.read_exact(&mut byte)?;
            }
            Ok(2 * BATCH)
        });
        drop(there);
        let ended = echo.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the probe has ended")));
        rate.and_then(|rate| ended.map(|()| rate))
    })
}

/// Keeps this thread on a CPU.
fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}
