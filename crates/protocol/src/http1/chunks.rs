//! Chunked bodies, as they pass.

use super::response::Fault;
use super::tokens;

/// Bytes of a chunk's extensions at the most.
const EXTENSION_LINE_MAX: u16 = 1024;
/// Bytes of all extensions of a body at the most.
const EXTENSIONS_MAX: u16 = 16 * 1024;
/// Bytes of all trailer fields of a body at the most.
const TRAILER_MAX: u16 = 8 * 1024;
/// Digits of a chunk size at the most.
const SIZE_DIGITS_MAX: u8 = 16;

/// Follows a chunked body through the pieces it arrives in.
///
/// Knows nothing of the data but how much is left of the current chunk.
#[derive(Clone, Copy, Debug)]
pub struct Chunks {
    /// Bytes left of the chunk; in a trailer, the hash of the name so far.
    number: u64,
    /// Bytes of extensions so far.
    extensions: u16,
    /// Bytes of the current line's extensions so far; in the trailer, of all of it.
    line: u16,
    /// Digits of the size so far.
    digits: u8,
    state: State,
}

/// What a call of [`Chunks::scan`] or [`Chunks::decode`] took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Bytes of the input that belong to the body.
    pub consumed: usize,
    /// Whether the body is complete. What follows is another message.
    pub done: bool,
}

/// What a call of [`Chunks::scan_to_trailer`] or [`Chunks::decode_to_trailer`] took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Bytes of the input that belong to the body before its trailer.
    pub consumed: usize,
    /// Bytes after these that are the trailer, its empty line included; the body is complete with them. `None` if
    /// the trailer has not begun or is not all there: what of it is there is to be given again, with more.
    pub trailer: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size,
    ExtensionName { empty: bool },
    ExtensionValue { empty: bool },
    Quoted,
    QuotedPair,
    Unquoted,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    Done,
}

impl Default for Chunks {
    fn default() -> Chunks {
        Chunks::new()
    }
}

impl Chunks {
    /// At the start of a body.
    pub const fn new() -> Chunks {
        Chunks { number: 0, extensions: 0, line: 0, digits: 0, state: State::Size }
    }

    /// Validates `bytes` as the next piece of the body. What is consumed is to be
    /// passed on as it is; all of it is unless the body ends within.
    ///
    /// # Errors
    /// A [`Fault`] if the bytes are no strictly valid chunks. The body cannot be
    /// continued then.
    pub fn scan(&mut self, bytes: &[u8]) -> Result<Scan, Fault> {
        self.advance(bytes, false, |_| {})
    }

    /// Like [`Chunks::scan`], and appends the data to `out`, without sizes, extensions and trailer.
    ///
    /// # Errors
    /// As [`Chunks::scan`]. Data before the fault has been appended.
    pub fn decode(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Scan, Fault> {
        self.advance(bytes, false, |data| out.extend_from_slice(data))
    }

    /// Like [`Chunks::scan`], but takes the trailer (8 KiB at the most) in one piece, for those who look into it.
    ///
    /// # Errors
    /// As [`Chunks::scan`].
    pub fn scan_to_trailer(&mut self, bytes: &[u8]) -> Result<Parts, Fault> {
        let scan = self.advance(bytes, true, |_| {})?;
        self.take_trailer(bytes, scan.consumed)
    }

    /// Like [`Chunks::decode`], but takes the trailer in one piece, as [`Chunks::scan_to_trailer`] does.
    ///
    /// # Errors
    /// As [`Chunks::decode`].
    pub fn decode_to_trailer(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Parts, Fault> {
        let scan = self.advance(bytes, true, |data| out.extend_from_slice(data))?;
        self.take_trailer(bytes, scan.consumed)
    }

    /// Takes the trailer if it begins at `consumed` and is all there.
    #[inline(always)]
    fn take_trailer(&mut self, bytes: &[u8], consumed: usize) -> Result<Parts, Fault> {
        if !self.is_at_trailer() {
            return Ok(Parts { consumed, trailer: None });
        }
        let mut ahead = *self;
        let scan = ahead.advance(&bytes[consumed..], false, |_| {})?;
        if !scan.done {
            return Ok(Parts { consumed, trailer: None });
        }
        *self = ahead;
        Ok(Parts { consumed, trailer: Some(scan.consumed) })
    }

    /// Whether the last chunk has ended and nothing of the trailer has been taken.
    #[inline(always)]
    fn is_at_trailer(&self) -> bool {
        self.state == State::TrailerStart && self.line == 0
    }

    #[inline(always)]
    fn advance(
        &mut self,
        bytes: &[u8],
        to_trailer: bool,
        mut data: impl FnMut(&[u8]),
    ) -> Result<Scan, Fault> {
        let mut at = 0;
        while at < bytes.len() && self.state != State::Done {
            if to_trailer && self.is_at_trailer() {
                break;
            }
            if self.state == State::Data {
                let left = bytes.len() - at;
                let take = usize::try_from(self.number).map_or(left, |n| n.min(left));
                data(&bytes[at..at + take]);
                at += take;
                self.number -= take as u64;
                if self.number == 0 {
                    self.state = State::DataCr;
                }
                continue;
            }
            self.step(bytes[at])?;
            at += 1;
        }
        Ok(Scan { consumed: at, done: self.state == State::Done })
    }

    fn step(&mut self, b: u8) -> Result<(), Fault> {
        self.state = match self.state {
            State::Size => return self.size(b),
            State::ExtensionName { .. }
            | State::ExtensionValue { .. }
            | State::Quoted
            | State::QuotedPair
            | State::Unquoted => return self.extension(b),
            State::SizeLf if b == b'\n' => {
                let last = self.number == 0;
                (self.digits, self.line) = (0, 0);
                if last { State::TrailerStart } else { State::Data }
            }
            State::SizeLf => return Err(Fault::ChunkSize),
            State::DataCr if b == b'\r' => State::DataLf,
            State::DataLf if b == b'\n' => State::Size,
            State::DataCr | State::DataLf => return Err(Fault::ChunkEnd),
            State::EndLf if b == b'\n' => State::Done,
            State::EndLf => return Err(Fault::Trailer),
            State::TrailerStart | State::TrailerName | State::TrailerValue | State::TrailerLf => {
                return self.trailer(b);
            }
            State::Data | State::Done => unreachable!("handled before"),
        };
        Ok(())
    }

    fn size(&mut self, b: u8) -> Result<(), Fault> {
        if let Some(digit) = tokens::hex(b) {
            if self.digits == SIZE_DIGITS_MAX || self.number >> 59 != 0 {
                return Err(Fault::ChunkSize);
            }
            self.number = self.number << 4 | digit;
            self.digits += 1;
            return Ok(());
        }
        if self.digits == 0 {
            return Err(Fault::ChunkSize);
        }
        self.state = match b {
            b'\r' => State::SizeLf,
            b';' => State::ExtensionName { empty: true },
            _ => return Err(Fault::ChunkSize),
        };
        Ok(())
    }

    fn extension(&mut self, b: u8) -> Result<(), Fault> {
        self.line = self.line.saturating_add(1);
        self.extensions = self.extensions.saturating_add(1);
        if self.line > EXTENSION_LINE_MAX || self.extensions > EXTENSIONS_MAX {
            return Err(Fault::ChunkExtension);
        }
        let token = tokens::is_token(b);
        self.state = match (self.state, b) {
            (State::ExtensionName { .. }, _) if token => State::ExtensionName { empty: false },
            (State::ExtensionName { empty: false }, b'=') => State::ExtensionValue { empty: true },
            (State::ExtensionValue { empty: true }, b'"') => State::Quoted,
            (State::ExtensionValue { .. }, _) if token => State::ExtensionValue { empty: false },
            (State::Quoted, b'"') => State::Unquoted,
            (State::Quoted, b'\\') => State::QuotedPair,
            (State::Quoted, _) if tokens::is_quoted(b) => State::Quoted,
            (State::QuotedPair, b'\t' | b' '..=b'~') => State::Quoted,
            (
                State::ExtensionName { empty: false }
                | State::ExtensionValue { empty: false }
                | State::Unquoted,
                b';',
            ) => State::ExtensionName { empty: true },
            (
                State::ExtensionName { empty: false }
                | State::ExtensionValue { empty: false }
                | State::Unquoted,
                b'\r',
            ) => State::SizeLf,
            _ => return Err(Fault::ChunkExtension),
        };
        Ok(())
    }

    fn trailer(&mut self, b: u8) -> Result<(), Fault> {
        self.line = self.line.saturating_add(1);
        if self.line > TRAILER_MAX {
            return Err(Fault::Trailer);
        }
        self.state = match (self.state, b) {
            (State::TrailerStart, b'\r') => State::EndLf,
            (State::TrailerStart, _) if tokens::is_token(b) => {
                self.number = hash(HASH_START, b);
                State::TrailerName
            }
            (State::TrailerName, _) if tokens::is_token(b) => {
                self.number = hash(self.number, b);
                State::TrailerName
            }
            (State::TrailerName, b':') => {
                if FORBIDDEN.contains(&self.number) {
                    return Err(Fault::TrailerForbidden);
                }
                State::TrailerValue
            }
            (State::TrailerValue, b'\r') => State::TrailerLf,
            (State::TrailerValue, _) if !tokens::is_control(b) => State::TrailerValue,
            (State::TrailerLf, b'\n') => State::TrailerStart,
            _ => return Err(Fault::Trailer),
        };
        Ok(())
    }
}

/// Hashes of the names that may not stand in a trailer: framing, routing, identity and
/// what changes how the message is read. A hash, so that a name cut in two by the
/// pieces it arrives in needs no buffer; another name with the same hash is only refused.
const FORBIDDEN: [u64; 28] = [
    hash_name("age"),
    hash_name("authorization"),
    hash_name("cache-control"),
    hash_name("connection"),
    hash_name("content-encoding"),
    hash_name("content-length"),
    hash_name("content-range"),
    hash_name("content-type"),
    hash_name("cookie"),
    hash_name("date"),
    hash_name("expect"),
    hash_name("forwarded"),
    hash_name("host"),
    hash_name("keep-alive"),
    hash_name("location"),
    hash_name("proxy-authenticate"),
    hash_name("proxy-authorization"),
    hash_name("proxy-connection"),
    hash_name("set-cookie"),
    hash_name("te"),
    hash_name("trailer"),
    hash_name("transfer-encoding"),
    hash_name("upgrade"),
    hash_name("via"),
    hash_name("www-authenticate"),
    hash_name("x-forwarded-for"),
    hash_name("x-forwarded-host"),
    hash_name("x-forwarded-proto"),
];

// FNV-1a, 64 bits.
const HASH_START: u64 = 0xcbf2_9ce4_8422_2325;

const fn hash(state: u64, b: u8) -> u64 {
    (state ^ b.to_ascii_lowercase() as u64).wrapping_mul(0x0000_0100_0000_01b3)
}

const fn hash_name(name: &str) -> u64 {
    let bytes = name.as_bytes();
    let mut state = HASH_START;
    let mut i = 0;
    while i < bytes.len() {
        state = hash(state, bytes[i]);
        i += 1;
    }
    state
}
