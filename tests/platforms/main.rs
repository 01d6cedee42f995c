//! What every system holds: the table, and runs as a whole; and on Windows what the launch is made of. A
//! program of its own, since it is also what is started: `cargo test --test platforms`, and with a word the
//! tests that have it in their name. README.md says how to go about it on a Mac or on Windows.

mod child;
#[cfg(windows)]
mod lists;
#[cfg(windows)]
mod parts;
mod place;
mod runs;
mod table;

use std::process::{Command, ExitCode};

use child::{CHILD, DENIED};
use place::{Place, Tools};
use table::{CASES, Case, Expected, System};

/// A test: why it failed, or was skipped.
type Test = fn(&Tools) -> Result<(), String>;

const SYSTEM: System = match () {
    () if cfg!(target_os = "linux") => System::Linux,
    () if cfg!(target_os = "macos") => System::Macos,
    () => System::Windows,
};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).is_some_and(|word| word == CHILD) {
        return child::main(&args[2..]);
    }
    let filter = args.get(1).filter(|word| !word.starts_with('-'));
    let wanted = |name: &str| filter.is_none_or(|filter| name.contains(filter.as_str()));
    let tools = Tools::new().expect("a temporary directory");
    let mut failed = false;
    let mut tell = |name: &str, result: Result<(), String>| match result {
        Ok(()) => println!("test {name} ... ok"),
        Err(why) if why.starts_with("skipped") => println!("test {name} ... {why}"),
        Err(why) => {
            println!("test {name} ... FAILED: {why}");
            failed = true;
        }
    };
    for case in CASES.iter().filter(|case| wanted(case.name) && case.on.contains(&SYSTEM)) {
        tell(case.name, held().and_then(|()| table(case, &tools)));
    }
    for (name, test) in runs::ALL.iter().filter(|(name, _)| wanted(name)) {
        tell(name, held().and_then(|()| test(&tools)));
    }
    #[cfg(windows)]
    for (name, test) in lists::ALL.iter().filter(|(name, _)| wanted(name)) {
        tell(name, held().and_then(|()| test(&tools)));
    }
    #[cfg(windows)]
    for (name, test) in parts::ALL.iter().filter(|(name, _)| wanted(name)) {
        tell(name, test(&tools));
    }
    ExitCode::from(u8::from(failed))
}

/// Whether policies are held here at all.
#[cfg(not(windows))]
fn held() -> Result<(), String> {
    Ok(())
}

/// Wine has no AppContainers.
#[cfg(windows)]
fn held() -> Result<(), String> {
    match landstrip::windows::sys::container::sid("landstrip.test") {
        Ok(_) => Ok(()),
        Err(_) => Err("skipped: no AppContainers here".to_owned()),
    }
}

fn table(case: &Case, tools: &Tools) -> Result<(), String> {
    let mut failures = Vec::new();
    for (expected, operation) in case.rows {
        let result = match expected {
            Expected::Allowed => allowed(case, operation, tools),
            Expected::Denied => denied(case, operation, tools),
        };
        failures.extend(result.err().map(|why| format!("\n  {operation}: {why}")));
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.concat()) }
}

/// Done under the policy, with the same result as without one.
fn allowed(case: &Case, operation: &str, tools: &Tools) -> Result<(), String> {
    let mut bare = fresh(case, tools)?;
    same("without a policy", code(bare.bare(operation, tools))?, 0)?;
    let mut place = fresh(case, tools)?;
    same("the exit code", code(place.under(case.policy, operation, tools))?, 0)?;
    same("the result", place.tree().map_err(text)?, bare.tree().map_err(text)?)
}

/// Denied under the policy, with no other change than by the steps before; and done without one.
fn denied(case: &Case, operation: &str, tools: &Tools) -> Result<(), String> {
    let mut before = fresh(case, tools)?;
    if let Some((steps, _)) = operation.rsplit_once(" ; ") {
        same("the steps before", code(before.bare(steps, tools))?, 0)?;
    }
    let mut place = fresh(case, tools)?;
    let code_under = code(place.under(case.policy, operation, tools))?;
    // How a container is kept from connecting is not documented: it may be told that nobody listens.
    let lost = SYSTEM == System::Windows && operation.starts_with("connect") && code_under != 0;
    if !lost {
        same("the exit code", code_under, DENIED)?;
    }
    same("what is there", place.tree().map_err(text)?, before.tree().map_err(text)?)?;
    let mut bare = fresh(case, tools)?;
    same("without a policy", code(bare.bare(operation, tools))?, 0)
}

fn fresh(case: &Case, tools: &Tools) -> Result<Place, String> {
    let mut place = Place::new().map_err(text)?;
    if !case.before.is_empty() {
        same("what is done before", code(place.bare(case.before, tools))?, 0)?;
    }
    Ok(place)
}

/// Runs it to its end.
fn code(command: std::io::Result<Command>) -> Result<i32, String> {
    let output = command.and_then(|mut command| command.output()).map_err(text)?;
    let error = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        // What a policy that is refused says has to be seen.
        Some(1) => Err(format!("exit code 1: {error}")),
        Some(code) => Ok(code),
        None => Err(format!("{}: {error}", output.status)),
    }
}

fn text(error: std::io::Error) -> String {
    error.to_string()
}

/// Fails with what was found in place of what was expected.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?}, and not {expected:?}")) }
}
