//! What a policy denies is denied, and works without it; what it allows works. By the program itself, `landstrip
//! run`: it takes a Windows with AppContainers.

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use landstrip::windows::sys::container;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::child::DENIED;
use super::{Test, same};

pub const ALL: &[(&str, Test)] = &[
    ("only_what_is_opened_is_read", reading),
    ("only_what_is_opened_is_written", writing),
    ("what_leads_to_a_denied_path_stays", moving),
    ("other_spellings_and_names_are_the_same_file", spellings),
    ("a_new_file_is_as_open_as_its_directory", new_files),
    ("the_network_is_closed", network),
    ("the_temporary_directory_goes", temporary),
    ("lists_are_as_they_were", lists),
    ("time_is_up", time),
];

/// `w` with `.git/hooks` and `secret`, and `outside`; the program is in `bin`.
struct Place(TempDir);

impl Place {
    fn new() -> Result<Place, String> {
        if container::sid("landstrip.test").is_err() {
            return Err("skipped: no AppContainers here".to_owned());
        }
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let at = |name: &str| directory.path().join(name);
        let made = (|| {
            for name in ["w/.git/hooks", "w/sub", "outside", "bin"] {
                fs::create_dir_all(at(name))?;
            }
            for name in ["w/file", "w/secret", "w/.git/hooks/hook", "outside/file"] {
                fs::write(at(name), "text")?;
            }
            fs::copy(std::env::current_exe()?, at("bin/program.exe")).map(drop)
        })();
        made.map_err(|error| error.to_string())?;
        Ok(Place(directory))
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("the temporary directory is Unicode").to_owned()
    }

    /// The policy of most cases, with `more` in it.
    fn policy(&self, more: &Value) -> Value {
        let mut policy = json!({ "filesystem": {
            "denyRead": ["/"],
            "allowRead": [self.path("bin"), "."],
            "allowWrite": ["."],
            "denyWrite": [".git/hooks"],
            "denyReadAlways": ["secret"],
        }});
        for (name, value) in more.as_object().into_iter().flatten() {
            policy[name] = value.clone();
        }
        policy
    }

    /// The exit code of the program under a policy. A path is relative to `w`.
    fn under(&self, policy: &Value, words: &[&str]) -> Result<u32, String> {
        let file = self.path("policy.json");
        fs::write(&file, policy.to_string()).map_err(|error| error.to_string())?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_landstrip"));
        command.args([
            "run",
            "-p",
            &file,
            "--cwd",
            &self.path("w"),
            "--",
            &self.path("bin/program.exe"),
        ]);
        self.code(command.args(words))
    }

    fn code(&self, command: &mut Command) -> Result<u32, String> {
        let status =
            command.current_dir(self.path("w")).status().map_err(|error| error.to_string())?;
        status.code().map(i32::cast_unsigned).ok_or_else(|| "no exit code".to_owned())
    }

    /// Denied under the policy, and done without it, in this order: what is done may not be done twice.
    fn denied(&self, words: &[&str]) -> Result<(), String> {
        same(&words.join(" "), self.under(&self.policy(&json!({})), words)?, DENIED)?;
        let bare = self.code(Command::new(self.path("bin/program.exe")).args(words))?;
        same(&format!("{} without a policy", words.join(" ")), bare, 0)
    }

    fn allowed(&self, words: &[&str]) -> Result<(), String> {
        same(&words.join(" "), self.under(&self.policy(&json!({})), words)?, 0)
    }
}

fn reading() -> Result<(), String> {
    let place = Place::new()?;
    place.allowed(&["child-read", "file"])?;
    place.allowed(&["child-list", "."])?;
    place.allowed(&["child-read", r".git\hooks\hook"])?;
    place.denied(&["child-read", "secret"])?;
    place.denied(&["child-read", r"..\outside\file"])?;
    place.denied(&["child-list", r"..\outside"])?;
    place.denied(&["child-list", ".."])
}

fn writing() -> Result<(), String> {
    let place = Place::new()?;
    place.allowed(&["child-append", "file"])?;
    place.allowed(&["child-write", r"sub\new"])?;
    place.allowed(&["child-move", r"sub\new", "moved"])?;
    place.allowed(&["child-delete", "moved"])?;
    place.denied(&["child-append", r".git\hooks\hook"])?;
    place.denied(&["child-write", r".git\hooks\new"])?;
    place.denied(&["child-append", r"..\outside\file"])?;
    place.denied(&["child-write", r"..\outside\new"])?;
    place.denied(&["child-make", r"..\new"])?;
    place.denied(&["child-delete", r"..\outside\file"])
}

fn moving() -> Result<(), String> {
    let place = Place::new()?;
    place.denied(&["child-move", ".git", "git"])?;
    fs::rename(place.path("w/git"), place.path("w/.git")).map_err(|error| error.to_string())?;
    place.denied(&["child-move", r".git\hooks", r".git\old"])?;
    fs::rename(place.path("w/.git/old"), place.path("w/.git/hooks"))
        .map_err(|error| error.to_string())?;
    place.denied(&["child-move", "secret", "known"])
}

fn spellings() -> Result<(), String> {
    let place = Place::new()?;
    for name in ["SECRET", "secret.", "secret::$DATA", r".\sub\..\Secret"] {
        place.denied(&["child-read", name])?;
    }
    place.denied(&["child-append", r".GIT\Hooks\HOOK"])?;
    place.denied(&["child-link", "secret", "other"])?;
    // A name that is there already leads to the same list.
    place.denied(&["child-read", "other"])
}

fn new_files() -> Result<(), String> {
    let place = Place::new()?;
    place.allowed(&["child-make", "new"])?;
    place.allowed(&["child-write", r"new\file"])?;
    fs::write(place.path("w/new/later"), "text").map_err(|error| error.to_string())?;
    place.allowed(&["child-read", r"new\later"])
}

fn network() -> Result<(), String> {
    let place = Place::new()?;
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let port = listener.local_addr().map_err(|error| error.to_string())?.port().to_string();
    let words = ["child-connect", &port];
    let code = place.under(&place.policy(&json!({})), &words)?;
    if code == 0 {
        return Err("loopback is reached".to_owned());
    }
    same(
        "without a policy",
        place.code(Command::new(place.path("bin/program.exe")).args(words))?,
        0,
    )
}

fn temporary() -> Result<(), String> {
    let place = Place::new()?;
    let ours = || {
        let names = fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
        names.filter(|one| one.file_name().to_string_lossy().starts_with("landstrip.")).count()
    };
    let before = ours();
    place.allowed(&["child-temporary"])?;
    same("temporary directories", ours(), before)
}

/// What icacls prints of everything, before and after a run.
fn lists() -> Result<(), String> {
    let place = Place::new()?;
    let print = || {
        let output = Command::new("icacls.exe").args([place.path("w"), "/t".into()]).output();
        output.map(|output| output.stdout).map_err(|error| error.to_string())
    };
    let before = print()?;
    if before.is_empty() {
        return Err("icacls printed nothing".to_owned());
    }
    place.allowed(&["child-read", "file"])?;
    same("lists", print()?, before)
}

fn time() -> Result<(), String> {
    let place = Place::new()?;
    let policy = place.policy(&json!({ "limits": { "time": 1 } }));
    same("the exit code", place.under(&policy, &["child-wait"])?, 137)
}
