//! Numbers and texts as bytes.

use std::time::Duration;

use evener_model::{JobCounts, NodeId, Time, Weight};

/// Why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wrong(pub(crate) &'static str);

pub(crate) fn put_number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    let text = &text[..text.floor_char_boundary(crate::NAME_BYTES_MAX)];
    put_number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

pub(crate) fn put_node(out: &mut Vec<u8>, node: NodeId) {
    put_number(out, u64::from(node.0));
}

/// A number that may be missing: 0 if it is, else one more than it is.
pub(crate) fn put_optional(out: &mut Vec<u8>, value: Option<u64>) {
    put_number(out, value.map_or(0, |value| value.saturating_add(1)));
}

/// Nanoseconds: 584 years at the most.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Reads from the front of a slice.
#[derive(Clone, Debug)]
pub(crate) struct Input<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn byte(&mut self) -> Result<u8, Wrong> {
        let (&byte, rest) = self.rest.split_first().ok_or(Wrong("it ends within an entry"))?;
        self.rest = rest;
        Ok(byte)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Wrong> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Wrong("it ends within an entry"))?;
        self.rest = rest;
        Ok(*bytes)
    }

    pub(crate) fn fixed(&mut self) -> Result<u64, Wrong> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn float(&mut self) -> Result<f32, Wrong> {
        Ok(f32::from_le_bytes(self.array()?))
    }

    pub(crate) fn number(&mut self) -> Result<u64, Wrong> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            value |= bits << shift;
            if byte & 0x80 == 0 {
                let short = shift == 0 || byte != 0;
                let fits = bits << shift >> shift == bits;
                return if short && fits { Ok(value) } else { Err(Wrong("a number is malformed")) };
            }
        }
        Err(Wrong("a number is malformed"))
    }

    /// A number that fits.
    pub(crate) fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Wrong> {
        T::try_from(self.number()?).map_err(|_| Wrong("a number is too large"))
    }

    pub(crate) fn optional(&mut self) -> Result<Option<u64>, Wrong> {
        Ok(self.number()?.checked_sub(1))
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Wrong> {
        let length: usize = self.small()?;
        if length > crate::NAME_BYTES_MAX {
            return Err(Wrong("a name is too long"));
        }
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Wrong("it ends within a name"))?;
        self.rest = rest;
        std::str::from_utf8(bytes).map_err(|_| Wrong("a name is not UTF-8"))
    }

    pub(crate) fn node(&mut self) -> Result<NodeId, Wrong> {
        let node = NodeId(self.small()?);
        if node.index() < JobCounts::POOL_NODES_MAX {
            Ok(node)
        } else {
            Err(Wrong("a node's id is too large"))
        }
    }

    pub(crate) fn weight(&mut self) -> Result<Weight, Wrong> {
        Weight::new(self.number()?).map_err(|_| Wrong("a weight is above 256"))
    }

    pub(crate) fn time(&mut self) -> Result<Time, Wrong> {
        Ok(Time::from_nanos(self.number()?))
    }
}
