//! `linux.sysctl`: kernel parameters of the container's own namespaces, and of no others.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use oci_spec::runtime::{LinuxNamespaceType as Namespace, Spec};
use rustix::fs::{CWD, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, fstatfs, openat, openat2};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;

use super::options::Options;
use super::{namespace, tree};
use crate::oci::{Context, Error, Result};

/// Parameters of the IPC namespace besides those below `fs.mqueue`, ipc_namespaces(7).
const IPC: [&str; 8] = [
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
];

/// Refuses what would change the host.
///
/// # Errors
///
/// A parameter that belongs to no namespace, or to one that the container has not of its own.
pub fn check(spec: &Spec) -> Result<()> {
    let Some(sysctl) = spec.linux().as_ref().and_then(|linux| linux.sysctl().as_ref()) else {
        return Ok(());
    };
    for (name, value) in sysctl {
        let dotted = path(name).replace('.', "\u{0}").replace('/', ".").replace('\u{0}', "/");
        let own = |kind, what: &str| match namespace(spec, kind) {
            Some(place) if !is_ours(kind, place)? => Ok(()),
            _ => Err(Error::new(format!(
                "linux.sysctl: {name:?} is not allowed in the host's {what} namespace"
            ))),
        };
        match &*dotted {
            _ if path(name).split('/').any(|part| matches!(part, "" | "." | "..")) => {
                return Err(Error::new(format!(
                    "linux.sysctl: {name:?} is no name of a parameter"
                )));
            }
            d if IPC.contains(&d) || d.starts_with("fs.mqueue.") => own(Namespace::Ipc, "IPC")?,
            d if d.starts_with("net.") => own(Namespace::Network, "network")?,
            d if d.starts_with("user.") => own(Namespace::User, "user")?,
            "kernel.domainname" if spec.domainname().as_ref().is_some_and(|d| d != value) => {
                return Err(Error::new(format!(
                    "linux.sysctl: {name:?} is not allowed: `domainname` says otherwise"
                )));
            }
            "kernel.domainname" => own(Namespace::Uts, "UTS")?,
            "kernel.hostname" => {
                return Err(Error::new(format!(
                    "linux.sysctl: {name:?} is not allowed: `hostname` says it"
                )));
            }
            _ => {
                return Err(Error::new(format!(
                    "linux.sysctl: {name:?} is not in a namespace of its own"
                )));
            }
        }
    }
    Ok(())
}

/// Whether the namespace to be joined at `place` is the one that we are in.
fn is_ours(kind: Namespace, place: Option<&Path>) -> Result<bool> {
    let Some(place) = place else { return Ok(false) };
    let name = match kind {
        Namespace::Ipc => "ipc",
        Namespace::Network => "net",
        Namespace::User => "user",
        _ => "uts",
    };
    let about = |path: &Path| {
        let found = std::fs::metadata(path);
        found.map(|m| (m.dev(), m.ino())).context(format!("namespace {}", path.display()))
    };
    Ok(about(place)? == about(&Path::new("/proc/self/ns").join(name))?)
}

/// The path below `/proc/sys`. As with sysctl(8), whichever of `.` and `/` comes first separates, and
/// the other stands for itself.
fn path(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(at) if name.as_bytes()[at] == b'.' => name
            .chars()
            .map(|c| match c {
                '.' => '/',
                '/' => '.',
                c => c,
            })
            .collect(),
        _ => name.to_owned(),
    }
}

/// Writes them, from inside the container.
///
/// # Errors
///
/// The parameter that cannot be written, and why.
pub fn write(spec: &Spec) -> Result<()> {
    let Some(sysctl) = spec.linux().as_ref().and_then(|linux| linux.sysctl().as_ref()) else {
        return Ok(());
    };
    if sysctl.is_empty() {
        return Ok(());
    }
    let proc = procfs().context("linux.sysctl: no procfs to write to")?;
    let mut sorted: Vec<_> = sysctl.iter().collect();
    sorted.sort();
    for (name, value) in sorted {
        let place = format!("sys/{}", path(name));
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        openat2(&proc, &place, flags, Mode::empty(), resolve)
            .and_then(|file| rustix::io::write(file, value.as_bytes()))
            .context(format!("linux.sysctl: write {value:?} to {name:?}"))?;
    }
    Ok(())
}

/// A procfs that nobody else has mounted anything over: a new one that is attached nowhere. A user
/// namespace that may not have one uses the container's, if that is one.
fn procfs() -> std::result::Result<OwnedFd, tree::Problem> {
    match tree::filesystem("proc", None, &Options::parse(&[]), MountAttrFlags::empty()) {
        Err(problem) if problem.denied() => {}
        made => return made,
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let proc = openat(CWD, "/proc", flags, Mode::empty())?;
    match is_procfs(&proc)? {
        true => Ok(proc),
        false => Err(tree::Problem::refused("what is at /proc is none")),
    }
}

/// Whether this is the root of a procfs.
///
/// # Errors
///
/// As fstatfs(2) and fstat(2).
pub fn is_procfs(fd: &impl AsFd) -> std::result::Result<bool, Errno> {
    /// `PROC_ROOT_INO` of the kernel.
    const ROOT: u64 = 1;
    let kind = fstatfs(fd)?.f_type;
    Ok(kind == PROC_SUPER_MAGIC && rustix::fs::fstat(fd)?.st_ino == ROOT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn checked(name: &str, namespaces: &[&str]) -> Result<()> {
        let namespaces: Vec<_> = namespaces.iter().map(|n| json!({ "type": n })).collect();
        let spec = json!({
            "ociVersion": "1.0.0",
            "linux": { "sysctl": { name: "1" }, "namespaces": namespaces },
        });
        check(&serde_json::from_value(spec).expect("a document"))
    }

    #[test]
    fn whichever_separator_comes_first() {
        assert_eq!(path("net.ipv4.ip_forward"), "net/ipv4/ip_forward");
        assert_eq!(path("net/ipv4/conf/eth0.100/forwarding"), "net/ipv4/conf/eth0.100/forwarding");
        assert_eq!(path("net.ipv4.conf.eth0/100.forwarding"), "net/ipv4/conf/eth0.100/forwarding");
    }

    #[test]
    fn only_what_is_the_containers_own() {
        for (name, namespace) in [
            ("kernel.shmmax", "ipc"),
            ("fs.mqueue.msg_max", "ipc"),
            ("fs/mqueue/msg_max", "ipc"),
            ("net.ipv4.ip_forward", "network"),
            ("net/ipv4/conf/eth0.100/forwarding", "network"),
            ("user.max_user_namespaces", "user"),
            ("kernel.domainname", "uts"),
        ] {
            assert_eq!(checked(name, &[namespace]), Ok(()), "{name}");
            assert!(checked(name, &["mount"]).is_err(), "{name} of the host");
        }
        for name in [
            "kernel.hostname",
            "kernel.core_pattern",
            "kernel.shmmax2",
            "vm.swappiness",
            "net..ipv4",
            "net/../kernel/core_pattern",
            "net",
            "",
        ] {
            let all = ["ipc", "network", "user", "uts", "pid", "mount"];
            assert!(checked(name, &all).is_err(), "{name}");
        }
    }

    #[test]
    fn the_hosts_namespace_by_path_is_the_hosts() {
        let with = |place: &str| {
            let spec = json!({
                "ociVersion": "1.0.0",
                "linux": {
                    "sysctl": { "net.ipv4.ip_forward": "1" },
                    "namespaces": [{ "type": "network", "path": place }],
                },
            });
            check(&serde_json::from_value(spec).expect("a document"))
        };
        assert!(with("/proc/self/ns/net").is_err());
        assert!(with("/proc/self/ns/missing").is_err());
        // Any other object will do.
        assert_eq!(with("/proc/self/ns/uts"), Ok(()));
    }
}
