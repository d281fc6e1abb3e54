//! Directors that are told: reports are posted as JSON.

use std::time::Duration;

use evener_feedback::json;
use evener_feedback::pace::Pace;
use evener_feedback::signature::{self, Signer};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::latest::{Clock, Latest, unix};
use crate::necp::random;
use crate::net::Target;
use crate::settings::{Update, Url};

/// How long it may take to be rid of a report.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 4096;
/// Characters of an answer that are logged.
const ANSWER_SHOWN_MAX: usize = 200;

/// A director that is told.
pub(crate) struct Push {
    pub(crate) url: Url,
    pub(crate) target: Target,
    pub(crate) signer: Option<Signer>,
}

/// When to report to those who do not ask.
#[derive(Clone, Debug)]
pub(crate) enum Due {
    /// By the clock on the wall, with this period.
    InStep(Duration),
    /// In a rhythm of one's own.
    Paced(Clock, Pace),
}

impl Due {
    /// `None`: never.
    pub(crate) fn new(update: Update, period: Duration, clock: Clock) -> Option<Due> {
        match update {
            Update::OnAccess => None,
            Update::Periodic => Some(Due::InStep(period)),
            Update::Continuous => {
                Some(Due::Paced(clock, Pace::new(period, period / 5, clock.now(), random())))
            }
        }
    }

    /// Waits until a report is due.
    pub(crate) async fn wait(&mut self) {
        match self {
            Due::InStep(period) => {
                tokio::time::sleep(left(unix(), *period)).await;
            }
            Due::Paced(clock, pace) => {
                tokio::time::sleep_until(clock.instant(pace.due())).await;
                pace.is_due(clock.now());
            }
        }
    }
}

/// The time from `unix` to the next multiple of the period.
fn left(unix: Duration, period: Duration) -> Duration {
    let into = unix.as_nanos() % period.as_nanos();
    period - Duration::from_nanos(u64::try_from(into).unwrap_or(0))
}

/// Reports to the director for ever.
pub(crate) async fn report(mut push: Push, mut latest: Latest, mut due: Due) {
    latest.changed().await;
    let mut connection = None;
    // What went wrong is told when it begins, changes and ends, not each time.
    let mut known: Option<Result<(), String>> = None;
    loop {
        due.wait().await;
        let said = latest.said();
        let result = match said.is_empty() {
            true => Err("nothing is known of the node".into()),
            false => {
                let mut body = Vec::new();
                json::write(&mut body, &said);
                let posted = timeout(TIMEOUT, push.post(&mut connection, body.into())).await;
                posted.unwrap_or_else(|_| Err(format!("no answer within {TIMEOUT:?}")))
            }
        };
        if result.is_err() {
            connection = None;
        }
        if known.as_ref() != Some(&result) {
            let director = push.url.to_string();
            match &result {
                Ok(()) => info!(director, "takes reports"),
                Err(reason) => warn!(director, reason, "no report"),
            }
            known = Some(result);
        }
    }
}

/// A connection that is kept from report to report.
struct Kept {
    sender: SendRequest<Full<Bytes>>,
    task: JoinHandle<()>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Push {
    async fn post(&mut self, connection: &mut Option<Kept>, body: Bytes) -> Result<(), String> {
        // It may have been closed since. A report that arrives twice is seen by its signature, or does no harm.
        if let Some(mut kept) = connection.take()
            && kept.sender.ready().await.is_ok()
            && let Ok(answer) = self.send(&mut kept, body.clone()).await
        {
            *connection = Some(kept);
            return answer;
        }
        let mut kept = self.connect().await?;
        let answer = self.send(&mut kept, body).await?;
        *connection = Some(kept);
        answer
    }

    async fn connect(&self) -> Result<Kept, String> {
        let stream = self.target.connect().await.map_err(|error| error.to_string())?;
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        // Its errors are told to whoever sends.
        let task = tokio::spawn(async move { drop(connection.await) });
        Ok(Kept { sender, task })
    }

    /// The outer error: nothing was heard. The inner one: the director does not want it.
    async fn send(&mut self, kept: &mut Kept, body: Bytes) -> Result<Result<(), String>, String> {
        let mut request = Request::post(self.url.path.as_str())
            .header(HOST, self.url.authority())
            .header(USER_AGENT, concat!("evener-agent/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, "application/json");
        if let Some(signer) = &mut self.signer {
            request = request.header(signature::HEADER, signer.sign(unix(), &body));
        }
        let request = request.body(Full::new(body)).map_err(|error| error.to_string())?;
        let answer = kept.sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map(|body| body.to_bytes()).map_err(|error| error.to_string())?;
        if status.is_success() { Ok(Ok(())) } else { Ok(Err(refusal(status, &body))) }
    }
}

fn refusal(status: StatusCode, body: &[u8]) -> String {
    let said: String = String::from_utf8_lossy(body).trim().chars().take(ANSWER_SHOWN_MAX).collect();
    let between = if said.is_empty() { "" } else { ": " };
    format!("status {}{between}{}", status.as_u16(), said.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_in_step_report_when_a_period_begins() {
        let period = Duration::from_secs(5);
        let left = |unix_ms| left(Duration::from_millis(unix_ms), period).as_millis();
        assert_eq!([0, 1, 4_999, 5_000, 1_800_000_000_250].map(left), [5_000, 4_999, 1, 5_000, 4_750]);
    }

    #[test]
    fn what_a_director_says_against_a_report_is_told_in_one_line() {
        assert_eq!(refusal(StatusCode::FORBIDDEN, b""), "status 403");
        let told = refusal(StatusCode::BAD_REQUEST, b"no\n\x1b[31mmore ");
        assert_eq!(told, "status 400: no\\n\\u{1b}[31mmore");
        assert!(refusal(StatusCode::BAD_REQUEST, &[b'x'; 4000]).len() < 300);
    }
}
