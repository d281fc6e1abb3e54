use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use thiserror::Error;

/// Where requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where to connect.
    pub address: SocketAddr,
    /// What the Host header says.
    pub host: String,
    /// Path and query; each `{n}` in it becomes the number of the request, from 0.
    pub path: String,
}

/// Not a URL that load can be sent to.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TargetError {
    /// Another scheme than http.
    #[error("{0}: expected a URL that begins with http://")]
    Scheme(String),
    /// A character that would break the request.
    #[error("{0}: a URL holds no spaces or control characters")]
    Character(String),
    /// No address.
    #[error("{host}: expected HOST[:PORT] that resolves to an address: {reason}")]
    Host {
        /// What was given.
        host: String,
        /// What the resolver said.
        reason: String,
    },
}

impl Target {
    /// Appends the request with this number.
    pub(crate) fn write(&self, number: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(b"GET ");
        let mut parts = self.path.split("{n}");
        out.extend_from_slice(parts.next().unwrap_or("/").as_bytes());
        for part in parts {
            out.extend_from_slice(number.to_string().as_bytes());
            out.extend_from_slice(part.as_bytes());
        }
        out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
        out.extend_from_slice(self.host.as_bytes());
        out.extend_from_slice(b"\r\nUser-Agent: evener\r\n\r\n");
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(url: &str) -> Result<Target, TargetError> {
        if url.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(TargetError::Character(url.escape_debug().to_string()));
        }
        let rest = url.strip_prefix("http://").ok_or_else(|| TargetError::Scheme(url.to_string()))?;
        let rest = rest.split('#').next().unwrap_or(rest);
        let (host, path) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let path = if path.starts_with('?') { format!("/{path}") } else { path.to_string() };
        let named = |reason: String| TargetError::Host { host: host.to_string(), reason };
        let has_port =
            host.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
        let resolved = if has_port { host.to_socket_addrs() } else { format!("{host}:80").to_socket_addrs() };
        let address = resolved
            .map_err(|error| named(error.to_string()))?
            .next()
            .ok_or_else(|| named("it has no address".to_string()))?;
        Ok(Target { address, host: host.to_string(), path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let target: Target = "http://127.0.0.1:8080/job/{n}?x=1#part".parse().unwrap();
        assert_eq!(target.address, "127.0.0.1:8080".parse().unwrap());
        assert_eq!((target.host.as_str(), target.path.as_str()), ("127.0.0.1:8080", "/job/{n}?x=1"));
        let mut request = Vec::new();
        target.write(12, &mut request);
        assert!(request.starts_with(b"GET /job/12?x=1 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n"));
        assert_eq!("http://[::1]".parse::<Target>().unwrap().address, "[::1]:80".parse().unwrap());
        assert_eq!("http://127.0.0.1".parse::<Target>().unwrap().path, "/");
    }

    #[test]
    fn other_urls_are_refused_with_a_reason() {
        let reason = |url: &str| url.parse::<Target>().unwrap_err().to_string();
        assert!(reason("https://127.0.0.1/").contains("begins with http://"));
        assert!(reason("http://127.0.0.1/a b").contains("no spaces"));
        assert!(reason("http://").contains("HOST[:PORT]"));
    }
}
