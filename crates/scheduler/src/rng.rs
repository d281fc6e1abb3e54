/// A stream of random numbers from a seed: SplitMix64.
///
/// Eight bytes of state, a few cycles a number, and every driver that knows the seed
/// gets the same picks. Not for secrets.
///
/// Source: Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        crate::hash::mix(self.0)
    }

    /// A number below `end`, which must not be 0. The bias is below `end / 2^64`.
    #[inline]
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        debug_assert!(end > 0);
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_below_an_end_are_even() {
        let mut rng = Rng::new(1);
        let mut seen = [0_u32; 10];
        for _ in 0..100_000 {
            seen[rng.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|n| (9_500..10_500).contains(n)), "{seen:?}");
    }
}
