//! Why HAProxy cannot be steered.

use std::io;
use std::time::Duration;

use thiserror::Error;

use super::answer::{ANSWER_BYTES_MAX, AnswerError};
use super::socket::Endpoint;

/// Why HAProxy cannot be steered. It goes on with what it has.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HaproxyError {
    /// Nobody is there.
    #[error("cannot connect to HAProxy at {0}: {1}")]
    Connect(Endpoint, io::Error),
    /// The connection broke.
    #[error("the connection to HAProxy at {0} broke: {1}")]
    Lost(Endpoint, io::Error),
    /// It ended.
    #[error("HAProxy at {0} ended the connection before it had answered")]
    Closed(Endpoint),
    /// It says nothing.
    #[error("HAProxy at {0} has not answered within {1:?}")]
    Late(Endpoint, Duration),
    /// It says too much.
    #[error("HAProxy at {0} has answered with more than {max} bytes", max = ANSWER_BYTES_MAX)]
    Long(Endpoint),
    /// Another program is there.
    #[error("what listens at {0} does not speak HAProxy's runtime API")]
    Stranger(Endpoint),
    /// It says what is not understood, or that it will not.
    #[error("HAProxy at {0}: {1}")]
    Answer(Endpoint, AnswerError),
    /// A process that has handed over to another still listens.
    #[error("HAProxy at {0} (process {1}) is stopping: its successor does not listen yet")]
    Stopping(Endpoint, u32),
}
