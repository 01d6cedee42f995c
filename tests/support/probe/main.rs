//! The probe: a small interpreter of system calls, used by the enforcement tests.
//!
//! Each argument is one operation, and each operation prints one line: `ok`, `ok VALUE`, or the
//! name of the error (`EACCES`). The same list of operations is run bare and inside a sandbox,
//! and a test compares the lines.
//!
//! An operation is a system call or a word of [`words`], its arguments separated by spaces:
//!
//! ```text
//! probe 'd=openat AT_FDCWD "/tmp O_PATH 0' 'mkdirat $d "x 0755' 'cat /etc/hostname'
//! ```
//!
//! `name=` keeps the result; `$name` uses it as a number and `{name}` inside text. What an
//! argument of a system call may look like is written at [`args`]. System calls are made raw, so
//! that a C library cannot choose another one.
//!
//! `probe @spawn OPTIONS -- PROGRAM ARGS` prepares a process (terminal, descriptors, limits) and
//! executes the program; see [`spawn`].

mod abi;
mod args;
mod noise;
mod race;
mod race_sockets;
mod running;
mod spawn;
mod table;
mod words;

use std::collections::HashMap;
use std::io::Write;

/// What an operation gives: the text after `ok`, or an errno.
pub type Outcome = Result<String, i32>;

/// Names given to earlier results.
pub type Vars = HashMap<String, i64>;

fn main() {
    let all: Vec<String> = std::env::args().skip(1).collect();
    if all.first().is_some_and(|a| a == "@spawn") {
        spawn::main(&all[1..]);
    }
    let mut vars = Vars::new();
    vars.insert("ppid".into(), i64::from(std::os::unix::process::parent_id()));
    vars.insert("pid".into(), i64::from(std::process::id()));
    for op in &all {
        let line = show(&run(op, &mut vars));
        // Written with one call, so that a reader sees whole lines whatever happens next.
        let _ = std::io::stdout().write_all(format!("{line}\n").as_bytes());
    }
}

/// Runs one operation, `name=` prefix included.
pub fn run(op: &str, vars: &mut Vars) -> Outcome {
    let op = op.trim();
    let (word, rest) = op.split_once(' ').unwrap_or((op, ""));
    let (keep, word) = match word.split_once('=') {
        Some((name, word)) => (Some(name.to_owned()), word),
        None => (None, word),
    };
    if let Some(result) = words::word(word, rest, vars, keep.as_deref()) {
        return result;
    }
    let call = args::Call::parse(word, rest, vars);
    let value = call.make()?;
    if let Some(name) = keep {
        vars.insert(name, value);
    }
    if value != 0 && table::PRINTS_VALUE.contains(&word) {
        return Ok(value.to_string());
    }
    Ok(String::new())
}

/// The line of a result.
pub fn show(result: &Outcome) -> String {
    match result {
        Ok(text) if text.is_empty() => "ok".into(),
        Ok(text) => format!("ok {}", text.replace('\n', "\\n")),
        Err(errno) => table::errno_name(*errno),
    }
}
