//! Fields in which a node says how it is: found and taken out, in heads and in trailers.

use evener_protocol::http1::{
    Chunks, Limits, Method, Name, Parts, Response, ResponseEdits, forward_response,
};

fn forwarded(head: &str, edits: &ResponseEdits<'_>) -> String {
    let mut response = Response::new();
    assert_eq!(response.parse(head.as_bytes(), &Limits::default(), Method::Get), Ok(true));
    let mut out = Vec::new();
    forward_response(&response, head.as_bytes(), edits, &mut out);
    assert!(!response.is_verbatim(edits) || out == head.as_bytes(), "{head:?}");
    String::from_utf8(out).unwrap()
}

const DROP: ResponseEdits<'_> = ResponseEdits { drop_load_metrics: true, ..KEEP };
const KEEP: ResponseEdits<'_> = ResponseEdits {
    version: evener_protocol::http1::Version::Http11,
    keep_alive: true,
    client_keep_alive_header: false,
    via: None,
    decode_chunked: false,
    drop_load_metrics: false,
    request_id: None,
};

#[test]
fn both_headers_are_dropped_in_any_spelling_or_kept() {
    let head = "HTTP/1.1 200 OK\r\nA: 1\r\nEndpoint-Load-Metrics: TEXT cpu_utilization=0.5\r\n\
        endpoint-load-metrics-BIN: CQ==\r\nContent-Length: 0\r\nendpoint-load-metrics:\r\n\r\n";
    assert_eq!(forwarded(head, &DROP), "HTTP/1.1 200 OK\r\nA: 1\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(forwarded(head, &KEEP), head);
}

#[test]
fn values_are_told_in_order() {
    let head = b"HTTP/1.1 304 Not Modified\r\nEndpoint-Load-Metrics: TEXT rps=1 \r\nendpoint-load-metrics-bin: CQ\r\n\r\n";
    let mut response = Response::new();
    assert_eq!(response.parse(head, &Limits::default(), Method::Get), Ok(true));
    assert!(response.has_load_metrics());
    let told: Vec<_> = response.load_metrics(head).collect();
    let expected: [(Name, &[u8]); 2] =
        [(Name::EndpointLoadMetrics, b"TEXT rps=1"), (Name::EndpointLoadMetricsBin, b"CQ")];
    assert_eq!(told, expected);
    let head = b"HTTP/1.1 200 OK\r\nEndpoint-Load-Metric: TEXT rps=1\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(response.parse(head, &Limits::default(), Method::Get), Ok(true));
    assert!(!response.has_load_metrics());
}

#[test]
fn a_trailer_field_that_announces_nothing_else_goes_too() {
    let head =
        |names: &str| format!("HTTP/1.1 200 OK\r\nTrailer: {names}\r\nTransfer-Encoding: chunked\r\n\r\n");
    let without = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(forwarded(&head("endpoint-load-metrics-bin"), &DROP), without);
    assert_eq!(forwarded(&head("Endpoint-Load-Metrics, endpoint-load-metrics-bin"), &DROP), without);
    for kept in ["X-Checksum", "endpoint-load-metrics, X-Checksum", ""] {
        assert_eq!(forwarded(&head(kept), &ResponseEdits { via: None, ..DROP }), head(kept));
    }
    assert_eq!(forwarded(&head("endpoint-load-metrics"), &KEEP), head("endpoint-load-metrics"));
}

#[test]
fn a_trailer_is_taken_in_one_piece() {
    let body = b"3\r\nabc\r\n0\r\nX: 1\r\n\r\nnext";
    assert_eq!(Chunks::new().scan_to_trailer(body), Ok(Parts { consumed: 11, trailer: Some(8) }));
    let mut chunks = Chunks::new();
    assert_eq!(chunks.scan_to_trailer(&body[..11]), Ok(Parts { consumed: 11, trailer: None }));
    for end in 12..19 {
        assert_eq!(chunks.scan_to_trailer(&body[11..end]), Ok(Parts { consumed: 0, trailer: None }), "{end}");
    }
    assert_eq!(chunks.scan_to_trailer(&body[11..19]), Ok(Parts { consumed: 0, trailer: Some(8) }));
    let mut data = Vec::new();
    let parts = Chunks::new().decode_to_trailer(b"3\r\nabc\r\n0\r\n\r\n", &mut data);
    assert_eq!((parts, &data[..]), (Ok(Parts { consumed: 11, trailer: Some(2) }), &b"abc"[..]));
}
