//! Means of a few independent figures, and how sure they are.

use serde::{Serialize, Serializer};

/// Of Student's t, the quantile 0.975 for 1 to 30 degrees of freedom.
const T_975: [f64; 30] = [
    12.706_205, 4.302_653, 3.182_446, 2.776_445, 2.570_582, 2.446_912, 2.364_624, 2.306_004, 2.262_157,
    2.228_139, 2.200_985, 2.178_813, 2.160_369, 2.144_787, 2.131_450, 2.119_905, 2.109_816, 2.100_922,
    2.093_024, 2.085_963, 2.079_614, 2.073_873, 2.068_658, 2.063_899, 2.059_539, 2.055_529, 2.051_831,
    2.048_407, 2.045_230, 2.042_272,
];

/// The quantile 0.975 of the normal distribution.
const Z_975: f64 = 1.959_963_984_540_054;

/// A mean over replications, with its 95 % interval (Student's t).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean.
    #[serde(serialize_with = "rounded")]
    pub mean: f64,
    /// The lower end of the interval; `None` with a single replication.
    #[serde(serialize_with = "rounded_if_any")]
    pub low: Option<f64>,
    /// The upper end.
    #[serde(serialize_with = "rounded_if_any")]
    pub high: Option<f64>,
}

impl Estimate {
    /// Of figures of independent replications; `None` if there are none.
    pub fn of(figures: &[f64]) -> Option<Estimate> {
        let n = figures.len() as f64;
        let mean = figures.iter().sum::<f64>() / n;
        match figures.len() {
            0 => None,
            1 => Some(Estimate { mean, low: None, high: None }),
            count => {
                let squares: f64 = figures.iter().map(|figure| (figure - mean) * (figure - mean)).sum();
                let half = t_975(count - 1) * (squares / (n - 1.0) / n).sqrt();
                Some(Estimate { mean, low: Some(mean - half), high: Some(mean + half) })
            }
        }
    }

    /// Half the width of the interval.
    pub fn half_width(&self) -> Option<f64> {
        self.high.map(|high| high - self.mean)
    }
}

/// Of Student's t with so many degrees of freedom, the quantile 0.975.
fn t_975(freedom: usize) -> f64 {
    if let Some(t) = T_975.get(freedom - 1) {
        return *t;
    }
    // Fisher's expansion around the normal quantile: above 30 degrees, good to six digits.
    let (z, v) = (Z_975, freedom as f64);
    let (z3, z5, z7) = (z * z * z, z * z * z * z * z, z * z * z * z * z * z * z);
    let first = (z3 + z) / 4.0;
    let second = (5.0 * z5 + 16.0 * z3 + 3.0 * z) / 96.0;
    let third = (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / 384.0;
    z + first / v + second / (v * v) + third / (v * v * v)
}

/// A figure with six digits: what comes after them is noise.
pub(super) fn six_digits(figure: f64) -> f64 {
    // Zero has no sign that matters.
    format!("{figure:.5e}").parse::<f64>().unwrap_or(figure) + 0.0
}

pub(super) fn rounded<S: Serializer>(figure: &f64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(six_digits(*figure))
}

pub(super) fn rounded_if_any<S: Serializer>(figure: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
    figure.map(six_digits).serialize(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_that_of_the_textbook() {
        let estimate = Estimate::of(&[9.0, 10.0, 11.0, 12.0, 13.0]).unwrap();
        assert_eq!(estimate.mean, 11.0);
        // 2.776 · 1.5811 / √5
        assert!((estimate.half_width().unwrap() - 1.9632).abs() < 1e-4, "{estimate:?}");
    }

    #[test]
    fn one_figure_has_no_interval_and_none_no_mean() {
        assert_eq!(Estimate::of(&[3.0]), Some(Estimate { mean: 3.0, low: None, high: None }));
        assert_eq!(Estimate::of(&[]), None);
    }

    #[test]
    fn quantiles_go_on_smoothly_where_the_table_ends() {
        for (freedom, expected) in
            [(1, 12.706_205), (30, 2.042_272), (31, 2.039_513), (60, 2.000_298), (1000, 1.962_339)]
        {
            assert!((t_975(freedom) - expected).abs() < 2e-6, "{freedom}: {}", t_975(freedom));
        }
    }
}
