use evener_model::Time;

use super::count;
use super::stream::Line;
use crate::measure::Answer;
use crate::measure::answer::Rate;
use crate::measure::servers::MemcachedStats;
use crate::settings::Address;

/// Its statistics have a few KiB.
const STATS_BYTES_MAX: usize = 256 * 1024;

/// memcached, over a connection that is kept.
#[derive(Debug)]
pub(crate) struct Memcached {
    address: Address,
    line: Option<Line>,
    commands: Rate,
}

impl Memcached {
    pub(super) fn new(address: &Address) -> Memcached {
        Memcached { address: address.clone(), line: None, commands: Rate::default() }
    }

    /// Connections without us, and commands in a second.
    pub(super) async fn ask(&mut self, now: Time) -> Result<Answer, String> {
        let stats = match self.line.take() {
            Some(line) => match self.stats(line).await {
                Ok(stats) => stats,
                // It may have been restarted since.
                Err(_) => self.first().await?,
            },
            None => self.first().await?,
        };
        Ok(Answer {
            jobs: Some(count(stats.connections.saturating_sub(1))),
            jobs_per_s: self.commands.look(now, stats.commands),
            ..Answer::default()
        })
    }

    async fn first(&mut self) -> Result<MemcachedStats, String> {
        let line = Line::connect(&self.address).await?;
        self.stats(line).await
    }

    async fn stats(&mut self, mut line: Line) -> Result<MemcachedStats, String> {
        line.send(b"stats\r\n").await?;
        let stats = line.receive(|bytes| {
            if bytes.len() > STATS_BYTES_MAX {
                return Err("statistics without an end".into());
            }
            let found = MemcachedStats::parse(bytes).map_err(|error| error.to_string())?;
            Ok(found.map(|stats| (stats, bytes.len())))
        });
        let stats = stats.await?;
        self.line = Some(line);
        Ok(stats)
    }
}
