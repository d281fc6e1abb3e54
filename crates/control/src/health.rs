//! Active health checks: each node of a pool that has a check is tried at intervals, and the
//! workers are told when the verdict changes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Instant;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::config::{Check, Probe};
use crate::director::Director;

/// A body that is searched may be so long.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// The checks that run.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    running: BTreeMap<(String, String), Running>,
}

#[derive(Debug)]
struct Running {
    check: Check,
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Checks {
    /// Starts and ends checks so that those run that the director's configuration has. A node whose
    /// check did not change keeps its own.
    pub(crate) fn follow(&mut self, director: &Arc<Director>) {
        let config = director.config();
        let mut running = std::mem::take(&mut self.running);
        for pool in &config.pools {
            let Some(check) = &pool.check else { continue };
            for node in &pool.nodes {
                let key = (pool.name.clone(), node.name.clone());
                let kept = running.remove(&key).filter(|old| {
                    let is_same = old.check == *check && old.address == node.address;
                    if !is_same {
                        old.task.abort();
                    }
                    is_same
                });
                let entry = kept.unwrap_or_else(|| Running {
                    check: check.clone(),
                    address: node.address,
                    task: tokio::spawn(watch(Arc::clone(director), key.clone(), node.address, check.clone())),
                });
                self.running.insert(key, entry);
            }
        }
        for old in running.into_values() {
            old.task.abort();
        }
    }
}

/// Checks one node for ever.
async fn watch(director: Arc<Director>, (pool, node): (String, String), address: SocketAddr, check: Check) {
    let mut verdict = Verdict::default();
    let target = check.port.map_or(address, |port| SocketAddr::new(address.ip(), port));
    let mut seed = hash(&format!("{address} {node} {}", std::process::id()));
    loop {
        let started = Instant::now();
        let result = match tokio::time::timeout(check.timeout, probe(&check.probe, target, &node)).await {
            Ok(result) => result,
            Err(_) => Err(format!("no answer within {:?}", check.timeout)),
        };
        let is_good = result.is_ok();
        let reason = result.unwrap_or_else(|wrong| wrong);
        let change = verdict.take(is_good, check.rise, check.fall);
        match change {
            Some(true) => tracing::info!(pool, node, reason, "node is up"),
            Some(false) => tracing::warn!(pool, node, reason, "node is down"),
            None => {}
        }
        director.note_check(&pool, &node, address, change, reason);
        // Nodes must not all be tried at the same moment.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let jitter = 0.9 + (seed >> 40) as f64 / f64::from(1 << 24) * 0.2;
        tokio::time::sleep(check.interval.mul_f64(jitter).saturating_sub(started.elapsed())).await;
    }
}

fn hash(text: &str) -> u64 {
    evener_scheduler::hash_bytes(text.as_bytes())
}

/// Counts results in a row. The first one counts at once: a director that starts should know.
#[derive(Debug, Default)]
struct Verdict {
    up: Option<bool>,
    streak: u32,
}

impl Verdict {
    /// Takes one result; says the verdict if it changed (or is the first).
    fn take(&mut self, good: bool, rise: u32, fall: u32) -> Option<bool> {
        match self.up {
            None => self.up = Some(good),
            Some(up) if up == good => {
                self.streak = 0;
                return None;
            }
            Some(_) => {
                self.streak += 1;
                if self.streak < if good { rise } else { fall } {
                    return None;
                }
                self.up = Some(good);
            }
        }
        self.streak = 0;
        self.up
    }
}

/// Tries once: what was seen, or what was wrong.
async fn probe(probe: &Probe, target: SocketAddr, node: &str) -> Result<String, String> {
    match probe {
        Probe::Tcp => match TcpStream::connect(target).await {
            Ok(_) => Ok("accepts connections".into()),
            Err(error) => Err(format!("connect: {error}")),
        },
        Probe::Exec(words) => exec(words, target, node).await,
        Probe::Http { method, path, host, expect, body } => {
            let (status, content) = request(target, method, path, host.as_deref()).await?;
            if !expect.iter().any(|&(from, to)| (from..=to).contains(&status)) {
                return Err(format!("status {status}"));
            }
            match body {
                Some(body) if !String::from_utf8_lossy(&content).contains(body.as_str()) => {
                    Err(format!("status {status}, but the body has no \"{body}\""))
                }
                _ => Ok(format!("status {status}")),
            }
        }
    }
}

/// Asks a page once: the status, and a body within limits.
pub(crate) async fn request(
    target: SocketAddr,
    method: &str,
    path: &str,
    host: Option<&str>,
) -> Result<(u16, Bytes), String> {
    let stream = TcpStream::connect(target).await.map_err(|error| format!("connect: {error}"))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| format!("HTTP: {error}"))?;
    let connection = tokio::spawn(connection);
    let host = host.map_or_else(|| target.to_string(), str::to_owned);
    let result = async {
        let request = hyper::Request::builder()
            .method(method)
            .uri(path)
            .header("host", host)
            .header("user-agent", "evener-check")
            .header("connection", "close")
            .body(Empty::<Bytes>::new())
            .map_err(|error| error.to_string())?;
        let response = sender.send_request(request).await.map_err(|error| format!("HTTP: {error}"))?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), BODY_BYTES_MAX)
            .collect()
            .await
            .map_err(|error| format!("status {status}, then: {error}"))?;
        Ok((status, body.to_bytes()))
    };
    let result = result.await;
    connection.abort();
    result
}

async fn exec(words: &[String], target: SocketAddr, node: &str) -> Result<String, String> {
    let child = tokio::process::Command::new(&words[0])
        .args(&words[1..])
        .env("EVENER_NODE", node)
        .env("EVENER_ADDRESS", target.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // One that runs longer than its timeout ends with this future.
        .kill_on_drop(true)
        .status();
    match child.await {
        Ok(status) if status.success() => Ok("exit status 0".into()),
        Ok(status) => Err(status.to_string()),
        Err(error) => Err(format!("{}: {error}", words[0])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(results: &str, rise: u32, fall: u32) -> String {
        let mut verdict = Verdict::default();
        results
            .chars()
            .map(|result| match verdict.take(result == '+', rise, fall) {
                None => '.',
                Some(true) => 'U',
                Some(false) => 'D',
            })
            .collect()
    }

    #[test]
    fn the_first_result_counts_at_once_and_later_ones_in_a_row() {
        assert_eq!(verdicts("+++", 2, 3), "U..");
        assert_eq!(verdicts("-++", 2, 3), "D.U");
        assert_eq!(verdicts("+--+---", 2, 3), "U.....D");
        assert_eq!(verdicts("+---+-++", 2, 3), "U..D...U");
    }
}
