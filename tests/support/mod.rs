//! What the enforcement tests share: a bed of two directories, the probe bare and sandboxed,
//! the tree before and after, and what this machine can do.
//!
//! In operations and policies `{in}` and `{out}` stand for the two directories, `{root}` for the
//! directory that holds both, and `{uid}` and `{gid}` for those of the test. The tests write
//! policies that allow `{in}`; commands start there.

#![allow(dead_code)] // each test binary uses its part

pub mod attack;
pub mod client;
pub mod container;
pub mod have;
pub mod internet;
pub mod mutations;
pub mod names;
pub mod net;
pub mod networked;
pub mod place;
pub mod pty;
pub mod scripts;
mod scripts_files;
mod scripts_processes;
pub mod tree;

use rustix::event::{PollFd, PollFlags, poll};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The program under test.
pub const LANDSTRIP: &str = env!("CARGO_BIN_EXE_landstrip");

/// An option of `run`: what Landlock cannot hold inside another run before Linux 6.12, and of abstract sockets, refuses
/// no run of a test. A test about it needs `landlock6`.
pub const ACCEPT: &str = "--accept=signals,devices,nested,unix-sockets";

/// How long anything may take before it counts as hung. It is for a machine that is busy with something else.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The probe, which cargo builds beside the tests.
pub fn probe() -> PathBuf {
    let path = Path::new(LANDSTRIP).with_file_name("examples").join("probe");
    assert!(path.exists(), "{} is missing: cargo build --example probe", path.display());
    path
}

thread_local! {
    static NO_NAMESPACES: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// An option of `probe @spawn` under which no namespace can be made.
pub const FORBIDDEN: &str = "refuse=unshare:CLONE_NEWUSER|CLONE_NEWNET";

/// Does `work` with sandboxes that can make no namespace, as in a default container.
pub fn without_namespaces<T>(work: impl FnOnce() -> T) -> T {
    NO_NAMESPACES.set(true);
    let done = work();
    NO_NAMESPACES.set(false);
    done
}

thread_local! {
    static OLDER: std::cell::Cell<Option<i64>> = const { std::cell::Cell::new(None) };
}

/// Does `work` with launchers that are told of no newer Landlock than that of version `abi`; nothing is accepted then.
/// It takes `cmd:strace`, but on a kernel that has no newer one.
pub fn on_landlock<T>(abi: i64, work: impl FnOnce() -> T) -> T {
    OLDER.set(Some(abi));
    let done = work();
    OLDER.set(None);
    done
}

/// How a launcher is started, up to its own arguments.
pub fn launcher() -> Vec<String> {
    let Some(abi) = OLDER.get() else { return vec![LANDSTRIP.to_owned()] };
    let mut command = Vec::new();
    if have::landlock() > abi {
        // Its first question is about the version.
        let inject = format!("inject=landlock_create_ruleset:retval={abi}:when=1");
        let trace = ["strace", "-o", "/dev/null", "-e", "trace=landlock_create_ruleset", "-e"];
        command.extend(trace.map(str::to_owned).into_iter().chain([inject]));
    }
    command.push(LANDSTRIP.to_owned());
    command
}

/// [`launcher`], to run something.
pub fn runner() -> Vec<String> {
    let mut command = launcher();
    command.push("run".to_owned());
    command.extend(OLDER.get().is_none().then(|| ACCEPT.to_owned()));
    command
}

/// One temporary directory with `in` and `out`.
pub struct Bed {
    dir: tempfile::TempDir,
}

/// What a run left.
#[derive(Debug)]
pub struct Run {
    /// The lines on standard output: of the probe, one an operation.
    pub lines: Vec<String>,
    /// Exit status, or none when a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Standard error.
    pub stderr: String,
    /// What came on the trap descriptor.
    pub traps: Vec<Value>,
}

impl Run {
    /// The result of the last operation.
    pub fn last(&self) -> &str {
        self.lines.last().map_or("nothing", String::as_str)
    }
}

/// Runs the control of a race until it is won, for a race is about chance, and the machine may be busy
/// with something else. Gives up after so many times that the race cannot be won.
pub fn until_won(mut run: impl FnMut() -> Run, won: impl Fn(&Run) -> bool) -> Run {
    let mut last = run();
    for _ in 0..40 {
        if won(&last) {
            break;
        }
        last = run();
    }
    last
}

impl Bed {
    /// A bed, prepared by running the operations `setup` bare; each must succeed.
    pub fn new(setup: &[&str]) -> Bed {
        let bed = Bed { dir: tempfile::tempdir().expect("a temporary directory") };
        std::fs::create_dir(bed.root().join("in")).expect("mkdir in");
        std::fs::create_dir(bed.root().join("out")).expect("mkdir out");
        // Other users enter too: some tests change the user.
        std::fs::set_permissions(bed.root(), PermissionsExt::from_mode(0o755)).expect("chmod");
        bed.must(setup);
        bed
    }

    /// The directory that holds everything, by its canonical name.
    pub fn root(&self) -> PathBuf {
        self.dir.path().canonicalize().expect("canonical name")
    }

    /// Replaces the placeholders.
    pub fn fill(&self, text: &str) -> String {
        let root = self.root().display().to_string();
        text.replace("{in}", "{root}/in")
            .replace("{out}", "{root}/out")
            .replace("{root}", &root)
            .replace("{uid}", &rustix::process::getuid().as_raw().to_string())
            .replace("{gid}", &rustix::process::getgid().as_raw().to_string())
    }

    /// Removes what is in `in` and `out`, for a second run under the same names.
    pub fn reset(&self, setup: &[&str]) {
        for name in ["in", "out"] {
            let path = self.root().join(name);
            tree::remove(&path);
            std::fs::create_dir(&path).expect("mkdir");
        }
        self.must(setup);
    }

    /// Runs operations bare; each must succeed.
    pub fn must(&self, ops: &[&str]) {
        let run = self.bare(ops);
        let good = run.lines.len() == ops.len() && run.lines.iter().all(|l| l.starts_with("ok"));
        assert!(good, "setup failed: {ops:?}\n{run:?}");
    }

    /// The probe on its own.
    pub fn bare(&self, ops: &[&str]) -> Run {
        let mut command = self.command(&probe());
        command.args(ops.iter().map(|op| self.fill(op)));
        finish(command, &self.root().join("no traps"))
    }

    /// The probe in a sandbox.
    pub fn boxed(&self, policy: &Value, ops: &[&str]) -> Run {
        let ops: Vec<String> = ops.iter().map(|op| self.fill(op)).collect();
        let probe = probe().display().to_string();
        let mut args = vec![probe.as_str()];
        args.extend(ops.iter().map(String::as_str));
        self.launch(policy, &[], &args)
    }

    /// Any program in a sandbox; `options` go to `probe @spawn`, which starts landstrip.
    pub fn launch(&self, policy: &Value, options: &[&str], program: &[&str]) -> Run {
        let traps = self.root().join("traps");
        let command = self.sandboxed(policy, options, program);
        finish(command, &traps)
    }

    /// The command of [`Bed::launch`], not started yet; its traps go to the file `traps` unless an
    /// option says where descriptor 3 leads. Options that start with `--` are landstrip's.
    pub fn sandboxed(&self, policy: &Value, options: &[&str], program: &[&str]) -> Command {
        let options: Vec<String> = options.iter().map(|o| self.fill(o)).collect();
        let (ours, spawn): (Vec<_>, Vec<_>) = options.iter().partition(|o| o.starts_with("--"));
        let mut command = self.command(&probe());
        command.arg("@spawn").args(&spawn);
        command.args(NO_NAMESPACES.get().then_some(FORBIDDEN));
        if !spawn.iter().any(|o| o.starts_with('3')) {
            command.arg(self.fill("3>{root}/traps"));
        }
        command.arg("--").args(runner()).args(["--trap-fd", "3", "-p"]);
        command.arg(self.policy(policy)).args(&ours).arg("--");
        command.args(program.iter().map(|a| self.fill(a)));
        command
    }

    /// Writes a policy, placeholders replaced, and gives its path.
    pub fn policy(&self, policy: &Value) -> PathBuf {
        let path = self.root().join("policy.json");
        std::fs::write(&path, self.fill(&policy.to_string())).expect("write the policy");
        path
    }

    /// A command that starts in `in`, with nothing on standard input.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.root().join("in")).stdin(Stdio::null());
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }

    /// The lines of the trap file so far.
    pub fn traps(&self) -> Vec<Value> {
        read_traps(&self.root().join("traps"))
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        tree::remove(&self.root().join("in"));
        tree::remove(&self.root().join("out"));
    }
}

fn read_traps(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|l| serde_json::from_str(l).unwrap_or(Value::String(l.into()))).collect()
}

/// Runs a command to its end and collects what it says.
pub fn finish(mut command: Command, traps: &Path) -> Run {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let out = collect(child.stdout.take());
    let err = collect(child.stderr.take());
    let status = wait(&mut child, PATIENCE).unwrap_or_else(|| {
        // The group too: children that hold the pipes open.
        if let Some(group) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = writeln!(std::io::stderr(), "hung, and killed: {command:?}");
        child.wait().expect("its status")
    });
    let (out, err) = (out.join().expect("reader"), err.join().expect("reader"));
    Run {
        lines: out.lines().map(str::to_owned).collect(),
        code: status.code(),
        signal: status.signal(),
        stderr: err,
        traps: read_traps(traps),
    }
}

/// Reads a stream in a thread, so that a full pipe blocks nobody.
pub fn collect<R: Read + Send + 'static>(from: Option<R>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            let _ = from.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits for the end of a child of ours, at most `patience`.
pub fn wait(child: &mut Child, patience: Duration) -> Option<std::process::ExitStatus> {
    if !ends(child.id(), patience) {
        return None;
    }
    child.wait().ok()
}

/// Whether the process ends within `patience`; one that is gone has ended.
pub fn ends(pid: u32, patience: Duration) -> bool {
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    let pid = Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
    let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else {
        return true;
    };
    let limit = patience.try_into().expect("a timeout");
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&limit)), Ok(1))
}
