//! How many dispatchers place jobs on the same nodes, as far as reports show.

use evener_model::NodeId;

/// More dispatchers than this are taken for this many.
const DISPATCHERS_MAX: f64 = 1024.0;
/// Fewer jobs than this in the mean are none.
const JOBS_MIN: f64 = 0.01;
/// Reports of all nodes over which means are taken, and of each at the least.
const REPORTS: f64 = 64.0;
const REPORTS_OF_A_NODE: f64 = 4.0;

/// The jobs that nodes say they have, and those of them that are from here, on average.
///
/// As many more as there are than from here, so many more dispatchers there are. The node that says the most has no say in
/// it: one that is wrong, by however much, must not make a crowd of one.
#[derive(Debug)]
pub(crate) struct Company {
    nodes: Vec<Option<Told>>,
    told: f64,
    sum: Jobs,
    /// Who says the most.
    most: Option<NodeId>,
    dispatchers: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Told {
    mean: Jobs,
    reports: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Jobs {
    all: f64,
    own: f64,
}

impl Default for Company {
    fn default() -> Company {
        Company { nodes: Vec::new(), told: 0.0, sum: Jobs::default(), most: None, dispatchers: 1.0 }
    }
}

impl Company {
    /// Takes room for a node, which has said nothing.
    ///
    /// What it says is kept until it says something else, longer than reports are believed: directors come and go more
    /// seldom than reports, and no single node can say much about them.
    pub(crate) fn add(&mut self, node: NodeId) {
        if self.nodes.len() <= node.index() {
            self.nodes.resize(node.index() + 1, None);
        }
        if self.nodes[node.index()].take().is_some() {
            self.told -= 1.0;
            self.reckon();
        }
    }

    /// A node says that it has so many jobs, when so many from here are there: it has those at the least.
    ///
    /// O(1), O(nodes) when it is or was the one that says the most.
    pub(crate) fn told(&mut self, node: NodeId, jobs: u32, own: u32) {
        let memory = (REPORTS / self.told.max(1.0)).max(REPORTS_OF_A_NODE);
        let slot = &mut self.nodes[node.index()];
        self.told += f64::from(u8::from(slot.is_none()));
        let before = slot.unwrap_or_default();
        let reports = (before.reports + 1.0).min(memory);
        let mean = |mean: f64, sample: u32| mean + (f64::from(sample) - mean) / reports;
        let now = Jobs { all: mean(before.mean.all, jobs.max(own)), own: mean(before.mean.own, own) };
        *slot = Some(Told { mean: now, reports });
        let most = self.most.and_then(|most| self.nodes[most.index()]).map_or(0.0, |most| most.mean.all);
        if self.most == Some(node) || now.all > most {
            return self.reckon();
        }
        self.sum.all += now.all - before.mean.all;
        self.sum.own += now.own - before.mean.own;
        self.settle();
    }

    /// Adds up anew: the sums hold no rest of what was once said.
    fn reckon(&mut self) {
        self.sum = Jobs::default();
        let mut most: Option<(f64, usize)> = None;
        for (place, told) in self.nodes.iter().enumerate() {
            let Some(told) = told else { continue };
            self.sum.all += told.mean.all;
            self.sum.own += told.mean.own;
            if most.is_none_or(|(all, _)| told.mean.all > all) {
                most = Some((told.mean.all, place));
            }
        }
        self.most = most.map(|(_, place)| NodeId(place as u32));
        if let Some(most) = self.most.filter(|_| self.told > 1.5).and_then(|most| self.nodes[most.index()]) {
            self.sum.all -= most.mean.all;
            self.sum.own -= most.mean.own;
        }
        self.settle();
    }

    fn settle(&mut self) {
        let Jobs { all, own } = self.sum;
        self.dispatchers =
            if own > JOBS_MIN * self.told { (all / own).clamp(1.0, DISPATCHERS_MAX) } else { 1.0 };
    }

    /// By how much more jobs there are than own ones.
    #[inline]
    pub(crate) fn dispatchers(&self) -> f64 {
        self.dispatchers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four nodes report so often; three have four times as many jobs as are from here, the last says this.
    fn told(reports: u32, liar: impl Fn(u32) -> u32) -> Company {
        let mut company = Company::default();
        (0..4).map(NodeId).for_each(|node| company.add(node));
        for report in 0..reports {
            (0..3).map(NodeId).for_each(|node| company.told(node, 8 + report % 3, 2));
            company.told(NodeId(3), liar(report), 2);
        }
        company
    }

    #[test]
    fn what_is_there_is_counted() {
        let dispatchers = told(100, |report| 8 + report % 3).dispatchers();
        assert!((dispatchers - 4.5).abs() < 0.2, "{dispatchers}");
    }

    #[test]
    fn one_that_is_wrong_changes_little() {
        for liar in [0, 1, 40, 1_000_000, u32::MAX] {
            let dispatchers = told(100, |_| liar).dispatchers();
            assert!((3.2..=4.7).contains(&dispatchers), "{liar}: {dispatchers}");
        }
        let dispatchers = told(100, |report| if report % 2 == 0 { 0 } else { u32::MAX }).dispatchers();
        assert!((3.2..=4.7).contains(&dispatchers), "{dispatchers}");
    }

    #[test]
    fn a_node_that_left_leaves_nothing_behind() {
        let mut company = told(100, |_| u32::MAX);
        company.add(NodeId(3));
        (0..3).map(NodeId).for_each(|node| company.told(node, 9, 2));
        assert!((4.2..=4.8).contains(&company.dispatchers()), "{}", company.dispatchers());
        (0..3).map(NodeId).for_each(|node| company.add(node));
        assert_eq!(company.dispatchers(), 1.0);
    }

    #[test]
    fn who_says_the_most_changes() {
        let mut company = told(100, |_| 50);
        // The others have become as full, and it empty.
        for _ in 0..100 {
            (0..3).map(NodeId).for_each(|node| company.told(node, 60, 10));
            company.told(NodeId(3), 6, 1);
        }
        assert!((company.dispatchers() - 6.0).abs() < 0.1, "{}", company.dispatchers());
    }
}
