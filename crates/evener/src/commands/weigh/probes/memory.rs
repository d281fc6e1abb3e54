//! Memory: read from one end to the other, and at random places one after the other.

use std::hint::black_box;
use std::io;
use std::time::Duration;

use evener_replay::Random;

use super::repeat;

/// A line of the caches: one place to go to.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line([u32; 16]);

/// Bytes of a copy's memory: more than the share of a CPU in its caches.
pub(super) const BYTES: u64 = 64 << 20;
/// With less, caches would be measured.
pub(super) const BYTES_MIN: u64 = 16 << 20;
/// Lines that are read between two looks at the clock.
const BATCH: usize = 8 * 1024;

/// A copy's memory. Each line names the next, in one ring over all of them.
pub(super) struct Memory {
    lines: Vec<Line>,
    /// Where to go on.
    at: u32,
    scan: usize,
}

impl Memory {
    pub(super) fn new(bytes: u64, seed: u64) -> Memory {
        let count = (bytes / size_of::<Line>() as u64) as usize;
        let mut lines = vec![Line([0; 16]); count];
        for (index, line) in lines.iter_mut().enumerate() {
            line.0 = [index as u32; 16];
        }
        // Sattolo's shuffle: what comes of it is one ring, not several small ones that would fit a cache.
        let mut random = Random::new(seed);
        for index in (1..count).rev() {
            let other = (random.uniform() * index as f64) as usize;
            let next = lines[index].0[0];
            lines[index].0[0] = lines[other].0[0];
            lines[other].0[0] = next;
        }
        Memory { lines, at: 0, scan: 0 }
    }

    /// Bytes read in a second, in order.
    pub(super) fn stream(&mut self, slot: Duration) -> io::Result<f64> {
        repeat(slot, || {
            if self.scan + BATCH > self.lines.len() {
                self.scan = 0;
            }
            let part = &self.lines[self.scan..self.scan + BATCH];
            self.scan += BATCH;
            black_box(sums(black_box(part)));
            Ok(size_of_val(part) as u64)
        })
    }

    /// Reads in a second of which each must wait for the one before.
    pub(super) fn random(&mut self, slot: Duration) -> io::Result<f64> {
        repeat(slot, || {
            let mut at = self.at;
            for _ in 0..BATCH {
                at = self.lines[at as usize].0[0];
            }
            self.at = black_box(at);
            Ok(BATCH as u64)
        })
    }
}

/// In a function of its own, the sums stay in registers: it is memory that is waited for, not additions.
#[inline(never)]
#[expect(clippy::needless_range_loop, reason = "iterators over two arrays are not inlined in all builds")]
fn sums(part: &[Line]) -> [u32; 16] {
    let mut sums = [0u32; 16];
    for line in part {
        for at in 0..16 {
            sums[at] = sums[at].wrapping_add(line.0[at]);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_goes_through_all_lines() {
        let memory = Memory::new(64 * 1000, 7);
        let mut at = 0;
        for step in 1..=1000 {
            at = memory.lines[at as usize].0[0];
            assert_eq!(at == 0, step == 1000, "after {step} steps");
        }
    }
}
