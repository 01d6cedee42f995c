//! Linux: Landlock and a seccomp broker.
//!
//! [`launch`] is the life of a run from the prepared plan to the exit code.

mod broker;
pub mod cgroup;
pub mod doctor;
mod filter;
pub mod host;
pub mod how;
mod inherited;
mod landlock;
pub mod launch;
mod limits;
pub mod namespace;
pub mod net;
mod oom;
mod supervise;
pub mod sys;
mod tmpdir;

pub use broker::{Guest, NAMESPACES, namespaces};
