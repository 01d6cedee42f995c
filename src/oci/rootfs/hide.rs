//! `linux.readonlyPaths` and `linux.maskedPaths`, in the container's root after it was entered.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use oci_spec::runtime::Spec;
use rustix::fs::{FileType, fstat, makedev};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags as Attr;

use super::options::Options;
use super::target::Root;
use super::tree::{self, Problem};
use crate::oci::path::clean;
use crate::oci::{Context, Error, Result};

/// Refuses relative paths, which lead from nowhere.
///
/// # Errors
///
/// The path that is one.
pub fn check(spec: &Spec) -> Result<()> {
    let Some(linux) = spec.linux() else { return Ok(()) };
    let both = [("maskedPaths", linux.masked_paths()), ("readonlyPaths", linux.readonly_paths())];
    for (key, paths) in both {
        let relative = |path: &&String| !path.starts_with('/');
        if let Some(path) = paths.iter().flatten().find(relative) {
            return Err(Error::new(format!("linux.{key}: {path:?} is not absolute")));
        }
    }
    Ok(())
}

/// Makes the paths read-only that exist.
///
/// # Errors
///
/// The path that cannot be, and why.
pub fn read_only(root: Root<'_>, paths: &[String]) -> Result<()> {
    for path in paths {
        let Some(target) = find(root, path).context(format!("linux.readonlyPaths: {path:?}"))?
        else {
            continue;
        };
        tree::clone_of(target.as_fd(), true)
            .and_then(|tree| {
                tree::read_only(tree.as_fd())?;
                tree::attach(tree.as_fd(), target.as_fd())
            })
            .context(format!("linux.readonlyPaths: {path:?}"))?;
    }
    Ok(())
}

/// Puts something empty over the paths that exist: over a directory an empty file system, over everything
/// else `/dev/null`.
///
/// # Errors
///
/// The path that cannot be covered, and why.
pub fn mask(root: Root<'_>, paths: &[String]) -> Result<()> {
    let mut covers = Covers { null: None, empty: None, root };
    for path in paths {
        let Some(target) = find(root, path).context(format!("linux.maskedPaths: {path:?}"))? else {
            continue;
        };
        covers.put(target.as_fd()).context(format!("linux.maskedPaths: {path:?}"))?;
    }
    Ok(())
}

/// What a path leads to, if it leads anywhere.
fn find(root: Root<'_>, path: &str) -> std::result::Result<Option<OwnedFd>, Errno> {
    match root.find(&clean(Path::new(path))) {
        Ok(target) => Ok(Some(target.fd)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// What is put over paths.
struct Covers<'a> {
    /// The container's `/dev/null`, once it was seen to be that.
    null: Option<OwnedFd>,
    /// An empty read-only file system that is attached already.
    empty: Option<OwnedFd>,
    root: Root<'a>,
}

impl Covers<'_> {
    fn put(&mut self, target: BorrowedFd<'_>) -> std::result::Result<(), Problem> {
        if FileType::from_raw_mode(fstat(target)?.st_mode) != FileType::Directory {
            let null = tree::clone_of(self.null()?, false)?;
            return Ok(tree::attach(null.as_fd(), target)?);
        }
        if let Some(empty) = &self.empty {
            let empty = tree::clone_of(empty.as_fd(), false)?;
            return Ok(tree::attach(empty.as_fd(), target)?);
        }
        let options = ["nr_blocks=1", "nr_inodes=1", "mode=755"].map(str::to_owned);
        let attributes = Attr::MOUNT_ATTR_RDONLY;
        let source = Some(Path::new("tmpfs"));
        let empty = tree::filesystem("tmpfs", source, &Options::parse(&options), attributes)?;
        tree::attach(empty.as_fd(), target)?;
        self.empty = Some(empty);
        Ok(())
    }

    /// The null device. Whatever else an image has there would be what one reads instead of the mask.
    fn null(&mut self) -> std::result::Result<BorrowedFd<'_>, Problem> {
        let null = match self.null.take() {
            Some(null) => null,
            None => {
                let null = self
                    .root
                    .plain(Path::new("dev/null"))
                    .map_err(|errno| Problem::new(errno, "the container's /dev/null"))?;
                let stat = fstat(&null)?;
                let character = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
                if !character || stat.st_rdev != makedev(1, 3) {
                    let said = "the container's /dev/null is not the null device";
                    return Err(Problem::refused(said));
                }
                null
            }
        };
        let null: &OwnedFd = self.null.insert(null);
        Ok(null.as_fd())
    }
}
