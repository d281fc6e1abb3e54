//! The command line of Evener.

fn main() {}
