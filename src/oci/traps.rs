//! The traps of a container: where they go, and reading them while it runs.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, inotify, openat2};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::channel::connect_stream;
use super::sources::variable;
use super::{Context, Error, Result};

/// The annotation with the file or Unix socket that gets the traps.
pub const TRAPS: &str = "dev.landstrip.traps";
/// The directory in which a document may name one, where the operator has made it.
const USUAL: &str = "/var/log/landstrip";
/// The traps of a container for which nobody names a place.
const OWN: &str = "traps.jsonl";
/// How a file is written: at its end, without waiting for who might read it.
const FLAGS: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY);

/// Where the traps of a container go.
///
/// They are written with the runtime's rights, and hold text that the program chooses. So a document, which may hold
/// what an image says, names a place only in a directory that the operator has for that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Place {
    /// A file beside the state.
    Own,
    /// What the caller names.
    Named(PathBuf),
    /// What the document names, as a path below `dir`.
    Below {
        /// The operator's directory.
        dir: PathBuf,
        /// The path in there.
        name: PathBuf,
    },
}

impl Place {
    /// The place for what the caller has said, and the document asks for.
    ///
    /// # Errors
    ///
    /// Where the document names a place that is not below the directory for that.
    pub fn of(said: Option<&Path>, asked: Option<&str>, rootless: bool) -> Result<Place> {
        let wrong = |what: String| Err(Error::new(format!("annotations.{TRAPS}: {what}")));
        let dir = match (said, asked) {
            (Some(path), None) if !path.is_dir() => return Ok(Place::Named(path.to_owned())),
            (_, None) => return Ok(Place::Own),
            (Some(dir), Some(_)) => dir.to_owned(),
            (None, Some(_)) => match usual(rootless) {
                Some(dir) => dir,
                None => return wrong("there is no directory for it: --traps DIR".to_owned()),
            },
        };
        let asked = asked.unwrap_or_default();
        match Path::new(asked).strip_prefix(&dir) {
            Ok(name) if !name.as_os_str().is_empty() => {
                let name = name.to_owned();
                Ok(Place::Below { dir, name })
            }
            _ => {
                let dir = dir.display();
                let what =
                    "where documents may name a place: --traps DIR before the command says another";
                wrong(format!("{asked:?} is no path below {dir}, {what}"))
            }
        }
    }

    /// Its path on the host, for a container whose state is in `state`.
    #[must_use]
    pub fn path(&self, state: &Path) -> PathBuf {
        match self {
            Place::Own => state.join(OWN),
            Place::Named(path) => path.clone(),
            Place::Below { dir, name } => dir.join(name),
        }
    }

    /// Opens it: connects to a socket, or opens a file to append to, which is made where there is none.
    ///
    /// # Errors
    ///
    /// Where it cannot be opened, or nobody listens; where a document's is behind a link, or others could have made
    /// one.
    pub fn open(&self, state: &Path) -> Result<OwnedFd> {
        let path = &self.path(state);
        let (dir, name) = match self {
            Place::Below { dir, name } => (dir, name),
            _ => {
                let what = || format!("traps: {}", path.display());
                if path.metadata().is_ok_and(|found| found.file_type().is_socket()) {
                    return connect_stream(path).context(what());
                }
                let mut options = File::options();
                options.append(true).create(true).mode(0o600);
                options.custom_flags(FLAGS.bits().cast_signed());
                return options.open(path).map(OwnedFd::from).context(what());
            }
        };
        let what = || format!("annotations.{TRAPS}: {}", path.display());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let place = rustix::fs::open(dir, flags, Mode::empty())
            .context(format!("annotations.{TRAPS}: {}", dir.display()))?;
        let held = fstat(&place).context(what())?;
        let open_to_others = held.st_mode & (Mode::WGRP | Mode::WOTH).bits() != 0;
        if open_to_others || held.st_uid != rustix::process::geteuid().as_raw() {
            let why = "has another owner than the runtime, or others can write there";
            return Err(Error::new(format!("annotations.{TRAPS}: {}: {why}", dir.display())));
        }
        let look = |flags: OFlags, mode: Mode| {
            let way = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            openat2(&place, name, flags | OFlags::CLOEXEC, mode, way)
        };
        let found = look(OFlags::PATH, Mode::empty());
        if let Ok(found) = &found
            && FileType::from_raw_mode(fstat(found).context(what())?.st_mode) == FileType::Socket
        {
            let through = format!("/proc/self/fd/{}", found.as_raw_fd());
            return connect_stream(Path::new(&through)).context(what());
        }
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | FLAGS;
        look(flags, Mode::RUSR | Mode::WUSR).context(what())
    }
}

/// The directory in which documents may name places where nobody says another.
fn usual(rootless: bool) -> Option<PathBuf> {
    if !rootless {
        return Some(USUAL.into());
    }
    let own = || Some(variable("HOME")?.join(".local/state"));
    Some(variable("XDG_STATE_HOME").or_else(own)?.join("landstrip"))
}

/// A file that traps are appended to, a line each.
pub struct Follower {
    file: BufReader<File>,
    line: Vec<u8>,
    changes: OwnedFd,
}

impl Follower {
    /// Reads from the beginning of the file.
    ///
    /// # Errors
    ///
    /// As open(2) and inotify_init(2).
    pub fn open(path: &Path) -> Result<Follower> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let changes = inotify::init(flags).context("inotify")?;
        inotify::add_watch(&changes, path, inotify::WatchFlags::MODIFY).context(path.display())?;
        let file = BufReader::new(File::open(path).context(path.display())?);
        Ok(Follower { file, line: Vec::new(), changes })
    }

    /// The next whole line, if there is one.
    ///
    /// # Errors
    ///
    /// As read(2).
    pub fn line(&mut self) -> Result<Option<String>> {
        self.file.read_until(b'\n', &mut self.line).context("traps")?;
        if self.line.last() != Some(&b'\n') {
            return Ok(None);
        }
        let line = String::from_utf8_lossy(&self.line).trim_end().to_owned();
        self.line.clear();
        Ok(Some(line))
    }

    /// Waits until there may be another line, or the process ends.
    ///
    /// # Errors
    ///
    /// As poll(2).
    pub fn wait(&mut self, process: &OwnedFd) -> Result<()> {
        let mut fds =
            [PollFd::new(&self.changes, PollFlags::IN), PollFd::new(process, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).context("poll"),
        }
        // What changed is found in the file.
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.changes, &mut buffer);
        while events.next().is_ok() {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_names_what_is_below_the_operators_directory() {
        let dir = tempfile::tempdir().unwrap();
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let below = text(&dir.path().join("a/b"));
        let place = |said: Option<&Path>, asked: Option<&str>| Place::of(said, asked, false);
        let found = place(Some(dir.path()), Some(&below)).unwrap();
        assert_eq!(found, Place::Below { dir: dir.path().into(), name: "a/b".into() });
        assert_eq!(place(Some(dir.path()), None), Ok(Place::Own));
        assert_eq!(place(None, None), Ok(Place::Own));
        let file = dir.path().join("file");
        assert_eq!(place(Some(&file), None), Ok(Place::Named(file.clone())));
        for (said, asked) in [
            (Some(&*file), below.as_str()),
            (Some(dir.path()), "/etc/profile.d/x.sh"),
            (Some(dir.path()), "a"),
            (Some(dir.path()), ""),
            (Some(dir.path()), &text(dir.path())),
            (None, "/root/.bashrc"),
        ] {
            let error = place(said, Some(asked)).unwrap_err().to_string();
            assert!(error.starts_with("annotations.dev.landstrip.traps: "), "{error}");
        }
        assert!(place(None, Some("/var/log/landstrip/x")).is_ok());
    }
}
