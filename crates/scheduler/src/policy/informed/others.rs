use evener_model::{NodeId, Time};

/// What is averaged is so over about as many reports, or picks.
const KEEP: f64 = 1.0 - 1.0 / 256.0;
/// Other dispatchers than these are not reckoned with.
const DISPATCHERS_MAX: f64 = 1024.0;
/// Jobs that a node may say that others have there.
const OTHERS_MAX: f64 = 4096.0;
/// Where a report comes for every fifth job or less often, none is trusted: all dispatchers would send their jobs
/// where it was empty.
const TRUST_MIN: f64 = 0.2;

/// The jobs that other dispatchers have on the nodes, as nodes report them.
#[derive(Debug, Default)]
pub(super) struct Others {
    nodes: Vec<Told>,
    /// Nodes that have reported, and what they reported together.
    reporting: u32,
    sum: f64,
    /// All jobs in the reports, and those of them that were from here: sums, older ones counting less.
    all: f64,
    own: f64,
    /// Reports and picks: sums, older ones counting less with each pick.
    reports: f64,
    picks: f64,
    /// How much a fresh report counts, 0 to 1.
    trust: f64,
    /// By which part it counts less, a second later.
    aging_per_s: f64,
}

/// What a node reported.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    at: Option<Time>,
    /// Jobs of others for its speed.
    others: f64,
}

impl Others {
    pub(super) fn make_room(&mut self, node: NodeId) {
        if self.nodes.len() <= node.index() {
            self.nodes.resize(node.index() + 1, Told::default());
        }
    }

    /// A node reported so many jobs, when there were so many from here.
    pub(super) fn told(&mut self, node: NodeId, measured_at: Time, jobs: u32, own: u32, speed: f64) {
        self.forget(node);
        let others = (f64::from(jobs.saturating_sub(own)) / speed).min(OTHERS_MAX);
        self.nodes[node.index()] = Told { at: Some(measured_at), others };
        self.sum += others;
        self.reporting += 1;
        self.all = self.all * KEEP + f64::from(jobs.max(own));
        self.own = self.own * KEEP + f64::from(own);
        self.reports += 1.0;
    }

    /// What a node reported counts no longer.
    pub(super) fn forget(&mut self, node: NodeId) {
        let told = &mut self.nodes[node.index()];
        if told.at.take().is_some() {
            self.sum -= told.others;
            self.reporting -= 1;
        }
    }

    /// A job was placed; jobs take about so long.
    pub(super) fn placed(&mut self, latency_nanos: u64) {
        self.picks = self.picks * KEEP + 1.0;
        self.reports *= KEEP;
        let dispatchers =
            if self.own > 0.0 { (self.all / self.own).clamp(1.0, DISPATCHERS_MAX) } else { DISPATCHERS_MAX };
        // A job comes and goes: where both are reported, no job is unseen, and no report is old.
        let reports_per_job = self.reports / (self.picks * dispatchers);
        let unseen = (1.0 - reports_per_job / 2.0).max(0.0);
        let fresh = reports_per_job / (reports_per_job + unseen);
        self.trust = ((fresh - TRUST_MIN) / (1.0 - TRUST_MIN)).max(0.0);
        self.aging_per_s = unseen * 1e9 / latency_nanos.max(1) as f64;
    }

    /// Jobs of others on a node, for its speed, in the mean and as far as that is known.
    #[inline]
    pub(super) fn mean(&self) -> f64 {
        if self.reporting > 0 { self.trust * self.sum / f64::from(self.reporting) } else { 0.0 }
    }

    /// By how much the jobs of others on a node differ from the mean.
    #[inline]
    pub(super) fn beyond(&self, node: NodeId, now: Time) -> f64 {
        let told = &self.nodes[node.index()];
        let Some(at) = told.at.filter(|_| self.trust > 0.0) else { return 0.0 };
        let age_s = now.since(at).as_secs_f64();
        (self.trust * told.others - self.mean()) / (1.0 + age_s * self.aging_per_s)
    }
}
