//! Mappings of id-mapped mounts, mount_setattr(2): a user namespace that nobody lives in.

use std::fmt::Write as _;
use std::os::fd::OwnedFd;

use oci_spec::runtime::{LinuxIdMapping, LinuxIdMappingBuilder};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::oci::sys::mount::user_namespace;
use crate::oci::{Context, Error, Result};

/// The process that keeps a namespace until it is open.
struct Keeper(Pid);

impl Drop for Keeper {
    fn drop(&mut self) {
        // It is our child, and not reaped, so the id is its own.
        let _it_cannot_fail = kill_process(self.0, Signal::KILL);
        let _it_cannot_fail = waitpid(Some(self.0), WaitOptions::empty());
    }
}

/// A user namespace with these mappings.
///
/// # Errors
///
/// As clone(2) and user_namespaces(7): `EPERM` for ids that are not ours to map.
pub fn namespace(uids: &[LinuxIdMapping], gids: &[LinuxIdMapping]) -> Result<OwnedFd> {
    let keeper = Keeper(user_namespace().context("make a user namespace")?);
    let process = format!("/proc/{}", keeper.0.as_raw_nonzero());
    for (file, mappings) in [("uid_map", uids), ("gid_map", gids)] {
        // One write(2) is all that the kernel takes.
        std::fs::write(format!("{process}/{file}"), lines(mappings)).context(file)?;
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    openat(CWD, format!("{process}/ns/user"), flags, Mode::empty()).context("open a user namespace")
}

/// The mappings of users and groups in the form of crun.1, "idmap mount options": `uids=0-1-10#10-11-10;gids=...`,
/// each the file system's first id, the one it becomes, and how many. One that begins with `@` becomes an id
/// of the container, whose own mappings are `container`.
///
/// # Errors
///
/// The part that is none; an id that the container does not have.
pub fn parse(text: &str, container: [&[LinuxIdMapping]; 2]) -> Result<[Vec<LinuxIdMapping>; 2]> {
    let mut parsed = [Vec::new(), Vec::new()];
    for list in text.split(';') {
        let (at, list) = match list.split_once('=') {
            Some(("uids", list)) => (0, list),
            Some(("gids", list)) => (1, list),
            _ => return Err(Error::new(format!("idmap: {list:?} is not uids=... or gids=..."))),
        };
        for part in list.split('#') {
            parsed[at].push(triplet(part, container[at])?);
        }
    }
    Ok(parsed)
}

fn triplet(part: &str, container: &[LinuxIdMapping]) -> Result<LinuxIdMapping> {
    let bad = |what: &str| Error::new(format!("idmap: {part:?} {what}"));
    let (relative, numbers) = match part.strip_prefix('@') {
        Some(numbers) => (true, numbers),
        None => (false, part),
    };
    let numbers = numbers.split('-').map(|number| number.parse::<u32>().ok());
    let Some(&[inside, mut outside, size]) = numbers.collect::<Option<Vec<u32>>>().as_deref()
    else {
        return Err(bad("is not FROM-TO-SIZE, in numbers"));
    };
    if relative {
        let holds = |map: &&LinuxIdMapping| {
            outside.checked_sub(map.container_id()).is_some_and(|offset| offset < map.size())
        };
        let map = container.iter().find(holds).ok_or_else(|| bad("is no id of the container"))?;
        outside = (outside - map.container_id())
            .checked_add(map.host_id())
            .ok_or_else(|| bad("is no id of the container"))?;
    }
    let mapping = LinuxIdMappingBuilder::default();
    mapping.container_id(inside).host_id(outside).size(size).build().context("idmap")
}

fn lines(mappings: &[LinuxIdMapping]) -> String {
    let mut lines = String::new();
    for mapping in mappings {
        let (inside, outside) = (mapping.container_id(), mapping.host_id());
        let _never_fails = writeln!(lines, "{inside} {outside} {}", mapping.size());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_as_crun_has_them() {
        let own = LinuxIdMappingBuilder::default();
        let own = own.container_id(1u32).host_id(2u32).size(1000u32).build().unwrap();
        let read = |text: &str| -> Result<(String, String)> {
            let [uids, gids] = parse(text, [&[own], &[]])?;
            Ok((lines(&uids), lines(&gids)))
        };
        let text = |text: &str| text.to_owned();
        assert_eq!(
            read("uids=0-1-2#5-6-7;gids=3-4-5"),
            Ok((text("0 1 2\n5 6 7\n"), text("3 4 5\n")))
        );
        // The container's 3 is 4 outside.
        assert_eq!(read("uids=@1-3-10"), Ok((text("1 4 10\n"), text(""))));
        for bad in [
            "",
            "uids",
            "uids=",
            "uids=1-2",
            "uids=1-2-3-4",
            "x=1-2-3",
            "gids=@1-3-1",
            "uids=@0-0-1",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
