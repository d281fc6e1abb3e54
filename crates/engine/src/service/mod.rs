//! One room for each kind of job.

pub(crate) mod http;
pub(crate) mod tcp;
