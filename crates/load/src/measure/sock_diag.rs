//! Counting connections by the kernel's socket monitoring: `NETLINK_SOCK_DIAG`.
//!
//! The kernel goes through its table and sends a message for each established connection whose own port is the one
//! asked for. Only the messages are counted; what they say of a connection is not needed.
//!
//! Source: the kernel's `linux/netlink.h`, `linux/sock_diag.h` and `linux/inet_diag.h`.

use std::num::NonZeroU16;

use thiserror::Error;

const HEADER_BYTES: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 0x001;
const NLM_F_DUMP: u16 = 0x300;
const ENOENT: i32 = 2;
const TCP: u8 = 6;
const TCP_ESTABLISHED: u32 = 1;

/// Which connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Those of IPv4 sockets.
    Ipv4,
    /// Those of IPv6 sockets, also such that carry IPv4.
    Ipv6,
}

/// Bytes of a request.
pub const REQUEST_BYTES: usize = HEADER_BYTES + 56;

/// A request for the established connections of a local port. Answers bear `sequence`.
pub fn request(family: Family, port: NonZeroU16, sequence: u32) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[0..4].copy_from_slice(&(REQUEST_BYTES as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
    // The port of the sender stays 0: the kernel fills it in.
    let body = &mut bytes[HEADER_BYTES..];
    body[0] = match family {
        Family::Ipv4 => 2,
        Family::Ipv6 => 10,
    };
    body[1] = TCP;
    body[4..8].copy_from_slice(&(1u32 << TCP_ESTABLISHED).to_ne_bytes());
    body[8..10].copy_from_slice(&port.get().to_be_bytes());
    // No cookie: any socket.
    body[48..56].copy_from_slice(&[0xff; 8]);
    bytes
}

/// Why an answer is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DiagError {
    /// The kernel has no part that lists connections of this kind.
    #[error("the kernel cannot list connections: the module tcp_diag is not there")]
    Unknown,
    /// The kernel refused, with this error number.
    #[error("the kernel refused to list connections (error {0})")]
    Refused(i32),
    /// Not messages of netlink.
    #[error("an answer that is none of netlink's")]
    Malformed,
}

/// What a datagram of an answer holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Connections.
    pub connections: u32,
    /// Whether it was the last datagram.
    pub is_done: bool,
}

/// Counts the connections in one datagram of the answer to the request with this sequence number. Messages of earlier
/// requests are passed over.
///
/// # Errors
/// [`DiagError`] if the kernel refused, or the datagram is cut short.
pub fn count(datagram: &[u8], sequence: u32) -> Result<Counted, DiagError> {
    let mut counted = Counted::default();
    let mut rest = datagram;
    while !rest.is_empty() {
        let header = rest.first_chunk::<HEADER_BYTES>().ok_or(DiagError::Malformed)?;
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let of = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
        let message =
            rest.get(..length).filter(|message| message.len() >= HEADER_BYTES).ok_or(DiagError::Malformed)?;
        if of == sequence {
            match kind {
                SOCK_DIAG_BY_FAMILY => counted.connections += 1,
                NLMSG_DONE => {
                    counted.is_done = true;
                    return Ok(counted);
                }
                NLMSG_ERROR => return Err(refused(&message[HEADER_BYTES..])),
                _ => {}
            }
        }
        // Messages begin at multiples of four.
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(counted)
}

fn refused(body: &[u8]) -> DiagError {
    match body.first_chunk::<4>() {
        // The kernel gives it negated.
        Some(number) => match i32::from_ne_bytes(*number).saturating_neg() {
            ENOENT => DiagError::Unknown,
            number => DiagError::Refused(number),
        },
        None => DiagError::Malformed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 2]);
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn each_message_of_the_request_is_a_connection() {
        let one = message(SOCK_DIAG_BY_FAMILY, 7, &[0; 73]);
        let other = message(SOCK_DIAG_BY_FAMILY, 6, &[0; 72]);
        let part = [one.clone(), other, one].concat();
        assert_eq!(count(&part, 7), Ok(Counted { connections: 2, is_done: false }));
        let last = [part, message(NLMSG_DONE, 7, &[0; 4])].concat();
        assert_eq!(count(&last, 7), Ok(Counted { connections: 2, is_done: true }));
    }

    #[test]
    fn refusals_and_rubbish_are_told() {
        let refused = |number: i32| message(NLMSG_ERROR, 7, &(-number).to_ne_bytes());
        assert_eq!(count(&refused(1), 7), Err(DiagError::Refused(1)));
        assert_eq!(count(&refused(ENOENT), 7), Err(DiagError::Unknown));
        let whole = message(SOCK_DIAG_BY_FAMILY, 7, &[0; 72]);
        for cut in 1..whole.len() {
            assert_eq!(count(&whole[..cut], 7), Err(DiagError::Malformed), "{cut}");
        }
        assert_eq!(count(&[0; 16], 0), Err(DiagError::Malformed), "a message of no length would never end");
    }
}
