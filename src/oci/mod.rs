//! The OCI runtime.

pub mod seccomp;
