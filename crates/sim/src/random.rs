/// Random numbers that a seed determines (SplitMix64), and the distributions that simulations need of them.
///
/// Logarithms and the like come from `libm`, not from the system: the same bits on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
    /// Normal numbers come in pairs: the second of them.
    spare: Option<f64>,
}

impl Random {
    /// The `stream`th independent sequence of `seed`.
    pub(crate) fn new(seed: u64, stream: u64) -> Random {
        let mut random = Random { state: seed ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03), spare: None };
        random.state = random.bits();
        random
    }

    #[inline]
    pub(crate) fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Evenly from `0..end`, which must not be empty.
    #[inline]
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        (((self.bits() >> 32) * u64::from(end)) >> 32) as u32
    }

    /// Evenly from (0, 1].
    #[inline]
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// True with this probability.
    #[inline]
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() <= probability
    }

    /// Exponential with mean 1.
    #[inline]
    pub(crate) fn exponential(&mut self) -> f64 {
        -libm::log(self.unit())
    }

    /// Normal with mean 0 and standard deviation 1, by the polar method.
    #[inline]
    pub(crate) fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let (x, y) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let square = x * x + y * y;
            if square < 1.0 && square > 0.0 {
                let factor = (-2.0 * libm::log(square) / square).sqrt();
                self.spare = Some(y * factor);
                return x * factor;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_what_they_must_be() {
        let mut random = Random::new(1, 2);
        let n = 1_000_000;
        let (mut exponential, mut normal, mut square) = (0.0, 0.0, 0.0);
        for _ in 0..n {
            exponential += random.exponential();
            let x = random.normal();
            normal += x;
            square += x * x;
        }
        let n = f64::from(n);
        assert!((exponential / n - 1.0).abs() < 0.005);
        assert!((normal / n).abs() < 0.005);
        assert!((square / n - 1.0).abs() < 0.005);
    }

    #[test]
    fn the_same_bits_on_every_machine() {
        let mut random = Random::new(42, 7);
        let drawn = [random.exponential().to_bits(), random.normal().to_bits(), random.bits()];
        assert_eq!(drawn, [0x3fca_afc2_b431_ab7d, 0xbfc1_de68_4aa3_099e, 0x8a13_45e1_9987_5ae6]);
    }
}
