//! Landlock rulesets, landlock(7), from the plan's grants.

use super::sys::Errno;
use crate::plan::{Grant, Layer, Writing};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath,
    Ruleset, RulesetAttr, RulesetCreatedAttr, Scope,
};
use rustix::fs::{FileType, Mode, OFlags};
use std::os::fd::OwnedFd;

/// Why a ruleset could not be made.
#[derive(Debug)]
pub struct Failure(pub String);

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure(error.to_string())
    }
}

/// Rights that change names in a directory or what a file holds.
///
/// Truncation is left out: a right that is checked at open(2) makes every reading open walk the path,
/// a third of its cost. The broker does truncate(2) and `O_TRUNC` without writing itself.
fn writing(abi: ABI) -> BitFlags<AccessFs> {
    let all = AccessFs::WriteFile
        | AccessFs::RemoveDir
        | AccessFs::RemoveFile
        | AccessFs::MakeChar
        | AccessFs::MakeDir
        | AccessFs::MakeReg
        | AccessFs::MakeSock
        | AccessFs::MakeFifo
        | AccessFs::MakeBlock
        | AccessFs::MakeSym
        | AccessFs::Refer
        | AccessFs::IoctlDev;
    all & AccessFs::from_all(abi)
}

/// Rights that are handled and never granted: nobody makes device nodes.
fn never() -> BitFlags<AccessFs> {
    AccessFs::MakeChar | AccessFs::MakeBlock
}

/// Rights that a rule on anything but a directory may carry.
fn on_file() -> BitFlags<AccessFs> {
    AccessFs::Execute
        | AccessFs::WriteFile
        | AccessFs::ReadFile
        | AccessFs::Truncate
        | AccessFs::IoctlDev
}

/// Makes the ruleset of `layer` for Landlock ABI `abi`. What a grant names and does not exist is
/// left out: nothing there can be reached but by making it, which the broker does.
///
/// # Errors
///
/// A message, when the kernel refuses a rule: then nothing may be launched.
pub fn ruleset(layer: &Layer, abi: u32) -> Result<OwnedFd, Failure> {
    let abi = ABI::from(i32::try_from(abi).unwrap_or(i32::MAX));
    let mut handled = BitFlags::<AccessFs>::empty();
    if layer.writing {
        handled |= writing(abi);
    }
    if layer.reading {
        handled |= AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::Execute;
    }
    if layer.truncating {
        handled |= BitFlags::from(AccessFs::Truncate) & AccessFs::from_all(abi);
    }
    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    if !handled.is_empty() {
        ruleset = ruleset.handle_access(handled)?;
    }
    let tcp = (AccessNet::BindTcp | AccessNet::ConnectTcp) & AccessNet::from_all(abi);
    let tcp = if layer.network { tcp } else { BitFlags::empty() };
    if !tcp.is_empty() {
        ruleset = ruleset.handle_access(tcp)?;
    }
    let mut scopes = BitFlags::<Scope>::empty();
    if layer.signals {
        scopes |= Scope::Signal;
    }
    if layer.abstract_sockets {
        scopes |= Scope::AbstractUnixSocket;
    }
    scopes &= Scope::from_all(abi);
    if !scopes.is_empty() {
        ruleset = ruleset.scope(scopes)?;
    }
    let mut ruleset = ruleset.create().map_err(refused("landlock_create_ruleset"))?;
    for &port in layer.bound.iter().filter(|_| !tcp.is_empty()) {
        ruleset =
            ruleset.add_rule(NetPort::new(port, AccessNet::BindTcp)).map_err(refused(ADD_RULE))?;
    }
    if !tcp.is_empty() && !layer.ports.is_empty() {
        // Port 0: one that the kernel picks.
        ruleset =
            ruleset.add_rule(NetPort::new(0, AccessNet::BindTcp)).map_err(refused(ADD_RULE))?;
        for &port in &layer.ports {
            ruleset = ruleset
                .add_rule(NetPort::new(port, AccessNet::ConnectTcp))
                .map_err(refused(ADD_RULE))?;
        }
    }
    for grant in &layer.grants {
        let Some((fd, kind)) = find(&grant.path)? else {
            continue;
        };
        let mut rights = rights(grant) & handled;
        if kind != FileType::Directory {
            rights &= on_file();
        }
        if !rights.is_empty() {
            ruleset = ruleset.add_rule(PathBeneath::new(fd, rights)).map_err(refused(ADD_RULE))?;
        }
    }
    Option::<OwnedFd>::from(ruleset).ok_or_else(|| Failure("Landlock is not available".to_owned()))
}

/// A ruleset by which no device is controlled that is opened under it, ioctl(2); none where this kernel knows no such
/// right (before Linux 6.10).
///
/// # Errors
///
/// A message, when the kernel refuses it.
pub fn no_device_control() -> Result<Option<OwnedFd>, Failure> {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    let ruleset = ruleset.handle_access(AccessFs::IoctlDev)?;
    Ok(ruleset.create().map_err(refused("landlock_create_ruleset"))?.into())
}

/// The call behind a rule.
const ADD_RULE: &str = "landlock_add_rule";

/// The kernel, or a container's filter, refuses `call`.
fn refused<E: std::error::Error>(call: &str) -> impl FnOnce(E) -> Failure {
    move |error| Failure(format!("{call}: {error}"))
}

fn rights(grant: &Grant) -> BitFlags<AccessFs> {
    let mut rights = BitFlags::<AccessFs>::empty();
    match grant.write {
        Writing::Nothing => {}
        Writing::Control => rights |= AccessFs::IoctlDev,
        Writing::Content => rights |= writing(ABI::from(i32::MAX)) & on_file(),
        Writing::Directories => {
            rights |= AccessFs::RemoveDir | AccessFs::MakeDir | AccessFs::Refer;
        }
        Writing::All => {
            rights |= (writing(ABI::from(i32::MAX)) | AccessFs::Truncate) & !never();
        }
    }
    if grant.read {
        rights |= AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::Execute;
    }
    rights
}

fn find(path: &str) -> Result<Option<(OwnedFd, FileType)>, Failure> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => {
            let stat = rustix::fs::fstat(&fd)?;
            Ok(Some((fd, FileType::from_raw_mode(stat.st_mode))))
        }
        // Without search permission the target cannot reach it either.
        Err(Errno::NOENT | Errno::ACCESS | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}
