//! What each policy picks, on pools small enough to follow by hand.

use insta::assert_snapshot;

use crate::testing::{run, tally};

const EVERY: [&str; 27] = [
    "informed",
    "rr",
    "wrr",
    "wrr tokens",
    "random",
    "weighted-random",
    "lc",
    "wlc",
    "sed",
    "nq",
    "twos",
    "job-informed",
    "load-informed variant=least",
    "load-informed variant=among",
    "load-informed",
    "basic-li",
    "aggressive-li",
    "credits",
    "orca-weighted",
    "peak-ewma",
    "least-time",
    "prequal",
    "sh",
    "dh",
    "consistent-hash",
    "bounded-hash",
    "mh",
];

#[test]
fn drained_node_gets_no_job() {
    for policy in EVERY {
        assert_eq!(run(policy, "a=1 b=0", "pick pick"), "a a", "{policy}");
        assert_eq!(
            run(policy, "a=1 b=1", "drain:b pick pick ready:b drain:a pick pick"),
            "a a b b",
            "{policy}"
        );
        assert_eq!(run(policy, "a=1 b=1", "down:b pick*3 up:b down:a pick*3"), "a a a b b b", "{policy}");
    }
}

#[test]
fn without_a_node_there_is_no_pick() {
    for policy in EVERY {
        assert_eq!(run(policy, "", "pick join:a=0 pick weight:a=1 pick leave:a pick"), "- - a -", "{policy}");
    }
}

#[test]
fn full_nodes_are_passed_and_a_full_pool_says_so() {
    for policy in EVERY {
        assert_eq!(tally(policy, "a=3/2 b=1/1 c=1/3", "pick*8"), "a2 b1 c3 full2", "{policy}");
        assert_eq!(run(policy, "a=3/1", "pick pick ok:a pick"), "a full a", "{policy}");
    }
}

#[test]
fn avoided_nodes_are_last() {
    for policy in EVERY {
        assert_eq!(run(policy, "a=1 b=1", "pick!a pick!a pick!b pick!bb"), "b b a a", "{policy}");
        assert_eq!(run(policy, "a=1", "pick!a"), "a", "{policy}");
        assert_eq!(run(policy, "a=1 b=1/1", "pick!a pick!a"), "b full", "{policy}");
        // Avoiding a node leaves the state as it was.
        assert_eq!(tally(policy, "a=1/4 b=1/4", "pick!a*4 pick*4"), "a4 b4", "{policy}");
    }
}

#[test]
fn excluded_nodes_are_never_picked() {
    for policy in EVERY {
        assert_eq!(run(policy, "a=1 b=1 c=1", "pick#ac*3 pick#ab*2"), "b b b c c", "{policy}");
        assert_eq!(
            run(policy, "a=1 b=9", "pick#ab pick#ba pick#aabz pick#b"),
            "excluded excluded excluded a",
            "{policy}"
        );
        // Not where the others are full, have been tried, or are down so that panic takes all nodes back.
        assert_eq!(run(policy, "a=1 b=1/1", "pick#a pick#a pick!b#a"), "b full full", "{policy}");
        assert_eq!(run(policy, "a=1 b=1 c=1", "pick!b#a pick!b#ac"), "c b", "{policy}");
        let panic = format!("{policy} panic=100");
        assert_eq!(run(&panic, "a=1 b=1", "down:b pick#a pick#a@a"), "b b", "{policy}");
        // There is nothing to exclude where no node may be picked, and what is not a member does not matter.
        assert_eq!(run(policy, "a=1 b=1", "drain:a drain:b pick#a ready:a pick#b"), "- a", "{policy}");
        // Excluding a node leaves the state as it was.
        assert_eq!(tally(policy, "a=1/4 b=1/4", "pick#a*4 pick*4"), "a4 b4", "{policy}");
    }
}

#[test]
fn round_robin_goes_round_whatever_joins_and_leaves() {
    assert_snapshot!(run("rr", "a=1 b=9 c=1", "pick*5"), @"a b c a b");
    assert_snapshot!(run("rr", "a=1 b=1 c=1", "pick join:d=1 pick*3 leave:b pick*2 down:c pick*2"), @"a b c d a c d a");
    assert_snapshot!(run("rr", "a=1 b=1 c=1", "pick weight:c=7 pick*2 weight:a=2 pick"), @"a b c a");
}

#[test]
fn weights_spread_over_the_round() {
    assert_snapshot!(run("wrr", "a=5 b=1 c=1", "pick*14"), @"a b a a a c a a b a a a c a");
    assert_snapshot!(run("wrr", "a=2 b=1", "pick*6"), @"a b a a b a");
    assert_snapshot!(run("wrr", "a=1 b=1 c=1", "pick*6"), @"a b c a b c");
    assert_snapshot!(run("wrr", "a=3 b=2", "pick*2 weight:a=1 pick*6"), @"a b b a b b a b");
}

#[test]
fn a_node_that_comes_and_goes_gets_no_turn_early() {
    for policy in ["wrr", "wrr tokens"] {
        let mut stage = crate::testing::Stage::new(policy, "a=1 b=8");
        for _ in 0..90 {
            stage.act("pick");
            stage.act("down:a");
            stage.act("up:a");
        }
        let picks_of_a = stage.picks.iter().filter(|pick| *pick == "a").count();
        assert!(picks_of_a <= 11, "{policy}: {picks_of_a}");
    }
}

#[test]
fn tokens_are_given_in_turn() {
    assert_snapshot!(run("wrr tokens", "a=3 b=1 c=2", "pick*12"), @"a b c a c a b c a c a a");
    assert_snapshot!(run("wrr tokens", "a=3 b=1", "pick*2 weight:a=1 pick*4"), @"a b b a b a");
    assert_snapshot!(run("wrr tokens", "a=2 b=1", "pick*2 weight:a=4 pick*4"), @"a b a a a b");
    assert_snapshot!(run("wrr tokens", "a=2 b=2", "pick join:c=1 pick*4 pick*5"), @"a b a c b a c b a b");
}

#[test]
fn chance_follows_weights_only_where_asked() {
    let a = |policy| run(policy, "a=3 b=1", "pick*4000").matches('a').count();
    assert!((1_900..2_100).contains(&a("random")));
    assert!((2_900..3_100).contains(&a("weighted-random")));
}

#[test]
fn equal_nodes_share_the_jobs() {
    for policy in ["lc", "wlc", "sed", "nq", "least-time"] {
        assert_eq!(tally(policy, "a=1 b=1 c=1", "pick*9"), "a3 b3 c3", "{policy}");
        // With each job done before the next comes, all nodes are always idle.
        let mut stage = crate::testing::Stage::new(policy, "a=1 b=1 c=1");
        for _ in 0..9 {
            stage.act("pick");
            let last = stage.picks.last().unwrap().clone();
            stage.act(&format!("ok:{last}"));
        }
        stage.picks.sort();
        assert_eq!(stage.picks.join(""), "aaabbbccc", "{policy}");
    }
}

#[test]
fn jobs_in_flight_decide() {
    assert_snapshot!(run("lc", "a=9 b=1", "pick!b*3 pick*3"), @"a a a b b b");
    assert_snapshot!(tally("wlc", "a=3 b=1", "pick*8"), @"a6 b2");
    assert_snapshot!(run("sed", "a=4 b=1", "pick*5"), @"a a a b a");
    assert_snapshot!(run("nq", "a=4 b=1", "pick*4"), @"a b a a");
    assert_snapshot!(tally("twos", "a=1 b=1", "pick*10"), @"a5 b5");
    assert_snapshot!(tally("twos choices=3", "a=2 b=1 c=1", "pick*40"), @"a20 b10 c10");
}

#[test]
fn idle_nodes_share_by_weight() {
    let mut stage = crate::testing::Stage::new("wlc", "a=3 b=1");
    for _ in 0..16 {
        stage.act("pick");
        let last = stage.picks.last().unwrap().clone();
        stage.act(&format!("ok:{last}"));
    }
    assert_eq!(stage.picks.iter().filter(|pick| *pick == "a").count(), 12);
}

#[test]
fn job_informed_makes_up_for_what_is_short() {
    // Six jobs on a and none on the others: two each are fair, so b and c get two first.
    assert_snapshot!(run("job-informed phase=1s", "a=1 b=1 c=1", "pick!bc*6 wait:1s pick*8"), @"a a a a a a b c b c a b c b");
    // Four thirds are short of b and c each: two tokens and one, by largest remainder in the rotation.
    assert_snapshot!(run("job-informed phase=1s", "a=1 b=1 c=1", "pick!bc*4 wait:1s pick*5"), @"a a a a b c b a c");
    // Nothing in flight: by weight.
    assert_snapshot!(run("job-informed", "a=2 b=1", "pick*6"), @"a b a b a a");
    // b reports four jobs that others placed: six are on all, so a is short of one and c of two.
    let told = |settings: &str| run(settings, "a=1 b=1 c=1", "pick*2 wait:1s report:b,jobs=5 pick*5");
    assert_snapshot!(told("job-informed phase=1s dispatchers=1"), @"a b c a c b a");
    // With two dispatchers, half of that is this one's to make up for.
    assert_snapshot!(told("job-informed phase=1s dispatchers=2"), @"a b c a b c a");
    // The rotation goes on: an update does not begin with a again.
    assert_snapshot!(run("job-informed phase=1s", "a=1 b=1 c=1", "pick ok:a wait:1s pick ok:b wait:1s pick"), @"a b c");
}

#[test]
fn reported_load_decides() {
    let loads = "report:a,load=0.6,jobs=6 report:b,load=0.2,jobs=2 report:c,load=0.4,jobs=4";
    let picks = |settings: &str, script: &str| run(settings, "a=1 b=1 c=1", &format!("{loads} {script}"));
    // The least loaded, until it says otherwise.
    assert_snapshot!(picks("load-informed variant=least", "pick*4 report:b,load=0.5 pick*2"), @"b b b b c c");
    // A job here counts for a sixteenth when it comes and one while it is there, before it is known what jobs cost: b
    // gets two, then c and b take turns until a is reached. When its jobs end, c is ahead again.
    assert_snapshot!(picks("load-informed", "pick*8 ok:c*2 pick*2"), @"b b c b c a b c c a");
    // A report replaces what came before it: what b has is its jobs' now, and a is relieved of what was not.
    assert_snapshot!(picks("load-informed", "pick*5 wait:1s report:b,load=0.4 report:a,load=0 report:c,load=0.1 pick*3"), @"b b c b c a a c");
    // Of the two least loaded, but only within the interval.
    let few = |settings: &str| {
        let mut picks: Vec<char> = picks(settings, "pick*50").chars().filter(|c| *c != ' ').collect();
        picks.sort_unstable();
        picks.dedup();
        picks.into_iter().collect::<String>()
    };
    assert_eq!(few("load-informed variant=among among=2 interval=25"), "bc");
    assert_eq!(few("load-informed variant=among among=3 interval=25"), "bc");
    assert_eq!(few("load-informed variant=among among=3 interval=50"), "abc");
    assert_eq!(few("load-informed variant=among among=3 interval=10"), "b");
}

#[test]
fn without_reports_load_is_what_jobs_make() {
    assert_eq!(tally("load-informed", "a=3 b=1", "pick*8"), "a6 b2");
    // One that stops reporting is judged by its jobs again.
    assert_snapshot!(run("load-informed", "a=1 b=1", "report:a,load=0.9,jobs=9 report:b,load=0.1,jobs=1 pick*3 wait:10s pick*3"), @"b b b a a a");
}

/// The share of each of a, b and c in many picks whose jobs end at once, in percent.
fn shares(settings: &str, script: &str) -> [usize; 3] {
    let mut stage = crate::testing::Stage::new(settings, "a=1 b=1 c=1");
    script.split_whitespace().for_each(|word| stage.act(word));
    stage.picks.clear();
    for _ in 0..4_000 {
        stage.act("pick");
        let last = stage.picks.last().unwrap().clone();
        stage.act(&format!("ok:{last}"));
    }
    ["a", "b", "c"].map(|node| (stage.picks.iter().filter(|pick| *pick == node).count() + 20) / 40)
}

/// Twelve jobs a second, and at the end of a second six of them are on a, three on b and none on c.
const UNEVEN: &str =
    "pick!bc*12 ok:a*12 wait:1s pick!bc*12 ok:a*12 wait:1s pick!bc*9 ok:a*3 pick!ac*3 wait:1s";

fn assert_near(shares: [usize; 3], expected: [usize; 3]) {
    let near = shares.iter().zip(expected).all(|(a, b)| a.abs_diff(b) <= 3);
    assert!(near, "{shares:?} is not {expected:?}");
}

#[test]
fn basic_li_evens_out_by_the_next_look() {
    // Nothing in flight, nothing known: evenly.
    assert_near(shares("basic-li", ""), [33, 33, 33]);
    // Twelve are expected, which makes seven each: one, four and seven of them.
    assert_near(shares("basic-li", UNEVEN), [8, 33, 58]);
    // With half as many in a second, b is at the level of the water and a is above it.
    assert_near(shares("basic-li phase=500ms", UNEVEN), [0, 25, 75]);
    // Of twelve jobs that b reports a quarter is from here. So there are four dispatchers: 48 are expected, which makes 22
    // each, unless the setting says that there is but one.
    assert_near(shares("basic-li", &format!("{UNEVEN} report:b,jobs=12")), [33, 21, 46]);
    assert_near(shares("basic-li dispatchers=1", &format!("{UNEVEN} report:b,jobs=12")), [25, 0, 75]);
}

#[test]
fn aggressive_li_fills_up_from_the_least() {
    let after = |wait: &str| shares("aggressive-li", &format!("{UNEVEN} pick ok:c wait:{wait}"));
    // Three jobs lift c to b, six more lift both to a.
    assert_near(after("200ms"), [0, 0, 100]);
    assert_near(after("500ms"), [0, 50, 50]);
    assert_near(after("900ms"), [33, 33, 33]);
}

#[test]
fn credits_are_spent_and_given_back() {
    let told = "report:a,credits=2 report:b,credits=4";
    // The most credits first; c says nothing and comes when they are spent, by its jobs, as those that have spent theirs.
    assert_snapshot!(run("credits", "a=1 b=1 c=1", &format!("{told} pick*8 ok:a pick*2")), @"b b a b a b c c a a");
    assert_snapshot!(run("credits", "a=1 b=1", &format!("{told} pick*8 report:a,credits=1 pick*3")), @"b b a b a b a a a b a");
    assert_snapshot!(tally("credits", "a=2 b=1", "pick*9"), @"a6 b3");
}

#[test]
fn credits_are_believed_up_to_three_times_those_of_others() {
    let told = "report:a,credits=1000000 report:b,credits=2 report:c,credits=2";
    assert_snapshot!(tally("credits", "a=1 b=1 c=1", &format!("{told} pick*10")), @"a6 b2 c2");
    // However often it says so: the jobs that are there are there.
    let again = "report:a,credits=1000000,jobs=0 report:b,credits=0 report:c,credits=0";
    assert_snapshot!(tally("credits", "a=1 b=1 c=1", &format!("{told} pick*10 {again} pick*8")), @"a6 b6 c6");
}

#[test]
fn credits_are_shown_with_a_minus() {
    let nodes = ('a'..='z').map(|name| format!("{name}=1")).collect::<Vec<_>>().join(" ");
    for nodes in ["a=1 b=1 c=1", &nodes] {
        let mut stage = crate::testing::Stage::new("credits", nodes);
        stage.act("report:b,credits=7");
        stage.act("report:c,credits=6");
        stage.act("pick");
        let placement = stage.scheduler.placements().next().unwrap();
        let scores: Vec<f32> = placement.candidates().iter().take(2).map(|shown| shown.score).collect();
        assert_eq!(scores, [1.0, -7.0]);
    }
}

#[test]
fn orca_weights_follow_throughput_and_errors() {
    let told = "report:a,rate=100,load=0.5 report:b,rate=100,load=0.25,errors=25";
    let count = |settings: &str, script: &str| tally(settings, "a=1 b=1 c=1", script);
    // a could do 400 a second and b 200; c is taken for what they are in the mean. Not before ten seconds.
    let unequal = "report:a,rate=100,load=0.25 report:b,rate=100,load=0.5";
    assert_snapshot!(count("orca-weighted", &format!("{unequal} wait:9s {unequal} pick*12")), @"a4 b4 c4");
    assert_snapshot!(count("orca-weighted", &format!("{unequal} wait:10s {unequal} pick*18")), @"a8 b4 c6");
    // a could do 200 a second, and b does 100 / (0.25 + 25 / 100).
    assert_snapshot!(count("orca-weighted", &format!("{told} wait:10s {told} pick*18")), @"a6 b6 c6");
    // Weights outlive reports, but not for ever.
    assert_snapshot!(count("orca-weighted", &format!("{unequal} wait:100s pick*18")), @"a8 b4 c6");
    assert_snapshot!(count("orca-weighted", &format!("{unequal} wait:180s pick*18")), @"a6 b6 c6");
    // A report without throughput or load changes nothing.
    assert_snapshot!(count("orca-weighted", &format!("{unequal} wait:10s report:a,rate=0,load=1 report:b,rate=900 pick*18")), @"a8 b4 c6");
}

#[test]
fn prequal_takes_the_fastest_that_is_not_crowded() {
    let picks = |script: &str| run("prequal", "a=1 b=1 c=1", script);
    // Of the cold ones the fastest: c, which is hot with one job more; then b. Each is used twice, then own jobs decide.
    let told = "report:a,jobs=3,latency=30ms report:b,jobs=4,latency=10ms report:c,jobs=9,latency=1ms";
    assert_snapshot!(picks(&format!("{told} pick*8")), @"c b b a a c b c");
    // As many jobs as most: none is hot before it has one more.
    let crowded =
        "report:a,jobs=1 report:b,jobs=1 report:c,jobs=1 report:a,jobs=1 report:b,jobs=1 report:c,jobs=1";
    assert_snapshot!(picks(&format!("{crowded} pick*4")), @"a b c a");
    // What is older than a second is not used; then own jobs decide.
    let mut stage = crate::testing::Stage::new("prequal", "a=1 b=1");
    for word in
        "report:a,jobs=0,latency=1ms report:b,jobs=0,latency=50ms pick wait:1s pick wait:1s pick*2".split(' ')
    {
        stage.act(word);
    }
    assert_snapshot!(stage.picks.join(" "), @"a b b a");
}

#[test]
fn latency_decides() {
    let slow_a = "pick!b ok:a@100ms pick!a ok:b@10ms";
    assert_snapshot!(tally("least-time", "a=1 b=1", &format!("{slow_a} pick*22")), @"a3 b21");
    assert_snapshot!(tally("peak-ewma", "a=1 b=1", &format!("{slow_a} pick*22")), @"a3 b21");
}

#[test]
fn a_node_that_fails_fast_does_not_attract_jobs() {
    for policy in
        ["load-informed", "prequal", "credits", "lc", "wlc", "sed", "nq", "twos", "peak-ewma", "least-time"]
    {
        let mut stage = crate::testing::Stage::new(&format!("{policy} eject=off"), "a=1 b=1");
        stage.act("pick!b ok:a@10ms pick!a ok:b@10ms".split(' ').next().unwrap());
        stage.act("ok:a@10ms");
        stage.act("pick!a");
        stage.act("ok:b@10ms");
        for _ in 0..30 {
            stage.act("pick");
            if stage.picks.last().unwrap() == "a" {
                stage.act("fail:a@1ms");
            }
        }
        let failed = stage.picks[2..].iter().filter(|pick| *pick == "a").count();
        assert!(failed <= 6, "{policy}: {failed} of 30");
    }
}

#[test]
fn a_key_keeps_its_node_until_that_goes() {
    for policy in ["sh", "dh", "consistent-hash", "bounded-hash bound=100000", "mh"] {
        let picks = run(policy, "a=1 b=1 c=1", "pick:x pick:x pick:x");
        let node = &picks[..1];
        assert_eq!(picks, format!("{node} {node} {node}"), "{policy}");
        let script = format!("pick:x down:{node} pick:x up:{node} pick:x");
        let back = run(policy, "a=1 b=1 c=1", &script);
        assert!(back.starts_with(node) && back.ends_with(node) && &back[2..3] != node, "{policy}: {back}");
    }
}

#[test]
fn bounded_hash_holds_the_bound() {
    // ceil(1.25 * 8 / 4) = 3 for each of four nodes, whatever the key.
    assert_snapshot!(run("bounded-hash bound=125", "a=1 b=1 c=1 d=1", "pick:x*8"), @"d a c d a c d a");
}
