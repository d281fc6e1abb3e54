//! The commands of the README, word for word.

use std::net::SocketAddr;

use evener_tests::clients::curl;
use evener_tests::director::{Director, evener, texts};
use evener_tests::free_address;
use evener_tests::nginx::Nginx;

fn run(listen: &str, to: &[String], further: &[&str]) -> Director {
    let mut arguments = vec!["run", "--listen", listen];
    arguments.extend(to.iter().flat_map(|node| ["--to", node.as_str()]));
    arguments.extend(further);
    Director::start_from_arguments(&arguments)
}

fn answers(address: SocketAddr, count: usize) -> Vec<String> {
    (0..count).map(|_| curl(&[&format!("http://{address}/")]).trim().to_owned()).collect()
}

#[test]
fn round_robin_with_one_worker_alternates() {
    let nginx = Nginx::start(&["a", "b"]);
    let address = free_address();
    let to: Vec<_> = nginx.addresses.iter().map(SocketAddr::to_string).collect();
    let _director = run(&format!("http://{address}"), &to, &["--scheduler", "round-robin", "--workers", "1"]);
    let answers = answers(address, 6);
    let expected = if answers[0] == "a" { ["a", "b"] } else { ["b", "a"] };
    assert_eq!(answers, expected.repeat(3));
}

#[test]
fn weights_and_names_are_given_with_the_node() {
    let nginx = Nginx::start(&["a", "b"]);
    let address = free_address();
    let to =
        [format!("{},weight=3,name=rat", nginx.addresses[0]), format!("{},max_jobs=9", nginx.addresses[1])];
    let director = run(&format!("http://{address}"), &to, &["--scheduler", "wrr", "--workers", "1"]);
    let answers = answers(address, 8);
    assert_eq!(answers.iter().filter(|&answer| answer == "a").count(), 6, "{answers:?}");
    let pool = &director.json("/pools")["pools"][0];
    assert_eq!(pool["nodes"][0]["name"], "rat");
    assert_eq!(pool["nodes"][1]["name"], nginx.addresses[1].to_string());
}

#[test]
fn tcp_and_http_listeners_stand_beside_each_other() {
    let nginx = Nginx::start(&["a"]);
    let (http, tcp) = (free_address(), free_address());
    let second = format!("tcp://{tcp}");
    let _director = run(&format!("http://{http}"), &[nginx.address().to_string()], &["--listen", &second]);
    assert_eq!(answers(http, 1), ["a"]);
    assert_eq!(answers(tcp, 1), ["a"]);
}

#[test]
fn wrong_usage_ends_with_2_and_says_what_was_expected() {
    let cases: [&[&str]; 5] = [
        &["run", "--listen", "http://127.0.0.1:1"],
        &["run", "--listen", "gopher://127.0.0.1:1", "--to", "127.0.0.1:2"],
        &["run", "--listen", "http://127.0.0.1:1", "--to", "127.0.0.1:2,wieght=3"],
        &["run", "--listen", "http://127.0.0.1:1", "--to", "127.0.0.1:2", "--scheduler", "round-rabin"],
        &["ruin"],
    ];
    for arguments in cases {
        let output = evener(arguments);
        let (_, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(!stderr.is_empty() && !stderr.contains("panicked"), "{arguments:?}: {stderr}");
    }
    let (_, stderr) = texts(&evener(cases[3]));
    assert!(stderr.contains("round-robin"), "the nearest name is suggested: {stderr}");
}

#[test]
fn every_command_has_help_with_an_example() {
    for command in ["run", "check", "ctl", "explain", "demo"] {
        let output = evener(&[command, "--help"]);
        let (stdout, _) = texts(&output);
        assert_eq!(output.status.code(), Some(0));
        assert!(stdout.contains(&format!("evener {command}")), "{stdout}");
    }
}
