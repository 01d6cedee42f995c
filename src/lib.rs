//! Run a command, or an OCI container, under a sandbox policy.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod cli;
pub mod learn;
#[cfg(target_os = "linux")]
pub mod linux;
pub mod lower;
#[cfg(target_os = "macos")]
pub mod macos;
#[cfg(target_os = "linux")]
pub mod oci;
pub mod plan;
pub mod policy;
pub mod trap;
#[cfg(windows)]
pub mod windows;
