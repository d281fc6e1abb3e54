#![no_main]

#[path = "../src/recordings.rs"]
mod recordings;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| recordings::recording(bytes));
