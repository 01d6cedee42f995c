#![no_main]

#[path = "../targets.rs"]
#[allow(dead_code)] // this takes one of them
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::profiles(data));
