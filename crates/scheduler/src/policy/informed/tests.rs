use crate::testing::{run, tally};

/// Rounds of a pick whose job ends on each node of the pool after so long.
fn rounds(script: &str, times: usize) -> String {
    vec![script; times].join(" ")
}

#[test]
fn as_long_as_nothing_is_known_it_is_the_shortest_expected_delay() {
    for nodes in ["a=1 b=1 c=1", "a=1 b=2 c=4"] {
        let script = "pick*9 ok:a ok:b pick pick ok:c ok:c pick*4";
        assert_eq!(run("informed seed=3", nodes, script), run("sed seed=3", nodes, script), "{nodes}");
    }
}

/// How many of the last picks of a script went to node a.
fn last_to_a(nodes: &str, script: &str, picks: usize) -> usize {
    let all = run("informed", nodes, script);
    all.split_whitespace().rev().take(picks).filter(|node| *node == "a").count()
}

#[test]
fn a_slow_node_gets_less() {
    let learn = rounds("pick pick pick ok:a@40ms ok:b@10ms ok:c@10ms wait:50ms", 200);
    // About one in nine to the node that takes four times as long, and fewer just after it was late.
    let picks = last_to_a("a=1 b=1 c=1", &format!("{learn} pick*27"), 27);
    assert!((1..=4).contains(&picks), "{picks}");
}

#[test]
fn weights_that_are_right_are_kept() {
    let learn = rounds("ok:a@40ms wait:10ms ok:b@10ms wait:10ms", 300);
    let picks = last_to_a("a=1 b=4", &format!("{learn} pick*20"), 20);
    assert!((3..=5).contains(&picks), "{picks}");
}

#[test]
fn fresh_reports_count_and_old_ones_do_not() {
    // Another dispatcher keeps five jobs on a, and each pick is followed by reports.
    let fresh = rounds("report:a,jobs=5 report:b,jobs=0 pick ok:b@10ms report:b,jobs=0 wait:1ms", 30);
    let picks = tally("informed", "a=1 b=1", &fresh);
    assert!(picks.starts_with("b30") || picks.starts_with("a1 b29"), "{picks}");
    // Then nothing is heard for long: both get their part.
    let later = format!("{fresh} wait:9s pick*20");
    let last = last_to_a("a=1 b=1", &later, 20);
    assert!((7..=13).contains(&last), "{last}");
}

#[test]
fn a_liar_gets_no_more_than_its_part_for_long() {
    // a says it is idle, and is four times slower than the others.
    let say = "report:a,jobs=0 report:b,jobs=2 report:c,jobs=2";
    let script = rounds(&format!("{say} pick pick pick ok:a@40ms ok:b@10ms ok:c@10ms wait:20ms"), 400);
    let last = last_to_a("a=1 b=1 c=1", &script, 300);
    assert!(last <= 100, "{last}");
}
