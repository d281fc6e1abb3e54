//! Reports for a director that is a part of another program.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::director::Director;
use crate::feedback::{Feedback, TransportError};

/// Hears reports, and lets weights follow, as a director's configuration says, until it is dropped.
///
/// A director of [`run`](crate::run) has this already.
#[derive(Debug)]
pub struct Hearing(Feedback);

impl Hearing {
    /// Opens what is to be listened to, and serves it in the runtime in which this is called.
    ///
    /// # Errors
    /// What cannot be opened or read.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(director: &Arc<Director>) -> Result<Hearing, TransportError> {
        let mut feedback = Feedback::start(director);
        let opened = feedback.open(&director.config(), &mut BTreeMap::new())?;
        feedback.follow(director, Some(opened));
        Ok(Hearing(feedback))
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        self.0.stop();
    }
}
