//! The host's filesystem as the policy engine sees it, by means of the standard library alone.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use crate::policy::{FsView, Kind};

/// The files of this host.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostFiles;

impl FsView for HostFiles {
    fn kind(&self, path: &str) -> Kind {
        if names::is_above_all(path) {
            return Kind::Dir;
        }
        let Some(native) = names::native(path) else {
            return Kind::Absent;
        };
        let Ok(metadata) = fs::symlink_metadata(&*native) else {
            return Kind::Absent;
        };
        let kind = metadata.file_type();
        if !kind.is_symlink()
            && let Some(kept) = names::kept(path, &native)
        {
            return kept;
        }
        if kind.is_dir() {
            Kind::Dir
        } else if kind.is_file() {
            let (links, executable) = names::facts(&native, &metadata);
            Kind::File { links, executable }
        } else if kind.is_symlink() {
            match fs::read_link(&*native).map(|target| names::target(path, target)) {
                Ok(Some(target)) => Kind::Symlink(target),
                Ok(None) => Kind::SymlinkNotUtf8,
                Err(_) => Kind::Absent,
            }
        } else {
            Kind::Other
        }
    }

    fn list(&self, dir: &str, limit: usize) -> Option<Vec<String>> {
        let mut names = Vec::new();
        for (count, entry) in fs::read_dir(&*names::native(dir)?).ok()?.enumerate() {
            if count == limit {
                return None;
            }
            names.extend(entry.ok()?.file_name().into_string());
        }
        Some(names)
    }

    fn read(&self, path: &str, limit: usize) -> Option<Vec<u8>> {
        let path = names::native(path)?;
        // A FIFO would wait for a writer.
        if !fs::symlink_metadata(&*path).ok()?.is_file() {
            return None;
        }
        let mut content = Vec::new();
        let most = limit as u64 + 1;
        File::open(&*path).ok()?.take(most).read_to_end(&mut content).ok()?;
        (content.len() <= limit).then_some(content)
    }
}

/// Paths are the system's own.
#[cfg(unix)]
mod names {
    use super::{Cow, Kind, Path, fs};
    use std::os::unix::fs::MetadataExt;
    use std::path::PathBuf;

    /// Whether the path is a root that the system does not know.
    pub fn is_above_all(_: &str) -> bool {
        false
    }

    /// The path as the system has it; `None` where it can have none such.
    pub fn native(path: &str) -> Option<Cow<'_, Path>> {
        Some(Cow::Borrowed(Path::new(path)))
    }

    /// What to say of a name that is another spelling of one that exists.
    pub fn kept(_: &str, _: &Path) -> Option<Kind> {
        None
    }

    /// Where the link at `path` leads; `None` where that is not UTF-8.
    pub fn target(_: &str, target: PathBuf) -> Option<String> {
        target.into_os_string().into_string().ok()
    }

    /// The number of a file's names, and whether it can be executed.
    pub fn facts(_: &Path, metadata: &fs::Metadata) -> (u64, bool) {
        (metadata.nlink(), metadata.mode() & 0o111 != 0)
    }
}

/// Paths are those of policies: see `lower::appcontainer::path`.
#[cfg(windows)]
mod names {
    use super::{Cow, Kind, Path, fs};
    use crate::lower::appcontainer::path::{ALIAS, internal, verbatim};
    use crate::windows::sys::file;
    use std::path::PathBuf;

    pub fn is_above_all(path: &str) -> bool {
        path == "/"
    }

    pub fn native(path: &str) -> Option<Cow<'_, Path>> {
        verbatim(path).map(|path| Cow::Owned(path.into()))
    }

    /// Another case of a name, its short form, or a drive that stands for a directory.
    pub fn kept(path: &str, native: &Path) -> Option<Kind> {
        let kept = internal(fs::canonicalize(native).ok()?.to_str()?)?;
        if kept == path {
            return None;
        }
        let (above, name) = kept.rsplit_once('/')?;
        let beside = path.rsplit_once('/').is_some_and(|(asked, _)| asked == above);
        Some(Kind::Symlink(if beside { format!("{ALIAS}{name}") } else { kept.clone() }))
    }

    pub fn target(path: &str, target: PathBuf) -> Option<String> {
        let text = target.into_os_string().into_string().ok()?;
        if let Some(path) = internal(&text) {
            return Some(path);
        }
        let text = text.replace('\\', "/");
        match text.strip_prefix('/') {
            // From the root of the same drive.
            Some(rest) if !rest.starts_with(['/', '?']) && !rest.contains(':') => {
                let drive = path.split('/').nth(1)?;
                Some(format!("/{drive}/{rest}"))
            }
            Some(_) => None,
            None if text.contains(':') => None,
            None => Some(text.strip_prefix(ALIAS).unwrap_or(&text).to_owned()),
        }
    }

    pub fn facts(native: &Path, _: &fs::Metadata) -> (u64, bool) {
        (file::links(native).unwrap_or(1), true)
    }
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
