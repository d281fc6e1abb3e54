//! What a report costs, in each dialect, from bytes to the weights of a pool.

use std::time::Duration;

use divan::{Bencher, black_box};
use evener_feedback::controller::{Controller, Settings};
use evener_feedback::datagram::{self, Receiver, Sender};
use evener_feedback::json::{self, Said};
use evener_feedback::necp::session::{
    Agent, AgentSettings, Director, DirectorEvent, DirectorSettings, Exceptions,
};
use evener_feedback::necp::{Forwarding, Key, Port, Protocol, Service};
use evener_feedback::{agent_check, orca};
use evener_model::{NodeId, Report, Time, Weight};

fn main() {
    divan::main();
}

/// Question and answer, both sides, authenticated: five values of one service.
#[divan::bench]
fn necp_question_and_answer(bencher: Bencher<'_, '_>) {
    let mut now = Time::from_nanos(1);
    let key = Key::new(b"twenty bytes of a key");
    let mut agent = Agent::new(AgentSettings { key: Some(key.clone()), ..AgentSettings::default() }, now, 1);
    let settings = DirectorSettings { keys: vec![key], ..DirectorSettings::default() };
    let mut director = Director::new(settings, [10, 9, 0, 1].into(), now, 1, 7);
    let mut exceptions = Exceptions::new(false);
    let port = Port { protocol: Protocol::Tcp, number: 80 };
    agent.timeout(now);
    agent.connected(now, 9);
    agent.start(now, Service { forwarding: Forwarding::Layer3, port });
    let mut buffer = Vec::new();
    let mut round = |director: &mut Director, now: Time| {
        let mut reports = 0;
        for _ in 0..3 {
            std::mem::swap(&mut buffer, agent.output());
            director.received(now, &buffer, &mut exceptions);
            buffer.clear();
            std::mem::swap(&mut buffer, director.output());
            agent.received(now, &buffer, &mut |_| Some(5));
            buffer.clear();
        }
        while let Some(event) = director.poll() {
            reports += u32::from(matches!(event, DirectorEvent::Reported { .. }));
        }
        reports
    };
    round(&mut director, now);
    bencher.bench_local(|| {
        now += Duration::from_micros(1);
        director.ask(now);
        assert_eq!(round(&mut director, now), 1);
    });
}

#[divan::bench(args = [4, 100, 1000])]
fn controller(bencher: Bencher<'_, '_>, nodes: u32) {
    let pool: Vec<_> = (0..nodes).map(|id| (NodeId(id), Weight::DEFAULT)).collect();
    let mut controller = Controller::new(Settings::default(), &pool);
    let mut weights = Vec::new();
    let mut now = Time::from_nanos(1_000_000_000);
    let mut node = 0;
    bencher.bench_local(|| {
        now += Duration::from_micros(500);
        node = (node + 1) % nodes;
        let load = Some((node % 10) as f32 / 10.0);
        let report = Report { measured_at: now, load, ..Report::default() };
        controller.reported(now, NodeId(node), &report).expect("good");
        controller.weights(now, &mut weights);
        black_box(&weights);
    });
}

#[divan::bench]
fn signed_datagram(bencher: Bencher<'_, '_>) {
    let key = datagram::Key::new(b"thirty-two bytes of a secret key");
    let mut sender = Sender::new(key.clone(), "rat").expect("a name");
    let mut receiver = Receiver::new(vec![key], Duration::from_secs(30), 100);
    let said = [Said { health: Some(75), load: Some(0.25), jobs: Some(17), ..Said::default() }];
    let mut out = Vec::new();
    let now = Duration::from_secs(1_790_000_000);
    bencher.bench_local(|| {
        out.clear();
        sender.write(now, &said, &mut out).expect("short");
        receiver.received(now, &out).expect("new")
    });
}

#[divan::bench]
fn json_body() -> Vec<Said> {
    json::parse(black_box(br#"{"node": "rat", "age_ms": 40, "health": 75, "load": 0.4, "jobs": 3}"#))
        .expect("good")
}

#[divan::bench]
fn agent_check_line() -> Option<agent_check::Answer<'static>> {
    agent_check::Answer::parse(black_box(b"up 75%\n"), false).expect("good")
}

#[divan::bench]
fn orca_text() -> orca::Metrics {
    let value = b"TEXT cpu_utilization=0.3, application_utilization=0.5, rps_fractional=10.5, eps=1, named_metrics.q=4";
    orca::parse(black_box(value), &mut |_, _, _| ()).expect("good")
}
