/// Random numbers that a seed determines (SplitMix64): a run can be repeated.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The sequence of the `number`th thing of a run with `seed`: what happens to one request does not
    /// depend on when, or whether, others happen.
    pub fn of(seed: u64, number: u64) -> Random {
        let mut run = Random(seed ^ number.wrapping_mul(0xd1b5_4a32_d192_ed03));
        Random(run.bits())
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Uniform in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponential with mean 1: the gaps between arrivals that do not know of each other.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.uniform()).ln()
    }

    /// Lognormal with mean 1 and the given `sigma` of the logarithm: most jobs are small, few are very
    /// large. At `sigma` 1 the largest of a hundred is about six times the mean.
    pub fn lognormal(&mut self, sigma: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * self.uniform()).cos();
        (sigma * normal - sigma * sigma / 2.0).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(draw: impl FnMut(u64) -> f64) -> f64 {
        (0..200_000).map(draw).sum::<f64>() / 200_000.0
    }

    #[test]
    fn means_are_one() {
        let mut random = Random::new(7);
        assert!((mean(|_| random.exponential()) - 1.0).abs() < 0.02);
        assert!((mean(|_| random.lognormal(1.0)) - 1.0).abs() < 0.02);
        assert!((mean(|n| Random::of(7, n).lognormal(1.0)) - 1.0).abs() < 0.02);
    }

    #[test]
    fn a_seed_repeats() {
        let draw = |seed| Random::of(seed, 3).uniform().to_bits();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
