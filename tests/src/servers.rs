//! Real servers that can be asked how much they do: MariaDB, MySQL, Redis, memcached, and nginx's page of status.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::{checkout, free_address, wait_until};

/// A server that runs until the value ends.
#[derive(Debug)]
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    folder: TempDir,
    child: Child,
}

impl Server {
    /// MariaDB with an empty database. The user `evener` has the password `secret` and no privilege.
    pub fn mariadb() -> Server {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let data = folder.path().join("data");
        let installed = Command::new(program("mariadb-install-db"))
            .arg("--no-defaults")
            .arg(format!("--datadir={}", data.display()))
            // In a folder that they share, one that starts removes temporary tables of the other.
            .arg(format!("--tmpdir={}", folder.path().display()))
            .args(["--auth-root-authentication-method=normal", "--skip-test-db", "--user=root"])
            .output()
            .expect("mariadb-install-db runs");
        assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
        let first = folder.path().join("first.sql");
        std::fs::write(&first, "CREATE USER evener@'%' IDENTIFIED BY 'secret';\n").expect("written");
        Server::start("mariadbd", folder, |address, folder| {
            vec![
                "--no-defaults".into(),
                "--user=root".into(),
                format!("--datadir={}", data.display()),
                format!("--tmpdir={}", folder.display()),
                format!("--init-file={}", first.display()),
                format!("--socket={}", folder.join("socket").display()),
                format!("--pid-file={}", folder.join("pid").display()),
                format!("--bind-address={}", address.ip()),
                format!("--port={}", address.port()),
                "--skip-name-resolve".into(),
                // Its thread counts as running, and is no job.
                "--event-scheduler=ON".into(),
            ]
        })
    }

    /// MySQL 9 with an empty database. The user `evener` has the password `secret`, which is checked by the default
    /// plug-in, caching_sha2_password, and no privilege.
    pub fn mysql() -> Server {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let starter = program("mysqld");
        let mut common = vec!["--no-defaults".into(), "--user=root".into()];
        // Unpacked and not installed, it does not lie where it was built for.
        let unpacked = starter.parent().and_then(Path::parent).map(|place| place.join("root/usr"));
        if let Some(base) = unpacked.filter(|base| base.is_dir()) {
            let base = base.display();
            common.extend([
                format!("--basedir={base}"),
                format!("--lc-messages-dir={base}/share/mysql"),
                format!("--plugin-dir={base}/lib/mysql/plugin"),
            ]);
        }
        common.extend([
            format!("--datadir={}", folder.path().join("data").display()),
            format!("--tmpdir={}", folder.path().display()),
            "--secure-file-priv=NULL".into(),
            "--innodb-buffer-pool-size=32M".into(),
        ]);
        let installed = Command::new(starter).args(&common).arg("--initialize-insecure").output();
        let installed = installed.expect("mysqld runs");
        assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
        let first = folder.path().join("first.sql");
        std::fs::write(&first, "CREATE USER evener@'%' IDENTIFIED BY 'secret';\n").expect("written");
        Server::start("mysqld", folder, |address, folder| {
            common.extend([
                format!("--init-file={}", first.display()),
                format!("--socket={}", folder.join("socket").display()),
                format!("--pid-file={}", folder.join("pid").display()),
                format!("--bind-address={}", address.ip()),
                format!("--port={}", address.port()),
                "--mysqlx=0".into(),
                "--skip-log-bin".into(),
                "--performance-schema=OFF".into(),
            ]);
            common
        })
    }

    /// Redis, with the password `secret`.
    pub fn redis() -> Server {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Server::start("redis-server", folder, |address, folder| {
            let (port, folder) = (address.port().to_string(), folder.display().to_string());
            let words = [
                "--port",
                &port,
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--dir",
                &folder,
                "--requirepass",
                "secret",
            ];
            words.map(String::from).into()
        })
    }

    /// memcached.
    pub fn memcached() -> Server {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Server::start("memcached", folder, |address, _| {
            let port = address.port().to_string();
            ["-u", "root", "-l", "127.0.0.1", "-U", "0", "-p", &port].map(String::from).into()
        })
    }

    /// nginx, which tells at `/status` how much it does.
    pub fn nginx_status() -> Server {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Server::start("nginx", folder, |address, folder| {
            let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                .map(|kind| format!("{kind}_temp_path {}/{kind};", folder.display()))
                .join(" ");
            let user = if rustix::process::getuid().is_root() { "user root;" } else { "" };
            let log = folder.join("error.log");
            let text = format!(
                "daemon off; master_process off; {user} pid {}/pid; error_log {};
                 events {{}}
                 http {{ {temporary} access_log off;
                   server {{ listen {address}; location = /status {{ stub_status; }} }} }}\n",
                folder.display(),
                log.display()
            );
            let path = folder.join("nginx.conf");
            std::fs::write(&path, text).expect("a configuration file");
            vec!["-c".into(), path.display().to_string(), "-e".into(), log.display().to_string()]
        })
    }

    /// Runs a statement on MariaDB or MySQL, as root, until the value ends.
    pub fn statement(&self, statement: &str) -> Statement {
        let child = self
            .sql_client()
            .args(["--execute", statement])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        Statement(child.expect("mariadb runs"))
    }

    /// A client of MariaDB or MySQL, as root.
    pub(crate) fn sql_client(&self) -> Command {
        let mut client = Command::new(program("mariadb"));
        client.args(["--no-defaults", "--user=root", "--host=127.0.0.1"]);
        client.arg(format!("--port={}", self.address.port()));
        client
    }

    /// Opens connections to it.
    pub fn connect(&self, count: usize) -> Vec<TcpStream> {
        (0..count).map(|_| TcpStream::connect(self.address).expect("it accepts")).collect()
    }

    fn start(
        name: &str,
        folder: TempDir,
        arguments: impl FnOnce(SocketAddr, &Path) -> Vec<String>,
    ) -> Server {
        let address = free_address();
        let log = folder.path().join("output.log");
        let output = std::fs::File::create(&log).expect("a file for its output");
        let child = Command::new(program(name))
            .args(arguments(address, folder.path()))
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a second handle"))
            .stderr(output)
            .spawn();
        let mut server = Server { address, folder, child: child.expect("it starts") };
        wait_until(&format!("{name} to listen"), || {
            let ended = server.child.try_wait().expect("it is our child");
            let told = || std::fs::read_to_string(&log).unwrap_or_default();
            assert!(ended.is_none(), "{name} ended: {}", told());
            TcpStream::connect(server.address).is_ok()
        });
        server
    }

    /// A file that holds the password and that only we may read.
    pub fn password_file(&self, password: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.folder.path().join("password");
        std::fs::write(&path, format!("{password}\n")).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("ours");
        path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A statement that runs until the value ends.
#[derive(Debug)]
pub struct Statement(Child);

impl Drop for Statement {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The path of a server's program; `tests/setup` installs it where it is missing.
pub(crate) fn program(name: &str) -> PathBuf {
    static SETUP: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let find = || {
        // A mysqld that the system has may be another name of MariaDB.
        if name == "mysqld" {
            return Some(checkout().join(".cache/tests/mysql/run/mysqld")).filter(|path| path.exists());
        }
        // That of Debian 12 is too old.
        if name == "haproxy" {
            let unpacked = || checkout().join(".cache/tests/haproxy/run/haproxy");
            let path = std::env::var_os("EVENER_HAPROXY").map_or_else(unpacked, PathBuf::from);
            return Some(path).filter(|path| path.exists());
        }
        let folders = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"];
        folders.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.exists())
    };
    let _one_at_a_time = SETUP.lock();
    find().unwrap_or_else(|| {
        let status = Command::new(checkout().join("tests/setup")).status();
        assert!(status.is_ok_and(|status| status.success()), "tests/setup failed");
        find().unwrap_or_else(|| panic!("tests/setup has not installed {name}"))
    })
}
