//! Signed pushes: who gets through, and what is dropped.

use std::time::Duration;

use evener_feedback::datagram::{Dropped, Key};
use evener_feedback::signature::{Signer, Verifier};
use proptest::prelude::*;

const NOW: Duration = Duration::from_secs(1_800_000_000);
const WINDOW: Duration = Duration::from_secs(30);
const BODY: &[u8] = b"{\"node\":\"rat\",\"load\":0.5}";

fn key(secret: &str) -> Key {
    Key::new(secret.as_bytes())
}

fn signer() -> Signer {
    Signer::new(key("ours"), "rat").expect("a name")
}

fn verifier(nodes_max: usize) -> Verifier {
    Verifier::new(vec![key("next"), key("ours")], WINDOW, nodes_max)
}

#[test]
fn what_is_signed_passes_once() {
    let (mut signer, mut verifier) = (signer(), verifier(8));
    let first = signer.sign(NOW, BODY);
    let second = signer.sign(NOW, BODY);
    assert_eq!(verifier.verify(NOW, &first, BODY), Ok("rat"));
    assert_eq!(verifier.verify(NOW, &first, BODY), Err(Dropped::Replay));
    assert_eq!(verifier.verify(NOW, &second, BODY), Ok("rat"));
    assert_eq!(verifier.verify(NOW, &first, BODY), Err(Dropped::Replay));
}

#[test]
fn the_form_does_not_change_unnoticed() {
    let header = signer().sign(NOW, BODY);
    assert_eq!(
        header,
        "v1 1800000000000000 f65c7abd6645dae0ff5268f90bb58becb514b7b4e9ba1d82c28cb61ce5bca982 rat"
    );
}

#[test]
fn what_another_signed_or_changed_is_dropped() {
    let mut verifier = verifier(8);
    let header = Signer::new(key("theirs"), "rat").expect("a name").sign(NOW, BODY);
    assert_eq!(verifier.verify(NOW, &header, BODY), Err(Dropped::Signature));
    let header = signer().sign(NOW, BODY);
    assert_eq!(verifier.verify(NOW, &header, b"{\"node\":\"rat\",\"load\":0.1}"), Err(Dropped::Signature));
    let other_name = header.replace(" rat", " mole");
    assert_eq!(verifier.verify(NOW, &other_name, BODY), Err(Dropped::Signature));
    let other_time = header.replace("v1 18", "v1 19");
    assert_eq!(verifier.verify(NOW, &other_time, BODY), Err(Dropped::Signature));
    assert_eq!(verifier.verify(NOW, &header, BODY), Ok("rat"));
}

#[test]
fn what_is_of_another_time_or_of_too_many_is_dropped() {
    let mut verifier = verifier(1);
    let old = signer().sign(NOW - WINDOW - Duration::from_micros(1), BODY);
    assert_eq!(verifier.verify(NOW, &old, BODY), Err(Dropped::Time));
    assert_eq!(verifier.verify(NOW, &signer().sign(NOW, BODY), BODY), Ok("rat"));
    let mut mole = Signer::new(key("ours"), "mole").expect("a name");
    assert_eq!(verifier.verify(NOW, &mole.sign(NOW, BODY), BODY), Err(Dropped::Crowded));
    let later = NOW + 2 * WINDOW;
    assert_eq!(verifier.verify(later, &mole.sign(later, BODY), BODY), Ok("mole"));
}

#[test]
fn names_that_a_header_cannot_hold_cannot_sign() {
    for name in ["", "a b", "a\n", "müll", &"x".repeat(254)] {
        assert!(Signer::new(key("ours"), name).is_none(), "{name:?}");
    }
}

proptest! {
    #[test]
    fn any_header_is_taken_or_refused(header in ".*", body: Vec<u8>) {
        prop_assert!(verifier(8).verify(NOW, &header, &body).is_err());
    }

    #[test]
    fn near_a_good_header_nothing_else_is(at in 0..90_usize, with in "[ -~]") {
        let header = signer().sign(NOW, BODY);
        let mut changed = header.clone();
        changed.replace_range(at.min(header.len() - 1)..=at.min(header.len() - 1), &with);
        // Upper case digits are the same digits.
        prop_assume!(!changed.eq_ignore_ascii_case(&header));
        prop_assert!(verifier(8).verify(NOW, &changed, BODY).is_err());
    }
}

#[test]
fn what_was_sent_before_anybody_listened_is_dropped() {
    let second = Duration::from_secs(1);
    let mut signer = signer();
    let early = signer.sign(NOW - second, BODY);
    let late = signer.sign(NOW + second, BODY);
    let mut verifier = verifier(8).not_before(NOW);
    assert_eq!(verifier.verify(NOW + second, &early, BODY), Err(Dropped::Time));
    assert_eq!(verifier.verify(NOW + second, &late, BODY), Ok("rat"));
}
