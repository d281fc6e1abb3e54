//! Signatures of reports that are pushed over HTTP, where TLS does not say who pushes.
//!
//! The header [`HEADER`] of a push is `v1 STAMP SIGNATURE NODE`: a time stamp in µs since 1970, of the sender's wall clock;
//! HMAC-SHA256 as 64 hexadecimal digits; and the name of who signs. What is signed is `evener-push v1 STAMP NODE`, a
//! line feed, and the body. As with [datagrams](crate::datagram), the stamp must be within a window around the receiver's
//! clock and above all that came from the same sender before.

use std::time::Duration;

use crate::datagram::{Dropped, Key};
use crate::json::NAME_BYTES_MAX;
use crate::stamps::{self, Stamps};

/// The header's name.
pub const HEADER: &str = "evener-signature";

/// Signs what a node pushes.
#[derive(Debug)]
pub struct Signer {
    key: Key,
    node: String,
    last_stamp_micros: u64,
}

impl Signer {
    /// Signs for a node of that name; `None` if the name is not 1 to [`NAME_BYTES_MAX`] visible ASCII characters.
    pub fn new(key: Key, node: &str) -> Option<Signer> {
        is_name(node).then(|| Signer { key, node: node.to_owned(), last_stamp_micros: 0 })
    }

    /// The header's value for `body`, sent at `unix`, the time since 1970. Another one for each time that it is sent.
    pub fn sign(&mut self, unix: Duration, body: &[u8]) -> String {
        let stamp = stamps::next(unix, &mut self.last_stamp_micros);
        let signature = self.key.sign(&message(stamp, &self.node, body));
        let digits: String = signature.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("v1 {stamp} {digits} {}", self.node)
    }
}

/// Checks what all nodes push.
#[derive(Debug)]
pub struct Verifier {
    keys: Vec<Key>,
    stamps: Stamps,
}

impl Verifier {
    /// Takes what one of `keys` signed (several while keys are changed), with stamps that differ from the clock by
    /// at most `window`, of at most `nodes_max` nodes within that window.
    pub fn new(keys: Vec<Key>, window: Duration, nodes_max: usize) -> Verifier {
        Verifier { keys, stamps: Stamps::new(window, nodes_max) }
    }

    /// The same, which takes nothing that was sent before `unix`: whoever begins to receive does not know what others have
    /// heard before, and may hear it again.
    #[must_use]
    pub fn not_before(mut self, unix: Duration) -> Verifier {
        self.stamps.not_before(unix);
        self
    }

    /// Who signed `body`, which came at `unix`, the time since 1970, with that value of the header.
    ///
    /// # Errors
    /// Why it is to be [`Dropped`].
    pub fn verify<'a>(&mut self, unix: Duration, header: &'a str, body: &[u8]) -> Result<&'a str, Dropped> {
        let mut words = header.split(' ');
        let (Some("v1"), Some(stamp), Some(digits), Some(node), None) =
            (words.next(), words.next(), words.next(), words.next(), words.next())
        else {
            return Err(Dropped::Form);
        };
        let plain = !stamp.is_empty() && stamp.bytes().all(|byte| byte.is_ascii_digit());
        let stamp = stamp.parse().ok().filter(|_| plain && is_name(node)).ok_or(Dropped::Form)?;
        let signature = bytes(digits).ok_or(Dropped::Form)?;
        let message = message(stamp, node, body);
        if !self.keys.iter().any(|key| key.verifies(&message, &signature)) {
            return Err(Dropped::Signature);
        }
        self.stamps.admit(unix, node, stamp)?;
        Ok(node)
    }
}

fn message(stamp: u64, node: &str, body: &[u8]) -> Vec<u8> {
    let mut message = format!("evener-push v1 {stamp} {node}\n").into_bytes();
    message.extend_from_slice(body);
    message
}

fn is_name(node: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&node.len()) && node.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Pairs of hexadecimal digits.
fn bytes(digits: &str) -> Option<[u8; 32]> {
    let digits: &[u8; 64] = digits.as_bytes().try_into().ok()?;
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = (digit(0)? * 16 + digit(1)?) as u8;
    }
    Some(bytes)
}
