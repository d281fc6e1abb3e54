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

use evener_model::Time;

use crate::measure::Answer;
use crate::measure::answer::{Field, Rate};
use crate::measure::prometheus::Selector;
use crate::measure::servers::StubStatus;
use crate::settings::{Ask, Pointer};

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
    Json { page: http::Page, pointer: Pointer, says: Field, scale: f64 },
    Prometheus { page: http::Page, metric: Selector, says: Field, scale: f64 },
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
                says: settings.says,
                scale: settings.scale.value(),
            },
            Ask::Prometheus(settings) => Asker::Prometheus {
                page: http::Page::new(&settings.url),
                metric: settings.metric.clone(),
                says: settings.says,
                scale: settings.scale.value(),
            },
            Ask::Program(settings) => Asker::Program(program::Program::new(settings)),
        }
    }

    /// What the source says, should it ever answer: without its answer, this is what is not known.
    pub(crate) fn says(&self) -> Answer {
        let jobs = Answer { jobs: Some(0), ..Answer::default() };
        match self {
            Asker::Json { says, .. } | Asker::Prometheus { says, .. } => {
                Answer::of(*says, 0.0).unwrap_or_default()
            }
            Asker::Program(_) => Answer::default(),
            _ => jobs,
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
            Asker::Json { page, pointer, says, scale } => {
                let page = page.get(PAGE_BYTES_MAX).await?;
                let document: serde_json::Value =
                    serde_json::from_slice(&page).map_err(|error| format!("not JSON: {error}"))?;
                let found = document.pointer(pointer.as_str());
                let number = found.and_then(serde_json::Value::as_f64).ok_or_else(|| match found {
                    None => format!("nothing at {}", pointer.as_str()),
                    Some(_) => format!("no number at {}", pointer.as_str()),
                })?;
                Answer::of(*says, number * *scale).map_err(|error| error.to_string())
            }
            Asker::Prometheus { page, metric, says, scale } => {
                let page = page.get(PAGE_BYTES_MAX).await?;
                let text = std::str::from_utf8(&page).map_err(|_| "metrics that are not UTF-8".to_owned())?;
                let sum = metric.sum(text).map_err(|error| error.to_string())?;
                Answer::of(*says, sum * *scale).map_err(|error| error.to_string())
            }
            Asker::Program(program) => program.ask().await,
        }
    }
}

/// A number of jobs; beyond four thousand million it is as many.
fn count(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
