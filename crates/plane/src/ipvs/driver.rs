//! The driver: looks, plans, does, and tells.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use evener_model::Time;
use rustix::io::Errno;
use tracing::{debug, info, warn};

use super::error::IpvsError;
use super::message::Request;
use super::plan::{Cause, Change, Found, Memory, Step, plan, retire};
use super::socket::Socket;
use super::types::{Destination, Service, VirtualService};
use super::wanted::{Wanted, WantedService};

/// The kernel's virtual services, as this process steers them.
///
/// Calls block for as long as the kernel takes: some microseconds for each service and each change, longer where it
/// loads the module of a scheduler.
#[derive(Debug)]
pub struct Ipvs {
    socket: Socket,
    steered: BTreeMap<VirtualService, Steered>,
}

#[derive(Debug)]
struct Steered {
    memory: Memory,
    drain_timeout: Duration,
}

/// What was changed.
#[derive(Debug, Default)]
pub struct Changes {
    /// What was done.
    pub done: Vec<Change>,
    /// What the kernel refused; the rest was done nevertheless.
    pub failed: Vec<Failure>,
    /// Destinations that leave and have connections yet.
    pub leaving: usize,
}

/// What the kernel refused.
#[derive(Debug)]
pub struct Failure {
    /// What it was to do.
    pub change: Change,
    /// Why it did not.
    pub error: IpvsError,
}

impl Ipvs {
    /// Connects to the kernel.
    ///
    /// # Errors
    /// [`IpvsError::Missing`] if it has no IPVS, [`IpvsError::Denied`] without CAP_NET_ADMIN.
    pub fn open() -> Result<Ipvs, IpvsError> {
        let mut ipvs = Ipvs { socket: Socket::open()?, steered: BTreeMap::new() };
        // Everybody may ask for the family; only a question to it shows whether we may ask it.
        ipvs.services()?;
        Ok(ipvs)
    }

    /// All virtual services of the kernel, steered or not.
    ///
    /// # Errors
    /// [`IpvsError`] if the kernel does not say.
    pub fn services(&mut self) -> Result<Vec<Service>, IpvsError> {
        match self.socket.services() {
            // The module was unloaded, and has another number if it is there again.
            Err(IpvsError::Refused(error)) if is_no_entry(&error) => {
                self.socket = Socket::open()?;
                self.socket.services()
            }
            services => services,
        }
    }

    /// The destinations of a service; none if it is not there.
    ///
    /// # Errors
    /// [`IpvsError`] if the kernel does not say.
    pub fn destinations(&mut self, service: VirtualService) -> Result<Vec<Destination>, IpvsError> {
        self.socket.destinations(service)
    }

    /// Makes the kernel's services what is wanted, with as few changes as that takes.
    ///
    /// - Services that were never wanted are left alone.
    /// - A destination that is no longer wanted gets no new connections. When those that it has have ended, or after
    ///   the time for that, a later call removes it; so does a service go that was wanted before.
    /// - What another changed since is made what is wanted again, and logged.
    /// - Persistence of services and limits of destinations stay as they are.
    ///
    /// To be called whenever something is wanted that was not, and every few seconds beside.
    ///
    /// # Errors
    /// [`IpvsError`] if nothing can be done. What the kernel refuses of several things is in [`Changes::failed`].
    pub fn apply(&mut self, now: Time, wanted: &Wanted) -> Result<Changes, IpvsError> {
        let mut changes = Changes::default();
        let found = self.services()?;
        for wanted in wanted.services() {
            let found = self.found(&found, wanted.service())?;
            let steered = self.steered.entry(wanted.service()).or_insert_with(|| Steered::new(now));
            steered.drain_timeout = wanted.drain_timeout;
            let plan = plan(wanted, found.as_ref(), &mut steered.memory, now);
            self.carry_out(plan, &mut changes)?;
        }
        let is_wanted = |key| wanted.services().iter().any(|wanted| wanted.service() == key);
        let gone: Vec<_> = self.steered.keys().copied().filter(|&key| !is_wanted(key)).collect();
        for service in gone {
            let found = self.found(&found, service)?;
            let Some((found, steered)) = found.zip(self.steered.get_mut(&service)) else {
                self.steered.remove(&service);
                continue;
            };
            let plan = retire(service, &found, steered.drain_timeout, &mut steered.memory, now);
            self.carry_out(plan, &mut changes)?;
        }
        changes.leaving = self.steered.values().map(|steered| steered.memory.leaving()).sum();
        Ok(changes)
    }

    fn found(&mut self, services: &[Service], key: VirtualService) -> Result<Option<Found>, IpvsError> {
        let Some(service) = services.iter().find(|service| service.key == key) else { return Ok(None) };
        let destinations = self.socket.destinations(key)?;
        Ok(Some(Found { service: service.clone(), destinations }))
    }

    fn carry_out(&mut self, plan: Vec<Change>, changes: &mut Changes) -> Result<(), IpvsError> {
        for change in plan {
            match self.request(&change) {
                Ok(()) => {
                    log(&change);
                    if let Some(steered) = self.steered.get_mut(&change.service) {
                        steered.memory.done(&change.step);
                    }
                    if change.step == Step::DeleteService {
                        self.steered.remove(&change.service);
                    }
                    changes.done.push(change);
                }
                Err(error) if error.is_general() => return Err(error),
                Err(error) => {
                    let ends = matches!(change.step, Step::AddService(_));
                    changes.failed.push(Failure { change, error });
                    // Without the service the rest would only repeat that.
                    if ends {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    fn request(&mut self, change: &Change) -> Result<(), IpvsError> {
        let service = change.service;
        let asked = self.socket.request(match &change.step {
            Step::AddService(service) => Request::AddService(service),
            Step::EditService(service) => Request::EditService(service),
            Step::DeleteService => Request::DeleteService(service),
            Step::Add(destination) => Request::AddDestination(service, destination),
            Step::Edit(destination) | Step::Quiesce(destination) => {
                Request::EditDestination(service, destination)
            }
            Step::Delete(address) => Request::DeleteDestination(service, *address),
        });
        match (&change.step, asked) {
            (Step::AddService(service) | Step::EditService(service), Err(IpvsError::Refused(error)))
                if is_no_entry(&error) =>
            {
                Err(IpvsError::NoScheduler(service.scheduler.clone()))
            }
            (_, asked) => asked,
        }
    }
}

impl Steered {
    fn new(now: Time) -> Steered {
        Steered { memory: Memory::new(now), drain_timeout: WantedService::DRAIN_TIMEOUT }
    }
}

fn is_no_entry(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOENT.raw_os_error())
}

fn log(change: &Change) {
    let service = change.service;
    match (change.cause, &change.step) {
        (Cause::Corrected, _) => warn!(%service, %change, "another had changed a virtual service: corrected"),
        // Weights follow what nodes report: that is no event.
        (Cause::Wanted, Step::Edit(_)) => debug!(%service, %change, "virtual service changed"),
        (Cause::Wanted, _) => info!(%service, %change, "virtual service changed"),
    }
}
