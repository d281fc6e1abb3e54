#![no_main]

#[path = "../src/ipvs.rs"]
#[allow(dead_code)]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::ipvs(bytes));
