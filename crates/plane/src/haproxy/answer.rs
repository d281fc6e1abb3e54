//! What HAProxy answers. Pure: bytes in, values out; what is not understood whole is refused.

use std::collections::BTreeSet;
use std::net::IpAddr;

use thiserror::Error;

/// Bytes of an answer at the most: room for some 30,000 servers.
pub const ANSWER_BYTES_MAX: usize = 4 << 20;
/// What ends an answer, as a connection is asked for it.
pub const PROMPT: &[u8] = b"\n> ";
/// Characters that are kept of a refusal.
const REFUSAL_CHARS_MAX: usize = 200;
/// HAProxy's limit of a server's weight.
const WEIGHT_MAX: u32 = 256;

/// What is wrong with an answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// HAProxy said, in words, why it does not.
    #[error("{0}")]
    Refused(Refusal),
    /// It is not UTF-8.
    #[error("an answer that is no text")]
    Text,
    /// It has another form than is known.
    #[error("an answer of another form than HAProxy's version 1 of server states")]
    Version,
    /// A column is missing.
    #[error("an answer without a column {0}")]
    Column(&'static str),
    /// A line cannot be read.
    #[error("an answer that cannot be read in its line {0}")]
    Line(usize),
    /// A name is there twice.
    #[error("an answer with the same server twice, in its line {0}")]
    Twice(usize),
    /// A line is missing.
    #[error("an answer without {0}")]
    Missing(&'static str),
}

/// Why HAProxy does not do what it was told.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// There is no such proxy.
    #[error("HAProxy has no such proxy (its section backend or listen)")]
    NoProxy,
    /// The socket does not allow it.
    #[error("HAProxy's socket does not allow it: it needs \"level admin\"")]
    Denied,
    /// The proxy's algorithm has weights that cannot change.
    #[error("weights do not change while HAProxy runs under the proxy's balance algorithm")]
    Static,
    /// The server has connections yet.
    #[error("the server has connections yet")]
    Busy,
    /// Anything else, in HAProxy's words.
    #[error("HAProxy says: {0}")]
    Other(String),
}

/// A server of a proxy, as HAProxy has it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// Where it is; `None` for a path, or a name that is not resolved.
    pub address: Option<IpAddr>,
    /// Its port; 0: that to which the client connected.
    pub port: u16,
    /// How it works.
    pub operation: Operation,
    /// What its operators want of it.
    pub admin: Admin,
    /// Its weight, 0–256.
    pub weight: u32,
    /// Its weight in HAProxy's configuration.
    pub initial_weight: u32,
}

/// How a server works, as HAProxy's checks see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It does not.
    Stopped,
    /// It has just begun to, and gets less than its share.
    Starting,
    /// It does.
    Running,
    /// It does, and is to get no new sessions.
    Stopping,
}

/// What operators want of a server: HAProxy's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admin(u32);

impl Admin {
    /// Nothing in particular.
    pub const READY: Admin = Admin(0);
    const MAINTENANCE: u32 = 0x01;
    const DRAIN: u32 = 0x08;

    /// Whether it was set to drain: its sessions go on, new ones go elsewhere.
    pub fn drains(self) -> bool {
        self.0 & Admin::DRAIN != 0
    }

    /// Whether it was set into maintenance.
    pub fn is_maintained(self) -> bool {
        self.0 & Admin::MAINTENANCE != 0
    }

    /// HAProxy's bits.
    pub fn bits(self) -> u32 {
        self.0
    }
}

impl From<u32> for Admin {
    fn from(bits: u32) -> Admin {
        Admin(bits)
    }
}

/// A process of HAProxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its version.
    pub version: String,
    /// Its number.
    pub pid: u32,
    /// When it began, by its clock.
    pub started_s: u64,
    /// Whether it serves its last connections only, as another has taken over.
    pub stopping: bool,
}

/// Reads the answer to `show servers state PROXY`.
///
/// # Errors
/// [`AnswerError`].
pub fn servers(answer: &[u8], proxy: &str) -> Result<Vec<Server>, AnswerError> {
    let text = text(answer)?;
    let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    match lines.next() {
        Some((_, "1")) => {}
        Some((_, line)) if line.bytes().all(|byte| byte.is_ascii_digit()) && !line.is_empty() => {
            return Err(AnswerError::Version);
        }
        _ => return Err(AnswerError::Refused(refusal(text))),
    }
    let header = lines.next().and_then(|(_, line)| line.strip_prefix("# ")).ok_or(AnswerError::Version)?;
    let names: Vec<&str> = header.split(' ').collect();
    let column = |name| names.iter().position(|known| *known == name).ok_or(AnswerError::Column(name));
    let [of, name, address, port, operation, admin, weight, initial] = [
        column("be_name")?,
        column("srv_name")?,
        column("srv_addr")?,
        column("srv_port")?,
        column("srv_op_state")?,
        column("srv_admin_state")?,
        column("srv_uweight")?,
        column("srv_iweight")?,
    ];
    let mut servers = Vec::new();
    let mut seen = BTreeSet::new();
    for (at, line) in lines.filter(|(_, line)| !line.is_empty()) {
        let fields: Vec<&str> = line.split(' ').collect();
        let server = || {
            if fields.len() != names.len() || fields[of] != proxy || !is_name(fields[name]) {
                return None;
            }
            let weight_of = |field: &str| field.parse().ok().filter(|weight| *weight <= WEIGHT_MAX);
            Some(Server {
                name: fields[name].to_owned(),
                address: address_of(fields[address])?,
                port: fields[port].parse().ok()?,
                operation: match fields[operation] {
                    "0" => Operation::Stopped,
                    "1" => Operation::Starting,
                    "2" => Operation::Running,
                    "3" => Operation::Stopping,
                    _ => return None,
                },
                admin: Admin(fields[admin].parse().ok()?),
                weight: weight_of(fields[weight])?,
                initial_weight: weight_of(fields[initial])?,
            })
        };
        servers.push(server().ok_or(AnswerError::Line(at))?);
        if !seen.insert(fields[name]) {
            return Err(AnswerError::Twice(at));
        }
    }
    Ok(servers)
}

/// Reads the answer to `show stat PROXY 4 -1`: sessions on and waiting for each server.
///
/// # Errors
/// [`AnswerError`].
pub fn sessions(answer: &[u8], proxy: &str) -> Result<Vec<(String, u64)>, AnswerError> {
    let text = text(answer)?;
    let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    let Some(header) = lines.next().and_then(|(_, line)| line.strip_prefix("# ")) else {
        return Err(AnswerError::Refused(refusal(text)));
    };
    // HAProxy may quote what comes later in a line; these columns have always been the first, and are never quoted.
    let first = ["pxname", "svname", "qcur", "qmax", "scur"];
    let mut names = header.split(',');
    for name in first {
        if names.next() != Some(name) {
            return Err(AnswerError::Column(name));
        }
    }
    let mut sessions = Vec::new();
    for (at, line) in lines.filter(|(_, line)| !line.is_empty()) {
        let mut fields = line.split(',');
        let fields: [&str; 5] = std::array::from_fn(|_| fields.next().unwrap_or_default());
        let [of, name, waiting, _, running] = fields;
        let count = |field: &str| field.parse::<u32>().ok().map(u64::from);
        let sum = count(waiting).zip(count(running)).map(|(waiting, running)| waiting + running);
        match sum {
            Some(sum) if of == proxy && is_name(name) => sessions.push((name.to_owned(), sum)),
            _ => return Err(AnswerError::Line(at)),
        }
    }
    Ok(sessions)
}

/// Reads the answer to `show info`.
///
/// # Errors
/// [`AnswerError`].
pub fn process(answer: &[u8]) -> Result<Process, AnswerError> {
    let text = text(answer)?;
    let value = |key| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    if value("Name").is_none() {
        return Err(AnswerError::Refused(refusal(text)));
    }
    let version = value("Version").filter(|version| version.len() <= 64 && !version.is_empty());
    let started = value("Start_time_sec").map_or(Some(0), |seconds| seconds.parse().ok());
    Ok(Process {
        version: version.ok_or(AnswerError::Missing("a version"))?.to_owned(),
        pid: value("Pid").and_then(|pid| pid.parse().ok()).ok_or(AnswerError::Missing("a process number"))?,
        started_s: started.ok_or(AnswerError::Missing("a time of its start"))?,
        stopping: value("Stopping").is_some_and(|stopping| stopping != "0"),
    })
}

/// Reads the answer to a command that changes something: nothing, or `done`, if it was obeyed.
///
/// # Errors
/// [`AnswerError::Refused`].
pub fn obeyed(answer: &[u8], done: &str) -> Result<(), AnswerError> {
    let text = text(answer)?;
    if text.trim() == done { Ok(()) } else { Err(AnswerError::Refused(refusal(text))) }
}

/// Whether HAProxy lets this be the name of a server or proxy.
pub fn is_name(name: &str) -> bool {
    let is_right = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b':' | b'_' | b'-');
    !name.is_empty() && name.bytes().all(is_right)
}

fn text(answer: &[u8]) -> Result<&str, AnswerError> {
    std::str::from_utf8(answer).map_err(|_| AnswerError::Text)
}

fn address_of(field: &str) -> Option<Option<IpAddr>> {
    match field {
        "-" => Some(None),
        _ => field.parse().ok().map(Some),
    }
}

/// HAProxy has no codes, only words.
fn refusal(text: &str) -> Refusal {
    let words = text.trim();
    if words.starts_with("Can't find backend") || words.starts_with("No such backend") {
        Refusal::NoProxy
    } else if words.starts_with("Permission denied") {
        Refusal::Denied
    } else if words.contains("static LB algorithm") {
        Refusal::Static
    } else if words.contains("still has connections") {
        Refusal::Busy
    } else {
        let line = words.lines().next().unwrap_or_default();
        let shown = line.chars().map(|c| if c.is_control() { ' ' } else { c });
        Refusal::Other(shown.take(REFUSAL_CHARS_MAX).collect())
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
