//! What a director records, `evener sim replay` chooses likewise, pick by pick; a recording that is not
//! what was written is refused.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use evener_model::NodeId;
use evener_record::{Encoder, End, EndReason, MAGIC, Piece, Reader, What, end_frame, head_frame};
use evener_scheduler::Policy;
use evener_tests::director::{Director, evener, texts, web_with};
use evener_tests::load::Load;
use evener_tests::nginx::Nginx;
use evener_tests::{free_address, nodes, wait_until};
use rustix::process::Signal;
use serde_json::Value;

/// A pool for each policy, each with a listener of its own, and one over TCP.
struct Pools {
    listeners: Vec<(String, SocketAddr)>,
    nodes: Vec<(&'static str, SocketAddr)>,
}

impl Pools {
    fn new(nodes: Vec<(&'static str, SocketAddr)>) -> Pools {
        let names = Policy::ALL.iter().map(|policy| policy.name().to_owned());
        let listeners = names.chain(["tcp".into()]).map(|name| (name, free_address())).collect();
        Pools { listeners, nodes }
    }

    /// With further lines for each pool.
    fn config(&self, lines: &str) -> String {
        let nodes: Vec<_> = self
            .nodes
            .iter()
            .map(|(name, address)| format!("{{ name = \"{name}\", address = \"{address}\" }}"))
            .collect();
        let pool = |(name, address): &(String, SocketAddr)| {
            let (protocol, policy, hash) = match name.as_str() {
                "tcp" => ("tcp", "least-jobs", "source"),
                name => ("http", name, "uri"),
            };
            format!(
                "[listener.{name}]\nbind = \"{address}\"\nprotocol = \"{protocol}\"\npool = \"{name}\"\n\
                 [pool.{name}]\nscheduler = \"{policy}\"\nhash = \"{hash}\"\nphase = \"100ms\"\n\
                 eject = {{ failures = 3, base = \"300ms\" }}\nslow_start = \"500ms\"\n\
                 timeouts = {{ connect = \"500ms\", response = \"1s\" }}\n\
                 check = {{ tcp = true, interval = \"300ms\", rise = 1, fall = 1 }}\n\
                 {lines}\nnode = [ {} ]\n",
                nodes.join(", ")
            )
        };
        self.listeners.iter().map(pool).collect()
    }
}

/// Ends the director and replays what it recorded; the JSON of that, and the exit status.
fn end_and_replay(mut director: Director) -> (Director, Value) {
    director.signal(director.pid(), Signal::TERM);
    assert_eq!(director.wait().code(), Some(0), "{}", director.stderr());
    let (status, replayed) = replay(&director.folder.path().join("run.rec"));
    assert_eq!(status, Some(0), "{replayed}\n{}", director.stderr());
    (director, replayed)
}

fn replay(file: &Path) -> (Option<i32>, Value) {
    let output = evener(&["sim", "replay", "--json", &file.display().to_string()]);
    let json = serde_json::from_slice(&output.stdout);
    (output.status.code(), json.unwrap_or_else(|error| panic!("{error}: {output:?}")))
}

#[test]
fn every_policy_chooses_alike_in_the_director_and_in_its_replay() {
    let steady = Nginx::start(&["rat", "mole"]);
    let mut doomed = Nginx::start(&["vole"]);
    let failing = nodes::failing("503 Service Unavailable");
    let mut pools = Pools::new(vec![
        ("rat", steady.addresses[0]),
        ("vole", doomed.address()),
        ("failing", failing.address),
    ]);
    let director = Director::start_recording("workers = 3", &pools.config("max_jobs = 2"), &[]);
    let loads: Vec<Load> = pools
        .listeners
        .iter()
        .map(|(_, address)| Load::start(*address, 4, Duration::from_millis(2)))
        .collect();
    let go_on = |count| loads.iter().for_each(|load| load.go_on(count));
    let everywhere = |arguments: &[&str]| {
        for (pool, _) in &pools.listeners {
            let output = director.ctl(&[&arguments[..1], &[pool], &arguments[1..]].concat());
            assert_eq!(output.status.code(), Some(0), "{output:?}");
        }
    };

    go_on(40);
    everywhere(&["drain", "rat"]);
    go_on(20);
    everywhere(&["ready", "rat"]);
    everywhere(&["weight", "rat", "5"]);
    go_on(20);
    doomed.kill();
    go_on(40);
    doomed.revive();
    go_on(20);
    // A node comes, one goes, and the settings are others.
    pools.nodes.pop();
    pools.nodes.push(("mole", steady.addresses[1]));
    director.write_config(&pools.config("max_jobs = 3\nchoices = 3\nload_bound = 1.1"));
    assert_eq!(director.reload().status, 200);
    go_on(40);

    let mut answered = 0;
    for load in loads {
        answered += load.stop().answered;
    }
    wait_until("the jobs of all nodes to be 0", || director.jobs() == 0);
    let (director, replayed) = end_and_replay(director);
    let picks = replayed["picks"].as_u64().expect("picks");
    println!("{} of {picks} picks equal, {answered} requests answered", replayed["equal"]);
    assert_eq!(replayed["equal"].as_u64(), Some(picks), "{replayed}");
    assert_eq!(replayed["end"], "complete");
    assert!(picks >= answered, "{picks} picks for {answered} answers");
    for policy in Policy::ALL {
        let found = replayed["pools"].as_array().expect("pools").iter();
        let of_policy = |pool: &&Value| pool["pool"] == policy.name() && pool["policy"] == policy.name();
        let pool = found.clone().find(of_policy).unwrap_or_else(|| panic!("{policy} was not replayed"));
        assert!(pool["picks"].as_u64() >= Some(100), "{pool}");
    }
    let output = evener(&["sim", "replay", &director.folder.path().join("run.rec").display().to_string()]);
    assert!(texts(&output).0.ends_with(&format!("{picks} of {picks} picks equal\n")), "{output:?}");
}

#[test]
fn workers_that_race_for_the_last_place_replay_too() {
    let nginx = Nginx::start(&["rat", "vole"]);
    let address = free_address();
    let pool = "scheduler = \"least-jobs\"\nmax_jobs = 1";
    let config = web_with(address, "", &nginx.addresses, pool);
    let director = Director::start_recording("workers = 4", &config, &[]);
    let load = Load::start(address, 16, Duration::ZERO);
    load.go_on(2000);
    let report = load.stop();
    assert_eq!(report.failures(), 0, "{report}");
    let (_, replayed) = end_and_replay(director);
    assert!(replayed["picks"].as_u64() >= Some(2000), "{replayed}");
    assert_eq!(replayed["equal"], replayed["picks"], "{replayed}");
}

#[test]
fn a_recording_ends_at_its_limit_and_traffic_goes_on() {
    let nginx = Nginx::start(&["rat", "vole"]);
    let address = free_address();
    let config = web_with(address, "", &nginx.addresses, "");
    let director = Director::start_recording("workers = 2", &config, &["--record-max", "40KiB"]);
    let load = Load::start(address, 8, Duration::ZERO);
    let file = director.folder.path().join("run.rec");
    wait_until("the recording to end", || director.stderr().contains("the recording ends here"));
    load.go_on(200);
    let report = load.stop();
    assert_eq!(report.failures(), 0, "{report}");
    assert!(std::fs::metadata(&file).expect("a recording").len() <= 40 * 1024);
    let (_, replayed) = end_and_replay(director);
    assert_eq!(replayed["end"], "size limit");
    assert!(replayed["picks"].as_u64() > Some(100), "{replayed}");
    assert_eq!(replayed["equal"], replayed["picks"]);
}

#[test]
fn a_hot_restart_leaves_two_recordings() {
    let nginx = Nginx::start(&["rat"]);
    let address = free_address();
    let mut director =
        Director::start_recording("workers = 2", &web_with(address, "", &nginx.addresses, ""), &[]);
    let load = Load::start(address, 4, Duration::from_millis(2));
    load.go_on(100);
    director.signal(director.pid(), Signal::USR2);
    assert_eq!(director.wait().code(), Some(0));
    load.go_on(100);
    let report = load.stop();
    assert_eq!(report.failures(), 0, "{report}");
    let [successor] = director.pids()[..] else { panic!("one process: {:?}", director.pids()) };
    director.signal(successor, Signal::TERM);
    wait_until("the successor to end", || director.pids().is_empty());
    for name in ["run.rec.old", "run.rec"] {
        let (status, replayed) = replay(&director.folder.path().join(name));
        assert_eq!(status, Some(0), "{name}: {replayed}");
        assert!(replayed["picks"].as_u64() >= Some(50), "{name}: {replayed}");
        assert_eq!(replayed["equal"], replayed["picks"], "{name}");
    }
}

#[test]
fn a_recording_that_was_changed_is_refused() {
    let nginx = Nginx::start(&["rat", "vole"]);
    let address = free_address();
    let config = web_with(address, "", &nginx.addresses, "scheduler = \"round-robin\"");
    let director = Director::start_recording("workers = 1", &config, &[]);
    let load = Load::start(address, 2, Duration::ZERO);
    load.go_on(300);
    load.stop();
    let (director, _) = end_and_replay(director);
    let folder = director.folder.path();
    let bytes = std::fs::read(folder.join("run.rec")).expect("a recording");
    let refused = |bytes: &[u8], status: i32, expected: &str| {
        let file = folder.join("changed.rec").display().to_string();
        std::fs::write(&file, bytes).expect("a file");
        let output = evener(&["sim", "replay", &file]);
        let (out, err) = texts(&output);
        assert_eq!(output.status.code(), Some(status), "{out}{err}");
        assert!(format!("{out}{err}").contains(expected), "expected \"{expected}\" in: {out}{err}");
    };

    let place = bytes.len() / 2;
    let mut flipped = bytes.clone();
    flipped[place] ^= 1;
    refused(&flipped, 1, "its checksum does not match");
    refused(&bytes[..place], 1, "the recording is cut off after byte");
    refused(&[&bytes[..], b"x"].concat(), 1, "goes on after its end mark");
    let mut later = bytes.clone();
    later[MAGIC.len()] = 9;
    refused(&later, 2, "the recording has version 9 of the format; this program reads version 1");
    refused(b"", 2, "this is not a recording");
    refused(b"[pool.app]\n", 2, "this is not a recording");
    refused(&forged(&bytes, 40), 1, "pick 40 of worker 0");
}

/// The same recording with another choice for one pick, and right checksums.
fn forged(bytes: &[u8], pick: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = Encoder::new(0);
    let mut blocks = 0;
    let mut picks = 0;
    let mut reader = Reader::new();
    reader.feed(bytes);
    while let Some(piece) = reader.next().expect("a recording") {
        match piece {
            Piece::Head(head) => out.extend(head_frame(&head)),
            Piece::End(_) => {}
            Piece::Block(block) => {
                let mut entries = block.entries();
                while let Some(mut entry) = entries.next().expect("an entry") {
                    if let What::Pick { choice: Ok(node), .. } = &mut entry.what {
                        picks += 1;
                        if picks == pick {
                            *node = NodeId(1 - node.0);
                        }
                    }
                    encoder.put(&entry);
                }
                out.extend(encoder.take(Vec::new()).expect("entries"));
                blocks += 1;
            }
        }
    }
    out.extend(end_frame(&End { reason: EndReason::Complete, blocks }));
    out
}
