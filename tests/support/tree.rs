//! A directory tree as text, to compare before and after.

use rustix::fs::{Mode, OFlags, XattrFlags};
use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

/// What of a tree to write down.
#[derive(Clone, Copy, PartialEq)]
pub enum Detail {
    /// Everything that a change leaves a trace in, times and inode numbers included.
    All,
    /// What two runs of one script must have in common.
    Result,
}

/// Relative names, each with its facts.
pub type Tree = BTreeMap<String, String>;

/// The tree below `path`: its relative names, each with a line of facts. A path that does not
/// exist gives no line.
pub fn tree(path: &Path, detail: Detail) -> Tree {
    let mut lines = BTreeMap::new();
    walk(path, String::from("."), detail, &mut lines);
    lines
}

/// The lines in which two trees differ, first the one and then the other.
pub fn difference(before: &Tree, after: &Tree) -> Vec<String> {
    let mut names: Vec<_> = before.keys().chain(after.keys()).collect();
    names.sort();
    names.dedup();
    let differing = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    let none = String::from("absent");
    let show = |name: &String| {
        let (old, new) = (before.get(name).unwrap_or(&none), after.get(name).unwrap_or(&none));
        format!("{name}: {old} -> {new}")
    };
    differing.map(show).collect()
}

fn walk(path: &Path, name: String, detail: Detail, lines: &mut Tree) {
    let Ok(meta) = path.symlink_metadata() else {
        return;
    };
    let kind = meta.file_type();
    let mut line =
        format!("{:o} {}:{} links {}", meta.mode(), meta.uid(), meta.gid(), meta.nlink());
    if kind.is_file() {
        let bytes = std::fs::read(path).unwrap_or_default();
        line += &format!(
            " {} {:?}",
            meta.size(),
            String::from_utf8_lossy(&bytes[..bytes.len().min(200)])
        );
    } else if kind.is_symlink() {
        line += &format!(" -> {}", std::fs::read_link(path).unwrap_or_default().display());
    } else if kind.is_char_device() || kind.is_block_device() {
        line += &format!(" device {}", meta.rdev());
    }
    line += &format!(" {}{}", attributes(path), flags(path, kind.is_file() || kind.is_dir()));
    match detail {
        Detail::All => {
            line +=
                &format!(" inode {} changed {}.{:09}", meta.ino(), meta.ctime(), meta.ctime_nsec());
        }
        // Times that a script set are small numbers; those of the clock are not.
        Detail::Result => line += if meta.mtime() < 1_000_000_000 { " old" } else { " new" },
    }
    lines.insert(name.clone(), line);
    if kind.is_dir() {
        let mut entries: Vec<_> = std::fs::read_dir(path).into_iter().flatten().flatten().collect();
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let child = format!("{name}/{}", entry.file_name().to_string_lossy());
            walk(&entry.path(), child, detail, lines);
        }
    }
}

fn attributes(path: &Path) -> String {
    let mut names = vec![0; 4096];
    let size = rustix::fs::llistxattr(path, &mut names).unwrap_or(0);
    let mut text = String::new();
    for name in String::from_utf8_lossy(&names[..size]).split('\0').filter(|n| !n.is_empty()) {
        let mut value = vec![0; 1024];
        let size = rustix::fs::lgetxattr(path, name, &mut value).unwrap_or(0);
        text += &format!("{name}={:?} ", String::from_utf8_lossy(&value[..size]));
    }
    text
}

fn flags(path: &Path, has_flags: bool) -> String {
    if !has_flags {
        return String::new();
    }
    let open = rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty());
    match open.and_then(rustix::fs::ioctl_getflags) {
        Ok(flags) => format!("flags {:x}", flags.bits()),
        Err(_) => String::new(),
    }
}

/// Sets a user attribute, for tests that need one before a run.
pub fn set_attribute(path: &Path, name: &str, value: &str) -> bool {
    rustix::fs::setxattr(path, name, value.as_bytes(), XattrFlags::empty()).is_ok()
}

/// Removes a tree, also one with closed directories.
pub fn remove(path: &Path) {
    let Ok(meta) = path.symlink_metadata() else {
        return;
    };
    if meta.is_dir() {
        let _ = std::fs::set_permissions(path, PermissionsExt::from_mode(0o700));
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            remove(&entry.path());
        }
        let _ = std::fs::remove_dir(path);
    } else {
        let _ = std::fs::remove_file(path);
    }
}
