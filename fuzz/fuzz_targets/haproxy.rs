#![no_main]

#[path = "../src/haproxy.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::haproxy(bytes));
