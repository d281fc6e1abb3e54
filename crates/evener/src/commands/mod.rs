//! One file for each command.

pub(crate) mod agent;
pub(crate) mod check;
pub(crate) mod ctl;
pub(crate) mod demo;
pub(crate) mod explain;
pub(crate) mod load;
pub(crate) mod plan;
pub(crate) mod pools;
pub(crate) mod run;
pub(crate) mod sim;
pub(crate) mod sim_replay;
pub(crate) mod weigh;
