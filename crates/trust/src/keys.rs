use std::fmt;
use std::path::Path;

use crate::{TrustError, file};

/// Bytes of a secret at the least.
pub const SECRET_BYTES_MIN: usize = 16;
/// Keys of a file at the most: what is received is tried with each.
const KEYS_MAX: usize = 16;
/// Bytes of a key's name at the most.
const ID_BYTES_MAX: usize = 64;

/// A shared secret and its name.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    id: String,
    secret: String,
}

impl Key {
    /// What it is called in logs; it is not sent.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The secret, at least [`SECRET_BYTES_MIN`] bytes.
    pub fn secret(&self) -> &[u8] {
        self.secret.as_bytes()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({}, …)", self.id)
    }
}

/// The keys of a file: the first signs, all are accepted.
///
/// To change a key, add the new one below the old one on both sides, then put it first on both, then take the old one
/// away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// At least one.
    keys: Vec<Key>,
}

impl Keys {
    /// Reads a file of lines `ID SECRET`. Empty lines, and lines that begin with a sharp, say nothing.
    ///
    /// # Errors
    /// A [`TrustError`] that says what to do: also if others than its owner may read or change the file, or if its
    /// owner is neither this process's user nor root.
    pub fn read(path: &Path) -> Result<Keys, TrustError> {
        Keys::parse(path, &file::read_secret(path)?)
    }

    /// The key that signs.
    pub fn signing(&self) -> &Key {
        &self.keys[0]
    }

    /// All that are accepted, the one that signs first.
    pub fn iter(&self) -> impl Iterator<Item = &Key> {
        self.keys.iter()
    }

    fn parse(path: &Path, text: &str) -> Result<Keys, TrustError> {
        let mut keys: Vec<Key> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what: String| TrustError::Line { path: path.into(), line: index + 1, what };
            let key = key(line).map_err(wrong)?;
            if keys.iter().any(|known| known.id == key.id) {
                return Err(wrong(format!("there is another key with the name \"{}\"", key.id)));
            }
            if keys.len() == KEYS_MAX {
                return Err(wrong(format!("more than {KEYS_MAX} keys")));
            }
            keys.push(key);
        }
        if keys.is_empty() {
            return Err(TrustError::content(path, "expected a line such as: first SECRET"));
        }
        Ok(Keys { keys })
    }
}

/// Never repeats what the line says beyond the name: errors end in logs.
fn key(line: &str) -> Result<Key, String> {
    let mut words = line.split_ascii_whitespace();
    let (Some(id), Some(secret), None) = (words.next(), words.next(), words.next()) else {
        return Err("expected a name and a secret with a space between, and no more".into());
    };
    if id.len() > ID_BYTES_MAX {
        return Err(format!("a name of a key has at most {ID_BYTES_MAX} bytes"));
    }
    if secret.len() < SECRET_BYTES_MIN {
        return Err(format!(
            "the secret of \"{id}\" has {} bytes; expected at least {SECRET_BYTES_MIN}, such as: openssl rand -base64 32",
            secret.len()
        ));
    }
    Ok(Key { id: id.into(), secret: secret.into() })
}
