use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A password or a key may be so long.
const SECRET_BYTES_MAX: u64 = 4096;

/// Reads a password from a file, without the end of its line.
///
/// # Errors
/// A sentence, if it cannot be read, or if others than its owner may read or change it.
pub(super) fn read(path: &Path) -> Result<String, String> {
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(|error| told(&error))?;
    // Asked of the open file: one of that name may meanwhile be another.
    let metadata = file.metadata().map_err(|error| told(&error))?;
    let owner = metadata.uid();
    if !metadata.is_file() {
        return Err(told(&"not a file"));
    }
    let rights_of_others = if is_credential(path, &metadata) { 0o037 } else { 0o077 };
    let is_ours = owner == 0 || owner == rustix::process::geteuid().as_raw();
    if metadata.mode() & rights_of_others != 0 || !is_ours {
        return Err(told(&"others may read it: make it your own, with chmod 600"));
    }
    let mut text = String::new();
    file.take(SECRET_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| told(&error))?;
    if text.len() as u64 > SECRET_BYTES_MAX {
        return Err(told(&"too long for a password"));
    }
    text.truncate(text.trim_end_matches(['\r', '\n']).len());
    Ok(text)
}

/// Whether systemd gave it to this service (`LoadCredential=`): it is root's then, and its list of access names this
/// process's user. Of such a list, the mode shows what it grants at most as rights of the group, which is root's.
fn is_credential(path: &Path, metadata: &Metadata) -> bool {
    let folder = std::env::var_os("CREDENTIALS_DIRECTORY");
    let lies_there = folder.is_some_and(|folder| path.parent() == Some(Path::new(&folder)));
    lies_there && metadata.uid() == 0 && metadata.gid() == 0
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_password_that_others_may_read_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("password");
        fs::write(&path, "p w\r\n").expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("set");
        assert!(read(&path).expect_err("the group may read it").contains("chmod 600"));
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("set");
        assert_eq!(read(&path).as_deref(), Ok("p w"));
        fs::write(&path, vec![b'x'; 5000]).expect("written");
        assert!(read(&path).is_err());
        assert!(read(folder.path()).is_err());
    }
}
