//! A recorded run replays, pick by pick; what is not a recording is refused, whatever its bytes.

mod run;

use evener_model::NodeId;
use evener_record::{EndReason, Entry, MAGIC, ReadError, ReplayError, VERSION, What};
use evener_scheduler::Policy;
use proptest::prelude::*;

use run::{Recording, each, read_error, record, replay};

#[test]
fn every_policy_replays_pick_by_pick() {
    for policy in Policy::ALL {
        for seed in 0..3 {
            assert_replays(policy, seed);
        }
    }
}

#[test]
fn large_pools_replay_too() {
    // Tables of hashes are the same for few nodes and many, and slow to build for a test.
    for policy in Policy::ALL.into_iter().filter(|policy| !policy.hashes()) {
        assert_replays(policy, 100);
    }
}

fn assert_replays(policy: Policy, seed: u64) {
    let replayed = replay(&record(policy, seed, 500), 1 << 16).unwrap();
    let [tally] = replayed.tallies() else { panic!("one pool, one policy") };
    assert!(tally.picks > 100, "{policy}: {} picks", tally.picks);
    assert_eq!(tally.equal, tally.picks, "{policy}, seed {seed}: {:?}", tally.first_difference);
}

#[test]
fn what_is_read_is_written_back_byte_for_byte() {
    for policy in [Policy::LeastJobs, Policy::Maglev] {
        let bytes = record(policy, 2, 1000);
        let mut again = Recording::new(1);
        each(&bytes, 999, |worker, entry| {
            again.put(worker.into(), entry);
            Ok(())
        })
        .unwrap();
        assert!(again.end(EndReason::Complete) == bytes, "{policy}");
    }
}

#[test]
fn a_choice_that_was_changed_is_found_and_nothing_else() {
    let bytes = record(Policy::LeastJobs, 1, 400);
    let mut forged = Recording::new(1);
    let mut picks = 0;
    let mut was = None;
    each(&bytes, 4096, |worker, entry| {
        let mut entry = entry.clone();
        if let What::Pick { choice: Ok(choice), .. } = &mut entry.what {
            picks += 1;
            if picks == 50 {
                was = Some(*choice);
                *choice = NodeId(choice.0 ^ 1);
            }
        }
        forged.put(worker.into(), &entry);
        Ok(())
    })
    .unwrap();
    let replayed = replay(&forged.end(EndReason::Complete), 4096).unwrap();
    let tally = &replayed.tallies()[0];
    let difference = tally.first_difference.as_ref().expect("a difference");
    let name = |node: NodeId| Ok(format!("n{node}"));
    assert_eq!(difference.replayed, name(was.unwrap()));
    assert_eq!(difference.recorded, name(NodeId(was.unwrap().0 ^ 1)));
    assert!(difference.nodes.iter().any(|node| Ok(&node.name) == difference.replayed.as_ref()));
    assert!(tally.equal < tally.picks);
}

#[test]
fn every_flipped_bit_is_noticed() {
    let bytes = record(Policy::TwoChoices, 5, 30);
    for place in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[place] ^= 1 << bit;
            assert!(read_error(&flipped).is_some(), "bit {bit} of byte {place} was flipped");
        }
    }
}

#[test]
fn every_cut_is_noticed() {
    let bytes = record(Policy::Random, 5, 100);
    for length in 0..bytes.len() {
        let error = read_error(&bytes[..length]);
        let expected = matches!(error, Some(ReadError::Cut { .. }))
            || (length == 0 && error == Some(ReadError::NotARecording));
        assert!(expected, "{length} bytes: {error:?}");
    }
}

#[test]
fn blocks_that_are_missing_or_too_many_are_noticed() {
    let bytes = record(Policy::Random, 5, 400);
    let frames = frames(&bytes);
    assert!(frames.len() > 5);
    let without = |left_out: usize| {
        let kept = frames.iter().enumerate().filter(|(number, _)| *number != left_out);
        kept.flat_map(|(_, frame)| frame.iter().copied()).collect::<Vec<u8>>()
    };
    for left_out in 1..frames.len() - 1 {
        let error = read_error(&without(left_out));
        assert!(matches!(error, Some(ReadError::Damaged { .. })), "{left_out}: {error:?}");
    }
    assert!(matches!(read_error(&[&bytes[..], b"!"].concat()), Some(ReadError::Trailing { .. })));
    let twice = [&bytes[..], frames.last().unwrap()].concat();
    assert!(matches!(read_error(&twice), Some(ReadError::Trailing { .. })));
}

/// The head, the blocks, the end.
fn frames(bytes: &[u8]) -> Vec<&[u8]> {
    let mut ends = vec![0, 10];
    while let Some(&at) = ends.last().filter(|at| **at < bytes.len()) {
        let length = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        ends.push(at + 8 + length as usize);
    }
    ends.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect()
}

#[test]
fn another_version_is_refused_by_its_number() {
    let mut bytes = record(Policy::Random, 5, 10);
    bytes[MAGIC.len()] = 7;
    assert_eq!(read_error(&bytes), Some(ReadError::Version { found: 7 }));
    assert_eq!(read_error(b"GET / HTTP/1.1\r\n"), Some(ReadError::NotARecording));
    assert_eq!(read_error(b"GET"), Some(ReadError::NotARecording));
    assert_eq!(VERSION, 1, "a new version must still refuse, or read, the old ones");
}

#[test]
fn what_no_director_can_have_recorded_is_refused() {
    let mut file = Recording::new(1);
    let event = evener_model::Event::Leave { node: NodeId(3) };
    let entry = Entry { pool: 9, now: evener_model::Time::ZERO, what: What::Event(event) };
    file.put(0, &entry);
    let error = replay(&file.end(EndReason::Complete), 4096).unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&ReplayError::Pool { worker: 0, pool: 9 }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = replay(&bytes, 64);
        let begun = [&MAGIC[..], &VERSION.to_le_bytes(), &bytes].concat();
        let _ = replay(&begun, 64);
    }

    #[test]
    fn pieces_of_any_size_read_the_same(seed in 0..50_u64, step in 1..400_usize) {
        let bytes = record(Policy::WeightedLeastJobs, seed, 150);
        let read = |step| {
            let mut lines = Vec::new();
            each(&bytes, step, |worker, entry| {
                lines.push(format!("{worker} {entry:?}"));
                Ok(())
            })
            .unwrap();
            lines
        };
        prop_assert_eq!(read(step), read(bytes.len()));
    }
}
