//! The whole way: agents on nodes tell a director how these are, and the director steers Linux Virtual Server by it, in
//! a kernel of its own with a network of namespaces.
#![cfg(target_arch = "x86_64")]

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use evener_tests::director::{Director, program};
use evener_tests::guest::network::{
    build_nated, connect, counts_from_client, ipvsadm, say, sh, virtual_address, within,
};
use evener_tests::guest::{Guest, IPVS, scenario};
use evener_tests::wait_until;
use rustix::process::{Pid, Signal, kill_process};

/// The processor is emulated: far longer than it needs there.
const DEADLINE: Duration = Duration::from_secs(120);

fn in_guest(body: impl FnOnce()) {
    let modules: Vec<_> = IPVS.into_iter().chain(["veth"]).collect();
    scenario(|| Guest::new(&modules).with("evener", program()), body);
}

/// Waits until `ipvsadm` shows what is awaited.
fn await_lvs<T>(what: &str, mut seen: impl FnMut(&[Destination]) -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let destinations = destinations();
        if let Some(seen) = seen(&destinations) {
            return seen;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}: {destinations:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A destination as `ipvsadm` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Destination {
    node: u8,
    way: String,
    weight: u32,
    active: u32,
}

/// The destinations of the service, by node.
fn destinations() -> Vec<Destination> {
    let lines = ipvsadm();
    let read = |line: &String| {
        let words: Vec<_> = line.split(' ').collect();
        let ["->", address, way, weight, active, _] = words[..] else { return None };
        let node = address.strip_prefix("10.3.")?.strip_suffix(".2:8000")?.parse().ok()?;
        Some(Destination {
            node,
            way: way.into(),
            weight: weight.parse().ok()?,
            active: active.parse().ok()?,
        })
    };
    let mut found: Vec<_> = lines.iter().filter_map(read).collect();
    found.sort_by_key(|destination| destination.node);
    found
}

fn weight(destinations: &[Destination], node: u8) -> Option<u32> {
    destinations.iter().find(|destination| destination.node == node).map(|destination| destination.weight)
}

/// Nodes that get new connections.
fn serving(destinations: &[Destination]) -> Vec<u8> {
    destinations.iter().filter(|it| it.weight > 0).map(|destination| destination.node).collect()
}

fn keys() -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = PathBuf::from("/tmp/feedback.keys");
    std::fs::write(&path, "first 0123456789abcdef0123456789abcdef\n").expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("ours");
    path
}

fn director() -> Director {
    director_with("")
}

/// The same with further lines for the pool.
fn director_with(pool: &str) -> Director {
    Director::start_with(
        "workers = 1",
        &format!(
            "[feedback]\nnecp = \":3262\"\nkeys = \"{}\"\n\
             [pool.app]\n\
             output = {{ ipvs = \"{}\", scheduler = \"wrr\" }}\n\
             join = {{ from = [\"10.3.0.0/16\"], port = 8000 }}\n\
             phase = \"1s\"\nfeedback = {{ weights = \"smoothing\", alpha = 1.0, step = 1.0, dead_band = 0.0 }}\n\
             node = []\n{pool}\n",
            keys().display(),
            virtual_address(),
        ),
    )
}

/// The agent of a node, in its namespace.
struct Agent {
    node: u8,
    child: Child,
}

impl Agent {
    fn start(node: u8) -> Agent {
        Agent::start_by(node, "nat")
    }

    /// One that says that packets are to come in this way.
    fn start_by(node: u8, forwarding: &str) -> Agent {
        let file = format!("/tmp/agent{node}.toml");
        let text = format!(
            "[agent]\nnode = \"n{node}\"\ninterval = \"500ms\"\n\
             director = \"necp://10.3.{node}.1\"\nkeys = \"{}\"\n\
             keepalive = \"1s\"\nreconnect = {{ min = \"200ms\", max = \"1s\" }}\n\
             service = {{ port = 8000, forwarding = \"{forwarding}\" }}\nhealth = {{ load_max = 1000 }}\nmemory = {{ stall_max = 0 }}\n\
             [[agent.source]]\nrequired = true\nprogram = {{ run = [\"/applets/cat\", \"/tmp/health{node}\"] }}\n",
            keys().display(),
        );
        std::fs::write(&file, text).expect("written");
        Agent::set_health(node, 100);
        let child = within(&format!("n{node}"), move || {
            let mut agent = Command::new(program());
            agent
                .args(["agent", "-c", &file])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .expect("it starts")
        });
        Agent { node, child }
    }

    fn set_health(node: u8, health: u8) {
        let (path, new) = (format!("/tmp/health{node}"), format!("/tmp/health{node}.new"));
        // At once: a program that reads half a line says something else.
        std::fs::write(&new, format!("{health}\n"))
            .and_then(|()| std::fs::rename(&new, path))
            .expect("written");
    }

    /// Ends it as systemd does: it takes its services back.
    fn stop(mut self) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("not 0");
        kill_process(pid, Signal::TERM).expect("it is there");
        let status = self.child.wait().expect("it is our child");
        assert!(status.success(), "agent {}: {status}", self.node);
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn nodes_come_and_go_with_their_agents_and_weights_follow_their_health() {
    in_guest(|| {
        build_nated();
        let _director = director();
        await_lvs("the service", |_| ipvsadm().contains(&"TCP 10.0.0.1:80 wrr".to_owned()).then_some(()));
        let [one, two, three] = [1, 2, 3].map(Agent::start);
        await_lvs("three nodes", |seen| {
            let is_equal = seen.windows(2).all(|pair| pair[0].weight == pair[1].weight);
            (serving(seen) == [1, 2, 3] && is_equal).then_some(())
        });
        assert!(destinations().iter().all(|destination| destination.way == "Masq"));
        assert_eq!(counts_from_client(30), [10, 10, 10]);

        // Weights follow health.
        Agent::set_health(3, 25);
        await_lvs("a quarter of the weight", |seen| {
            let [one, three] = [weight(seen, 1)?, weight(seen, 3)?];
            (three > 0 && three * 3 < one).then_some(())
        });
        let [first, _, third] = counts_from_client(45);
        assert!(first >= 3 * third && third > 0, "{first} {third}");

        // Health 0: no new connections; those that there are go on.
        let mut held = within("client", || (0..6).map(|_| connect(virtual_address())).collect::<Vec<_>>());
        let names: Vec<_> = held.iter_mut().map(|held| say(held).expect("an answer")).collect();
        assert!(names.iter().any(|name| name == "2"), "{names:?}");
        Agent::set_health(2, 0);
        await_lvs("no weight", |seen| (weight(seen, 2) == Some(0)).then_some(()));
        assert_eq!(counts_from_client(10)[1], 0);
        let again: Vec<_> = held.iter_mut().map(|held| say(held).expect("it goes on")).collect();
        assert_eq!(again, names);
        Agent::set_health(2, 100);
        await_lvs("weight again", |seen| (weight(seen, 2) > Some(0)).then_some(()));

        // STOP: it is quiesced, and goes when its connections have ended.
        two.stop();
        await_lvs("it to leave", |seen| weight(seen, 2).is_none_or(|weight| weight == 0).then_some(()));
        assert_eq!(counts_from_client(10)[1], 0);
        let again: Vec<_> = held.iter_mut().map(|held| say(held).expect("it goes on")).collect();
        assert_eq!(again, names);
        assert_eq!(weight(&destinations(), 2), Some(0), "it has connections yet");
        drop(held);
        await_lvs("it to be gone", |seen| weight(seen, 2).is_none().then_some(()));

        // START: it is there again.
        let _two = Agent::start(2);
        await_lvs("it to be back", |seen| (weight(seen, 2) > Some(0)).then_some(()));
        drop((one, three));
    });
}

#[test]
fn lvs_goes_on_without_the_director_and_the_next_one_finds_it() {
    in_guest(|| {
        build_nated();
        let mut director = director();
        let _agents = [1, 2, 3].map(Agent::start);
        // One that is not healthy from the start would not come at all.
        await_lvs("three nodes", |seen| (serving(seen) == [1, 2, 3]).then_some(()));
        Agent::set_health(3, 0);
        await_lvs("two nodes that serve", |seen| {
            (seen.len() == 3 && serving(seen) == [1, 2] && weight(seen, 1) == weight(seen, 2)).then_some(())
        });
        let before = destinations();
        director.signal(director.pid(), Signal::KILL);
        director.wait();
        // Nobody is there to change it, and nothing changes.
        assert_eq!(counts_from_client(20), [10, 10, 0]);
        assert_eq!(serving(&destinations()), serving(&before));
        // What an operator does meanwhile is seen.
        sh("ipvsadm -e -t 10.0.0.1:80 -r 10.3.2.2:8000 -m -w 1");
        sh("ipvsadm -A -t 10.9.9.9:99 -s rr");

        let _next = crate::director();
        let was = weight(&before, 1);
        await_lvs("the next director to correct it", |seen| {
            // Nobody is taken out before agents have come back.
            assert_eq!(seen.len(), 3, "{seen:?}");
            assert!(weight(seen, 1) > Some(0) && weight(seen, 2) > Some(0), "{seen:?}");
            (weight(seen, 2) == was && weight(seen, 1) == was && weight(seen, 3) == Some(0)).then_some(())
        });
        assert!(ipvsadm().contains(&"TCP 10.9.9.9:99 rr".to_owned()), "another's service stays");
        assert_eq!(counts_from_client(20), [10, 10, 0]);
    });
}

#[test]
fn a_way_that_leads_nowhere_harms_nobody() {
    in_guest(|| {
        build_nated();
        let _director = director();
        // Direct routing and tunnels do not rewrite ports, so these cannot be meant.
        let _agents =
            [(1, "nat"), (2, "direct"), (3, "tunnel")].map(|(node, way)| Agent::start_by(node, way));
        await_lvs("three nodes", |seen| (serving(seen) == [1, 2, 3]).then_some(()));
        assert!(destinations().iter().all(|destination| destination.way == "Masq"));
        assert_eq!(counts_from_client(30), [10, 10, 10]);
    });
}

#[test]
fn without_modules_the_director_says_what_to_do_and_tries_again() {
    in_guest(|| {
        let mut director = director();
        wait_until("it to say what to do", || director.stderr().contains("modprobe ip_vs"));
        let error = director.json("/pools/app")["output"]["error"].to_string();
        assert!(error.contains("modprobe ip_vs"), "{error}");
        for module in IPVS {
            sh(&format!("insmod /mod/{module}.ko"));
        }
        await_lvs("the service", |_| (ipvsadm() == ["TCP 10.0.0.1:80 wrr"]).then_some(()));
        assert!(director.runs());
        let output = director.json("/pools/app")["output"].clone();
        assert!(output["error"].is_null(), "{output}");
    });
}

#[test]
fn a_node_that_is_cut_off_gets_nothing() {
    in_guest(|| {
        build_nated();
        let _director =
            director_with("check = { tcp = true, interval = \"500ms\", timeout = \"400ms\", fall = 2 }");
        let _agents = [1, 2, 3].map(Agent::start);
        await_lvs("three nodes", |seen| (serving(seen) == [1, 2, 3]).then_some(()));
        sh("/bin/ip link set ton3 down");
        // Its agent cannot say anything; only who asks the node can know.
        await_lvs("two that serve", |seen| (serving(seen) == [1, 2]).then_some(()));
        assert_eq!(counts_from_client(10)[2], 0);
        sh("/bin/ip link set ton3 up");
        await_lvs("three that serve", |seen| (serving(seen) == [1, 2, 3]).then_some(()));
        assert!(counts_from_client(30)[2] > 0);
    });
}

#[test]
fn a_hot_restart_takes_no_node_away() {
    in_guest(|| {
        build_nated();
        let mut director = director();
        let _agents = [1, 2, 3].map(Agent::start);
        let weights = |seen: &[Destination]| [1, 2, 3].map(|node| weight(seen, node));
        let before = await_lvs("three nodes with one weight", |seen| {
            let [one, two, three] = weights(seen);
            (one > Some(0) && one == two && two == three).then_some(one)
        });
        director.signal(director.pid(), Signal::USR2);
        await_lvs("the old process to end", |seen| {
            assert_eq!(serving(seen), [1, 2, 3]);
            (!director.runs()).then_some(())
        });
        // The agents come to the new one, and it steers as the old one did.
        Agent::set_health(3, 0);
        await_lvs("the new process to hear of it", |seen| {
            assert_eq!(seen.len(), 3, "{seen:?}");
            assert!(weight(seen, 1) > Some(0) && weight(seen, 2) > Some(0), "{seen:?}");
            (weights(seen) == [before, before, Some(0)]).then_some(())
        });
        assert_eq!(counts_from_client(20), [10, 10, 0]);
    });
}
