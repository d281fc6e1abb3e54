//! HAProxy's agent-check: whoever connects is told how the service is, in a line.

use std::sync::Arc;
use std::time::Duration;

use evener_feedback::agent_check::Answer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::latest::Latest;
use crate::net;

/// Connections at the most; more wait.
const CONNECTIONS_MAX: usize = 64;
/// How long one may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Answers for ever.
pub(crate) async fn answer(listener: TcpListener, service: Option<String>, latest: Latest) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = places.clone().acquire_owned().await.expect("never closed");
        let stream = net::accept(&listener).await;
        let line = line(service.as_deref(), &latest);
        tokio::spawn(async move {
            // Whoever is slower will ask again.
            let _ = timeout(TIMEOUT, say(stream, &line)).await;
            drop(place);
        });
    }
}

/// Nothing if the health is not known: HAProxy leaves the node as it is then.
fn line(service: Option<&str>, latest: &Latest) -> Vec<u8> {
    let mut line = Vec::new();
    if let Some(health) = latest.report(service).and_then(|report| report.health) {
        Answer::of_health(health).write(&mut line);
    }
    line
}

async fn say(mut stream: TcpStream, line: &[u8]) -> std::io::Result<()> {
    stream.write_all(line).await?;
    stream.shutdown().await?;
    // HAProxy may say something first (agent-send). Closed with that unread, the line could be lost on its way.
    let mut rest = [0; 256];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}
