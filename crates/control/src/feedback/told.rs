//! What a node said last, by each way.

use std::time::Duration;

use evener_model::{Report, Time};

use crate::feedback::Dialect;

/// What a node said last, by dialect.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    reports: [Option<Report>; Dialect::ALL.len()],
}

impl Told {
    /// Keeps a report unless it was measured before what was said in that dialect already, or longer ago
    /// than `expiry`; says whether it did.
    pub(crate) fn take(&mut self, now: Time, dialect: Dialect, report: Report, expiry: Duration) -> bool {
        let known = &mut self.reports[dialect.index()];
        let older = known.is_some_and(|known| report.measured_at < known.measured_at);
        if older || now.since(report.measured_at) >= expiry {
            return false;
        }
        // A clock that is a little ahead must not keep out the next report.
        *known = Some(Report { measured_at: report.measured_at.min(now), ..report });
        true
    }

    /// Whether a report was measured after what was said in that dialect before.
    pub(crate) fn is_news(&self, dialect: Dialect, report: &Report) -> bool {
        self.reports[dialect.index()].is_none_or(|known| report.measured_at > known.measured_at)
    }

    /// What is believed of the node now: each figure from the newest report that has it. Its time is that of the
    /// newest report.
    pub(crate) fn merged(&self, now: Time, expiry: Duration) -> Option<Report> {
        let mut believed: Vec<&Report> =
            self.reports.iter().flatten().filter(|report| now.since(report.measured_at) < expiry).collect();
        believed.sort_by_key(|report| std::cmp::Reverse(report.measured_at));
        let (newest, older) = believed.split_first()?;
        let mut merged = **newest;
        for report in older {
            merged.jobs = merged.jobs.or(report.jobs);
            merged.load = merged.load.or(report.load);
            merged.health = merged.health.or(report.health);
            merged.credits = merged.credits.or(report.credits);
            merged.jobs_per_s = merged.jobs_per_s.or(report.jobs_per_s);
            merged.errors_per_s = merged.errors_per_s.or(report.errors_per_s);
            merged.latency = merged.latency.or(report.latency);
        }
        Some(merged)
    }

    /// Forgets what is not believed any more, if there is such; says whether there was.
    pub(crate) fn age(&mut self, now: Time, expiry: Duration) -> bool {
        let mut aged = false;
        for report in &mut self.reports {
            if report.is_some_and(|report| now.since(report.measured_at) >= expiry) {
                (*report, aged) = (None, true);
            }
        }
        aged
    }

    /// Forgets what was said in a dialect.
    pub(crate) fn forget(&mut self, dialect: Dialect) {
        self.reports[dialect.index()] = None;
    }

    /// What was said, by dialect.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Dialect, &Report)> {
        Dialect::ALL
            .into_iter()
            .zip(&self.reports)
            .filter_map(|(dialect, report)| Some((dialect, report.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use evener_model::Health;

    use super::*;

    fn at(second: u64) -> Time {
        Time::from_nanos(second * 1_000_000_000)
    }

    const EXPIRY: Duration = Duration::from_secs(10);

    #[test]
    fn each_figure_is_of_the_newest_report_that_has_it_and_none_outlives_its_expiry() {
        let mut told = Told::default();
        let health = Some(Health::saturating(70));
        let by_necp = Report { measured_at: at(1), health, jobs: Some(4), ..Report::default() };
        let by_orca = Report { measured_at: at(5), load: Some(0.5), jobs: Some(6), ..Report::default() };
        assert!(told.take(at(5), Dialect::Orca, by_orca, EXPIRY));
        assert!(told.take(at(5), Dialect::Necp, by_necp, EXPIRY));
        let both = told.merged(at(6), EXPIRY).unwrap();
        assert_eq!(
            (both.measured_at, both.health, both.jobs, both.load),
            (at(5), health, Some(6), Some(0.5))
        );
        let later = told.merged(at(11), EXPIRY).unwrap();
        assert_eq!((later.health, later.jobs), (None, Some(6)));
        assert!(told.age(at(11), EXPIRY) && !told.age(at(11), EXPIRY));
        assert_eq!(told.merged(at(15), EXPIRY), None);
    }

    #[test]
    fn what_is_older_than_what_was_said_is_not_taken() {
        let mut told = Told::default();
        let of = |second| Report { measured_at: at(second), ..Report::default() };
        assert!(told.take(at(9), Dialect::Push, of(8), EXPIRY));
        assert!(!told.take(at(9), Dialect::Push, of(7), EXPIRY));
        assert!(told.take(at(9), Dialect::Pull, of(7), EXPIRY), "another dialect");
        assert!(!told.take(at(30), Dialect::Push, of(19), EXPIRY), "older than its expiry");
        // From the future: it counts as of now, and keeps out nothing that comes.
        assert!(told.take(at(40), Dialect::Push, of(500), EXPIRY));
        assert!(told.take(at(41), Dialect::Push, of(41), EXPIRY));
    }
}
