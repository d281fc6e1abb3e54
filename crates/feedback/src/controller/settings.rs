use std::time::Duration;

/// How reports become weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    /// They do not: each node keeps its configured weight, unless it says that it must get nothing.
    Off,
    /// The weight follows the node's health, smoothed: `w = α · max(1, health) + (1 − α) · w`, of
    /// the configured weight in hundredths.
    ///
    /// Simple and steady, but it leaves a gap between the loads of unequal nodes: a weight in proportion
    /// to health needs a difference in health to keep up a difference in weight.
    Smoothing {
        /// α, how much of a new report counts: 0 nothing, 1 all of it.
        alpha: f64,
    },
    /// The weight moves for as long as the node's load differs from its peers', and rests when it
    /// does not: the gap closes.
    Integral {
        /// By what part of itself a weight moves in a second when the load is off by 1, the whole
        /// capacity of a node.
        ///
        /// Steady while `gain · load · delay < 1/4`, where delay is how much later than the load itself its
        /// measurement changes, in seconds; up to 1 the weights overshoot and settle.
        gain_per_s: f64,
    },
}

impl Law {
    /// What serves as α where nothing is known of the pool. What else was tried: docs/decisions/0016.
    pub const ALPHA: f64 = 0.2;
    /// What serves as the gain of [`Law::Integral`].
    pub const GAIN_PER_S: f64 = 0.3;

    /// What [`Settings::dead_band`] serves best: with smoothing, none.
    pub const fn dead_band(&self) -> f64 {
        match self {
            Law::Smoothing { .. } => 0.0,
            Law::Off | Law::Integral { .. } => 0.03,
        }
    }

    /// The name in configuration and views.
    pub const fn name(&self) -> &'static str {
        match self {
            Law::Off => "off",
            Law::Smoothing { .. } => "smoothing",
            Law::Integral { .. } => "integral",
        }
    }
}

/// How a [`Controller`](super::Controller) works.
///
/// Shares are taken as what they can be at the least or the most when they are beyond it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// How reports become weights.
    pub law: Law,
    /// What is left alone. With [`Law::Smoothing`]: a change of the weight below this share of the node's
    /// full weight. With [`Law::Integral`]: a load that is off by less than this, as a share of a node's
    /// capacity.
    pub dead_band: f64,
    /// By what share a weight can move in a second at the most: of the node's full weight with
    /// [`Law::Smoothing`], of the present weight with [`Law::Integral`]. Nothing less than a refusal
    /// (health 0), and the fallback when reports age out, is faster.
    pub step_per_s_max: f64,
    /// How long a report is believed, from when it was measured.
    pub age_max: Duration,
    /// How many times the weight per configured weight of the other nodes a node can get at the most, with
    /// [`Law::Integral`]. What a node that always says it is idle can draw to itself: among n equal
    /// nodes, `odds / (odds + n − 1)` of the jobs.
    pub odds_max: f64,
    /// If less than this share of the nodes (with a weight) take jobs, refusals (health 0) are
    /// not followed; 0: they always are.
    pub panic_percent: u8,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            law: Law::Integral { gain_per_s: Law::GAIN_PER_S },
            dead_band: Law::Integral { gain_per_s: Law::GAIN_PER_S }.dead_band(),
            step_per_s_max: 0.1,
            age_max: Duration::from_secs(10),
            odds_max: 3.0,
            panic_percent: 50,
        }
    }
}
