use serde::Serialize;

use super::Paper;
use super::sample::Sample;

/// A figure of a paper beside the one that was simulated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The paper, by its number.
    pub paper: &'static str,
    /// Where the figure stands in it, such as `table2/N/280`.
    pub row: String,
    /// What it is.
    pub quantity: &'static str,
    /// What it is counted in.
    pub unit: &'static str,
    /// What the paper says; `None` if it gives no number that can be read.
    pub paper_value: Option<f64>,
    /// What was simulated: a mean over replications.
    pub ours: Option<f64>,
    /// The lower end of its 95 % interval.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// How far `ours` may be from `paper_value`, in `unit`.
    pub tolerance: Option<f64>,
    /// What follows.
    pub verdict: Verdict,
    /// Why the tolerance is what it is, or why the figure is not reproduced.
    pub note: String,
}

/// Whether a figure of a paper is reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is, within the tolerance.
    Within,
    /// It is not.
    Outside,
    /// There is nothing to compare, or no reason why it should be the same; the note says why.
    NotReproduced,
}

impl Verdict {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Within => "within",
            Verdict::Outside => "outside",
            Verdict::NotReproduced => "not-reproduced",
        }
    }
}

/// What a row is about.
pub(super) struct Subject {
    pub(super) paper: Paper,
    pub(super) row: String,
    pub(super) quantity: &'static str,
    pub(super) unit: &'static str,
}

impl Subject {
    /// Compares: `within` as far as the tolerance, which the note explains.
    pub(super) fn compare(self, paper_value: f64, ours: &Sample, tolerance: f64, note: &str) -> Row {
        let near = (ours.mean() - paper_value).abs() <= tolerance;
        Row {
            paper_value: six_digits(paper_value),
            tolerance: six_digits(tolerance),
            verdict: if near { Verdict::Within } else { Verdict::Outside },
            ..self.not_reproduced(None, Some(ours), note)
        }
    }

    /// Shows what there is, without a comparison.
    pub(super) fn not_reproduced(self, paper_value: Option<f64>, ours: Option<&Sample>, note: &str) -> Row {
        let interval = ours.map(Sample::interval);
        Row {
            paper: self.paper.number(),
            row: self.row,
            quantity: self.quantity,
            unit: self.unit,
            paper_value,
            ours: ours.and_then(|sample| six_digits(sample.mean())),
            low: interval.and_then(|(low, _)| six_digits(low)),
            high: interval.and_then(|(_, high)| six_digits(high)),
            tolerance: None,
            verdict: Verdict::NotReproduced,
            note: note.into(),
        }
    }
}

impl Row {
    /// Takes a row that is outside as one that is not reproduced, if it is `known` that it is not, and why.
    pub(super) fn unless_known(mut self, known: bool, why: &str) -> Row {
        if known && self.verdict == Verdict::Outside {
            self.verdict = Verdict::NotReproduced;
            self.tolerance = None;
            self.note = why.into();
        }
        self
    }
}

/// What comes after six digits is noise. `None` for what is no number: nothing was there to be measured.
fn six_digits(figure: f64) -> Option<f64> {
    // Zero has no sign that matters.
    let short = format!("{figure:.5e}").parse::<f64>().unwrap_or(figure) + 0.0;
    Some(short).filter(|short| short.is_finite())
}
