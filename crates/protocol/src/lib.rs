//! Protocol parsers and state machines over byte slices, without I/O.
