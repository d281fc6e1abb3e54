//! `evener sim --paper` as its users meet it. What the rows say is tested where they are made.

use std::process::{Command, Output};

use serde_json::Value;

fn sim(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_evener")).arg("sim").args(args).output().unwrap()
}

#[test]
fn a_row_is_an_object_on_a_line() {
    let out = sim(&["--paper", "001", "--quick", "--json"]);
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let keys = "paper row quantity unit paper_value ours low high tolerance verdict note";
    for row in &rows {
        assert!(keys.split(' ').all(|key| row.get(key).is_some()), "{row}");
        assert_eq!(row["paper"], "001");
        assert!(["within", "outside", "not-reproduced"].contains(&row["verdict"].as_str().unwrap()));
    }
    assert!(rows.iter().any(|row| row["row"] == "throughput/3/4" && row["paper_value"] == 17065.0));
}

#[test]
fn a_paper_is_no_scenario() {
    for wrong in [&["--paper", "002"][..], &["--paper", "001", "a.toml"], &["--paper", "001", "--seeds", "3"]]
    {
        assert_eq!(sim(wrong).status.code(), Some(2), "{wrong:?}");
    }
}
