//! The contenders, and how each of them is told to run a command.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::containers;

/// Who runs the load.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    /// No sandbox.
    Bare,
    /// `bwrap`, from `PATH`.
    Bubblewrap,
    /// The least that the mechanisms cost which hold the policy, see [`crate::least`].
    Least,
    /// `runc`, from `PATH`: containers alone.
    Runc,
    /// `crun`, from `PATH`: the same.
    Crun,
    /// The launcher under test.
    Landstrip,
}

impl Contender {
    pub const COUNT: usize = 6;
    pub const ALL: [Contender; Self::COUNT] = [
        Contender::Bare,
        Contender::Bubblewrap,
        Contender::Least,
        Contender::Runc,
        Contender::Crun,
        Contender::Landstrip,
    ];

    /// The place in arrays by contender.
    pub fn index(self) -> usize {
        self as usize
    }

    /// The column's heading.
    pub fn name(self) -> &'static str {
        match self {
            Contender::Bare => "bare",
            Contender::Bubblewrap => "bubblewrap",
            Contender::Least => "least",
            Contender::Runc => "runc",
            Contender::Crun => "crun",
            Contender::Landstrip => "landstrip",
        }
    }
}

/// What bubblewrap needs for the least that can be called a sandbox: everything read-only, a
/// private `/dev`, a `/proc`.
const BUBBLEWRAP_BASE: [&str; 7] = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"];

/// A command to run in a directory, and the policy to run it under in each contender's terms.
pub struct Job {
    /// Program and arguments.
    pub argv: Vec<OsString>,
    pub cwd: PathBuf,
    /// Arguments of `-p`, in order.
    pub policies: Vec<OsString>,
    /// Other arguments of `run`.
    pub options: Vec<OsString>,
    /// Arguments that bubblewrap takes beyond the base; `None` where it cannot say the policy.
    pub bubblewrap: Option<Vec<OsString>>,
    /// The mode of [`crate::least`] that does what the policy takes; only for `inner` loads.
    pub least: Option<&'static str>,
    /// What the load has to find refused before it starts, in a sandbox: an environment variable
    /// of `inner` and a path.
    pub refused: Option<(&'static str, &'static str)>,
}

impl Job {
    /// `argv` in `cwd` under `@workspace`; bubblewrap gets its base and nothing writable.
    pub fn new<I: IntoIterator<Item = T>, T: Into<OsString>>(cwd: &Path, argv: I) -> Job {
        Job {
            argv: argv.into_iter().map(Into::into).collect(),
            cwd: cwd.to_path_buf(),
            policies: vec!["@workspace".into()],
            options: Vec::new(),
            bubblewrap: Some(Vec::new()),
            least: None,
            refused: None,
        }
    }

    /// Lets bubblewrap write to `dir`, as `@workspace` lets us write to the start directory.
    pub fn writable(mut self, dir: &Path) -> Job {
        if let Some(words) = &mut self.bubblewrap {
            words.extend(["--bind".into(), dir.into(), dir.into()]);
        }
        self
    }

    /// Says what the least supervisor of this policy does.
    pub fn at_least(mut self, mode: &'static str) -> Job {
        self.least = Some(mode);
        self
    }

    /// Replaces the policies.
    pub fn under<I: IntoIterator<Item = T>, T: Into<OsString>>(mut self, policies: I) -> Job {
        self.policies = policies.into_iter().map(Into::into).collect();
        self
    }

    /// Hides the directory `dir` in bubblewrap's way, with an empty file system on top.
    pub fn hiding(mut self, dir: &Path) -> Job {
        if let Some(words) = &mut self.bubblewrap {
            words.extend(["--tmpfs".into(), dir.into()]);
        }
        self
    }

    /// Makes the load of a sandbox fail unless it cannot do this to `path`: a policy that is not in
    /// force costs nothing. `access` is one of the variables that [`crate::inner`] reads.
    pub fn refusing(mut self, access: &'static str, path: &'static str) -> Job {
        self.refused = Some((access, path));
        self
    }

    /// Says that bubblewrap has no words for this policy.
    pub fn without_bubblewrap(mut self) -> Job {
        self.bubblewrap = None;
        self
    }
}

/// The sandboxes that were found to work on this machine.
pub struct Tools {
    landstrip: Option<PathBuf>,
    bubblewrap: Option<PathBuf>,
    runc: Option<PathBuf>,
    crun: Option<PathBuf>,
    /// Why a contender is left out, one line each.
    pub left_out: Vec<String>,
}

impl Tools {
    /// Finds both sandboxes and tries each: it has to run a command and to refuse that command a
    /// write to `outside`. What does not is left out, with a reason: a launcher that does nothing
    /// would be the fastest.
    pub fn find(workspace: &Path, outside: &Path) -> Tools {
        let landstrip = std::env::var_os("LANDSTRIP")
            .map_or_else(|| env!("CARGO_BIN_EXE_landstrip").into(), PathBuf::from);
        let mut tools = Tools {
            landstrip: Some(std::path::absolute(&landstrip).unwrap_or(landstrip)),
            bubblewrap: find_in_path("bwrap"),
            runc: find_in_path("runc"),
            crun: find_in_path("crun"),
            left_out: Vec::new(),
        };
        if tools.bubblewrap.is_none() {
            tools.left_out.push("bubblewrap: no bwrap in PATH".into());
        }
        let without = containers::without();
        if let Some(reason) = &without {
            tools.left_out.push(format!("containers: {reason}"));
        }
        for (name, runtime) in [("runc", &tools.runc), ("crun", &tools.crun)] {
            if without.is_none() && runtime.is_none() {
                tools.left_out.push(format!("{name}: not in PATH"));
            }
        }
        let job = Job::new(workspace, ["/bin/sh", "-c", "echo inside; : >\"$0\""]);
        let target = outside.join("control");
        let job =
            Job { argv: job.argv.into_iter().chain([target.clone().into()]).collect(), ..job };
        for contender in [Contender::Bubblewrap, Contender::Landstrip] {
            let Some(command) = tools.command(contender, &job) else {
                continue;
            };
            if let Err(reason) = control(command, &target) {
                tools.left_out.push(format!("{}: {reason}", contender.name()));
                match contender {
                    Contender::Bubblewrap => tools.bubblewrap = None,
                    _ => tools.landstrip = None,
                }
            }
        }
        tools
    }

    /// The launcher under test, when it takes part.
    pub fn landstrip(&self) -> Option<&Path> {
        self.landstrip.as_deref()
    }

    /// The runtime of containers that `contender` is, when it takes part.
    pub fn runtime(&self, contender: Contender) -> Option<&Path> {
        match contender {
            Contender::Runc => self.runc.as_deref(),
            Contender::Crun => self.crun.as_deref(),
            Contender::Landstrip => self.landstrip(),
            _ => None,
        }
    }

    /// The command with which `contender` does `job`; `None` when it cannot or is left out.
    /// Standard streams are `/dev/null`.
    pub fn command(&self, contender: Contender, job: &Job) -> Option<Command> {
        let mut command = match contender {
            Contender::Bare => Command::new(&job.argv[0]),
            Contender::Bubblewrap => {
                let words = job.bubblewrap.as_ref()?;
                let mut command = Command::new(self.bubblewrap.as_ref()?);
                command.args(BUBBLEWRAP_BASE).args(words).arg(&job.argv[0]);
                command
            }
            Contender::Least => {
                let mut command = Command::new(&job.argv[0]);
                command.args(["--inner", "least", job.least?]);
                command.args(&job.argv[2..]);
                return Some(quiet(command, job));
            }
            Contender::Runc | Contender::Crun => return None,
            Contender::Landstrip => {
                let mut command = Command::new(self.landstrip.as_ref()?);
                command.arg("run").args(&job.options);
                for policy in &job.policies {
                    command.arg("-p").arg(policy);
                }
                command.arg("--").arg(&job.argv[0]);
                command
            }
        };
        command.args(&job.argv[1..]);
        let mut command = quiet(command, job);
        if let Some((access, path)) = job.refused
            && contender != Contender::Bare
        {
            command.env(access, path);
        }
        Some(command)
    }
}

/// The command in the job's directory, with `/dev/null` for standard streams.
fn quiet(mut command: Command, job: &Job) -> Command {
    command.current_dir(&job.cwd);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Runs the trial command and says what is wrong with how it went.
fn control(mut command: Command, target: &Path) -> Result<(), String> {
    let output = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if output.stdout != b"inside\n" {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let reason = stderr.lines().next().unwrap_or("no message");
        return Err(format!("did not run the trial command ({reason})"));
    }
    if fs::symlink_metadata(target).is_ok() {
        fs::remove_file(target).map_err(|error| error.to_string())?;
        return Err("let the trial command write outside the workspace".into());
    }
    Ok(())
}

/// The absolute path of `name` in a directory of `PATH`.
fn find_in_path(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
}

/// An error that says how a measured command ended.
pub fn unsuccessful(status: std::process::ExitStatus) -> io::Error {
    io::Error::other(format!("ended with {status}"))
}
