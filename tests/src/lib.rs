//! Helpers of the end-to-end tests: the real `evener` program, real nginx nodes,
//! nodes that misbehave on purpose, and clients that count every answer.
//!
//! Nothing here sleeps and hopes: a test waits for a condition, up to [`DEADLINE`].

pub mod agents;
pub mod authority;
pub mod clients;
pub mod databases;
pub mod director;
#[cfg(target_arch = "x86_64")]
pub mod guest;
pub mod haproxy;
pub mod http;
pub mod load;
pub mod network;
pub mod nginx;
pub mod nodes;
pub mod prometheus;
pub mod servers;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// How long a condition may take to come true; far longer than it needs on an idle machine.
pub const DEADLINE: Duration = Duration::from_secs(15);

/// Waits until `condition` gives something.
///
/// # Panics
/// After [`DEADLINE`], naming `what` was awaited.
pub fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {DEADLINE:?} in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until `condition` holds; see [`wait_for`].
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    wait_for(what, || condition().then_some(()));
}

/// An address on the loopback that nothing listens on, and that no other call in this process gave.
///
/// Below the range from which the kernel takes the ports of clients, so that none of those takes it meanwhile.
pub fn free_address() -> SocketAddr {
    free_address_on(Ipv4Addr::LOCALHOST)
}

/// The same on another address of this machine.
pub fn free_address_on(ip: impl Into<IpAddr>) -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = (std::process::id() % 200) as u16 * 100;
    let ip = ip.into();
    for _ in 0..20_000 {
        let port = 10_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        let address = SocketAddr::from((ip, port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no free port between 10000 and 30000");
}

/// The root of the checkout.
pub fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the checkout")
}

/// What `tests/setup` installed; runs it where it has not been run yet.
pub fn cache() -> PathBuf {
    static SETUP: std::sync::Once = std::sync::Once::new();
    let cache = checkout().join(".cache/tests");
    SETUP.call_once(|| {
        if !cache.join("go-client").exists() || !cache.join("venv/wanted").exists() {
            let status = std::process::Command::new(checkout().join("tests/setup")).status();
            assert!(status.is_ok_and(|status| status.success()), "tests/setup failed");
        }
    });
    cache
}

/// A checksum that tells bodies apart and sees bytes that changed places (FNV-1a, 64 bits).
pub fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// `length` bytes that do not repeat within any buffer's size; the same for the same seed.
pub fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Raises this process's limit of open descriptors (and that of the children it starts) as far as it may.
/// Returns what it is now.
pub fn raise_descriptor_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
