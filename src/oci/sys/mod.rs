//! Small safe wrappers around what `rustix` lacks: a file for each user.
#![allow(unsafe_code)]

pub mod bpf;
pub mod mount;
pub mod signal;
