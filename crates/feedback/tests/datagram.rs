//! Reports in datagrams.

use std::time::Duration;

use evener_feedback::datagram::{DATAGRAM_BYTES_MAX, Dropped, Key, Receiver, Sender, TooLong};
use evener_feedback::json::Said;

const WINDOW: Duration = Duration::from_secs(30);

/// So many seconds after some day in 2026.
fn unix(seconds: u64) -> Duration {
    Duration::from_secs(1_790_000_000 + seconds)
}

fn key() -> Key {
    Key::new(b"thirty-two bytes, or nearly that")
}

fn receiver() -> Receiver {
    Receiver::new(vec![key()], WINDOW, 3)
}

fn said(jobs: u32) -> Said {
    Said { jobs: Some(jobs), ..Said::default() }
}

fn datagram(sender: &mut Sender, at: Duration, jobs: u32) -> Vec<u8> {
    let mut out = Vec::new();
    sender.write(at, &[said(jobs)], &mut out).expect("short");
    out
}

fn sender(node: &str) -> Sender {
    Sender::new(key(), node).expect("a name")
}

fn counts(receiver: &Receiver) -> Vec<u64> {
    receiver.dropped().map(|(_, count)| count).collect()
}

#[test]
fn what_a_node_says_is_heard_under_its_name() {
    let mut out = vec![7];
    let mut rat = sender("rat");
    rat.write(unix(0), &[Said { node: Some("mole".into()), ..said(1) }, said(2)], &mut out).unwrap();
    let heard = receiver().received(unix(1), &out[1..]).unwrap();
    let name = Some("rat".to_owned());
    assert_eq!(heard, [Said { node: name.clone(), ..said(1) }, Said { node: name, ..said(2) }]);
}

#[test]
fn whatever_bit_is_changed_it_is_dropped() {
    let good = datagram(&mut sender("rat"), unix(0), 1);
    for bit in 0..good.len() * 8 {
        let mut changed = good.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let dropped = receiver().received(unix(0), &changed).unwrap_err();
        assert!(matches!(dropped, Dropped::Signature | Dropped::Form), "bit {bit}: {dropped:?}");
    }
    for length in 0..good.len() {
        assert!(receiver().received(unix(0), &good[..length]).is_err());
    }
    let mut receiver = Receiver::new(vec![Key::new(b"another")], WINDOW, 3);
    assert_eq!(receiver.received(unix(0), &good), Err(Dropped::Signature));
    assert_eq!(counts(&receiver), [0, 1, 0, 0, 0, 0]);
}

#[test]
fn a_recording_is_dropped_whenever_it_is_sent() {
    let (mut receiver, mut rat) = (receiver(), sender("rat"));
    let first = datagram(&mut rat, unix(0), 1);
    let second = datagram(&mut rat, unix(1), 2);
    assert!(receiver.received(unix(1), &second).is_ok());
    assert_eq!(receiver.received(unix(1), &first), Err(Dropped::Replay), "overtaken");
    assert_eq!(receiver.received(unix(1), &second), Err(Dropped::Replay));
    assert_eq!(receiver.received(unix(31), &second), Err(Dropped::Replay));
    assert_eq!(receiver.received(unix(32), &second), Err(Dropped::Time));
    assert_eq!(counts(&receiver), [0, 0, 1, 3, 0, 0]);
}

#[test]
fn a_clock_may_be_wrong_by_the_window() {
    for (sent, heard) in [(0, 30), (30, 0)] {
        assert!(receiver().received(unix(heard), &datagram(&mut sender("rat"), unix(sent), 1)).is_ok());
    }
    for (sent, heard) in [(0, 31), (31, 0), (0, 4_000_000)] {
        let late = datagram(&mut sender("rat"), unix(sent), 1);
        assert_eq!(receiver().received(unix(heard), &late), Err(Dropped::Time));
    }
}

#[test]
fn a_clock_that_is_set_back_does_not_silence_a_node() {
    let (mut receiver, mut rat) = (receiver(), sender("rat"));
    assert!(receiver.received(unix(100), &datagram(&mut rat, unix(100), 1)).is_ok());
    assert!(receiver.received(unix(100), &datagram(&mut rat, unix(100), 2)).is_ok(), "the same microsecond");
    assert!(receiver.received(unix(80), &datagram(&mut rat, unix(80), 3)).is_ok());
}

#[test]
fn more_nodes_than_can_be_remembered_are_not_let_in() {
    let mut receiver = receiver();
    for name in ["a", "b", "c"] {
        assert!(receiver.received(unix(0), &datagram(&mut sender(name), unix(0), 1)).is_ok());
    }
    let fourth = datagram(&mut sender("d"), unix(1), 1);
    assert_eq!(receiver.received(unix(1), &fourth), Err(Dropped::Crowded));
    assert_eq!(
        receiver.received(unix(30), &fourth),
        Err(Dropped::Crowded),
        "a recording of the others would pass yet"
    );
    assert!(receiver.received(unix(31), &fourth).is_ok());
}

#[test]
fn keys_can_be_changed_while_running() {
    let mut receiver = Receiver::new(vec![Key::new(b"new"), key()], WINDOW, 3);
    assert!(receiver.received(unix(0), &datagram(&mut sender("rat"), unix(0), 1)).is_ok());
    let mut renewed = Sender::new(Key::new(b"new"), "rat").unwrap();
    assert!(receiver.received(unix(1), &datagram(&mut renewed, unix(1), 1)).is_ok());
}

#[test]
fn what_does_not_fit_is_not_sent() {
    assert!(Sender::new(key(), "").is_none() && Sender::new(key(), &"x".repeat(254)).is_none());
    let mut out = vec![1, 2];
    let mut rat = sender("rat");
    assert_eq!(rat.write(unix(0), &vec![said(1_000_000); 100], &mut out), Err(TooLong));
    assert_eq!(out, [1, 2]);
    let fits = (1..100)
        .take_while(|&n| rat.write(unix(n), &vec![said(1_000_000); n as usize], &mut Vec::new()).is_ok());
    assert!(fits.count() > 50);
    assert_eq!(receiver().received(unix(0), &[0; DATAGRAM_BYTES_MAX + 1]), Err(Dropped::Form));
}

#[test]
fn bad_reports_are_counted_apart() {
    let (mut receiver, mut rat) = (receiver(), sender("rat"));
    let mut out = Vec::new();
    rat.write(unix(0), &[Said { health: Some(200), ..Said::default() }], &mut out).unwrap();
    assert_eq!(receiver.received(unix(0), &out), Err(Dropped::Reports));
    assert_eq!(counts(&receiver), [0, 0, 0, 0, 0, 1]);
    assert_eq!(Dropped::ALL.map(Dropped::name)[5], "reports");
}
