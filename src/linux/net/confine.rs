//! What the helper gives up before it serves.

use crate::linux::sys::{Errno, helper, identity, landlock_abi, restrict_self};
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, Scope,
};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Keeps the descriptors `keep`, and the right to connect.
///
/// # Errors
///
/// As the calls that restrict it: it must not serve then.
pub fn confine(keep: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    // As many connections as the user may have files.
    let files = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files })?;
    // It writes no file, starts no program, and leaves no core.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    // No mount is kept in use.
    rustix::process::chdir("/")?;
    let closed = helper::close_others(null.as_fd(), keep);
    // It is among those.
    std::mem::forget(null);
    closed?;
    identity::limit_capabilities(0)?;
    restrict_self(ruleset()?.as_fd())
}

/// A ruleset that grants nothing of what Landlock knows but connecting.
///
/// # Errors
///
/// As landlock_create_ruleset(2).
pub fn ruleset() -> Result<OwnedFd, Errno> {
    let abi = ABI::from(i32::try_from(landlock_abi()?).unwrap_or(i32::MAX));
    let make = || {
        let mut ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(abi))?;
        if !AccessNet::from_all(abi).is_empty() {
            ruleset = ruleset.handle_access(AccessNet::BindTcp)?;
        }
        if !Scope::from_all(abi).is_empty() {
            ruleset = ruleset.scope(Scope::from_all(abi))?;
        }
        ruleset.create()
    };
    let made = make().map_err(|_| Errno::INVAL)?;
    Option::<OwnedFd>::from(made).ok_or(Errno::OPNOTSUPP)
}
