//! Plots as SVG, drawn to stand in a page that says which colours they have.
//!
//! Every series has a class `s0`, `s1`, …: the page gives each a colour for light and for dark, and what is too many
//! for colours is told apart by dashes.

use std::fmt::Write;

use evener_sim::Estimate;
// The same on every machine, unlike those of the system.
use libm::{log, log10, pow};

use super::table::significant;

/// Colours that the page knows; further series begin again, dashed.
const COLOURS: usize = 8;
const WIDTH: f64 = 520.0;

/// Values along an axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    log: bool,
}

impl Axis {
    /// From 0 to a little above all values.
    pub(super) fn from_zero(values: impl Iterator<Item = f64>) -> Axis {
        let high = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        Axis { low: 0.0, high: if high > 0.0 { high * 1.05 } else { 1.0 }, log: false }
    }

    /// Around all values.
    pub(super) fn around(values: impl Iterator<Item = f64> + Clone) -> Axis {
        let finite = values.filter(|value| value.is_finite());
        let (low, high) = (finite.clone().fold(f64::MAX, f64::min), finite.fold(f64::MIN, f64::max));
        if low > high {
            return Axis { low: 0.0, high: 1.0, log: false };
        }
        let margin = if low < high { 0.03 * (high - low) } else { 0.5 * low.abs().max(1.0) };
        Axis { low: low - margin, high: high + margin, log: false }
    }

    /// Around all values that are above 0, each decade as long as the others.
    pub(super) fn log(values: impl Iterator<Item = f64> + Clone) -> Axis {
        let positive = values.filter(|value| value.is_finite() && *value > 0.0);
        let (low, high) = (positive.clone().fold(f64::MAX, f64::min), positive.fold(0.0, f64::max));
        if high == 0.0 {
            return Axis { low: 1.0, high: 10.0, log: true };
        }
        // At least a factor of two, so that noise does not look like a difference.
        let (low, high) = (low / 1.08, high * 1.08);
        let widen = (2.0 / (high / low)).max(1.0).sqrt();
        Axis { low: low / widen, high: high * widen, log: true }
    }

    /// The same up to `most` times the lowest end of some lines: what is much worse than the best leaves the plot, instead
    /// of pressing all others together.
    pub(super) fn log_up_to(most: f64, values: impl Iterator<Item = f64> + Clone, best: f64) -> Axis {
        Axis::log(values.filter(move |value| *value <= best * most))
    }

    /// Where a value lies, 0–1 between the ends; far beyond them, not much.
    fn share(&self, value: f64) -> f64 {
        let share = if self.log {
            log(value.max(f64::MIN_POSITIVE) / self.low) / log(self.high / self.low)
        } else {
            (value - self.low) / (self.high - self.low)
        };
        share.clamp(-1.0, 2.0)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.log { self.log_ticks() } else { self.even_ticks() }
    }

    fn even_ticks(&self) -> Vec<f64> {
        let rough = (self.high - self.low) / 5.0;
        let power = pow(10.0, log10(rough).floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power);
        let step = step.into_iter().find(|step| *step >= rough * 0.999).unwrap_or(rough);
        let first = (self.low / step).ceil() as i64;
        (first..).map(|index| index as f64 * step).take_while(|tick| *tick <= self.high).take(12).collect()
    }

    fn log_ticks(&self) -> Vec<f64> {
        let decades = log10(self.high / self.low);
        let steps: &[f64] = match decades {
            ..1.0 => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
            1.0..2.5 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let powers = log10(self.low).floor() as i32..=log10(self.high).ceil() as i32;
        let every = (decades / 7.0).ceil().max(1.0) as i32;
        let powers =
            powers.filter(|power| power.rem_euclid(every) == 0).map(|power| pow(10.0, f64::from(power)));
        let ticks = powers.flat_map(|power| steps.iter().map(move |step| step * power));
        ticks.filter(|tick| *tick >= self.low && *tick <= self.high).collect()
    }
}

/// A line, and perhaps how sure each of its points is.
pub(super) struct Series<'a> {
    pub(super) name: &'a str,
    /// Which colour.
    pub(super) class: usize,
    pub(super) points: Vec<(f64, Estimate)>,
}

/// A line over time.
pub(super) struct TimeLine<'a> {
    pub(super) name: &'a str,
    pub(super) points: Vec<(f64, f64)>,
}

/// What a plot is called, and what its axes are.
pub(super) struct Frame<'a> {
    pub(super) title: &'a str,
    pub(super) x_label: &'a str,
    pub(super) y_label: &'a str,
    pub(super) x: Axis,
    pub(super) y: Axis,
}

/// Lines over numbers, with bands for their intervals and a mark at each point, which says its figures when pointed at.
pub(super) fn lines(frame: &Frame<'_>, series: &[Series<'_>]) -> String {
    let plane = Plane::new(frame, 300.0);
    let mut out = plane.begin(frame) + &plane.window();
    for line in series {
        let band = band(&plane, &line.points);
        if !band.is_empty() {
            let _ = write!(out, r#"<polygon class="band {}" points="{band}"/>"#, class(line.class));
        }
    }
    for line in series {
        let class = class(line.class);
        let _ = write!(out, r#"<polyline class="line {class}" points="{}"/>"#, path(&plane, &line.points));
        for (x, estimate) in &line.points {
            let _ = write!(
                out,
                r#"<circle class="dot {class}" cx="{:.1}" cy="{:.1}" r="3"><title>{}: {}</title></circle>"#,
                plane.x(*x),
                plane.y(estimate.mean),
                escape(line.name),
                figure(estimate),
            );
        }
    }
    out + "</svg></svg>"
}

/// Lines over time, without marks; what comes before `since` is told apart.
pub(super) fn times(frame: &Frame<'_>, since: f64, lines: &[TimeLine<'_>]) -> String {
    let plane = Plane::new(frame, 220.0);
    let mut out = plane.begin(frame);
    if since > frame.x.low {
        let _ = write!(
            out,
            r#"<rect class="before" x="{:.1}" y="{:.1}" width="{:.1}" height="{:.1}"/>"#,
            plane.left,
            plane.top,
            plane.x(since) - plane.left,
            plane.bottom - plane.top
        );
    }
    for (index, line) in lines.iter().enumerate() {
        let mut path = String::new();
        for (x, y) in &line.points {
            let _ = write!(path, "{:.1},{:.1} ", plane.x(*x), plane.y(*y));
        }
        let _ = write!(
            out,
            r#"<polyline class="thin {}" points="{}"><title>{}</title></polyline>"#,
            class(index),
            path.trim_end(),
            escape(line.name)
        );
    }
    out + "</svg>"
}

/// A row for each name, with its figure and interval along one axis; a rule at `rule`, if there is one.
pub(super) fn rows(title: &str, x_label: &str, x: Axis, rule: Option<f64>, rows: &[Series<'_>]) -> String {
    const ROW: f64 = 22.0;
    let y = Axis { low: 0.0, high: 1.0, log: false };
    let frame = Frame { title, x_label, y_label: "", x, y };
    let mut plane = Plane::new(&frame, 74.0 + ROW * rows.len() as f64);
    plane.left = 170.0;
    plane.right = WIDTH - 112.0;
    plane.title = 14.0;
    let mut out = plane.begin_without_y(&frame);
    if let Some(rule) = rule {
        let at = plane.x(rule);
        let _ = write!(
            out,
            r#"<line class="rule" x1="{at:.1}" x2="{at:.1}" y1="{:.1}" y2="{:.1}"/>"#,
            plane.top, plane.bottom
        );
    }
    for (index, row) in rows.iter().enumerate() {
        let at = plane.top + ROW * (index as f64 + 0.5);
        let _ = write!(
            out,
            r#"<text class="name" x="{:.1}" y="{:.1}">{}</text>"#,
            plane.left - 8.0,
            at + 4.0,
            escape(&short(row.name))
        );
        let Some((_, estimate)) = row.points.first() else { continue };
        let class = class(row.class);
        if let (Some(low), Some(high)) = (estimate.low, estimate.high) {
            let _ = write!(
                out,
                r#"<line class="span {class}" x1="{:.1}" x2="{:.1}" y1="{at:.1}" y2="{at:.1}"/>"#,
                plane.x(low).max(plane.left),
                plane.x(high).min(plane.right)
            );
        }
        let _ = write!(
            out,
            r#"<circle class="dot {class}" cx="{:.1}" cy="{at:.1}" r="4"><title>{}: {}</title></circle>"#,
            plane.x(estimate.mean),
            escape(row.name),
            figure(estimate),
        );
        let _ = write!(
            out,
            r#"<text class="value" x="{:.1}" y="{:.1}">{}</text>"#,
            plane.right + 8.0,
            at + 4.0,
            short_figure(estimate)
        );
    }
    out + "</svg>"
}

/// The classes of a series.
pub(super) fn class(index: usize) -> String {
    let dash = if (index / COLOURS).is_multiple_of(2) { "" } else { " dashed" };
    format!("s{}{dash}", index % COLOURS)
}

/// Text as it may stand in a page.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

struct Plane {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    height: f64,
    /// Where the title begins.
    title: f64,
    x: Axis,
    y: Axis,
}

impl Plane {
    fn new(frame: &Frame<'_>, height: f64) -> Plane {
        Plane {
            left: 62.0,
            right: WIDTH - 14.0,
            top: 30.0,
            bottom: height - 42.0,
            height,
            title: 62.0,
            x: frame.x,
            y: frame.y,
        }
    }

    fn x(&self, value: f64) -> f64 {
        self.left + self.x.share(value) * (self.right - self.left)
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom - self.y.share(value) * (self.bottom - self.top)
    }

    /// Opens what ends at the ends of the axes: what lies beyond is not seen. A mark on them is.
    fn window(&self) -> String {
        const MARK: f64 = 4.0;
        let (x, y) = (self.left - MARK, self.top - MARK);
        let (width, height) = (self.right - self.left + 2.0 * MARK, self.bottom - self.top + 2.0 * MARK);
        format!(
            r#"<svg x="{x}" y="{y}" width="{width}" height="{height}" viewBox="{x} {y} {width} {height}">"#
        )
    }

    fn begin(&self, frame: &Frame<'_>) -> String {
        let mut out = self.begin_without_y(frame);
        for tick in self.y.ticks() {
            let at = self.y(tick);
            let _ = write!(
                out,
                r#"<line class="grid" x1="{:.1}" x2="{:.1}" y1="{at:.1}" y2="{at:.1}"/>"#,
                self.left, self.right
            );
            let _ = write!(
                out,
                r#"<text class="tick-y" x="{:.1}" y="{:.1}">{}</text>"#,
                self.left - 6.0,
                at + 4.0,
                tick_text(tick)
            );
        }
        let middle = (self.top + self.bottom) / 2.0;
        let _ = write!(
            out,
            r#"<text class="label" transform="translate(13 {middle:.1}) rotate(-90)">{}</text>"#,
            escape(frame.y_label)
        );
        out
    }

    fn begin_without_y(&self, frame: &Frame<'_>) -> String {
        let mut out = format!(
            r#"<svg viewBox="0 0 {WIDTH} {:.0}" role="img" aria-label="{}">"#,
            self.height,
            escape(frame.title)
        );
        let _ =
            write!(out, r#"<text class="title" x="{:.1}" y="18">{}</text>"#, self.title, escape(frame.title));
        for tick in self.x.ticks() {
            let at = self.x(tick);
            let _ = write!(
                out,
                r#"<line class="grid" x1="{at:.1}" x2="{at:.1}" y1="{:.1}" y2="{:.1}"/>"#,
                self.top, self.bottom
            );
            let _ = write!(
                out,
                r#"<text class="tick-x" x="{at:.1}" y="{:.1}">{}</text>"#,
                self.bottom + 16.0,
                tick_text(tick)
            );
        }
        let _ = write!(
            out,
            r#"<text class="label" x="{:.1}" y="{:.1}">{}</text>"#,
            (self.left + self.right) / 2.0,
            self.height - 8.0,
            escape(frame.x_label)
        );
        out
    }
}

fn path(plane: &Plane, points: &[(f64, Estimate)]) -> String {
    let mut path = String::new();
    for (x, estimate) in points {
        let _ = write!(path, "{:.1},{:.1} ", plane.x(*x), plane.y(estimate.mean));
    }
    path.trim_end().to_owned()
}

/// Along the upper ends of the intervals, and back along the lower.
fn band(plane: &Plane, points: &[(f64, Estimate)]) -> String {
    let mut band = String::new();
    for (x, estimate) in points {
        if let Some(high) = estimate.high {
            let _ = write!(band, "{:.1},{:.1} ", plane.x(*x), plane.y(high));
        }
    }
    for (x, estimate) in points.iter().rev() {
        if let Some(low) = estimate.low {
            let _ = write!(band, "{:.1},{:.1} ", plane.x(*x), plane.y(low));
        }
    }
    band.trim_end().to_owned()
}

fn short_figure(estimate: &Estimate) -> String {
    match estimate.half_width() {
        Some(half) if half > 0.0 => format!("{} ±{}", significant(estimate.mean, 3), significant(half, 2)),
        _ => significant(estimate.mean, 3),
    }
}

fn figure(estimate: &Estimate) -> String {
    match estimate.half_width() {
        Some(half) if half > 0.0 => format!("{} ±{}", significant(estimate.mean, 4), significant(half, 2)),
        _ => significant(estimate.mean, 4),
    }
}

fn tick_text(tick: f64) -> String {
    match tick.abs() {
        1e9.. => format!("{}G", significant(tick / 1e9, 3)),
        1e6.. => format!("{}M", significant(tick / 1e6, 3)),
        1e4.. => format!("{}k", significant(tick / 1e3, 3)),
        _ => significant(tick, 3),
    }
}

/// A name as far as there is room for it.
fn short(name: &str) -> String {
    const CHARS: usize = 25;
    if name.chars().count() <= CHARS {
        return name.to_owned();
    }
    name.chars().take(CHARS - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        let axis = |low, high, log| Axis { low, high, log };
        assert_eq!(axis(0.0, 1.05, false).ticks(), [0.0, 0.25, 0.5, 0.75, 1.0]);
        assert_eq!(axis(3.0, 40.0, true).ticks(), [5.0, 10.0, 20.0]);
        assert_eq!(axis(0.5, 5_000.0, true).ticks(), [1.0, 10.0, 100.0, 1000.0]);
        for (low, high) in [(1e-9, 1e12), (1.0, 2.0), (0.001, 0.0011)] {
            for log in [false, true] {
                assert!(axis(low, high, log).ticks().len() <= 12, "{low} {high} {log}");
            }
        }
    }

    #[test]
    fn an_axis_without_values_has_ticks_all_the_same() {
        assert!(Axis::log(std::iter::empty()).ticks().len() > 1);
        assert!(Axis::around(std::iter::empty()).ticks().len() > 1);
        assert!(Axis::around([3.0].into_iter()).ticks().len() > 1);
    }

    #[test]
    fn an_interval_reaches_no_further_than_its_plot() {
        let estimate = Estimate { mean: 5.0, low: Some(-3.0), high: Some(1e9) };
        let row = Series { name: "<least>", class: 9, points: vec![(0.0, estimate)] };
        let plot = rows("title", "ms", Axis::log([1.0, 10.0].into_iter()), None, &[row]);
        assert!(plot.contains(r#"<line class="span s1 dashed" x1="170.0" x2="408.0""#), "{plot}");
        assert!(plot.contains("&lt;least&gt;"), "{plot}");
    }
}
