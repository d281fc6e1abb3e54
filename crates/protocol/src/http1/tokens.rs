//! Which bytes may stand where, and fast scans over them.

/// Bytes of a token (RFC 9110, 5.6.2): methods, field names, codings.
const TOKEN: u8 = 1;
/// Bytes of a request target: visible ASCII but `#`, as fragments are never sent.
const TARGET: u8 = 2;
/// Bytes of a registered name: what RFC 3986 allows but the comma, which would let
/// two joined `Host` fields pass for one.
const REG_NAME: u8 = 4;
/// Hexadecimal digits.
const HEX: u8 = 8;
/// What a quoted string holds unescaped, ASCII only.
const QUOTED: u8 = 16;

static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let b = i as u8;
        let mut class = 0;
        if b.is_ascii_alphanumeric() || contains(b"!#$%&'*+-.^_`|~", b) {
            class |= TOKEN;
        }
        if b.is_ascii_graphic() && b != b'#' {
            class |= TARGET;
        }
        if b.is_ascii_alphanumeric() || contains(b"-._~%!$&'()*+;=", b) {
            class |= REG_NAME;
        }
        if b.is_ascii_hexdigit() {
            class |= HEX;
        }
        if (b.is_ascii_graphic() || b == b' ' || b == b'\t') && b != b'"' && b != b'\\' {
            class |= QUOTED;
        }
        table[i] = class;
        i += 1;
    }
    table
}

const fn contains(set: &[u8], b: u8) -> bool {
    let mut i = 0;
    while i < set.len() {
        if set[i] == b {
            return true;
        }
        i += 1;
    }
    false
}

#[inline(always)]
pub(crate) fn is_token(b: u8) -> bool {
    CLASSES[b as usize] & TOKEN != 0
}

#[inline(always)]
pub(crate) fn is_quoted(b: u8) -> bool {
    CLASSES[b as usize] & QUOTED != 0
}

/// Index of the first byte from `from` on that is no token byte, or the length.
#[inline(always)]
pub(crate) fn token_end(bytes: &[u8], from: usize) -> usize {
    class_end::<TOKEN>(bytes, from)
}

/// Index of the first byte from `from` on that cannot stand in a request target, or the length.
#[inline(always)]
pub(crate) fn target_end(bytes: &[u8], from: usize) -> usize {
    class_end::<TARGET>(bytes, from)
}

#[inline(always)]
fn class_end<const CLASS: u8>(bytes: &[u8], from: usize) -> usize {
    let mut i = from;
    while i < bytes.len() && CLASSES[bytes[i] as usize] & CLASS != 0 {
        i += 1;
    }
    i
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = ONES << 7;

/// Index of the first control byte (below 0x20, or 0x7f) other than HTAB, or the length.
///
/// Eight bytes at a time: the lowest flagged byte of a word is exact, and only that one is used.
#[inline(always)]
pub(crate) fn value_end(bytes: &[u8], from: usize) -> usize {
    let mut i = from;
    while let Some(word) = bytes.get(i..i + 8) {
        let x = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        let low = x.wrapping_sub(ONES * 0x20) & !x;
        let y = x ^ (ONES * 0x7f);
        let del = y.wrapping_sub(ONES) & !y;
        let flags = (low | del) & HIGHS;
        if flags == 0 {
            i += 8;
            continue;
        }
        i += (flags.trailing_zeros() / 8) as usize;
        if bytes[i] != b'\t' {
            return i;
        }
        i += 1;
    }
    while i < bytes.len() && !is_control(bytes[i]) {
        i += 1;
    }
    i
}

/// Whether `b` may not stand in a field value.
#[inline(always)]
pub(crate) fn is_control(b: u8) -> bool {
    (b < 0x20 && b != b'\t') || b == 0x7f
}

/// `bytes` without spaces and tabs at both ends.
pub(crate) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The members of a comma-separated list, trimmed; empty ones too.
pub(crate) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(trim)
}

/// A decimal number of at most 19 digits, below 2^63.
pub(crate) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 19 {
        return None;
    }
    let mut number = 0u64;
    for &b in text {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + u64::from(digit);
    }
    (number <= i64::MAX as u64).then_some(number)
}

/// Whether `text` is a valid authority without user information: a name, an IPv4
/// address or an IPv6 address in brackets, and perhaps a port.
pub(crate) fn is_authority(text: &[u8]) -> bool {
    let port = if let [b'[', rest @ ..] = text {
        let Some(close) = rest.iter().position(|&b| b == b']') else { return false };
        let address = &rest[..close];
        let valid =
            address.len() >= 2 && address.iter().all(|&b| b.is_ascii_hexdigit() || b == b':' || b == b'.');
        if !valid {
            return false;
        }
        &rest[close + 1..]
    } else {
        let end = class_end::<REG_NAME>(text, 0);
        if end == 0 {
            return false;
        }
        &text[end..]
    };
    match port {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// The value of a hexadecimal digit.
#[inline(always)]
pub(crate) fn hex(b: u8) -> Option<u64> {
    if CLASSES[b as usize] & HEX == 0 {
        return None;
    }
    Some(u64::from((b & 0xf) + 9 * (b >> 6)))
}
