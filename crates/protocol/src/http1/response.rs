//! Heads of responses.

use thiserror::Error;

use super::forward::ResponseEdits;
use super::head::{self, Framing, Header, Index, LOAD_METRICS, Limits, Malformed, Name, Span, Version};
use super::request::Method;
use super::tokens;

/// What a node, or the sender of a body, did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// The first line is no status line of HTTP/1.0 or HTTP/1.1.
    #[error("invalid status line")]
    StatusLine,
    /// The head exceeds its size.
    #[error("response head too long")]
    HeadTooLong,
    /// An interim response declares a body.
    #[error("interim response with a body")]
    InterimBody,
    /// Fields or framing are malformed.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A chunk size is missing, no number, or too large.
    #[error("invalid chunk size")]
    ChunkSize,
    /// A chunk extension is malformed, or there is too much of them.
    #[error("invalid chunk extension")]
    ChunkExtension,
    /// A chunk does not end with CRLF after its data.
    #[error("invalid end of chunk")]
    ChunkEnd,
    /// A trailer field is malformed, or there is too much of them.
    #[error("invalid trailer")]
    Trailer,
    /// A trailer field that has no business in a trailer.
    #[error("forbidden trailer field")]
    TrailerForbidden,
}

/// The head of a response, as spans of the bytes it was parsed from.
#[derive(Clone, Debug, Default)]
pub struct Response {
    /// The status, 100–999.
    pub status: u16,
    /// The version.
    pub version: Version,
    /// The reason phrase; may be empty.
    pub reason: Span,
    /// How the body ends.
    pub framing: Framing,
    /// Whether the node's connection can be used again when the body has ended.
    pub keep_alive: bool,
    /// The fields, in order.
    pub headers: Vec<Header>,
    /// Bytes of the head, its empty line included.
    pub head_len: u32,
    pub(crate) index: Index,
    pub(crate) upgrade: bool,
}

impl Response {
    /// A head to parse into; empty.
    pub fn new() -> Response {
        Response::default()
    }

    /// Parses the head at the start of `bytes`, the answer to a request of method
    /// `request`. `Ok(false)` if it is not complete: call again with more bytes, from
    /// the first on.
    ///
    /// # Errors
    /// A [`Fault`] as soon as the bytes cannot become a response that two readers
    /// would understand alike. The fields of `self` mean nothing then.
    pub fn parse(&mut self, bytes: &[u8], limits: &Limits, request: Method) -> Result<bool, Fault> {
        let max = limits.head_bytes_max as usize;
        let window = &bytes[..bytes.len().min(max)];
        self.headers.clear();
        let end = match self.status_line(window)? {
            Some(line_end) => {
                head::fields(window, line_end, limits.headers_max, &mut self.headers, &mut self.index)?
            }
            None => None,
        };
        let Some(end) = end else {
            return if bytes.len() >= max { Err(Fault::HeadTooLong) } else { Ok(false) };
        };
        self.head_len = end as u32;
        self.interpret(window, request)?;
        Ok(true)
    }

    /// The value of the first field called `name`, in any case.
    pub fn header<'b>(&self, bytes: &'b [u8], name: &str) -> Option<&'b [u8]> {
        head::find(&self.headers, bytes, name)
    }

    /// Whether the node says in this head how it is (ORCA).
    #[inline(always)]
    pub fn has_load_metrics(&self) -> bool {
        self.index.seen & LOAD_METRICS != 0
    }

    /// The fields in which the node says how it is (ORCA): which form, and the value.
    pub fn load_metrics<'b>(&self, bytes: &'b [u8]) -> impl Iterator<Item = (Name, &'b [u8])> {
        let fields = self.headers.iter().filter(|header| header.known.is_load_metrics());
        fields.map(|header| (header.known, header.value.of(bytes)))
    }

    /// Whether the head may be forwarded as it is: [`forward_response`](super::forward_response)
    /// would write the same bytes.
    #[inline]
    pub fn is_verbatim(&self, edits: &ResponseEdits<'_>) -> bool {
        !self.index.hop_by_hop
            && self.version == Version::Http11
            && self.reason.start > STATUS_END
            && edits.via.is_none()
            && edits.request_id.is_none()
            && (self.is_interim() || (edits.keep_alive && !edits.client_keep_alive_header))
            && !(edits.decode_chunked && self.index.seen & UNCHUNKED != 0)
            && !(edits.drop_load_metrics && self.index.seen & (LOAD_METRICS | Name::Trailer.bit()) != 0)
    }

    /// Whether another response to the same request follows.
    pub(crate) fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }

    #[inline(always)]
    fn status_line(&mut self, bytes: &[u8]) -> Result<Option<usize>, Fault> {
        let Some(line) = bytes.get(..13) else {
            let possible = bytes.iter().zip(b"HTTP/1.d ddd").all(|(&b, &p)| match p {
                b'd' => b.is_ascii_digit(),
                p => b == p,
            });
            return if possible { Ok(None) } else { Err(Fault::StatusLine) };
        };
        self.version = match &line[..9] {
            b"HTTP/1.1 " => Version::Http11,
            b"HTTP/1.0 " => Version::Http10,
            _ => return Err(Fault::StatusLine),
        };
        let [a, b, c] = [line[9], line[10], line[11]];
        if !(matches!(a, b'1'..=b'9') && b.is_ascii_digit() && c.is_ascii_digit()) {
            return Err(Fault::StatusLine);
        }
        self.status = u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0');
        // Some nodes leave out the space before an empty reason.
        let start = match line[12] {
            b' ' => 13,
            b'\r' => 12,
            _ => return Err(Fault::StatusLine),
        };
        let end = tokens::value_end(bytes, start);
        self.reason = Span::new(start, end);
        match bytes.get(end..) {
            Some([b'\r', b'\n', ..]) => Ok(Some(end + 2)),
            None | Some([] | [b'\r']) => Ok(None),
            Some([b'\r', ..]) => Err(Malformed::BareCr.into()),
            Some([b'\n', ..]) => Err(Malformed::BareLf.into()),
            Some(_) => Err(Fault::StatusLine),
        }
    }

    #[inline(always)]
    fn interpret(&mut self, bytes: &[u8], request: Method) -> Result<(), Fault> {
        let declared = head::declared_framing(bytes, &self.headers, &self.index, self.version)?;
        self.keep_alive = self.version == Version::Http11;
        self.upgrade = false;
        if self.index.has(Name::Connection) {
            let options = head::connection_options(bytes, &mut self.headers, &mut self.index)?;
            self.keep_alive = !options.close && (self.version == Version::Http11 || options.keep_alive);
        }
        if self.status == 101 || self.status == 426 {
            self.upgrade = self.index.has(Name::Upgrade);
        }
        self.framing = if self.status < 200 {
            if !matches!(declared, None | Some(Framing::Length(0))) {
                return Err(Fault::InterimBody);
            }
            self.drop_framing();
            Framing::None
        } else if self.status == 204 {
            if !matches!(declared, None | Some(Framing::Length(0))) {
                // Whether a body follows is anyone's guess, so nothing else may follow it.
                self.keep_alive = false;
            }
            self.drop_framing();
            Framing::None
        } else if request == Method::Head || self.status == 304 {
            Framing::None
        } else {
            declared.unwrap_or(Framing::UntilClose)
        };
        if self.framing == Framing::UntilClose {
            self.keep_alive = false;
        }
        Ok(())
    }

    /// Framing fields are not allowed in 1xx and 204: they are not forwarded.
    fn drop_framing(&mut self) {
        self.index.drop_all(&mut self.headers, Name::ContentLength);
        self.index.drop_all(&mut self.headers, Name::TransferEncoding);
    }
}

/// Fields that go when the body is sent without chunks: there is no trailer then either.
pub(crate) const UNCHUNKED: u32 = Name::TransferEncoding.bit() | Name::Trailer.bit();

/// Index after the status code.
const STATUS_END: u32 = 12;
