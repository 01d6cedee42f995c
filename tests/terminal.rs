//! A terminal works as it would without a sandbox: Ctrl-C, Ctrl-Z and fg, resizing.
#![cfg(target_os = "linux")]

mod support;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::json;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::time::{Duration, Instant};
use support::{Bed, LANDSTRIP, probe, wait};

const PATIENCE: Duration = Duration::from_secs(30);

/// A program on a terminal of its own.
struct Terminal {
    near: OwnedFd,
    child: Child,
    seen: String,
}

impl Terminal {
    /// Starts the program; the sandbox is up to it.
    fn start(bed: &Bed, program: &[&str]) -> Terminal {
        let near =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("openpt");
        grantpt(&near).and_then(|()| unlockpt(&near)).expect("its other side");
        let path = ptsname(&near, Vec::new()).expect("its name").into_string().expect("utf-8");
        let mut command = bed.command(&probe());
        command.arg("@spawn").arg(format!("tty={path}")).arg("--");
        command.args(program.iter().map(|a| bed.fill(a)));
        command.env("PS1", "prompt> ").env("TERM", "dumb");
        let child = command.spawn().expect("spawn");
        Terminal { near, child, seen: String::new() }
    }

    /// Starts a shell script in a sandbox.
    fn sandboxed(bed: &Bed, script: &str) -> Terminal {
        let policy = bed.policy(&json!({"filesystem": {"allowWrite": ["{in}"]}}));
        let policy = policy.display().to_string();
        Terminal::start(bed, &[LANDSTRIP, "run", "-p", &policy, "--", "/bin/sh", "-c", script])
    }

    fn write(&self, text: &str) {
        assert_eq!(rustix::io::write(&self.near, text.as_bytes()), Ok(text.len()));
    }

    /// Reads until `text` has come since the last call, and forgets what came up to it.
    fn expect(&mut self, text: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.seen.find(text) {
                self.seen.drain(..at + text.len());
                return;
            }
            let left = until.saturating_duration_since(Instant::now());
            let limit = left.try_into().expect("a timeout");
            let mut fds = [PollFd::new(&self.near, PollFlags::IN)];
            let ready = poll(&mut fds, Some(&limit)).expect("poll");
            let mut buffer = [0; 4096];
            let size =
                if ready == 0 { 0 } else { rustix::io::read(&self.near, &mut buffer).unwrap_or(0) };
            assert!(size > 0, "no {text:?} after {:?}", self.seen);
            self.seen += &String::from_utf8_lossy(&buffer[..size]);
        }
    }

    fn ends_with(&mut self, code: i32) {
        let status = wait(&mut self.child, PATIENCE).expect("an end");
        assert_eq!(status.code(), Some(code), "{status:?}");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn control_c_reaches_the_program() {
    let bed = Bed::new(&[]);
    let mut terminal =
        Terminal::sandboxed(&bed, "trap 'echo caught; exit 8' INT; echo ready; sleep 60 & wait");
    terminal.expect("ready");
    terminal.write("\x03");
    terminal.expect("caught");
    terminal.ends_with(8);
}

#[test]
fn control_c_ends_a_program_that_does_not_care() {
    let bed = Bed::new(&[]);
    let mut terminal = Terminal::sandboxed(&bed, "echo ready; exec sleep 60");
    terminal.expect("ready");
    terminal.write("\x03");
    terminal.ends_with(130);
}

#[test]
fn control_backslash_reaches_the_program() {
    let bed = Bed::new(&[]);
    let mut terminal =
        Terminal::sandboxed(&bed, "trap 'echo caught; exit 8' QUIT; echo ready; sleep 60 & wait");
    terminal.expect("ready");
    terminal.write("\x1c");
    terminal.expect("caught");
    terminal.ends_with(8);
}

#[test]
fn the_program_is_in_the_foreground_and_reads() {
    let bed = Bed::new(&[]);
    let mut terminal = Terminal::sandboxed(
        &bed,
        "test -t 0 && test -t 1 && echo ready; read line; echo got $line; tty",
    );
    terminal.expect("ready");
    terminal.write("hello\n");
    terminal.expect("got hello");
    terminal.expect("/dev/pts/");
    terminal.ends_with(0);
}

#[test]
fn resizing_reaches_the_program() {
    let bed = Bed::new(&[]);
    let script = "trap 'stty size; exit 0' WINCH; stty size; echo ready; while :; do sleep 60 & wait $!; done";
    let mut terminal = Terminal::sandboxed(&bed, script);
    terminal.expect("ready");
    let size = Winsize { ws_row: 41, ws_col: 123, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal.near, size).expect("resize");
    terminal.expect("41 123");
    terminal.ends_with(0);
}

/// The launcher under an interactive shell, as a person uses it.
#[test]
fn a_shell_stops_and_continues_the_run() {
    if !support::have::have("job control", &["cmd:bash"]) {
        return;
    }
    let bed = Bed::new(&[]);
    let policy = bed.policy(&json!({"filesystem": {"allowWrite": ["{in}"]}})).display().to_string();
    let mut terminal = Terminal::start(&bed, &["/bin/bash", "--norc", "--noprofile", "-i"]);
    terminal.expect("prompt> ");
    let script = "echo ready-$((40 + 2)); while read line; do echo got-$line; done";
    terminal.write(&format!("{LANDSTRIP} run -p {policy} -- sh -c '{script}'\n"));
    terminal.expect("ready-42");
    terminal.write("\x1a");
    terminal.expect("Stopped");
    terminal.expect("prompt> ");
    terminal.write("echo shell-$((40 + 2))\n");
    terminal.expect("shell-42");
    terminal.write("fg\n");
    terminal.expect("landstrip"); // the shell says what it continues
    terminal.write("again\n");
    terminal.expect("got-again");
    terminal.write("\x1a");
    terminal.expect("Stopped");
    terminal.expect("prompt> ");
    terminal.write("fg\n");
    terminal.expect("landstrip");
    // The shell says so before it hands the terminal over; a line shows that it has.
    terminal.write("more\n");
    terminal.expect("got-more");
    terminal.write("\x03");
    terminal.expect("prompt> ");
    terminal.write("echo status-$?\n");
    terminal.expect("status-130");
    // In the background it runs on, and reading stops it.
    terminal.write(&format!("{LANDSTRIP} run -p {policy} -- sh -c 'echo back-$((40 + 2)); exit 7' & wait $!; echo status-$?\n"));
    terminal.expect("back-42");
    terminal.expect("status-7");
    terminal.write("exit\n");
    terminal.ends_with(0);
}

/// The reference client: a question, an answer on the terminal, and what it comes to.
#[test]
fn a_person_is_asked_on_the_terminal() {
    if !support::have::have("the reference client", &["cmd:python3"]) {
        return;
    }
    let bed = Bed::new(&[]);
    let policy = bed.policy(&json!({"filesystem": {"allowWrite": ["{in}"]}})).display().to_string();
    let client = concat!(env!("CARGO_MANIFEST_DIR"), "/integration/harness/ask.py");
    let script = "for i in a b a; do echo $i > {out}/$i && echo made $i; done; \
                  echo x > {out}/d\u{1b}; echo x > {out}/d\u{1b}; \
                  exec python3 -c 'import signal as s; s.pthread_sigmask(s.SIG_BLOCK, [s.SIGINT]); \
                  print(\"ready\", flush=True); s.sigwait([s.SIGINT]); exit(7)'";
    let program = ["-p", &policy, "--", "/bin/sh", "-c", script];
    let line = [&["python3", client, "--landstrip", LANDSTRIP][..], &program].concat();
    let mut terminal = Terminal::start(&bed, &line);
    terminal.expect("write");
    terminal.expect("/out/a by ");
    terminal.expect("allow? [y/a/n/v] ");
    terminal.write("what\n");
    terminal.expect("this once");
    terminal.expect("allow? [y/a/n/v] ");
    terminal.write("a\n");
    terminal.expect("made a");
    terminal.expect("/out/b by ");
    terminal.expect("allow? [y/a/n/v] ");
    terminal.write("y\n");
    terminal.expect("made b");
    // Allowed for the run.
    terminal.expect("made a");
    terminal.expect("/out/d\\x1b by ");
    terminal.expect("allow? [y/a/n/v] ");
    terminal.write("v\n");
    terminal.expect("/out/d\\x1b by ");
    terminal.expect("ready");
    // Ctrl-C is for the program, which waits for it in a way that loses none.
    terminal.write("\x03");
    terminal.ends_with(7);
}

/// Ctrl-C while the program waits for an answer.
#[test]
fn control_c_withdraws_a_question() {
    if !support::have::have("the reference client", &["cmd:python3"]) {
        return;
    }
    let bed = Bed::new(&[]);
    let policy = bed.policy(&json!({"filesystem": {"allowWrite": ["{in}"]}})).display().to_string();
    let client = concat!(env!("CARGO_MANIFEST_DIR"), "/integration/harness/ask.py");
    let program = ["-p", &policy, "--", "/bin/sh", "-c"];
    let start = |script| {
        let line = [&["python3", client, "--landstrip", LANDSTRIP][..], &program, &[script]];
        Terminal::start(&bed, &line.concat())
    };
    let mut terminal = start("echo x > {out}/a; echo survived");
    terminal.expect("allow? [y/a/n/v] ");
    terminal.write("\x03");
    terminal.ends_with(130);
    let mut terminal = start("trap 'echo caught; exit 8' INT; echo x > {out}/a; echo went on");
    terminal.expect("allow? [y/a/n/v] ");
    terminal.write("\x03");
    terminal.expect("caught");
    terminal.ends_with(8);
}
