//! What a head costs: `cargo bench -p evener-protocol`.

use divan::{Bencher, black_box};
use evener_protocol::http1::{
    Chunks, Limits, Method, Request, RequestEdits, Response, ResponseEdits, Version, forward_request,
    forward_response,
};

const SMALL: &[u8] = b"GET /128 HTTP/1.1\r\nHost: 127.0.0.1:9100\r\n\r\n";
const BROWSER: &[u8] = b"GET /index.html?lang=en HTTP/1.1\r\nHost: www.example.com\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-GB,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\nConnection: keep-alive\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef\r\nPriority: u=0, i\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: Sat, 21 Nov 2026 02:47:41 GMT\r\n\
    Content-Type: text/plain\r\nContent-Length: 127\r\nConnection: keep-alive\r\n\r\n";

fn main() {
    divan::main();
}

#[divan::bench(args = [SMALL, BROWSER])]
fn parse_request(bencher: Bencher<'_, '_>, head: &[u8]) {
    let mut request = Request::new();
    bencher.bench_local(|| request.parse(black_box(head), &Limits::default()));
}

#[divan::bench(args = [SMALL, BROWSER])]
fn forward_a_request(bencher: Bencher<'_, '_>, head: &[u8]) {
    let mut request = Request::new();
    assert_eq!(request.parse(head, &Limits::default()), Ok(true));
    let edits = RequestEdits {
        client: "192.0.2.1",
        scheme: "http",
        x_forwarded_for: true,
        x_forwarded_proto: true,
        x_forwarded_host: true,
        via: Some("evener"),
        request_id: Some(("X-Request-Id", &[b'0'; 32])),
        ..RequestEdits::default()
    };
    let mut out = Vec::new();
    bencher.bench_local(|| {
        out.clear();
        forward_request(&request, black_box(head), &edits, &mut out);
    });
}

#[divan::bench]
fn parse_response(bencher: Bencher<'_, '_>) {
    let mut response = Response::new();
    bencher.bench_local(|| response.parse(black_box(RESPONSE), &Limits::default(), Method::Get));
}

#[divan::bench]
fn forward_a_response(bencher: Bencher<'_, '_>) {
    let mut response = Response::new();
    assert_eq!(response.parse(RESPONSE, &Limits::default(), Method::Get), Ok(true));
    let edits = ResponseEdits {
        version: Version::Http11,
        keep_alive: true,
        via: Some("evener"),
        ..Default::default()
    };
    let mut out = Vec::new();
    bencher.bench_local(|| {
        out.clear();
        forward_response(&response, black_box(RESPONSE), &edits, &mut out);
    });
}

#[divan::bench]
fn scan_64_kib_of_chunks(bencher: Bencher<'_, '_>) {
    let body = [b"4000\r\n".to_vec(), vec![b'x'; 0x4000], b"\r\n".to_vec()].concat().repeat(4);
    bencher.bench_local(|| Chunks::new().scan(black_box(&body)));
}
