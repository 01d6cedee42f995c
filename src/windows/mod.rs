//! Running a program under a policy on Windows, held by an AppContainer and a job object.
//!
//! What is granted is [`lower::appcontainer`](crate::lower::appcontainer), which is pure; here it is done to
//! the host, written down before in a journal, and taken back after the last process of the run has ended.
//! Nothing of this has run on Windows: it is compiled, linted and linked for it, and what wine does as Windows
//! does has been run there.

pub mod doctor;
mod grants;
pub mod launch;
mod refuse;
#[allow(unsafe_code, reason = "the functions of Windows are called here")]
pub mod sys;

pub use refuse::{plan, refuse};
