use std::net::IpAddr;
use std::time::{Duration, Instant};

use evener_feedback::necp::{Forwarding, Port, Protocol, Service};
use evener_model::{Health, Report};

use super::*;
use crate::config::Config;
use crate::view::NodeView;

/// A director of the pool `app` with nodes rat and vole.
fn director(pool: &str) -> Director {
    let text = format!(
        "[process]\nworkers = 2\n[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n[pool.app]\n{pool}\n\
         node = [ {{ name = \"rat\", address = \"127.0.0.1:81\", weight = 4 }}, \
         {{ name = \"vole\", address = \"127.0.0.2:81\", weight = 4 }} ]\n"
    );
    Director::start(Config::from_text("evener.toml", &text).expect("a configuration")).expect("a director")
}

fn only(nodes: Vec<NodeRef>) -> NodeRef {
    assert_eq!(nodes.len(), 1, "{nodes:?}");
    nodes[0]
}

fn named(director: &Director, name: &str) -> NodeRef {
    only(director.nodes_named(Dialect::Push, None, name))
}

/// What is shown of a node when workers have been told all.
fn shown(director: &Director, name: &str) -> NodeView {
    director.tell(&mut director.state());
    let pools = director.pools().pools;
    let node = pools.into_iter().flat_map(|pool| pool.nodes).find(|node| node.name == name);
    node.expect("the node")
}

/// How the workers' schedulers see a node.
fn seen(director: &Director, name: &str) -> Vec<String> {
    shown(director, name).workers.into_iter().map(|worker| worker.state).collect()
}

fn report(director: &Director, name: &str, dialect: Dialect, report: Report) {
    let report = Report { measured_at: director.now(), ..report };
    director.reported(named(director, name), dialect, report);
}

fn of_health(health: u8) -> Report {
    Report { health: Some(Health::saturating(health)), ..Report::default() }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn service(number: u16) -> Service {
    Service { forwarding: Forwarding::Layer3, port: Port { protocol: Protocol::Tcp, number } }
}

#[test]
fn nodes_are_found_by_address_and_name_in_pools_that_hear_it() {
    let director = director("feedback = { from = [\"necp\", \"push\"] }");
    let at = |dialect, text: &str, port| director.nodes_at(dialect, address(text), port);
    assert_eq!(only(at(Dialect::Necp, "127.0.0.2", Some(81))), named(&director, "vole"));
    assert_eq!(only(at(Dialect::Necp, "::ffff:127.0.0.2", None)), named(&director, "vole"));
    assert!(at(Dialect::Necp, "127.0.0.2", Some(82)).is_empty());
    assert!(at(Dialect::Orca, "127.0.0.2", Some(81)).is_empty(), "the pool does not hear it");
    assert!(director.nodes_named(Dialect::Push, Some("other"), "rat").is_empty());
    assert_eq!(only(director.nodes_named(Dialect::Push, Some("app"), "rat")), named(&director, "rat"));
}

#[test]
fn reports_are_shown_with_their_source_and_age_until_they_expire() {
    let director = director("report_expiry = \"300ms\"");
    report(&director, "rat", Dialect::Necp, Report { jobs: Some(3), ..of_health(70) });
    report(&director, "rat", Dialect::Push, Report { load: Some(0.5), ..Report::default() });
    let signals = shown(&director, "rat").signals;
    let of = |name: &str| signals.iter().find(|signal| signal.name == name);
    for (name, source, value) in [
        ("reported_health", "necp", serde_json::json!(70)),
        ("reported_jobs", "necp", serde_json::json!(3)),
        ("reported_load", "push", serde_json::json!(0.5)),
    ] {
        let signal = of(name).unwrap_or_else(|| panic!("{name} is shown: {signals:?}"));
        assert_eq!((signal.source, &signal.value), (Some(source), &value));
        assert!(signal.age_ms.is_some_and(|age| (0.0..20_000.0).contains(&age)), "{signal:?}");
    }
    wait_until("reports to expire", || {
        director.tick();
        shown(&director, "rat").signals.iter().all(|signal| signal.source.is_none())
    });
    let late = Report { measured_at: evener_model::Time::ZERO, ..of_health(0) };
    director.reported(named(&director, "rat"), Dialect::Necp, late);
    assert_eq!(seen(&director, "rat"), ["up", "up"], "what is too old is not believed");
    let refused: Vec<_> = director.reports.refused(Dialect::Necp).filter(|(_, count)| *count > 0).collect();
    assert_eq!((director.reports.taken(Dialect::Necp), refused), (1, vec![(Refusal::Stale, 1)]));
}

#[test]
fn a_health_of_0_keeps_new_jobs_away_at_once_and_no_longer_than_it_is_believed() {
    for weights in ["off", "smoothing", "integral"] {
        let pool = format!("report_expiry = \"400ms\"\nfeedback = {{ weights = \"{weights}\" }}");
        let director = director(&pool);
        report(&director, "rat", Dialect::Necp, of_health(0));
        assert_eq!(shown(&director, "rat").state, "refusing", "{weights}");
        assert!(seen(&director, "rat").iter().all(|state| state != "up"), "{weights}");
        assert_eq!(seen(&director, "vole"), ["up", "up"]);
        report(&director, "rat", Dialect::Necp, of_health(60));
        assert_eq!(seen(&director, "rat"), ["up", "up"], "{weights}: it takes jobs again");
        report(&director, "rat", Dialect::Necp, of_health(0));
        wait_until("the refusal to expire", || {
            director.tick();
            seen(&director, "rat") == ["up", "up"]
        });
        wait_until("the configured share", || {
            director.tick();
            shown(&director, "rat").weight == shown(&director, "vole").weight
        });
    }
}

#[test]
fn weights_follow_loads_and_an_operator_only_where_the_pool_wants_it() {
    let run = |weights: &str| {
        let director = director(&format!(
            "feedback = {{ weights = \"{weights}\", step = 1.0, gain = 1.0, alpha = 1.0 }}"
        ));
        for _ in 0..10 {
            for (name, load) in [("rat", 0.9), ("vole", 0.2)] {
                report(&director, name, Dialect::Push, Report { load: Some(load), ..Report::default() });
            }
            director.tick();
            std::thread::sleep(Duration::from_millis(60));
        }
        director
    };
    let weights = |director: &Director| (shown(director, "rat").weight, shown(director, "vole").weight);
    assert_eq!(weights(&run("off")), (4, 4));
    for law in ["smoothing", "integral"] {
        let director = run(law);
        let (rat, vole) = weights(&director);
        assert!(rat < vole, "{law}: {rat} {vole}");
        let known = &shown(&director, "rat").workers;
        assert!(known.iter().all(|worker| worker.effective_weight == rat as f32), "{law}: {known:?} {rat}");
        assert_eq!(shown(&director, "rat").weight_configured, 4);
        // The weight of an operator is what reports start from; a drain holds whatever they say.
        director.set_weight("app", "vole", evener_model::Weight::DRAIN).expect("a node");
        director.tick();
        assert_eq!(weights(&director).1, 0, "{law}");
    }
}

#[test]
fn a_node_whose_agent_has_not_started_the_service_gets_no_new_jobs() {
    let director = director("");
    let rat = named(&director, "rat");
    director.note_service(rat, Some(false), None);
    assert_eq!(
        (shown(&director, "rat").state, shown(&director, "rat").agent),
        ("stopped".into(), Some("stopped"))
    );
    assert_eq!(seen(&director, "rat"), ["draining", "draining"]);
    director.note_service(rat, Some(true), Some(Forwarding::Gre));
    assert_eq!(
        (seen(&director, "rat"), shown(&director, "rat").agent),
        (vec!["up".into(); 2], Some("started"))
    );
    director.note_service(rat, Some(false), None);
    director.set_draining("app", "rat", true).expect("a node");
    director.note_service(rat, None, None);
    assert_eq!(seen(&director, "rat"), ["draining", "draining"], "the operator's drain holds");
    director.set_draining("app", "rat", false).expect("a node");
    assert_eq!((seen(&director, "rat"), shown(&director, "rat").agent), (vec!["up".into(); 2], None));
}

#[test]
fn a_node_that_joins_has_its_share_of_weights_that_follow_reports_from_the_beginning() {
    let pool =
        "join = { from = [\"127.0.1.0/24\"], port = 81, weight = 4 }\nfeedback = { weights = \"integral\" }";
    let director = director(pool);
    let others = shown(&director, "rat").weight;
    assert!(others > 4, "a finer scale: {others}");
    director.join(address("127.0.1.1"), service(81));
    let joined = shown(&director, "127.0.1.1:81");
    assert_eq!((joined.weight, joined.weight_configured), (others, 4));
    assert!(joined.workers.iter().all(|worker| worker.effective_weight == others as f32), "{joined:?}");
}

#[test]
fn agents_join_a_pool_and_leave_it() {
    let director = director("join = { from = [\"127.0.1.0/24\"], port = 81, weight = 9 }");
    assert!(director.join(address("127.0.2.1"), service(81)).is_empty());
    let joined = only(director.join(address("127.0.1.1"), service(81)));
    director.reported(joined, Dialect::Necp, Report { measured_at: director.now(), ..of_health(50) });
    let node = shown(&director, "127.0.1.1:81");
    assert_eq!((node.weight_configured, node.workers.len()), (9, 2));
    assert_eq!(only(director.join(address("127.0.1.1"), service(81))), joined, "it is the same node");
    let config = director.config();
    assert_eq!(config.pools[0].nodes.len(), 3);
    // A reload keeps who joined.
    let base = director.state().base.clone();
    director.reload(base).expect("a configuration that was good before");
    assert_eq!(director.config().pools[0].nodes.len(), 3);
    director.leave(address("127.0.1.1"), service(81).port);
    assert_eq!(director.config().pools[0].nodes.len(), 2);
    director.reported(joined, Dialect::Necp, of_health(0));
}
