//! A message as bytes: header, units, credential.

use thiserror::Error;

use super::key::Key;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 20;
/// Bytes of a unit of a basic payload.
pub const UNIT_BYTES: usize = 32;
/// Bytes of the credential at the end of an authenticated message.
pub const CREDENTIAL_BYTES: usize = 20;
/// Units of a message at the most. More than any node has services, and few enough to be held.
pub const UNITS_MAX: usize = 512;
/// Bytes of a message at the most.
pub const MESSAGE_BYTES_MAX: usize = HEADER_BYTES + UNITS_MAX * UNIT_BYTES + CREDENTIAL_BYTES;
/// The version that is spoken here, the only one there is.
pub const VERSION: u8 = 1;

const MAGIC: u16 = 0x414a;

/// What a message does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the protocol's own names")]
pub enum Opcode {
    Noop = 0x00,
    Init = 0x01,
    InitAck = 0x02,
    Keepalive = 0x03,
    KeepaliveAck = 0x04,
    Start = 0x05,
    StartAck = 0x06,
    Stop = 0x07,
    StopAck = 0x08,
    ExceptionAdd = 0x20,
    ExceptionAddAck = 0x21,
    ExceptionDel = 0x22,
    ExceptionDelAck = 0x23,
    ExceptionReset = 0x24,
    ExceptionResetAck = 0x25,
    ExceptionQuery = 0x26,
    ExceptionResp = 0x27,
}

impl Opcode {
    /// All of them.
    pub const ALL: [Opcode; 17] = [
        Opcode::Noop,
        Opcode::Init,
        Opcode::InitAck,
        Opcode::Keepalive,
        Opcode::KeepaliveAck,
        Opcode::Start,
        Opcode::StartAck,
        Opcode::Stop,
        Opcode::StopAck,
        Opcode::ExceptionAdd,
        Opcode::ExceptionAddAck,
        Opcode::ExceptionDel,
        Opcode::ExceptionDelAck,
        Opcode::ExceptionReset,
        Opcode::ExceptionResetAck,
        Opcode::ExceptionQuery,
        Opcode::ExceptionResp,
    ];

    /// The opcode of that code, if there is one.
    pub fn from_code(code: u8) -> Option<Opcode> {
        Opcode::ALL.into_iter().find(|opcode| opcode.code() == code)
    }

    /// Its code.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// What answers it; `None` for answers themselves, and for what is not answered.
    pub const fn answer(self) -> Option<Opcode> {
        match self {
            Opcode::Init => Some(Opcode::InitAck),
            Opcode::Keepalive => Some(Opcode::KeepaliveAck),
            Opcode::Start => Some(Opcode::StartAck),
            Opcode::Stop => Some(Opcode::StopAck),
            Opcode::ExceptionAdd => Some(Opcode::ExceptionAddAck),
            Opcode::ExceptionDel => Some(Opcode::ExceptionDelAck),
            Opcode::ExceptionReset => Some(Opcode::ExceptionResetAck),
            Opcode::ExceptionQuery => Some(Opcode::ExceptionResp),
            _ => None,
        }
    }
}

/// What is set in a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u16);

impl Flags {
    /// Nothing.
    pub const NONE: Flags = Flags(0);
    /// The payload is made of units.
    pub const BASIC_PAYLOAD: Flags = Flags(0x01);
    /// A credential follows the payload.
    pub const CREDENTIAL: Flags = Flags(0x02);
    /// The request failed, at least in part.
    pub const ERROR: Flags = Flags(0x04);
    /// The request was of a version that is not spoken; the header's is the highest that is.
    pub const VERSION_MISMATCH: Flags = Flags(0x08);
    /// The request was not authenticated, or not rightly.
    pub const AUTH_REQUIRED: Flags = Flags(0x10);
    /// The request's sequence number was not the next.
    pub const BAD_SEQUENCE_NUMBER: Flags = Flags(0x20);

    /// Whether all of `other` is set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the request was not acted upon for what it was, whatever it asked for.
    pub const fn is_rejection(self) -> bool {
        let why = Flags::VERSION_MISMATCH.with(Flags::AUTH_REQUIRED).with(Flags::BAD_SEQUENCE_NUMBER);
        self.has(Flags::ERROR) && self.0 & why.0 != 0
    }

    /// Both.
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// A message's fixed part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What is set.
    pub flags: Flags,
    /// The version of the protocol.
    pub version: u8,
    /// The code of what it does: an [`Opcode`], if the version is known.
    pub opcode: u8,
    /// Ties an answer to its request.
    pub request_id: u16,
    /// Its place in the sequence of an authenticated connection, else 0.
    pub seq_num: u64,
    /// Bytes that follow the header.
    pub payload_length: u32,
}

/// Eight numbers: what the payload of a message is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Unit(pub [u32; 8]);

/// What is wrong with the bytes of a connection. After [`Fault::Magic`] and [`Fault::Length`] nobody can tell where the next
/// message begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// The bytes do not begin a message.
    #[error("no NECP message")]
    Magic,
    /// The message is longer than any may be.
    #[error("NECP message too long")]
    Length,
}

/// What is wrong with a message whose bounds are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Malformed {
    /// The peer speaks another version.
    #[error("unknown version of NECP")]
    Version,
    /// The version has no such opcode.
    #[error("unknown NECP opcode")]
    Opcode,
    /// The payload is not made of whole units, or too short for its credential.
    #[error("NECP payload of the wrong size")]
    Payload,
}

/// A message as it lies in the bytes that were received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The fixed part.
    pub header: Header,
    /// All of it.
    bytes: &'a [u8],
}

impl Header {
    fn read(bytes: &[u8; HEADER_BYTES]) -> Header {
        let [_, _, f0, f1, version, opcode, r0, r1, seq @ .., l0, l1, l2, l3] = *bytes;
        Header {
            flags: Flags(u16::from_be_bytes([f0, f1])),
            version,
            opcode,
            request_id: u16::from_be_bytes([r0, r1]),
            seq_num: u64::from_be_bytes(seq),
            payload_length: u32::from_be_bytes([l0, l1, l2, l3]),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC.to_be_bytes());
        out.extend_from_slice(&self.flags.0.to_be_bytes());
        out.extend_from_slice(&[self.version, self.opcode]);
        out.extend_from_slice(&self.request_id.to_be_bytes());
        out.extend_from_slice(&self.seq_num.to_be_bytes());
        out.extend_from_slice(&self.payload_length.to_be_bytes());
    }
}

impl<'a> Frame<'a> {
    /// The message at the start of `bytes`, of any version. `Ok(None)`: more bytes are needed, at most
    /// [`MESSAGE_BYTES_MAX`] in all.
    ///
    /// # Errors
    /// A [`Fault`] as soon as the bytes cannot become a message.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<Frame<'a>>, Fault> {
        if bytes.iter().zip(MAGIC.to_be_bytes()).any(|(&a, b)| a != b) {
            return Err(Fault::Magic);
        }
        let Some(fixed) = bytes.first_chunk() else { return Ok(None) };
        let header = Header::read(fixed);
        let length = usize::try_from(header.payload_length).map_err(|_| Fault::Length)?;
        if length > MESSAGE_BYTES_MAX - HEADER_BYTES {
            return Err(Fault::Length);
        }
        Ok(bytes.get(..HEADER_BYTES + length).map(|bytes| Frame { header, bytes }))
    }

    /// Bytes of the message.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Never: a message has a header.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// What the message does, and the units it does it with.
    ///
    /// # Errors
    /// Why it is [`Malformed`].
    pub fn message(&self) -> Result<(Opcode, Units<'a>), Malformed> {
        if self.header.version != VERSION {
            return Err(Malformed::Version);
        }
        let opcode = Opcode::from_code(self.header.opcode).ok_or(Malformed::Opcode)?;
        let (bytes, _) = self.split().ok_or(Malformed::Payload)?;
        let bytes = &bytes[HEADER_BYTES..];
        let basic = bytes.is_empty() || self.header.flags.has(Flags::BASIC_PAYLOAD);
        if !basic || !bytes.len().is_multiple_of(UNIT_BYTES) {
            return Err(Malformed::Payload);
        }
        Ok((opcode, Units { bytes }))
    }

    /// Whether the message ends with the credential that `key` gives it.
    pub fn is_signed_by(&self, key: &Key) -> bool {
        match self.split() {
            Some((signed, credential)) if !credential.is_empty() => key.verifies(signed, credential),
            _ => false,
        }
    }

    /// What a credential covers, and the credential, empty if there is none; `None` if one is announced for which there is no room.
    fn split(&self) -> Option<(&'a [u8], &'a [u8])> {
        let credential = if self.header.flags.has(Flags::CREDENTIAL) { CREDENTIAL_BYTES } else { 0 };
        let at = self.bytes.len().checked_sub(credential).filter(|&at| at >= HEADER_BYTES)?;
        Some(self.bytes.split_at(at))
    }
}

/// The units of a message, read as they are asked for.
#[derive(Clone, Copy, Debug)]
pub struct Units<'a> {
    bytes: &'a [u8],
}

impl Units<'_> {
    /// How many there are, at most [`UNITS_MAX`].
    pub fn count(&self) -> usize {
        self.bytes.len() / UNIT_BYTES
    }
}

impl Iterator for Units<'_> {
    type Item = Unit;

    fn next(&mut self) -> Option<Unit> {
        let (unit, rest) = self.bytes.split_first_chunk::<UNIT_BYTES>()?;
        self.bytes = rest;
        let mut data = [0; 8];
        for (number, bytes) in data.iter_mut().zip(unit.chunks_exact(4)) {
            *number = u32::from_be_bytes(bytes.try_into().expect("four bytes"));
        }
        Some(Unit(data))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.bytes.len() / UNIT_BYTES, Some(self.bytes.len() / UNIT_BYTES))
    }
}

impl ExactSizeIterator for Units<'_> {}

/// Appends a message of our version. With a key it is signed and carries `seq_num`; without one it carries 0.
///
/// Units above [`UNITS_MAX`] are left out.
pub fn write(
    out: &mut Vec<u8>,
    opcode: Opcode,
    flags: Flags,
    request_id: u16,
    sign: Option<(&Key, u64)>,
    units: impl IntoIterator<Item = Unit>,
) {
    let start = out.len();
    // What only this function can know.
    let flags = Flags(flags.0 & !(Flags::BASIC_PAYLOAD.0 | Flags::CREDENTIAL.0));
    let mut header = Header {
        flags: if sign.is_some() { flags.with(Flags::CREDENTIAL) } else { flags },
        version: VERSION,
        opcode: opcode.code(),
        request_id,
        seq_num: sign.map_or(0, |(_, seq_num)| seq_num),
        payload_length: 0,
    };
    header.write(out);
    for unit in units.into_iter().take(UNITS_MAX) {
        header.flags = header.flags.with(Flags::BASIC_PAYLOAD);
        for number in unit.0 {
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
    let units_bytes = out.len() - start - HEADER_BYTES;
    let credential = if sign.is_some() { CREDENTIAL_BYTES } else { 0 };
    header.payload_length = (units_bytes + credential) as u32;
    let mut fixed = Vec::with_capacity(HEADER_BYTES);
    header.write(&mut fixed);
    out[start..start + HEADER_BYTES].copy_from_slice(&fixed);
    if let Some((key, _)) = sign {
        // The credential covers the length that counts it.
        let credential = key.credential(&out[start..]);
        out.extend_from_slice(&credential);
    }
}

/// Appends the refusal of a message of another version: the header of ours, and nothing else.
pub fn write_version_mismatch(out: &mut Vec<u8>, request: &Header, sign: Option<(&Key, u64)>) {
    let opcode = Opcode::from_code(request.opcode).unwrap_or(Opcode::Noop);
    let flags = Flags::ERROR.with(Flags::VERSION_MISMATCH);
    write(out, opcode.answer().unwrap_or(opcode), flags, request.request_id, sign, []);
}
