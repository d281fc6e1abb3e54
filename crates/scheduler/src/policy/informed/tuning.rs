/// What `informed` goes by. Nobody should need to change it: these are here so that a simulation can show what
/// each is good for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// Jobs over which a node's pace is averaged, and what signs are worth.
    pub jobs_steady: f64,
    /// Jobs over which a change of pace shows, and late answers are averaged.
    pub jobs_recent: f64,
    /// Standard errors from which on a difference of pace is believed.
    pub errors: f64,
    /// A job that took this many times longer than was to be expected counts as one of this length.
    pub cap: f64,
    /// What was learned counts half after this many seconds without a job. A node that was slow
    /// and therefore got no jobs must be tried again.
    pub memory_s: f64,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning { jobs_steady: 1024.0, jobs_recent: 32.0, errors: 5.0, cap: 8.0, memory_s: 60.0 }
    }
}

/// How much a job itself counts where nodes are idle …
const OWN_PART_MAX: f64 = 1.0;
/// … and where none ever is.
const OWN_PART_MIN: f64 = 0.3;
/// Up to how many jobs on a node, in the mean, it counts wholly, and by how much less with each further one.
const JOBS_FEW: f64 = 0.3;
const PART_PER_JOB: f64 = 0.4;

impl Tuning {
    /// The nearest that makes sense: whatever a file says, scores must be numbers.
    pub(super) fn sound(self) -> Tuning {
        // Of a number and none, `max` takes the number.
        Tuning {
            jobs_steady: self.jobs_steady.max(1.0),
            jobs_recent: self.jobs_recent.max(1.0),
            errors: self.errors.max(0.0),
            cap: self.cap.max(1.0),
            memory_s: self.memory_s.max(1e-3),
        }
    }

    /// How much a job itself counts with so many jobs on a node, in the mean.
    pub(super) fn own_part(&self, jobs_mean: f64) -> f64 {
        (OWN_PART_MAX - PART_PER_JOB * (jobs_mean - JOBS_FEW)).clamp(OWN_PART_MIN, OWN_PART_MAX)
    }

    /// What is left of something learned, after so many seconds without a job.
    #[inline]
    pub(super) fn kept(&self, idle_s: f64) -> f64 {
        1.0 / (1.0 + idle_s / self.memory_s)
    }
}
