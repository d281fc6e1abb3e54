//! Whoever asks: over HTTP, and as HAProxy does.

mod support;

use std::net::SocketAddr;

use evener_agent::Agent;
use evener_feedback::json;
use support::{folder, get, secret_file, settings, start, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What agent-check answers a HAProxy that says something first.
async fn check(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).await.expect("connected");
    stream.write_all(b"pool/rat\n").await.expect("written");
    let mut line = String::new();
    stream.read_to_string(&mut line).await.expect("read");
    line
}

const SOURCES: &str = "[[source]]\nservice = \"web\"\nprogram = { run = [\"/bin/echo\", \"75\"] }\n\
    [[source]]\nservice = \"sql\"\nprogram = { run = [\"/bin/echo\", \"health=0\"] }\n";

#[tokio::test]
async fn whoever_asks_is_told_the_newest_report_and_its_age() {
    let agent =
        start(&format!("node = \"rat\"\nlisten = \"127.0.0.1:0\"\nservice = \"80,name=web\"\n{SOURCES}"));
    let http = agent.http.expect("it listens");
    let (_, body) = until(|| get(http, "/load"), |(status, _)| *status == 200).await;
    let said = json::parse(body.as_bytes()).expect("reports");
    assert_eq!(said.iter().map(|said| said.health).collect::<Vec<_>>(), [Some(0), Some(75)]);
    assert!(said.iter().all(|said| said.node.as_deref() == Some("rat") && said.age_ms < 20_000), "{body}");
    assert_eq!(get(http, "/nodes").await.0, 404);
    assert_eq!(get(http, "/").await.0, 404);
    agent.end().await;
}

#[tokio::test]
async fn before_the_first_sample_nothing_is_said() {
    let agent = start("interval = \"1h\"\nlisten = \"127.0.0.1:0\"\nagent_check = \"127.0.0.1:0\"");
    let http = agent.http.expect("it listens");
    let (status, body) = get(http, "/load").await;
    assert_eq!((status, body.as_str()), (503, "{\"error\":\"nothing is known now\"}"));
    assert_eq!(check(agent.checks[0]).await, "");
    agent.end().await;
}

#[tokio::test]
async fn haproxy_is_told_how_each_service_is() {
    let agent = start(&format!(
        "agent_check = [{{ listen = \"127.0.0.1:0\", service = \"web\" }}, \"127.0.0.1:0,service=sql\"]\n{SOURCES}"
    ));
    let [web, sql] = agent.checks[..] else { panic!("two") };
    assert_eq!(until(|| check(web), |line| !line.is_empty()).await, "up 75%\n");
    assert_eq!(until(|| check(sql), |line| !line.is_empty()).await, "up 0%\n");
    agent.end().await;
}

#[test]
fn what_cannot_work_is_refused_before_anything_is_told() {
    let folder = folder();
    let open = folder.path().join("open");
    std::fs::write(&open, "ours 0123456789abcdef\n").expect("written");
    let good = secret_file(folder.path(), "good", "ours 0123456789abcdef\n");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let taken = taken.local_addr().expect("bound").to_string();
    let refused = [
        (format!("keys = {open:?}\ndirector = \"necp://a\"\nservice = 80"), "chmod 600"),
        ("director = \"necp://a\"".into(), "expected at least one, such as 80"),
        ("director = \"necps://a\"\nservice = 80".into(), "expected tls = {"),
        ("director = \"https://a\"".into(), "expected tls = {"),
        ("director = \"http://a\"\nupdate = \"on_access\"".into(), "http://a:80/report does not ask"),
        ("service = [80, \"80,name=web\"]".into(), "no source has service = \"web\""),
        ("service = [80, \"80,forwarding=direct\"]".into(), "there is another service tcp/80"),
        (format!("service = {:?}", (1..=65).collect::<Vec<_>>()), "at most 64 services"),
        ("agent_check = \"1,service=web\"".into(), "no source has service = \"web\""),
        ("datagrams = { to = [\"127.0.0.1:1\"] }".into(), "datagrams: expected keys"),
        (
            format!("keys = {good:?}\nupdate = \"on_access\"\ndatagrams = {{ to = [\"127.0.0.1:1\"] }}"),
            "nobody asks for datagrams",
        ),
        (format!("listen = \"{taken}\""), "Address already in use"),
    ];
    for (text, told) in refused {
        let error = Agent::prepare(settings(&text)).err().expect(&text).to_string();
        assert!(error.contains(told), "{text}: {error}");
    }
}
