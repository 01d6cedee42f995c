//! Jobs, processes and files: what wine does as Windows does.

use std::fs::{self, OpenOptions};
use std::os::windows::ffi::OsStrExt;
use std::os::windows::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use landstrip::lower::appcontainer::{self, Ace, command, path};
use landstrip::windows::sys::file::{self, Object};
use landstrip::windows::sys::job::Job;
use landstrip::windows::sys::process::{Process, Start};

use super::child::CHILD;
use super::place::Tools;
use super::{Test, same};

pub const ALL: &[(&str, Test)] = &[
    ("arguments_arrive_as_they_were_given", arguments),
    ("exit_codes_have_32_bits", exit_codes),
    ("a_run_ends_with_its_job", with_the_job),
    ("what_the_program_leaves_is_ended", descendants),
    ("names_of_a_file_are_counted", links),
    ("lists_come_back_as_they_were", lists),
];

/// Long enough for anything that happens at all.
const LONG: Duration = Duration::from_secs(30);

fn job() -> Result<Job, String> {
    Job::new(&appcontainer::Job::default()).map_err(|error| format!("the job: {error}"))
}

/// Starts this program with these words.
fn start(words: &[&str], job: &Job) -> Result<Process, String> {
    let wide = |text: &str| text.encode_utf16().collect::<Vec<u16>>();
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let words: Vec<Vec<u16>> = words.iter().map(|word| wide(word)).collect();
    let mut line = command::line(&wide("program"), &words).ok_or("no command line")?;
    line.push(0);
    let environment = std::env::vars().flat_map(|(name, value)| wide(&format!("{name}={value}\0")));
    let mut start = Start {
        program: program.as_os_str().encode_wide().chain([0]).collect(),
        line,
        environment: environment.chain([0]).collect(),
        directory: std::env::temp_dir().as_os_str().encode_wide().chain([0]).collect(),
        streams: true,
    };
    Process::start(&mut start, None, job).map_err(|refused| format!("{refused:?}"))
}

fn ended(process: &Process) -> Result<u32, String> {
    let code = process.wait(Some(LONG)).map_err(|error| error.to_string())?;
    code.ok_or_else(|| "it did not end".to_owned())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the temporary directory is Unicode")
}

fn arguments(_: &Tools) -> Result<(), String> {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = directory.path().join("arguments");
    let given = [
        "",
        " ",
        "a b",
        "\"",
        "\\",
        "\\\\\"",
        "a\\",
        "a b\\",
        "a\\\\b",
        "\t\n",
        "\u{e9}\u{1f600}",
        "%PATH%",
        "^&|<>()",
        "a\"b c\"d",
        "--",
        "/c",
        "*",
    ];
    let words = [CHILD, "arguments", text(&file)].into_iter().chain(given);
    same("the exit code", ended(&start(&words.collect::<Vec<_>>(), &job()?)?)?, 0)?;
    let line = |word: &str| format!("{:?}\n", word.encode_utf16().collect::<Vec<_>>());
    let expected: String = given.iter().map(|word| line(word)).collect();
    same("the arguments", fs::read_to_string(&file).map_err(|error| error.to_string())?, expected)
}

fn exit_codes(_: &Tools) -> Result<(), String> {
    for code in [0, 1, 255, 256, 0x4000_0000, 0xc000_0005] {
        same("the exit code", ended(&start(&[CHILD, "exit", &code.to_string()], &job()?)?)?, code)?;
    }
    Ok(())
}

fn with_the_job(_: &Tools) -> Result<(), String> {
    let job = job()?;
    let process = start(&[CHILD, "wait"], &job)?;
    let early =
        process.wait(Some(Duration::from_millis(300))).map_err(|error| error.to_string())?;
    same("while there is the job", early, None)?;
    drop(job);
    ended(&process).map(drop)
}

fn descendants(_: &Tools) -> Result<(), String> {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = directory.path().join("held");
    let open = || OpenOptions::new().write(true).share_mode(0).open(&file).is_ok();
    let job = job()?;
    let process = start(&[CHILD, "leave", text(&file)], &job)?;
    same("the exit code", ended(&process)?, 0)?;
    same("the file is free while the job lasts", open(), false)?;
    job.end(7).map_err(|error| error.to_string())?;
    same("the file is free", open(), true)
}

fn links(_: &Tools) -> Result<(), String> {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let (one, two) = (directory.path().join("one"), directory.path().join("two"));
    fs::write(&one, "").map_err(|error| error.to_string())?;
    same("names", file::links(&one).ok(), Some(1))?;
    fs::hard_link(&one, &two).map_err(|error| error.to_string())?;
    same("names", file::links(&one).ok(), Some(2))
}

fn lists(_: &Tools) -> Result<(), String> {
    const CONTAINER: &[u8] = &[1, 2, 0, 0, 0, 0, 0, 15, 2, 0, 0, 0, 9, 0, 0, 0];
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let directory = directory.path().canonicalize().map_err(|error| error.to_string())?;
    fs::write(directory.join("file"), "").map_err(|error| error.to_string())?;
    for name in ["", "file"] {
        let path = path::internal(text(&directory.join(name))).ok_or("no path of policies")?;
        let object = Object::open(&path).map_err(|error| format!("{path}: {error}"))?;
        let list = || object.list().map_err(|error| format!("{path}: {error}"));
        let before = list()?;
        let change = before.change(true);
        let own = [Ace::allow(0x12_00a9, 0, CONTAINER)];
        object.set(&before, &before.granted(&change, &own)).map_err(|error| error.to_string())?;
        let now = list()?;
        if now == before {
            return Err("skipped: what is written to lists is not kept here".to_owned());
        }
        same("it inherits nothing", now.protected, true)?;
        object.set(&now, &now.taken_back(&change, CONTAINER)).map_err(|error| error.to_string())?;
        same("the list", list()?, before)?;
    }
    Ok(())
}
