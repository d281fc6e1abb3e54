use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::{Arrivals, Dispatch, NodeGroup, Scenario, Size, Trace, simulate};

type Figures = (Option<f64>, Option<f64>, Option<f64>);

/// What comes of a paper with little effort: the same in any number of threads, each row once, and with a reason.
fn trial(paper: Paper) -> Vec<Row> {
    let run = |threads| paper.reproduce(Effort::Trial, NonZeroUsize::new(threads).unwrap(), &|_| {});
    let rows = run(2);
    assert_eq!(rows, run(3));
    let mut names: Vec<&str> = rows.iter().map(|row| &*row.row).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    for row in &rows {
        assert_eq!(row.paper, paper.number());
        assert!(!row.note.is_empty(), "{}", row.row);
        let compared = row.tolerance.is_some() && row.paper_value.is_some() && row.ours.is_some();
        assert_eq!(row.verdict != Verdict::NotReproduced, compared, "{}", row.row);
    }
    rows
}

fn figures(rows: &[Row], names: &[&str]) -> Vec<Figures> {
    let find =
        |name: &&str| rows.iter().find(|row| row.row == *name).unwrap_or_else(|| panic!("no row {name}"));
    names.iter().map(find).map(|row| (row.low, row.ours, row.high)).collect()
}

#[test]
fn papers_are_found_by_their_numbers() {
    for paper in Paper::ALL {
        assert_eq!(paper.number().parse(), Ok(paper));
    }
    assert_eq!("002".parse::<Paper>(), Err(UnknownPaper));
}

#[test]
fn four_jobs_on_two_nodes_take_as_long_as_in_the_simulator() {
    let node = Scenario {
        arrivals: Arrivals::Trace(Arc::new(Trace {
            at_nanos: vec![0; 4],
            work_nanos: vec![24_000_000, 8_000_000, 6_000_000, 2_000_000],
            keys: Vec::new(),
        })),
        size: Size::Fixed { mean: Duration::from_secs(1) },
        duration: Duration::from_secs(1),
        warm_up: Duration::ZERO,
        nodes: vec![NodeGroup { concurrency: Some(0), ..NodeGroup::default() }],
        dispatchers: Default::default(),
        signals: Default::default(),
        steering: None,
        transfer: None,
        costs: Default::default(),
        hop: Duration::ZERO,
        patience: Default::default(),
    };
    let run = simulate(&node, &Dispatch::Central, 1);
    let ends = makespan::ends(&[24.0, 8.0, 6.0, 2.0]);
    assert_eq!(ends, [8.0, 20.0, 24.0, 40.0]);
    assert!((run.response_sum_nanos as f64 / 1e6 - ends.iter().sum::<f64>()).abs() < 1e-5);
}

#[test]
fn database() {
    let rows = trial(Paper::Database);
    let makespan = rows.iter().filter(|row| row.row.starts_with("sec3.1/"));
    assert!(makespan.clone().count() == 18 && makespan.clone().all(|row| row.verdict == Verdict::Within));
    let names = ["fig6.1/rr/longdisk(5)/throughput", "fig6.8/jis/longdisk(5)/response"];
    let golden: [Figures; 2] =
        [(Some(0.634921), Some(0.634921), Some(0.634921)), (Some(0.87361), Some(0.87361), Some(0.87361))];
    assert_eq!(figures(&rows, &names), golden);
}

#[test]
fn distance() {
    let rows = trial(Paper::Distance);
    let names = ["table2/RR/40", "table3/LL/280", "table4/N/360", "fig3/N/16", "fig11/N-over-CT/16"];
    let golden: [Figures; 5] = [
        (Some(27.9062), Some(43.322), Some(58.7377)),
        (Some(-116.449), Some(58.2024), Some(232.853)),
        (Some(-71.7803), Some(60.6396), Some(193.059)),
        (Some(320.0), Some(320.0), Some(320.0)),
        (Some(-169.692), Some(14.4962), Some(198.685)),
    ];
    assert_eq!(figures(&rows, &names), golden);
}

#[test]
fn feedback() {
    let rows = trial(Paper::Feedback);
    let names = ["fig6/gap/640", "fig8/gap/640", "fig3/responses/2880", "sec5/load-at-99.5"];
    let golden: [Figures; 4] = [
        (Some(3.76853), Some(65.9921), Some(128.216)),
        (Some(11.8986), Some(33.4524), Some(55.0061)),
        (Some(2010.87), Some(2913.0), Some(3815.13)),
        (Some(1.0), Some(1.0), Some(1.0)),
    ];
    assert_eq!(figures(&rows, &names), golden);
}

#[test]
fn key_value() {
    let rows = trial(Paper::KeyValue);
    let names = ["throughput/1/1", "time/3/4", "sec5/knee"];
    let golden: [Figures; 3] = [
        (Some(1688.23), Some(1900.0), Some(2111.77)),
        (Some(17.4762), Some(18.0513), Some(18.6263)),
        (Some(12.0), Some(12.0), Some(12.0)),
    ];
    assert_eq!(figures(&rows, &names), golden);
}
