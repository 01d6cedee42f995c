//! Lowering: from a resolved policy to what a mechanism, or another runtime, reads. Pure.
//!
//! [`spec`] is the way to an OCI `config.json` and back. It speaks about a *host-root* bundle: one
//! whose root is the host's `/` and that asks for no namespace and no mount, which a launch needs no
//! privileges for. [`container`] makes of it one that other runtimes run as well, in a container that
//! shows the host's files. The launch reads the same three things in all forms, [`Run`]: `run -p .. -- CMD`
//! makes it of the command line, `run BUNDLE/` of the file.
//!
//! # What is said where
//!
//! OCI's own fields say what is true of such a run whoever launches it: arguments, environment, start
//! directory, user, capabilities, `noNewPrivileges`, the resources that `limits` asks for. The rest
//! is in the annotation [`spec::ENFORCEMENT`].
//!
//! `readonlyPaths`, `maskedPaths` and `mounts` are for other runtimes alone. They are mounts
//! (config-linux.md, "Masked Paths" and "Readonly Paths"), and say less than the policy does: a rule
//! holds on names that do not exist yet, has exceptions inside, and is no mount that shows.
//!
//! # Text
//!
//! JSON holds Unicode alone, while arguments and variables are bytes to the kernel. So [`Run`] holds
//! them as the system does, and the direct form hands them on unchanged; a bundle that could not say
//! them is refused when it is made, rather than holding something similar.

pub mod appcontainer;
mod check;
pub mod container;
pub mod seatbelt;
pub mod spec;
mod strict;
#[cfg(test)]
mod tests;

use std::ffi::OsString;

use crate::policy::ResolvedPolicy;

/// A program on the host's own root, under a policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// The program, as to be looked up in `PATH`, and its arguments.
    pub args: Vec<OsString>,
    /// The environment, `NAME=value`.
    pub env: Vec<OsString>,
    /// The policy. Its `cwd` is where the program starts.
    pub policy: ResolvedPolicy,
    /// Names of the shortfalls that are accepted.
    pub accept: Vec<String>,
}

/// Who launches: what a host-root run inherits and cannot choose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The supplementary groups.
    pub groups: Vec<u32>,
    /// The capabilities that the program will have, as `CAP_CHOWN`.
    pub capabilities: Vec<String>,
    /// Standard input is a terminal.
    pub terminal: bool,
}

/// Why a `config.json` is not launched, or cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The field at fault, like `linux.namespaces`.
    pub key: Option<String>,
    /// The line of the file, where it is not JSON of the right shape.
    pub line: Option<u32>,
    /// What is wrong with it.
    pub message: String,
}

impl Refusal {
    fn new(key: impl Into<String>, message: impl Into<String>) -> Refusal {
        Refusal { key: Some(key.into()), line: None, message: message.into() }
    }
}
