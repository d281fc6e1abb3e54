#![no_main]

#[path = "../src/load.rs"]
#[allow(dead_code)]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::load_netlink(bytes));
