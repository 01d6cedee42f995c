//! A terminal works as it would without a sandbox: Ctrl-C, Ctrl-Z and fg, resizing.
#![cfg(target_os = "linux")]

mod support;

use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::json;
use support::pty::Terminal;
use support::{ACCEPT, Bed, LANDSTRIP};

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
    terminal.write(&format!("{LANDSTRIP} run {ACCEPT} -p {policy} -- sh -c '{script}'\n"));
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
    terminal.write(&format!("{LANDSTRIP} run {ACCEPT} -p {policy} -- sh -c 'echo back-$((40 + 2)); exit 7' & wait $!; echo status-$?\n"));
    terminal.expect("back-42");
    terminal.expect("status-7");
    terminal.write("exit\n");
    terminal.ends_with(0);
}
