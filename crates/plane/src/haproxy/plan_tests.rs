use evener_model::Weight;

use super::super::answer::{Admin, Operation};
use super::*;

const DRAIN: u32 = 8;
const MAINTENANCE: u32 = 1;

fn at(second: u64) -> Time {
    Time::from_nanos(1_000_000_000 * (100 + second))
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port))
}

/// Nodes named after their ports, with weights.
fn wanted(nodes: &[(&str, u16, u64)]) -> Wanted {
    let node = |&(name, port, weight): &(&str, u16, u64)| WantedNode {
        name: name.into(),
        address: address(port),
        weight: Weight::new(weight).expect("a weight"),
    };
    Wanted::new("app", nodes.iter().map(node).collect()).expect("valid")
}

fn server(name: &str, port: u16, weight: u32, admin: u32) -> Server {
    Server {
        name: name.into(),
        address: Some(address(port).ip()),
        port,
        operation: Operation::Running,
        admin: Admin::from(admin),
        weight,
        initial_weight: 1,
    }
}

/// HAProxy in small: does what it is told.
struct World {
    servers: Vec<Server>,
    sessions: BTreeMap<String, u64>,
    memory: Memory,
}

impl World {
    fn new(servers: Vec<Server>) -> World {
        World { servers, sessions: BTreeMap::new(), memory: Memory::new(at(0)) }
    }

    /// Plans, carries out, and says what was done.
    fn apply(&mut self, wanted: &Wanted, now: Time) -> Vec<String> {
        let sessions =
            if has_leaving(wanted, &self.servers) { self.sessions.clone() } else { BTreeMap::new() };
        let plan = plan(wanted, &self.servers, &sessions, &mut self.memory, now);
        for change in &plan {
            self.obey(change);
            self.memory.done(change);
        }
        plan.iter().map(ToString::to_string).collect()
    }

    fn obey(&mut self, change: &Change) {
        let place = self.servers.iter().position(|server| server.name == change.server);
        let bits = |server: &mut Server, bits| server.admin = Admin::from(bits);
        match (change.step, place) {
            (Step::Add(address, weight), None) => {
                self.servers.push(server(&change.server, address.port(), weight, MAINTENANCE));
                self.sessions.insert(change.server.clone(), 0);
            }
            (Step::Weight(weight), Some(place)) => self.servers[place].weight = weight,
            (Step::Ready, Some(place)) => bits(&mut self.servers[place], 0),
            (Step::Drain, Some(place)) => bits(&mut self.servers[place], DRAIN),
            (Step::Maintain, Some(place)) => bits(&mut self.servers[place], MAINTENANCE),
            (Step::CheckHealth | Step::CheckAgent, Some(_)) => {}
            (Step::Delete, Some(place)) => {
                assert!(
                    self.servers[place].admin.is_maintained(),
                    "only what is in maintenance can be deleted"
                );
                self.servers.remove(place);
            }
            (step, place) => panic!("{step:?} of {place:?}"),
        }
    }
}

#[test]
fn only_what_differs_is_changed_and_what_takes_sessions_comes_first() {
    let mut world = World::new(vec![
        server("n1", 1, 5, 0),
        server("n2", 2, 9, 0),
        server("x", 9, 7, 0),
        server("n3", 3, 4, 0),
    ]);
    let nodes = wanted(&[("n1", 1, 2), ("n2", 2, 9), ("n3", 3, 8)]);
    assert_eq!(world.apply(&nodes, at(1)), ["n3: weight 8", "n1: weight 2"]);
    assert_eq!(world.apply(&nodes, at(2)), [""; 0]);
}

#[test]
fn a_node_is_found_by_its_name_and_else_by_its_address() {
    let mut world = World::new(vec![server("a", 1, 1, 0), server("rat", 7, 1, 0), server("c", 1, 1, 0)]);
    let nodes = wanted(&[("mole", 1, 3), ("rat", 1, 4), ("vole", 1, 5)]);
    assert_eq!(world.apply(&nodes, at(1)), ["a: weight 3", "rat: weight 4", "c: weight 5"]);
}

#[test]
fn weight_0_drains_and_leaves_the_weight() {
    let mut world = World::new(vec![server("n1", 1, 5, 0), server("n2", 2, 5, 0)]);
    assert_eq!(world.apply(&wanted(&[("n1", 1, 0), ("n2", 2, 5)]), at(1)), ["n1: drain"]);
    assert_eq!(world.apply(&wanted(&[("n1", 1, 0), ("n2", 2, 5)]), at(2)), [""; 0]);
    assert_eq!(world.apply(&wanted(&[("n1", 1, 3), ("n2", 2, 5)]), at(3)), ["n1: weight 3", "n1: ready"]);
}

#[test]
fn maintenance_is_the_operators() {
    let mut world = World::new(vec![server("n1", 1, 5, MAINTENANCE)]);
    assert_eq!(world.apply(&wanted(&[("n1", 1, 0)]), at(1)), [""; 0]);
    assert_eq!(world.apply(&wanted(&[("n1", 1, 7)]), at(2)), ["n1: weight 7"]);
}

#[test]
fn what_another_changed_is_corrected_and_said() {
    let mut world = World::new(vec![server("n1", 1, 5, 0)]);
    let nodes = wanted(&[("n1", 1, 5)]);
    assert_eq!(world.apply(&nodes, at(1)), [""; 0]);
    world.servers[0] = server("n1", 1, 6, DRAIN);
    assert_eq!(
        world.apply(&nodes, at(2)),
        ["n1: weight 5 (another had changed it)", "n1: ready (another had changed it)"]
    );
}

#[test]
fn a_haproxy_that_was_started_anew_is_told_everything_again() {
    let mut world = World::new(vec![server("n1", 1, 5, 0), server("n2", 2, 5, 0)]);
    let nodes = wanted(&[("n1", 1, 7), ("n2", 2, 0), ("10.0.0.1:3", 3, 4)]);
    world.apply(&nodes, at(1));
    world.servers = vec![server("n1", 1, 5, 0), server("n2", 2, 5, 0)];
    world.memory.restart();
    let again = [
        "n1: weight 7 (as before HAProxy was started anew)",
        "evener-10.0.0.1:3: added at 10.0.0.1:3 with weight 4 (as before HAProxy was started anew)",
        "evener-10.0.0.1:3: ready (as before HAProxy was started anew)",
        "n2: drain (as before HAProxy was started anew)",
    ];
    assert_eq!(world.apply(&nodes, at(2)), again);
    assert_eq!(world.apply(&nodes, at(3)), [""; 0]);
    world.servers[0].weight = 9;
    assert_eq!(world.apply(&nodes, at(4)), ["n1: weight 7 (another had changed it)"]);
}

#[test]
fn a_node_that_joins_is_added_with_its_checks_and_one_that_leaves_ends_its_sessions_first() {
    let mut world = World::new(vec![server("n1", 1, 5, 0)]);
    let both = wanted(&[("n1", 1, 5), ("joined", 2, 3)]).with_options("check inter 1s").expect("valid");
    let added = [
        "evener-10.0.0.1:2: added at 10.0.0.1:2 with weight 3",
        "evener-10.0.0.1:2: health checks on",
        "evener-10.0.0.1:2: ready",
    ];
    assert_eq!(world.apply(&both, at(1)), added);
    assert_eq!(world.apply(&both, at(2)), [""; 0]);
    let one = wanted(&[("n1", 1, 5)]);
    world.sessions.insert("evener-10.0.0.1:2".into(), 2);
    assert_eq!(world.apply(&one, at(3)), ["evener-10.0.0.1:2: drain"]);
    assert_eq!(world.apply(&one, at(4)), [""; 0]);
    assert_eq!(world.memory.leaving(), 1);
    world.sessions.insert("evener-10.0.0.1:2".into(), 0);
    assert_eq!(world.apply(&one, at(5)), ["evener-10.0.0.1:2: maintenance", "evener-10.0.0.1:2: deleted"]);
    assert_eq!((world.servers.len(), world.memory.leaving()), (1, 0));
}

#[test]
fn sessions_that_do_not_end_hold_a_server_for_its_time_only() {
    let mut world = World::new(vec![server("evener-10.0.0.1:2", 2, 5, 0)]);
    world.sessions.insert("evener-10.0.0.1:2".into(), 9);
    let none = wanted(&[]);
    assert_eq!(world.apply(&none, at(1)), ["evener-10.0.0.1:2: drain"]);
    assert_eq!(world.apply(&none, at(60)), [""; 0]);
    assert_eq!(world.apply(&none, at(61)).len(), 2);
}

#[test]
fn one_that_comes_back_while_it_leaves_stays() {
    let mut world = World::new(vec![server("evener-10.0.0.1:2", 2, 5, 0)]);
    assert_eq!(world.apply(&wanted(&[]), at(1)), ["evener-10.0.0.1:2: drain"]);
    assert_eq!(world.apply(&wanted(&[("x", 2, 5)]), at(2)), ["evener-10.0.0.1:2: ready"]);
    assert_eq!(world.memory.leaving(), 0);
}

#[test]
fn what_another_director_added_waits_for_its_agent() {
    let mut world = World::new(vec![server("evener-10.0.0.1:2", 2, 5, 0)]);
    let mut none = wanted(&[]);
    none.settle = Duration::from_secs(60);
    assert_eq!(world.apply(&none, at(59)), [""; 0]);
    assert_eq!(world.apply(&none, at(60)), ["evener-10.0.0.1:2: drain"]);
}

#[test]
fn an_addition_that_a_director_did_not_live_to_end_is_ended() {
    let mut world = World::new(vec![server("evener-10.0.0.1:2", 2, 5, MAINTENANCE)]);
    let nodes = wanted(&[("x", 2, 5)]);
    assert_eq!(world.apply(&nodes, at(1)), ["evener-10.0.0.1:2: ready"]);
    world.servers[0].admin = Admin::from(MAINTENANCE);
    assert_eq!(world.apply(&nodes, at(2)), [""; 0], "now it was an operator");
}

#[test]
fn a_configured_server_whose_node_left_drains_once_and_is_nobodys_then() {
    let mut world = World::new(vec![server("n1", 1, 5, 0), server("n2", 2, 5, 0)]);
    world.apply(&wanted(&[("n1", 1, 5), ("n2", 2, 5)]), at(1));
    let one = wanted(&[("n1", 1, 5)]);
    assert_eq!(world.apply(&one, at(2)), ["n2: drain"]);
    world.servers[1].admin = Admin::READY;
    assert_eq!(world.apply(&one, at(3)), [""; 0], "the operator wants it so");
    world.memory.restart();
    assert_eq!(world.apply(&one, at(4)), ["n2: drain"], "HAProxy has forgotten");
    assert_eq!(world.apply(&wanted(&[("n1", 1, 5), ("n2", 2, 5)]), at(5)), ["n2: ready"]);
}

#[test]
fn what_was_refused_is_tried_again_later_whatever_the_weight() {
    let nodes = |weight| wanted(&[("x", 2, weight)]);
    let mut memory = Memory::new(at(0));
    let planned = |memory: &mut Memory, weight, now| plan(&nodes(weight), &[], &BTreeMap::new(), memory, now);
    let first = planned(&mut memory, 5, at(1));
    assert_eq!(first.len(), 2);
    memory.refused(&first[0], at(1));
    assert_eq!(planned(&mut memory, 6, at(2)), []);
    assert_eq!(planned(&mut memory, 6, at(31)).len(), 2);
}
