//! Arrivals as a file recorded them.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::document::{Document, Located, read};
use crate::scenario::{Arrivals, Scenario, Size, Trace};

/// A file that recorded jobs, and what of it is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceFile {
    /// `trace`, which is what told it from other arrivals.
    pub kind: String,
    /// Its path, as the scenario says it.
    pub file: String,
    /// Jobs of this pool only.
    pub pool: Option<String>,
    /// Whether how long jobs took is taken as their work; else the work is drawn from [`Scenario::size`].
    #[serde(default)]
    pub work: bool,
}

/// Reads what a [`TraceFile`] names, or says what is wrong with it.
pub type TraceReader<'r> = dyn FnMut(&TraceFile) -> Result<Trace, String> + 'r;

/// Takes the trace out of a document, if its arrivals are one, and fills its place so that the rest can be read.
pub(super) fn take(
    document: &mut Document<'_>,
    reader: &mut TraceReader<'_>,
) -> Result<Option<Taken>, Located> {
    let Some(arrivals) =
        document.value("arrivals").filter(|_| document.text("arrivals", "kind") == Some("trace"))
    else {
        return Ok(None);
    };
    let file: TraceFile = read(arrivals, "arrivals", &[])?;
    if file.work && document.has("size") {
        let help = "leave out `size`, or `work` of the trace".to_owned();
        return Err(document.error("size", "the trace says already how much work jobs are", Some(help)));
    }
    let trace = reader(&file).map_err(|wrong| document.error("arrivals.file", wrong, None))?;
    let taken = Taken { trace: Arc::new(trace), whole: !document.has("duration"), work: file.work };
    document.replace("arrivals", "{ kind = \"poisson\", rate = 1.0 }");
    if taken.whole {
        document.replace("duration", "\"1s\"");
    }
    if taken.work {
        document.replace("size", "{ kind = \"fixed\", mean = \"1s\" }");
    }
    Ok(Some(taken))
}

/// A trace that was taken out of a document.
pub(super) struct Taken {
    trace: Arc<Trace>,
    /// Whether all of it is wanted.
    whole: bool,
    work: bool,
}

impl Taken {
    /// Puts it into the scenario of the document.
    pub(super) fn put(self, scenario: &mut Scenario) {
        if self.work && !self.trace.work_nanos.is_empty() {
            let total: u128 = self.trace.work_nanos.iter().map(|nanos| u128::from(*nanos)).sum();
            let mean = total / self.trace.work_nanos.len() as u128;
            scenario.size =
                Size::Fixed { mean: Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX).max(1)) };
        }
        if self.whole {
            scenario.duration = end(&self.trace);
        }
        scenario.arrivals = Arrivals::Trace(self.trace);
    }
}

/// From the first job to right after the last.
pub(super) fn end(trace: &Trace) -> Duration {
    Duration::from_nanos(trace.at_nanos.last().map_or(1, |last| last.saturating_add(1)))
}
