//! What a run does to the host: written down, done, taken back.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::windows::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::sys::container;
use super::sys::file::Object;
use crate::cli::Failure;
use crate::lower::appcontainer::journal::{self, Header, Journal, Step};
use crate::lower::appcontainer::{Entry, Plan, path};
use crate::trap::Mechanism;

/// What was granted to one run, and is taken back when this is dropped.
pub struct Grants {
    /// The journal's file. Nobody else can open it: that is how a later run knows that this one lives.
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
        let path = directory.join(format!("{}.jsonl", header.profile));
        let file = OpenOptions::new().write(true).create_new(true).share_mode(0).open(&path);
        let file = file.map_err(|error| setup("the journal", &error))?;
        let line = header.line();
        let journal = Journal { header, steps: Vec::new() };
        let mut grants = Grants { file, path, journal, sid };
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
        let step = Step { path: entry.path.clone(), change };
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
        if take_back(&self.journal, &self.sid) {
            // Where it stays, a later run finds that there is nothing left to do.
            let _ = self.file.set_len(0);
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Takes back what runs did that ended without doing so.
pub fn recover(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        // Opened by nobody else: its run has ended, and no other one recovers it.
        let Ok(mut file) = OpenOptions::new().read(true).write(true).share_mode(0).open(&path)
        else {
            continue;
        };
        let mut text = String::new();
        let journal = match file.read_to_string(&mut text).map(|_| journal::parse(&text)) {
            Ok(Ok(journal)) => journal,
            Ok(Err(line)) => {
                warn(format!("{}:{line}: not a line of a journal", path.display()));
                continue;
            }
            Err(error) => {
                warn(format!("{}: {error}", path.display()));
                continue;
            }
        };
        let done = journal.is_none_or(|journal| match container::sid(&journal.header.profile) {
            Ok(sid) => take_back(&journal, &sid),
            Err(_) => false,
        });
        if done {
            let _ = file.set_len(0);
            drop(file);
            let _ = fs::remove_file(&path);
        }
    }
}

/// Takes back what a journal says; whether all of it is. What is not is told of.
fn take_back(journal: &Journal, sid: &[u8]) -> bool {
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
    for step in journal.steps.iter().rev() {
        check(&step.path, restore(step, sid));
    }
    let Header { profile, loopback, temporary, .. } = &journal.header;
    if *loopback {
        check("the exemption of loopback", container::exempt(sid, false));
    }
    if let Some(temporary) = path::verbatim(temporary) {
        check(&temporary, fs::remove_dir_all(&temporary));
    }
    check(profile, container::delete(profile));
    done
}

fn restore(step: &Step, sid: &[u8]) -> io::Result<()> {
    let object = Object::open(&step.path)?;
    let now = object.list()?;
    let before = now.taken_back(&step.change, sid);
    if before == now {
        return Ok(());
    }
    object.set(&now, &before)
}

fn warn(message: String) {
    let message = format!("what a run was granted could not be taken back: {message}");
    crate::cli::warn(Failure::setup(Mechanism::Appcontainer, message));
}

/// A failure to set up `what`.
pub fn setup(what: &str, error: &io::Error) -> Failure {
    Failure::setup(Mechanism::Appcontainer, format!("{what}: {error}"))
}
