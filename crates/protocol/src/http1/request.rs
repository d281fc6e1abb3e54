//! Heads of requests.

use thiserror::Error;

use super::head::{self, Framing, Header, Index, Limits, Malformed, Name, Span, Version};
use super::tokens;

/// The method of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the method of that name")]
pub enum Method {
    #[default]
    Get,
    Head,
    Post,
    Put,
    Delete,
    Options,
    Trace,
    Connect,
    Patch,
    /// Any other token.
    Other,
}

impl Method {
    /// Whether doing it twice is the same as doing it once (RFC 9110, 9.2.2).
    pub const fn is_idempotent(self) -> bool {
        matches!(
            self,
            Method::Get | Method::Head | Method::Put | Method::Delete | Method::Options | Method::Trace
        )
    }

    #[inline(always)]
    fn recognise(text: &[u8]) -> Method {
        match text {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"OPTIONS" => Method::Options,
            b"TRACE" => Method::Trace,
            b"CONNECT" => Method::Connect,
            b"PATCH" => Method::Patch,
            _ => Method::Other,
        }
    }
}

/// Why a request is refused. The connection is not usable any more: nobody can say
/// where the next request would begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// More than one empty line before the request.
    #[error("empty lines instead of a request")]
    EmptyLines,
    /// The method is no token of at most 32 bytes followed by one space.
    #[error("invalid method")]
    Method,
    /// `CONNECT`: Evener is no forward proxy.
    #[error("method CONNECT is not supported")]
    Connect,
    /// The target has none of the forms that its method allows, or an invalid byte.
    #[error("invalid request target")]
    Target,
    /// The request line does not end with an HTTP version and CRLF.
    #[error("invalid request line")]
    RequestLine,
    /// A version other than 1.0 and 1.1.
    #[error("unsupported HTTP version")]
    Version,
    /// The request line alone exceeds the size of a head.
    #[error("request line too long")]
    RequestLineTooLong,
    /// The head exceeds its size.
    #[error("request head too long")]
    HeadTooLong,
    /// No `Host` in HTTP/1.1.
    #[error("missing host")]
    HostMissing,
    /// More than one `Host`.
    #[error("repeated host")]
    HostRepeated,
    /// `Host` is no name or address with an optional port.
    #[error("invalid host")]
    Host,
    /// An expectation other than `100-continue`.
    #[error("unknown expectation")]
    Expectation,
    /// `TRACE` with a body.
    #[error("TRACE with a body")]
    TraceBody,
    /// Fields or framing are malformed.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

impl Refusal {
    /// The status to answer with.
    pub const fn status(self) -> u16 {
        match self {
            Refusal::RequestLineTooLong => 414,
            Refusal::Expectation => 417,
            Refusal::HeadTooLong | Refusal::Malformed(Malformed::TooManyHeaders) => 431,
            Refusal::Connect | Refusal::Malformed(Malformed::UnknownEncoding) => 501,
            Refusal::Version => 505,
            _ => 400,
        }
    }

    /// The reason phrase of [`Refusal::status`].
    pub const fn reason(self) -> &'static str {
        match self.status() {
            414 => "URI Too Long",
            417 => "Expectation Failed",
            431 => "Request Header Fields Too Large",
            501 => "Not Implemented",
            505 => "HTTP Version Not Supported",
            _ => "Bad Request",
        }
    }
}

/// Longest method that is accepted.
const METHOD_BYTES_MAX: usize = 32;

/// The head of a request, as spans of the bytes it was parsed from.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The method as written.
    pub method_text: Span,
    /// The request target as written.
    pub target: Span,
    /// The path without the query. Of an absolute target without a path, a span that
    /// reads `/`; of `*`, `*`.
    pub path: Span,
    /// What follows the `?` of the target.
    pub query: Option<Span>,
    /// The host that is meant, with its port if one was given. The authority of an
    /// absolute target wins over `Host`.
    pub host: Option<Span>,
    /// The version.
    pub version: Version,
    /// How the body ends. Never [`Framing::UntilClose`].
    pub framing: Framing,
    /// Whether the client wants to keep the connection.
    pub keep_alive: bool,
    /// The protocols to switch to, if the client validly asks for it.
    pub upgrade: Option<Span>,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expect_continue: bool,
    /// The fields, in order.
    pub headers: Vec<Header>,
    /// Bytes of the head, an empty line before it and the one after it included.
    pub head_len: u32,
    pub(crate) index: Index,
    pub(crate) form: Form,
    pub(crate) te_trailers: bool,
}

/// The form of a request target (RFC 9112, 3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    #[default]
    Origin,
    Absolute,
    Asterisk,
}

impl Request {
    /// A head to parse into; empty.
    pub fn new() -> Request {
        Request::default()
    }

    /// Parses the head at the start of `bytes`. `Ok(false)` if it is not complete:
    /// call again with more bytes, from the first on.
    ///
    /// O(length), no allocation once the list of fields has grown to its usual size.
    ///
    /// # Errors
    /// A [`Refusal`] as soon as the bytes cannot become an acceptable request. The
    /// fields of `self` mean nothing then, nor after `Ok(false)`.
    pub fn parse(&mut self, bytes: &[u8], limits: &Limits) -> Result<bool, Refusal> {
        let max = limits.head_bytes_max as usize;
        let window = &bytes[..bytes.len().min(max)];
        self.headers.clear();
        let too_long = |refusal| if bytes.len() >= max { Err(refusal) } else { Ok(false) };
        let Some(line_end) = self.request_line(window)? else {
            return too_long(Refusal::RequestLineTooLong);
        };
        let Some(end) =
            head::fields(window, line_end, limits.headers_max, &mut self.headers, &mut self.index)?
        else {
            return too_long(Refusal::HeadTooLong);
        };
        self.head_len = end as u32;
        self.interpret(window)?;
        Ok(true)
    }

    /// The value of the first field called `name`, in any case.
    pub fn header<'b>(&self, bytes: &'b [u8], name: &str) -> Option<&'b [u8]> {
        head::find(&self.headers, bytes, name)
    }

    /// Parses the request line, and an empty line before it; says where the fields begin.
    #[inline(always)]
    fn request_line(&mut self, bytes: &[u8]) -> Result<Option<usize>, Refusal> {
        let mut start = 0;
        if let Some(&first @ (b'\r' | b'\n')) = bytes.first() {
            match (first, bytes.get(1), bytes.get(2)) {
                (b'\n', _, _) => return Err(Malformed::BareLf.into()),
                (_, None, _) | (_, Some(b'\n'), None) => return Ok(None),
                (_, Some(b'\n'), Some(b'\r' | b'\n')) => return Err(Refusal::EmptyLines),
                (_, Some(b'\n'), _) => start = 2,
                _ => return Err(Malformed::BareCr.into()),
            }
        }
        let method_end = tokens::token_end(bytes, start);
        if method_end - start > METHOD_BYTES_MAX {
            return Err(Refusal::Method);
        }
        match bytes.get(method_end) {
            None => return Ok(None),
            Some(b' ') if method_end > start => {}
            Some(_) => return Err(Refusal::Method),
        }
        self.method_text = Span::new(start, method_end);
        self.method = Method::recognise(&bytes[start..method_end]);

        let target_start = method_end + 1;
        let target_end = tokens::target_end(bytes, target_start);
        match bytes.get(target_end) {
            None => return Ok(None),
            Some(b' ') if target_end > target_start => {}
            Some(_) => return Err(Refusal::Target),
        }
        self.target = Span::new(target_start, target_end);

        let line_end = target_end + 11;
        let Some(version) = bytes.get(target_end + 1..line_end) else {
            let part = &bytes[target_end + 1..];
            let possible = part.iter().zip(b"HTTP/d.d\r\n").all(|(&b, &p)| match p {
                b'd' => b.is_ascii_digit(),
                p => b == p,
            });
            return if possible { Ok(None) } else { Err(Refusal::RequestLine) };
        };
        self.version = match version {
            b"HTTP/1.1\r\n" => Version::Http11,
            b"HTTP/1.0\r\n" => Version::Http10,
            [b'H', b'T', b'T', b'P', b'/', major, b'.', minor, b'\r', b'\n']
                if major.is_ascii_digit() && minor.is_ascii_digit() =>
            {
                return Err(Refusal::Version);
            }
            _ => return Err(Refusal::RequestLine),
        };
        Ok(Some(line_end))
    }

    /// Draws from the parsed lines what they mean.
    #[inline(always)]
    fn interpret(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        if self.method == Method::Connect {
            return Err(Refusal::Connect);
        }
        self.host = self.host_field(bytes)?;
        self.interpret_target(bytes)?;
        let declared = head::declared_framing(bytes, &self.headers, &self.index, self.version)?;
        self.framing = declared.unwrap_or(Framing::None);

        self.keep_alive = self.version == Version::Http11;
        self.upgrade = None;
        self.expect_continue = false;
        self.te_trailers = false;
        const UNUSUAL: u32 =
            Name::Connection.bit() | Name::Upgrade.bit() | Name::Expect.bit() | Name::Te.bit();
        if self.index.seen & UNUSUAL != 0 {
            self.interpret_connection(bytes)?;
            self.interpret_expect(bytes)?;
        }
        if self.method == Method::Trace && self.framing != Framing::None {
            return Err(Refusal::TraceBody);
        }
        Ok(())
    }

    fn host_field(&self, bytes: &[u8]) -> Result<Option<Span>, Refusal> {
        let Some(header) = self.index.first(&self.headers, Name::Host) else {
            return match self.version {
                Version::Http10 => Ok(None),
                Version::Http11 => Err(Refusal::HostMissing),
            };
        };
        if self.index.repeated & Name::Host.bit() != 0 {
            return Err(Refusal::HostRepeated);
        }
        if !tokens::is_authority(header.value.of(bytes)) {
            return Err(Refusal::Host);
        }
        Ok(Some(header.value))
    }

    fn interpret_target(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let Span { start, end } = self.target;
        let text = self.target.of(bytes);
        let mut path_start = start;
        self.form = Form::Origin;
        if text[0] != b'/' {
            if text == b"*" && self.method == Method::Options {
                self.form = Form::Asterisk;
                self.path = self.target;
                self.query = None;
                return Ok(());
            }
            path_start = self.absolute_target(bytes)?;
            self.form = Form::Absolute;
        }
        let rest = Span { start: path_start, end };
        match memchr::memchr(b'?', rest.of(bytes)) {
            Some(at) => {
                let mark = path_start + at as u32;
                self.path = Span { start: path_start, end: mark };
                self.query = Some(Span { start: mark + 1, end });
            }
            None => {
                self.path = rest;
                self.query = None;
            }
        }
        if self.path.is_empty() {
            // The second slash of `http://` reads as the path that is meant.
            let slash = start + if text[4] == b':' { 6 } else { 7 };
            self.path = Span { start: slash, end: slash + 1 };
        }
        Ok(())
    }

    /// Takes the host from an absolute target; says where its path begins.
    #[cold]
    fn absolute_target(&mut self, bytes: &[u8]) -> Result<u32, Refusal> {
        let text = self.target.of(bytes);
        let scheme = |name: &[u8]| text.get(..name.len()).is_some_and(|s| s.eq_ignore_ascii_case(name));
        let skip = if scheme(b"http://") {
            7
        } else if scheme(b"https://") {
            8
        } else {
            return Err(Refusal::Target);
        };
        let rest = &text[skip..];
        let length = rest.iter().position(|&b| b == b'/' || b == b'?').unwrap_or(rest.len());
        if !tokens::is_authority(&rest[..length]) {
            return Err(Refusal::Target);
        }
        let start = self.target.start + skip as u32;
        let end = start + length as u32;
        self.host = Some(Span { start, end });
        Ok(end)
    }

    fn interpret_connection(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let options = head::connection_options(bytes, &mut self.headers, &mut self.index)?;
        self.keep_alive = !options.close && (self.version == Version::Http11 || options.keep_alive);
        if let Some(header) = self.index.first(&self.headers, Name::Upgrade) {
            let value = header.value.of(bytes);
            // HTTP/2 is not spoken towards nodes, and a second list could say anything.
            let acceptable = self.version == Version::Http11
                && options.upgrade
                && self.index.repeated & Name::Upgrade.bit() == 0
                && !value.is_empty()
                && tokens::list(value).all(|protocol| !protocol.is_empty() && !is_http2(protocol));
            self.upgrade = acceptable.then_some(header.value);
        }
        if self.index.has(Name::Te) && self.version == Version::Http11 {
            self.te_trailers = self.headers.iter().filter(|h| h.known == Name::Te).any(|h| {
                tokens::list(h.value.of(bytes)).any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
            });
        }
        Ok(())
    }

    fn interpret_expect(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        if !self.index.has(Name::Expect) {
            return Ok(());
        }
        if self.version == Version::Http10 {
            // An expectation of HTTP/1.0 is ignored, and must not reach the node as one of HTTP/1.1.
            self.index.drop_all(&mut self.headers, Name::Expect);
            return Ok(());
        }
        for header in self.headers.iter().filter(|h| h.known == Name::Expect) {
            if !header.value.of(bytes).eq_ignore_ascii_case(b"100-continue") {
                return Err(Refusal::Expectation);
            }
        }
        self.expect_continue = !matches!(self.framing, Framing::None | Framing::Length(0));
        Ok(())
    }
}

fn is_http2(protocol: &[u8]) -> bool {
    protocol.eq_ignore_ascii_case(b"h2c") || protocol.eq_ignore_ascii_case(b"h2")
}
