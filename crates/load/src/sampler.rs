//! Samples: reads the host, asks all sources, and makes a report of it.

use std::time::Duration;

use evener_model::{Health, Report, Time};
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::ask::Asker;
use crate::host::{Host, Look, Readings};
use crate::measure::Answer;
use crate::measure::combine::{self, Part};
use crate::settings::{Settings, Source};

/// An answer counts until so many questions could have been answered since.
const ROUNDS_MAX: u32 = 3;

/// Something that could not be measured, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// What: a part of the host, or the name of a source.
    pub source: String,
    /// Why, in a sentence.
    pub reason: String,
}

/// What was measured at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// What is to be reported of the node: all of its services together.
    pub report: Report,
    /// What is to be reported of each service that sources are of: what is of it alone, and what is of all.
    pub services: Vec<(String, Report)>,
    /// What its load is the sum of.
    pub parts: Vec<Part>,
    /// What the kernel says.
    pub readings: Readings,
    /// What each source said, if it said anything, by its name, in the order of the settings.
    pub answers: Vec<(String, Option<Answer>)>,
    /// What could not be measured. Whatever depends on it is not in the report.
    pub failed: Vec<Failure>,
}

/// Reads the host and asks sources, again and again.
///
/// Each source is asked by a task of its own, so that one that is slow or does not answer keeps nobody waiting; they
/// end with the value.
#[derive(Debug)]
pub struct Sampler {
    host: Host,
    sources: Vec<Running>,
    interval: Duration,
    patience: Duration,
    health_load_max: f64,
}

impl Sampler {
    /// Starts the tasks. `now` is a point on the clock that all samples are told. The host is read once, for what is a
    /// difference from one sample to the next.
    ///
    /// # Panics
    /// Outside a tokio runtime that has I/O and time.
    pub fn start(settings: &Settings, now: Time) -> Sampler {
        let mut host = Host::new(settings);
        host.look(now);
        Sampler {
            host,
            sources: settings
                .sources
                .iter()
                .map(|source| Running::start(source, settings.interval))
                .collect(),
            interval: settings.interval,
            patience: settings.patience,
            health_load_max: settings.health.load_max.value(),
        }
    }

    /// The time from one sample to the next.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// Takes a sample. Waits for sources for as long as the settings' patience; of one that needs longer, the answer
    /// before counts, until it is too old.
    pub async fn sample(&mut self, now: Time) -> Sample {
        let patience = self.patience;
        self.sample_until(now, patience).await
    }

    /// Takes a sample, and waits until each source has answered or failed.
    pub async fn sample_patiently(&mut self, now: Time) -> Sample {
        let longest = self.sources.iter().map(|source| source.settings.timeout).max();
        // Their own limits end the waiting; beyond them only a machine that stands still.
        self.sample_until(now, longest.unwrap_or_default() * 2).await
    }

    async fn sample_until(&mut self, now: Time, patience: Duration) -> Sample {
        let deadline = Instant::now() + patience;
        for source in &mut self.sources {
            source.ask(now);
        }
        let look = self.host.look(now);
        for source in &mut self.sources {
            source.wait_until(deadline).await;
        }
        self.put_together(now, look)
    }

    fn put_together(&self, now: Time, look: Look) -> Sample {
        let heard: Vec<_> =
            self.sources.iter().map(|source| (&source.settings, source.latest(now))).collect();
        let (report, parts) = self.report(now, &look, &heard, None);
        let mut sample = Sample { report, parts, ..Sample::default() };
        for (settings, (latest, failure)) in &heard {
            let name = &settings.name;
            sample.answers.push((name.clone(), latest.ok().map(|(_, answer)| answer)));
            sample.failed.extend(
                failure.iter().map(|reason| Failure { source: name.clone(), reason: reason.clone() }),
            );
            if let Some(service) = &settings.service
                && !sample.services.iter().any(|(known, _)| known == service)
            {
                let (report, _) = self.report(now, &look, &heard, Some(service));
                sample.services.push((service.clone(), report));
            }
        }
        sample.failed.splice(..0, look.failed);
        sample.readings = look.readings;
        sample
    }

    /// Makes a report, and says what its load is the sum of: of all sources, or of those that a service has.
    fn report(
        &self,
        now: Time,
        look: &Look,
        heard: &[Heard<'_>],
        service: Option<&str>,
    ) -> (Report, Vec<Part>) {
        let mut report = Report { measured_at: now, ..Report::default() };
        let mut parts = look.parts.clone();
        let mut sum = Sum::default();
        // What calls it healthy or not, and what gives the alarm, whatever else is known.
        let (mut healths, mut alarms) = (Vec::new(), Vec::new());
        for (settings, (latest, _)) in heard {
            let is_of_it = |of: &str| service.is_none_or(|service| service == of);
            if !settings.service.as_deref().is_none_or(is_of_it) {
                continue;
            }
            let factor = settings.factor.value();
            match latest {
                Ok((asked_at, answer)) => {
                    sum.add(answer);
                    if answer.jobs.is_some() {
                        report.measured_at = report.measured_at.min(*asked_at);
                    }
                    if let Some(load) = answer.load {
                        parts.push(Part { name: settings.name.clone(), load: Some(f64::from(load)), factor });
                    }
                    healths.extend(answer.health);
                }
                Err(says) => {
                    sum.miss(says);
                    if says.load.is_some() {
                        parts.push(Part { name: settings.name.clone(), load: None, factor });
                    }
                    if settings.required {
                        alarms.push(Health::NONE);
                    }
                }
            }
        }
        let load = combine::load(&parts);
        healths.extend(load.map(|load| combine::health_of_load(load, self.health_load_max)));
        // A guard that sees nothing says nothing: it is no reason to call a node healthy of which else nothing is known.
        alarms.extend(look.guards.iter().filter(|guard| **guard < Health::FULL));
        // Nor is it one that who said the worst of it says nothing any more.
        if sum.missed.health.is_none() || !alarms.is_empty() {
            report.health = healths.into_iter().chain(alarms).min();
        }
        report.load = load.map(|load| load as f32);
        sum.put_into(&mut report);
        (report, parts)
    }
}

/// A source, what of it counts, and what went wrong.
type Heard<'a> = (&'a Source, Latest);

/// An answer, and when it was asked for, or what is not known without it; and what went wrong.
type Latest = (Result<(Time, Answer), Answer>, Option<String>);

/// What several sources say together. What one of them should say and does not is not known of the whole.
#[derive(Debug, Default)]
struct Sum {
    said: Answer,
    missed: Answer,
}

impl Sum {
    fn add(&mut self, answer: &Answer) {
        let said = &mut self.said;
        join(&mut said.jobs, answer.jobs, u32::saturating_add);
        // Who can take the fewest decides.
        join(&mut said.credits, answer.credits, u32::min);
        join(&mut said.jobs_per_s, answer.jobs_per_s, |one, other| one + other);
        join(&mut said.errors_per_s, answer.errors_per_s, |one, other| one + other);
        join(&mut said.latency, answer.latency, Duration::max);
    }

    fn miss(&mut self, says: &Answer) {
        widen(&mut self.missed, says);
    }

    fn put_into(self, report: &mut Report) {
        let Sum { said, missed } = self;
        report.jobs = said.jobs.filter(|_| missed.jobs.is_none());
        report.credits = said.credits.filter(|_| missed.credits.is_none());
        report.jobs_per_s = said.jobs_per_s.filter(|_| missed.jobs_per_s.is_none());
        report.errors_per_s = said.errors_per_s.filter(|_| missed.errors_per_s.is_none());
        report.latency = said.latency.filter(|_| missed.latency.is_none());
    }
}

/// Adds the fields of one answer to those of another. What they hold does not matter.
fn widen(says: &mut Answer, other: &Answer) {
    says.jobs = says.jobs.or(other.jobs);
    says.load = says.load.or(other.load);
    says.health = says.health.or(other.health);
    says.credits = says.credits.or(other.credits);
    says.jobs_per_s = says.jobs_per_s.or(other.jobs_per_s);
    says.errors_per_s = says.errors_per_s.or(other.errors_per_s);
    says.latency = says.latency.or(other.latency);
}

fn join<T: Copy>(place: &mut Option<T>, value: Option<T>, how: impl FnOnce(T, T) -> T) {
    if let Some(value) = value {
        *place = Some(place.map_or(value, |before| how(before, value)));
    }
}

/// A source and the task that asks it.
#[derive(Debug)]
struct Running {
    settings: Source,
    interval: Duration,
    /// When it was last told to ask.
    asked_at: Option<Time>,
    questions: watch::Sender<Time>,
    answers: watch::Receiver<Said>,
    task: JoinHandle<()>,
}

/// What was last heard of a source.
#[derive(Clone, Debug, Default)]
struct Said {
    /// The question that was answered, or was not.
    asked_at: Option<Time>,
    /// The last answer, and when it was asked for.
    answer: Option<(Time, Answer)>,
    /// Why there was none to the last question.
    failure: Option<Wrong>,
    /// How long it is to be left alone.
    rest: Duration,
    /// The fields that it has ever said, and those that its kind says.
    says: Answer,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Running {
    fn start(settings: &Source, interval: Duration) -> Running {
        let asker = Asker::new(&settings.ask);
        let (questions, asked) = watch::channel(Time::ZERO);
        let (told, answers) = watch::channel(Said { says: asker.says(), ..Said::default() });
        let task = tokio::spawn(ask_for_ever(asker, settings.timeout, asked, told));
        let interval = settings.interval.unwrap_or(interval);
        Running { settings: settings.clone(), interval, asked_at: None, questions, answers, task }
    }

    /// Tells the task to ask, if it is time. While it still waits for an answer, it asks next time.
    fn ask(&mut self, now: Time) {
        // A little early is in time: samples are not taken to the nanosecond.
        let (interval, is_free) = {
            let heard = self.answers.borrow();
            (self.interval.max(heard.rest), heard.asked_at == self.asked_at)
        };
        let is_time = |then| now.since(then) + interval / 10 >= interval;
        if is_free && self.asked_at.is_none_or(is_time) {
            self.asked_at = Some(now);
            self.questions.send_replace(now);
        }
    }

    /// Waits for the answer to the last question.
    async fn wait_until(&mut self, deadline: Instant) {
        let asked_at = self.asked_at;
        let answered = self.answers.wait_for(|heard| heard.asked_at == asked_at);
        // Who is late is heard of later.
        let _ = timeout_at(deadline, answered).await;
    }

    /// The answer that counts, as long as it is not too old.
    fn latest(&self, now: Time) -> Latest {
        let heard = self.answers.borrow();
        let age_max = self.interval.max(heard.rest) * ROUNDS_MAX + self.settings.timeout;
        let fresh = heard.answer.filter(|&(asked_at, _)| now.since(asked_at) <= age_max).ok_or(heard.says);
        match (&heard.failure, heard.answer) {
            // A source that is busy is late at times: what it said before is the better guess.
            (Some(Wrong::Late), _) => (fresh, Some(format!("no answer within {:?}", self.settings.timeout))),
            (Some(Wrong::Refused(reason)), _) => (Err(heard.says), Some(reason.clone())),
            (None, None) => (fresh, Some("no answer yet".into())),
            (None, Some((asked_at, _))) => {
                let is_old = fresh.is_err();
                (fresh, is_old.then(|| format!("the last answer is {:?} old", now.since(asked_at))))
            }
        }
    }
}

/// Why there was no answer.
#[derive(Clone, Debug)]
enum Wrong {
    /// It took too long.
    Late,
    /// There will be none, for this reason.
    Refused(String),
}

/// Asks whenever a question comes. A failure stands until there is an answer.
async fn ask_for_ever(
    mut asker: Asker,
    limit: Duration,
    mut asked: watch::Receiver<Time>,
    told: watch::Sender<Said>,
) {
    while asked.changed().await.is_ok() {
        let now = *asked.borrow_and_update();
        let result = match timeout(limit, asker.ask(now)).await {
            Ok(result) => result.map_err(Wrong::Refused),
            Err(_) => Err(Wrong::Late),
        };
        told.send_modify(|heard| {
            heard.asked_at = Some(now);
            heard.rest = asker.rest();
            heard.failure = result.as_ref().err().cloned();
            if let Ok(answer) = result {
                widen(&mut heard.says, &answer);
                heard.answer = Some((now, answer));
            }
        });
    }
}

#[cfg(test)]
#[path = "sampler_tests.rs"]
mod tests;
