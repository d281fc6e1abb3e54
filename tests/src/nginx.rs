//! Real nginx nodes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::{cache, free_address_on, wait_until};

/// One nginx process with a port for each node. A node answers every path with its name and the
/// argument `n` (`rat 17`), and keeps files that are PUT below `/files/`.
#[derive(Debug)]
pub struct Nginx {
    /// Where its nodes listen, in the order of their names.
    pub addresses: Vec<SocketAddr>,
    folder: TempDir,
    child: Option<Child>,
}

impl Nginx {
    /// Starts nodes of these names and waits until they accept.
    pub fn start(names: &[&str]) -> Nginx {
        Nginx::start_on(Ipv4Addr::LOCALHOST, names)
    }

    /// The same on another address of this machine.
    pub fn start_on(ip: impl Into<IpAddr>, names: &[&str]) -> Nginx {
        let ip = ip.into();
        let addresses: Vec<_> = names.iter().map(|_| free_address_on(ip)).collect();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let config = configuration(folder.path(), names, &addresses);
        std::fs::create_dir(folder.path().join("files")).expect("a folder for files");
        std::fs::write(folder.path().join("nginx.conf"), config).expect("a configuration file");
        let mut nginx = Nginx { addresses, folder, child: None };
        nginx.revive();
        nginx
    }

    /// The address of the first node.
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Ends the process with SIGKILL: connections are reset, later ones refused.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts it again on the same ports.
    pub fn revive(&mut self) {
        self.kill();
        let folder = self.folder.path();
        let stderr = std::fs::File::create(folder.join("stderr.log")).expect("a file for stderr");
        let mut command = Command::new(program());
        command
            .arg("-p")
            .arg(folder)
            .arg("-c")
            .arg(folder.join("nginx.conf"))
            .stdout(Stdio::null())
            .stderr(stderr);
        self.child = Some(command.spawn().expect("nginx starts"));
        for address in self.addresses.clone() {
            wait_until("nginx to listen", || {
                let status = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
                assert!(status.is_none(), "nginx ended: {}", self.errors());
                std::net::TcpStream::connect(address).is_ok()
            });
        }
    }

    fn errors(&self) -> String {
        let text = |name| std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        text("stderr.log") + &text("error.log")
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.kill();
    }
}

fn program() -> PathBuf {
    let _ = cache();
    let places = ["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/local/bin/nginx"];
    let found = places.iter().map(PathBuf::from).find(|path| path.exists());
    std::env::var_os("EVENER_NGINX").map(PathBuf::from).or(found).unwrap_or_else(|| "nginx".into())
}

fn configuration(folder: &Path, names: &[&str], addresses: &[SocketAddr]) -> String {
    let folder = folder.display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {folder}/{kind};"))
        .join(" ");
    let nodes: String = names
        .iter()
        .zip(addresses)
        .map(|(name, address)| {
            format!(
                "server {{ listen {address} backlog=1024;
                   location / {{ add_header X-Node {name}; return 200 \"{name} $arg_n\\n\"; }}
                   location /files/ {{ root {folder}; dav_methods PUT DELETE; client_max_body_size 100m; }} }}\n"
            )
        })
        .collect();
    // One process, so that SIGKILL ends the node and not its parent. It may run as root: say so, as
    // its temporary folders belong to who starts the tests.
    let user = if rustix::process::getuid().is_root() { "user root;" } else { "" };
    format!(
        "daemon off; master_process off; {user} pid {folder}/pid; error_log {folder}/error.log;
         events {{ worker_connections 8000; }}
         http {{ {temporary} access_log off; keepalive_requests 100000; {nodes} }}\n"
    )
}
