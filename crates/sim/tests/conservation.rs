//! Every job that comes has one end, in clusters of all kinds; and the same seed gives the same run.

use std::time::Duration;

use evener_scheduler::transfer::Transfer;
use evener_scheduler::{Policy, Settings};
use evener_sim::{
    Arrivals, Costs, Dispatch, Dispatchers, Failure, Fault, NodeGroup, Patience, Run, Scenario, Signals,
    Size, Transfers, When, simulate,
};
use proptest::prelude::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn maybe<T: Clone + std::fmt::Debug>(strategy: impl Strategy<Value = T>) -> impl Strategy<Value = Option<T>> {
    prop_oneof![Just(None), strategy.prop_map(Some)]
}

fn arrivals() -> impl Strategy<Value = Arrivals> {
    let rate = 1.0..3000.0;
    prop_oneof![
        rate.clone().prop_map(|rate| Arrivals::Poisson { rate }),
        rate.clone().prop_map(|rate| Arrivals::Even { rate }),
        (rate.clone(), 1..20_u32).prop_map(|(rate, burst)| Arrivals::Bursts { rate, burst }),
        rate.prop_map(|rate| Arrivals::OnOff { rate, peak: 2.0, on: ms(30), off: ms(70) }),
        (1..60_u32, 0..20_u64).prop_map(|(clients, think)| Arrivals::Closed { clients, think: ms(think) }),
    ]
}

fn size() -> impl Strategy<Value = Size> {
    prop_oneof![
        Just(Size::Fixed { mean: ms(2) }),
        Just(Size::Exponential { mean: ms(2) }),
        Just(Size::Lognormal { mean: ms(2), cv: 3.0 }),
        Just(Size::Pareto { min: ms(1), max: ms(500), shape: 1.1 }),
        Just(Size::Empirical { ms: vec![0.0, 1.0, 20.0] }),
    ]
}

fn fault() -> impl Strategy<Value = Fault> {
    let what = prop_oneof![
        Just(Failure::Dead),
        Just(Failure::Stalled),
        Just(Failure::Slow(0.1)),
        Just(Failure::Failing(0.5)),
    ];
    (what, 0..400_u64, maybe(1..400_u64)).prop_map(|(what, from, length)| Fault {
        what,
        from: ms(from),
        to: length.map(|length| ms(from + length)),
    })
}

prop_compose! {
    fn group()(
        count in 1..5_u32,
        cores in 1..4_u32,
        concurrency in maybe(0..6_u32),
        speed in 0.2..3.0,
        queue_max in maybe(0..5_u32),
        weight in 0..4_u16,
        jobs_max in maybe(1..8_u32),
        faults in prop::collection::vec(fault(), 0..2),
    ) -> NodeGroup {
        NodeGroup { count, cores, concurrency, speed, queue_max, weight, jobs_max, faults }
    }
}

prop_compose! {
    fn dispatchers()(
        count in 1..4_u16,
        share_counts in any::<bool>(),
        queue_max in 0..20_u32,
        queue_timeout in 1..200_u64,
        check_every in maybe(5..100_u64),
    ) -> Dispatchers {
        Dispatchers {
            count,
            share_counts,
            queue_max,
            queue_timeout: ms(queue_timeout),
            check_every: check_every.map(ms),
        }
    }
}

prop_compose! {
    fn signals()(
        when in prop_oneof![
            Just(When::Never),
            Just(When::Exact),
            Just(When::OnAccess),
            (1..200_u64).prop_map(|phase| When::Periodic { phase: ms(phase).into() }),
            (1..200_u64).prop_map(|phase| When::Continuous { phase: ms(phase).into() }),
        ],
        delay in 0..20_u64,
        loss in 0.0..1.0,
        probes in 0..3_u8,
    ) -> Signals {
        Signals { when, delay: ms(delay), loss, probes, ..Signals::default() }
    }
}

prop_compose! {
    fn transfers()(
        algorithm in prop::sample::select(&Transfer::ALL[..]),
        information in 1..50_u64,
        activation in 1..50_u64,
        count_in_service in any::<bool>(),
        delay in 0..3_u64,
    ) -> Transfers {
        Transfers {
            algorithm,
            information: ms(information),
            activation: ms(activation),
            count_in_service,
            delay: ms(delay),
        }
    }
}

prop_compose! {
    fn patience()(timeout in maybe(1..300_u64), retries in 0..4_u8, hedge in maybe(1..30_u64)) -> Patience {
        Patience { timeout: timeout.map(ms), retries, hedge_after: hedge.map(ms) }
    }
}

prop_compose! {
    fn scenario()(
        arrivals in arrivals(),
        size in size(),
        warm_up in 0..300_u64,
        nodes in prop::collection::vec(group(), 1..4),
        dispatchers in dispatchers(),
        signals in signals(),
        transfer in maybe(transfers()),
        hop_us in 0..3000_u64,
        costs_us in (0..50_u64, 0..300_u64, 0..300_u64),
        patience in patience(),
    ) -> Scenario {
        let us = Duration::from_micros;
        Scenario {
            arrivals,
            size,
            duration: ms(700),
            warm_up: ms(warm_up),
            nodes,
            dispatchers,
            signals,
            steering: None,
            transfer,
            costs: Costs { pick: us(costs_us.0), transfer: us(costs_us.1), report: us(costs_us.2) },
            hop: us(hop_us / 1000 * 1000),
            patience,
        }
    }
}

fn ends(run: &Run) -> u64 {
    run.done + run.failed.iter().sum::<u64>() + run.rejected + run.unfinished
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_job_has_one_end(
        scenario in scenario(),
        policy in prop::sample::select(&Policy::ALL[..]),
        is_central in prop::bool::weighted(0.1),
        seed in any::<u64>(),
    ) {
        let settings = Settings { policy, ..Settings::default() };
        let dispatch = if is_central { Dispatch::Central } else { Dispatch::Scheduler(settings) };
        let run = simulate(&scenario, &dispatch, seed);
        prop_assert_eq!(run.arrived, ends(&run));
        prop_assert_eq!(run.response.len(), run.done + run.failed[evener_model::Outcome::Timeout.index()]);
        for node in &run.nodes {
            prop_assert!(node.utilisation <= 1.0 + 1e-9, "{}", node.utilisation);
        }
        let again = simulate(&scenario, &dispatch, seed);
        prop_assert_eq!(format!("{run:?}"), format!("{again:?}"));
    }
}
