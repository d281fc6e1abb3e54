#![no_main]

#[path = "../src/invariants.rs"]
#[allow(dead_code)]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::http1_chunked(bytes));
