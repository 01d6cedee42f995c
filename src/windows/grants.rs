//! What a run does to the host: written down, done, taken back.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::windows::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::sys::container;
use super::sys::file::Object;
use crate::cli::Failure;
use crate::lower::appcontainer::journal::{self, Header, Journal, Step};
use crate::lower::appcontainer::{Change, Entry, Plan, path};
use crate::trap::Mechanism;

/// How the names of journals end.
const EXTENSION: &str = "jsonl";
/// `FILE_SHARE_READ` and `FILE_SHARE_DELETE`; with `FILE_SHARE_WRITE`, all there is.
const READ_AND_DELETE: u32 = 1 | 4;
const ALL: u32 = READ_AND_DELETE | 2;
/// How often one run looks whether another one is done with the lists.
const INTERVAL: Duration = Duration::from_millis(10);

/// What was granted to one run, and is taken back when this is dropped.
pub struct Grants {
    /// The journal's file. Nobody else can open it to write: that is how others know that this run lives.
    file: File,
    path: PathBuf,
    journal: Journal,
    sid: Vec<u8>,
}

impl Grants {
    /// Begins a journal in `directory`, and makes the container that its header names.
    ///
    /// # Errors
    ///
    /// What could not be done; everything else is taken back.
    pub fn begin(directory: &Path, header: Header, plan: &Plan) -> Result<Grants, Failure> {
        let sid = container::sid(&header.profile).map_err(|error| setup("AppContainer", &error))?;
        let path = directory.join(format!("{}.{EXTENSION}", header.profile));
        let file =
            OpenOptions::new().write(true).create_new(true).share_mode(READ_AND_DELETE).open(&path);
        let file = file.map_err(|error| setup("the journal", &error))?;
        let line = header.line();
        let journal = Journal { header, steps: Vec::new() };
        let mut grants = Grants { file, path, journal, sid };
        let _lock = Lock::take(directory).map_err(|error| setup("the journals", &error))?;
        grants.write(&line)?;
        let header = &grants.journal.header;
        let capabilities: Vec<u32> = plan.capabilities.iter().map(|one| one.identifier()).collect();
        container::create(&header.profile, &capabilities)
            .map_err(|error| setup("AppContainer", &error))?;
        if header.loopback {
            container::exempt(&grants.sid, true)
                .map_err(|error| setup("`windows.allowLoopback`", &error))?;
        }
        Ok(grants)
    }

    /// The SID of the container.
    pub fn sid(&self) -> &[u8] {
        &self.sid
    }

    /// Does to files and directories what the plan says. What is below comes first, so that a denial stands
    /// before there is anything to inherit.
    ///
    /// # Errors
    ///
    /// The object that could not be changed.
    pub fn apply(&mut self, plan: &Plan) -> Result<(), Failure> {
        let lock = self.path.parent().map(Lock::take).transpose();
        let _lock = lock.map_err(|error| setup("the journals", &error))?;
        for entry in plan.entries.iter().rev() {
            match self.change(entry) {
                Err(error) if !entry.is_optional() => {
                    let shown = path::shown(&entry.path).unwrap_or_else(|| entry.path.clone());
                    return Err(setup(&shown, &error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn change(&mut self, entry: &Entry) -> io::Result<()> {
        let object = Object::open(&entry.path)?;
        let before = object.list()?;
        let change = before.change(entry.block);
        let after = before.granted(&change, &entry.aces(&self.sid));
        let step = Step { path: entry.path.clone(), block: entry.block, change };
        self.write(&step.line()).map_err(|failure| io::Error::other(failure.message))?;
        self.journal.steps.push(step);
        object.set(&before, &after)
    }

    fn write(&mut self, line: &str) -> Result<(), Failure> {
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|error| setup("the journal", &error))
    }
}

impl Drop for Grants {
    fn drop(&mut self) {
        let Some(directory) = self.path.parent() else { return };
        let lock = Lock::take(directory);
        if let Err(error) = &lock {
            warn(format!("the journals: {error}"));
        }
        if take_back(&self.journal, &self.sid, &others(directory, &self.path)) {
            // Where it stays, a later run finds that there is nothing left to do.
            let _ = self.file.set_len(0);
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Takes back what runs did that ended without doing so, or could not while others relied on it.
pub fn recover(directory: &Path) {
    let Ok(_lock) = Lock::take(directory) else { return };
    for path in journals(directory) {
        // Opened by nobody else: its run has ended.
        let file =
            OpenOptions::new().read(true).write(true).share_mode(READ_AND_DELETE).open(&path);
        let Ok(file) = file else { continue };
        let done = match read(&file, &path) {
            Err(message) => {
                warn(message);
                false
            }
            Ok(None) => true,
            Ok(Some(journal)) => container::sid(&journal.header.profile)
                .is_ok_and(|sid| take_back(&journal, &sid, &others(directory, &path))),
        };
        if done {
            let _ = file.set_len(0);
            let _ = fs::remove_file(&path);
        }
    }
}

fn journals(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let paths = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION))
}

fn read(mut file: &File, path: &Path) -> Result<Option<Journal>, String> {
    let mut text = String::new();
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    file.read_to_string(&mut text).map_err(failed)?;
    journal::parse(&text)
        .map_err(|line| format!("{}:{line}: not a line of a journal", path.display()))
}

/// The paths that runs besides that of the journal `own` rely on to inherit nothing. Of a run that has ended
/// nothing counts: whoever can open its journal to write is not kept out by anybody.
fn others(directory: &Path, own: &Path) -> BTreeSet<String> {
    let mut held = BTreeSet::new();
    for path in journals(directory).filter(|path| path != own) {
        if OpenOptions::new().write(true).share_mode(ALL).open(&path).is_ok() {
            continue;
        }
        let Ok(file) = OpenOptions::new().read(true).share_mode(ALL).open(&path) else { continue };
        held.extend(read(&file, &path).ok().flatten().into_iter().flat_map(Journal::held));
    }
    held
}

/// Takes back what a journal says, but for what other runs rely on; whether all of it is. What cannot be is
/// told of.
fn take_back(journal: &Journal, sid: &[u8], held: &BTreeSet<String>) -> bool {
    let mut done = true;
    let mut check = |what: &str, result: io::Result<()>| match result {
        // Gone, or something else by now.
        Err(error)
            if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput) =>
        {
            warn(format!("{what}: {error}"));
            done = false;
        }
        _ => {}
    };
    let mut postponed = false;
    for step in journal.steps.iter().rev() {
        let (change, whole) = Journal::due(step, held);
        postponed |= !whole;
        check(&step.path, restore(&step.path, &change, sid));
    }
    let Header { profile, loopback, temporary, .. } = &journal.header;
    if *loopback {
        check("the exemption of loopback", container::exempt(sid, false));
    }
    if let Some(temporary) = path::verbatim(temporary) {
        check(&temporary, fs::remove_dir_all(&temporary));
    }
    check(profile, container::delete(profile));
    done && !postponed
}

fn restore(path: &str, change: &Change, sid: &[u8]) -> io::Result<()> {
    let object = Object::open(path)?;
    let now = object.list()?;
    let before = now.taken_back(change, sid);
    if before == now {
        return Ok(());
    }
    object.set(&now, &before)
}

/// One run of the user at a time changes lists, and the list of exemptions, which is read and written whole.
struct Lock(#[expect(dead_code, reason = "it is held open")] File);

impl Lock {
    fn take(directory: &Path) -> io::Result<Lock> {
        /// `ERROR_SHARING_VIOLATION`.
        const IN_USE: i32 = 32;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).share_mode(0);
        loop {
            match options.open(directory.join("lock")) {
                Err(error) if error.raw_os_error() == Some(IN_USE) => thread::sleep(INTERVAL),
                other => return other.map(Lock),
            }
        }
    }
}

fn warn(message: String) {
    let message = format!("what a run was granted could not be taken back: {message}");
    crate::cli::warn(Failure::setup(Mechanism::Appcontainer, message));
}

/// A failure to set up `what`.
pub fn setup(what: &str, error: &io::Error) -> Failure {
    Failure::setup(Mechanism::Appcontainer, format!("{what}: {error}"))
}
