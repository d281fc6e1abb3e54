//! Heads as they are sent on.

use super::head::{Header, LOAD_METRICS, Name, Version};
use super::request::{Form, Method, Request};
use super::response::{Response, UNCHUNKED};
use super::tokens;

/// What to change in the head of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestEdits<'a> {
    /// The client's address as text, without a port.
    pub client: &'a str,
    /// The scheme the client used, `http` or `https`.
    pub scheme: &'a str,
    /// Whether the client is a proxy that is believed: what it says of the client
    /// before it is kept and added to. Otherwise it is replaced.
    pub trusted: bool,
    /// Send `X-Forwarded-For`. If not, what the client sent passes.
    pub x_forwarded_for: bool,
    /// Send `X-Forwarded-Proto`.
    pub x_forwarded_proto: bool,
    /// Send `X-Forwarded-Host`.
    pub x_forwarded_host: bool,
    /// Send `Forwarded` (RFC 7239).
    pub forwarded: bool,
    /// Add to `Via` under this name.
    pub via: Option<&'a str>,
    /// Send a request id: name of the field and value. One that a trusted client sent is kept.
    pub request_id: Option<(&'a str, &'a [u8])>,
}

/// What to change in the head of a response.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResponseEdits<'a> {
    /// The client's version.
    pub version: Version,
    /// Whether the connection to the client is kept; if not, `Connection: close` is sent.
    pub keep_alive: bool,
    /// Whether the client speaks HTTP/1.0 and asked to keep the connection, so that it
    /// has to be told that it is kept.
    pub client_keep_alive_header: bool,
    /// Add to `Via` under this name.
    pub via: Option<&'a str>,
    /// The body is sent without chunks: drop `Transfer-Encoding` and `Trailer`.
    pub decode_chunked: bool,
    /// Drop the fields in which the node says how it is (ORCA), and a `Trailer` that announces nothing else.
    pub drop_load_metrics: bool,
    /// Send a request id: name of the field and value, in place of the node's.
    pub request_id: Option<(&'a str, &'a [u8])>,
}

/// Appends to `out` the head to send to a node.
///
/// `bytes` are those that `head` was parsed from. Always HTTP/1.1, but for a request
/// without `Host`. Fields for the client's connection are dropped, all others keep
/// their place and spelling; what is added stands last.
pub fn forward_request(head: &Request, bytes: &[u8], edits: &RequestEdits<'_>, out: &mut Vec<u8>) {
    let start = start_line(head, bytes, out);
    let kept = |name: Name| edits.trusted && head.index.has(name);
    let replaces_for = edits.x_forwarded_for;
    let replaces_proto = edits.x_forwarded_proto && !kept(Name::XForwardedProto);
    let replaces_host = edits.x_forwarded_host && !kept(Name::XForwardedHost);
    let mut replaced = 0;
    let mut replace = |name: Name, whether: bool| replaced |= if whether { name.bit() } else { 0 };
    replace(Name::XForwardedFor, replaces_for);
    replace(Name::XForwardedProto, replaces_proto);
    replace(Name::XForwardedHost, replaces_host);
    replace(Name::Forwarded, edits.forwarded);
    replace(Name::Host, head.form == Form::Absolute);
    let request_id =
        edits.request_id.filter(|(name, _)| !(edits.trusted && head.header(bytes, name).is_some()));

    let upgrade = head.upgrade.is_some();
    let filter = Filter {
        hop_by_hop: head.index.hop_by_hop,
        replaced: replaced & head.index.seen,
        upgrade,
        trailer: false,
        name: request_id.map(|(name, _)| name),
    };
    filter.copy(&head.headers, bytes, start, head.head_len, out);

    match (upgrade, head.te_trailers) {
        (false, false) => {}
        (true, false) => out.extend_from_slice(b"Connection: upgrade\r\n"),
        (false, true) => out.extend_from_slice(b"TE: trailers\r\nConnection: TE\r\n"),
        (true, true) => out.extend_from_slice(b"TE: trailers\r\nConnection: upgrade, TE\r\n"),
    }
    if edits.x_forwarded_for {
        out.extend_from_slice(b"X-Forwarded-For: ");
        earlier(head, bytes, edits.trusted, Name::XForwardedFor, out);
        out.extend_from_slice(edits.client.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if replaces_proto {
        field(out, "X-Forwarded-Proto", edits.scheme.as_bytes());
    }
    if replaces_host && let Some(host) = head.host {
        field(out, "X-Forwarded-Host", host.of(bytes));
    }
    if edits.forwarded {
        out.extend_from_slice(b"Forwarded: ");
        earlier(head, bytes, edits.trusted, Name::Forwarded, out);
        forwarded_element(head, bytes, edits, out);
    }
    via(out, edits.via, head.version);
    if let Some((name, value)) = request_id {
        field(out, name, value);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends to `out` the head to send to the client.
///
/// `bytes` are those that `head` was parsed from. The version is HTTP/1.1 whatever the
/// client's, as the standard has it; what an older client needs is said by fields.
pub fn forward_response(head: &Response, bytes: &[u8], edits: &ResponseEdits<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(&bytes[9..12]);
    out.push(b' ');
    out.extend_from_slice(head.reason.of(bytes));
    let unchunked = if edits.decode_chunked { UNCHUNKED } else { 0 };
    let load_metrics = if edits.drop_load_metrics { LOAD_METRICS } else { 0 };
    let filter = Filter {
        hop_by_hop: head.index.hop_by_hop,
        replaced: (unchunked | load_metrics) & head.index.seen,
        upgrade: head.upgrade,
        trailer: edits.drop_load_metrics && head.index.has(Name::Trailer),
        name: edits.request_id.map(|(name, _)| name),
    };
    filter.copy(&head.headers, bytes, head.reason.end, head.head_len, out);

    // An interim response says nothing of the connection: the final one does.
    let close = !edits.keep_alive && !head.is_interim() && head.status != 101;
    let keep = edits.client_keep_alive_header && !close && !head.is_interim();
    match (head.upgrade, close) {
        (true, false) => out.extend_from_slice(b"Connection: upgrade\r\n"),
        (true, true) => out.extend_from_slice(b"Connection: upgrade, close\r\n"),
        (false, true) => out.extend_from_slice(b"Connection: close\r\n"),
        (false, false) if keep => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        (false, false) => {}
    }
    via(out, edits.via, head.version);
    if let Some((name, value)) = edits.request_id {
        field(out, name, value);
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes what of the request line cannot be copied; says where copying begins.
#[inline(always)]
fn start_line(head: &Request, bytes: &[u8], out: &mut Vec<u8>) -> u32 {
    let line_end = head.target.end + 9;
    let old = head.version == Version::Http10;
    if head.form != Form::Absolute && !old {
        return head.method_text.start;
    }
    out.extend_from_slice(head.method_text.of(bytes));
    out.push(b' ');
    if head.form != Form::Absolute {
        out.extend_from_slice(head.target.of(bytes));
    } else if head.method == Method::Options && head.target.end == head.host.map_or(0, |h| h.end) {
        out.push(b'*');
    } else {
        out.extend_from_slice(head.path.of(bytes));
        if let Some(query) = head.query {
            out.push(b'?');
            out.extend_from_slice(query.of(bytes));
        }
    }
    out.extend_from_slice(if head.host.is_some() { b" HTTP/1.1" } else { b" HTTP/1.0" });
    if head.form == Form::Absolute
        && let Some(host) = head.host
    {
        out.extend_from_slice(b"\r\nHost: ");
        out.extend_from_slice(host.of(bytes));
    }
    line_end
}

/// Which fields are not copied.
struct Filter<'a> {
    /// Whether some are for one connection only.
    hop_by_hop: bool,
    /// Bits of known names.
    replaced: u32,
    /// Whether `Upgrade` is copied although it is for one connection only.
    upgrade: bool,
    /// Whether a `Trailer` may have to go because what it announces goes.
    trailer: bool,
    /// One more name.
    name: Option<&'a str>,
}

impl Filter<'_> {
    /// Copies the bytes from `from` to the empty line of the head, without that line,
    /// leaving out fields: the longest runs of kept fields at a time.
    #[inline(always)]
    fn copy(&self, headers: &[Header], bytes: &[u8], from: u32, head_len: u32, out: &mut Vec<u8>) {
        let end = head_len as usize - 2;
        let mut from = from as usize;
        if self.hop_by_hop || self.replaced != 0 || self.trailer || self.name.is_some() {
            for (i, header) in headers.iter().enumerate() {
                if self.drops(header, bytes) {
                    out.extend_from_slice(&bytes[from..header.name.start as usize]);
                    from = headers.get(i + 1).map_or(end, |next| next.name.start as usize);
                }
            }
        }
        out.extend_from_slice(&bytes[from..end]);
    }

    #[inline(always)]
    fn drops(&self, header: &Header, bytes: &[u8]) -> bool {
        (header.hop_by_hop && !(self.upgrade && header.known == Name::Upgrade))
            || header.known.bit() & self.replaced != 0
            || (self.trailer && announces_load_metrics(header, bytes))
            || self.name.is_some_and(|name| {
                name.len() == header.name.len() && header.name.of(bytes).eq_ignore_ascii_case(name.as_bytes())
            })
    }
}

/// Whether a field is a `Trailer` that announces what nodes say of themselves, and nothing else.
fn announces_load_metrics(header: &Header, bytes: &[u8]) -> bool {
    header.known == Name::Trailer
        && tokens::list(header.value.of(bytes))
            .all(|name| !name.is_empty() && Name::recognise(name).is_load_metrics())
}

/// Writes the values of the fields called `name`, each followed by a comma, if they are believed.
fn earlier(head: &Request, bytes: &[u8], trusted: bool, name: Name, out: &mut Vec<u8>) {
    if !trusted || !head.index.has(name) {
        return;
    }
    for header in head.headers.iter().filter(|h| h.known == name && !h.value.is_empty()) {
        out.extend_from_slice(header.value.of(bytes));
        out.extend_from_slice(b", ");
    }
}

fn forwarded_element(head: &Request, bytes: &[u8], edits: &RequestEdits<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"for=");
    if edits.client.contains(':') {
        out.extend_from_slice(b"\"[");
        out.extend_from_slice(edits.client.as_bytes());
        out.extend_from_slice(b"]\"");
    } else if edits.client.is_empty() {
        out.extend_from_slice(b"unknown");
    } else {
        out.extend_from_slice(edits.client.as_bytes());
    }
    if let Some(host) = head.host {
        let host = host.of(bytes);
        let quote: &[u8] = if tokens::token_end(host, 0) == host.len() { b"" } else { b"\"" };
        out.extend_from_slice(b";host=");
        out.extend_from_slice(quote);
        out.extend_from_slice(host);
        out.extend_from_slice(quote);
    }
    out.extend_from_slice(b";proto=");
    out.extend_from_slice(edits.scheme.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn via(out: &mut Vec<u8>, name: Option<&str>, received: Version) {
    let Some(name) = name else { return };
    out.extend_from_slice(match received {
        Version::Http10 => b"Via: 1.0 ",
        Version::Http11 => b"Via: 1.1 ",
    });
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}
