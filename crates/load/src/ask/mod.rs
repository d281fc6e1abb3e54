//! Asks servers, programs and the kernel for jobs. Nothing here waits for ever by itself: who asks sets the time limit,
//! and drops the question. A connection that a dropped question leaves behind is not used again.

mod connections;
mod http;
mod memcached;
mod mysql;
mod program;
mod redis;
mod secret;
mod stream;
#[cfg(test)]
mod tests;
mod watched;

use std::time::Duration;

use evener_model::Time;

use crate::measure::Answer;
use crate::measure::answer::{Field, Rate};
use crate::measure::prometheus::Selector;
use crate::measure::servers::StubStatus;
use crate::settings::{Ask, Factor, Pointer};

/// Pages may be so long: metrics of large servers have a MiB and more.
const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A source that can be asked again and again.
#[derive(Debug)]
pub(crate) enum Asker {
    Connections(connections::Connections),
    Mysql(mysql::Mysql),
    Redis(redis::Redis),
    Memcached(memcached::Memcached),
    Nginx { page: http::Page, requests: Rate },
    Json { page: http::Page, pointer: Pointer, number: Number },
    Prometheus { page: http::Page, metric: Selector, number: Number },
    Program(program::Program),
}

impl Asker {
    pub(crate) fn new(ask: &Ask) -> Asker {
        match ask {
            Ask::Connections(settings) => Asker::Connections(connections::Connections::new(settings)),
            Ask::Mysql(settings) => Asker::Mysql(mysql::Mysql::new(settings)),
            Ask::Redis(settings) => Asker::Redis(redis::Redis::new(settings)),
            Ask::Memcached(address) => Asker::Memcached(memcached::Memcached::new(address)),
            Ask::Nginx(url) => Asker::Nginx { page: http::Page::new(url), requests: Rate::default() },
            Ask::Json(settings) => Asker::Json {
                page: http::Page::new(&settings.url),
                pointer: settings.pointer.clone(),
                number: Number::new(settings.says, settings.rate, settings.scale),
            },
            Ask::Prometheus(settings) => Asker::Prometheus {
                page: http::Page::new(&settings.url),
                metric: settings.metric.clone(),
                number: Number::new(settings.says, settings.rate, settings.scale),
            },
            Ask::Program(settings) => Asker::Program(program::Program::new(settings)),
        }
    }

    /// What the source says, should it ever answer: without its answer, this is what is not known.
    pub(crate) fn says(&self) -> Answer {
        let jobs = Answer { jobs: Some(0), ..Answer::default() };
        match self {
            Asker::Json { number, .. } | Asker::Prometheus { number, .. } => {
                Answer::of(number.says, 0.0).unwrap_or_default()
            }
            Asker::Program(_) => Answer::default(),
            _ => jobs,
        }
    }

    /// How long it should be left alone after the last question, which took much of this machine's time.
    pub(crate) fn rest(&self) -> Duration {
        match self {
            Asker::Connections(connections) => connections.rest(),
            _ => Duration::ZERO,
        }
    }

    /// Asks once.
    ///
    /// # Errors
    /// What was wrong, in a sentence.
    pub(crate) async fn ask(&mut self, now: Time) -> Result<Answer, String> {
        match self {
            Asker::Connections(connections) => connections.ask().await,
            Asker::Mysql(mysql) => mysql.ask().await,
            Asker::Redis(redis) => redis.ask(now).await,
            Asker::Memcached(memcached) => memcached.ask(now).await,
            Asker::Nginx { page, requests } => {
                let status =
                    StubStatus::parse(&page.get(PAGE_BYTES_MAX).await?).map_err(|error| error.to_string())?;
                let jobs_per_s = requests.look(now, status.requests);
                Ok(Answer { jobs: Some(count(status.jobs())), jobs_per_s, ..Answer::default() })
            }
            Asker::Json { page, pointer, number } => {
                let page = page.get(PAGE_BYTES_MAX).await?;
                let document: serde_json::Value =
                    serde_json::from_slice(&page).map_err(|error| format!("not JSON: {error}"))?;
                let found = document.pointer(pointer.as_str());
                let value = found.and_then(serde_json::Value::as_f64).ok_or_else(|| match found {
                    None => format!("nothing at {}", pointer.as_str()),
                    Some(_) => format!("no number at {}", pointer.as_str()),
                })?;
                number.answer(now, value)
            }
            Asker::Prometheus { page, metric, number } => {
                let page = page.get(PAGE_BYTES_MAX).await?;
                let text = std::str::from_utf8(&page).map_err(|_| "metrics that are not UTF-8".to_owned())?;
                number.answer(now, metric.sum(text).map_err(|error| error.to_string())?)
            }
            Asker::Program(program) => program.ask().await,
        }
    }
}

/// What a number on a page says.
#[derive(Debug)]
pub(crate) struct Number {
    says: Field,
    /// Of a number that counts up.
    rate: Option<Rate>,
    scale: f64,
}

impl Number {
    fn new(says: Field, is_rate: bool, scale: Factor) -> Number {
        Number { says, rate: is_rate.then(Rate::default), scale: scale.value() }
    }

    /// A rate says nothing at first: it needs two numbers.
    fn answer(&mut self, now: Time, value: f64) -> Result<Answer, String> {
        let value = match &mut self.rate {
            None => value,
            // Counters are whole numbers at least 0, and the cast saturates.
            Some(rate) => match rate.look(now, value as u64) {
                Some(rate) => f64::from(rate),
                None => return Ok(Answer::default()),
            },
        };
        Answer::of(self.says, value * self.scale).map_err(|error| error.to_string())
    }
}

/// A number of jobs; beyond four thousand million it is as many.
fn count(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
