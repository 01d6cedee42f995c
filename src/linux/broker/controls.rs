//! Controls of the kernel, known by the file system that they are on.
//!
//! The policy's own denials around them go by what was mounted at the launch. What the broker does is
//! checked again by descriptor: a file system may be mounted while the run lasts.

use super::Errno;
use super::report::Refusal;
use super::resolve::{Object, belongs_to};
use super::task::Task;
use crate::plan::controls::CLOSED;
use crate::policy::{Access, Rule, Verdict};
use rustix::fs::{StatFs, major};
use std::os::fd::BorrowedFd;

/// Their `f_type`, see statfs(2) and linux/magic.h: AppArmor, binder, binfmt_misc, bpf, cgroup, cgroup2,
/// configfs, debugfs, devpts, efivarfs, functionfs, fusectl, mqueue, nfsd, procfs, pstore, resctrl,
/// rpc_pipefs, securityfs, selinuxfs, smackfs, sysfs, tracefs, xenfs.
const MAGICS: [u64; 24] = [
    0x5a3c_69f0,
    0x6c6f_6f70,
    0x4249_4e4d,
    0xcafe_4a11,
    0x0027_e0eb,
    0x6367_7270,
    0x6265_6570,
    0x6462_6720,
    0x0000_1cd1,
    0xde5e_81e4,
    0x0a64_7361,
    0x6573_5543,
    0x1980_0202,
    0x6e66_7364,
    0x0000_9fa0,
    0x6165_676c,
    0x0765_5821,
    0x6759_6969,
    0x7363_6673,
    0xf97c_ff8c,
    0x4341_5d53,
    0x6265_6572,
    0x7472_6163,
    0xabba_1974,
];

impl Task<'_> {
    /// Whether what `fd` refers to is a control, or a directory of them, and `verdict`, which allows
    /// writing there, comes from a rule that names no path among controls.
    pub(super) fn is_closed_control(&self, fd: BorrowedFd<'_>, verdict: &Verdict<'_>) -> bool {
        let Some(rule) = verdict.rule() else { return false };
        // None has a device or takes room; asking others for their type can take a way over the network.
        match rustix::fs::fstat(fd) {
            Ok(stat) if major(stat.st_dev) != 0 || stat.st_blocks != 0 => return false,
            _ => {}
        }
        match rustix::fs::fstatfs(fd) {
            Ok(found) => is_control(&found) && !names_control(rule),
            Err(_) => true,
        }
    }

    /// Whether the denial is the one around procfs, and the object shows a process of this run: those
    /// are the run's own.
    ///
    /// # Errors
    ///
    /// `ESRCH` when the task is gone.
    pub(super) fn is_own_process(
        &self,
        object: &Object,
        verdict: &Verdict<'_>,
    ) -> Result<bool, Errno> {
        let guarded = |rule: &Rule| rule.guards_controls() && rule.place() == "/proc";
        if !verdict.rule().is_some_and(guarded)
            || !self.broker.on_procfs(std::os::fd::AsFd::as_fd(&object.fd))?
        {
            return Ok(false);
        }
        let pid = object.path.strip_prefix(b"/proc/").and_then(|rest| {
            let pid = rest.split(|&byte| byte == b'/').next()?;
            std::str::from_utf8(pid).ok()?.parse().ok()
        });
        let Some(pid) = pid else { return Ok(false) };
        Ok(belongs_to(self, &object.path)? || self.is_known_process(pid))
    }
}

impl<'a> Refusal<'a> {
    /// The refusal of writing a control.
    pub(super) fn control(path: &'a [u8], requested: &'a [u8]) -> Refusal<'a> {
        let mut refusal = Refusal::new(Access::Write, path, requested, None);
        refusal.message = Some(CLOSED.to_owned());
        refusal
    }
}

fn is_control(found: &StatFs) -> bool {
    MAGICS.contains(&(found.f_type as u64 & 0xffff_ffff))
}

/// Whether the path that the rule is about is one of a control.
fn names_control(rule: &Rule) -> bool {
    rustix::fs::statfs(rule.place()).is_ok_and(|found| is_control(&found))
}
