//! What is said to the kernel's family `IPVS`, and what it answers: functions over bytes.
//!
//! A request bears a sequence number, and its answer the same. An answer may take several datagrams; each of the
//! functions that read one says whether it was the last.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;

use thiserror::Error;

use super::types::{Destination, Family, Service, Stats, Transport, VirtualService};
use super::wire::{
    Attributes, Message, Mode, Writer, count_of, messages, name_of, nested, port_of, u8_of, u16_of, u32_of,
};

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const IPPROTO_TCP: u16 = 6;
const IPPROTO_UDP: u16 = 17;
const IPPROTO_SCTP: u16 = 132;

/// The family that knows the other families.
mod controller {
    pub(super) const KIND: u16 = 0x10;
    pub(super) const GET_FAMILY: u8 = 3;
    pub(super) const ID: u16 = 1;
    pub(super) const NAME: u16 = 2;
}

mod command {
    pub(super) const NEW_SERVICE: u8 = 1;
    pub(super) const SET_SERVICE: u8 = 2;
    pub(super) const DELETE_SERVICE: u8 = 3;
    pub(super) const GET_SERVICE: u8 = 4;
    pub(super) const NEW_DESTINATION: u8 = 5;
    pub(super) const SET_DESTINATION: u8 = 6;
    pub(super) const DELETE_DESTINATION: u8 = 7;
    pub(super) const GET_DESTINATION: u8 = 8;
}

/// In which attribute a service and a destination lie.
const SERVICE: u16 = 1;
const DESTINATION: u16 = 2;

mod service {
    pub(super) const FAMILY: u16 = 1;
    pub(super) const PROTOCOL: u16 = 2;
    pub(super) const ADDRESS: u16 = 3;
    pub(super) const PORT: u16 = 4;
    pub(super) const MARK: u16 = 5;
    pub(super) const SCHEDULER: u16 = 6;
    pub(super) const FLAGS: u16 = 7;
    pub(super) const TIMEOUT: u16 = 8;
    pub(super) const NETMASK: u16 = 9;
    pub(super) const STATS: u16 = 10;
    pub(super) const ENGINE: u16 = 11;
    pub(super) const STATS64: u16 = 12;
}

mod destination {
    pub(super) const ADDRESS: u16 = 1;
    pub(super) const PORT: u16 = 2;
    pub(super) const METHOD: u16 = 3;
    pub(super) const WEIGHT: u16 = 4;
    pub(super) const CONNECTIONS_MAX: u16 = 5;
    pub(super) const CONNECTIONS_RESUME: u16 = 6;
    pub(super) const ACTIVE: u16 = 7;
    pub(super) const INACTIVE: u16 = 8;
    pub(super) const PERSISTENT: u16 = 9;
    pub(super) const STATS: u16 = 10;
    pub(super) const FAMILY: u16 = 11;
    pub(super) const STATS64: u16 = 12;
    pub(super) const TUNNEL: u16 = 13;
    pub(super) const TUNNEL_PORT: u16 = 14;
    pub(super) const TUNNEL_FLAGS: u16 = 15;
}

/// Why an answer is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WireError {
    /// The kernel refused, with this error number.
    #[error("the kernel refused (error {0})")]
    Refused(i32),
    /// What was listed changed meanwhile; ask again.
    #[error("the list changed while the kernel sent it")]
    Interrupted,
    /// Not what the kernel says.
    #[error("an answer that is none of netlink's")]
    Malformed,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// A service is added.
    AddService(&'a Service),
    /// Scheduler and persistence of a service become these.
    EditService(&'a Service),
    /// A service is removed, and with it what it has of destinations and connections.
    DeleteService(VirtualService),
    /// A destination is added to a service.
    AddDestination(VirtualService, &'a Destination),
    /// Weight, way and limits of a destination become these; connections stay.
    EditDestination(VirtualService, &'a Destination),
    /// A destination is removed from a service.
    DeleteDestination(VirtualService, SocketAddr),
}

/// Asks for the number of the family `IPVS`.
pub fn family(sequence: u32) -> Vec<u8> {
    let mut writer = Writer::new(controller::KIND, Mode::Do, sequence, controller::GET_FAMILY);
    writer.put_string(controller::NAME, "IPVS");
    writer.finish()
}

/// Asks for all services.
pub fn services(family: u16, sequence: u32) -> Vec<u8> {
    Writer::new(family, Mode::List, sequence, command::GET_SERVICE).finish()
}

/// Asks for the destinations of a service.
pub fn destinations(family: u16, sequence: u32, service: VirtualService) -> Vec<u8> {
    let mut writer = Writer::new(family, Mode::List, sequence, command::GET_DESTINATION);
    writer.nest(SERVICE, |writer| write_key(writer, service));
    writer.finish()
}

/// Asks for something to be done.
pub fn request(family: u16, sequence: u32, request: Request<'_>) -> Vec<u8> {
    let begin = |command| Writer::new(family, Mode::Do, sequence, command);
    let (mut writer, service, destination) = match request {
        Request::AddService(service) => return with_service(begin(command::NEW_SERVICE), service),
        Request::EditService(service) => return with_service(begin(command::SET_SERVICE), service),
        Request::DeleteService(service) => (begin(command::DELETE_SERVICE), service, None),
        Request::AddDestination(service, destination) => {
            (begin(command::NEW_DESTINATION), service, Some((destination.address, Some(destination))))
        }
        Request::EditDestination(service, destination) => {
            (begin(command::SET_DESTINATION), service, Some((destination.address, Some(destination))))
        }
        Request::DeleteDestination(service, address) => {
            (begin(command::DELETE_DESTINATION), service, Some((address, None)))
        }
    };
    writer.nest(SERVICE, |writer| write_key(writer, service));
    if let Some((address, destination)) = destination {
        writer.nest(DESTINATION, |writer| write_destination(writer, address, destination));
    }
    writer.finish()
}

fn with_service(mut writer: Writer, service: &Service) -> Vec<u8> {
    writer.nest(SERVICE, |writer| {
        write_key(writer, service.key);
        writer.put_string(service::SCHEDULER, &service.scheduler);
        // Flags, and which of them are said: all.
        let mut flags = [0xff; 8];
        flags[..4].copy_from_slice(&service.flags.to_ne_bytes());
        writer.put(service::FLAGS, &flags);
        writer.put_u32(service::TIMEOUT, service.timeout_s);
        writer.put_u32(service::NETMASK, service.netmask);
        if let Some(engine) = &service.engine {
            writer.put_string(service::ENGINE, engine);
        }
    });
    writer.finish()
}

fn write_key(writer: &mut Writer, key: VirtualService) {
    writer.put_u16(service::FAMILY, family_number(key.family()));
    match key {
        VirtualService::Address { transport, address } => {
            let protocol = match transport {
                Transport::Tcp => IPPROTO_TCP,
                Transport::Udp => IPPROTO_UDP,
                Transport::Sctp => IPPROTO_SCTP,
            };
            writer.put_u16(service::PROTOCOL, protocol);
            writer.put(service::ADDRESS, &address_bytes(address.ip()));
            writer.put(service::PORT, &address.port().to_be_bytes());
        }
        VirtualService::Mark { mark, .. } => writer.put_u32(service::MARK, mark.get()),
    }
}

fn write_destination(writer: &mut Writer, address: SocketAddr, destination: Option<&Destination>) {
    writer.put_u16(destination::FAMILY, family_number(Family::of(address)));
    writer.put(destination::ADDRESS, &address_bytes(address.ip()));
    writer.put(destination::PORT, &address.port().to_be_bytes());
    let Some(destination) = destination else { return };
    writer.put_u32(destination::METHOD, destination.way.method);
    writer.put_u32(destination::WEIGHT, destination.weight);
    writer.put(destination::TUNNEL, &[destination.way.tunnel]);
    writer.put(destination::TUNNEL_PORT, &destination.way.tunnel_port.to_be_bytes());
    writer.put_u16(destination::TUNNEL_FLAGS, destination.way.tunnel_flags);
    writer.put_u32(destination::CONNECTIONS_MAX, destination.connections_max);
    writer.put_u32(destination::CONNECTIONS_RESUME, destination.connections_resume);
}

fn family_number(family: Family) -> u16 {
    match family {
        Family::Ipv4 => AF_INET,
        Family::Ipv6 => AF_INET6,
    }
}

/// The kernel has room for either in the same place.
fn address_bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            bytes
        }
        IpAddr::V6(address) => address.octets(),
    }
}

/// Reads the number of the family, which is there when the last datagram has been read.
///
/// # Errors
/// [`WireError`] if there is no such family, or the datagram is none of netlink's.
pub fn read_family(datagram: &[u8], sequence: u32, number: &mut Option<u16>) -> Result<bool, WireError> {
    read(datagram, sequence, |attributes| {
        if let Some(id) = attributes.find(controller::ID)? {
            *number = Some(u16_of(id)?);
        }
        Ok(())
    })
}

/// Reads services.
///
/// # Errors
/// [`WireError`] if the kernel refused, or the datagram is none of netlink's; what was read before it stays.
pub fn read_services(datagram: &[u8], sequence: u32, services: &mut Vec<Service>) -> Result<bool, WireError> {
    read(datagram, sequence, |attributes| {
        let service = attributes.find(SERVICE)?.ok_or(WireError::Malformed)?;
        services.push(read_service(nested(service))?);
        Ok(())
    })
}

/// Reads destinations of a service of `family`.
///
/// # Errors
/// As [`read_services`].
pub fn read_destinations(
    datagram: &[u8],
    sequence: u32,
    family: Family,
    destinations: &mut Vec<Destination>,
) -> Result<bool, WireError> {
    read(datagram, sequence, |attributes| {
        let destination = attributes.find(DESTINATION)?.ok_or(WireError::Malformed)?;
        destinations.push(read_destination(nested(destination), family)?);
        Ok(())
    })
}

/// Reads whether something was done.
///
/// # Errors
/// [`WireError`] if the kernel refused, or the datagram is none of netlink's.
pub fn read_done(datagram: &[u8], sequence: u32) -> Result<bool, WireError> {
    read(datagram, sequence, |_| Ok(()))
}

fn read<'a>(
    datagram: &'a [u8],
    sequence: u32,
    mut part: impl FnMut(Attributes<'a>) -> Result<(), WireError>,
) -> Result<bool, WireError> {
    for message in messages(datagram, sequence) {
        match message? {
            Message::Part(_, attributes) => part(attributes)?,
            Message::End => return Ok(true),
        }
    }
    Ok(false)
}

fn read_service(attributes: Attributes<'_>) -> Result<Service, WireError> {
    let (mut family, mut transport, mut address, mut port, mut mark) = (None, None, None, 0, None);
    let (mut scheduler, mut flags, mut timeout_s, mut netmask, mut engine) = (None, 0, 0, 0, None);
    let mut stats = Stats::default();
    for attribute in attributes {
        let (kind, value) = attribute?;
        match kind {
            service::FAMILY => family = Some(read_family_number(value)?),
            service::PROTOCOL => transport = Some(read_transport(value)?),
            service::ADDRESS => address = Some(value),
            service::PORT => port = port_of(value)?,
            service::MARK => mark = NonZeroU32::new(u32_of(value)?),
            service::SCHEDULER => scheduler = Some(name_of(value)?),
            service::FLAGS => flags = u32_of(value)?,
            service::TIMEOUT => timeout_s = u32_of(value)?,
            service::NETMASK => netmask = u32_of(value)?,
            service::ENGINE => engine = Some(name_of(value)?),
            service::STATS | service::STATS64 => stats = read_stats(nested(value), stats)?,
            _ => {}
        }
    }
    let family = family.ok_or(WireError::Malformed)?;
    let key = match mark {
        Some(mark) => VirtualService::Mark { mark, family },
        None => VirtualService::Address {
            transport: transport.ok_or(WireError::Malformed)?,
            address: SocketAddr::new(read_address(family, address.ok_or(WireError::Malformed)?)?, port),
        },
    };
    let scheduler = scheduler.ok_or(WireError::Malformed)?;
    Ok(Service { key, scheduler, flags, timeout_s, netmask, engine, stats })
}

fn read_destination(attributes: Attributes<'_>, family: Family) -> Result<Destination, WireError> {
    // Older kernels do not say it: then it is that of the service.
    let (mut family, mut address, mut port) = (family, None, 0);
    let mut found = Destination::new(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)), super::Forwarding::Nat, 0);
    for attribute in attributes {
        let (kind, value) = attribute?;
        match kind {
            destination::FAMILY => family = read_family_number(value)?,
            destination::ADDRESS => address = Some(value),
            destination::PORT => port = port_of(value)?,
            destination::METHOD => found.way.method = u32_of(value)?,
            destination::WEIGHT => found.weight = u32_of(value)?,
            destination::CONNECTIONS_MAX => found.connections_max = u32_of(value)?,
            destination::CONNECTIONS_RESUME => found.connections_resume = u32_of(value)?,
            destination::ACTIVE => found.active = u32_of(value)?,
            destination::INACTIVE => found.inactive = u32_of(value)?,
            destination::PERSISTENT => found.persistent = u32_of(value)?,
            destination::TUNNEL => found.way.tunnel = u8_of(value)?,
            destination::TUNNEL_PORT => found.way.tunnel_port = port_of(value)?,
            destination::TUNNEL_FLAGS => found.way.tunnel_flags = u16_of(value)?,
            destination::STATS | destination::STATS64 => {
                found.stats = read_stats(nested(value), found.stats)?;
            }
            _ => {}
        }
    }
    found.address = SocketAddr::new(read_address(family, address.ok_or(WireError::Malformed)?)?, port);
    Ok(found)
}

/// Of both kinds of numbers the larger counts: those of 32 bits begin anew at 0, and where there are others they agree.
fn read_stats(attributes: Attributes<'_>, before: Stats) -> Result<Stats, WireError> {
    let mut stats = before;
    for attribute in attributes {
        let (kind, value) = attribute?;
        let count = match kind {
            1 => &mut stats.connections,
            2 => &mut stats.packets_in,
            3 => &mut stats.packets_out,
            4 => &mut stats.bytes_in,
            5 => &mut stats.bytes_out,
            _ => continue,
        };
        *count = count_of(value)?.max(*count);
    }
    Ok(stats)
}

fn read_family_number(value: &[u8]) -> Result<Family, WireError> {
    match u16_of(value)? {
        AF_INET => Ok(Family::Ipv4),
        AF_INET6 => Ok(Family::Ipv6),
        _ => Err(WireError::Malformed),
    }
}

fn read_transport(value: &[u8]) -> Result<Transport, WireError> {
    match u16_of(value)? {
        IPPROTO_TCP => Ok(Transport::Tcp),
        IPPROTO_UDP => Ok(Transport::Udp),
        IPPROTO_SCTP => Ok(Transport::Sctp),
        _ => Err(WireError::Malformed),
    }
}

fn read_address(family: Family, value: &[u8]) -> Result<IpAddr, WireError> {
    let address = match family {
        Family::Ipv4 => value.first_chunk::<4>().map(|bytes| IpAddr::V4(Ipv4Addr::from(*bytes))),
        Family::Ipv6 => value.first_chunk::<16>().map(|bytes| IpAddr::V6(Ipv6Addr::from(*bytes))),
    };
    address.ok_or(WireError::Malformed)
}
