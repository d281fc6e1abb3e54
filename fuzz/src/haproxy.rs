//! What must hold for any bytes that claim to be answers of HAProxy: checked by the fuzzer on bytes it invents, and by the
//! tests of `evener-plane` on the corpus that it found.

use std::collections::BTreeSet;

use evener_plane::haproxy::answer;

/// An answer is read whole or refused, and says no more than HAProxy may. The first line names the proxy that was
/// asked for.
pub fn haproxy(bytes: &[u8]) {
    let end = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(0);
    let (proxy, rest) = bytes.split_at(end);
    let proxy = std::str::from_utf8(proxy).ok().filter(|name| answer::is_name(name)).unwrap_or("app");
    let rest = rest.strip_prefix(b"\n").unwrap_or(rest);
    if let Ok(servers) = answer::servers(rest, proxy) {
        let names: BTreeSet<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names.len(), servers.len(), "each once");
        for server in &servers {
            assert!(answer::is_name(&server.name), "what is written into commands");
            assert!(server.weight <= 256 && server.initial_weight <= 256);
        }
    }
    if let Ok(sessions) = answer::sessions(rest, proxy) {
        assert!(sessions.len() <= rest.len() && sessions.iter().all(|(name, _)| answer::is_name(name)));
    }
    if let Ok(process) = answer::process(rest) {
        assert!(process.version.len() <= 64);
    }
    for done in ["", "Server deleted."] {
        match answer::obeyed(rest, done) {
            Ok(()) => assert_eq!(std::str::from_utf8(rest).map(str::trim), Ok(done)),
            Err(error) => {
                let shown = error.to_string();
                assert!(shown.len() < 1200 && !shown.contains(char::is_control), "it is written to the log");
            }
        }
    }
}
