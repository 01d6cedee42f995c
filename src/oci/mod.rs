//! The OCI runtime: containers by the commands that engines call.
//!
//! [`bundle`] reads a `config.json`, [`state`] keeps what is known of a container between commands,
//! `create`, `start`, `exec` and the others are the commands. What a container is made of has a module
//! each: [`rootfs`] its mounts, [`cgroup`] its cgroups, [`seccomp`] its filter. Unsafe code is in `sys`.

pub mod cgroup;
pub mod error;
pub mod rootfs;
pub mod seccomp;
mod sys;

pub use error::{Context, Error, Result};
