//! Plans, carried out on a model of the kernel's service.

use std::net::SocketAddr;
use std::time::Duration;

use evener_model::Time;
use proptest::prelude::*;

use super::super::types::{Destination, Forwarding, Service, Transport, VirtualService};
use super::super::wanted::{WantedDestination, WantedService};
use super::{Cause, Change, Found, Memory, Step, plan, retire};

const DRAIN: Duration = Duration::from_secs(30);

fn address(node: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 1, node], 80))
}

fn key() -> VirtualService {
    VirtualService::Address { transport: Transport::Tcp, address: SocketAddr::from(([10, 0, 0, 1], 80)) }
}

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

/// Nodes and weights, all by NAT.
fn wanted(nodes: &[(u8, u32)]) -> WantedService {
    let destination =
        |&(node, weight)| WantedDestination { address: address(node), forwarding: Forwarding::Nat, weight };
    let mut wanted =
        WantedService::new(key(), "wlc", nodes.iter().map(destination).collect()).expect("it can be wanted");
    wanted.drain_timeout = DRAIN;
    wanted
}

/// What the kernel has, as far as plans know it.
struct Kernel {
    found: Option<Found>,
    memory: Memory,
}

impl Kernel {
    fn new() -> Kernel {
        Kernel { found: None, memory: Memory::new(at(0)) }
    }

    fn with(nodes: &[(u8, u32)]) -> Kernel {
        let destinations = nodes
            .iter()
            .map(|&(node, weight)| Destination::new(address(node), Forwarding::Nat, weight))
            .collect();
        Kernel { found: Some(Found { service: Service::new(key(), "wlc"), destinations }), ..Kernel::new() }
    }

    /// A new director finds what the last one left.
    fn restart(&mut self, seconds: u64) {
        self.memory = Memory::new(at(seconds));
    }

    fn apply(&mut self, seconds: u64, wanted: &WantedService) -> String {
        let changes = plan(wanted, self.found.as_ref(), &mut self.memory, at(seconds));
        self.carry_out(changes)
    }

    fn carry_out(&mut self, changes: Vec<Change>) -> String {
        let mut told = Vec::new();
        for change in changes {
            self.memory.done(&change.step);
            let mark = if change.cause == Cause::Corrected { "!" } else { "" };
            let node = |address: SocketAddr| match address {
                SocketAddr::V4(address) => address.ip().octets()[3],
                SocketAddr::V6(_) => unreachable!("these tests have none"),
            };
            let text = match &change.step {
                Step::AddService(service) => format!("service {}", service.scheduler),
                Step::EditService(service) => format!("scheduler {}", service.scheduler),
                Step::DeleteService => "no service".into(),
                Step::Add(new) => format!("+{}={}", node(new.address), new.weight),
                Step::Edit(new) => format!("{}={}", node(new.address), new.weight),
                Step::Quiesce(new) => format!("{}=quiet", node(new.address)),
                Step::Delete(address) => format!("-{}", node(*address)),
            };
            told.push(text + mark);
            self.take(change.step);
        }
        told.join(" ")
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::AddService(service) => self.found = Some(Found { service, destinations: Vec::new() }),
            Step::EditService(service) => self.found.as_mut().expect("it is there").service = service,
            Step::DeleteService => self.found = None,
            Step::Add(new) => {
                assert!(self.destinations().iter().all(|there| there.address != new.address), "twice");
                self.destinations().push(new);
            }
            Step::Edit(new) | Step::Quiesce(new) => {
                *self.destinations().iter_mut().find(|there| there.address == new.address).expect("there") =
                    new;
            }
            Step::Delete(address) => self.destinations().retain(|there| there.address != address),
        }
    }

    fn destinations(&mut self) -> &mut Vec<Destination> {
        &mut self.found.as_mut().expect("the service is there").destinations
    }

    fn node(&mut self, node: u8) -> &mut Destination {
        self.destinations().iter_mut().find(|there| there.address == address(node)).expect("it is there")
    }
}

#[test]
fn nothing_becomes_all() {
    let mut kernel = Kernel::new();
    assert_eq!(kernel.apply(0, &wanted(&[(1, 3), (2, 1)])), "service wlc +1=3 +2=1");
    assert_eq!(kernel.apply(1, &wanted(&[(1, 3), (2, 1)])), "");
}

#[test]
fn a_weight_is_an_edit_and_room_comes_first() {
    let mut kernel = Kernel::new();
    kernel.apply(0, &wanted(&[(1, 3), (2, 1)]));
    assert_eq!(kernel.apply(1, &wanted(&[(1, 1), (2, 3), (3, 1)])), "2=3 +3=1 1=1");
}

#[test]
fn who_leaves_keeps_its_connections_for_a_time() {
    let mut kernel = Kernel::new();
    kernel.apply(0, &wanted(&[(1, 1), (2, 1)]));
    kernel.node(2).active = 1;
    assert_eq!(kernel.apply(1, &wanted(&[(1, 1)])), "2=quiet");
    assert_eq!(kernel.apply(2, &wanted(&[(1, 1)])), "");
    assert_eq!(kernel.memory.leaving(), 1);
    assert_eq!(kernel.apply(30, &wanted(&[(1, 1)])), "");
    assert_eq!(kernel.apply(31, &wanted(&[(1, 1)])), "-2");
    assert_eq!((kernel.apply(32, &wanted(&[(1, 1)])), kernel.memory.leaving()), (String::new(), 0));
}

#[test]
fn who_leaves_goes_when_its_connections_have_ended() {
    let mut kernel = Kernel::new();
    kernel.apply(0, &wanted(&[(1, 1), (2, 1)]));
    assert_eq!(kernel.apply(1, &wanted(&[(1, 1)])), "2=quiet");
    // A connection may have begun just before.
    assert_eq!(kernel.apply(2, &wanted(&[(1, 1)])), "");
    assert_eq!(kernel.apply(3, &wanted(&[(1, 1)])), "-2");
}

#[test]
fn who_comes_back_while_it_leaves_is_edited() {
    let mut kernel = Kernel::new();
    kernel.apply(0, &wanted(&[(1, 1), (2, 4)]));
    kernel.node(2).active = 1;
    assert_eq!(kernel.apply(1, &wanted(&[(1, 1)])), "2=quiet");
    assert_eq!(kernel.apply(2, &wanted(&[(1, 1), (2, 4)])), "2=4");
    assert_eq!(kernel.apply(60, &wanted(&[(1, 1), (2, 4)])), "");
}

#[test]
fn what_another_changed_is_corrected() {
    let mut kernel = Kernel::new();
    let both = wanted(&[(1, 1), (2, 4)]);
    kernel.apply(0, &both);
    kernel.node(2).weight = 9;
    assert_eq!(kernel.apply(1, &both), "2=4!");
    kernel.destinations().retain(|there| there.address != address(1));
    assert_eq!(kernel.apply(2, &both), "+1=1!");
    kernel.node(2).way = Forwarding::Direct.into();
    assert_eq!(kernel.apply(3, &both), "2=4!");
    assert_eq!(kernel.node(2).way.forwarding(), Some(Forwarding::Nat));
    kernel.found.as_mut().expect("there").service.scheduler = "rr".into();
    assert_eq!(kernel.apply(4, &both), "scheduler wlc!");
    kernel.found = None;
    assert_eq!(kernel.apply(5, &both), "service wlc! +1=1! +2=4!");
}

#[test]
fn limits_and_persistence_are_the_operators() {
    let mut kernel = Kernel::with(&[(1, 1)]);
    kernel.node(1).connections_max = 100;
    let service = &mut kernel.found.as_mut().expect("there").service;
    (service.flags, service.timeout_s, service.scheduler) = (1, 300, "rr".into());
    assert_eq!(kernel.apply(0, &wanted(&[(1, 5)])), "scheduler wlc 1=5");
    assert_eq!(kernel.node(1).connections_max, 100);
    let service = &kernel.found.as_ref().expect("there").service;
    assert_eq!((service.flags, service.timeout_s), (1, 300));
}

#[test]
fn what_was_there_before_us_gets_time_to_speak() {
    let mut kernel = Kernel::with(&[(1, 1), (2, 1), (3, 1)]);
    kernel.restart(0);
    let mut only = wanted(&[(1, 1)]);
    only.settle = Duration::from_secs(15);
    assert_eq!(kernel.apply(0, &only), "");
    assert_eq!(kernel.apply(14, &only), "");
    // The second is wanted meanwhile.
    let mut both = wanted(&[(1, 1), (2, 1)]);
    both.settle = only.settle;
    assert_eq!(kernel.apply(14, &both), "");
    assert_eq!(kernel.apply(15, &both), "3=quiet");
    assert_eq!(kernel.apply(17, &both), "-3");
}

#[test]
fn a_service_that_is_no_longer_wanted_drains_and_goes() {
    let mut kernel = Kernel::new();
    kernel.apply(0, &wanted(&[(1, 1), (2, 1)]));
    kernel.node(1).active = 1;
    let step = |kernel: &mut Kernel, seconds| {
        let found = kernel.found.clone().expect("there");
        let changes = retire(key(), &found, DRAIN, &mut kernel.memory, at(seconds));
        kernel.carry_out(changes)
    };
    assert_eq!(step(&mut kernel, 1), "1=quiet 2=quiet");
    assert_eq!(step(&mut kernel, 3), "-2");
    kernel.node(1).active = 0;
    assert_eq!(step(&mut kernel, 4), "-1");
    assert_eq!(step(&mut kernel, 5), "no service");
}

proptest! {
    /// Whatever was there and whatever others do: one call makes wanted nodes what is wanted, nobody is deleted who has
    /// connections and time, and when all is as wanted nothing is done.
    #[test]
    fn it_becomes_what_is_wanted(
        before in proptest::collection::btree_map(0u8..6, (0u32..4, 0u32..3), 0..6),
        rounds in proptest::collection::vec(
            (proptest::collection::btree_map(0u8..6, 0u32..4, 0..6), proptest::option::of((0u8..6, 0u32..4))), 1..8),
    ) {
        let nodes: Vec<_> = before.iter().map(|(&node, &(weight, _))| (node, weight)).collect();
        let mut kernel = Kernel::with(&nodes);
        for (&node, &(_, active)) in &before {
            kernel.node(node).active = active;
        }
        let mut now = 0;
        for (nodes, by_hand) in rounds {
            now += 1;
            let wanted = wanted(&nodes.into_iter().collect::<Vec<_>>());
            let had: Vec<_> = kernel.destinations().clone();
            kernel.apply(now, &wanted);
            for want in wanted.destinations() {
                let is = kernel.destinations().iter().find(|there| there.address == want.address).copied();
                prop_assert_eq!(is.map(|is| is.weight), Some(want.weight));
            }
            let there = kernel.destinations().clone();
            for had in had.iter().filter(|had| had.active > 0) {
                prop_assert!(there.iter().any(|there| there.address == had.address), "deleted too early");
            }
            for left in there.iter().filter(|it| wanted.destinations().iter().all(|want| want.address != it.address)) {
                prop_assert_eq!(left.weight, 0);
            }
            if let Some((node, weight)) = by_hand
                && let Some(there) = kernel.destinations().iter_mut().find(|there| there.address == address(node))
            {
                there.weight = weight;
            }
        }
        let last = wanted(&[(1, 2), (2, 0)]);
        for round in 0..3 {
            kernel.apply(now + 100 * (round + 1), &last);
        }
        prop_assert_eq!(kernel.destinations().len(), 2);
        prop_assert_eq!(kernel.apply(now + 400, &last), "");
    }
}
