//! Running a program under a policy on macOS, held by its sandbox (Seatbelt).
//!
//! What the profile says is [`lower::seatbelt`](crate::lower::seatbelt), which is pure; here it is applied, in
//! the program's own process, between fork(2) and execve(2). Nothing of this has run on a Mac: it is compiled
//! and linked for one, and the profile is held to the policy by the tests of every platform.

mod denials;
pub mod doctor;
pub mod launch;
mod shortfall;
#[allow(unsafe_code, reason = "libsandbox and the C library are called here")]
mod sys;

pub use shortfall::refuse;
