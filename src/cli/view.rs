//! The host's filesystem as the policy engine sees it, by means of the standard library alone.

use std::fs::{self, File};
use std::io::Read;

use crate::policy::{FsView, Kind};

/// The files of this host.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostFiles;

impl FsView for HostFiles {
    fn kind(&self, path: &str) -> Kind {
        let Ok(metadata) = fs::symlink_metadata(path) else {
            return Kind::Absent;
        };
        let kind = metadata.file_type();
        if kind.is_dir() {
            Kind::Dir
        } else if kind.is_file() {
            let (links, executable) = facts(&metadata);
            Kind::File { links, executable }
        } else if kind.is_symlink() {
            match fs::read_link(path).map(|target| target.into_os_string().into_string()) {
                Ok(Ok(target)) => Kind::Symlink(target),
                Ok(Err(_)) => Kind::SymlinkNotUtf8,
                Err(_) => Kind::Absent,
            }
        } else {
            Kind::Other
        }
    }

    fn list(&self, dir: &str, limit: usize) -> Option<Vec<String>> {
        let mut names = Vec::new();
        for (count, entry) in fs::read_dir(dir).ok()?.enumerate() {
            if count == limit {
                return None;
            }
            names.extend(entry.ok()?.file_name().into_string());
        }
        Some(names)
    }

    fn read(&self, path: &str, limit: usize) -> Option<Vec<u8>> {
        // A FIFO would wait for a writer.
        if !fs::symlink_metadata(path).ok()?.is_file() {
            return None;
        }
        let mut content = Vec::new();
        let most = limit as u64 + 1;
        File::open(path).ok()?.take(most).read_to_end(&mut content).ok()?;
        (content.len() <= limit).then_some(content)
    }
}

#[cfg(unix)]
fn facts(metadata: &fs::Metadata) -> (u64, bool) {
    use std::os::unix::fs::MetadataExt;
    (metadata.nlink(), metadata.mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn facts(_: &fs::Metadata) -> (u64, bool) {
    (1, true)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn names_are_what_lstat_says() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        fs::write(at("file"), "text").unwrap();
        fs::set_permissions(at("file"), fs::Permissions::from_mode(0o644)).unwrap();
        fs::hard_link(at("file"), at("second")).unwrap();
        fs::write(at("program"), "").unwrap();
        fs::set_permissions(at("program"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("file", at("link")).unwrap();
        let file = |links, executable| Kind::File { links, executable };
        for (name, expected) in [
            ("", Kind::Dir),
            ("file", file(2, false)),
            ("program", file(1, true)),
            ("link", Kind::Symlink("file".into())),
            ("none", Kind::Absent),
            ("file/below", Kind::Absent),
        ] {
            assert_eq!(HostFiles.kind(&at(name)), expected, "{name}");
        }
        assert_eq!(HostFiles.kind("/dev/null"), Kind::Other);
        assert_eq!(HostFiles.read(&at("file"), 4), Some(b"text".to_vec()));
        assert_eq!(HostFiles.read(&at("file"), 3), None);
        assert_eq!(HostFiles.read(&at("link"), 4), None);
        assert_eq!(HostFiles.list(&at(""), 4).map(|names| names.len()), Some(4));
        assert_eq!(HostFiles.list(&at(""), 3), None);
    }
}
