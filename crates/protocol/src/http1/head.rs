//! What heads of requests and responses have in common: fields and framing.

use thiserror::Error;

use super::tokens;

/// How large a head may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the head, its empty line included.
    pub head_bytes_max: u32,
    /// Fields of the head.
    pub headers_max: u16,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { head_bytes_max: 64 * 1024, headers_max: 128 }
    }
}

/// A part of the bytes that were parsed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Index of the first byte.
    pub start: u32,
    /// Index after the last byte.
    pub end: u32,
}

impl Span {
    #[inline(always)]
    pub(crate) fn new(start: usize, end: usize) -> Span {
        Span { start: start as u32, end: end as u32 }
    }

    /// The bytes meant, given those that were parsed.
    #[inline]
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..self.end as usize]
    }

    /// Bytes in this span.
    pub fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether nothing is in it.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// The version of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    #[default]
    Http11,
}

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    #[default]
    None,
    /// This many bytes follow the head; 0 if the sender said so.
    Length(u64),
    /// Chunks follow, see [`Chunks`](super::Chunks).
    Chunked,
    /// The body ends with the connection. Only in responses.
    UntilClose,
}

/// A field name that means something to the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each is the field of that name")]
pub enum Name {
    Connection,
    KeepAlive,
    ProxyConnection,
    ProxyAuthenticate,
    ProxyAuthorization,
    Http2Settings,
    Te,
    Trailer,
    TransferEncoding,
    ContentLength,
    Upgrade,
    Host,
    Expect,
    XForwardedFor,
    XForwardedProto,
    XForwardedHost,
    Forwarded,
    Via,
    Cookie,
    Referer,
    UserAgent,
    Authorization,
    EndpointLoadMetrics,
    EndpointLoadMetricsBin,
    Other,
}

impl Name {
    pub(crate) const COUNT: usize = Name::Other as usize;

    #[inline(always)]
    pub(crate) const fn bit(self) -> u32 {
        1 << self as u32
    }

    /// Whether a node says in this field how it is (ORCA).
    #[inline(always)]
    pub fn is_load_metrics(self) -> bool {
        self.bit() & LOAD_METRICS != 0
    }

    /// The name that `text` spells, in any case; `text` is not empty.
    #[inline(always)]
    pub(crate) fn recognise(text: &[u8]) -> Name {
        let is = |name: &str| text.eq_ignore_ascii_case(name.as_bytes());
        match (text.len(), text[0] | 0x20) {
            (2, b't') if is("te") => Name::Te,
            (3, b'v') if is("via") => Name::Via,
            (4, b'h') if is("host") => Name::Host,
            (6, b'c') if is("cookie") => Name::Cookie,
            (6, b'e') if is("expect") => Name::Expect,
            (7, b't') if is("trailer") => Name::Trailer,
            (7, b'u') if is("upgrade") => Name::Upgrade,
            (7, b'r') if is("referer") => Name::Referer,
            (9, b'f') if is("forwarded") => Name::Forwarded,
            (10, b'c') if is("connection") => Name::Connection,
            (10, b'k') if is("keep-alive") => Name::KeepAlive,
            (10, b'u') if is("user-agent") => Name::UserAgent,
            (13, b'a') if is("authorization") => Name::Authorization,
            (14, b'c') if is("content-length") => Name::ContentLength,
            (14, b'h') if is("http2-settings") => Name::Http2Settings,
            (15, b'x') if is("x-forwarded-for") => Name::XForwardedFor,
            (16, b'x') if is("x-forwarded-host") => Name::XForwardedHost,
            (16, b'p') if is("proxy-connection") => Name::ProxyConnection,
            (17, b't') if is("transfer-encoding") => Name::TransferEncoding,
            (17, b'x') if is("x-forwarded-proto") => Name::XForwardedProto,
            (18, b'p') if is("proxy-authenticate") => Name::ProxyAuthenticate,
            (21, b'e') if is("endpoint-load-metrics") => Name::EndpointLoadMetrics,
            (25, b'e') if is("endpoint-load-metrics-bin") => Name::EndpointLoadMetricsBin,
            (19, b'p') if is("proxy-authorization") => Name::ProxyAuthorization,
            _ => Name::Other,
        }
    }
}

/// Fields in which a node says how it is (ORCA).
pub(crate) const LOAD_METRICS: u32 = Name::EndpointLoadMetrics.bit() | Name::EndpointLoadMetricsBin.bit();

/// Fields that concern one connection only and are dropped when forwarding.
/// `Transfer-Encoding` is not among them: bodies pass with the framing they came in.
const HOP_BY_HOP: u32 = Name::Connection.bit()
    | Name::KeepAlive.bit()
    | Name::ProxyConnection.bit()
    | Name::ProxyAuthenticate.bit()
    | Name::ProxyAuthorization.bit()
    | Name::Http2Settings.bit()
    | Name::Te.bit()
    | Name::Upgrade.bit();

/// One field of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The name, as it was written.
    pub name: Span,
    /// The value without whitespace around it.
    pub value: Span,
    /// Which field it is.
    pub known: Name,
    /// Whether the field is for this connection only and is not forwarded.
    pub hop_by_hop: bool,
}

/// What is wrong with a head, whichever side sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Malformed {
    /// A line ends with LF alone.
    #[error("line feed without carriage return")]
    BareLf,
    /// A CR is not followed by LF.
    #[error("carriage return without line feed")]
    BareCr,
    /// A line starts with whitespace.
    #[error("folded header line")]
    Fold,
    /// Whitespace between a field's name and its colon.
    #[error("space before colon")]
    SpaceBeforeColon,
    /// A field name is empty or holds a byte that no name may.
    #[error("invalid header name")]
    HeaderName,
    /// A field value holds a control character.
    #[error("control character in header value")]
    HeaderValue,
    /// More fields than the limit.
    #[error("too many header fields")]
    TooManyHeaders,
    /// `Content-Length` is no plain number below 2^63.
    #[error("invalid content-length")]
    ContentLength,
    /// `Content-Length` more than once.
    #[error("repeated content-length")]
    ContentLengthRepeated,
    /// Both `Content-Length` and `Transfer-Encoding`.
    #[error("content-length together with transfer-encoding")]
    LengthAndEncoding,
    /// `Transfer-Encoding` in a message of HTTP/1.0.
    #[error("transfer-encoding in HTTP/1.0")]
    EncodingInHttp10,
    /// `Transfer-Encoding` is malformed, or `chunked` is repeated or not last.
    #[error("invalid transfer-encoding")]
    TransferEncoding,
    /// `Transfer-Encoding` names a coding other than `chunked`.
    #[error("unknown transfer-encoding")]
    UnknownEncoding,
    /// `Connection` nominates more fields than anyone has.
    #[error("too many connection options")]
    ConnectionOptions,
}

/// Which known fields a head has, and where each stands first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    /// Bits of the names seen.
    pub(crate) seen: u32,
    /// Bits of the names seen more than once.
    pub(crate) repeated: u32,
    /// Whether some field is not forwarded.
    pub(crate) hop_by_hop: bool,
    first: [u16; Name::COUNT],
}

impl Index {
    #[inline(always)]
    pub(crate) fn has(&self, name: Name) -> bool {
        self.seen & name.bit() != 0
    }

    /// The first field called `name`.
    #[inline(always)]
    pub(crate) fn first<'h>(&self, headers: &'h [Header], name: Name) -> Option<&'h Header> {
        self.has(name).then(|| &headers[self.first[name as usize] as usize])
    }

    /// Marks all fields called `name` as not to be forwarded.
    pub(crate) fn drop_all(&mut self, headers: &mut [Header], name: Name) {
        if self.has(name) {
            for header in headers.iter_mut().filter(|h| h.known == name) {
                header.hop_by_hop = true;
            }
            self.hop_by_hop = true;
        }
    }
}

/// Parses field lines from `from` up to and including the empty line; says where the
/// body begins, or `None` if the head is not complete.
#[inline(always)]
pub(crate) fn fields(
    bytes: &[u8],
    from: usize,
    headers_max: u16,
    headers: &mut Vec<Header>,
    index: &mut Index,
) -> Result<Option<usize>, Malformed> {
    let mut at = from;
    let mut seen = 0;
    let mut repeated = 0;
    loop {
        let name_end = tokens::token_end(bytes, at);
        let Some(&colon) = bytes.get(name_end) else { return Ok(None) };
        if colon != b':' || name_end == at {
            if name_end == at && colon == b'\r' {
                match bytes.get(at + 1) {
                    None => return Ok(None),
                    Some(b'\n') => break,
                    Some(_) => return Err(Malformed::BareCr),
                }
            }
            return Err(bad_name(bytes, at, name_end));
        }
        let mut start = name_end + 1;
        while let Some(b' ' | b'\t') = bytes.get(start) {
            start += 1;
        }
        let line_end = tokens::value_end(bytes, start);
        match bytes.get(line_end..) {
            Some([b'\r', b'\n', ..]) => {}
            None | Some([] | [b'\r']) => return Ok(None),
            Some([b'\r', ..]) => return Err(Malformed::BareCr),
            Some([b'\n', ..]) => return Err(Malformed::BareLf),
            Some(_) => return Err(Malformed::HeaderValue),
        }
        let mut end = line_end;
        while end > start && matches!(bytes[end - 1], b' ' | b'\t') {
            end -= 1;
        }
        if headers.len() >= headers_max as usize {
            return Err(Malformed::TooManyHeaders);
        }
        let known = Name::recognise(&bytes[at..name_end]);
        let bit = known.bit();
        if known != Name::Other {
            if seen & bit == 0 {
                index.first[known as usize] = headers.len() as u16;
            }
            repeated |= seen & bit;
            seen |= bit;
        }
        headers.push(Header {
            name: Span::new(at, name_end),
            value: Span::new(start, end),
            known,
            hop_by_hop: bit & HOP_BY_HOP != 0,
        });
        at = line_end + 2;
    }
    index.seen = seen;
    index.repeated = repeated;
    index.hop_by_hop = seen & HOP_BY_HOP != 0;
    Ok(Some(at + 2))
}

/// Why the bytes from `at` are no field name with a colon at `end`.
#[cold]
fn bad_name(bytes: &[u8], at: usize, end: usize) -> Malformed {
    match bytes[end] {
        b' ' | b'\t' if at == end => Malformed::Fold,
        b' ' | b'\t' => Malformed::SpaceBeforeColon,
        b'\n' => Malformed::BareLf,
        b'\r' if bytes.get(end + 1).is_some_and(|&b| b != b'\n') => Malformed::BareCr,
        _ => Malformed::HeaderName,
    }
}

/// The framing that `Content-Length` and `Transfer-Encoding` declare, if any.
pub(crate) fn declared_framing(
    bytes: &[u8],
    headers: &[Header],
    index: &Index,
    version: Version,
) -> Result<Option<Framing>, Malformed> {
    if index.has(Name::TransferEncoding) {
        if index.has(Name::ContentLength) {
            return Err(Malformed::LengthAndEncoding);
        }
        if version == Version::Http10 {
            return Err(Malformed::EncodingInHttp10);
        }
        transfer_encoding(bytes, headers)?;
        return Ok(Some(Framing::Chunked));
    }
    let Some(header) = index.first(headers, Name::ContentLength) else { return Ok(None) };
    if index.repeated & Name::ContentLength.bit() != 0 {
        return Err(Malformed::ContentLengthRepeated);
    }
    let length = tokens::decimal(header.value.of(bytes)).ok_or(Malformed::ContentLength)?;
    Ok(Some(Framing::Length(length)))
}

/// Accepts exactly `chunked`.
fn transfer_encoding(bytes: &[u8], headers: &[Header]) -> Result<(), Malformed> {
    let mut chunked = false;
    let mut unknown = false;
    for header in headers.iter().filter(|h| h.known == Name::TransferEncoding) {
        for coding in tokens::list(header.value.of(bytes)) {
            // Anything after `chunked` makes the end of the body a matter of opinion.
            if coding.is_empty() || chunked || tokens::token_end(coding, 0) != coding.len() {
                return Err(Malformed::TransferEncoding);
            }
            if coding.eq_ignore_ascii_case(b"chunked") {
                chunked = true;
            } else {
                unknown = true;
            }
        }
    }
    if unknown { Err(Malformed::UnknownEncoding) } else { Ok(()) }
}

/// What the `Connection` fields of a head say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    pub(crate) close: bool,
    pub(crate) keep_alive: bool,
    pub(crate) upgrade: bool,
}

/// Fields that `Connection` may nominate. Each costs a pass over all fields.
const NOMINATIONS_MAX: usize = 32;

/// Reads the `Connection` fields, and marks the fields they nominate as hop-by-hop.
pub(crate) fn connection_options(
    bytes: &[u8],
    headers: &mut [Header],
    index: &mut Index,
) -> Result<Options, Malformed> {
    let mut options = Options::default();
    let mut nominations = 0;
    for i in 0..headers.len() {
        if headers[i].known != Name::Connection {
            continue;
        }
        for option in tokens::list(headers[i].value.of(bytes)) {
            if option.eq_ignore_ascii_case(b"keep-alive") {
                options.keep_alive = true;
            } else if option.eq_ignore_ascii_case(b"close") {
                options.close = true;
            } else if option.eq_ignore_ascii_case(b"upgrade") {
                options.upgrade = true;
            } else if !option.is_empty() {
                nominations += 1;
                if nominations > NOMINATIONS_MAX {
                    return Err(Malformed::ConnectionOptions);
                }
                if is_protected(option) {
                    continue;
                }
                for header in headers.iter_mut() {
                    if header.name.of(bytes).eq_ignore_ascii_case(option) {
                        header.hop_by_hop = true;
                        index.hop_by_hop = true;
                    }
                }
            }
        }
    }
    Ok(options)
}

/// Whether a field is for the far end whatever `Connection` says.
fn is_protected(name: &[u8]) -> bool {
    const NAMES: [&str; 24] = [
        "authorization",
        "cache-control",
        "content-encoding",
        "content-length",
        "content-range",
        "content-type",
        "cookie",
        "date",
        "expect",
        "forwarded",
        "host",
        "if-match",
        "if-none-match",
        "location",
        "origin",
        "range",
        "referer",
        "set-cookie",
        "trailer",
        "transfer-encoding",
        "user-agent",
        "via",
        "x-real-ip",
        "x-request-id",
    ];
    const PREFIX: &[u8] = b"x-forwarded-";
    NAMES.iter().any(|n| name.eq_ignore_ascii_case(n.as_bytes()))
        || name.get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
}

/// The index after the first empty line at or after `from`, if there is one.
///
/// For heads that arrive in pieces: pass the length that was searched before as
/// `from`, and the search costs O(n) in all. An empty line ended by LF alone counts
/// too, so that the parser gets to refuse it.
pub fn find_head_end(bytes: &[u8], from: usize) -> Option<usize> {
    // An end may have begun in the bytes that were searched before.
    let start = from.saturating_sub(3).min(bytes.len());
    for found in memchr::memchr_iter(b'\n', &bytes[start..]) {
        let next = start + found + 1;
        match bytes.get(next..) {
            Some([b'\n', ..]) => return Some(next + 1),
            Some([b'\r', b'\n', ..]) => return Some(next + 2),
            _ => {}
        }
    }
    None
}

/// The value of the first field called `name`, in any case.
pub(crate) fn find<'b>(headers: &[Header], bytes: &'b [u8], name: &str) -> Option<&'b [u8]> {
    let is = |header: &&Header| header.name.of(bytes).eq_ignore_ascii_case(name.as_bytes());
    headers.iter().find(is).map(|header| header.value.of(bytes))
}
