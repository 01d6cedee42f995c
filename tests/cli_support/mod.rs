//! What the command-line tests share: a place of its own for each, and the binary in it.

#![allow(dead_code)] // each test binary uses its part

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

/// The program under test.
pub const LANDSTRIP: &str = env!("CARGO_BIN_EXE_landstrip");

/// Every answer takes a fraction of a second; this is for the one that never comes.
const PATIENCE: Duration = Duration::from_secs(120);

/// A directory that commands start in, which is their home as well.
pub struct Place {
    dir: tempfile::TempDir,
}

/// What a command answered.
#[derive(Debug)]
pub struct Answer {
    /// Exit status; -1 where a signal ended it.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Answer {
    /// The last record on standard error.
    pub fn trap(&self) -> Value {
        let line = self.stderr.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|_| panic!("no trap: {self:?}"))
    }

    /// The document on standard output.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

impl Place {
    pub fn new() -> Place {
        Place { dir: tempfile::tempdir().expect("a temporary directory") }
    }

    /// The canonical name of `name` in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().expect("canonical name").join(name)
    }

    /// As [`Place::path`], for messages and arguments.
    pub fn text(&self, name: &str) -> String {
        let path = self.path(name).into_os_string();
        path.into_string().expect("UTF-8").trim_end_matches('/').to_owned()
    }

    /// Writes a file.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).expect("write a file");
    }

    /// A command of the program.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(LANDSTRIP);
        command.args(args).current_dir(self.path("")).env("HOME", self.path(""));
        command
    }

    /// Runs a command with nothing on standard input.
    pub fn run(&self, args: &[&str]) -> Answer {
        finish(self.command(args), b"")
    }
}

/// Runs a command to its end, with `input` on standard input.
pub fn finish(mut command: Command, input: &[u8]) -> Answer {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    // A program that does not read its input closes it.
    let _unread = child.stdin.take().expect("a pipe").write_all(input);
    let mut streams = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
    let (done, end) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let err = std::thread::spawn(move || text(&mut streams.1));
        let out = text(&mut streams.0);
        let _gone = done.send(());
        (out, err.join().expect("a reader"))
    });
    if end.recv_timeout(PATIENCE).is_err() {
        kill(&mut child);
        panic!("no end within {PATIENCE:?}: {command:?}");
    }
    let (stdout, stderr) = reader.join().expect("a reader");
    let status = child.wait().expect("wait");
    Answer { code: status.code().unwrap_or(-1), stdout, stderr }
}

fn kill(child: &mut Child) {
    child.kill().expect("kill");
    child.wait().expect("wait");
}

fn text(from: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).expect("read");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Says on standard error, past the harness, why a test did not run.
pub fn skipped(what: &str, why: &str) {
    let _unheard = writeln!(std::io::stderr(), "skipped: {what}: {why}");
}

/// The repository's own file.
pub fn repository(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}
