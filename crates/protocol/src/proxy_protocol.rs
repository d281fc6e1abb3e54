//! The PROXY protocol, versions 1 and 2: who the client is, said by the proxy before us.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

/// Bytes of a version 1 line at the most, its CRLF included.
pub const V1_BYTES_MAX: usize = 107;
/// Bytes that follow the fixed part of a version 2 header at the most.
pub const V2_LENGTH_MAX: usize = 4096;

const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_FIXED: usize = 16;

/// A PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// Bytes of the header; what follows is the connection's own.
    pub len: usize,
    /// Source and destination of the client's connection; `None` if the sender speaks
    /// for itself, does not know, or the addresses are no Internet addresses.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
}

/// What is wrong with a PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// The bytes are no PROXY header of version 1 or 2.
    #[error("no PROXY header")]
    Signature,
    /// The version 1 line is malformed or too long.
    #[error("invalid PROXY line")]
    Line,
    /// An unknown version, command, family or protocol.
    #[error("unknown version or command in PROXY header")]
    Command,
    /// The header is too long, or too short for its addresses.
    #[error("invalid length of PROXY header")]
    Length,
    /// The additional values do not fill their space exactly.
    #[error("invalid additional values in PROXY header")]
    Values,
    /// The checksum does not match.
    #[error("wrong checksum of PROXY header")]
    Checksum,
}

/// Parses a PROXY header at the start of `bytes`. `Ok(None)`: more bytes are needed.
///
/// # Errors
/// A [`Fault`] as soon as the bytes cannot become a valid header.
pub fn parse(bytes: &[u8]) -> Result<Option<Parsed>, Fault> {
    let starts = |signature: &[u8]| bytes.iter().zip(signature).all(|(a, b)| a == b);
    if starts(V2_SIGNATURE) {
        parse_v2(bytes)
    } else if starts(b"PROXY ") {
        parse_v1(bytes)
    } else {
        Err(Fault::Signature)
    }
}

fn parse_v1(bytes: &[u8]) -> Result<Option<Parsed>, Fault> {
    let window = &bytes[..bytes.len().min(V1_BYTES_MAX)];
    let Some(end) = memchr::memchr(b'\n', window) else {
        return if window.len() == V1_BYTES_MAX { Err(Fault::Line) } else { Ok(None) };
    };
    let line = window[..end].strip_suffix(b"\r").ok_or(Fault::Line)?;
    if line.contains(&b'\r') {
        return Err(Fault::Line);
    }
    let len = end + 1;
    let text = std::str::from_utf8(line).map_err(|_| Fault::Line)?;
    let mut parts = text.split(' ').skip(1);
    let family = parts.next().ok_or(Fault::Line)?;
    if family == "UNKNOWN" {
        // Whatever follows is to be ignored.
        return Ok(Some(Parsed { len, addresses: None }));
    }
    let mut next = || parts.next().ok_or(Fault::Line);
    let (source, destination, source_port, destination_port) = (next()?, next()?, next()?, next()?);
    if parts.next().is_some() {
        return Err(Fault::Line);
    }
    let address = |text: &str| -> Result<IpAddr, Fault> {
        match family {
            "TCP4" => text.parse::<Ipv4Addr>().map(IpAddr::V4).map_err(|_| Fault::Line),
            "TCP6" => text.parse::<Ipv6Addr>().map(IpAddr::V6).map_err(|_| Fault::Line),
            _ => Err(Fault::Line),
        }
    };
    let source = SocketAddr::new(address(source)?, port(source_port)?);
    let destination = SocketAddr::new(address(destination)?, port(destination_port)?);
    Ok(Some(Parsed { len, addresses: Some((source, destination)) }))
}

/// A decimal port without sign or leading zeros.
fn port(text: &str) -> Result<u16, Fault> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits || (text.len() > 1 && text.starts_with('0')) {
        return Err(Fault::Line);
    }
    text.parse().map_err(|_| Fault::Line)
}

fn parse_v2(bytes: &[u8]) -> Result<Option<Parsed>, Fault> {
    let version_command = bytes.get(12).copied();
    if version_command.is_some_and(|b| b != 0x20 && b != 0x21) {
        return Err(Fault::Command);
    }
    let family = bytes.get(13).copied();
    if family.is_some_and(|b| b >> 4 > 3 || b & 0xf > 2) {
        return Err(Fault::Command);
    }
    let Some(&[high, low]) = bytes.get(14..V2_FIXED) else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > V2_LENGTH_MAX {
        return Err(Fault::Length);
    }
    let len = V2_FIXED + length;
    let Some(header) = bytes.get(..len) else { return Ok(None) };
    let body = &header[V2_FIXED..];
    let local = header[12] == 0x20;
    let addresses_len = match header[13] {
        0x11 | 0x12 => 12,
        0x21 | 0x22 => 36,
        0x31 | 0x32 => 216,
        // Of what is not specified nothing is known, additional values neither.
        _ => return Ok(Some(Parsed { len, addresses: None })),
    };
    if local && body.len() < addresses_len {
        return Ok(Some(Parsed { len, addresses: None }));
    }
    let (addresses, values) = body.split_at_checked(addresses_len).ok_or(Fault::Length)?;
    check_values(header, values)?;
    let addresses = if local { None } else { v2_addresses(header[13], addresses) };
    Ok(Some(Parsed { len, addresses }))
}

fn v2_addresses(family: u8, bytes: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let port = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let (source, destination, ports) = match family >> 4 {
        1 => (address::<4>(bytes, 0), address::<4>(bytes, 4), 8),
        2 => (address::<16>(bytes, 0), address::<16>(bytes, 16), 32),
        _ => return None,
    };
    Some((SocketAddr::new(source, port(ports)), SocketAddr::new(destination, port(ports + 2))))
}

/// The address of `N` bytes at `at`.
fn address<const N: usize>(bytes: &[u8], at: usize) -> IpAddr
where
    IpAddr: From<[u8; N]>,
{
    IpAddr::from(<[u8; N]>::try_from(&bytes[at..at + N]).expect("N bytes"))
}

/// Walks the additional values (type, length, value); checks the checksum if there is one.
fn check_values(header: &[u8], mut values: &[u8]) -> Result<(), Fault> {
    const CRC32C: u8 = 3;
    let mut checked = false;
    while let [kind, high, low, rest @ ..] = values {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (value, rest) = rest.split_at_checked(length).ok_or(Fault::Values)?;
        if *kind == CRC32C {
            let stated: [u8; 4] = value.try_into().map_err(|_| Fault::Values)?;
            // One is enough: each costs a pass over the header.
            if std::mem::replace(&mut checked, true) {
                return Err(Fault::Values);
            }
            let (before, from) = header.split_at(header.len() - rest.len() - value.len());
            if crc32c([before, &[0; 4], &from[value.len()..]]) != u32::from_be_bytes(stated) {
                return Err(Fault::Checksum);
            }
        }
        values = rest;
    }
    if values.is_empty() { Ok(()) } else { Err(Fault::Values) }
}

/// CRC-32C (Castagnoli) of the parts one after the other.
fn crc32c(parts: [&[u8]; 3]) -> u32 {
    let bytes = parts.into_iter().flatten();
    !bytes.fold(!0, |crc: u32, &b| crc >> 8 ^ CRC32C_TABLE[usize::from(crc as u8 ^ b)])
}

static CRC32C_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 != 0 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
};

/// Both addresses in one family: IPv4 if both are, mapped or not, else IPv6.
fn same_family(source: SocketAddr, destination: SocketAddr) -> (SocketAddr, SocketAddr) {
    let canonical = |a: SocketAddr| SocketAddr::new(a.ip().to_canonical(), a.port());
    let (source, destination) = (canonical(source), canonical(destination));
    if source.is_ipv4() == destination.is_ipv4() {
        return (source, destination);
    }
    let six = |a: SocketAddr| match a.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), a.port()),
        IpAddr::V6(_) => a,
    };
    (six(source), six(destination))
}

/// Appends a version 1 header.
pub fn write_v1(out: &mut Vec<u8>, source: SocketAddr, destination: SocketAddr) {
    use std::io::Write;
    let (source, destination) = same_family(source, destination);
    let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
    let (ip, to, port, to_port) = (source.ip(), destination.ip(), source.port(), destination.port());
    write!(out, "PROXY {family} {ip} {to} {port} {to_port}\r\n").expect("writing to memory cannot fail");
}

/// Appends a version 2 header for a TCP connection, without additional values.
pub fn write_v2(out: &mut Vec<u8>, source: SocketAddr, destination: SocketAddr) {
    let (source, destination) = same_family(source, destination);
    out.extend_from_slice(V2_SIGNATURE);
    out.push(0x21);
    match (source.ip(), destination.ip()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            out.extend_from_slice(&[0x11, 0, 12]);
            out.extend_from_slice(&a.octets());
            out.extend_from_slice(&b.octets());
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            out.extend_from_slice(&[0x21, 0, 36]);
            out.extend_from_slice(&a.octets());
            out.extend_from_slice(&b.octets());
        }
        _ => unreachable!("brought to one family"),
    }
    out.extend_from_slice(&source.port().to_be_bytes());
    out.extend_from_slice(&destination.port().to_be_bytes());
}
