//! What is known of a container between commands: a directory each, below the root directory.
//!
//! `state.json` is replaced as a whole, never written to. The directory is the claim to the name: whoever
//! makes it owns the container, and whoever removes it gives the name back. Its lock (flock(2)) is held by
//! commands that change the container.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use oci_spec::runtime::Hook;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

use super::{Context, Error, Result, cgroup};

const RECORD: &str = "state.json";
const CONFIG: &str = "config.json";
/// The socket on which a created container waits for `start`.
pub const START: &str = "start.sock";
/// The socket on which the launcher of a container under a policy waits for commands that are executed in it.
pub const EXEC: &str = "exec.sock";
/// The form of `state.json`.
const VERSION: u32 = 1;
/// The most bytes of a name: that of a file, less some for what cgroups put around it.
const LONGEST: usize = 200;

/// The directory that holds the containers of one user.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

/// Everything that later commands have to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    version: u32,
    /// The container's name.
    pub id: String,
    /// The version of the document.
    pub oci_version: String,
    /// The init process, in the pid namespace of the runtime; none while it is not there yet.
    pub pid: Option<i32>,
    /// When it started, in clock ticks after boot: a number that is used again tells nothing.
    pub start_time: u64,
    /// The bundle, as the caller gave it, absolute.
    pub bundle: PathBuf,
    /// The root file system, absolute and without links.
    pub rootfs: PathBuf,
    /// The document's annotations.
    #[serde(default)]
    pub annotations: HashMap<String, String>,
    /// Its cgroups.
    pub cgroup: Option<cgroup::Cgroup>,
    /// Who made them.
    pub manager: cgroup::Manager,
    /// Whether it has a policy, which `exec` then has to find.
    #[serde(default)]
    pub fenced: bool,
    /// Whether it was made without root in the initial user namespace.
    pub rootless: bool,
    /// Whether `create` has come to its end.
    pub ready: bool,
    /// Whether it kept the caller's session keyring.
    pub callers_keyring: bool,
    /// Whether its init is that of a pid namespace, which ends with it.
    pub leads: bool,
    /// The namespaces it has of its own or shares by path, as `CLONE_NEW*`.
    pub namespaces: u64,
    /// Seconds after 1970 when it was made.
    pub created: u64,
    /// The user who made it.
    pub owner: u32,
    /// Hooks that run after `start`.
    #[serde(default)]
    pub poststart: Vec<Hook>,
    /// Hooks that run after `delete`.
    #[serde(default)]
    pub poststop: Vec<Hook>,
}

/// What a container is doing, as the specification names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// `create` has not ended, or was killed.
    Creating,
    /// It waits for `start`.
    Created,
    /// The program runs.
    Running,
    /// The program is frozen.
    Paused,
    /// The program has ended.
    Stopped,
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Status::Creating => "creating",
            Status::Created => "created",
            Status::Running => "running",
            Status::Paused => "paused",
            Status::Stopped => "stopped",
        })
    }
}

/// The state of a container as hooks, `state` and seccomp agents get it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct View<'a> {
    /// The version of the document.
    pub oci_version: &'a str,
    /// The container's name.
    pub id: &'a str,
    /// What it is doing.
    pub status: Status,
    /// The init process; 0 where there is none.
    pub pid: i32,
    /// The bundle.
    pub bundle: &'a Path,
    /// The annotations.
    pub annotations: &'a HashMap<String, String>,
}

/// The directory of one container.
#[derive(Debug)]
pub struct Container {
    dir: PathBuf,
}

/// The right to change a container, until it is dropped.
#[derive(Debug)]
pub struct Lock(#[allow(dead_code, reason = "the descriptor holds the lock")] File);

/// Checks a container's name: what engines accept of each other.
///
/// # Errors
///
/// A name with other characters, or that is too long.
pub fn check_id(id: &str) -> Result<()> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '-' | '.');
    if id.is_empty() || !id.chars().all(allowed) || matches!(id, "." | "..") {
        let known = "letters, digits, and any of _ + - . can be used";
        return Err(Error::new(format!(
            "container ID {id:?} is empty or has an invalid character: {known}"
        )));
    }
    if id.len() > LONGEST {
        return Err(Error::new(format!("container ID: longer than {LONGEST} bytes")));
    }
    Ok(())
}

impl Root {
    /// The directory `dir`.
    #[must_use]
    pub fn new(dir: PathBuf) -> Root {
        Root(dir)
    }

    /// The directory of container `id`, whether or not it exists.
    ///
    /// # Errors
    ///
    /// As [`check_id`].
    pub fn container(&self, id: &str) -> Result<Container> {
        check_id(id)?;
        Ok(Container { dir: self.0.join(id) })
    }

    /// Claims the name `id`, and locks the new container.
    ///
    /// # Errors
    ///
    /// A container of this name exists; as mkdir(2).
    pub fn claim(&self, id: &str) -> Result<(Container, Lock)> {
        let container = self.container(id)?;
        let private = || {
            let mut builder = DirBuilder::new();
            builder.mode(0o700);
            builder
        };
        let failed = |error: io::Error| Error::new(format!("{}: {error}", self.0.display()));
        match private().create(&container.dir) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(Error::new(format!("container with id {id} already exists")));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                private().recursive(true).create(&self.0).map_err(failed)?;
                private().create(&container.dir).map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
        }
        let lock = container.lock(id)?;
        Ok((container, lock))
    }

    /// The names of all containers, sorted.
    ///
    /// # Errors
    ///
    /// As readdir(3); none where the directory does not exist.
    pub fn list(&self) -> Result<Vec<String>> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).context(self.0.display()),
        };
        let name = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
        let mut names: Vec<String> =
            entries.filter_map(name).filter(|name| check_id(name).is_ok()).collect();
        names.sort();
        Ok(names)
    }
}

fn unknown(id: &str) -> Error {
    Error::new(format!("container {id:?} does not exist"))
}

impl Container {
    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Takes the lock, waiting for whoever has it.
    ///
    /// # Errors
    ///
    /// The container `id` does not exist; as flock(2).
    pub fn lock(&self, id: &str) -> Result<Lock> {
        let file = match File::open(&self.dir) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(unknown(id)),
            Err(error) => return Err(error).context(self.dir.display()),
        };
        loop {
            match flock(&file, FlockOperation::LockExclusive) {
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno).context("flock"),
                // It may have been removed by whoever had the lock.
                Ok(()) if !self.dir.exists() => return Err(unknown(id)),
                Ok(()) => return Ok(Lock(file)),
            }
        }
    }

    /// Reads the record; `None` where `create` did not get that far.
    ///
    /// # Errors
    ///
    /// The container `id` does not exist, or its record is none.
    pub fn record(&self, id: &str) -> Result<Option<Record>> {
        let path = self.dir.join(RECORD);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound && self.dir.exists() => {
                return Ok(None);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(unknown(id)),
            Err(error) => return Err(error).context(path.display()),
        };
        let record: Record = serde_json::from_slice(&bytes).context(path.display())?;
        if record.version != VERSION {
            let what = format!("{}: version {} is not known", path.display(), record.version);
            return Err(Error::new(what));
        }
        Ok(Some(record))
    }

    /// As [`Container::record`], of a container that is complete.
    ///
    /// # Errors
    ///
    /// As there; where `create` has not ended.
    pub fn complete(&self, id: &str) -> Result<Record> {
        match self.record(id)? {
            Some(record) if record.pid.is_some() => Ok(record),
            _ => Err(Error::new(format!("container {id:?} is not created yet"))),
        }
    }

    /// Replaces the record.
    ///
    /// # Errors
    ///
    /// As write(2) and rename(2).
    pub fn write(&self, record: &Record) -> Result<()> {
        let text = serde_json::to_vec(record).context(RECORD)?;
        self.replace(RECORD, &text)
    }

    /// Keeps the document.
    ///
    /// # Errors
    ///
    /// As write(2).
    pub fn keep_config(&self, config: &[u8]) -> Result<()> {
        self.replace(CONFIG, config)
    }

    /// The document that was kept.
    ///
    /// # Errors
    ///
    /// As read(2).
    pub fn config(&self) -> Result<Vec<u8>> {
        let path = self.dir.join(CONFIG);
        fs::read(&path).context(path.display())
    }

    /// Keeps `content` under `name` beside the state.
    ///
    /// # Errors
    ///
    /// As write(2).
    pub fn keep(&self, name: &str, content: &[u8]) -> Result<()> {
        self.replace(name, content)
    }

    /// What was kept under `name`, if anything.
    ///
    /// # Errors
    ///
    /// As read(2).
    pub fn kept(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.dir.join(name);
        match fs::read(&path) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).context(path.display()),
        }
    }

    fn replace(&self, name: &str, content: &[u8]) -> Result<()> {
        replace(&self.dir.join(name), content, 0o600)
    }

    /// What the container of `record` is doing.
    #[must_use]
    pub fn status(&self, record: &Record) -> Status {
        let Some(pid) = record.pid else { return Status::Creating };
        if !alive(pid, record.start_time) {
            return Status::Stopped;
        }
        if !record.ready {
            return Status::Creating;
        }
        if self.dir.join(START).exists() {
            return Status::Created;
        }
        if record.cgroup.as_ref().is_some_and(cgroup::Cgroup::frozen) {
            return Status::Paused;
        }
        Status::Running
    }

    /// Gives the name back.
    ///
    /// # Errors
    ///
    /// As rmdir(2).
    pub fn remove(&self) -> Result<()> {
        // What is in it is known: no tree is walked.
        for name in [START, EXEC, CONFIG, RECORD] {
            remove(&self.dir.join(name))?;
        }
        match fs::remove_dir(&self.dir) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
                fs::remove_dir_all(&self.dir).context(self.dir.display())
            }
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).context(self.dir.display())
            }
            _ => Ok(()),
        }
    }

    /// Takes away the sign that the container waits for `start`.
    ///
    /// # Errors
    ///
    /// As unlink(2).
    pub fn started(&self) -> Result<()> {
        remove(&self.dir.join(START))
    }
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).context(path.display()),
        _ => Ok(()),
    }
}

/// Writes a file beside `path`, and puts it there.
///
/// # Errors
///
/// As open(2), write(2) and rename(2).
pub fn replace(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let result = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&beside)
        .and_then(|mut file| file.write_all(content))
        .and_then(|()| fs::rename(&beside, path));
    result.context(path.display()).inspect_err(|_| {
        let _half = fs::remove_file(&beside);
    })
}

impl Record {
    /// The record of a container whose init process is not there yet.
    #[must_use]
    pub fn new(id: &str, bundle: &super::bundle::Bundle, manager: cgroup::Manager) -> Record {
        let hooks = bundle.spec.hooks().as_ref();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Record {
            version: VERSION,
            id: id.to_owned(),
            oci_version: bundle.spec.version().clone(),
            pid: None,
            start_time: 0,
            bundle: bundle.dir.clone(),
            rootfs: bundle.rootfs.clone(),
            annotations: bundle.spec.annotations().clone().unwrap_or_default(),
            cgroup: None,
            manager,
            fenced: false,
            rootless: false,
            ready: false,
            callers_keyring: false,
            leads: false,
            namespaces: 0,
            created: now.map_or(0, |time| time.as_secs()),
            owner: rustix::process::getuid().as_raw(),
            poststart: hooks.and_then(|hooks| hooks.poststart().clone()).unwrap_or_default(),
            poststop: hooks.and_then(|hooks| hooks.poststop().clone()).unwrap_or_default(),
        }
    }

    /// The container with `status`; `pid` is the init process as the reader knows it.
    #[must_use]
    pub fn view(&self, status: Status, pid: i32) -> View<'_> {
        View {
            oci_version: &self.oci_version,
            id: &self.id,
            status,
            pid,
            bundle: &self.bundle,
            annotations: &self.annotations,
        }
    }

    /// A descriptor of the init process; `None` where it has ended, whoever has its number now.
    #[must_use]
    pub fn init(&self) -> Option<OwnedFd> {
        let pid = self.pid?;
        let pidfd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        // While the descriptor is open, the number is not given away.
        alive(pid, self.start_time).then_some(pidfd)
    }
}

/// When process `pid` started, in clock ticks after boot.
///
/// # Errors
///
/// As read(2).
pub fn start_time(pid: i32) -> Result<u64> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read(&path).context(&path)?;
    let fields = Fields::read(&text);
    fields
        .map(|fields| fields.start_time)
        .ok_or_else(|| Error::new(format!("{path}: no start time")))
}

/// Whether process `pid`, which is not reaped, is on its way out and past all that could stop it.
#[must_use]
pub fn is_ending(pid: i32) -> bool {
    /// `PF_EXITING` of the kernel's sched.h.
    const EXITING: u64 = 0x4;
    let Ok(text) = fs::read(format!("/proc/{pid}/stat")) else { return true };
    Fields::read(&text).is_none_or(|fields| fields.flags & EXITING != 0)
}

fn alive(pid: i32, start_time: u64) -> bool {
    let Ok(text) = fs::read(format!("/proc/{pid}/stat")) else { return false };
    Fields::read(&text).is_some_and(|fields| {
        fields.start_time == start_time && !matches!(fields.state, b'Z' | b'X')
    })
}

/// Fields of `/proc/PID/stat`, proc_pid_stat(5).
struct Fields {
    state: u8,
    flags: u64,
    start_time: u64,
}

impl Fields {
    fn read(text: &[u8]) -> Option<Fields> {
        // The name is in parentheses, and may hold any byte; the last one ends it.
        let end = text.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        // The state is field 3, the flags are field 9, the time is field 22.
        let flags = fields.nth(5)?.parse().ok()?;
        Some(Fields { state, flags, start_time: fields.nth(12)?.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["a", "A-b_c+d.e", "0", "..."] {
            assert_eq!(check_id(good), Ok(()), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a b", "é", "a\0", &"a".repeat(LONGEST + 1)] {
            assert!(check_id(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_with_parentheses_hides_no_field() {
        let text = b"7 (a) R 0 (b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 19";
        let fields = Fields::read(text).unwrap();
        assert_eq!((fields.state, fields.flags, fields.start_time), (b'S', 6, 4711));
    }
}
