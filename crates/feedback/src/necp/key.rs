//! What both sides of an authenticated connection know.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

use super::frame::CREDENTIAL_BYTES;

/// A shared secret.
#[derive(Clone)]
pub struct Key {
    /// With the key worked in: a message costs no more than its own bytes.
    keyed: Hmac<Sha1>,
}

impl Key {
    /// The key of these bytes, as many as there are. Below 20, the size of the hash, it is the weakest part.
    pub fn new(secret: &[u8]) -> Key {
        Key { keyed: Hmac::new_from_slice(secret).expect("HMAC takes keys of any length") }
    }

    pub(super) fn credential(&self, message: &[u8]) -> [u8; CREDENTIAL_BYTES] {
        self.keyed.clone().chain_update(message).finalize().into_bytes().into()
    }

    /// Compares in a time that does not depend on where the credential differs.
    pub(super) fn verifies(&self, message: &[u8], credential: &[u8]) -> bool {
        self.keyed.clone().chain_update(message).verify_slice(credential).is_ok()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}
