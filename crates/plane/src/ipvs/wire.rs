//! Netlink: messages and attributes, whatever they are about.

use super::message::WireError;

/// Length, kind, flags, sequence number, port.
pub(super) const HEADER_BYTES: usize = 16;
/// Command, version, two bytes of nothing.
const GENERIC_HEADER_BYTES: usize = 4;
const ATTRIBUTE_HEADER_BYTES: usize = 4;
/// The kernel has room for 16 bytes, of which the last is 0.
pub(super) const NAME_BYTES_MAX: usize = 15;
/// Nested, and in network byte order: bits beside the kind.
const ATTRIBUTE_KIND: u16 = 0x3fff;
const NESTED: u16 = 0x8000;

const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 0x001;
const NLM_F_ACK: u16 = 0x004;
const NLM_F_DUMP_INTERRUPTED: u16 = 0x010;
const NLM_F_DUMP: u16 = 0x300;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Do it and say whether it was done.
    Do,
    /// List what there is.
    List,
}

/// A request under way of being written.
#[derive(Debug)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new(kind: u16, mode: Mode, sequence: u32, command: u8) -> Writer {
        let flags = NLM_F_REQUEST
            | match mode {
                Mode::Do => NLM_F_ACK,
                Mode::List => NLM_F_DUMP,
            };
        let mut bytes = Vec::with_capacity(256);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(&sequence.to_ne_bytes());
        // The port of the sender stays 0: the kernel fills it in.
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&[command, 1, 0, 0]);
        Writer(bytes)
    }

    pub(super) fn put(&mut self, kind: u16, value: &[u8]) {
        let length = ATTRIBUTE_HEADER_BYTES + value.len();
        self.0.extend_from_slice(&u16::try_from(length).expect("our attributes are short").to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    pub(super) fn put_u16(&mut self, kind: u16, value: u16) {
        self.put(kind, &value.to_ne_bytes());
    }

    pub(super) fn put_u32(&mut self, kind: u16, value: u32) {
        self.put(kind, &value.to_ne_bytes());
    }

    pub(super) fn put_string(&mut self, kind: u16, value: &str) {
        let mut bytes = Vec::from(value);
        bytes.push(0);
        self.put(kind, &bytes);
    }

    pub(super) fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Writer)) {
        let start = self.0.len();
        self.put(kind | NESTED, &[]);
        fill(self);
        let length = u16::try_from(self.0.len() - start).expect("our requests are short");
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len()).expect("our requests are short");
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0
    }
}

/// A message of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message<'a> {
    /// Something of what was asked for: command and attributes.
    Part(u8, Attributes<'a>),
    /// Nothing follows.
    End,
}

/// Messages of a datagram that answer the request with this sequence number; others are passed over.
pub(super) fn messages(
    datagram: &[u8],
    sequence: u32,
) -> impl Iterator<Item = Result<Message<'_>, WireError>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            match next(&mut rest, sequence) {
                Ok(None) => {}
                Ok(Some(message)) => return Some(Ok(message)),
                Err(error) => {
                    rest = &[];
                    return Some(Err(error));
                }
            }
        }
        None
    })
}

fn next<'a>(rest: &mut &'a [u8], sequence: u32) -> Result<Option<Message<'a>>, WireError> {
    let header = rest.first_chunk::<HEADER_BYTES>().ok_or(WireError::Malformed)?;
    let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
    let kind = u16::from_ne_bytes([header[4], header[5]]);
    let flags = u16::from_ne_bytes([header[6], header[7]]);
    let of = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
    let body = rest.get(HEADER_BYTES..length).ok_or(WireError::Malformed)?;
    *rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    if of != sequence || kind == NLMSG_NOOP {
        return Ok(None);
    }
    // What was listed changed meanwhile: something may be missing.
    if flags & NLM_F_DUMP_INTERRUPTED != 0 {
        return Err(WireError::Interrupted);
    }
    match kind {
        NLMSG_ERROR => outcome(body.first_chunk().ok_or(WireError::Malformed)?).map(Some),
        // A list may end with an error; older kernels end it without any number.
        NLMSG_DONE => outcome(body.first_chunk().unwrap_or(&[0; 4])).map(Some),
        _ => {
            let (header, attributes) =
                body.split_first_chunk::<GENERIC_HEADER_BYTES>().ok_or(WireError::Malformed)?;
            Ok(Some(Message::Part(header[0], Attributes(attributes))))
        }
    }
}

fn outcome<'a>(number: &[u8; 4]) -> Result<Message<'a>, WireError> {
    match i32::from_ne_bytes(*number) {
        0 => Ok(Message::End),
        // The kernel gives it negated.
        number => Err(WireError::Refused(number.saturating_neg())),
    }
}

/// Attributes that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// What an attribute of this kind says; `None` if there is none.
    pub(super) fn find(self, kind: u16) -> Result<Option<&'a [u8]>, WireError> {
        for attribute in self {
            let (of, value) = attribute?;
            if of == kind {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<(u16, &'a [u8]), WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let rest = std::mem::take(&mut self.0);
        let Some(header) = rest.first_chunk::<ATTRIBUTE_HEADER_BYTES>() else {
            return Some(Err(WireError::Malformed));
        };
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & ATTRIBUTE_KIND;
        let Some(value) = rest.get(ATTRIBUTE_HEADER_BYTES..length) else {
            return Some(Err(WireError::Malformed));
        };
        self.0 = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Ok((kind, value)))
    }
}

/// The attributes in a nested one.
pub(super) fn nested(value: &[u8]) -> Attributes<'_> {
    Attributes(value)
}

pub(super) fn u8_of(value: &[u8]) -> Result<u8, WireError> {
    value.first().copied().ok_or(WireError::Malformed)
}

pub(super) fn u16_of(value: &[u8]) -> Result<u16, WireError> {
    value.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes)).ok_or(WireError::Malformed)
}

/// A port, which is in network byte order.
pub(super) fn port_of(value: &[u8]) -> Result<u16, WireError> {
    value.first_chunk().map(|bytes| u16::from_be_bytes(*bytes)).ok_or(WireError::Malformed)
}

pub(super) fn u32_of(value: &[u8]) -> Result<u32, WireError> {
    value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)).ok_or(WireError::Malformed)
}

/// A number of 8 bytes, or of 4 as older kernels have it.
pub(super) fn count_of(value: &[u8]) -> Result<u64, WireError> {
    match value.first_chunk() {
        Some(bytes) => Ok(u64::from_ne_bytes(*bytes)),
        None => u32_of(value).map(u64::from),
    }
}

/// A name up to its end or to the first 0. The kernel's are of 15 bytes at the most.
pub(super) fn name_of(value: &[u8]) -> Result<String, WireError> {
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    let name = value.get(..end).filter(|name| name.len() <= NAME_BYTES_MAX).ok_or(WireError::Malformed)?;
    std::str::from_utf8(name).map(str::to_owned).map_err(|_| WireError::Malformed)
}
