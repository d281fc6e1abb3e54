/// A stream of random numbers from a seed: SplitMix64. For jitter, not for secrets.
///
/// Source: Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number of nanoseconds from 0 to `most`, both included.
    pub(crate) fn up_to(&mut self, most: std::time::Duration) -> std::time::Duration {
        let end = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX).saturating_add(1);
        std::time::Duration::from_nanos(((u128::from(self.next()) * u128::from(end)) >> 64) as u64)
    }
}
