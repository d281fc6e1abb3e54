//! Reports in UDP datagrams, sent by each node to all: to a broadcast or multicast address, or to each peer.
//!
//! Anybody can send a datagram in anybody's name. So each is signed (HMAC-SHA256) and carries a time stamp, of
//! the sender's wall clock, that must be within a window around the receiver's and above all that came from the same
//! node before. What is not signed is not looked at any further; what is dropped is counted, by reason.
//!
//! `"EVNR" | u8 version = 1 | u8 0 | u16 length of the name | u64 stamp, µs since 1970 | name | reports as JSON | HMAC, 32 bytes`,
//! big-endian.

use std::fmt;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use thiserror::Error;

use crate::json::{self, NAME_BYTES_MAX, Said};
use crate::stamps::{self, Stamps};

/// Bytes of a datagram at the most: what passes an Ethernet, and tunnels on it, in one piece.
pub const DATAGRAM_BYTES_MAX: usize = 1400;

const MAGIC: &[u8; 4] = b"EVNR";
const VERSION: u8 = 1;
const FIXED_BYTES: usize = 16;
const SIGNATURE_BYTES: usize = 32;

/// A secret that all nodes of a group share.
#[derive(Clone)]
pub struct Key {
    keyed: Hmac<Sha256>,
}

impl Key {
    /// The key of these bytes, as many as there are. Below 32, the size of the hash, it is the weakest part.
    pub fn new(secret: &[u8]) -> Key {
        Key { keyed: Hmac::new_from_slice(secret).expect("HMAC takes keys of any length") }
    }

    pub(crate) fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        self.keyed.clone().chain_update(message).finalize().into_bytes().into()
    }

    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.keyed.clone().chain_update(message).verify_slice(signature).is_ok()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// Writes a node's datagrams.
#[derive(Debug)]
pub struct Sender {
    key: Key,
    node: String,
    last_stamp_micros: u64,
}

/// Reports that do not fit into a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("reports longer than a datagram")]
pub struct TooLong;

impl Sender {
    /// What a node of that name sends; `None` if the name is empty or longer than [`NAME_BYTES_MAX`].
    pub fn new(key: Key, node: &str) -> Option<Sender> {
        let named = !node.is_empty() && node.len() <= NAME_BYTES_MAX;
        named.then(|| Sender { key, node: node.to_owned(), last_stamp_micros: 0 })
    }

    /// Appends a datagram that says `said`, at `unix`, the time since 1970. The names in `said` are not sent.
    ///
    /// # Errors
    /// [`TooLong`]: say it in several. Nothing is appended then.
    pub fn write(&mut self, unix: Duration, said: &[Said], out: &mut Vec<u8>) -> Result<(), TooLong> {
        let start = out.len();
        let mut last_stamp_micros = self.last_stamp_micros;
        let stamp = stamps::next(unix, &mut last_stamp_micros);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[VERSION, 0]);
        out.extend_from_slice(&(self.node.len() as u16).to_be_bytes());
        out.extend_from_slice(&stamp.to_be_bytes());
        out.extend_from_slice(self.node.as_bytes());
        let nameless: Vec<Said> = said.iter().map(|said| Said { node: None, ..said.clone() }).collect();
        json::write(out, &nameless);
        if out.len() - start + SIGNATURE_BYTES > DATAGRAM_BYTES_MAX {
            out.truncate(start);
            return Err(TooLong);
        }
        let signature = self.key.sign(&out[start..]);
        out.extend_from_slice(&signature);
        self.last_stamp_micros = last_stamp_micros;
        Ok(())
    }
}

/// Why a datagram was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Dropped {
    /// It is too long, too short, or of another kind or version.
    #[error("not a datagram of reports")]
    Form,
    /// None of the keys signed it.
    #[error("datagram with a wrong signature")]
    Signature,
    /// Its stamp is outside of the window: it is old, or a clock is wrong.
    #[error("datagram from another time")]
    Time,
    /// A later one of the same node came before: it was overtaken, or recorded.
    #[error("datagram that was seen or overtaken")]
    Replay,
    /// There are more nodes than can be remembered.
    #[error("datagram of one node too many")]
    Crowded,
    /// It is signed, and its reports are not good.
    #[error("datagram with bad reports")]
    Reports,
}

impl Dropped {
    /// All reasons, in the order of [`Receiver::dropped`].
    pub const ALL: [Dropped; 6] = [
        Dropped::Form,
        Dropped::Signature,
        Dropped::Time,
        Dropped::Replay,
        Dropped::Crowded,
        Dropped::Reports,
    ];

    /// The name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Dropped::Form => "form",
            Dropped::Signature => "signature",
            Dropped::Time => "time",
            Dropped::Replay => "replay",
            Dropped::Crowded => "crowded",
            Dropped::Reports => "reports",
        }
    }
}

/// Reads the datagrams of all nodes.
#[derive(Debug)]
pub struct Receiver {
    keys: Vec<Key>,
    stamps: Stamps,
    dropped: [u64; Dropped::ALL.len()],
}

impl Receiver {
    /// Takes what one of `keys` signed (several while keys are changed), with stamps that differ from the clock by
    /// at most `window`, of at most `nodes_max` nodes within that window.
    pub fn new(keys: Vec<Key>, window: Duration, nodes_max: usize) -> Receiver {
        let dropped = [0; Dropped::ALL.len()];
        Receiver { keys, stamps: Stamps::new(window, nodes_max), dropped }
    }

    /// The same, which takes nothing that was sent before `unix`: whoever begins to receive does not know what others have
    /// heard before, and may hear it again.
    #[must_use]
    pub fn not_before(mut self, unix: Duration) -> Receiver {
        self.stamps.not_before(unix);
        self
    }

    /// The reports of a datagram that came at `unix`, the time since 1970, with their node's name.
    ///
    /// # Errors
    /// Why it was [`Dropped`], which is counted.
    pub fn received(&mut self, unix: Duration, datagram: &[u8]) -> Result<Vec<Said>, Dropped> {
        let result = self.read(unix, datagram);
        if let Err(reason) = result {
            self.dropped[reason as usize] += 1;
        }
        result
    }

    /// How many have been dropped, by reason.
    pub fn dropped(&self) -> impl Iterator<Item = (Dropped, u64)> {
        Dropped::ALL.into_iter().zip(self.dropped)
    }

    fn read(&mut self, unix: Duration, datagram: &[u8]) -> Result<Vec<Said>, Dropped> {
        if datagram.len() > DATAGRAM_BYTES_MAX || datagram.len() < FIXED_BYTES + SIGNATURE_BYTES {
            return Err(Dropped::Form);
        }
        let (message, signature) = datagram.split_at(datagram.len() - SIGNATURE_BYTES);
        let (fixed, rest) = message.split_at(FIXED_BYTES);
        let [m0, m1, m2, m3, VERSION, 0, n0, n1, stamp @ ..] = fixed else { return Err(Dropped::Form) };
        if [*m0, *m1, *m2, *m3] != *MAGIC {
            return Err(Dropped::Form);
        }
        if !self.keys.iter().any(|key| key.verifies(message, signature)) {
            return Err(Dropped::Signature);
        }
        let stamp = u64::from_be_bytes(stamp.try_into().expect("eight bytes"));
        let name_length = usize::from(u16::from_be_bytes([*n0, *n1]));
        let (name, body) = rest.split_at_checked(name_length).ok_or(Dropped::Form)?;
        let name = std::str::from_utf8(name).map_err(|_| Dropped::Form)?;
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(Dropped::Form);
        }
        self.stamps.admit(unix, name, stamp)?;
        let said = json::parse(body).map_err(|_| Dropped::Reports)?;
        Ok(said.into_iter().map(|said| Said { node: Some(name.to_owned()), ..said }).collect())
    }
}
