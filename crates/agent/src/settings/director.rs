//! `director`: whom to report to, and how.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use evener_feedback::necp;
use serde::Deserialize;

use super::Tls;
use super::few::Written;

const EXPECTED: &str =
    "expected a director such as necp://10.0.0.9, necps://10.0.0.9:3262 or https://10.0.0.9/report";

/// A director to report to: `"necp://10.0.0.9"`, or `{ url = "necp://10.0.0.9", keys = "/etc/evener/other.keys" }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Director {
    /// Where it is, and what it speaks.
    pub url: Url,
    /// A file with its keys, where they are others than the agent's.
    pub keys: Option<PathBuf>,
    /// Its TLS, where it is another than the agent's.
    pub tls: Option<Tls>,
}

/// Where a director is, and what it speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// What it speaks.
    pub speaks: Speaks,
    /// Whether within TLS.
    pub is_secure: bool,
    /// Its name or address; an IPv6 address without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Where reports are posted; empty with NECP.
    pub path: String,
}

/// What a director speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// NECP: it asks.
    Necp,
    /// HTTP: it is told, as JSON.
    Http,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    url: String,
    keys: Option<PathBuf>,
    tls: Option<Tls>,
}

impl Written for Director {
    type Table = Table;
    const EXPECTED: &str = "a director such as \"necp://10.0.0.9\"";
}

impl TryFrom<Table> for Director {
    type Error = String;

    fn try_from(table: Table) -> Result<Director, String> {
        Ok(Director { url: table.url.parse()?, keys: table.keys, tls: table.tls })
    }
}

impl FromStr for Director {
    type Err = String;

    fn from_str(text: &str) -> Result<Director, String> {
        Ok(Director { url: text.parse()?, keys: None, tls: None })
    }
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Url, String> {
        parse(text).ok_or_else(|| format!("{EXPECTED}, found \"{text}\""))
    }
}

fn parse(text: &str) -> Option<Url> {
    let (scheme, rest) = text.split_once("://")?;
    let (speaks, is_secure, default_port) = match scheme {
        "necp" => (Speaks::Necp, false, necp::PORT),
        "necps" => (Speaks::Necp, true, necp::PORT),
        "http" => (Speaks::Http, false, 80),
        "https" => (Speaks::Http, true, 443),
        _ => return None,
    };
    let (place, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let path = match (speaks, path) {
        (Speaks::Necp, "" | "/") => String::new(),
        (Speaks::Necp, _) => return None,
        (Speaks::Http, "" | "/") => "/report".into(),
        (Speaks::Http, path) if path.starts_with('?') => format!("/{path}"),
        (Speaks::Http, path) => path.into(),
    };
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    let (host, port) = match place.rsplit_once(':') {
        // A colon within brackets is of an address.
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok().filter(|port| *port > 0)?),
        _ => (place, default_port),
    };
    let host = match host.strip_prefix('[') {
        Some(address) => address.strip_suffix(']').filter(|address| address.contains(':'))?,
        None if host.contains(':') => return None,
        None => host,
    };
    let is_host = !host.is_empty() && is_plain(host) && !host.contains(['@', '[', ']']);
    (is_host && is_plain(&path)).then(|| Url { speaks, is_secure, host: host.into(), port, path })
}

impl Url {
    /// Host and port, as they are written: `10.0.0.9:3262`.
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match (self.speaks, self.is_secure) {
            (Speaks::Necp, false) => "necp",
            (Speaks::Necp, true) => "necps",
            (Speaks::Http, false) => "http",
            (Speaks::Http, true) => "https",
        };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}
