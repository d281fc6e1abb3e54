//! A Linux of its own for tests that change a kernel: Debian's, under qemu.
//!
//! A test calls [`scenario`] with what it does. Run by cargo, the first of a test binary's scenarios boots a guest with
//! the binary itself in it; in there each scenario runs in a network namespace of its own; and outside, each test
//! tells how its own went. So a scenario is a test like others, only that it may do with the kernel what it likes.
//!
//! - `tests/guest/fetch` unpacks the kernel and `ipvsadm`; nothing is installed but qemu and busybox.
//! - The guest is a kernel and an archive in memory: busybox, the modules that are named in the order
//!   in which they are loaded, programs with the libraries that `ldd` names, and an `/init` that runs the scenarios one
//!   after the other and then powers off. It has no disk and no network but its own.
//! - The processor is emulated (`-accel tcg`), so that it runs where there is no KVM: 2 s until `/init`.
//! - What happens comes out of its serial port, between lines that name the scenario.
//!
//! Scenarios with the prefix `without_modules_` run before any module is loaded.

pub mod network;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::checkout;

/// How long a guest may take; far longer than it needs.
const DEADLINE: Duration = Duration::from_secs(600);
/// Says to a test that it is in a guest.
const INSIDE: &str = "EVENER_TEST_GUEST";
const BEGIN: &str = "@@ begin ";
const END: &str = "@@ end ";

/// Modules of IPVS, in the order in which they are loaded.
pub const IPVS: [&str; 8] = [
    "libcrc32c",
    "nf_defrag_ipv4",
    "nf_defrag_ipv6",
    "nf_conntrack",
    "ip_vs",
    "ip_vs_rr",
    "ip_vs_wrr",
    "ip_vs_wlc",
];

/// Runs `body` in a guest: see the module.
///
/// # Panics
/// If it panics there.
pub fn scenario(guest: impl FnOnce() -> Guest, body: impl FnOnce()) {
    static VERDICTS: OnceLock<HashMap<String, Verdict>> = OnceLock::new();
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let verdicts = VERDICTS.get_or_init(|| {
        let test = std::env::current_exe().expect("the path of this test");
        let list = Command::new(&test).args(["--list", "--format", "terse"]).output().expect("it runs");
        let list = String::from_utf8_lossy(&list.stdout).into_owned();
        let names: Vec<_> = list.lines().filter_map(|line| line.strip_suffix(": test")).collect();
        guest().boot(&test, &names)
    });
    let thread = std::thread::current();
    let name = thread.name().expect("tests have names");
    let verdict =
        verdicts.get(name).unwrap_or_else(|| panic!("the guest did not come to {name}: {verdicts:?}"));
    print!("{}", verdict.output);
    assert!(verdict.is_ok, "it failed in the guest:\n{}", verdict.output);
}

/// How a scenario went.
#[derive(Debug)]
struct Verdict {
    is_ok: bool,
    output: String,
}

/// What a guest has.
#[derive(Debug)]
pub struct Guest {
    modules: Vec<&'static str>,
    archive: Archive,
}

impl Guest {
    /// A guest with these modules of its kernel, in the order in which they are loaded; and with `/bin/ip` and `ipvsadm`.
    pub fn new(modules: &[&'static str]) -> Guest {
        let mut guest = Guest { modules: modules.to_vec(), archive: Archive::default() };
        for folder in ["applets", "bin", "dev", "lib", "lib64", "mod", "proc", "run", "sys", "tmp"] {
            guest.archive.folder(folder);
        }
        guest.archive.file("bin/busybox", &installed("busybox"));
        for module in modules {
            let path = find(&fetched().join("lib/modules"), &format!("{module}.ko"));
            let path = path.unwrap_or_else(|| panic!("the kernel has no module {module}"));
            guest.archive.file(&format!("mod/{module}.ko"), &path);
        }
        // To be called by its path: the shell has an `ip` of its own, which can do less.
        guest.with("ip", &installed("ip")).with("ipvsadm", &fetched().join("sbin/ipvsadm"))
    }

    /// The same with a program in `/bin`.
    #[must_use]
    pub fn with(mut self, name: &str, program: &Path) -> Guest {
        let stripped = tempfile::NamedTempFile::new().expect("a temporary file");
        let strip = Command::new("strip").arg("-o").arg(stripped.path()).arg(program).status();
        // Without its symbols it is a fraction as large; where there is no strip it is not.
        let is_stripped = strip.is_ok_and(|status| status.success());
        self.archive.file(&format!("bin/{name}"), if is_stripped { stripped.path() } else { program });
        for library in libraries(program) {
            let name = library.file_name().and_then(|name| name.to_str()).expect("a plain name").to_owned();
            // The loader's path is in each program; the others are found by LD_LIBRARY_PATH.
            let folder = if name.starts_with("ld-linux") { "lib64" } else { "lib" };
            self.archive.file(&format!("{folder}/{name}"), &library);
        }
        self
    }

    fn boot(self, test: &Path, names: &[&str]) -> HashMap<String, Verdict> {
        let mut guest = self.with("test", test);
        let init = guest.init(names);
        guest.archive.bytes("init", init.as_bytes());
        let mut initramfs = tempfile::NamedTempFile::new().expect("a temporary file");
        initramfs.write_all(&guest.archive.finish()).expect("room for the archive");
        let kernel = std::fs::read_dir(fetched().join("boot")).expect("a kernel").flatten();
        let kernel = kernel.map(|entry| entry.path()).next().expect("a kernel");
        verdicts(&run(&kernel, initramfs.path()))
    }

    /// The first process of the guest.
    fn init(&self, names: &[&str]) -> String {
        let (bare, others): (Vec<_>, Vec<_>) =
            names.iter().partition(|name| name.starts_with("without_modules_"));
        let run = |names: Vec<&&str>| -> String {
            let line = |name: &&&str| {
                format!(
                    "echo; echo '{BEGIN}{name}'\nunshare -n sh -c 'ip link set lo up; /bin/test --exact {name} --nocapture'\n\
                     code=$?; echo; echo \"{END}{name} $code\"\n/bin/ip -all netns delete\n"
                )
            };
            names.iter().map(line).collect()
        };
        let load: String = self.modules.iter().map(|module| format!("insmod /mod/{module}.ko\n")).collect();
        format!(
            "#!/bin/busybox sh\n\
             exec </dev/console >/dev/console 2>&1\n\
             /bin/busybox --install -s /applets\n\
             export PATH=/bin:/applets LD_LIBRARY_PATH=/lib {INSIDE}=1 EVENER_BIN=/bin/evener RUST_BACKTRACE=0\n\
             mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev\n\
             mount -t tmpfs run /run; mount -t tmpfs tmp /tmp\n\
             {}{load}{}poweroff -f\n",
            run(bare),
            run(others),
        )
    }
}

/// Runs the guest to its end and gives what came out of its serial port.
fn run(kernel: &Path, initramfs: &Path) -> String {
    let mut qemu = Command::new(installed("qemu-system-x86_64"))
        .args(["-accel", "tcg", "-m", "768M", "-nic", "none", "-no-reboot"])
        .args(["-display", "none", "-monitor", "none", "-serial", "stdio"])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(initramfs)
        .args(["-append", "console=ttyS0 quiet loglevel=3 panic=-1 rdinit=/init"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("qemu starts");
    let mut output = qemu.stdout.take().expect("a pipe");
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        output.read_to_end(&mut bytes).map(|_| String::from_utf8_lossy(&bytes).replace('\r', ""))
    });
    let deadline = Instant::now() + DEADLINE;
    while !reader.is_finished() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    // Has it ended, this does nothing.
    let _ = qemu.kill();
    let _ = qemu.wait();
    reader.join().expect("it reads").expect("the serial port can be read")
}

fn verdicts(output: &str) -> HashMap<String, Verdict> {
    let mut verdicts = HashMap::new();
    for part in output.split(BEGIN).skip(1) {
        let (name, rest) = part.split_once('\n').unwrap_or((part, ""));
        let end = format!("{END}{name} ");
        let (output, code) = rest.split_once(&end).unwrap_or((rest, "without end"));
        let is_ok = code.lines().next() == Some("0");
        verdicts.insert(name.to_owned(), Verdict { is_ok, output: output.to_owned() });
    }
    if verdicts.is_empty() {
        println!("{output}");
    }
    verdicts
}

/// What `tests/guest/fetch` unpacked.
fn fetched() -> PathBuf {
    let folder = checkout().join(".cache/tests/guest");
    setup_unless(|| folder.join("ready").exists());
    folder.join("root")
}

fn installed(program: &str) -> PathBuf {
    let find = || {
        ["/usr/bin", "/bin", "/usr/sbin", "/sbin"]
            .iter()
            .map(|folder| Path::new(folder).join(program))
            .find(|path| path.exists())
    };
    setup_unless(|| find().is_some());
    find().unwrap_or_else(|| panic!("tests/setup has not installed {program}"))
}

fn setup_unless(is_there: impl Fn() -> bool) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one_at_a_time = ONE_AT_A_TIME.lock();
    if !is_there() {
        let status = Command::new(checkout().join("tests/setup")).status();
        assert!(status.is_ok_and(|status| status.success()), "tests/setup failed");
    }
}

/// The libraries that a program is linked with; its loader is one of them.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let unpacked = fetched().join("lib/x86_64-linux-gnu");
    let output =
        Command::new("ldd").arg(program).env("LD_LIBRARY_PATH", unpacked).output().expect("ldd runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains("not found"), "{}: {text}", program.display());
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    text.lines().filter_map(path).collect()
}

fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    let entries: Vec<_> = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
    let here = entries.iter().find(|path| path.file_name().is_some_and(|found| found == name));
    here.cloned()
        .or_else(|| entries.iter().filter(|path| path.is_dir()).find_map(|path| self::find(path, name)))
}

/// Files as the kernel unpacks them into memory: `cpio` in the format `newc`.
#[derive(Debug, Default)]
struct Archive {
    bytes: Vec<u8>,
    names: Vec<String>,
}

impl Archive {
    fn folder(&mut self, name: &str) {
        self.entry(name, 0o040_755, &[]);
    }

    fn file(&mut self, name: &str, path: &Path) {
        let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        self.bytes(name, &bytes);
    }

    fn bytes(&mut self, name: &str, bytes: &[u8]) {
        self.entry(name, 0o100_755, bytes);
    }

    fn entry(&mut self, name: &str, mode: u32, data: &[u8]) {
        // Libraries come with several programs.
        if self.names.iter().any(|there| there == name) {
            return;
        }
        self.names.push(name.to_owned());
        let size = u32::try_from(data.len()).expect("files below 4 GiB");
        let name_size = u32::try_from(name.len() + 1).expect("short names");
        let number = u32::try_from(self.names.len()).expect("few files");
        self.bytes.extend_from_slice(b"070701");
        // Number, mode, owner and group, links, time, size, four numbers of devices, size of the name, checksum.
        for field in [number, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0] {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }
}
