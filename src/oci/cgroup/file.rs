//! Files of a cgroup: short texts, read and written whole.

use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::oci::{Context, Result};

/// Writes in one write(2), as the kernel wants it.
///
/// # Errors
///
/// As openat(2) and write(2).
pub fn write(dir: &Path, name: &str, text: &str) -> std::result::Result<(), Errno> {
    let file = rustix::fs::open(dir.join(name), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, text.as_bytes()).map(|_| ())
}

/// The text, without the newline at its end; `None` where there is no such file, or no such cgroup any
/// more.
///
/// # Errors
///
/// As read(2).
pub fn read(dir: &Path, name: &str) -> Result<Option<String>> {
    let path = dir.join(name);
    match whole(&path) {
        Ok(text) => Ok(Some(text.trim_end().to_owned())),
        // A cgroup that is removed answers with `ENODEV` to who has a file of it open.
        Err(Errno::NOENT | Errno::NODEV) => Ok(None),
        Err(errno) => Err(errno).context(path.display()),
    }
}

/// Without the questions about size and position that the standard library has, which say nothing of
/// such files.
fn whole(path: &Path) -> std::result::Result<String, Errno> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = Vec::new();
    let mut part = [0; 4096];
    loop {
        match rustix::io::read(&file, &mut part)? {
            0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
            length => text.extend(&part[..length]),
        }
    }
}

/// A file that holds one number; `None` where there is none, or it says `max`.
pub fn number(dir: &Path, name: &str) -> Option<u64> {
    read(dir, name).ok()??.parse().ok()
}

/// The number behind `key` in a text with a key and a number on each line.
pub fn value(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// The cgroups in `dir`, in no order; none where it is gone.
pub fn children(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let directories = entries.flatten().filter(|e| e.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| entry.path()).collect()
}

/// `dir` and every cgroup below it, those above first.
pub fn tree(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_owned()];
    let mut at = 0;
    while at < found.len() {
        found.extend(children(&found[at]));
        at += 1;
    }
    found
}
