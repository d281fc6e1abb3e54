//! What is wrong with a scenario is said at its place, with what to do.
//!
//! `bad_scenarios.txt` has the cases. Each replaces the line of [`GOOD`] that begins as it says after `@`, and then
//! says after `>` what is found. With `BLESS=1` what is found is written there.

use evener_sim::{Experiment, Located, Overrides};

const GOOD: &str = r#"policies = ["round-robin", "least-jobs"]
seeds = 2
duration = "10s"
arrivals = { kind = "poisson", rate = 50 }
size = { kind = "exponential", mean = "10ms" }
node = [{ speed = 1.0 }]
"#;

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bad_scenarios.txt");

#[test]
fn what_is_good_is_not_found_fault_with() {
    assert_eq!(found_in(GOOD), "");
}

#[test]
fn what_is_bad_is_said_where_it_stands() {
    let expected = std::fs::read_to_string(CASES).unwrap();
    let cases: Vec<String> = expected.trim().split("\n\n").map(case).collect();
    let found = cases.join("\n");
    if std::env::var_os("BLESS").is_some() {
        return std::fs::write(CASES, found).unwrap();
    }
    for (expected, found) in expected.trim().split("\n\n").zip(&cases) {
        assert_eq!(found.trim(), expected);
    }
}

/// A case with what is found.
fn case(case: &str) -> String {
    let said: Vec<&str> = case.lines().filter(|line| !line.starts_with("> ")).collect();
    let (first, replacement) = said.split_first().unwrap();
    let begin = first.strip_prefix("@ ").expect("a case says what it replaces");
    let replacement = replacement.join("\n");
    assert!(GOOD.lines().any(|line| line.starts_with(begin)), "{begin}");
    let lines = GOOD.lines().map(|old| if old.starts_with(begin) { &replacement } else { old });
    let text = lines.collect::<Vec<_>>().join("\n");
    let found = found_in(&text);
    assert!(!found.is_empty(), "nothing was found in:\n{text}");
    format!("{}\n{found}", said.join("\n"))
}

fn found_in(text: &str) -> String {
    let found = match Experiment::parse(text, &Overrides::default(), &mut |file| {
        Err(format!("{}: no such file", file.file))
    }) {
        Ok((_, warnings)) => warnings,
        Err(errors) => errors,
    };
    found.iter().map(|located| format!("> {}\n", shown(text, located))).collect()
}

fn shown(text: &str, located: &Located) -> String {
    let before = &text[..located.span.start];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap().chars().count() + 1;
    let finding = &located.finding;
    let warning = if finding.is_warning { "warning: " } else { "" };
    let key = if finding.key.is_empty() { String::new() } else { format!("{}: ", finding.key) };
    let help = finding.help.as_ref().map(|help| format!(" ({help})")).unwrap_or_default();
    format!("{line}:{column}: {warning}{key}{}{help}", finding.message)
}
