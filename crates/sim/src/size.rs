//! Draws the work of jobs.

use crate::random::Random;
use crate::scenario::Size;

impl Size {
    /// The mean, in nanoseconds.
    pub fn mean_nanos(&self) -> f64 {
        match self {
            Size::Fixed { mean } | Size::Exponential { mean } | Size::Lognormal { mean, .. } => nanos(*mean),
            Size::Pareto { min, max, shape } => {
                let (low, high, a) = (nanos(*min), nanos(*max), *shape);
                if low == high {
                    return low;
                }
                let mass = 1.0 - libm::pow(low / high, a);
                if (a - 1.0).abs() < 1e-9 {
                    low / mass * libm::log(high / low)
                } else {
                    low / mass * a / (a - 1.0) * (1.0 - libm::pow(low / high, a - 1.0))
                }
            }
            Size::Mix { of } => {
                let total: f64 = of.iter().map(|part| part.share).sum();
                of.iter().map(|part| part.share * part.size.mean_nanos()).sum::<f64>() / total
            }
            Size::Empirical { ms } => ms.iter().sum::<f64>() / ms.len() as f64 * 1e6,
        }
    }
}

fn nanos(duration: std::time::Duration) -> f64 {
    duration.as_nanos() as f64
}

/// A [`Size`] with what does not change worked out.
#[derive(Clone, Debug)]
pub(crate) enum Sizes {
    Fixed(f64),
    Exponential(f64),
    Lognormal {
        location: f64,
        sigma: f64,
    },
    Pareto {
        low: f64,
        mass: f64,
        exponent: f64,
    },
    /// Each with the share of it and those before it.
    Mix(Vec<(f64, Sizes)>),
    Empirical(Vec<f64>),
}

impl Sizes {
    pub(crate) fn new(size: &Size) -> Sizes {
        match size {
            Size::Fixed { mean } => Sizes::Fixed(nanos(*mean)),
            Size::Exponential { mean } => Sizes::Exponential(nanos(*mean)),
            Size::Lognormal { mean, cv } => {
                let variance = libm::log(1.0 + cv * cv);
                let location = libm::log(nanos(*mean)) - variance / 2.0;
                Sizes::Lognormal { location, sigma: variance.sqrt() }
            }
            Size::Pareto { min, max, shape } => Sizes::Pareto {
                low: nanos(*min),
                mass: 1.0 - libm::pow(nanos(*min) / nanos(*max), *shape),
                exponent: -1.0 / shape,
            },
            Size::Mix { of } => {
                let total: f64 = of.iter().map(|part| part.share).sum();
                let mut before = 0.0;
                let part = |part: &crate::Share| {
                    before += part.share / total;
                    (before, Sizes::new(&part.size))
                };
                Sizes::Mix(of.iter().map(part).collect())
            }
            Size::Empirical { ms } => Sizes::Empirical(ms.iter().map(|ms| ms * 1e6).collect()),
        }
    }

    /// The work of a job, in nanoseconds, at least 1.
    pub(crate) fn draw(&self, random: &mut Random) -> f64 {
        let nanos = match self {
            Sizes::Fixed(nanos) => *nanos,
            Sizes::Exponential(mean) => mean * random.exponential(),
            Sizes::Lognormal { location, sigma } => libm::exp(location + sigma * random.normal()),
            Sizes::Pareto { low, mass, exponent } => {
                low * libm::pow(1.0 - (1.0 - random.unit()) * mass, *exponent)
            }
            Sizes::Mix(parts) => {
                let at = random.unit();
                let part = parts.iter().find(|(end, _)| at <= *end).or(parts.last());
                part.map_or(1.0, |(_, sizes)| sizes.draw(random))
            }
            Sizes::Empirical(nanos) => nanos[random.below(nanos.len() as u32) as usize],
        };
        nanos.max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Share;

    #[test]
    fn draws_have_the_mean_that_is_said() {
        let ms = Duration::from_millis;
        let bimodal = Size::Mix {
            of: vec![
                Share { share: 99.0, size: Size::Fixed { mean: ms(1) } },
                Share { share: 1.0, size: Size::Exponential { mean: ms(100) } },
            ],
        };
        let sizes = [
            Size::Fixed { mean: ms(3) },
            Size::Exponential { mean: ms(3) },
            Size::Lognormal { mean: ms(40), cv: 1.5 },
            Size::Pareto { min: ms(1), max: ms(1000), shape: 1.5 },
            Size::Pareto { min: ms(1), max: ms(1000), shape: 1.0 },
            Size::Empirical { ms: vec![1.0, 2.0, 6.0] },
            bimodal,
        ];
        for size in sizes {
            let sampler = Sizes::new(&size);
            let mut random = Random::new(3, 1);
            let n = 1_000_000;
            let mean = (0..n).map(|_| sampler.draw(&mut random)).sum::<f64>() / f64::from(n);
            assert!((mean / size.mean_nanos() - 1.0).abs() < 0.02, "{size:?}: {mean}");
        }
    }

    #[test]
    fn a_lognormal_has_the_spread_that_is_said() {
        let sampler = Sizes::new(&Size::Lognormal { mean: Duration::from_millis(1), cv: 2.16 });
        let mut random = Random::new(3, 1);
        let n = 4_000_000;
        let square = (0..n).map(|_| (sampler.draw(&mut random) / 1e6 - 1.0).powi(2)).sum::<f64>();
        assert!(((square / f64::from(n)).sqrt() / 2.16 - 1.0).abs() < 0.05);
    }
}
