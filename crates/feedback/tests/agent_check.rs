//! HAProxy's agent-check, both ways.

use evener_feedback::agent_check::{Answer, Fault, LINE_BYTES_MAX, Mode, State};
use evener_model::{Health, Time};
use proptest::prelude::*;

fn parse(text: &str) -> Result<Option<Answer<'_>>, Fault> {
    Answer::parse(text.as_bytes(), false)
}

fn answer(text: &str) -> Answer<'_> {
    parse(text).expect("an answer").expect("all of it")
}

#[test]
fn each_word_has_its_meaning() {
    assert_eq!(answer("75%\n").weight_percent, Some(75));
    assert_eq!(answer("maxconn:30\n").jobs_max, Some(30));
    let modes = [("ready", Mode::Ready), ("drain", Mode::Drain), ("MAINT", Mode::Maintenance)];
    for (word, mode) in modes {
        assert_eq!(answer(&format!("{word}\n")).mode, Some(mode));
    }
    for (word, state) in [
        ("up", State::Up),
        ("Down", State::Down),
        ("fail", State::Failed),
        ("failed", State::Failed),
        ("stopped", State::Stopped),
    ] {
        assert_eq!(answer(&format!("{word}\r\n")).state, Some(state));
    }
}

#[test]
fn words_come_in_any_order_and_the_last_holds() {
    let all = Answer {
        weight_percent: Some(50),
        jobs_max: Some(9),
        mode: Some(Mode::Ready),
        state: Some(State::Down),
        description: "disk full, really",
    };
    assert_eq!(answer("up,10% maxconn:9\tdown 50%, ready # disk full, really\r\nnot read"), all);
    assert_eq!(all.to_string(), "ready down 50% maxconn:9 #disk full, really");
}

#[test]
fn an_answer_ends_with_its_line_or_the_connection() {
    assert_eq!(parse("up 7"), Ok(None));
    assert_eq!(parse(""), Ok(None));
    assert_eq!(Answer::parse(b"up 7%", true).unwrap().unwrap().weight_percent, Some(7));
    assert_eq!(answer("\r\n\nup\n").state, Some(State::Up));
    assert_eq!(Answer::parse(b"", true), Err(Fault::Empty));
    assert_eq!(Answer::parse(b"\n\n", true), Err(Fault::Empty));
    let long = "up ".repeat(LINE_BYTES_MAX);
    assert_eq!(parse(&long), Err(Fault::Length));
    assert_eq!(parse(&long[..LINE_BYTES_MAX]), Ok(None));
}

#[test]
fn what_means_nothing_is_refused() {
    assert_eq!(parse("fine\n"), Err(Fault::Word));
    assert_eq!(parse("weight:3\n"), Err(Fault::Word));
    assert_eq!(parse("#up\n"), Err(Fault::Empty));
    for number in ["%", "-1%", "+1%", "1.5%", "25601%", "maxconn:", "maxconn:x", "maxconn:4294967296"] {
        assert_eq!(parse(&format!("{number}\n")), Err(Fault::Number), "{number}");
    }
    assert_eq!(Answer::parse(b"up \xff\n", false), Err(Fault::Text));
}

#[test]
fn answers_mean_a_health() {
    let health = |text| answer(text).health().map(Health::value);
    assert_eq!(health("up 75%\n"), Some(75));
    assert_eq!(health("150%\n"), Some(100));
    assert_eq!(health("up\n"), None);
    for refusal in ["0%\n", "drain 50%\n", "maint\n", "down\n", "stopped 100%\n", "fail #no disk\n"] {
        assert_eq!(health(refusal), Some(0), "{refusal}");
    }
    let at = Time::from_nanos(7);
    assert_eq!(answer("20%\n").report(at).health, Some(Health::saturating(20)));
    let mut out = Vec::new();
    Answer::of_health(Health::NONE).write(&mut out);
    Answer::of_health(Health::FULL).write(&mut out);
    assert_eq!(out, b"up 0%\nup 100%\n");
}

#[test]
fn a_description_stays_on_its_line() {
    let long = "é".repeat(LINE_BYTES_MAX);
    for description in ["two\nlines", "\r", &long] {
        let mut out = Vec::new();
        Answer { state: Some(State::Down), description, ..Answer::default() }.write(&mut out);
        assert!(out.len() <= LINE_BYTES_MAX);
        assert_eq!(out.iter().filter(|&&b| b == b'\n').count(), 1);
        assert_eq!(Answer::parse(&out, false).unwrap().unwrap().state, Some(State::Down));
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        weight_percent in prop::option::of(0u16..=25_600),
        jobs_max: Option<u32>,
        mode in prop::option::of(prop::sample::select(vec![Mode::Ready, Mode::Drain, Mode::Maintenance])),
        state in prop::sample::select(vec![State::Up, State::Down, State::Failed, State::Stopped]),
        description in "[a-z#,%: é]{0,40}",
    ) {
        let description = description.trim();
        let answer = Answer { weight_percent, jobs_max, mode, state: Some(state), description };
        let mut out = Vec::new();
        answer.write(&mut out);
        prop_assert_eq!(Answer::parse(&out, false), Ok(Some(answer)));
    }
}
