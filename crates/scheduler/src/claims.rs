//! How many jobs nodes say they can have, and how far that is believed.

use evener_model::{NodeId, Report};

use crate::nodes::UNIT;

/// How many times as many jobs, for its weight, a node may say it can have than the others do on average: beyond it is not
/// believed.
const CLAIM_MAX: u64 = 3;

/// What nodes claim, for a weight of 1, in [`UNIT`]s.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    nodes: Vec<Option<u64>>,
    claimants: u64,
    sum: u64,
}

/// How many jobs a node claims that it can have: those that are there, and its credits. Jobs that are there from here are
/// there, whatever it says.
fn capacity(report: &Report, own_then: u32) -> Option<u64> {
    Some(u64::from(report.credits?) + u64::from(report.jobs.unwrap_or(0).max(own_then)))
}

impl Claims {
    /// Takes room for a node, which claims nothing.
    pub(crate) fn add(&mut self, node: NodeId) {
        if self.nodes.len() <= node.index() {
            self.nodes.resize(node.index() + 1, None);
        }
        self.set(node, None);
    }

    /// What a node says now, `own_then` jobs being there from here; `None`: nothing that is believed.
    pub(crate) fn told(&mut self, node: NodeId, weight: u32, said: Option<(&Report, u32)>) {
        let capacity = said.and_then(|(report, own_then)| capacity(report, own_then));
        self.set(node, capacity.map(|jobs| jobs * u64::from(UNIT) / u64::from(weight.max(1))));
    }

    fn set(&mut self, node: NodeId, claim: Option<u64>) {
        let before = std::mem::replace(&mut self.nodes[node.index()], claim);
        self.sum = self.sum - before.unwrap_or(0) + claim.unwrap_or(0);
        self.claimants = self.claimants - u64::from(before.is_some()) + u64::from(claim.is_some());
    }

    /// The credits that are left of those in a report, with `jobs` from here there now: below 0 if more were spent.
    ///
    /// With the jobs that it has, a node is believed up to three times what the others claim on average for their weights; or
    /// three jobs for its weight if none of the others claims anything.
    pub(crate) fn left(
        &self,
        node: NodeId,
        weight: u32,
        report: &Report,
        own_then: u32,
        jobs: u32,
    ) -> Option<i64> {
        let claimed = capacity(report, own_then)?;
        let own = self.nodes[node.index()];
        let others = self.claimants - u64::from(own.is_some());
        let mean = (self.sum - own.unwrap_or(0)).checked_div(others).unwrap_or(u64::from(UNIT));
        let most = (CLAIM_MAX * mean * u64::from(weight.max(1))).div_ceil(u64::from(UNIT));
        let there = u64::from(report.jobs.unwrap_or(0).max(own_then));
        // Below 0 where more are there than it is believed to take: those must end first.
        let credits = claimed.min(most.max(1)) as i64 - there as i64;
        Some(credits - (i64::from(jobs) - i64::from(own_then)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIAR: NodeId = NodeId(3);

    fn said(jobs: u32, credits: u32) -> Report {
        Report { jobs: Some(jobs), credits: Some(credits), ..Report::default() }
    }

    /// Three nodes with 2 jobs and 2 credits each, and one that says this.
    fn left(weight: u32, report: &Report, own_then: u32, jobs: u32) -> i64 {
        let mut claims = Claims::default();
        (0..4).map(NodeId).for_each(|node| claims.add(node));
        (0..3).map(NodeId).for_each(|node| claims.told(node, 1, Some((&said(2, 2), 2))));
        claims.told(LIAR, weight, Some((report, own_then)));
        claims.left(LIAR, weight, report, own_then, jobs).unwrap()
    }

    #[test]
    fn what_is_claimed_is_believed_up_to_three_times_what_others_claim() {
        assert_eq!(left(1, &said(0, 5), 0, 0), 5);
        assert_eq!(left(1, &said(0, 1_000_000), 0, 0), 12);
        assert_eq!(left(2, &said(0, 1_000_000), 0, 0), 24);
    }

    #[test]
    fn jobs_that_are_there_count_whatever_is_said() {
        for then in [0, 5, 12, 50] {
            assert!(left(1, &said(0, 1_000_000), then, 12) <= 0, "{then} at the report");
        }
    }

    #[test]
    fn alone_a_node_is_believed_three_jobs() {
        let mut claims = Claims::default();
        (0..2).map(NodeId).for_each(|node| claims.add(node));
        let report = said(0, 100);
        claims.told(NodeId(0), 1, Some((&report, 0)));
        assert_eq!(claims.left(NodeId(0), 1, &report, 0, 0), Some(3));
    }

    #[test]
    fn what_expired_claims_nothing() {
        let mut claims = Claims::default();
        (0..3).map(NodeId).for_each(|node| claims.add(node));
        let [large, small] = [said(0, 100), said(0, 4)];
        claims.told(NodeId(0), 1, Some((&small, 0)));
        claims.told(NodeId(1), 1, Some((&large, 0)));
        claims.told(NodeId(1), 1, None);
        claims.told(NodeId(2), 1, Some((&small, 0)));
        assert_eq!(claims.left(NodeId(0), 1, &small, 0, 0), Some(4));
        assert_eq!((claims.sum, claims.claimants), (8 * u64::from(UNIT), 2));
    }
}
