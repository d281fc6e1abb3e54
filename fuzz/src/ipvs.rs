//! What must hold for any bytes that claim to be the kernel's answers about its virtual services: checked by the fuzzer on
//! bytes that it invents, and by the tests of `evener-plane` on the corpus.

use evener_plane::ipvs::message::{self, Request};
use evener_plane::ipvs::{Destination, Family, Service, Stats};

/// The number of the family; the kernel gives others at each start.
const FAMILY: u16 = 30;
/// A message has a header of 16 bytes and one of 4, a nested attribute one of 4.
const MESSAGE_BYTES_MIN: usize = 24;

/// An answer is read or refused, holds no more than there is room for, and what was read can be said back.
pub fn ipvs(bytes: &[u8]) {
    // The number of the first message's request, so that it is an answer.
    let number = bytes.get(8..12).and_then(|number| number.try_into().ok()).map_or(0, u32::from_ne_bytes);
    let (mut services, mut destinations, mut family) = (Vec::new(), Vec::new(), None);
    let _ = message::read_family(bytes, number, &mut family);
    let _ = message::read_done(bytes, number);
    let read = message::read_services(bytes, number, &mut services);
    assert!(services.len() * MESSAGE_BYTES_MIN <= bytes.len());
    if read == Ok(true) {
        let mut none = Vec::new();
        let other = number.wrapping_add(1);
        let _ = message::read_services(bytes, other, &mut none);
        let mut again = Vec::new();
        assert_eq!((message::read_services(bytes, number, &mut again), &again), (read, &services));
    }
    for family in [Family::Ipv4, Family::Ipv6] {
        let _ = message::read_destinations(bytes, number, family, &mut destinations);
    }
    assert!(destinations.len() * MESSAGE_BYTES_MIN <= 2 * bytes.len());
    for service in &services {
        service_survives(service);
        for destination in &destinations {
            destination_survives(service, destination);
        }
    }
}

/// The kernel says a service as it is told.
pub fn service_survives(service: &Service) {
    for request in [Request::AddService(service), Request::EditService(service)] {
        let mut read = Vec::new();
        let done = message::read_services(&message::request(FAMILY, 1, request), 1, &mut read);
        assert_eq!(done, Ok(false), "a request is no end");
        assert_eq!(read, [Service { stats: Stats::default(), ..service.clone() }]);
    }
}

/// The kernel says a destination as it is told, but for what only the kernel can know.
pub fn destination_survives(service: &Service, destination: &Destination) {
    let told = Destination { active: 0, inactive: 0, persistent: 0, stats: Stats::default(), ..*destination };
    for request in [
        Request::AddDestination(service.key, destination),
        Request::EditDestination(service.key, destination),
    ] {
        let mut read = Vec::new();
        let bytes = message::request(FAMILY, 1, request);
        let done = message::read_destinations(&bytes, 1, service.key.family(), &mut read);
        assert_eq!((done, read), (Ok(false), vec![told]));
    }
}
