//! The newest sample, and what may be said of it.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use evener_feedback::json::Said;
use evener_feedback::necp::Port;
use evener_feedback::necp::session::Values;
use evener_load::Sample;
use evener_model::{Report, Time};
use tokio::sync::watch;

use crate::settings::Service;

/// The clock of samples and sessions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock(Instant::now())
    }

    pub(crate) fn now(self) -> Time {
        Time::ZERO + self.0.elapsed()
    }

    /// That time on tokio's clock.
    pub(crate) fn instant(self, time: Time) -> tokio::time::Instant {
        (self.0 + time.since(Time::ZERO)).into()
    }
}

/// The time since 1970, by the clock on the wall.
pub(crate) fn unix() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A sample, and when it was taken.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) at: Time,
    pub(crate) sample: Sample,
}

/// What does not change.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) clock: Clock,
    /// The node's name.
    pub(crate) node: String,
    /// A sample that is older says nothing.
    pub(crate) age_max: Duration,
    pub(crate) services: Vec<Service>,
}

/// The newest sample, for all who ask.
#[derive(Clone, Debug)]
pub(crate) struct Latest {
    pub(crate) told: Arc<Told>,
    samples: watch::Receiver<Option<Arc<Taken>>>,
}

impl Latest {
    /// None yet; samples are to be sent.
    pub(crate) fn new(told: Told) -> (watch::Sender<Option<Arc<Taken>>>, Latest) {
        let (sender, samples) = watch::channel(None);
        (sender, Latest { told: Arc::new(told), samples })
    }

    pub(crate) fn now(&self) -> Time {
        self.told.clock.now()
    }

    /// Waits for the next one.
    pub(crate) async fn changed(&mut self) {
        if self.samples.changed().await.is_err() {
            // The agent ends, and so will whoever waits.
            std::future::pending::<()>().await;
        }
    }

    /// The newest sample, unless it is too old to say anything.
    pub(crate) fn fresh(&self) -> Option<Arc<Taken>> {
        let now = self.now();
        let taken = self.samples.borrow().clone();
        taken.filter(|taken| now.since(taken.at) <= self.told.age_max)
    }

    /// How the service of that name is, or the node.
    pub(crate) fn report(&self, name: Option<&str>) -> Option<Report> {
        self.fresh().map(|taken| *report(&taken.sample, name))
    }

    /// What answers a director's questions about that port.
    pub(crate) fn values(&self, port: Port) -> Option<Values> {
        let service = self.told.services.iter().find(|service| service.port == port)?;
        let taken = self.fresh()?;
        let report = report(&taken.sample, service.name.as_deref());
        let load = report.load.map(f64::from);
        // Whoever asks adds them up to the load again.
        let network = taken.sample.parts.iter().find(|part| part.name == "network");
        let network =
            network.filter(|part| part.factor > 0.0).and_then(|part| Some(part.load? * part.factor));
        let milli = |load: f64| (load * 1000.0).round().clamp(0.0, f64::from(u32::MAX)) as u32;
        Some(Values {
            health: report.health,
            jobs: report.jobs,
            // Servers say how many jobs they have, those that wait among them.
            queue: None,
            cpu_load_milli: load.map(|load| milli(load - network.unwrap_or(0.0))),
            network_load_milli: load.zip(network).map(|(load, network)| milli(network.min(load))),
        })
    }

    /// What the node says of itself, and of each service that has sources of its own; nothing if nothing is known.
    pub(crate) fn said(&self) -> Vec<Said> {
        let Some(taken) = self.fresh() else { return Vec::new() };
        let now = self.now();
        let of = |service: Option<Port>, report: &Report| Said {
            service,
            ..Said::of(&self.told.node, report, now)
        };
        let mut said = vec![of(None, &taken.sample.report)];
        for Service { port, name, .. } in &self.told.services {
            let report =
                name.as_ref().and_then(|name| taken.sample.services.iter().find(|(known, _)| known == name));
            said.extend(report.map(|(_, report)| of(Some(*port), report)));
        }
        said.retain(says_something);
        said
    }
}

fn report<'a>(sample: &'a Sample, name: Option<&str>) -> &'a Report {
    let service = sample.services.iter().find(|(known, _)| Some(known.as_str()) == name);
    service.map_or(&sample.report, |(_, report)| report)
}

fn says_something(said: &Said) -> bool {
    Said { node: None, service: None, age_ms: 0, ..said.clone() } != Said::default()
}

#[cfg(test)]
mod tests {
    use evener_feedback::necp::Protocol;
    use evener_load::measure::combine::Part;
    use evener_model::Health;

    use super::*;

    const WEB: Port = Port { protocol: Protocol::Tcp, number: 80 };
    const SQL: Port = Port { protocol: Protocol::Tcp, number: 3306 };

    /// What is said of a sample of that age, with two services, of which one has sources of its own.
    fn latest(age: Duration) -> Latest {
        let clock = Clock(Instant::now() - Duration::from_secs(100));
        let at = clock.now() - age;
        let sql = Service { name: Some("sql".into()), ..Service::new(SQL) };
        let services = vec![Service::new(WEB), sql];
        let told = Told { clock, node: "rat".into(), age_max: Duration::from_secs(10), services };
        let report = Report { measured_at: at, load: Some(0.75), jobs: Some(7), ..Report::default() };
        let own = Report { health: Some(Health::NONE), load: Some(0.0), jobs: None, ..report };
        let part = Part { name: "network".into(), load: Some(2.5), factor: 0.1 };
        let sample =
            Sample { report, services: vec![("sql".into(), own)], parts: vec![part], ..Sample::default() };
        Latest { told: Arc::new(told), samples: watch::channel(Some(Arc::new(Taken { at, sample }))).1 }
    }

    #[test]
    fn what_is_too_old_is_told_to_nobody() {
        let old = latest(Duration::from_secs(11));
        assert!(old.said().is_empty() && old.values(WEB).is_none() && old.report(None).is_none());
        let young = latest(Duration::from_secs(5));
        assert_eq!(young.said().len(), 2);
        assert!(young.said().iter().all(|said| (5_000..10_000).contains(&said.age_ms)), "{:?}", young.said());
    }

    #[test]
    fn parts_of_the_load_add_up_to_the_load() {
        let values = latest(Duration::ZERO).values(WEB).expect("known");
        assert_eq!(
            (values.cpu_load_milli, values.network_load_milli, values.jobs),
            (Some(500), Some(250), Some(7))
        );
        assert_eq!(values.report(Time::ZERO).load, Some(0.75));
        let values = latest(Duration::ZERO).values(SQL).expect("known");
        assert_eq!((values.report(Time::ZERO).load, values.health), (Some(0.0), Some(Health::NONE)));
    }

    #[test]
    fn of_a_port_that_is_no_service_nothing_is_said() {
        assert!(latest(Duration::ZERO).values(Port { number: 81, ..WEB }).is_none());
    }
}
