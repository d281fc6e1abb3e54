use serde::Serialize;

/// Something that could not be measured, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// What: a part of the host, or the name of a source.
    pub source: String,
    /// Why, in a sentence.
    pub reason: String,
}
