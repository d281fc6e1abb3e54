//! Speaks to the admin API of a running director.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// Longer than any command takes: reloading waits for the workers, an upgrade for a new process.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Where a director's admin API listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp(String),
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err("expected a path after \"unix:\"".to_string()),
                path => Ok(Address::Unix(path.into())),
            };
        }
        let text = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        match text.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() => {
                let host = if host.is_empty() { "127.0.0.1" } else { host };
                Ok(Address::Tcp(format!("{host}:{port}")))
            }
            _ => Err("expected HOST:PORT or unix:PATH".to_string()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => f.write_str(address),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A client of the admin API: one connection for each call.
#[derive(Clone, Debug)]
pub(crate) struct Admin {
    address: Address,
}

/// What the API answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

impl Answer {
    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as a value.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        serde_json::from_slice(&self.body).context(
            "the answer is not what this version expects: are evener and the director of one version?",
        )
    }

    /// The `error` that the API gave, or all it said.
    pub(crate) fn error(&self) -> String {
        let value: Option<serde_json::Value> = serde_json::from_slice(&self.body).ok();
        let told = value.as_ref().and_then(|value| value["error"].as_str());
        match told {
            Some(error) => error.to_string(),
            None => format!("{} {}", self.status, self.text().trim()),
        }
    }
}

impl Admin {
    pub(crate) fn new(address: Address) -> Admin {
        Admin { address }
    }

    /// Reads a resource; errors of the API are errors.
    pub(crate) fn read(&self, path: &str) -> anyhow::Result<Answer> {
        let answer = self.ask(path)?;
        if !answer.status.is_success() {
            bail!("{}", answer.error());
        }
        Ok(answer)
    }

    /// Reads a resource, whatever its status.
    pub(crate) fn ask(&self, path: &str) -> anyhow::Result<Answer> {
        self.call(Method::GET, path, Bytes::new())
    }

    /// Asks for a change; errors of the API are errors.
    pub(crate) fn change(&self, path: &str, body: Option<&serde_json::Value>) -> anyhow::Result<Answer> {
        let body = body.map_or_else(Bytes::new, |body| body.to_string().into());
        let answer = self.call(Method::POST, path, body)?;
        if !answer.status.is_success() {
            bail!("{}", answer.error());
        }
        Ok(answer)
    }

    fn call(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<Answer> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            tokio::time::timeout(TIMEOUT, self.exchange(method, path, body))
                .await
                .with_context(|| format!("no answer from {} within {} s", self.address, TIMEOUT.as_secs()))?
        })
    }

    async fn exchange(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<Answer> {
        let nobody = || {
            format!(
                "cannot reach a director at {address}: is it running? Start it with --admin {address}, or with \
                 [admin] listen = \"{address}\" in its configuration; name another address with --admin or \
                 EVENER_ADMIN",
                address = self.address
            )
        };
        match &self.address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address).await.with_context(nobody)?;
                send(stream, address, method, path, body).await
            }
            Address::Unix(socket) => {
                let stream = UnixStream::connect(socket).await.with_context(nobody)?;
                send(stream, "localhost", method, path, body).await
            }
        }
    }
}

async fn send(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    host: &str,
    method: Method,
    path: &str,
    body: Bytes,
) -> anyhow::Result<Answer> {
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("Host", host)
        .header("Content-Type", "application/json")
        .body(Full::new(body))?;
    let response = sender.send_request(request).await.context("the director closed the connection")?;
    let status = response.status();
    let body = response.into_body().collect().await.context("the director closed the connection")?.to_bytes();
    Ok(Answer { status, body })
}

/// A name as one segment of a path.
pub(crate) fn segment(name: &str) -> String {
    let mut out = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b':' => {
                out.push(char::from(byte))
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_kinds() {
        let shown = |text: &str| text.parse::<Address>().map(|address| address.to_string());
        assert_eq!(shown("127.0.0.1:9900").unwrap(), "127.0.0.1:9900");
        assert_eq!(shown(":9900").unwrap(), "127.0.0.1:9900");
        assert_eq!(shown("http://[::1]:9900/").unwrap(), "[::1]:9900");
        assert_eq!(shown("unix:/run/evener/admin.sock").unwrap(), "unix:/run/evener/admin.sock");
        assert!(shown("127.0.0.1").is_err());
        assert!(shown("unix:").is_err());
    }

    #[test]
    fn names_are_escaped_in_paths() {
        assert_eq!(segment("10.0.0.1:80"), "10.0.0.1:80");
        assert_eq!(segment("a/b?c d"), "a%2Fb%3Fc%20d");
    }
}
