use evener_model::Time;

use super::stream::Line;
use super::{count, secret};
use crate::measure::Answer;
use crate::measure::answer::Rate;
use crate::measure::servers::{RedisInfo, Reply, redis_reply};
use crate::settings;

/// A section of `INFO` is a few KiB.
const REPLY_BYTES_MAX: usize = 256 * 1024;
const INFO: &[u8] = b"*2\r\n$4\r\nINFO\r\n$7\r\nclients\r\n*2\r\n$4\r\nINFO\r\n$5\r\nstats\r\n";

/// Redis, over a connection that is kept.
#[derive(Debug)]
pub(crate) struct Redis {
    settings: settings::Redis,
    line: Option<Line>,
    commands: Rate,
}

impl Redis {
    pub(super) fn new(settings: &settings::Redis) -> Redis {
        Redis { settings: settings.clone(), line: None, commands: Rate::default() }
    }

    /// Clients without us, and commands in a second.
    pub(super) async fn ask(&mut self, now: Time) -> Result<Answer, String> {
        let info = match self.line.take() {
            Some(line) => match self.info(line).await {
                Ok(info) => info,
                // It may have been restarted since.
                Err(_) => self.first().await?,
            },
            None => self.first().await?,
        };
        Ok(Answer {
            jobs: Some(count(info.clients.saturating_sub(1))),
            jobs_per_s: self.commands.look(now, info.commands),
            ..Answer::default()
        })
    }

    async fn first(&mut self) -> Result<RedisInfo, String> {
        let mut line = Line::connect(&self.settings.address).await?;
        if let Some(path) = &self.settings.password_file {
            let password = secret::read(path)?;
            let user = self.settings.user.as_deref();
            let words: Vec<&str> = ["AUTH"].into_iter().chain(user).chain([password.as_str()]).collect();
            line.send(&command(&words)).await?;
            reply(&mut line).await?;
        }
        self.info(line).await
    }

    async fn info(&mut self, mut line: Line) -> Result<RedisInfo, String> {
        line.send(INFO).await?;
        let mut text = reply(&mut line).await?;
        text.push(b'\n');
        text.extend(reply(&mut line).await?);
        let info = RedisInfo::parse(&text).map_err(|error| error.to_string())?;
        self.line = Some(line);
        Ok(info)
    }
}

fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
    bytes
}

async fn reply(line: &mut Line) -> Result<Vec<u8>, String> {
    let reply = line.receive(|bytes| {
        let found = redis_reply(bytes, REPLY_BYTES_MAX).map_err(|error| error.to_string())?;
        Ok(found.map(|(reply, length)| {
            let reply = match reply {
                Reply::Simple(text) | Reply::Bulk(text) => Ok(text.to_vec()),
                Reply::Error(text) => Err(text.escape_ascii().to_string()),
            };
            (reply, length)
        }))
    });
    reply.await?
}
