//! Runs as a whole: exit codes, the temporary directory, the end.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use super::place::{Place, Tools};
use super::{Test, code, same, text};

pub const ALL: &[(&str, Test)] = &[
    ("the_exit_code_is_the_programs", exit_codes),
    ("a_program_that_is_not_there_is_told", not_found),
    ("the_temporary_directory_goes", temporary),
    ("the_time_is_up", time),
    ("what_the_program_leaves_ends_with_it", descendants),
    ("a_policy_of_the_program_tightens", attached),
];

const POLICY: &str = r#"{"filesystem": {"denyRead": ["{closed}"],
    "allowRead": [".", "{program}", "{system}"], "allowWrite": ["."]}}"#;

fn exit_codes(tools: &Tools) -> Result<(), String> {
    for expected in [0, 7, 255] {
        let operation = format!("exit {expected}");
        let mut place = Place::new().map_err(text)?;
        same("the exit code", code(place.under(POLICY, &operation, tools))?, expected)?;
    }
    Ok(())
}

fn not_found(tools: &Tools) -> Result<(), String> {
    let mut place = Place::new().map_err(text)?;
    let command = place.under(POLICY, "exit 0", tools).map(|whole| {
        let mut command = Command::new(whole.get_program());
        command.args(whole.get_args().take_while(|word| *word != "--"));
        command.args(["--", "no-such-program"]).current_dir(std::env::temp_dir());
        command
    });
    same("the exit code", code(command)?, 127)
}

/// Its place is written down by the program, and is another one each time.
fn temporary(tools: &Tools) -> Result<(), String> {
    let mut place = Place::new().map_err(text)?;
    let mut seen = Vec::new();
    for _ in 0..2 {
        same("the exit code", code(place.under(POLICY, "temporary where", tools))?, 0)?;
        let directory = fs::read_to_string(place.start().join("where")).map_err(text)?;
        same("the directory is there", Path::new(&directory).exists(), false)?;
        seen.push(directory);
    }
    same("they are one", seen[0] == seen[1], false)
}

fn time(tools: &Tools) -> Result<(), String> {
    if cfg!(target_os = "macos") {
        return Err("skipped: macOS has no ceilings".to_owned());
    }
    let policy = POLICY.replacen('{', r#"{"limits": {"time": 1}, "#, 1);
    let mut place = Place::new().map_err(text)?;
    same("the exit code", code(place.under(&policy, "wait", tools))?, 137)
}

/// A process that is left answers as long as it is there.
fn descendants(tools: &Tools) -> Result<(), String> {
    let mut place = Place::new().map_err(text)?;
    let bare = place.bare("leave", tools).and_then(answers).map_err(text)?;
    same("it answers without a policy", bare, true)?;
    let boxed = place.under(POLICY, "leave", tools).and_then(answers).map_err(text)?;
    same("it answers", boxed, false)
}

/// Whether somebody answers after the end of what was started.
fn answers(mut command: Command) -> io::Result<bool> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let (Some(mut stdin), Some(stdout)) = (stdin, stdout) else { return Ok(false) };
    if !child.wait()?.success() {
        return Err(io::Error::other("it did not start"));
    }
    // Where nobody reads, this may fail: there is no answer then.
    let _ = stdin.write_all(b"word\n");
    let (mut stdout, mut line) = (BufReader::new(stdout), String::new());
    stdout.read_line(&mut line)?;
    drop(stdin);
    stdout.read_to_string(&mut String::new())?;
    Ok(line == "word\n")
}

fn attached(tools: &Tools) -> Result<(), String> {
    let own = Tools::new().map_err(text)?;
    if let Err(error) = attach(&own.program(), br#"{"filesystem": {"denyWrite": ["file"]}}"#) {
        let promised = std::env::var("LANDSTRIP_TEST_HAVE").unwrap_or_default();
        return match promised.split(',').any(|one| one == "xattr") {
            true => Err(text(error)),
            false => Err(format!("skipped: nothing is attached to files here: {error}")),
        };
    }
    let mut place = Place::new().map_err(text)?;
    same("without it", code(place.under(POLICY, "append file", tools))?, 0)?;
    let mut place = Place::new().map_err(text)?;
    same("with it", code(place.under(POLICY, "append file", &own))?, super::DENIED)?;
    same("beside it", code(place.under(POLICY, "append sub/file", &own))?, 0)
}

#[cfg(unix)]
fn attach(program: &Path, policy: &[u8]) -> io::Result<()> {
    let flags = rustix::fs::XattrFlags::empty();
    Ok(rustix::fs::setxattr(program, "user.landstrip.policy", policy, flags)?)
}

#[cfg(windows)]
fn attach(program: &Path, policy: &[u8]) -> io::Result<()> {
    let mut stream = program.as_os_str().to_owned();
    stream.push(":landstrip.policy");
    fs::write(stream, policy)
}
