//! Runs that must come out the same, to the nanosecond, on every machine and after every change that is not
//! meant to change them.

use std::time::Duration;

use evener_scheduler::transfer::Transfer;
use evener_scheduler::{Policy, Settings};
use evener_sim::{
    Arrivals, Dispatch, Dispatchers, Failure, Fault, NodeGroup, Patience, Scenario, Signals, Size, Transfers,
    When, simulate,
};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn plain() -> Scenario {
    Scenario {
        arrivals: Arrivals::Poisson { rate: 1500.0 },
        size: Size::Lognormal { mean: ms(10), cv: 2.16 },
        duration: ms(4000),
        warm_up: ms(500),
        nodes: vec![NodeGroup { count: 20, ..NodeGroup::default() }],
        ..Scenario::default()
    }
}

fn troubled() -> Scenario {
    let fault = |what| vec![Fault { what, from: ms(1000), to: Some(ms(2000)) }];
    let node = |faults| NodeGroup { count: 4, queue_max: Some(8), faults, ..NodeGroup::default() };
    Scenario {
        arrivals: Arrivals::Bursts { rate: 900.0, burst: 4 },
        nodes: vec![
            node(fault(Failure::Dead)),
            node(fault(Failure::Stalled)),
            node(fault(Failure::Slow(0.2))),
            node(fault(Failure::Failing(0.3))),
        ],
        dispatchers: Dispatchers { count: 3, check_every: Some(ms(100)), ..Dispatchers::default() },
        signals: Signals {
            when: When::Continuous { phase: ms(100).into() },
            loss: 0.1,
            ..Signals::default()
        },
        hop: Duration::from_micros(200),
        patience: Patience { timeout: Some(ms(400)), retries: 2, hedge_after: Some(ms(150)) },
        ..plain()
    }
}

fn handing() -> Scenario {
    Scenario {
        transfer: Some(Transfers {
            algorithm: Transfer::NearestExact,
            information: ms(20),
            activation: ms(40),
            count_in_service: true,
            delay: Duration::ZERO,
        }),
        ..plain()
    }
}

/// What a run is known by.
fn summary(scenario: &Scenario, dispatch: &Dispatch) -> String {
    let run = simulate(scenario, dispatch, 1);
    format!(
        "{} jobs, {} done, {} failed, {} rejected; {} retries, {} hedges, {} transfers; mean {} ns, p99 {} ns",
        run.arrived,
        run.done,
        run.failed.iter().sum::<u64>(),
        run.rejected,
        run.retries,
        run.hedges,
        run.transfers,
        run.response_sum_nanos / u128::from(run.response.len()),
        run.response.value_at_quantile(0.99),
    )
}

#[test]
fn runs_are_what_they_were() {
    let of = |policy| Dispatch::Scheduler(Settings { policy, ..Settings::default() });
    let runs = [
        ("plain, round-robin", summary(&plain(), &of(Policy::RoundRobin))),
        ("plain, two-choices", summary(&plain(), &of(Policy::TwoChoices))),
        ("plain, peak-ewma", summary(&plain(), &of(Policy::PeakEwma))),
        ("plain, central", summary(&plain(), &Dispatch::Central)),
        ("troubled, least-jobs", summary(&troubled(), &of(Policy::LeastJobs))),
        ("handing, round-robin", summary(&handing(), &of(Policy::RoundRobin))),
    ];
    let lines: Vec<String> = runs.iter().map(|(name, run)| format!("{name}: {run}")).collect();
    assert_eq!(lines.join("\n"), include_str!("golden.txt").trim_end(), "\n{}", lines.join("\n"));
}
