//! Agents and directors that speak NECP, over real sockets.

mod support;

use std::fs;
use std::net::Ipv4Addr;

use evener_feedback::necp::session::{DirectorEvent, Reason};
use evener_feedback::necp::{Flows, Forwarding, Port, Prefix, Protocol, Service};
use support::{Heard, SECRET, director, folder, secret_file, start, until};

const PORT: Port = Port { protocol: Protocol::Tcp, number: 80 };

fn web(forwarding: Forwarding) -> Service {
    Service { forwarding, port: PORT }
}

/// An agent with one service, of whose jobs and health a program tells.
fn agent(director: std::net::SocketAddr, more: &str, says: &str) -> support::Running {
    start(&format!(
        "director = \"necp://{director}\"\nservice = \"tcp/80,name=web\"\n{more}\n\
         [[source]]\nservice = \"web\"\nprogram = {{ run = [\"/bin/sh\", \"-c\", \"{says}\"] }}\n"
    ))
}

#[tokio::test]
async fn a_director_hears_of_services_and_how_they_are_until_they_stop() {
    let folder = folder();
    let keys = secret_file(folder.path(), "keys", &format!("ours {SECRET}\n"));
    let mut director = director(None, &["another, longer than 16", SECRET], None).await;
    let agent =
        agent(director.address, &format!("keys = {keys:?}"), "echo jobs=3; echo health=40; echo load=0.25");
    director.wait_for_event(DirectorEvent::Opened).await;
    director.wait_for_event(DirectorEvent::Started(web(Forwarding::Layer3))).await;
    let values = director
        .wait_for(|heard| match heard {
            Heard::Event(DirectorEvent::Reported { port, values, .. }) if *port == PORT => Some(*values),
            _ => None,
        })
        .await;
    assert_eq!((values.jobs, values.cpu_load_milli, values.queue), (Some(3), Some(250), None));
    assert_eq!(values.health.map(|health| health.value()), Some(40));
    agent.end().await;
    director.wait_for_event(DirectorEvent::Stopped(PORT)).await;
    director.wait_for_event(DirectorEvent::Ended(Reason::Closed)).await;
}

#[tokio::test]
async fn a_director_with_another_key_is_not_reported_to() {
    let folder = folder();
    let keys = secret_file(folder.path(), "keys", &format!("ours {SECRET}\n"));
    let mut director = director(None, &["another, longer than 16"], None).await;
    let agent = agent(director.address, &format!("keys = {keys:?}"), "echo jobs=3");
    // It tries again and again, and is never let in.
    for _ in 0..3 {
        director.wait_for(|heard| (*heard == Heard::Accepted).then_some(())).await;
    }
    agent.end().await;
    let events = director.so_far().await;
    assert!(!events.contains(&Heard::Event(DirectorEvent::Opened)), "{events:?}");
}

#[tokio::test]
async fn an_agent_without_a_key_is_not_let_in_where_keys_are_asked_for() {
    let mut director = director(None, &[SECRET], None).await;
    let agent = agent(director.address, "", "echo jobs=3");
    for _ in 0..3 {
        director.wait_for(|heard| (*heard == Heard::Accepted).then_some(())).await;
    }
    agent.end().await;
    let events = director.so_far().await;
    assert!(!events.contains(&Heard::Event(DirectorEvent::Opened)), "{events:?}");
}

#[tokio::test]
async fn a_director_that_was_restarted_is_told_all_again() {
    let mut first = director(None, &[], None).await;
    let agent = agent(first.address, "", "echo jobs=3");
    first.wait_for_event(DirectorEvent::Started(web(Forwarding::Layer3))).await;
    let address = first.address;
    drop(first);
    let mut second = director(Some(address), &[], None).await;
    second.wait_for_event(DirectorEvent::Started(web(Forwarding::Layer3))).await;
    agent.end().await;
    second.wait_for_event(DirectorEvent::Stopped(PORT)).await;
}

#[tokio::test]
async fn each_of_several_directors_is_told() {
    let (mut one, mut other) = (director(None, &[], None).await, director(None, &[], None).await);
    let agent = start(&format!(
        "director = [\"necp://{}\", \"necp://{}\"]\nservice = \"80,forwarding=direct,start=always\"\n",
        one.address, other.address
    ));
    one.wait_for_event(DirectorEvent::Started(web(Forwarding::Layer2))).await;
    other.wait_for_event(DirectorEvent::Started(web(Forwarding::Layer2))).await;
    agent.end().await;
    one.wait_for_event(DirectorEvent::Stopped(PORT)).await;
    other.wait_for_event(DirectorEvent::Stopped(PORT)).await;
}

#[tokio::test]
async fn a_service_is_offered_once_it_is_well() {
    let folder = folder();
    let path = folder.path().join("health");
    fs::write(&path, "health=0").expect("written");
    let mut director = director(None, &[], None).await;
    let says = format!("cat {}", path.display());
    let agent = agent(director.address, "listen = \"127.0.0.1:0\"", &says);
    director.wait_for_event(DirectorEvent::Opened).await;
    let http = agent.http.expect("it listens");
    until(|| support::get(http, "/load"), |(status, body)| *status == 200 && body.contains("\"health\":0"))
        .await;
    let events = director.so_far().await;
    assert!(
        !events.iter().any(|heard| matches!(heard, Heard::Event(DirectorEvent::Started(_)))),
        "{events:?}"
    );
    fs::write(&path, "health=80").expect("written");
    director.wait_for_event(DirectorEvent::Started(web(Forwarding::Layer3))).await;
    agent.end().await;
}

#[tokio::test]
async fn exceptions_are_installed() {
    let mut director = director(None, &[], None).await;
    let except = "except = [{ source = \"10.1.0.0/16\", protocol = \"tcp\", port = 80 }]";
    let agent = agent(director.address, except, "echo jobs=3");
    director.wait_for_event(DirectorEvent::Started(web(Forwarding::Layer3))).await;
    let installed: Vec<_> = {
        let exceptions = director.exceptions.lock().expect("not poisoned");
        exceptions.iter().map(|(owner, exception)| (owner.to_string(), exception.flows)).collect()
    };
    let source = Prefix::new(Ipv4Addr::new(10, 1, 0, 0), 16).expect("a prefix");
    let flows = Flows { source, destination: Prefix::ALL, protocol: 6, port: 80 };
    assert_eq!(installed, [("127.0.0.1".to_owned(), flows)]);
    agent.end().await;
}
