//! What several policies are made of.

mod board;
mod census;
mod probes;
mod ranking;
mod ring;
mod roster;
mod sampler;
mod tokens;
mod tournament;

pub(crate) use board::Board;
pub(crate) use census::Census;
pub(crate) use probes::Probes;
pub(crate) use ranking::{Measure, Rank, Ranking, cost};
pub(crate) use ring::Ring;
pub(crate) use roster::{Entry, Roster, by_key};
pub(crate) use sampler::Sampler;
pub(crate) use tokens::Tokens;
pub(crate) use tournament::Tournament;
