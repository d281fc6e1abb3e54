//! Reports that nodes post as JSON: `POST /report` on an HTTP listener of their own.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use evener_feedback::datagram::{self, Dropped};
use evener_feedback::json::{self, BODY_BYTES_MAX, Said};
use evener_feedback::signature::{self, Verifier};
use evener_trust::Key;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use serde_json::json;
use subtle::ConstantTimeEq;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::director::Director;
use crate::feedback::credentials::{Credentials, Speaker, nodes_meant};
use crate::feedback::refusal::Refusal;
use crate::feedback::{Dialect, NodeRef, transports};

/// Connections at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 2048;
/// Bytes of a request's head at the most.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// How long a request's head may take, and the pause before it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a body may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long TLS may take to begin.
const TLS_TIMEOUT: Duration = Duration::from_secs(10);
/// How far the clock of who signs may be off.
const WINDOW: Duration = Duration::from_secs(30);
/// Nodes that sign with one key at the most.
const SIGNERS_MAX: usize = 4096;
/// What an answer says of reports that were not taken, at the most.
const REFUSED_MAX: usize = 16;

/// A listener for reports by HTTP.
#[derive(Debug)]
pub(super) struct Push {
    address: SocketAddr,
    socket: OwnedFd,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    director: Arc<Director>,
    trust: Mutex<Trust>,
    /// Ends all connections when it is dropped.
    stopping: tokio::sync::watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Trust {
    credentials: Arc<Credentials>,
    /// One for each key: whoever has it tells for whom.
    verifiers: Vec<(Key, Verifier)>,
}

impl Push {
    /// Takes reports on `socket`.
    ///
    /// # Errors
    /// If the socket is of no use.
    pub(super) fn start(
        address: SocketAddr,
        socket: OwnedFd,
        director: &Arc<Director>,
    ) -> std::io::Result<Push> {
        let listener = transports::listener(&socket)?;
        let shared = Arc::new(Shared {
            director: Arc::clone(director),
            trust: Mutex::default(),
            stopping: tokio::sync::watch::Sender::new(()),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Push { address, socket, shared, task })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Believes these from now on.
    pub(super) fn follow(&self, credentials: Arc<Credentials>) {
        let mut trust = self.shared.trust();
        let mut known = std::mem::take(&mut trust.verifiers);
        let began = unix();
        trust.verifiers = credentials
            .keys
            .iter()
            .map(|key| match known.iter().position(|(known, _)| known == key) {
                // What it has heard must not count a second time.
                Some(place) => known.swap_remove(place),
                None => {
                    let keys = vec![datagram::Key::new(key.secret())];
                    (key.clone(), Verifier::new(keys, WINDOW, SIGNERS_MAX).not_before(began))
                }
            })
            .collect();
        trust.credentials = credentials;
    }

    /// Takes no reports any more.
    pub(super) fn stop(self) {
        self.task.abort();
        self.shared.stopping.send_replace(());
    }
}

impl Shared {
    fn trust(&self) -> MutexGuard<'_, Trust> {
        self.trust.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time since 1970, by the wall clock.
pub(super) fn unix() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "reports by HTTP: accept");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (shared, mut stopping) = (Arc::clone(&shared), shared.stopping.subscribe());
        tokio::spawn(async move {
            tokio::select! {
                () = converse(&shared, stream, peer.ip().to_canonical()) => {}
                _ = stopping.changed() => {}
            }
            drop(place);
        });
    }
}

async fn converse(shared: &Arc<Shared>, stream: TcpStream, peer: IpAddr) {
    let tls = shared.trust().credentials.tls.clone();
    let Some(tls) = tls else { return serve(shared, stream, peer, false).await };
    let accepted = tokio_rustls::TlsAcceptor::from(tls).accept(stream);
    match tokio::time::timeout(TLS_TIMEOUT, accepted).await {
        Ok(Ok(stream)) => serve(shared, stream, peer, true).await,
        _ => shared.director.refuse(Dialect::Push, Refusal::Tls),
    }
}

async fn serve<S>(shared: &Arc<Shared>, stream: S, peer: IpAddr, is_private: bool)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let service = hyper::service::service_fn(|request| async move {
        let answer = answer(shared, peer, is_private, request).await;
        Ok::<_, Infallible>(answer.unwrap_or_else(Refused::response))
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    // What goes wrong with a connection is its sender's affair: reports are taken whole or not at all.
    let _ = connection.await;
}

/// Why a request was not obeyed.
#[derive(Debug, PartialEq)]
struct Refused {
    status: StatusCode,
    error: String,
    reason: Refusal,
}

impl Refused {
    fn new(status: StatusCode, reason: Refusal, error: impl Into<String>) -> Refused {
        Refused { status, error: error.into(), reason }
    }

    fn response(self) -> Response<Full<Bytes>> {
        let mut response = said(self.status, &json!({ "error": self.error }));
        let headers = response.headers_mut();
        match self.status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::METHOD_NOT_ALLOWED => {
                headers.insert(header::ALLOW, HeaderValue::from_static("POST"));
            }
            // What is left of a body is not worth reading.
            StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}

fn said(status: StatusCode, body: &impl Serialize) -> Response<Full<Bytes>> {
    let body = serde_json::to_vec(body).expect("words and numbers can be written");
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

async fn answer<B>(
    shared: &Shared,
    peer: IpAddr,
    is_private: bool,
    request: Request<B>,
) -> Result<Response<Full<Bytes>>, Refused>
where
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static>,
{
    let result = take(shared, peer, is_private, request).await;
    if let Err(refused) = &result {
        shared.director.refuse(Dialect::Push, refused.reason);
        tracing::debug!(%peer, error = refused.error, "a push was refused");
    }
    result
}

async fn take<B>(
    shared: &Shared,
    peer: IpAddr,
    is_private: bool,
    request: Request<B>,
) -> Result<Response<Full<Bytes>>, Refused>
where
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync + 'static>,
{
    if request.uri().path() != "/report" {
        return Err(Refused::new(StatusCode::NOT_FOUND, Refusal::Form, "there is only POST /report here"));
    }
    if request.method() != Method::POST {
        return Err(Refused::new(StatusCode::METHOD_NOT_ALLOWED, Refusal::Form, "expected POST"));
    }
    let (head, body) = request.into_parts();
    let body = match tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, BODY_BYTES_MAX).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let error = format!("a body has at most {BODY_BYTES_MAX} bytes");
            return Err(Refused::new(StatusCode::PAYLOAD_TOO_LARGE, Refusal::Form, error));
        }
        Ok(Err(error)) => {
            return Err(Refused::new(StatusCode::BAD_REQUEST, Refusal::Form, error.to_string()));
        }
        Err(_) => {
            let error = format!("the body did not come within {BODY_TIMEOUT:?}");
            return Err(Refused::new(StatusCode::REQUEST_TIMEOUT, Refusal::Form, error));
        }
    };
    let sender = authenticate(&mut shared.trust(), peer, is_private, &head.headers, &body, unix())?;
    let received_at = shared.director.now();
    let all = json::parse(&body)
        .map_err(|fault| Refused::new(StatusCode::BAD_REQUEST, Refusal::Form, fault.to_string()))?;
    let mut outcome = Outcome::default();
    for (place, said) in all.iter().enumerate() {
        match nodes_of(&shared.director, peer, &sender, said) {
            Ok(nodes) => {
                for node in nodes {
                    shared.director.reported(node, Dialect::Push, said.report(received_at));
                }
                outcome.taken += 1;
            }
            Err(refused) => outcome.refuse(place, refused, &shared.director),
        }
    }
    outcome.result(&shared.director)
}

/// Who sends, and the name that it signed with.
#[derive(Debug, PartialEq)]
struct Sender {
    speaker: Speaker,
    name: Option<String>,
}

/// Finds out who sent a request.
fn authenticate(
    trust: &mut Trust,
    peer: IpAddr,
    is_private: bool,
    headers: &HeaderMap,
    body: &[u8],
    unix: Duration,
) -> Result<Sender, Refused> {
    let wrong = |reason, error: &str| Err(Refused::new(StatusCode::UNAUTHORIZED, reason, error));
    if trust.verifiers.is_empty() {
        return Ok(Sender { speaker: Speaker::at(peer), name: None });
    }
    if let Some(value) = headers.get(signature::HEADER) {
        let value = value.to_str().unwrap_or_default();
        let mut result = Err(Dropped::Signature);
        for (key, verifier) in &mut trust.verifiers {
            result = verifier.verify(unix, value, body).map(|name| (Speaker::with(key), name.to_owned()));
            if result != Err(Dropped::Signature) {
                break;
            }
        }
        return match result {
            Ok((speaker, name)) => Ok(Sender { speaker, name: Some(name) }),
            Err(Dropped::Form) => wrong(Refusal::Form, "expected a signature: v1 STAMP SIGNATURE NODE"),
            Err(Dropped::Time) => {
                wrong(Refusal::Time, "signed at another time: clocks must agree within 30 s")
            }
            Err(Dropped::Replay) => wrong(Refusal::Replay, "this signature was used before, or a later one"),
            Err(Dropped::Crowded) => wrong(Refusal::Crowded, "too many senders"),
            Err(_) => wrong(Refusal::Key, "none of the keys made this signature"),
        };
    }
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return wrong(
            Refusal::Key,
            "expected a signature (header evener-signature), or Authorization: Bearer SECRET",
        );
    };
    if !is_private && !peer.is_loopback() {
        return wrong(Refusal::Key, "a secret in plain HTTP is none any more: sign, or use HTTPS");
    }
    let secret = value.as_bytes().strip_prefix(b"Bearer ").unwrap_or_default();
    // Each is compared whole, whichever it is.
    let mut speaker = None;
    for (key, _) in &trust.verifiers {
        if bool::from(key.secret().ct_eq(secret)) {
            speaker = Some(Speaker::with(key));
        }
    }
    match speaker {
        Some(speaker) => Ok(Sender { speaker, name: None }),
        None => wrong(Refusal::Key, "none of the keys has this secret"),
    }
}

/// The nodes that a report is about, if the sender may speak of them.
fn nodes_of(
    director: &Director,
    peer: IpAddr,
    sender: &Sender,
    said: &Said,
) -> Result<Vec<NodeRef>, Refused> {
    let name = said.node.as_deref().or(sender.name.as_deref());
    let port = said.service.map(|service| service.number);
    let mut nodes = nodes_meant(director, Dialect::Push, name, port, peer);
    if nodes.is_empty() {
        let whose =
            name.map_or_else(|| format!("at {peer}"), |name| format!("called \"{name}\" or at {peer}"));
        let what = said.service.map_or_else(String::new, |service| format!(" with the service {service}"));
        let error = format!("there is no node {whose}{what} in a pool that takes pushed reports");
        return Err(Refused::new(StatusCode::NOT_FOUND, Refusal::Unknown, error));
    }
    nodes.retain(|node| sender.speaker.may_speak_of(director, *node));
    if nodes.is_empty() {
        let error = "the sender may not speak of this node";
        return Err(Refused::new(StatusCode::FORBIDDEN, Refusal::Foreign, error));
    }
    Ok(nodes)
}

/// What became of the reports of a push.
#[derive(Debug, Default, Serialize)]
struct Outcome {
    taken: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<RefusedReport>,
    #[serde(skip)]
    first: Option<Refused>,
}

/// A report that was not taken, and why.
#[derive(Debug, Serialize)]
struct RefusedReport {
    /// From 0.
    report: usize,
    error: String,
}

impl Outcome {
    fn refuse(&mut self, report: usize, refused: Refused, director: &Director) {
        if self.refused.len() < REFUSED_MAX {
            self.refused.push(RefusedReport { report, error: refused.error.clone() });
        }
        match self.first {
            // Counted with the answer, if that is a refusal.
            None => self.first = Some(refused),
            Some(_) => director.refuse(Dialect::Push, refused.reason),
        }
    }

    fn result(mut self, director: &Director) -> Result<Response<Full<Bytes>>, Refused> {
        match self.first.take() {
            Some(refused) if self.taken == 0 => return Err(refused),
            Some(refused) => director.refuse(Dialect::Push, refused.reason),
            None => {}
        }
        Ok(said(StatusCode::OK, &self))
    }
}

#[cfg(test)]
mod tests {
    use evener_feedback::signature::Signer;

    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);
    const BODY: &[u8] = b"{\"load\":0.5}";

    /// A director that knows the key `all` and the key that is the rat's own.
    fn trust() -> Trust {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        std::fs::write(&path, "all secret-of-everybody\nnode:rat#2 secret-of-the-rat\n").unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let keys = evener_trust::Keys::read(&path).unwrap();
        let verifier = |key: &Key| Verifier::new(vec![datagram::Key::new(key.secret())], WINDOW, 8);
        Trust {
            credentials: Arc::default(),
            verifiers: keys.iter().map(|key| (key.clone(), verifier(key))).collect(),
        }
    }

    fn ask(
        trust: &mut Trust,
        peer: &str,
        is_private: bool,
        name: &str,
        value: &str,
    ) -> Result<Sender, Refusal> {
        let mut headers = HeaderMap::new();
        headers
            .insert(hyper::header::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        let sender = authenticate(trust, peer.parse().unwrap(), is_private, &headers, BODY, NOW);
        sender.map_err(|refused| refused.reason)
    }

    #[test]
    fn a_signature_says_who_sends_and_counts_once() {
        let mut trust = trust();
        let sign = |secret: &str, name| {
            Signer::new(datagram::Key::new(secret.as_bytes()), name).unwrap().sign(NOW, BODY)
        };
        let header = signature::HEADER;
        let (all, rat, wrong) = (
            sign("secret-of-everybody", "mole"),
            sign("secret-of-the-rat", "rat"),
            sign("another-secret-of-nobody", "rat"),
        );
        let named = |speaker, name: &str| Ok(Sender { speaker, name: Some(name.into()) });
        assert_eq!(ask(&mut trust, "10.0.0.1", false, header, &all), named(Speaker::Any, "mole"));
        assert_eq!(ask(&mut trust, "10.0.0.1", false, header, &all), Err(Refusal::Replay));
        assert_eq!(
            ask(&mut trust, "10.0.0.1", false, header, &rat),
            named(Speaker::Named("rat".into()), "rat")
        );
        assert_eq!(ask(&mut trust, "10.0.0.1", false, header, &wrong), Err(Refusal::Key));
        assert_eq!(ask(&mut trust, "10.0.0.1", false, header, "v2"), Err(Refusal::Form));
    }

    #[test]
    fn a_secret_is_taken_where_nobody_else_can_read_it() {
        let mut trust = trust();
        let mut ask = |peer, is_private, value| ask(&mut trust, peer, is_private, "authorization", value);
        let sender = |speaker| Ok(Sender { speaker, name: None });
        assert_eq!(ask("10.0.0.1", true, "Bearer secret-of-everybody"), sender(Speaker::Any));
        assert_eq!(ask("127.0.0.1", false, "Bearer secret-of-the-rat"), sender(Speaker::Named("rat".into())));
        assert_eq!(ask("10.0.0.1", false, "Bearer secret-of-everybody"), Err(Refusal::Key));
        for wrong in
            ["Bearer secret-of-everybod", "Bearer ", "Basic secret-of-everybody", "secret-of-everybody"]
        {
            assert_eq!(ask("10.0.0.1", true, wrong), Err(Refusal::Key), "{wrong}");
        }
        assert_eq!(ask("127.0.0.1", false, ""), Err(Refusal::Key), "also on this machine");
    }

    #[test]
    fn without_keys_each_speaks_for_itself() {
        let mut trust = Trust::default();
        let mut ask = |peer| ask(&mut trust, peer, false, "x", "").map(|sender| sender.speaker);
        assert_eq!(ask("127.0.0.1"), Ok(Speaker::Any));
        assert_eq!(ask("10.0.0.1"), Ok(Speaker::At("10.0.0.1".parse().unwrap())));
    }
}
