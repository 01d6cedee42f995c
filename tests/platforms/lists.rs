//! What is of Windows alone: other spellings of a name, and access control lists after a run.

use std::process::Command;

use super::place::{Place, Tools};
use super::table::{Case, Expected, LISTED};
use super::{Test, code, same, text};

pub const ALL: &[(&str, Test)] = &[
    ("other_spellings_are_the_same_file", spellings),
    ("lists_are_as_they_were", lists),
    ("what_is_made_beside_is_as_open_as_its_directory", made_later),
];

fn spellings(tools: &Tools) -> Result<(), String> {
    super::table(
        &Case {
            name: "other_spellings_are_the_same_file",
            on: &[],
            policy: LISTED,
            before: "link .git/hooks/hook hook",
            rows: &[
                (Expected::Denied, "read SECRET"),
                (Expected::Denied, "read secret."),
                (Expected::Denied, "read secret::$DATA"),
                (Expected::Denied, r"read .\sub\..\Secret"),
                (Expected::Denied, r"append .GIT\Hooks\HOOK"),
                // What is below a denied directory is known by its list, and on Linux by its name.
                (Expected::Denied, "append hook"),
            ],
        },
        tools,
    )
}

/// What icacls prints of everything, before and after a run.
fn lists(tools: &Tools) -> Result<(), String> {
    let mut place = Place::new().map_err(text)?;
    let start = place.start();
    let print = || {
        let output = Command::new("icacls.exe").arg(&start).arg("/t").output();
        output.map(|output| output.stdout).map_err(text)
    };
    let before = print()?;
    if before.is_empty() {
        return Err("icacls printed nothing".to_owned());
    }
    same("the exit code", code(place.under(LISTED, "read file", tools))?, 0)?;
    same("lists", print()?, before)
}

/// A file that somebody outside puts into a directory that a run made.
fn made_later(tools: &Tools) -> Result<(), String> {
    let mut place = Place::new().map_err(text)?;
    same("the exit code", code(place.under(LISTED, "make new ; write new/file", tools))?, 0)?;
    std::fs::write(place.start().join("new").join("later"), "text").map_err(text)?;
    same("the exit code", code(place.under(LISTED, "read new/later", tools))?, 0)
}
