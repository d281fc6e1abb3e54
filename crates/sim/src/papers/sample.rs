/// Of Student's t, the quantile 0.975 for 1 to 30 degrees of freedom.
const T_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// A figure in each of several independent replications.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample(Vec<f64>);

impl Sample {
    pub(super) fn push(&mut self, figure: f64) {
        self.0.push(figure);
    }

    pub(super) fn figures(&self) -> &[f64] {
        &self.0
    }

    pub(super) fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    /// Standard deviation of the replications; 0 of a single one.
    fn deviation(&self) -> f64 {
        let mean = self.mean();
        let squares: f64 = self.0.iter().map(|figure| (figure - mean) * (figure - mean)).sum();
        (squares / (self.0.len() as f64 - 1.0).max(1.0)).sqrt()
    }

    fn t(&self) -> f64 {
        // Beyond the table t has almost its limit, 1.96.
        *T_975.get(self.0.len().saturating_sub(2)).unwrap_or(&2.0)
    }

    /// The 95 % interval of the mean.
    pub(super) fn interval(&self) -> (f64, f64) {
        let half = self.t() * self.deviation() / (self.0.len() as f64).sqrt();
        (self.mean() - half, self.mean() + half)
    }

    /// How far from the mean one more run would be, in 95 of 100 cases.
    pub(super) fn reach_of_one(&self) -> f64 {
        self.t() * self.deviation() * (1.0 + 1.0 / self.0.len() as f64).sqrt()
    }

    /// The same replications through a function of this figure and another.
    pub(super) fn with(&self, other: &Sample, both: impl Fn(f64, f64) -> f64) -> Sample {
        Sample(self.0.iter().zip(&other.0).map(|(one, two)| both(*one, *two)).collect())
    }
}

impl FromIterator<f64> for Sample {
    fn from_iter<I: IntoIterator<Item = f64>>(figures: I) -> Sample {
        Sample(figures.into_iter().collect())
    }
}
