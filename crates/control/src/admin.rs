//! The admin API: HTTP and JSON on loopback or a UNIX socket.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use evener_model::Weight;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::config::AdminAddress;
use crate::director::{Director, DirectorError};
use crate::metrics;

/// Longer bodies are refused: the longest that makes sense is a number.
const BODY_BYTES_MAX: usize = 4096;
/// Connections at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 64;
/// A request's head, and the pause before it, may take so long.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// A connection is closed after this, whatever it does.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(600);
/// Placements that one answer holds at the most.
const PLACEMENTS_MAX: usize = 1000;

/// What the API asks of the process it runs in.
#[derive(Debug)]
pub(crate) enum Order {
    /// Read the configuration again.
    Reload(oneshot::Sender<Result<(), String>>),
    /// Let a new process take over.
    Upgrade(oneshot::Sender<Result<(), String>>),
}

/// A running admin API.
#[derive(Debug)]
pub(crate) struct Admin {
    /// The listening socket, for the next process.
    socket: OwnedFd,
    task: JoinHandle<()>,
    address: AdminAddress,
}

#[derive(Clone)]
struct App {
    director: Arc<Director>,
    orders: mpsc::Sender<Order>,
}

impl Admin {
    /// Listens and answers, on a socket of the predecessor's if there is one.
    ///
    /// # Errors
    /// If the address cannot be had.
    pub(crate) fn start(
        address: &AdminAddress,
        inherited: Option<OwnedFd>,
        director: Arc<Director>,
        orders: mpsc::Sender<Order>,
    ) -> io::Result<Admin> {
        let router = router(App { director, orders });
        let (socket, task) = match address {
            AdminAddress::Tcp(address) => {
                let listener = match inherited {
                    Some(fd) => std::net::TcpListener::from(fd),
                    None => std::net::TcpListener::bind(address)?,
                };
                listener.set_nonblocking(true)?;
                let socket = listener.as_fd().try_clone_to_owned()?;
                let listener = tokio::net::TcpListener::from_std(listener)?;
                (socket, tokio::spawn(serve(async move || Ok(listener.accept().await?.0), router)))
            }
            AdminAddress::Unix(path) => {
                let listener = match inherited {
                    Some(fd) => std::os::unix::net::UnixListener::from(fd),
                    None => bind_unix(path)?,
                };
                listener.set_nonblocking(true)?;
                let socket = listener.as_fd().try_clone_to_owned()?;
                let listener = tokio::net::UnixListener::from_std(listener)?;
                (socket, tokio::spawn(serve(async move || Ok(listener.accept().await?.0), router)))
            }
        };
        Ok(Admin { socket, task, address: address.clone() })
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) fn address(&self) -> &AdminAddress {
        &self.address
    }

    /// Stops answering. The path of a UNIX socket stays if a successor answers there.
    pub(crate) fn stop(self, has_successor: bool) {
        self.task.abort();
        if let AdminAddress::Unix(path) = &self.address
            && !has_successor
        {
            // Somebody may have removed it already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Listens at a path that nobody but the owner may use, from the first moment.
fn bind_unix(path: &std::path::Path) -> io::Result<std::os::unix::net::UnixListener> {
    if let Ok(metadata) = std::fs::symlink_metadata(path) {
        if !metadata.file_type().is_socket() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket"));
        }
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
    }
    let mut new_path = path.as_os_str().to_owned();
    new_path.push(format!(".{}", std::process::id()));
    let listener = std::os::unix::net::UnixListener::bind(&new_path)?;
    std::fs::set_permissions(&new_path, std::fs::Permissions::from_mode(0o600))?;
    // In the place of a socket that a process left behind.
    std::fs::rename(&new_path, path)?;
    Ok(listener)
}

/// Answers connections, some at a time, none for ever.
async fn serve<S>(mut accept: impl AsyncFnMut() -> io::Result<S>, router: Router)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let stream = match accept().await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "admin API: accept");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            // What a client does wrong is its own affair; how long it may take is not.
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
            drop(place);
        });
    }
}

fn router(app: App) -> Router {
    Router::new()
        .route("/healthz", get(|| async { Json(json!({"status": "ok"})) }))
        .route("/pools", get(pools))
        .route("/pools/{pool}", get(pool))
        .route("/pools/{pool}/nodes/{node}/weight", post(weight))
        .route("/pools/{pool}/nodes/{node}/drain", post(drain))
        .route("/pools/{pool}/nodes/{node}/ready", post(ready))
        .route("/explain", get(explain))
        .route("/metrics", get(metrics_text))
        .route("/reload", post(reload))
        .route("/upgrade", post(upgrade))
        .fallback(|| async {
            refusal(
                StatusCode::NOT_FOUND,
                "there is no such page; see /pools, /explain?pool=, /metrics, /healthz",
            )
        })
        .method_not_allowed_fallback(|| async {
            refusal(StatusCode::METHOD_NOT_ALLOWED, "another method is needed here")
        })
        .layer(middleware::from_fn(guard))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(app)
}

/// Keeps web pages in a browser on this machine from steering the director: a page can send requests
/// to loopback, but not without saying where it comes from, nor under another Host than its own.
async fn guard(request: Request, next: Next) -> Response {
    if request.method() == Method::POST {
        let headers = request.headers();
        if headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site") {
            return refusal(StatusCode::FORBIDDEN, "requests of web pages are not obeyed");
        }
        if !host_is_plain(headers) {
            return refusal(StatusCode::FORBIDDEN, "the Host must be an address or localhost");
        }
    }
    next.run(request).await
}

fn host_is_plain(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else { return true };
    let Ok(host) = host.to_str() else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.is_empty() || name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

fn refusal(status: StatusCode, error: impl ToString) -> Response {
    (status, Json(json!({"error": error.to_string()}))).into_response()
}

/// Runs what may wait for workers where waiting hurts nobody.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Response> {
    tokio::task::spawn_blocking(work).await.map_err(|error| refusal(StatusCode::INTERNAL_SERVER_ERROR, error))
}

async fn pools(State(app): State<App>) -> Response {
    match blocking(move || app.director.pools()).await {
        Ok(pools) => Json(pools).into_response(),
        Err(response) => response,
    }
}

async fn pool(State(app): State<App>, Path(name): Path<String>) -> Response {
    match blocking(move || app.director.pools().pools.into_iter().find(|pool| pool.name == name)).await {
        Ok(Some(pool)) => Json(pool).into_response(),
        Ok(None) => refusal(StatusCode::NOT_FOUND, "there is no such pool"),
        Err(response) => response,
    }
}

#[derive(Debug, Deserialize)]
struct ExplainQuery {
    pool: String,
    #[serde(default = "default_count")]
    n: usize,
}

fn default_count() -> usize {
    10
}

async fn explain(
    State(app): State<App>,
    query: Result<Query<ExplainQuery>, axum::extract::rejection::QueryRejection>,
) -> Response {
    let Ok(Query(query)) = query else {
        return refusal(StatusCode::BAD_REQUEST, "expected /explain?pool=NAME&n=COUNT");
    };
    match blocking(move || app.director.explain(&query.pool, query.n.min(PLACEMENTS_MAX))).await {
        Ok(Some(explanation)) => Json(explanation).into_response(),
        Ok(None) => refusal(StatusCode::NOT_FOUND, "there is no such pool"),
        Err(response) => response,
    }
}

async fn metrics_text(State(app): State<App>) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    match blocking(move || metrics::render(&app.director)).await {
        Ok(text) => (kind, text).into_response(),
        Err(response) => response,
    }
}

#[derive(Debug, Deserialize)]
struct WeightBody {
    weight: u64,
}

async fn weight(
    State(app): State<App>,
    Path((pool, node)): Path<(String, String)>,
    body: axum::body::Bytes,
) -> Response {
    let weight =
        serde_json::from_slice::<WeightBody>(&body).ok().and_then(|body| Weight::new(body.weight).ok());
    let Some(weight) = weight else {
        return refusal(StatusCode::BAD_REQUEST, "expected {\"weight\": N}, N from 0 to 256");
    };
    tracing::info!(pool, node, weight = weight.value(), "an operator sets the weight");
    steered(app.director.set_weight(&pool, &node, weight))
}

async fn drain(State(app): State<App>, Path((pool, node)): Path<(String, String)>) -> Response {
    tracing::info!(pool, node, "an operator drains the node");
    steered(app.director.set_draining(&pool, &node, true))
}

async fn ready(State(app): State<App>, Path((pool, node)): Path<(String, String)>) -> Response {
    tracing::info!(pool, node, "an operator takes the node back");
    steered(app.director.set_draining(&pool, &node, false))
}

fn steered(result: Result<(), DirectorError>) -> Response {
    match result {
        Ok(()) => Json(json!({"status": "ok"})).into_response(),
        Err(error) => refusal(StatusCode::NOT_FOUND, error),
    }
}

async fn reload(State(app): State<App>) -> Response {
    ordered(&app, Order::Reload).await
}

async fn upgrade(State(app): State<App>) -> Response {
    ordered(&app, Order::Upgrade).await
}

async fn ordered(app: &App, order: impl FnOnce(oneshot::Sender<Result<(), String>>) -> Order) -> Response {
    let (done, result) = oneshot::channel();
    let gone = || refusal(StatusCode::SERVICE_UNAVAILABLE, "the director is ending");
    if app.orders.send_timeout(order(done), Duration::from_secs(5)).await.is_err() {
        return gone();
    }
    match result.await {
        Ok(Ok(())) => Json(json!({"status": "ok"})).into_response(),
        Ok(Err(error)) => refusal(StatusCode::CONFLICT, error),
        Err(_) => gone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_are_hosts() {
        let allows = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            host_is_plain(&headers)
        };
        assert!(allows("127.0.0.1:9900") && allows("localhost:9900") && allows("[::1]:9900"));
        assert!(!allows("evil.example:9900") && !allows("localhost.evil.example"));
    }
}
