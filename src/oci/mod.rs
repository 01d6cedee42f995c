//! The OCI runtime: containers by the commands that engines call.
//!
//! [`bundle`] reads a `config.json`, [`state`] keeps what is known of a container between commands,
//! [`create`], [`lifecycle`] and the others are the commands. What a container is made of has a module
//! each: [`rootfs`] its mounts, [`cgroup`] its cgroups, [`seccomp`] its filter, `process` its program.
//! `init` is the order in which the new process puts them on. Unsafe code is in `sys`.

pub mod attach;
pub mod bundle;
pub mod cgroup;
mod channel;
mod console;
pub mod create;
pub mod error;
pub mod exec;
mod hooks;
mod init;
mod label;
pub mod landlock;
pub mod lifecycle;
mod listener;
mod locate;
mod mapping;
mod namespaces;
mod netdevices;
mod notify;
mod path;
pub mod policy;
mod process;
pub mod rootfs;
pub mod runtime;
mod schedule;
pub mod sealed;
pub mod seccomp;
pub mod signal;
mod sources;
pub mod state;
mod sys;
pub mod traps;

pub use error::{Context, Error, Result};
