//! What must hold for any bytes: checked by the fuzzers on bytes they invent, and by the tests of
//! `evener-protocol` on the corpus that the fuzzers found.

use std::net::SocketAddr;

use evener_protocol::http1::{
    Chunks, Framing, Limits, Method, Request, RequestEdits, Response, ResponseEdits, Scan, Version,
    find_head_end, forward_request, forward_response, retain_trailer,
};
use evener_protocol::proxy_protocol;

const LIMITS: Limits = Limits { head_bytes_max: 4096, headers_max: 32 };

/// A request is parsed or refused, whole or in pieces alike; what is sent on reads the same to the
/// next reader, and holds nothing that belongs to the client's connection.
pub fn http1_request(bytes: &[u8]) {
    let mut request = Request::new();
    let Ok(true) = request.parse(bytes, &LIMITS) else {
        return;
    };
    let head_len = request.head_len as usize;
    assert!(head_len <= bytes.len() && head_len <= LIMITS.head_bytes_max as usize);
    let end = find_head_end(bytes, 0).expect("a complete head has an end");
    assert!(end <= head_len, "the end is found no later than by the parser");
    for cut in 0..head_len {
        let mut part = Request::new();
        assert!(
            !matches!(part.parse(&bytes[..cut], &LIMITS), Ok(true) | Err(_)),
            "a part of a valid head waits"
        );
    }
    let id = [b'a'; 32];
    for trusted in [false, true] {
        for all in [false, true] {
            let edits = RequestEdits {
                client: if all { "2001:db8::1" } else { "192.0.2.1" },
                scheme: "http",
                trusted,
                x_forwarded_for: true,
                x_forwarded_proto: true,
                x_forwarded_host: true,
                forwarded: all,
                via: all.then_some("evener"),
                request_id: all.then_some(("X-Request-Id", &id[..])),
            };
            let mut out = Vec::new();
            forward_request(&request, bytes, &edits, &mut out);
            let wide = Limits { head_bytes_max: 64 * 1024, headers_max: 128 };
            let mut again = Request::new();
            assert_eq!(
                again.parse(&out, &wide),
                Ok(true),
                "what is sent on is valid: {}",
                out.escape_ascii()
            );
            assert_eq!(again.head_len as usize, out.len(), "a head and nothing else is sent on");
            assert_eq!(again.framing, request.framing);
            assert_eq!(again.method_text.of(&out), request.method_text.of(bytes));
            assert_eq!(again.host.map(|host| host.of(&out)), request.host.map(|host| host.of(bytes)));
            assert_eq!(again.upgrade.is_some(), request.upgrade.is_some());
            for name in ["keep-alive", "proxy-connection", "proxy-authorization", "http2-settings"] {
                assert!(again.header(&out, name).is_none(), "{name} is sent on");
            }
            if !trusted {
                let client = again.header(&out, "x-forwarded-for");
                assert_eq!(client, Some(edits.client.as_bytes()), "an address is forged");
            }
        }
    }
}

/// A response is parsed or is at fault; what is sent on has the same status and framing.
pub fn http1_response(bytes: &[u8]) {
    for method in [Method::Get, Method::Head] {
        let mut response = Response::new();
        let Ok(true) = response.parse(bytes, &LIMITS, method) else {
            continue;
        };
        let head_len = response.head_len as usize;
        assert!(head_len <= bytes.len() && head_len <= LIMITS.head_bytes_max as usize);
        for cut in 0..head_len {
            let mut part = Response::new();
            assert_eq!(part.parse(&bytes[..cut], &LIMITS, method), Ok(false), "a part of a valid head waits");
        }
        for keep_alive in [false, true] {
            let edits = ResponseEdits {
                version: Version::Http11,
                keep_alive,
                client_keep_alive_header: false,
                via: Some("evener"),
                decode_chunked: false,
                drop_load_metrics: keep_alive,
                request_id: None,
            };
            let mut out = Vec::new();
            forward_response(&response, bytes, &edits, &mut out);
            let wide = Limits { head_bytes_max: 64 * 1024, headers_max: 128 };
            let mut again = Response::new();
            assert_eq!(
                again.parse(&out, &wide, method),
                Ok(true),
                "what is sent on is valid: {}",
                out.escape_ascii()
            );
            assert_eq!(again.head_len as usize, out.len());
            assert_eq!(again.status, response.status);
            assert!(!keep_alive || !again.has_load_metrics(), "what a node says of itself is sent on");
            // A response that ends with the connection says so; all others say how long they are.
            assert_eq!(again.framing, response.framing);
            if again.framing != Framing::UntilClose && again.status >= 200 {
                assert_eq!(again.keep_alive, keep_alive);
            }
        }
    }
}

/// A chunked body means the same in one piece and byte by byte, and its data survive.
pub fn http1_chunked(bytes: &[u8]) {
    let mut data = Vec::new();
    let whole = Chunks::new().decode(bytes, &mut data);
    let scanned = Chunks::new().scan(bytes);
    assert_eq!(whole, scanned, "scanning and decoding agree");
    let mut pieces = Chunks::new();
    let mut data_of_pieces = Vec::new();
    let mut consumed = 0;
    let mut result = Ok(false);
    for byte in bytes.chunks(1) {
        match pieces.decode(byte, &mut data_of_pieces) {
            Ok(scan) => {
                consumed += scan.consumed;
                result = Ok(scan.done);
                if scan.done {
                    break;
                }
            }
            Err(fault) => {
                result = Err(fault);
                break;
            }
        }
    }
    match whole {
        Ok(scan) => {
            assert_eq!((consumed, result), (scan.consumed, Ok(scan.done)));
            assert_eq!(data, data_of_pieces);
            assert!(scan.done || scan.consumed == bytes.len());
        }
        Err(fault) => assert_eq!(result, Err(fault)),
    }
    http1_trailer(bytes, whole.ok().filter(|scan| scan.done));
}

/// A body whose trailer is taken in one piece is the same body, whatever pieces it comes in; and the trailer
/// stays one when fields are taken out. `whole`: what the body is, if it is one.
fn http1_trailer(bytes: &[u8], whole: Option<Scan>) {
    let mut chunks = Chunks::new();
    let mut given = 0;
    let mut found = None;
    for end in 1..=bytes.len() {
        match chunks.scan_to_trailer(&bytes[given..end]) {
            Ok(parts) => {
                given += parts.consumed;
                found = parts.trailer.map(|length| (given, given + length));
            }
            Err(_) => break,
        }
        if found.is_some() {
            break;
        }
    }
    assert_eq!(found.map(|(_, end)| end), whole.map(|scan| scan.consumed));
    let Some((start, end)) = found else { return };
    let mut trailer = bytes[start..end].to_vec();
    assert_eq!(retain_trailer(&mut trailer, |_, _| true), end - start);
    assert_eq!(trailer, &bytes[start..end]);
    let length = retain_trailer(&mut trailer, |name, _| !name.is_load_metrics());
    trailer.truncate(length);
    let again = [b"0\r\n", &trailer[..]].concat();
    let scan = Chunks::new().scan(&again);
    assert_eq!(scan, Ok(Scan { consumed: again.len(), done: true }), "what is left is a trailer");
    retain_trailer(&mut trailer, |name, _| {
        assert!(!name.is_load_metrics(), "what a node says of itself is left in");
        true
    });
}

/// A PROXY header is read, waited for or refused; what is written is read as it was meant.
pub fn proxy_protocol(bytes: &[u8]) {
    let Ok(Some(parsed)) = proxy_protocol::parse(bytes) else {
        return;
    };
    assert!(parsed.len <= bytes.len());
    for cut in 0..parsed.len {
        assert_eq!(proxy_protocol::parse(&bytes[..cut]), Ok(None), "a part of a valid header waits");
    }
    let Some((source, destination)) = parsed.addresses else {
        return;
    };
    for write in [proxy_protocol::write_v1, proxy_protocol::write_v2] {
        let mut out = Vec::new();
        write(&mut out, source, destination);
        let again = proxy_protocol::parse(&out).expect("what is written is valid").expect("and whole");
        assert_eq!(again.len, out.len());
        // An IPv4 address mapped into IPv6 is written as what it is.
        let canonical = |address: SocketAddr| (address.ip().to_canonical(), address.port());
        let (again_source, again_destination) = again.addresses.expect("addresses were written");
        assert_eq!(canonical(again_source), canonical(source));
        assert_eq!(canonical(again_destination), canonical(destination));
    }
}
