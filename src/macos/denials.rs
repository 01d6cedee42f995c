//! Denials of a run, out of the unified log: the kernel writes them there, and log(1) reads it.
//!
//! How late a denial comes, nothing says. So a process of ours is denied something at the begin, until the
//! log shows it, and another one at the end: what was denied in between has come by then.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use super::sys;
use crate::lower::seatbelt::log;
use crate::trap::{Lines, Summary};

/// How long it may take until the log shows a denial.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often it is tried at the begin.
const INTERVAL: Duration = Duration::from_millis(100);
/// A file that everybody may read.
const FILE: &str = "/private/etc/hosts";
/// The longest line that is read; longer ones are left out.
const LONGEST: usize = 64 * 1024;

/// A log that is read, before the run.
pub struct Log {
    process: Process,
    output: Output,
    tag: String,
    last: Mark,
}

/// The same during the run.
pub struct Following {
    process: Process,
    thread: JoinHandle<Summary>,
    complete: Receiver<()>,
    last: Mark,
}

impl Log {
    /// Begins to read what is denied with the message `tag`, and returns when it comes.
    ///
    /// # Errors
    ///
    /// `TimedOut` where it does not: log(1) takes an administrator.
    pub fn begin(tag: &str) -> io::Result<Log> {
        let mut command = Command::new("/usr/bin/log");
        command.args(log::arguments(tag)).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = Process(command.stderr(Stdio::null()).spawn()?);
        let stdout = process.0.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let output = Output { file: OwnedFd::from(stdout).into(), lines: Lines::of(LONGEST) };
        let mut log = Log { process, output, tag: tag.to_owned(), last: Mark::new(tag)? };
        log.comes().map(|()| log)
    }

    fn comes(&mut self) -> io::Result<()> {
        let start = Instant::now();
        let mut marks: Vec<u32> = Vec::new();
        while start.elapsed() < PATIENCE {
            marks.push(Mark::new(&self.tag)?.denied());
            let tried = Instant::now();
            while let Some(left) = INTERVAL.checked_sub(tried.elapsed()) {
                if !sys::readable(&self.output.file, left) {
                    continue;
                }
                let mut seen = false;
                let tag = &self.tag;
                let more = self.output.read(|line| {
                    let pid = log::parse(line, tag).and_then(|entry| u32::try_from(entry.pid).ok());
                    seen |= pid.is_some_and(|pid| marks.contains(&pid));
                })?;
                if seen {
                    return Ok(());
                }
                if !more {
                    return Err(io::Error::other("log(1) has ended"));
                }
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Goes on reading beside the run.
    #[must_use]
    pub fn follow(self, reader: log::Reader) -> Following {
        let Log { process, mut output, tag, last } = self;
        let (tell, complete) = channel();
        let end = last.pid();
        let thread = thread::spawn(move || {
            let mut summary = Summary::new();
            let mut done = false;
            while !done {
                let more = output.read(|line| {
                    let Some(entry) = log::parse(line, &tag) else { return };
                    done |= u32::try_from(entry.pid) == Ok(end);
                    if let Some(denial) = reader.denial(&entry).filter(|_| !done) {
                        summary.record_many(&denial, SystemTime::now(), entry.count);
                    }
                });
                done |= !matches!(more, Ok(true));
            }
            // Where nobody waits any more, the summary is what there is.
            let _ = tell.send(());
            summary
        });
        Following { process, thread, complete, last }
    }
}

impl Following {
    /// What was denied, when the run has ended; and whether that is all.
    #[must_use]
    pub fn finish(mut self) -> (Summary, bool) {
        self.last.denied();
        let complete = self.complete.recv_timeout(PATIENCE).is_ok();
        // Its end is the end of what the thread reads.
        drop(self.process);
        (self.thread.join().unwrap_or_default(), complete)
    }
}

/// log(1), ended when this is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that is denied something when it is told to.
struct Mark(Child);

impl Mark {
    fn new(tag: &str) -> io::Result<Mark> {
        let profile = std::ffi::CString::new(log::mark(FILE, tag))?;
        let (_, report) = io::pipe()?;
        // It reads its standard input to the end first.
        let mut command = Command::new("/bin/cat");
        command.args(["-", FILE]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        sys::spawn(&mut command, profile, None, &report).map(Mark)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Has it denied, and returns its number.
    fn denied(&mut self) -> u32 {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
        self.pid()
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.denied();
    }
}

/// What comes out of log(1).
struct Output {
    file: File,
    lines: Lines,
}

impl Output {
    /// Reads what there is, and calls `each` with every line that ends in it; false at the end.
    fn read(&mut self, mut each: impl FnMut(&[u8])) -> io::Result<bool> {
        let mut bytes = [0; 4096];
        let count = self.file.read(&mut bytes)?;
        self.lines.push(&bytes[..count], |line| line.into_iter().for_each(&mut each));
        Ok(count > 0)
    }
}
