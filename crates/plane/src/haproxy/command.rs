//! What HAProxy is told: one line each.

use std::fmt;
use std::net::SocketAddr;

/// A command of the runtime API. Names are such as HAProxy gave them ([`is_name`](super::answer::is_name)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// To end each answer with a prompt, and to wait for the next command.
    Prompt,
    /// Which process it is.
    ShowInfo,
    /// The servers of a proxy.
    ShowServers(&'a str),
    /// The sessions on the servers of a proxy.
    ShowSessions(&'a str),
    /// A server's weight, 0–256.
    Weight(&'a str, &'a str, u32),
    /// A server takes sessions.
    Ready(&'a str, &'a str),
    /// A server gets no new sessions but those of clients that are bound to it.
    Drain(&'a str, &'a str),
    /// A server gets none.
    Maintain(&'a str, &'a str),
    /// A new server, in maintenance.
    Add(&'a str, &'a str, SocketAddr, u32, &'a str),
    /// Health checks of a new server.
    EnableHealth(&'a str, &'a str),
    /// Agent checks of a new server.
    EnableAgent(&'a str, &'a str),
    /// A server goes, which has no session and is in maintenance.
    Delete(&'a str, &'a str),
}

impl Command<'_> {
    /// What HAProxy says when it has obeyed, apart from blanks.
    pub fn done(&self) -> &'static str {
        match self {
            Command::Add(..) => "New server registered.",
            Command::Delete(..) => "Server deleted.",
            _ => "",
        }
    }
}

impl fmt::Display for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Prompt => f.write_str("prompt"),
            Command::ShowInfo => f.write_str("show info"),
            Command::ShowServers(proxy) => write!(f, "show servers state {proxy}"),
            // Type 4: servers; all of them.
            Command::ShowSessions(proxy) => write!(f, "show stat {proxy} 4 -1"),
            Command::Weight(proxy, server, weight) => {
                write!(f, "set server {proxy}/{server} weight {weight}")
            }
            Command::Ready(proxy, server) => write!(f, "set server {proxy}/{server} state ready"),
            Command::Drain(proxy, server) => write!(f, "set server {proxy}/{server} state drain"),
            Command::Maintain(proxy, server) => write!(f, "set server {proxy}/{server} state maint"),
            Command::Add(proxy, server, address, weight, options) => {
                let space = if options.is_empty() { "" } else { " " };
                write!(f, "add server {proxy}/{server} {address} weight {weight}{space}{options}")
            }
            Command::EnableHealth(proxy, server) => write!(f, "enable health {proxy}/{server}"),
            Command::EnableAgent(proxy, server) => write!(f, "enable agent {proxy}/{server}"),
            Command::Delete(proxy, server) => write!(f, "del server {proxy}/{server}"),
        }
    }
}
