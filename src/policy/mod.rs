//! The policy engine: from documents to one decision function.
//!
//! ```text
//! bytes --parse--> Document --merge--> Policy --resolve(Place)--> ResolvedPolicy --> Decider
//! ```
//!
//! This module is pure: it holds no state of the host, knows no operating system, and learns
//! about the filesystem only through an [`FsView`] that the caller gives.
//!
//! Whatever a document holds, the work is bounded: 4 MiB, 64 levels and 200,010 values
//! ([`node`]), 20,000 expanded globs a document ([`mod@parse`]), 100,000 rules ([`mod@resolve`]).
//! More is refused, and says so.
//!
//! Words: a *rule* allows or denies one access to what its *pattern* matches; a *grant* is access
//! given; to *carve* is to find the subtrees that can be granted whole around the denials; an
//! *origin* is the file, line and key that a rule comes from.

mod anchor;
pub mod carve;
pub(crate) mod component;
pub mod daemon;
pub mod decide;
pub mod document;
pub mod endpoint;
pub mod error;
#[cfg(test)]
mod fixtures;
mod git;
pub mod glob;
pub(crate) mod host;
pub mod hosts;
mod index;
mod keys;
mod merge;
pub mod node;
pub mod parse;
pub mod path;
pub mod resolve;
pub mod resolved;
pub mod rule;
pub mod shipped;
#[cfg(test)]
pub(crate) mod testing;
mod tighten;
pub mod view;

pub use daemon::Daemons;
pub use decide::{Decider, Reason, Verdict};
pub use document::{
    AppContainerMode, Document, Entry, Filesystem, Ignored, Limits, Macos, NetworkDocument, Paths,
    Policy, Spelling, Windows,
};
pub use endpoint::{Closed, Endpoints, Passage, Use};
pub use error::PolicyError;
pub(crate) use git::git_dir_rules;
pub use glob::Glob;
pub use hosts::{Host, Hosts, Reachable, Unreachable};
pub use merge::merge;
pub use parse::{Format, parse};
pub use resolve::{Place, resolve, resolve_executable};
pub use resolved::{Linked, Network, ResolvedPolicy};
pub use rule::{ATTRIBUTE, Access, Effect, Located, Origin, Pattern, Rule};
pub use tighten::tighten;
pub use view::{FsView, Kind, MemoryTree};
