#![no_main]

#[path = "../src/feedback.rs"]
#[allow(dead_code)]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::signature(bytes));
