use std::io;
use std::time::Duration;

use rustix::io::Errno;
use thiserror::Error;

use super::message::WireError;

/// Why the kernel's virtual services cannot be steered.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum IpvsError {
    /// The module is not loaded, or not there.
    #[error(
        "this kernel has no IPVS: do this: modprobe ip_vs (and for every boot: echo ip_vs >/etc/modules-load.d/ipvs.conf)"
    )]
    Missing,
    /// It takes a privilege.
    #[error(
        "the kernel lets nobody steer IPVS without CAP_NET_ADMIN: run the director with it (systemd: AmbientCapabilities=CAP_NET_ADMIN)"
    )]
    Denied,
    /// The scheduler's module is not loaded, or not there.
    #[error("the kernel has no IPVS scheduler \"{0}\": do this: modprobe ip_vs_{0}")]
    NoScheduler(String),
    /// The kernel refused something else.
    #[error("the kernel refused: {0}")]
    Refused(io::Error),
    /// The kernel said something that it never says.
    #[error("the kernel gave {0}")]
    Wire(WireError),
    /// The kernel did not answer.
    #[error("the kernel did not answer for {0:?}")]
    Silent(Duration),
    /// The kernel's lists changed each time they were read.
    #[error("the kernel's virtual services change faster than they can be listed")]
    Restless,
    /// The socket failed.
    #[error("a socket to the kernel: {0}")]
    Socket(io::Error),
}

impl IpvsError {
    /// Whether nothing at all can be done, rather than one thing not.
    pub(super) fn is_general(&self) -> bool {
        !matches!(self, IpvsError::NoScheduler(_) | IpvsError::Refused(_))
    }
}

impl From<WireError> for IpvsError {
    fn from(error: WireError) -> IpvsError {
        match error {
            WireError::Refused(number) => match Errno::from_raw_os_error(number) {
                Errno::PERM | Errno::ACCESS => IpvsError::Denied,
                number => IpvsError::Refused(number.into()),
            },
            WireError::Interrupted => IpvsError::Restless,
            WireError::Malformed => IpvsError::Wire(error),
        }
    }
}

impl From<Errno> for IpvsError {
    fn from(error: Errno) -> IpvsError {
        IpvsError::Socket(error.into())
    }
}
