//! Files of keys: what is read, and what is refused.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::PathBuf;

use evener_trust::Keys;
use tempfile::TempDir;

const SECRET: &str = "0123456789abcdef";

/// A file of that mode, in a folder that lasts as long as the value.
fn file(text: &str, mode: u32) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("feedback.keys");
    fs::write(&path, text).expect("written");
    fs::set_permissions(&path, Permissions::from_mode(mode)).expect("set");
    (folder, path)
}

/// The names of the keys, or the error without the path.
fn read(text: &str, mode: u32) -> Result<String, String> {
    let (folder, path) = file(text, mode);
    let keys = Keys::read(&path)
        .map_err(|error| error.to_string().replace(&format!("{}/", folder.path().display()), ""))?;
    Ok(keys.iter().map(|key| key.id()).collect::<Vec<_>>().join(" "))
}

#[test]
fn the_first_key_signs_and_all_are_accepted() {
    let text = format!("# ours\n\n new\t{SECRET}-new\r\nold {SECRET}-old\n");
    let (_folder, path) = file(&text, 0o400);
    let keys = Keys::read(&path).expect("good");
    assert_eq!((keys.signing().id(), keys.signing().secret()), ("new", b"0123456789abcdef-new".as_slice()));
    assert_eq!(keys.iter().map(|key| key.id()).collect::<Vec<_>>(), ["new", "old"]);
}

#[test]
fn a_file_that_others_may_read_or_change_is_refused_with_the_remedy() {
    for mode in [0o640, 0o620, 0o604, 0o602, 0o644, 0o660, 0o777, 0o601] {
        let error = read(&format!("a {SECRET}"), mode).expect_err("others have rights");
        assert!(error.contains(&format!("{mode:04o}")) && error.contains("chmod 600"), "{error}");
    }
    for mode in [0o600, 0o400, 0o700] {
        assert_eq!(read(&format!("a {SECRET}"), mode).as_deref(), Ok("a"));
    }
}

#[test]
fn a_file_of_another_user_is_refused() {
    let (_folder, path) = file(&format!("a {SECRET}"), 0o600);
    if !rustix::process::geteuid().is_root() {
        return; // Only root can give a file away.
    }
    chown(&path, Some(65_534), None).expect("given away");
    let error = Keys::read(&path).expect_err("another's").to_string();
    assert!(error.contains("65534") && error.contains("chown 0"), "{error}");
}

#[test]
fn what_is_no_regular_file_is_refused_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
    for path in [folder.path().to_owned(), pipe] {
        let error = Keys::read(&path).expect_err("no file").to_string();
        assert!(error.ends_with("expected a regular file"), "{error}");
    }
    let error = Keys::read(&folder.path().join("none")).expect_err("not there").to_string();
    assert!(error.contains("No such file"), "{error}");
}

#[test]
fn of_a_link_the_file_counts_that_it_leads_to() {
    let (folder, path) = file(&format!("a {SECRET}"), 0o600);
    let link = folder.path().join("link");
    symlink(&path, &link).expect("linked");
    assert!(Keys::read(&link).is_ok());
    fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("set");
    assert!(Keys::read(&link).is_err());
}

#[test]
fn what_is_wrong_in_a_file_is_told_without_its_secrets() {
    let cases = [
        ("", "feedback.keys: expected a line such as: first SECRET"),
        ("# only words\n", "feedback.keys: expected a line such as: first SECRET"),
        (
            "\nhiddenhiddenhidden",
            "feedback.keys:2: expected a name and a secret with a space between, and no more",
        ),
        (
            "a hiddenhiddenhidden hidden",
            "feedback.keys:1: expected a name and a secret with a space between, and no more",
        ),
        (
            "a hiddenhidden",
            "feedback.keys:1: the secret of \"a\" has 12 bytes; expected at least 16, such as: openssl rand -base64 32",
        ),
        (
            "a hiddenhiddenhidden\na hiddenhiddenhiddem",
            "feedback.keys:2: there is another key with the name \"a\"",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(read(text, 0o600), Err(expected.to_owned()));
    }
    let many: String = (0..17).map(|i| format!("k{i} {SECRET}\n")).collect();
    assert_eq!(read(&many, 0o600), Err("feedback.keys:17: more than 16 keys".to_owned()));
    assert_eq!(read(&"#".repeat(1024 * 1024 + 1), 0o600), Err("feedback.keys: longer than 1 MiB".to_owned()));
}

#[test]
fn a_secret_is_not_told_by_mistake() {
    let (_folder, path) = file(&format!("a {SECRET}"), 0o600);
    let told = format!("{:?}", Keys::read(&path).expect("good"));
    assert!(told.contains("Key(a, …)") && !told.contains(SECRET), "{told}");
}
