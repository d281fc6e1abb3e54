//! For bytes of any kind, and for messages that look nearly right.

#[path = "../../../fuzz/src/invariants.rs"]
#[allow(unreachable_pub, reason = "the fuzzers use it too")]
mod invariants;

use evener_protocol::http1::{Chunks, Framing, Limits, Request};
use proptest::prelude::*;

/// Pieces of heads, valid and not: put together, many are nearly right.
fn head() -> impl Strategy<Value = Vec<u8>> {
    let start = prop_oneof![
        Just("GET / HTTP/1.1\r\n"),
        Just("POST /a?b HTTP/1.1\r\n"),
        Just("GET http://b/c HTTP/1.1\r\n"),
        Just("OPTIONS * HTTP/1.1\r\n"),
        Just("GET / HTTP/1.0\r\n"),
        Just("HTTP/1.1 200 OK\r\n"),
        Just("HTTP/1.0 404 Not Found\r\n"),
    ];
    let line = prop_oneof![
        Just("Host: a\r\n".to_owned()),
        Just("Content-Length: 3\r\n".to_owned()),
        Just("Transfer-Encoding: chunked\r\n".to_owned()),
        Just("Connection: close\r\n".to_owned()),
        Just("Connection: keep-alive, x-one\r\n".to_owned()),
        Just("Connection: upgrade\r\nUpgrade: x\r\n".to_owned()),
        Just("X-Forwarded-For: 10.0.0.1\r\n".to_owned()),
        Just("TE: trailers\r\n".to_owned()),
        Just("Endpoint-Load-Metrics: TEXT cpu_utilization=0.5\r\n".to_owned()),
        Just("Trailer: endpoint-load-metrics-bin\r\n".to_owned()),
        Just(" folded\r\n".to_owned()),
        Just("bare: lf\n".to_owned()),
        "[a-zA-Z-]{1,12}: [ -~]{0,20}\r\n",
    ];
    (start, prop::collection::vec(line, 0..8), "[ -~\r\n]{0,20}")
        .prop_map(|(start, lines, rest)| format!("{start}{}\r\n{rest}", lines.concat()).into_bytes())
}

fn trailer_field() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("endpoint-load-metrics: TEXT rps=1\r\n".to_owned()),
        Just("Endpoint-Load-Metrics-Bin:\r\n".to_owned()),
        "[a-zA-Z-]{1,6}: ?[ -~]{0,12}\r\n",
    ]
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        invariants::http1_request(&bytes);
        invariants::http1_response(&bytes);
        invariants::http1_chunked(&bytes);
        invariants::proxy_protocol(&bytes);
    }

    #[test]
    fn heads_that_look_nearly_right_keep_the_invariants(bytes in head()) {
        invariants::http1_request(&bytes);
        invariants::http1_response(&bytes);
    }

    #[test]
    fn data_survive_chunking(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 0..8), cut in 1usize..20) {
        let mut body = Vec::new();
        for piece in &pieces {
            body.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            body.extend_from_slice(piece);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"0\r\n\r\nnext");
        let mut chunks = Chunks::new();
        let mut data = Vec::new();
        let mut consumed = 0;
        for part in body.chunks(cut) {
            let scan = chunks.decode(part, &mut data).expect("valid chunks");
            consumed += scan.consumed;
            if scan.done {
                break;
            }
        }
        prop_assert_eq!(data, pieces.concat());
        prop_assert_eq!(consumed, body.len() - "next".len());
    }

    #[test]
    fn trailers_stay_trailers(fields in prop::collection::vec(trailer_field(), 0..6), rest in "[ -~]{0,5}") {
        let body = format!("1\r\na\r\n0\r\n{}\r\n{rest}", fields.concat());
        invariants::http1_chunked(body.as_bytes());
    }

    #[test]
    fn a_length_is_what_it_says(length in 0u64..1 << 63) {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        let mut request = Request::new();
        prop_assert_eq!(request.parse(head.as_bytes(), &Limits::default()), Ok(true));
        prop_assert_eq!(request.framing, Framing::Length(length));
    }
}
