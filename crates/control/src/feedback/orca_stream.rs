//! Nodes that say how they are in a stream beside their jobs: `xds.service.orca.v3.OpenRcaService`, by gRPC.
//!
//! Of gRPC this needs one call that is never over: a request in HTTP/2, and messages of five bytes and a length
//! before each. hyper speaks HTTP/2; the message is read by `evener_feedback::orca`.

use std::net::SocketAddr;
use std::time::Duration;

use evener_feedback::orca;
use evener_model::{Report, Time};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes};
use hyper::client::conn::http2;
use hyper::{HeaderMap, Request, Response, header};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;

use crate::feedback::asking::Useless;
use crate::feedback::refusal::Refusal;

const METHOD: &str = "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics";
/// Connecting, and the head of the answer, may take so long.
pub(super) const BEGIN_MAX: Duration = Duration::from_secs(5);
/// A connection on which nothing has come for so long is asked whether it is still there, and given as long again.
const PING_AFTER: Duration = Duration::from_secs(5);
/// Bytes of a report at the most: those of a header, without base64.
const MESSAGE_BYTES_MAX: usize = 12 * 1024;
/// Bytes of a message's own head: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// Listens to a node until the stream ends, which it never does by itself; says why it did. `interval` is how
/// often the node is asked to report (it may know better), `tell` gets each report.
pub(super) async fn listen(
    node: SocketAddr,
    interval: Duration,
    now: impl Fn() -> Time,
    mut tell: impl FnMut(Report),
) -> Useless {
    let begun = tokio::time::timeout(BEGIN_MAX, connect(node)).await;
    let (mut sender, connection) = match begun {
        Ok(Ok(both)) => both,
        Ok(Err(error)) => return Useless::new(Refusal::Silence, error),
        Err(_) => return Useless::new(Refusal::Silence, "no connection in time"),
    };
    let stream = async {
        let answer = tokio::time::timeout(BEGIN_MAX, sender.send_request(request(node, interval))).await;
        let answer = answer.map_err(|_| Useless::new(Refusal::Silence, "no answer in time"))?;
        let mut answer = answer.map_err(|error| Useless::new(Refusal::Form, text(&error)))?;
        accept(&answer)?;
        let mut messages = Messages::default();
        while let Some(frame) = answer.body_mut().frame().await {
            let frame = frame.map_err(|error| Useless::new(Refusal::Silence, text(&error)))?;
            let data = match frame.into_data() {
                Ok(data) => data,
                Err(frame) => return Err(ended(frame.trailers_ref())),
            };
            messages.take(&data, |message| {
                let metrics = orca::decode(message, &mut |_, _, _| {});
                tell(metrics.map_err(|fault| Useless::new(Refusal::Form, fault))?.report(now()));
                Ok(())
            })?;
        }
        Err(ended(None))
    };
    let ended: Result<(), Useless> = tokio::select! {
        ended = stream => ended,
        broken = connection => Err(match broken {
            Ok(()) => Useless::new(Refusal::Silence, "the node closed the connection"),
            Err(error) => Useless::new(Refusal::Silence, text(&error)),
        }),
    };
    ended.err().unwrap_or_else(|| Useless::new(Refusal::Silence, "the stream ended"))
}

type Connection = http2::Connection<TokioIo<TcpStream>, Full<Bytes>, TokioExecutor>;

async fn connect(node: SocketAddr) -> Result<(http2::SendRequest<Full<Bytes>>, Connection), String> {
    let stream = TcpStream::connect(node).await.map_err(|error| error.to_string())?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).keep_alive_interval(PING_AFTER).keep_alive_timeout(PING_AFTER);
    builder.handshake(TokioIo::new(stream)).await.map_err(|error| text(&error))
}

fn request(node: SocketAddr, interval: Duration) -> Request<Full<Bytes>> {
    let message = message(interval);
    let mut body = vec![0];
    body.extend_from_slice(&(message.len() as u32).to_be_bytes());
    body.extend_from_slice(&message);
    Request::post(format!("http://{node}{METHOD}"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .body(Full::from(body))
        .expect("an address and constants make a request")
}

/// `OrcaLoadReportRequest`: field 1 is a `google.protobuf.Duration`, of seconds (1) and nanoseconds (2).
fn message(interval: Duration) -> Vec<u8> {
    let mut duration = vec![0x08];
    put_varint(&mut duration, interval.as_secs());
    duration.push(0x10);
    put_varint(&mut duration, interval.subsec_nanos().into());
    let mut message = vec![0x0a];
    put_varint(&mut message, duration.len() as u64);
    message.extend_from_slice(&duration);
    message
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Whether the answer is the beginning of a stream.
fn accept<B: Body>(answer: &Response<B>) -> Result<(), Useless> {
    let kind = answer.headers().get(header::CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    if answer.status() != 200 || !kind.starts_with(b"application/grpc") {
        return Err(Useless::new(Refusal::Form, format!("no gRPC: status {}", answer.status().as_u16())));
    }
    // A call that fails at once has its trailers in the head.
    if answer.headers().contains_key("grpc-status") { Err(ended(Some(answer.headers()))) } else { Ok(()) }
}

/// Why the node ended the stream.
fn ended(trailers: Option<&HeaderMap>) -> Useless {
    let said = |name| trailers.and_then(|trailers| trailers.get(name)).map(|value| value.as_bytes());
    let status = said("grpc-status").unwrap_or(b"none").escape_ascii();
    let reason = said("grpc-message").unwrap_or_default().escape_ascii();
    Useless::new(Refusal::Silence, format!("the node ended the stream: status {status} {reason}").trim_end())
}

/// An error, and what it comes from.
fn text(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Puts messages together from the pieces in which they come.
#[derive(Debug, Default)]
struct Messages {
    pending: Vec<u8>,
}

impl Messages {
    /// Gives each message that is whole to `each`.
    fn take(
        &mut self,
        data: &[u8],
        mut each: impl FnMut(&[u8]) -> Result<(), Useless>,
    ) -> Result<(), Useless> {
        self.pending.extend_from_slice(data);
        let mut at = 0;
        while let Some((prefix, rest)) = self.pending[at..].split_first_chunk::<PREFIX_BYTES>() {
            let [compressed, length @ ..] = *prefix;
            let length = u32::from_be_bytes(length) as usize;
            // We have said that we understand no compression, by not naming any.
            if compressed != 0 || length > MESSAGE_BYTES_MAX {
                return Err(Useless::new(Refusal::Form, "a message is compressed, or too long"));
            }
            let Some(message) = rest.get(..length) else { break };
            each(message)?;
            at += PREFIX_BYTES + length;
        }
        self.pending.drain(..at);
        Ok(())
    }
}

/// For how long a node is left alone after a stream has ended: longer each time, until there is a report.
#[derive(Debug, Default)]
pub(super) struct Patience {
    failures: u32,
}

impl Patience {
    const MIN: Duration = Duration::from_secs(1);
    const MAX: Duration = Duration::from_secs(60);

    /// A stream has ended, on which there were reports or not.
    pub(super) fn ended(&mut self, had_reports: bool) -> Duration {
        self.failures = if had_reports { 0 } else { self.failures.saturating_add(1) };
        (Patience::MIN * 2_u32.pow(self.failures.min(6))).min(Patience::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_asks_for_an_interval() {
        assert_eq!(message(Duration::from_millis(1500)), b"\x0a\x08\x08\x01\x10\x80\xca\xb5\xee\x01");
        assert_eq!(message(Duration::from_secs(2)), b"\x0a\x04\x08\x02\x10\x00");
    }

    #[test]
    fn messages_are_the_same_in_any_pieces() {
        let bytes = [&[0, 0, 0, 0, 3][..], b"abc", &[0, 0, 0, 0, 0], &[0, 0, 0, 0, 1], b"d"].concat();
        for piece in 1..bytes.len() {
            let mut messages = Messages::default();
            let mut all = Vec::new();
            for part in bytes.chunks(piece) {
                let taken = messages.take(part, |message| {
                    all.push(message.to_vec());
                    Ok(())
                });
                assert!(taken.is_ok());
            }
            assert_eq!(all, [&b"abc"[..], b"", b"d"], "pieces of {piece}");
        }
    }

    #[test]
    fn what_is_compressed_or_endless_is_refused_before_it_is_there() {
        for prefix in [[1, 0, 0, 0, 1], [0, 0xff, 0, 0, 0]] {
            let taken = Messages::default().take(&prefix, |_| Ok(()));
            assert_eq!(taken.unwrap_err().reason, Refusal::Form);
        }
    }

    #[test]
    fn patience_grows_and_has_an_end() {
        let mut patience = Patience::default();
        assert_eq!(patience.ended(true), Duration::from_secs(1));
        let waits: Vec<u64> = (0..8).map(|_| patience.ended(false).as_secs()).collect();
        assert_eq!(waits, [2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(patience.ended(true), Duration::from_secs(1));
    }
}
