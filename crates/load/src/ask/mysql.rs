use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder};

use super::{count, secret};
use crate::measure::Answer;
use crate::settings::{self, Address};

/// MySQL or MariaDB, over a connection that is kept.
#[derive(Debug)]
pub(crate) struct Mysql {
    settings: settings::Mysql,
    connection: Option<Conn>,
}

impl Mysql {
    pub(super) fn new(settings: &settings::Mysql) -> Mysql {
        Mysql { settings: settings.clone(), connection: None }
    }

    /// Threads that run, without ours.
    pub(super) async fn ask(&mut self) -> Result<Answer, String> {
        let running = match self.connection.take() {
            Some(connection) => match self.threads_running(connection).await {
                Ok(running) => running,
                // It may have been restarted since.
                Err(_) => self.first().await?,
            },
            None => self.first().await?,
        };
        Ok(Answer { jobs: Some(count(running.saturating_sub(1))), ..Answer::default() })
    }

    async fn first(&mut self) -> Result<u64, String> {
        let connection = Conn::new(self.options()?).await.map_err(|error| error.to_string())?;
        self.threads_running(connection).await
    }

    async fn threads_running(&mut self, mut connection: Conn) -> Result<u64, String> {
        let row = connection.query_first::<(String, u64), _>("SHOW GLOBAL STATUS LIKE 'Threads_running'");
        let row = row.await.map_err(|error| error.to_string())?;
        let (_, running) = row.ok_or("it knows no Threads_running")?;
        let scheduler = connection.query_first::<String, _>("SELECT @@event_scheduler");
        let scheduler = scheduler.await.map_err(|error| error.to_string())?;
        self.connection = Some(connection);
        // The thread that starts events counts as running even while it waits for one to be due.
        let idle = u64::from(scheduler.is_some_and(|state| state == "ON"));
        Ok(running.saturating_sub(idle))
    }

    fn options(&self) -> Result<Opts, String> {
        let password = self.settings.password_file.as_deref().map(secret::read).transpose()?;
        let options = OptsBuilder::default()
            .user(Some(self.settings.user.as_str()))
            .pass(password)
            // What is not set here it would ask for, at every connection.
            .max_allowed_packet(Some(1024 * 1024))
            .wait_timeout(Some(28_800))
            // It would else leave the address that was configured for a socket that the server names.
            .prefer_socket(Some(false));
        Ok(match &self.settings.address {
            Address::Tcp(host, port) => options.ip_or_hostname(host.as_str()).tcp_port(*port),
            Address::Unix(path) => options.socket(path.to_str()),
        }
        .into())
    }
}
