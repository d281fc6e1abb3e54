//! NECP within TLS: each side must show a certificate of the authority that the other believes.

#[path = "../../../tests/src/authority.rs"]
mod authority;
mod support;

use std::path::Path;

use authority::{Authority, Identity};
use evener_feedback::necp::session::DirectorEvent;
use evener_trust::{TlsFiles, server_config};
use support::{Heard, director, folder, secret_file, start, within};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// The files of one side, whose certificate `ours` signs, and which believes `believed`.
fn side(ours: &Authority, folder: &Path, name: &str, believed: &Authority) -> TlsFiles {
    let file = |what: &str, text: &str| secret_file(folder, &format!("{name}.{what}"), text);
    let Identity { certificate, key } = ours.sign("127.0.0.1");
    TlsFiles { certificate: file("crt", &certificate), key: file("key", &key), ca: file("ca", &believed.pem) }
}

fn settings(director: std::net::SocketAddr, TlsFiles { certificate, key, ca }: &TlsFiles) -> String {
    format!(
        "director = \"necps://{director}\"\nservice = \"80,start=always\"\n\
         memory = {{ factor = 1 }}\n\
         tls = {{ certificate = {certificate:?}, key = {key:?}, ca = {ca:?} }}\n"
    )
}

#[tokio::test]
async fn sides_that_believe_each_other_speak() {
    let (folder, ours) = (folder(), Authority::new());
    let tls = server_config(&side(&ours, folder.path(), "director", &ours)).expect("good");
    let mut director = director(None, &[], Some(tls)).await;
    let agent = start(&settings(director.address, &side(&ours, folder.path(), "agent", &ours)));
    director.wait_for(|heard| matches!(heard, Heard::Event(DirectorEvent::Started(_))).then_some(())).await;
    agent.end().await;
    director.wait_for(|heard| matches!(heard, Heard::Event(DirectorEvent::Stopped(_))).then_some(())).await;
}

#[tokio::test]
async fn an_agent_of_another_authority_is_refused() {
    let (folder, ours, other) = (folder(), Authority::new(), Authority::new());
    let tls = server_config(&side(&ours, folder.path(), "director", &ours)).expect("good");
    let mut director = director(None, &[], Some(tls)).await;
    let agent = start(&settings(director.address, &side(&other, folder.path(), "agent", &ours)));
    let refused = director
        .wait_for(|heard| match heard {
            Heard::Handshake(reason) => Some(reason.clone()),
            _ => None,
        })
        .await;
    assert!(refused.starts_with("invalid peer certificate"), "{refused}");
    agent.end().await;
    let events = director.so_far().await;
    assert!(!events.iter().any(|heard| matches!(heard, Heard::Event(_))), "{events:?}");
}

#[tokio::test]
async fn a_director_of_another_authority_hears_nothing() {
    let (folder, ours, other) = (folder(), Authority::new(), Authority::new());
    let tls = server_config(&side(&other, folder.path(), "director", &ours)).expect("good");
    let mut director = director(None, &[], Some(tls)).await;
    let agent = start(&settings(director.address, &side(&ours, folder.path(), "agent", &ours)));
    let refused = director
        .wait_for(|heard| match heard {
            Heard::Handshake(reason) => Some(reason.clone()),
            _ => None,
        })
        .await;
    // The alert that the agent sent: which one depends on what it found first.
    assert!(refused.contains("alert"), "{refused}");
    agent.end().await;
    let events = director.so_far().await;
    assert!(!events.iter().any(|heard| matches!(heard, Heard::Event(_))), "{events:?}");
}

#[tokio::test]
async fn reports_are_posted_within_tls() {
    let (folder, ours) = (folder(), Authority::new());
    let tls = server_config(&side(&ours, folder.path(), "director", &ours)).expect("good");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("bound");
    let agent = start(
        &settings(address, &side(&ours, folder.path(), "agent", &ours)).replace("necps://", "https://"),
    );
    let (stream, _) = within(listener.accept()).await.expect("accepted");
    let mut stream = within(TlsAcceptor::from(tls).accept(stream)).await.expect("believed");
    let (mut posted, mut buffer) = (Vec::new(), [0; 4096]);
    while !posted.ends_with(b"}") {
        let length = within(stream.read(&mut buffer)).await.expect("read");
        assert!(length > 0, "{}", String::from_utf8_lossy(&posted));
        posted.extend_from_slice(&buffer[..length]);
    }
    assert!(posted.starts_with(b"POST /report HTTP/1.1\r\n"), "{}", String::from_utf8_lossy(&posted));
    agent.end().await;
}
