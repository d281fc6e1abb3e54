use super::*;

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
