//! What the mechanism does for all policies.

use std::time::Duration;

use evener_model::{Job, NodeId};
use insta::assert_snapshot;

use crate::testing::{Stage, run};
use crate::{NodeState, PickError};

fn states(stage: &Stage) -> String {
    stage.scheduler.nodes(stage.now).map(|node| node.state.name()).collect::<Vec<_>>().join(" ")
}

#[test]
fn failures_in_a_row_eject_and_time_brings_back() {
    assert_eq!(
        run("rr eject=3", "a=1 b=1", "pick*3 fail:a*3 pick*3 wait:4s pick wait:1s pick*2"),
        "a b a b b b b a b"
    );
}

#[test]
fn a_success_in_between_prevents_ejection() {
    assert_eq!(run("rr eject=3", "a=1 b=1", "fail:a*2 ok:a fail:a*2 pick*2"), "a b");
}

#[test]
fn a_share_of_failures_ejects() {
    let mut stage = Stage::new("rr", "a=1 b=1");
    for _ in 0..10 {
        stage.act("ok:a");
        stage.act("fail:a");
    }
    assert_eq!(states(&stage), "ejected up");
}

#[test]
fn a_further_ejection_lasts_longer() {
    let mut stage = Stage::new("rr eject=1", "a=1 b=1");
    let mut lasted = Vec::new();
    for _ in 0..3 {
        stage.act("fail:a");
        let Some(NodeState::Ejected { until }) =
            stage.scheduler.nodes(stage.now).next().map(|node| node.state)
        else {
            panic!("not ejected")
        };
        lasted.push(until.since(stage.now).as_secs());
        stage.now = until;
        stage.act("pick");
    }
    assert_eq!(lasted, [5, 10, 20]);
}

#[test]
fn switching_ejection_off_brings_nodes_back() {
    let mut stage = Stage::new("rr eject=1", "a=1 b=1");
    stage.act("fail:a");
    let settings = crate::Settings { outlier: None, policy: crate::Policy::RoundRobin, ..Default::default() };
    stage.scheduler.reconfigure(stage.now, settings);
    assert_eq!(states(&stage), "up up");
}

#[test]
fn when_most_of_a_pool_is_down_all_of_it_is_tried() {
    let script = "down:a down:b pick*2 down:c pick*4 up:a up:b pick*2";
    assert_eq!(run("rr panic=50", "a=1 b=1 c=1 d=1", script), "c d a b c d a b");
    assert_eq!(run("rr panic=0", "a=1 b=1", "down:a pick down:b pick"), "b -");
    assert_eq!(run("rr panic=50", "a=1 b=1 c=0", "down:a down:b drain:b pick*2"), "a a");
    assert_eq!(run("rr panic=50", "a=1", "down:a pick drain:a pick"), "a -");
}

#[test]
fn a_node_that_reports_no_health_gets_no_new_jobs() {
    // Until it says otherwise, or has said nothing for long enough.
    assert_eq!(run("rr", "a=1 b=1", "report:a,health=0 pick*2 report:a,health=1 pick*2"), "b b a b");
    assert_eq!(run("rr", "a=1 b=1", "report:a,health=0 wait:9s pick*2 wait:1s pick*2"), "b b a b");
    // What it does not say is not 0, and the health check still counts.
    assert_eq!(run("rr", "a=1 b=1", "report:a,load=1 pick report:a,health=100 down:a pick*2"), "a b b");
    // Where most say so, none is believed.
    assert_eq!(run("rr panic=50", "a=1 b=1 c=1", "report:a,health=0 report:b,health=0 pick*3"), "a b c");

    let mut stage = Stage::new("rr", "a=1 b=1");
    stage.act("report:a,health=0");
    assert_eq!(states(&stage), "down up");
    stage.act("wait:3s");
    let view = stage.scheduler.nodes(stage.now).next().unwrap();
    assert_eq!(view.report.map(|(_, age)| age), Some(Duration::from_secs(3)));
}

#[test]
fn of_reports_only_the_latest_counts() {
    // An older one is not taken, nor one that had expired before it came.
    assert_eq!(run("rr", "a=1 b=1", "report:a,health=9,age=1s report:a,health=0,age=2s pick*2"), "a b");
    assert_eq!(run("rr", "a=1 b=1", "report:a,health=0,age=10s pick*2"), "a b");
    // It expires by when it was measured.
    assert_eq!(run("rr", "a=1 b=1", "report:a,health=0,age=8s pick wait:2s pick"), "b a");
    // None from the future; and one that is a little ahead does not keep out the next.
    assert_eq!(run("rr", "a=1 b=1", "report:a,health=0,ahead=2s pick*2"), "a b");
    assert_eq!(run("rr", "a=1 b=1", "report:a,health=9,ahead=1s report:a,health=0 pick*2"), "b b");
    // Of a node that is not there, none.
    assert_eq!(run("rr", "a=1", "report:z,health=0 report:b,health=0 join:b=1 pick*2"), "a b");
}

#[test]
fn what_a_node_says_in_several_ways_stands_figure_by_figure() {
    // Its agent says that it wants no jobs; what its responses say of its load does not change that.
    assert_eq!(run("rr", "a=1 b=1", "report:a,health=0 wait:1s report:a,load=0.1 pick*2"), "b b");
    // The health expires by when it was measured, however new the load is.
    let script = "report:a,health=0 wait:9s report:a,load=0.1 pick wait:1s pick*2";
    assert_eq!(run("rr", "a=1 b=1", script), "b a b");
    // What comes late of what is not known yet is news.
    assert_eq!(run("rr", "a=1 b=1", "report:a,load=0.1 report:a,health=0,load=0.9,age=1s pick*2"), "b b");
    let mut stage = Stage::new("rr", "a=1 b=1");
    ["report:a,load=0.1", "report:a,health=50,load=0.9,age=1s", "wait:1s"]
        .into_iter()
        .for_each(|step| stage.act(step));
    let told = |stage: &Stage| {
        let (report, age) = stage.scheduler.nodes(stage.now).next().unwrap().report.unwrap();
        (report.load, report.health.map(|health| health.value()), age.as_secs())
    };
    assert_eq!(told(&stage), (Some(0.1), Some(50), 1));
    // Nine seconds later the health has expired, and a second after that nothing is believed: the last is shown.
    ["wait:8s", "pick"].into_iter().for_each(|step| stage.act(step));
    assert_eq!(told(&stage), (Some(0.1), None, 9));
    ["wait:1s", "pick"].into_iter().for_each(|step| stage.act(step));
    assert_eq!(told(&stage), (Some(0.1), None, 10));
}

#[test]
fn a_shorter_expiry_counts_at_once() {
    let mut stage = Stage::new("rr", "a=1 b=1");
    stage.act("report:a,health=0");
    stage.act("wait:2s");
    let settings = crate::Settings { report_expiry: Duration::from_secs(1), ..Default::default() };
    stage.scheduler.reconfigure(stage.now, settings);
    assert_eq!(states(&stage), "up up");
}

#[test]
fn nodes_new_while_running_start_slowly() {
    // At the first start all are new, and none is slow.
    let stage = Stage::new("rr slow=10s", "a=1 b=1");
    assert_eq!(states(&stage), "up up");

    let mut stage = Stage::new("wrr slow=10s", "a=1 b=1");
    stage.act("pick");
    stage.act("join:c=1");
    assert_eq!(states(&stage), "up up warming");
    let picks_of_c = |stage: &mut Stage, picks: u32| {
        stage.picks.clear();
        stage.act(&format!("pick*{picks}"));
        stage.picks.iter().filter(|pick| *pick == "c").count()
    };
    // A tenth: 25 of 256 parts, and 256 for each of the others.
    assert_eq!(picks_of_c(&mut stage, 256 + 256 + 25), 25);
    stage.act("wait:5s");
    assert_eq!(picks_of_c(&mut stage, 256 + 256 + 128), 128);
    stage.act("wait:5s");
    assert_eq!(picks_of_c(&mut stage, 30), 10);
    assert_eq!(states(&stage), "up up up");
}

#[test]
fn nodes_that_come_back_start_slowly() {
    for policy in ["rr", "wrr", "wrr tokens", "random", "weighted-random", "lc", "wlc", "sed", "nq", "twos"] {
        let mut stage = Stage::new(&format!("{policy} slow=100s"), "a=8 b=8");
        stage.act("pick*2");
        stage.act("down:b");
        stage.act("up:b");
        assert_eq!(states(&stage), "up warming", "{policy}");
        stage.picks.clear();
        stage.act("pick*100");
        let b = stage.picks.iter().filter(|pick| *pick == "b").count();
        assert!((2..30).contains(&b), "{policy}: {b} of 100");
    }
}

#[test]
fn a_policy_that_is_replaced_hands_over_the_nodes() {
    for policy in crate::Policy::ALL {
        let script = format!("pick*2 drain:b policy:{} pick*2 policy:lc pick ready:b pick", policy.name());
        let picks = run("rr", "a=1 b=1", &script);
        assert_eq!(picks, "a b a a a b", "{policy}");
    }
}

#[test]
fn a_client_stays_on_its_node_unless_another_is_better_by_more() {
    let picks = |settings: &str, script: &str| run(settings, "a=1 b=1", script);
    // With the job, a would have two or three jobs and b one or two: at most half more is not more.
    assert_eq!(picks("lc bonus=50", "pick!b pick@a"), "a b");
    assert_eq!(picks("lc bonus=50", "pick!b*2 pick!a pick@a"), "a a b a");
    assert_eq!(picks("lc", "pick!b*2 pick!a pick@a"), "a a b b");
    assert_eq!(picks("twos bonus=100", "pick!b pick@a*2"), "a a b");
    assert_eq!(picks("load-informed bonus=50", "report:a,load=0.4 report:b,load=0.3 pick@a pick"), "a b");
    assert_eq!(picks("credits bonus=50", "report:a,credits=4 report:b,credits=5 pick@a pick"), "a b");
    // Not on one that is not there, or is to be avoided, nor where nothing is compared.
    assert_eq!(picks("lc bonus=900", "down:a pick@a pick@z up:a pick@a pick!a@a"), "b b a b");
    assert_eq!(picks("rr bonus=900", "pick@b pick@a pick@a"), "a b a");
}

#[test]
fn jobs_of_a_node_that_left_are_still_released() {
    let mut stage = Stage::new("wlc", "a=1");
    for word in ["pick", "leave:a", "ok:a"] {
        stage.act(word);
    }
    assert_eq!(stage.counts.jobs(NodeId(0)), 0);
}

#[test]
fn placements_say_what_was_compared() {
    let mut stage = Stage::new("wlc", "a=2 b=1/1 c=1");
    stage.act("pick!bc*3");
    stage.act("pick");
    stage.act("pick");
    let show = |placement: &crate::Placement| {
        let candidates = placement.candidates().iter();
        let list =
            candidates.map(|c| format!("{}:{}/{}={}", c.node, c.jobs, c.weight, c.score)).collect::<Vec<_>>();
        format!("{} of {}: {}", placement.choice.unwrap(), placement.candidates_total, list.join(" "))
    };
    let shown: Vec<_> = stage.scheduler.placements().take(2).map(show).collect();
    // One of b and c first, then the other.
    assert!(shown[0].starts_with("1 of 3") || shown[1].starts_with("1 of 3"), "{shown:?}");
    assert!(shown[1].contains("of 3: 0:3/2=1.5 1:0/1=0 2:0/1=0"), "{shown:?}");

    stage.act("drain:a");
    stage.act("drain:c");
    assert_eq!(stage.scheduler.pick(stage.now, &Job::default()), Err(PickError::Full));
    let last = stage.scheduler.placements().next().unwrap();
    assert_eq!((last.choice, last.candidates().len()), (Err(PickError::Full), 0));
}

#[test]
fn placements_remember_the_last_and_always_the_chosen() {
    let nodes = ('a'..='z').map(|name| format!("{name}=1")).collect::<Vec<_>>().join(" ");
    for policy in ["lc", "rr", "twos choices=20", "mh"] {
        let mut stage = Stage::new(policy, &nodes);
        stage.act("pick*100");
        assert_eq!(stage.scheduler.placements().count(), 64);
        for placement in stage.scheduler.placements() {
            let chosen = placement.choice.unwrap();
            assert!(placement.candidates().iter().any(|candidate| candidate.node == chosen), "{policy}");
        }
    }
}

#[test]
fn views_tell_what_is_known() {
    let mut stage = Stage::new("wlc", "a=2 b=0");
    stage.act("pick");
    stage.act("ok:a@20ms");
    stage.act("fail:a");
    stage.act("pick");
    let view = stage.scheduler.nodes(stage.now).next().unwrap();
    assert_eq!(view.latency, Some((Duration::from_millis(20), stage.now)));
    assert_snapshot!(
        format!("{} {} {} {}", view.weight.value(), view.effective_weight, view.jobs, view.failure_share),
        @"2 2 1 0.125"
    );
}
