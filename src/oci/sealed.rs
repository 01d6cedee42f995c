//! This program's own file, which a container must not be able to write to.
//!
//! A program in a container can reach the file of the runtime: as `/proc/self/exe`, when it is run as
//! `#!/proc/self/exe`, or through the process that is about to become the container's. Root of the host would
//! write it, and the next call of the runtime would run what was written (CVE-2019-5736). So what enters
//! containers runs from a mount of that one file which is read-only and attached nowhere: nobody can change
//! it, since only the descriptor could, and execve(2) closes that. Users who may mount nothing run from a
//! sealed copy in memory, unless they may not write the file anyway.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use rustix::fs::{
    Access, CWD, MemfdFlags, SealFlags, StatVfsMountFlags, access, fcntl_add_seals,
    fcntl_get_seals, memfd_create, statvfs,
};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, OpenTreeFlags, open_tree};

use super::sys::{mount, process};
use super::{Context, Error, Result};

const OWN: &str = "/proc/self/exe";

/// Closes what the caller left open but for `preserved` descriptors from 3 on, and goes on from a file that
/// cannot be written to.
///
/// # Errors
///
/// As [`execute`], and where the kernel closes nothing.
pub fn go_on(line: &[OsString], preserved: u32) -> Result<()> {
    let listening = super::create::listening();
    let first = preserved.saturating_add(listening).saturating_add(3);
    process::close_inherited(first).context("close_range")?;
    execute(line)
}

/// Goes on from a file that cannot be written to: the program is executed anew, with the same `line`, where
/// it is not yet.
///
/// # Errors
///
/// Where that cannot be had.
pub fn execute(line: &[OsString]) -> Result<()> {
    let system = statvfs(OWN).context(OWN)?;
    if system.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Ok(());
    }
    let file = match read_only() {
        Ok(file) => file,
        Err(Errno::PERM | Errno::NOSYS) => {
            // What this user may not write, no container of this user can.
            if access(OWN, Access::WRITE_OK).is_err() {
                return Ok(());
            }
            let own = File::open(OWN).context(OWN)?;
            if fcntl_get_seals(&own).is_ok_and(|seals| seals.contains(SealFlags::WRITE)) {
                return Ok(());
            }
            copy(own).context("copy of the runtime")?
        }
        Err(errno) => return Err(errno).context("read-only mount of the runtime"),
    };
    let words = line.iter().map(|word| CString::new(word.as_bytes()));
    let words = words.collect::<std::result::Result<Vec<_>, _>>().context("command line")?;
    let variables = std::env::vars_os().map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        CString::new(name.into_vec())
    });
    let variables = variables.collect::<std::result::Result<Vec<_>, _>>().context("environment")?;
    let (words, variables) = (process::Strings::new(words), process::Strings::new(variables));
    let errno = process::execute_file(file.as_fd(), &words, &variables);
    Err(Error::new(format!("execute the runtime from a read-only file: {errno}")))
}

/// A read-only mount of the file, attached nowhere.
fn read_only() -> std::result::Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(CWD, OWN, flags)?;
    let set = MountAttrFlags::MOUNT_ATTR_RDONLY;
    mount::change(Some(tree.as_fd()), mount::Change { set, ..mount::Change::default() })?;
    Ok(tree)
}

/// A sealed copy of the file in memory.
fn copy(mut own: File) -> std::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut copy = File::from(memfd_create("landstrip", flags)?);
    std::io::copy(&mut own, &mut copy)?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    fcntl_add_seals(&copy, seals)?;
    Ok(copy.into())
}
