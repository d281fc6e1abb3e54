//! Both sides of a NECP connection, word by word.

mod exceptions;
mod keys;
mod pair;
mod services;
mod talk;
mod trouble;
mod values;
