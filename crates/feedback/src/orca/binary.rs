//! The message as protocol buffers write it.
//!
//! Nine fields, of which three are maps of strings to numbers: less to write by hand than a generator
//! would bring in.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::{Fault, Group, Metrics, Reading, Scalar, Visitor};

/// gRPC leaves the padding out, others do not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// How a field is written.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const FIXED32: u64 = 5;

pub(super) fn from_base64(text: &[u8]) -> Result<Vec<u8>, Fault> {
    BASE64.decode(text).map_err(|_| Fault::Form)
}

pub(super) fn to_base64(message: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(BASE64.encode(message).as_bytes());
}

/// Reads the message itself. Of a metric that is said twice the last holds, as protocol buffers have it.
///
/// # Errors
/// A [`Fault`]; what the visitor heard until then is not to be used.
pub fn decode(message: &[u8], visit: Visitor<'_>) -> Result<Metrics, Fault> {
    let mut reading = Reading::new(visit);
    let mut fields = Fields { bytes: message };
    while let Some((number, field)) = fields.next()? {
        let scalar = Scalar::ALL.into_iter().find(|scalar| scalar.number() == number);
        let group = Group::ALL.into_iter().find(|group| group.number() == number);
        match (scalar, group, field) {
            (Some(Scalar::Rps), _, Field::Varint(rps)) => {
                reading.scalar(Scalar::Rps, rps as f64)?;
            }
            (Some(Scalar::Rps), ..) => return Err(Fault::Form),
            (Some(scalar), _, Field::Fixed64(bits)) => {
                reading.scalar(scalar, f64::from_bits(bits))?;
            }
            (_, Some(group), Field::Bytes(entry)) => {
                let (name, value) = map_entry(entry)?;
                reading.named(group, name, value)?;
            }
            (None, None, _) => {}
            _ => return Err(Fault::Form),
        }
    }
    Ok(reading.done())
}

/// Appends the message itself.
pub fn encode<'a>(
    out: &mut Vec<u8>,
    metrics: &Metrics,
    named: impl IntoIterator<Item = (Group, &'a str, f64)>,
) {
    for scalar in Scalar::ALL {
        if let Some(value) = scalar.of(metrics) {
            put_number(out, scalar.number(), value);
        }
    }
    for (group, name, value) in named {
        let mut entry = Vec::with_capacity(name.len() + 16);
        put_varint(&mut entry, 1 << 3 | BYTES);
        put_varint(&mut entry, name.len() as u64);
        entry.extend_from_slice(name.as_bytes());
        put_number(&mut entry, 2, value);
        put_varint(out, group.number() << 3 | BYTES);
        put_varint(out, entry.len() as u64);
        out.extend_from_slice(&entry);
    }
}

impl Scalar {
    const fn number(self) -> u64 {
        match self {
            Scalar::Cpu => 1,
            Scalar::Memory => 2,
            Scalar::Rps => 3,
            Scalar::RpsFractional => 6,
            Scalar::Eps => 7,
            Scalar::Application => 9,
        }
    }
}

impl Group {
    const fn number(self) -> u64 {
        match self {
            Group::RequestCost => 4,
            Group::Utilization => 5,
            Group::Named => 8,
        }
    }
}

/// An entry of a map: name and value, either of which may be missing, which means empty and 0.
fn map_entry(bytes: &[u8]) -> Result<(&str, f64), Fault> {
    let (mut name, mut value) = ("", 0.0);
    let mut fields = Fields { bytes };
    while let Some((number, field)) = fields.next()? {
        match (number, field) {
            (1, Field::Bytes(bytes)) => name = std::str::from_utf8(bytes).map_err(|_| Fault::Form)?,
            (2, Field::Fixed64(bits)) => value = f64::from_bits(bits),
            (1 | 2, _) => return Err(Fault::Form),
            _ => {}
        }
    }
    Ok((name, value))
}

/// The fields of a message, one after the other.
struct Fields<'a> {
    bytes: &'a [u8],
}

enum Field<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
}

impl<'a> Fields<'a> {
    /// The number of the next field, and what it holds.
    fn next(&mut self) -> Result<Option<(u64, Field<'a>)>, Fault> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = tag >> 3;
        if number == 0 {
            return Err(Fault::Form);
        }
        let field = match tag & 7 {
            VARINT => Field::Varint(self.varint()?),
            FIXED64 => Field::Fixed64(u64::from_le_bytes(*self.chunk()?)),
            BYTES => {
                let length = usize::try_from(self.varint()?).map_err(|_| Fault::Form)?;
                let (bytes, rest) = self.bytes.split_at_checked(length).ok_or(Fault::Form)?;
                self.bytes = rest;
                Field::Bytes(bytes)
            }
            FIXED32 => {
                self.chunk::<4>()?;
                Field::Fixed32
            }
            // Groups went out of use before this message came into it.
            _ => return Err(Fault::Form),
        };
        Ok(Some((number, field)))
    }

    fn chunk<const N: usize>(&mut self) -> Result<&'a [u8; N], Fault> {
        let (chunk, rest) = self.bytes.split_first_chunk().ok_or(Fault::Form)?;
        self.bytes = rest;
        Ok(chunk)
    }

    fn varint(&mut self) -> Result<u64, Fault> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let [byte] = *self.chunk()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if shift == 63 && bits > 1 {
                return Err(Fault::Form);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Fault::Form)
    }
}

fn put_number(out: &mut Vec<u8>, number: u64, value: f64) {
    put_varint(out, number << 3 | FIXED64);
    out.extend_from_slice(&value.to_bits().to_le_bytes());
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
