//! A network that can be cut, as a namespace of this machine's.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network of its own, joined to ours by a wire.
#[derive(Debug)]
pub struct Network {
    name: String,
}

/// Our end of the wire.
pub const OURS: Ipv4Addr = Ipv4Addr::new(10, 213, 77, 1);
/// The other end.
pub const THEIRS: Ipv4Addr = Ipv4Addr::new(10, 213, 77, 2);
/// Another address of ours: what goes to it can be cut off alone.
pub const REPORTS: Ipv4Addr = Ipv4Addr::new(10, 213, 78, 1);

impl Network {
    /// `None` without the right to make one.
    pub fn lay() -> Option<Network> {
        let network = Network { name: format!("evener{}", std::process::id()) };
        let name = network.name.as_str();
        if !try_ip(&format!("netns add {name}")) {
            return None;
        }
        let (here, there) = network.ends();
        ip(&format!("link add {here} type veth peer name {there} netns {name}"));
        ip(&format!("addr add {OURS}/24 dev {here}"));
        ip(&format!("addr add {REPORTS}/32 dev {here}"));
        ip(&format!("link set {here} up"));
        ip(&format!("-n {name} addr add {THEIRS}/24 dev {there}"));
        ip(&format!("-n {name} link set lo up"));
        ip(&format!("-n {name} link set {there} up"));
        network.let_reports_through();
        Some(network)
    }

    /// Names of interfaces have 15 characters at the most.
    fn ends(&self) -> (String, String) {
        (format!("{}a", self.name), format!("{}b", self.name))
    }

    /// Mends the way to [`REPORTS`].
    pub fn let_reports_through(&self) {
        ip(&format!("-n {} route replace {REPORTS}/32 via {OURS} src {THEIRS}", self.name));
    }

    /// What is sent to [`REPORTS`] gets lost, without a word.
    pub fn cut_reports(&self) {
        ip(&format!("-n {} route replace blackhole {REPORTS}/32", self.name));
    }

    /// Cuts the wire, or mends it.
    pub fn set_wire(&self, state: &str) {
        // The other end: without ours, what is for it would go another way.
        ip(&format!("-n {} link set {} {state}", self.name, self.ends().1));
        if state == "up" {
            self.let_reports_through();
        }
    }

    /// Does something within it. Programs that are started stay there.
    pub fn within<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        let there = File::open(format!("/run/netns/{}", self.name)).expect("it is laid");
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(there.as_fd(), kind).expect("we laid it");
                what()
            });
            thread.join().expect("no panic there")
        })
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        try_ip(&format!("link del {}", self.ends().0));
        try_ip(&format!("netns del {}", self.name));
    }
}

fn try_ip(arguments: &str) -> bool {
    let done = Command::new("ip").args(arguments.split(' ')).stderr(Stdio::null()).status();
    done.is_ok_and(|status| status.success())
}

fn ip(arguments: &str) {
    assert!(try_ip(arguments), "ip {arguments}");
}
