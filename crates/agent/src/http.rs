//! `GET /load`: reports for whoever asks over HTTP; `GET /nodes`: what all nodes said last.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use evener_feedback::json::{self, Said};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::datagrams::Heard;
use crate::latest::Latest;
use crate::net;

/// Connections at the most; more wait.
const CONNECTIONS_MAX: usize = 64;
/// How long a head may take; also how long a connection may be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a head at the most.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Answers for ever.
pub(crate) async fn answer(listener: TcpListener, latest: Latest, heard: Option<Heard>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let shared = Arc::new((latest, heard));
    loop {
        let place = places.clone().acquire_owned().await.expect("never closed");
        let stream = net::accept(&listener).await;
        let shared = shared.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let response = respond(&request, &shared.0, shared.1.as_ref());
                async move { Ok::<_, Infallible>(response) }
            });
            let mut connection = http1::Builder::new();
            connection
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .max_buf_size(HEAD_BYTES_MAX);
            // Whoever breaks off has only himself to tell.
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
            drop(place);
        });
    }
}

fn respond(request: &Request<Incoming>, latest: &Latest, heard: Option<&Heard>) -> Response<Full<Bytes>> {
    let found = match (request.uri().path(), heard) {
        ("/load", _) => reports(&latest.said()),
        ("/nodes", Some(heard)) => reports(&heard.all(latest)),
        ("/dropped", Some(heard)) => (StatusCode::OK, heard.dropped()),
        ("/nodes" | "/dropped", None) => {
            error(StatusCode::NOT_FOUND, "no datagrams of other nodes are listened to")
        }
        _ => error(StatusCode::NOT_FOUND, "expected /load, /nodes or /dropped"),
    };
    let is_asked = matches!(*request.method(), Method::GET | Method::HEAD);
    let (status, body) = if is_asked { found } else { error(StatusCode::METHOD_NOT_ALLOWED, "expected GET") };
    let mut response = Response::builder()
        .status(status)
        .header(CONTENT_TYPE, "application/json")
        .header(CACHE_CONTROL, "no-store");
    if !is_asked {
        response = response.header(ALLOW, "GET, HEAD");
    }
    response.body(Full::new(body.into())).expect("a valid response")
}

fn reports(said: &[Said]) -> (StatusCode, Vec<u8>) {
    if said.is_empty() {
        return error(StatusCode::SERVICE_UNAVAILABLE, "nothing is known now");
    }
    let mut body = Vec::new();
    json::write(&mut body, said);
    (StatusCode::OK, body)
}

fn error(status: StatusCode, what: &str) -> (StatusCode, Vec<u8>) {
    (status, format!("{{\"error\":\"{what}\"}}").into_bytes())
}
