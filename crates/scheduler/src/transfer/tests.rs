use super::*;
use crate::rng::Rng;

fn plan(transfer: Transfer, own: u32, jobs: &[u32], kept: u32) -> Vec<Move> {
    let mut moves = Vec::new();
    transfer.plan(NodeId(own), jobs, kept, &mut moves);
    moves
}

/// What nodes have after all decided at the same moment, from the same view.
fn after(transfer: Transfer, jobs: &[u32], kept: u32) -> Vec<u32> {
    let mut result = jobs.to_vec();
    for own in 0..jobs.len() {
        for Move { to, jobs } in plan(transfer, own as u32, jobs, kept) {
            result[own] -= jobs;
            result[to.0 as usize] += jobs;
        }
    }
    result
}

fn state(rng: &mut Rng) -> (Vec<u32>, u32) {
    let nodes = 2 + rng.below(20);
    let most = 1 + rng.below(40);
    let jobs = (0..nodes).map(|_| rng.below(most + 1) as u32).collect();
    (jobs, rng.below(4) as u32)
}

#[test]
fn the_example_of_the_paper() {
    let jobs = [4, 6, 2, 1, 2, 4, 0, 1];
    let to = |to, jobs| Move { to: NodeId(to), jobs };
    assert_eq!(plan(Transfer::Nearest, 0, &jobs, 1), [to(7, 1)]);
    assert_eq!(plan(Transfer::Nearest, 1, &jobs, 1), [to(3, 2), to(6, 1)]);
    assert_eq!(plan(Transfer::Nearest, 5, &jobs, 1), [to(6, 1)]);
    for own in [2, 3, 4, 6, 7] {
        assert_eq!(plan(Transfer::Nearest, own, &jobs, 1), []);
    }
    assert_eq!(after(Transfer::Nearest, &jobs, 1), [3, 3, 2, 3, 2, 3, 2, 2]);
}

#[test]
fn two_nodes() {
    assert_eq!(after(Transfer::Nearest, &[9, 0], 1), [5, 4]);
    assert_eq!(after(Transfer::Nearest, &[0, 9], 1), [4, 5]);
    assert_eq!(after(Transfer::NearestExact, &[9, 0], 1), [5, 4]);
    assert_eq!(after(Transfer::LeastLoaded, &[9, 0], 1), [5, 4]);
    assert_eq!(after(Transfer::Nearest, &[9, 0], 8), [8, 1]);
    for transfer in Transfer::ALL {
        assert_eq!(after(transfer, &[1, 0], 1), [1, 0]);
        assert_eq!(after(transfer, &[0, 0], 1), [0, 0]);
        assert_eq!(plan(transfer, 0, &[7], 1), []);
        assert_eq!(plan(transfer, 2, &[7, 0], 1), []);
    }
}

#[test]
fn nothing_in_service_leaves_and_no_job_is_lost() {
    let mut rng = Rng::new(1);
    for _ in 0..30_000 {
        let (jobs, kept) = state(&mut rng);
        for transfer in Transfer::ALL {
            for own in 0..jobs.len() {
                let moves = plan(transfer, own as u32, &jobs, kept);
                let given: u32 = moves.iter().map(|step| step.jobs).sum();
                assert!(given <= jobs[own].saturating_sub(kept), "{transfer} {jobs:?} {own} {moves:?}");
                assert!(moves.iter().all(|step| step.jobs > 0 && step.to != node(own)));
            }
        }
    }
}

#[test]
fn exact_targets_are_never_passed() {
    let mut rng = Rng::new(2);
    for _ in 0..100_000 {
        let (jobs, kept) = state(&mut rng);
        let sum: u32 = jobs.iter().sum();
        let n = jobs.len() as u32;
        let ended = after(Transfer::NearestExact, &jobs, kept);
        for (before, after) in jobs.iter().zip(&ended) {
            assert!(*after <= (*before).max(sum.div_ceil(n)), "{jobs:?} to {ended:?}");
            // A giver keeps at least its target.
            assert!(*after >= (*before).min(sum / n), "{jobs:?} to {ended:?}");
        }
        // Where all may leave, all end at their targets.
        if kept == 0 {
            let above = ended.iter().filter(|jobs| **jobs == sum / n + 1).count() as u32;
            assert!(
                ended.iter().all(|jobs| *jobs == sum / n || *jobs == sum / n + 1),
                "{jobs:?} to {ended:?}"
            );
            assert_eq!(above, sum % n);
        }
    }
}

#[test]
fn plain_rounding_passes_the_mean() {
    // What `n-exact` is for: each of these givers finds half a job of room, and they find the same room.
    let mut rng = Rng::new(3);
    let mut passed = 0;
    for _ in 0..10_000 {
        let (jobs, kept) = state(&mut rng);
        let mean_up = jobs.iter().sum::<u32>().div_ceil(jobs.len() as u32);
        let ended = after(Transfer::Nearest, &jobs, kept);
        passed += u32::from(jobs.iter().zip(&ended).any(|(was, is)| is > was && *is > mean_up));
    }
    assert!(passed > 0);
}

#[test]
fn names_are_read_back() {
    for transfer in Transfer::ALL {
        assert_eq!(transfer.name().parse(), Ok(transfer));
    }
    assert_eq!("ll".parse(), Ok(Transfer::LeastLoaded));
    assert!("nearest".parse::<Transfer>().is_err());
}
