//! Whatever text is read, reading it does not panic; and what is accepted of it can be simulated, however odd.

use std::time::{Duration, Instant};

use evener_sim::{Dispatch, Experiment, Overrides, simulate};
use proptest::prelude::*;

const TEMPLATE: &str = r#"
policies = [{ policy = "POLICY", reports = "PHASE", steering = STEERING }]
seeds = 1
duration = "DURATION"
warm-up = "WARM"
hop = "HOP"
arrivals = ARRIVALS
size = SIZE
node = [NODE, NODE]
dispatchers = { count = DISPATCHERS, share-counts = BOOLEAN, queue-max = COUNT, queue-timeout = "HOP", check-every = "PERIOD" }
signals = { when = WHEN, delay = "HOP", loss = SHARE, probes = SMALL, spread = "HOP", repeats = SHARE }
transfer = { algorithm = "ALGORITHM", information = "PERIOD", activation = "PERIOD", delay = "HOP", count-in-service = BOOLEAN }
costs = { pick = "HOP", transfer = "HOP", report = "HOP" }
patience = { timeout = "TIMEOUT", retries = SMALL, hedge-after = "TIMEOUT" }
"#;

/// What may stand in the place of each word of the template.
const POOLS: &[(&str, &[&str])] = &[
    (
        "POLICY",
        &["round-robin", "least-jobs", "two-choices", "maglev", "prequal", "basic-li", "credits", "central"],
    ),
    ("DURATION", &["0s", "1ns", "1us", "10ms", "10ms", "1s", "1s", "3s", "20000h"]),
    ("WARM", &["0s", "0s", "0s", "1ns", "5ms", "1h"]),
    ("HOP", &["0s", "0s", "1ns", "1ms", "3s", "20000h", "99999999h"]),
    (
        "ARRIVALS",
        &[
            "{ kind = \"poisson\", rate = RATE }",
            "{ kind = \"even\", rate = RATE }",
            "{ kind = \"bursts\", rate = RATE, burst = COUNT }",
            "{ kind = \"on-off\", rate = RATE, peak = PEAK, on = \"PERIOD\", off = \"PERIOD\" }",
            "{ kind = \"closed\", clients = COUNT, think = \"HOP\" }",
        ],
    ),
    ("RATE", &["-1", "0", "1e-300", "1", "100", "100", "100", "1000", "1000", "1e9", "1e300", "nan"]),
    ("PEAK", &["1", "1.0000001", "1.5", "2", "1e9", "nan"]),
    (
        "SIZE",
        &[
            "{ kind = \"fixed\", mean = \"WORK\" }",
            "{ kind = \"exponential\", mean = \"WORK\" }",
            "{ kind = \"lognormal\", mean = \"WORK\", cv = SPREAD }",
            "{ kind = \"pareto\", min = \"WORK\", max = \"WORK\", shape = SPREAD }",
            "{ kind = \"empirical\", ms = [SPREAD, 0, SPREAD] }",
            "{ kind = \"mix\", of = [{ share = SPREAD, size = { kind = \"fixed\", mean = \"WORK\" } }] }",
        ],
    ),
    ("WORK", &["0s", "1ns", "1us", "10ms", "10ms", "10ms", "1s", "20000h"]),
    ("SPREAD", &["-1", "0", "1e-300", "0.5", "0.5", "1", "1", "3", "99", "nan"]),
    (
        "NODE",
        &[
            "{}",
            "{ count = COUNT }",
            "{ cores = COUNT, concurrency = COUNT, queue-max = COUNT, jobs-max = COUNT }",
            "{ speed = SPREAD, weight = COUNT }",
            "{ fault = [{ what = \"dead\", from = \"HOP\" }, { what = \"stalled\", from = \"HOP\", to = \"WORK\" }] }",
            "{ fault = [{ what = \"silent\", from = \"HOP\" }, { what = { ahead = SPREAD }, from = \"0s\" }] }",
            "{ fault = [{ what = { says = \"LIE\" }, from = \"HOP\" }] }",
            "{ fault = [{ what = { slow = SPREAD }, from = \"0s\" }, { what = { failing = SHARE }, from = \"0s\" }] }",
        ],
    ),
    ("DISPATCHERS", &["0", "1", "2", "50"]),
    ("BOOLEAN", &["true", "false"]),
    ("COUNT", &["0", "1", "1", "2", "2", "30", "4000000000"]),
    ("SMALL", &["0", "1", "3", "255"]),
    ("LIE", &["idle", "full", "busy", "random", "frozen"]),
    (
        "STEERING",
        &[
            "{ law = \"smoothing\", alpha = SHARE }",
            "{ law = \"smoothing\", alpha = SHARE, dead-band = SHARE }",
            "{ law = \"integral\", gain-per-s = SHARE }",
            "{ law = \"integral\", gain-per-s = SHARE, dead-band = SHARE }",
        ],
    ),
    ("SHARE", &["0", "0.5", "1", "2", "nan"]),
    ("PERIOD", &["0s", "1ms", "20ms", "1s", "20000h"]),
    (
        "WHEN",
        &[
            "{ kind = \"never\" }",
            "{ kind = \"exact\" }",
            "{ kind = \"periodic\", phase = \"PHASE\" }",
            "{ kind = \"continuous\", phase = \"PHASE\" }",
            "{ kind = \"on-access\" }",
        ],
    ),
    ("PHASE", &["0s", "1ms", "20ms", "1s", "auto", "auto", "20000h"]),
    ("ALGORITHM", &["n", "n-exact", "least-loaded"]),
    ("TIMEOUT", &["1ns", "1ms", "50ms", "20000h"]),
];

/// Parts of the template that may be left out.
const OPTIONAL: &[&str] = &["transfer", "patience", "signals", "costs", "dispatchers"];

/// Fills the template by a sequence of numbers.
fn filled(mut numbers: impl Iterator<Item = u32>) -> String {
    let mut next = |end: usize| numbers.next().unwrap() as usize % end;
    let mut lines: Vec<&str> = TEMPLATE.lines().collect();
    lines.retain(|line| !OPTIONAL.iter().any(|name| line.starts_with(name)) || next(2) == 0);
    let mut text = lines.join("\n");
    for (word, pool) in POOLS {
        while let Some(at) = text.find(word) {
            text.replace_range(at..at + word.len(), pool[next(pool.len())]);
        }
    }
    text
}

fn numbers(mut state: u64) -> impl Iterator<Item = u32> {
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as u32
    })
}

fn parse(text: &str) -> Option<Experiment> {
    Experiment::parse(text, &Overrides::default(), &mut |_| Err("no trace".into())).ok().map(|(good, _)| good)
}

#[test]
fn what_is_accepted_is_simulated_to_its_end() {
    let (mut simulated, begun) = (0, Instant::now());
    for seed in 0..60_000 {
        let text = filled(numbers(seed));
        let Some(experiment) = parse(&text) else { continue };
        let scenario = &experiment.scenario;
        // What is large is right, but nothing for a test.
        let nodes: u32 = scenario.nodes.iter().map(|group| group.count).sum();
        if scenario.jobs_expected() > 2_000.0 || nodes > 100 || scenario.duration > Duration::from_secs(10) {
            continue;
        }
        let run_begun = Instant::now();
        let run = simulate(scenario, &experiment.contenders[0].dispatch, seed);
        let took = run_begun.elapsed();
        assert!(took < Duration::from_secs(30), "seed {seed} took {took:?}: {text}");
        let ended = run.done + run.failed.iter().sum::<u64>() + run.rejected + run.unfinished;
        assert_eq!(ended, run.arrived, "seed {seed}: {text}");
        simulated += 1;
        if simulated == 200 || begun.elapsed() > Duration::from_secs(15) {
            break;
        }
    }
    assert!(simulated >= 20, "{simulated}");
}

#[test]
fn the_ideal_is_among_what_is_simulated() {
    let experiment = parse(
        "policies = [\"central\"]\nduration = \"1s\"\narrivals = { kind = \"even\", rate = 9 }\n\
                            size = { kind = \"fixed\", mean = \"1ms\" }\nnode = [{}]",
    )
    .unwrap();
    assert_eq!(experiment.contenders[0].dispatch, Dispatch::Central);
    assert!(experiment.contenders[0].is_central());
}

proptest! {
    #[test]
    fn any_text_is_read_without_a_panic(
        seed in any::<u64>(),
        cuts in prop::collection::vec((any::<u16>(), any::<u16>(), ".{0,3}"), 0..4),
    ) {
        let mut text = filled(numbers(seed));
        for (at, length, instead) in cuts {
            let chars: Vec<char> = text.chars().collect();
            let from = usize::from(at) % (chars.len() + 1);
            let to = (from + usize::from(length) % 8).min(chars.len());
            text = chars[..from].iter().chain(instead.chars().collect::<Vec<_>>().iter()).chain(&chars[to..]).collect();
        }
        if let Err(errors) =
            Experiment::parse(&text, &Overrides { quick: true, ..Overrides::default() }, &mut |_| Err("no".into()))
        {
            prop_assert!(!errors.is_empty());
            for error in errors {
                prop_assert!(text.get(error.span.clone()).is_some(), "{error:?}");
            }
        }
    }
}
