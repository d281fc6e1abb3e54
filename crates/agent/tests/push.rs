//! Reports that are pushed over HTTP.

mod support;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use evener_feedback::datagram::Key;
use evener_feedback::json;
use evener_feedback::signature::{self, Verifier};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use support::{DEADLINE, SECRET, folder, secret_file, start, within};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

/// What was posted.
struct Posted {
    path: String,
    signature: Option<String>,
    body: Bytes,
    connection: usize,
}

/// Takes what is posted, and answers with that status.
async fn receiver(at: &str, status: u16) -> (SocketAddr, mpsc::UnboundedReceiver<Posted>, JoinHandle<()>) {
    let listener = support::until(|| TcpListener::bind(at), Result::is_ok).await.expect("bound");
    let address = listener.local_addr().expect("bound");
    let (tell, posted) = mpsc::unbounded_channel();
    let task = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.expect("accepted");
            let (tell, connection) = (tell.clone(), connections.len());
            connections.spawn(async move {
                let service = service_fn(move |request: Request<Incoming>| {
                    let tell = tell.clone();
                    async move {
                        let (head, body) = request.into_parts();
                        let signature = head.headers.get(signature::HEADER);
                        let signature = signature.map(|value| value.to_str().expect("text").to_owned());
                        let body = body.collect().await.expect("a body").to_bytes();
                        let path = head.uri.path().to_owned();
                        let _ = tell.send(Posted { path, signature, body, connection });
                        let response =
                            Response::builder().status(status).body(Full::new(Bytes::from("no\nmore")));
                        Ok::<_, Infallible>(response.expect("valid"))
                    }
                });
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (address, posted, task)
}

fn unix() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970")
}

const SOURCE: &str = "[[source]]\nservice = \"web\"\nprogram = { run = [\"/bin/echo\", \"jobs=3\"] }\n";

#[tokio::test]
async fn reports_are_posted_signed_and_over_one_connection() {
    let folder = folder();
    let keys = secret_file(folder.path(), "keys", &format!("ours {SECRET}\n"));
    let (address, mut posted, _task) = receiver("127.0.0.1:0", 204).await;
    let agent = start(&format!(
        "node = \"rat\"\nkeys = {keys:?}\nservice = \"8080,name=web\"\ndirector = \"http://{address}\"\n{SOURCE}"
    ));
    let mut verifier = Verifier::new(vec![Key::new(SECRET.as_bytes())], DEADLINE, 8);
    for _ in 0..3 {
        let Posted { path, signature, body, connection } = within(posted.recv()).await.expect("it runs");
        assert_eq!((path.as_str(), connection), ("/report", 0));
        let signature = signature.expect("signed");
        assert_eq!(verifier.verify(unix(), &signature, &body), Ok("rat"));
        let said = json::parse(&body).expect("reports");
        let told: Vec<_> = said
            .iter()
            .map(|said| (said.node.as_deref(), said.service.map(|port| port.to_string()), said.jobs))
            .collect();
        assert_eq!(told, [(Some("rat"), None, Some(3)), (Some("rat"), Some("tcp/8080".into()), Some(3))]);
    }
    agent.end().await;
}

#[tokio::test]
async fn a_receiver_that_refuses_or_was_restarted_is_told_again() {
    let (address, mut posted, task) = receiver("127.0.0.1:0", 403).await;
    let agent = start(&format!("director = \"http://{address}/elsewhere\"\n{SOURCE}"));
    for _ in 0..2 {
        let Posted { path, signature, .. } = within(posted.recv()).await.expect("it runs");
        assert_eq!((path.as_str(), signature), ("/elsewhere", None));
    }
    task.abort();
    assert!(within(task).await.is_err());
    let (_, mut posted, _task) = receiver(&address.to_string(), 200).await;
    assert!(within(posted.recv()).await.is_some());
    agent.end().await;
}
