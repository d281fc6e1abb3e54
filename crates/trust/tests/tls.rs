//! TLS with certificates of both sides or of one: who gets through, and who is refused.

#[path = "../../../tests/src/authority.rs"]
mod authority;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use authority::{Authority, Identity};
use evener_trust::rustls::pki_types::ServerName;
use evener_trust::rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use evener_trust::{
    TlsFiles, anonymous_client_config, anonymous_server_config, client_config, server_config,
};

/// The files of one side, whose certificate `ours` signs, and which believes `believed`.
fn side(ours: &Authority, folder: &Path, name: &str, believed: &Authority) -> TlsFiles {
    let write = |what: &str, text: &str| {
        let path = folder.join(format!("{name}.{what}"));
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("set");
        path
    };
    let Identity { certificate, key } = ours.sign(name);
    TlsFiles {
        certificate: write("crt", &certificate),
        key: write("key", &key),
        ca: write("ca", &believed.pem),
    }
}

/// Lets both sides speak until neither has anything to say.
fn shake_hands(client: &TlsFiles, server: &TlsFiles, name: &'static str) -> Result<(), String> {
    let (client, server) = (client_config(client).expect("good"), server_config(server).expect("good"));
    shake_hands_with(client, server, name)
}

fn shake_hands_with(
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    name: &'static str,
) -> Result<(), String> {
    let name = ServerName::try_from(name).expect("a name");
    let client = ClientConnection::new(client, name).expect("begun");
    let server = ServerConnection::new(server).expect("begun");
    let (mut client, mut server) = (Connection::from(client), Connection::from(server));
    for _ in 0..10 {
        pass(&mut client, &mut server)?;
        pass(&mut server, &mut client)?;
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok(())
}

fn pass(from: &mut Connection, to: &mut Connection) -> Result<(), String> {
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes).expect("to memory");
    }
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        to.read_tls(&mut rest).expect("from memory");
        to.process_new_packets().map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[test]
fn sides_of_one_authority_believe_each_other() {
    let (folder, ours) = (folder(), Authority::new());
    let client = side(&ours, folder.path(), "agent", &ours);
    let server = side(&ours, folder.path(), "director", &ours);
    assert_eq!(shake_hands(&client, &server, "director"), Ok(()));
}

#[test]
fn who_has_a_certificate_of_another_authority_or_name_is_refused() {
    let (folder, ours, other) = (folder(), Authority::new(), Authority::new());
    let client = side(&ours, folder.path(), "agent", &ours);
    let server = side(&ours, folder.path(), "director", &ours);
    let stranger = side(&other, folder.path(), "stranger", &ours);
    let impostor = side(&other, folder.path(), "impostor", &ours);
    let refused = shake_hands(&stranger, &server, "director").expect_err("a stranger");
    assert!(refused.starts_with("invalid peer certificate"), "{refused}");
    let refused = shake_hands(&client, &impostor, "impostor").expect_err("an impostor");
    assert!(refused.starts_with("invalid peer certificate"), "{refused}");
    let refused = shake_hands(&client, &server, "elsewhere").expect_err("another name");
    assert!(refused.contains("not valid for name"), "{refused}");
}

#[test]
fn who_shows_nothing_is_let_in_only_where_nothing_is_asked_for() {
    let (folder, ours, other) = (folder(), Authority::new(), Authority::new());
    let files = side(&ours, folder.path(), "director", &ours);
    let stranger = side(&other, folder.path(), "impostor", &other);
    let open = || anonymous_server_config(&files.certificate, &files.key).expect("good");
    let nobody = || anonymous_client_config(&files.ca).expect("good");
    assert_eq!(shake_hands_with(nobody(), open(), "director"), Ok(()));
    let refused = shake_hands_with(nobody(), server_config(&files).expect("good"), "director");
    assert_eq!(refused, Err("peer sent no certificates".into()));
    let impostor = anonymous_server_config(&stranger.certificate, &stranger.key).expect("good");
    let refused = shake_hands_with(nobody(), impostor, "impostor").expect_err("an impostor");
    assert!(refused.starts_with("invalid peer certificate"), "{refused}");
}

#[test]
fn files_that_are_of_no_use_are_told() {
    let (folder, ours) = (folder(), Authority::new());
    let good = side(&ours, folder.path(), "agent", &ours);
    let other = side(&ours, folder.path(), "other", &ours);
    let told = |files: TlsFiles| {
        let [server, client] = [
            server_config(&files).err().map(|e| e.to_string()),
            client_config(&files).err().map(|e| e.to_string()),
        ];
        assert_eq!(server, client);
        server.expect("refused").replace(&format!("{}/", folder.path().display()), "")
    };
    assert_eq!(
        told(TlsFiles { certificate: good.key.clone(), ..good.clone() }),
        "agent.key: expected certificates as PEM"
    );
    assert_eq!(
        told(TlsFiles { key: good.ca.clone(), ..good.clone() }),
        "agent.ca: expected a private key as PEM"
    );
    let none = PathBuf::from("none");
    assert!(told(TlsFiles { ca: none, ..good.clone() }).starts_with("none: No such file"));
    assert!(
        told(TlsFiles { key: other.key, ..good.clone() })
            .starts_with("agent.crt: not with the key of other.key")
    );
    fs::set_permissions(&good.key, Permissions::from_mode(0o644)).expect("set");
    assert!(told(good).contains("chmod 600 agent.key"));
}
