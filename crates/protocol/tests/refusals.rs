//! What must not pass, each with the status that answers it: requests that two readers could
//! understand differently, and nonsense.

use evener_protocol::http1::{Chunks, Limits, Method, Request, Response};
use evener_protocol::proxy_protocol;

fn status(head: &[u8]) -> u16 {
    let limits = Limits { head_bytes_max: 1024, headers_max: 8 };
    match Request::new().parse(head, &limits) {
        Ok(true) => 200,
        Ok(false) => 0,
        Err(refusal) => refusal.status(),
    }
}

#[track_caller]
fn refused(expected: u16, heads: &[&[u8]]) {
    for head in heads {
        assert_eq!(status(head), expected, "{}", head.escape_ascii());
    }
}

#[test]
fn ambiguous_lengths() {
    refused(
        400,
        &[
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5 5\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
            b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n",
        ],
    );
    refused(
        501,
        &[
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
        ],
    );
}

#[test]
fn lines_that_end_or_begin_oddly() {
    refused(
        400,
        &[
            b"GET / HTTP/1.1\nHost: a\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\n\n",
            b"GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
            b"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\n: y\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nX\x00: y\r\n\r\n",
            b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        ],
    );
}

#[test]
fn request_lines_that_are_none() {
    refused(
        400,
        &[
            b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /  HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
            b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /\r\n\r\n",
            b"GET * HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET x HTTP/1.1\r\nHost: a\r\n\r\n",
            b"G@T / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET / http/1.1\r\nHost: a\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        ],
    );
    refused(505, &[b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", b"GET / HTTP/1.2\r\nHost: a\r\n\r\n"]);
    refused(501, &[b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n"]);
}

#[test]
fn hosts_that_are_missing_or_many_or_odd() {
    refused(
        400,
        &[
            b"GET / HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: user@a\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a:port\r\n\r\n",
        ],
    );
    assert_eq!(status(b"GET / HTTP/1.0\r\n\r\n"), 200);
}

#[test]
fn heads_beyond_the_limits() {
    let long_value = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(2000));
    let long_target = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(2000));
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(8));
    assert_eq!(status(long_value.as_bytes()), 431);
    assert_eq!(status(&long_value.as_bytes()[..1500]), 431, "before its end is seen");
    assert_eq!(status(long_target.as_bytes()), 414);
    assert_eq!(status(many.as_bytes()), 431);
    refused(417, &[b"POST / HTTP/1.1\r\nHost: a\r\nExpect: miracles\r\nContent-Length: 1\r\n\r\n"]);
}

#[test]
fn chunks_that_are_none() {
    let bodies: [&[u8]; 14] = [
        b"\r\nhello\r\n0\r\n\r\n",
        b"g\r\nhello\r\n",
        b"+5\r\nhello\r\n0\r\n\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b" 5\r\nhello\r\n0\r\n\r\n",
        b"5 \r\nhello\r\n0\r\n\r\n",
        b"5\nhello\r\n0\r\n\r\n",
        b"5\r\nhello!\r\n0\r\n\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"10000000000000000\r\n",
        b"5;\nx\r\nhello\r\n0\r\n\r\n",
        b"0\r\nContent-Length: 5\r\n\r\n",
        b"0\r\nX : y\r\n\r\n",
    ];
    for body in bodies {
        assert!(Chunks::new().scan(body).is_err(), "{}", body.escape_ascii());
    }
}

#[test]
fn responses_at_fault() {
    let heads: [&[u8]; 8] = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 5\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 099 Odd\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX : y\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
    ];
    for head in heads {
        let parsed = Response::new().parse(head, &Limits::default(), Method::Get);
        assert!(parsed.is_err(), "{}: {parsed:?}", head.escape_ascii());
    }
}

#[test]
fn connection_that_nominates_without_end() {
    let request = |nominations: usize| {
        let options: Vec<String> = (0..nominations).map(|n| format!("x{n}")).collect();
        format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: {}\r\n\r\n", options.join(","))
    };
    assert_eq!(status(request(32).as_bytes()), 200);
    assert_eq!(status(request(33).as_bytes()), 400);
}

#[test]
fn proxy_lines_with_a_return_inside() {
    assert!(proxy_protocol::parse(b"PROXY UNKNOWN \r x\r\n").is_err());
}

#[test]
fn proxy_headers_with_two_checksums() {
    let value = [3, 0, 4, 0, 0, 0, 0];
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x13".to_vec();
    header.extend([192, 0, 2, 1, 192, 0, 2, 2, 0, 80, 0, 81]);
    header.extend(value);
    let at = header.len() - 4;
    let sum = crc32c::bitwise(&header);
    header[at..].copy_from_slice(&sum.to_be_bytes());
    assert!(proxy_protocol::parse(&header).is_ok_and(|parsed| parsed.is_some()));
    header[at..].fill(0);
    header[15] += 7;
    header.extend(value);
    let sum = crc32c::bitwise(&header);
    header[at..at + 4].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(
        proxy_protocol::parse(&header).unwrap_err().to_string(),
        proxy_protocol::Fault::Values.to_string()
    );
}

mod crc32c {
    /// The checksum bit by bit, as it is defined.
    pub(crate) fn bitwise(bytes: &[u8]) -> u32 {
        let bits = |crc: u32, _| if crc & 1 != 0 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        !bytes.iter().fold(!0, |crc, &b| (0..8).fold(crc ^ u32::from(b), bits))
    }
}
