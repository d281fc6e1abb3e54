use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::*;
use crate::settings::Settings;

/// Far longer than anything here takes.
const DEADLINE: Duration = Duration::from_secs(20);

fn asker(source: &str) -> Asker {
    let settings: Settings = toml::from_str(&format!("[[source]]\n{source}")).expect("valid settings");
    Asker::new(&settings.sources[0].ask)
}

async fn ask(asker: &mut Asker) -> Result<Answer, String> {
    timeout(DEADLINE, asker.ask(Time::ZERO)).await.expect("an answer in time")
}

async fn jobs(asker: &mut Asker) -> Option<u32> {
    ask(asker).await.expect("an answer").jobs
}

/// Answers each question of each connection by the next of these; ends the connection where one is empty.
async fn server(answers: &'static [&'static str]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let mut answers = answers.iter();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut question = [0; 4096];
            while stream.read(&mut question).await.is_ok_and(|read| read > 0) {
                match answers.next() {
                    None | Some(&"") => break,
                    Some(answer) => stream.write_all(answer.as_bytes()).await.expect("written"),
                }
            }
        }
    });
    address
}

/// Two replies: one for each section.
const INFO: &str = "$24\r\n# C\r\nconnected_clients:4\r\n$33\r\n# S\r\ntotal_commands_processed:123\r\n";

#[tokio::test]
async fn redis_is_asked_over_one_connection_and_again_after_a_restart() {
    let address = server(&[INFO, INFO, "", INFO]).await;
    let mut redis = asker(&format!("redis = {{ address = \"{address}\" }}"));
    for _ in 0..3 {
        assert_eq!(jobs(&mut redis).await, Some(3), "without our own");
    }
}

#[tokio::test]
async fn what_redis_refuses_is_told() {
    let address = server(&["-NOAUTH Authentication required.\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n"]).await;
    let mut redis = asker(&format!("redis = {{ address = \"{address}\" }}"));
    assert_eq!(ask(&mut redis).await, Err("NOAUTH Authentication required.".into()));
    assert_eq!(ask(&mut redis).await, Err("not in the form of a reply of Redis".into()));
    assert_eq!(ask(&mut redis).await, Err("it closed the connection".into()));
}

#[tokio::test]
async fn rates_come_of_two_answers() {
    let address = server(&[
        "STAT curr_connections 3\r\nSTAT cmd_get 10\r\nEND\r\n",
        "STAT curr_connections 3\r\nSTAT cmd_get 30\r\nEND\r\n",
    ])
    .await;
    let mut memcached = asker(&format!("memcached = \"{address}\""));
    let first = memcached.ask(Time::ZERO).await.expect("an answer");
    assert_eq!((first.jobs, first.jobs_per_s), (Some(2), None));
    let second = memcached.ask(Time::ZERO + Duration::from_secs(2)).await.expect("an answer");
    assert_eq!(second.jobs_per_s, Some(10.0));
}

#[tokio::test]
async fn pages_are_read_for_what_they_say() {
    let json = "HTTP/1.1 200 OK\r\ncontent-length: 28\r\n\r\n{\"queue\":{\"length\":[7,\"x\"]}}";
    let metrics = "HTTP/1.1 200 OK\r\ncontent-length: 31\r\n\r\nrunning{m=\"a\"} 2\nrunning 2.6 \n\n";
    let status = "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n";
    let address = server(Box::leak(Box::new([json, json, json, metrics, status]))).await;
    let mut number = asker(&format!(
        "json = {{ url = \"http://{address}/s\", pointer = \"/queue/length/0\", scale = 2 }}"
    ));
    assert_eq!(jobs(&mut number).await, Some(14));
    drop(number);
    let mut text =
        asker(&format!("json = {{ url = \"http://{address}/s\", pointer = \"/queue/length/1\" }}"));
    assert_eq!(ask(&mut text).await, Err("no number at /queue/length/1".into()));
    drop(text);
    let mut nothing = asker(&format!("json = {{ url = \"http://{address}/s\", pointer = \"/x\" }}"));
    assert_eq!(ask(&mut nothing).await, Err("nothing at /x".into()));
    drop(nothing);
    let mut metric = asker(&format!(
        "prometheus = {{ url = \"http://{address}/m\", metric = \"running\", says = \"load\" }}"
    ));
    assert_eq!(ask(&mut metric).await.map(|answer| answer.load), Ok(Some(4.6)));
    assert_eq!(ask(&mut metric).await, Err("status 503".into()));
}

#[tokio::test]
async fn a_number_that_counts_up_says_how_fast() {
    let body = "content-length: 8\r\n\r\n";
    let pages = ["total 5\n", "total 25", "total 3\n"].map(|text| format!("HTTP/1.1 200 OK\r\n{body}{text}"));
    let [first, second, third] = pages.map(|page| &*page.leak());
    let address = server(Box::leak(Box::new([first, second, third]))).await;
    let mut metric = asker(&format!(
        "prometheus = {{ url = \"http://{address}/\", metric = \"total\", says = \"jobs_per_s\", rate = true, scale = 0.5 }}"
    ));
    let mut rates = Vec::new();
    for second in [0, 2, 3] {
        let answer = metric.ask(Time::ZERO + Duration::from_secs(second)).await.expect("an answer");
        rates.push(answer.jobs_per_s);
    }
    assert_eq!(rates, [None, Some(5.0), None], "none at first, and none after it began anew");
}

#[tokio::test]
async fn connections_of_a_port_are_counted() {
    for host in ["127.0.0.1:0", "[::1]:0"] {
        // A machine may have no IPv6.
        let Ok(listener) = TcpListener::bind(host).await else { continue };
        let address = listener.local_addr().expect("an address");
        let mut connections = asker(&format!("connections = {{ port = {} }}", address.port()));
        assert_eq!(jobs(&mut connections).await, Some(0));
        // More than one datagram's worth.
        let mut clients = Vec::new();
        for _ in 0..500 {
            clients.push((TcpStream::connect(address).await.expect("connected"), listener.accept().await));
        }
        assert_eq!(jobs(&mut connections).await, Some(500));
        assert!(connections.rest() > Duration::ZERO, "it took its time");
        clients.truncate(1);
        let deadline = tokio::time::Instant::now() + DEADLINE;
        while jobs(&mut connections).await != Some(1) {
            assert!(tokio::time::Instant::now() < deadline, "closed connections are still counted");
        }
        let mut less = asker(&format!("connections = {{ port = {}, less = 3 }}", address.port()));
        assert_eq!(jobs(&mut less).await, Some(0), "never less than none");
    }
}

fn shell(script: &str, more: &str) -> Asker {
    let script = toml::Value::String(script.into());
    asker(&format!("program = {{ run = [\"/bin/sh\", \"-c\", {script}]{more} }}"))
}

#[tokio::test]
async fn what_a_program_prints_is_the_answer() {
    let answer = ask(&mut shell("echo jobs=3; echo load=0.5", "")).await.expect("an answer");
    assert_eq!((answer.jobs, answer.load), (Some(3), Some(0.5)));
    let health =
        ask(&mut shell("echo 75", "")).await.map(|answer| answer.health.map(|health| health.value()));
    assert_eq!(health, Ok(Some(75)));
    let failed = ask(&mut shell("echo 75; echo out of luck >&2; exit 3", "")).await;
    assert_eq!(failed, Err("exit status: 3: out of luck".into()));
    let absent = ask(&mut asker("program = { run = [\"/nowhere\"] }")).await.expect_err("there is none");
    assert!(absent.starts_with("/nowhere: "), "{absent}");
}

#[tokio::test]
async fn an_exit_status_is_the_answer_where_that_is_said() {
    let more = ", answer = \"exit_status\"";
    let health =
        |answer: Result<Answer, String>| answer.map(|answer| answer.health.map(|health| health.value()));
    assert_eq!(health(ask(&mut shell("exit 42", more)).await), Ok(Some(42)));
    assert_eq!(ask(&mut shell("exit 127", more)).await, Err("exit status: 127".into()));
    let killed = ask(&mut shell("kill -9 $$", more)).await.expect_err("no status");
    assert!(killed.starts_with("signal: 9"), "{killed}");
}

#[tokio::test]
async fn a_program_that_prints_without_end_is_no_answer() {
    let script = "i=0; while [ $i -lt 20000 ]; do echo jobs=1; i=$((i+1)); done";
    assert_eq!(ask(&mut shell(script, "")).await, Err("it printed more than 16 KiB".into()));
}

#[tokio::test]
async fn what_a_program_leaves_running_is_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("child");
    // The child holds on to the output, which must not be waited for.
    let script = format!("sleep 1000 & echo $! > {}; echo 60", file.display());
    assert!(ask(&mut shell(&script, "")).await.is_ok());
    gone(&std::fs::read_to_string(&file).expect("its number")).await;
}

#[tokio::test]
async fn a_program_that_is_not_waited_for_is_ended_with_its_children() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("child");
    let mut slow =
        shell(&format!("sleep 1000 & echo $! > {0}.new; mv {0}.new {0}; wait", file.display()), "");
    let mut asking = Box::pin(ask(&mut slow));
    let child = loop {
        let _ = timeout(Duration::from_millis(5), &mut asking).await;
        if let Ok(child) = std::fs::read_to_string(&file) {
            break child;
        }
    };
    // As the time limit of a source does.
    drop(asking);
    gone(&child).await;
}

/// Waits until there is no such process; one that has ended and was not collected is none.
async fn gone(number: &str) {
    let stat = format!("/proc/{}/stat", number.trim());
    let deadline = tokio::time::Instant::now() + DEADLINE;
    while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(tokio::time::Instant::now() < deadline, "it still runs");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
