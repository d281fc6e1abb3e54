//! Nodes that are asked how they are: agents that speak HAProxy's agent-check, and pages of JSON.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evener_tests::director::{Director, web_with};
use evener_tests::http::Client;
use evener_tests::nodes::{self, Gate, Node};
use evener_tests::{free_address, wait_until};

const RAT: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 1);
const MOLE: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 2);

/// What an agent or a page says now.
type Word = Arc<Mutex<String>>;

fn word(text: &str) -> Word {
    Arc::new(Mutex::new(text.to_owned()))
}

fn say(word: &Word, text: &str) {
    *word.lock().expect("no node panics") = text.to_owned();
}

/// An agent for HAProxy at [`RAT`]; with nothing to say it keeps whoever asks waiting.
fn agent(word: &Word, asked: &Word) -> Node {
    let (word, asked) = (Arc::clone(word), Arc::clone(asked));
    Node::tcp_on(RAT, move |mut stream| {
        let mut line = String::new();
        let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
        let _ = BufReader::new(&stream).read_line(&mut line);
        *asked.lock().expect("no node panics") = line;
        let answer = word.lock().expect("no node panics").clone();
        if answer.is_empty() {
            std::thread::sleep(Duration::from_secs(5));
        }
        let _ = stream.write_all(answer.as_bytes());
    })
}

fn answers(web: SocketAddr) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..20 {
        let mut client = Client::connect(web).expect("the listener accepts");
        *counts.entry(client.get("/x").expect("an answer").text().to_owned()).or_default() += 1;
    }
    counts
}

fn check(port: u16) -> String {
    format!(
        "scheduler = \"wrr\"\nreport_expiry = \"1s\"\nfeedback = {{ agent_check = {{ port = {port}, send = \"rat\\n\", \
         interval = \"50ms\", timeout = \"200ms\" }}, from = [\"agent_check\"] }}"
    )
}

#[test]
fn agents_for_haproxy_are_obeyed_as_haproxy_would() {
    let (words, asked) = (word("100%\n"), word(""));
    let agent = agent(&words, &asked);
    let (rat, mole) = (nodes::named_on(RAT, "rat"), nodes::named_on(MOLE, "mole"));
    let web = free_address();
    // Both are asked at the same port; at the mole's there is no agent, and it is placed on as configured.
    let config = web_with(web, "", &[rat.address, mole.address], &check(agent.address.port()));
    let config = config.replace("name = \"n1\"", "weight = 40, name = \"n1\"");
    let config = config.replace("name = \"n2\"", "weight = 40, name = \"n2\"");
    let director = Director::start_with("workers = 1", &config);
    let weight = |node: &str| director.node("app", node)["weight"].as_u64().expect("a weight");
    let health = || director.said("app", "n1", "agent_check", "health").map(|(health, _)| health);
    wait_until("the first answer", || health() == Some(100.0));
    assert_eq!(asked.lock().expect("no node panics").as_str(), "rat\n");
    assert_eq!(answers(web), BTreeMap::from([("mole".into(), 10), ("rat".into(), 10)]));
    say(&words, "25%\n");
    wait_until("a quarter of the weight", || weight("n1") == 10);
    assert_eq!(answers(web), BTreeMap::from([("mole".into(), 16), ("rat".into(), 4)]));
    for away in ["drain\n", "maint\n", "up ready\ndown\n", "down # no disk\n", "0%\n"] {
        say(&words, "up ready 100%\n");
        wait_until("both", || answers(web).len() == 2);
        say(&words, away);
        let is_away = away != "up ready\ndown\n";
        if is_away {
            wait_until(away, || answers(web) == BTreeMap::from([("mole".into(), 20)]));
        }
    }
    // A weight alone does not bring up what is down.
    say(&words, "up ready 100%\n");
    wait_until("both", || answers(web).len() == 2);
    say(&words, "stopped\n");
    wait_until("it to be away", || answers(web).len() == 1);
    say(&words, "50%\n");
    wait_until("the weight", || weight("n1") == 20);
    assert_eq!(answers(web), BTreeMap::from([("mole".into(), 20)]));
    // Silence: not believed for ever.
    say(&words, "");
    wait_until("both, as configured", || weight("n1") == 40 && answers(web).len() == 2);
    assert!(director.refused("agent_check", "silence") > 0);
    assert_eq!(weight("n2"), 40);
    // Nonsense is not obeyed.
    say(&words, "down and out\n");
    wait_until("it to be counted", || director.refused("agent_check", "form") > 0);
    assert_eq!(answers(web).len(), 2);
    // Nobody is asked any more, and nothing is left of what was said.
    say(&words, "25% up\n");
    wait_until("a quarter of the weight", || weight("n1") == 10);
    let without = config.replace("from = [\"agent_check\"]", "from = [\"necp\"]");
    director.write_config(&without);
    assert_eq!(director.reload().status, 200);
    assert_eq!(weight("n1"), 40);
}

#[test]
fn an_agent_for_haproxy_may_limit_jobs_but_not_beyond_what_is_configured() {
    let (words, asked) = (word("maxconn:1\n"), word(""));
    let agent = agent(&words, &asked);
    let (rat, mole) = (Gate::new_on(RAT, "rat"), Gate::new_on(MOLE, "mole"));
    let web = free_address();
    let config = web_with(web, "", &[rat.node.address, mole.node.address], &check(agent.address.port()));
    let config = config.replace("name = \"n1\"", "max_jobs = 2, name = \"n1\"");
    let director = Director::start_with("workers = 1", &config);
    let get = || std::thread::spawn(move || Client::connect(web).expect("a client").get("/x"));
    wait_until("an answer", || director.said("app", "n1", "agent_check", "health").is_some());
    let mut jobs: Vec<_> = (0..6).map(|_| get()).collect();
    wait_until("all to be placed", || rat.held() + mole.held() == 6);
    assert_eq!((rat.held(), mole.held()), (1, 5));
    say(&words, "maxconn:100\n");
    wait_until("one more at the rat", || {
        jobs.push(get());
        std::thread::sleep(Duration::from_millis(50));
        rat.held() == 2
    });
    for _ in 0..4 {
        jobs.push(get());
    }
    wait_until("all to be placed", || rat.held() + mole.held() == jobs.len());
    assert_eq!(rat.held(), 2);
    rat.open();
    mole.open();
    for job in jobs {
        assert_eq!(job.join().expect("no panic").expect("an answer").status, 200);
    }
}

#[test]
fn a_page_of_each_node_is_read_and_what_it_says_ages() {
    let words = word(r#"{"node": "host-17", "health": 80, "jobs": 3, "age_ms": 100}"#);
    let page = Arc::clone(&words);
    let rat = Node::http_on(RAT, move |request, stream| match request.path() {
        "/load" => {
            let said = page.lock().expect("no node panics").clone();
            let status = if said.is_empty() { "503 Gone" } else { "200 OK" };
            nodes::respond(stream, status, "", said.as_bytes())
        }
        _ => nodes::respond(stream, "200 OK", "", b"rat"),
    });
    let mole = nodes::named_on(MOLE, "mole");
    let web = free_address();
    let pool = "scheduler = \"round-robin\"\nreport_expiry = \"1s\"\n\
                feedback = { pull = { http = \"GET /load?full\", interval = \"50ms\" } }";
    let director = Director::start(&web_with(web, "", &[rat.address, mole.address], pool));
    let said = |name: &str| director.said("app", "n1", "pull", name);
    wait_until("the page", || said("jobs").is_some_and(|(jobs, age_ms)| jobs == 3.0 && age_ms >= 100.0));
    assert_eq!(
        rat.seen().iter().find(|request| request.path() == "/load").map(|r| r.target().to_owned()).as_deref(),
        Some("/load?full")
    );
    assert_eq!(answers(web).len(), 2);
    let port = rat.address.port();
    say(&words, &format!(r#"[{{"health": 90}}, {{"service": "tcp/{port}", "health": 0}}]"#));
    wait_until("it to be away", || answers(web) == BTreeMap::from([("mole".into(), 20)]));
    for (nonsense, reason) in
        [("<html>", "form"), ("", "form"), (r#"[{"node":"x","load":1},{"node":"y","load":1}]"#, "unknown")]
    {
        let before = director.refused("pull", reason);
        say(&words, nonsense);
        wait_until("it to be counted", || director.refused("pull", reason) > before + 1);
    }
    wait_until("both: what was said is too old", || answers(web).len() == 2);
    // The mole's page is no report, and it gets jobs all the same.
    assert!(director.said("app", "n2", "pull", "health").is_none());
}
