//! The director asks a page of each node how it is, as JSON.

use std::net::SocketAddr;

use evener_feedback::json::{self, Said};
use evener_feedback::necp::{Port, Protocol};
use evener_model::{Report, Time};

use crate::config;
use crate::feedback::asking::Useless;
use crate::feedback::refusal::Refusal;
use crate::health;

/// Asks a node's page once.
pub(super) async fn ask(
    page: &config::Pull,
    name: &str,
    node: SocketAddr,
    asked_at: Time,
) -> Result<Report, Useless> {
    let target = page.port.map_or(node, |port| SocketAddr::new(node.ip(), port));
    let answer = health::request(target, "GET", &page.path, None).await;
    let (status, body) = answer.map_err(|error| Useless::new(Refusal::Silence, error))?;
    if status != 200 {
        return Err(Useless::new(Refusal::Form, format!("status {status}")));
    }
    let all = json::parse(&body).map_err(|fault| Useless::new(Refusal::Form, fault))?;
    let said = about(&all, name, node.port());
    let said = said.ok_or_else(|| Useless::new(Refusal::Unknown, "the page says nothing of this node"))?;
    Ok(said.report(asked_at))
}

/// What a page says of the node that it was asked for: what is called by its name or by none, of its service rather than
/// of the whole node. A page that speaks of one node alone, by another name, means itself.
fn about<'a>(all: &'a [Said], name: &str, number: u16) -> Option<&'a Said> {
    let is_alone = all.iter().all(|said| said.node == all[0].node);
    let is_meant = |said: &&Said| is_alone || said.node.as_deref().is_none_or(|node| node == name);
    let of = |service: Option<Port>| all.iter().filter(is_meant).find(|said| said.service == service);
    of(Some(Port { protocol: Protocol::Tcp, number }))
        .or_else(|| of(Some(Port { protocol: Protocol::Udp, number })))
        .or_else(|| of(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(page: &str) -> Option<f32> {
        about(&json::parse(page.as_bytes()).unwrap(), "rat", 80)?.load
    }

    #[test]
    fn the_service_is_meant_before_the_node_and_nobody_elses() {
        assert_eq!(load(r#"{"load": 0.5}"#), Some(0.5));
        assert_eq!(load(r#"{"node": "host-17", "load": 0.5}"#), Some(0.5));
        assert_eq!(load(r#"[{"load": 0.5}, {"service": "tcp/80", "load": 0.7}]"#), Some(0.7));
        assert_eq!(load(r#"{"service": "tcp/81", "load": 0.7}"#), None);
        let gathered = r#"[{"node": "mole", "load": 0.1}, {"node": "rat", "load": 0.2}]"#;
        assert_eq!(load(gathered), Some(0.2));
        assert_eq!(load(&gathered.replace("rat", "toad")), None);
        assert_eq!(load("[]"), None);
    }
}
