//! Containers of `true`, from `create` to `delete`, beside the runtimes that engines call.
//!
//! All of them are told the same: `create`, `start`, the end of the program waited for (it becomes ours when
//! `create` has ended), `delete`. They run in a mount namespace of the bench's own, in which a hybrid host
//! shows its cgroups of version 1 alone: crun refuses to run beside both.

use std::cell::Cell;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper, waitpid};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::contender::{Contender, unsuccessful};
use crate::lab::Lab;
use crate::measure::{Build, Goal, Group, Lane, Row, Spec, Unit};
use crate::memory::sandbox_memory;
use crate::sys;

const PLAIN: &str = "container of true, default bundle";
const PLAIN_CPU: &str = "container of true, default bundle, processor time";
const PROFILE: &str = "container of true, podman's seccomp profile";
const PROFILE_CPU: &str = "container of true, podman's seccomp profile, processor time";
const POLICY: &str = "container of true, default bundle, a policy";
const KEPT: &str = "kept resident for a running container";
const KEPT_POLICY: &str = "kept resident for a running container, a policy";

const MILLISECOND: f64 = 1e6;
/// The launcher gives back what the launch took when it has run for a second.
const SETTLED: Duration = Duration::from_millis(1500);

/// Where Debian's golang-github-containers-common has the profile of podman.
const PODMAN: &str = "/usr/share/containers/seccomp.json";
/// A program that needs no other file.
const BUSYBOX: &str = "/bin/busybox";
/// Capabilities that podman grants by default and that its profile asks about.
const CAPABILITIES: [&str; 3] = ["CAP_SYS_CHROOT", "CAP_SETUID", "CAP_NET_BIND_SERVICE"];

/// Where the cgroups of version 2 are on a hybrid host.
const UNIFIED: &str = "/sys/fs/cgroup/unified";

/// Why no containers are measured here, where that is so.
pub fn without() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("root alone makes them in the same way under each runtime".into());
    }
    let missing = [BUSYBOX, PODMAN].into_iter().find(|path| !Path::new(path).exists())?;
    Some(format!("no {missing}"))
}

fn alone(name: &'static str, build: Build) -> Spec {
    Spec { name, beside: None, build }
}

/// What a whole container costs, and what it keeps. Must come last: the mount namespace of the bench is
/// another one from here on.
pub fn groups() -> [Group; 2] {
    [whole(), resident()]
}

fn whole() -> Group {
    Group {
        rounds: 50,
        rival: Contender::Crun,
        specs: vec![
            alone(PLAIN, |lab| row(lab, PLAIN, Bundle::Plain, wall, &[times_crun(0.5)])),
            alone(PLAIN_CPU, |lab| row(lab, PLAIN_CPU, Bundle::Plain, cpu, &[times_crun(0.5)])),
            alone(PROFILE, |lab| row(lab, PROFILE, Bundle::Profile, wall, &[times_crun(0.25)])),
            alone(PROFILE_CPU, |lab| {
                row(lab, PROFILE_CPU, Bundle::Profile, cpu, &[times_crun(0.25)])
            }),
            Spec {
                name: POLICY,
                beside: Some(PLAIN),
                build: |lab| {
                    let goal = Goal::OverRow(PLAIN, MILLISECOND);
                    row(lab, POLICY, Bundle::Policy, wall, &[goal])
                },
            },
        ],
    }
}

/// Few rounds: each waits until the launch is behind it, and they hardly differ.
fn resident() -> Group {
    Group {
        rounds: 3,
        rival: Contender::Crun,
        specs: vec![
            alone(KEPT, |lab| row(lab, KEPT, Bundle::Sleep, kept, &[Goal::AtMost(0.0)])),
            alone(KEPT_POLICY, |lab| {
                row(lab, KEPT_POLICY, Bundle::SleepPolicy, kept, &[Goal::AtMost(4e6)])
            }),
        ],
    }
}

fn times_crun(factor: f64) -> Goal {
    Goal::TimesRival(Contender::Crun, factor)
}

/// What is run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bundle {
    /// What `spec` writes, with `true` for its shell.
    Plain,
    /// The same with a seccomp profile.
    Profile,
    /// The first, under a policy of ours.
    Policy,
    /// One that stays.
    Sleep,
    /// The same under a policy.
    SleepPolicy,
}

impl Bundle {
    fn has_policy(self) -> bool {
        matches!(self, Bundle::Policy | Bundle::SleepPolicy)
    }

    fn program(self) -> &'static [&'static str] {
        match self {
            Bundle::Sleep | Bundle::SleepPolicy => &["/bin/sleep", "1000"],
            _ => &["/bin/true"],
        }
    }
}

/// Measures the life of one container.
type Measure = fn(&mut Runtime) -> io::Result<f64>;

fn row(
    lab: &Lab,
    name: &'static str,
    bundle: Bundle,
    measure: Measure,
    goals: &[Goal],
) -> io::Result<Row> {
    let unit = if goals.iter().any(|goal| matches!(goal, Goal::AtMost(_))) {
        Unit::Megabytes
    } else {
        Unit::Millis
    };
    let goals = goals.to_vec();
    let none = Row { name, unit, lanes: Default::default(), goals: goals.clone() };
    let Some(landstrip) = lab.tools.landstrip().filter(|_| without().is_none()) else {
        return Ok(none);
    };
    own_mounts()?;
    let profile = match bundle {
        Bundle::Profile => Some(profile(&serde_json::from_slice(&fs::read(PODMAN)?)?)),
        _ => None,
    };
    let dir = lab.workspace(&name.replace([' ', ',', '\''], "-"))?;
    root(&dir.join("rootfs"))?;
    let mut document = document(landstrip, &dir, bundle.program())?;
    if let Some(profile) = profile {
        document["linux"]["seccomp"] = profile;
    }
    fs::write(dir.join("config.json"), document.to_string())?;
    let policy = match bundle.has_policy() {
        true => Some(policy(lab, landstrip, &dir, document)?),
        false => None,
    };
    let lanes = Contender::ALL.map(|contender| {
        let program = match contender {
            Contender::Landstrip => landstrip,
            _ if policy.is_some() => return None,
            other => lab.tools.runtime(other)?,
        };
        let mut runtime = Runtime::new(program, &dir, contender.name(), policy.as_deref()).ok()?;
        Some(Box::new(move || measure(&mut runtime)) as Lane)
    });
    Ok(Row { name, unit, lanes, goals })
}

/// Busybox under the names of the programs that are run.
fn root(dir: &Path) -> io::Result<()> {
    for name in ["bin", "proc", "dev", "sys", "tmp"] {
        fs::create_dir_all(dir.join(name))?;
    }
    fs::copy(BUSYBOX, dir.join("bin/busybox"))?;
    ["true", "sleep", "sh"]
        .iter()
        .try_for_each(|name| symlink("busybox", dir.join("bin").join(name)))
}

/// The document that `spec` writes into the bundle `dir`, with another program.
fn document(landstrip: &Path, dir: &Path, program: &[&str]) -> io::Result<Value> {
    succeed(Command::new(landstrip).args(["spec", "--bundle"]).arg(dir))?;
    let mut document: Value = serde_json::from_slice(&fs::read(dir.join("config.json"))?)?;
    document["process"]["args"] = json!(program);
    document["process"]["terminal"] = json!(false);
    // One that the others' older versions take.
    document["ociVersion"] = json!("1.0.2");
    Ok(document)
}

/// A policy, and the proof that it holds: what may be written without it may not with it.
fn policy(lab: &Lab, landstrip: &Path, dir: &Path, document: Value) -> io::Result<PathBuf> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let policy = lab.policy(&name, &json!({"filesystem": {"allowWrite": ["/tmp"]}}))?;
    let trial = lab.workspace(&format!("{name}-trial"))?;
    root(&trial.join("rootfs"))?;
    let mut document = document;
    document["process"]["args"] = json!(["/bin/sh", "-c", ": > /written"]);
    document["root"]["readonly"] = json!(false);
    fs::write(trial.join("config.json"), document.to_string())?;
    for policy in [None, Some(policy.as_path())] {
        let status = Runtime::new(landstrip, &trial, "trial", policy)?.live(|_| Ok(()))?;
        if (status == Some(0)) != policy.is_none() {
            return Err(io::Error::other("the policy of a container is not in force"));
        }
    }
    Ok(policy)
}

/// A seccomp profile of an engine as it stands in `config.json`, on x86-64.
fn profile(text: &Value) -> Value {
    let words = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|w| w.as_str()).map(Into::into).collect()
    };
    let has = |name: &String| CAPABILITIES.contains(&name.as_str());
    let native = |names: &[String]| names.iter().any(|name| name == "amd64");
    let rules = text["syscalls"].as_array().into_iter().flatten().filter(|rule| {
        let (with, without) = (&rule["includes"], &rule["excludes"]);
        let arches = words(&with["arches"]);
        (arches.is_empty() || native(&arches))
            && words(&with["caps"]).iter().all(has)
            && !words(&without["caps"]).iter().any(has)
            && !native(&words(&without["arches"]))
    });
    let kept = |rule: &Value| {
        let keys =
            ["names", "action", "args", "errnoRet"].iter().filter(|key| !rule[**key].is_null());
        keys.map(|key| ((*key).to_owned(), rule[*key].clone())).collect::<Value>()
    };
    json!({
        "defaultAction": text["defaultAction"],
        "defaultErrnoRet": text["defaultErrnoRet"],
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "syscalls": rules.map(kept).collect::<Vec<_>>(),
    })
}

/// A runtime with a state directory of its own, and a container to be.
struct Runtime {
    create: Command,
    start: Command,
    kill: Command,
    delete: Command,
    pid_file: PathBuf,
    /// The program's file, by which its processes are known.
    load: PathBuf,
    /// Where engines keep state: in memory, where there is `/run`.
    _state: TempDir,
}

impl Runtime {
    fn new(program: &Path, dir: &Path, name: &str, policy: Option<&Path>) -> io::Result<Runtime> {
        // A container that its runtime has started becomes ours, to be waited for.
        set_child_subreaper(Some(getpid()))?;
        let state = tempfile::Builder::new().prefix("speed-").tempdir_in("/run")?;
        let pid_file = state.path().join("pid");
        let id = OsString::from(format!("speed-{}-{name}", std::process::id()));
        let command = |words: &[&OsString]| {
            let mut command = Command::new(program);
            if let Some(policy) = policy {
                command.arg("--policy").arg(policy);
            }
            command.arg("--root").arg(state.path()).args(words);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let words = ["create", "--bundle", "--pid-file", "start", "kill", "KILL", "delete"];
        let [create, bundle, pid, start, kill, signal, delete] = words.map(OsString::from);
        Ok(Runtime {
            create: command(&[&create, &bundle, &dir.into(), &pid, &(&pid_file).into(), &id]),
            start: command(&[&start, &id]),
            kill: command(&[&kill, &id, &signal]),
            delete: command(&[&delete, &id]),
            pid_file,
            load: dir.join("rootfs/bin/busybox"),
            _state: state,
        })
    }

    /// One life of the container; `during` is called when its program runs. Returns the program's exit code.
    fn live(
        &mut self,
        during: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<Option<i32>> {
        succeed(&mut self.create)?;
        succeed(&mut self.start)?;
        let pid = fs::read_to_string(&self.pid_file)?;
        let pid = pid.trim().parse().ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("no process id in the pid file"))?;
        let seen = during(self);
        let status = loop {
            match waitpid(Some(pid), WaitOptions::empty()) {
                Err(Errno::INTR) => {}
                other => break other?,
            }
        };
        succeed(&mut self.delete)?;
        seen?;
        Ok(status.and_then(|(_, status)| status.exit_status()))
    }
}

fn succeed(command: &mut Command) -> io::Result<()> {
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(unsuccessful(status)) }
}

fn wall(runtime: &mut Runtime) -> io::Result<f64> {
    let start = Instant::now();
    runtime.live(|_| Ok(()))?;
    Ok(start.elapsed().as_nanos() as f64)
}

/// Of the runtime and of the container, in user space and in the kernel. What the kernel's own threads do
/// later to take namespaces apart is not in it.
fn cpu(runtime: &mut Runtime) -> io::Result<f64> {
    let before = sys::children_time();
    runtime.live(|_| Ok(()))?;
    Ok((sys::children_time() - before).as_nanos() as f64)
}

/// What the runtime's processes hold while the program runs, when the launch is behind them.
fn kept(runtime: &mut Runtime) -> io::Result<f64> {
    let mut held = 0.0;
    runtime.live(|runtime| {
        thread::sleep(SETTLED);
        let found = sandbox_memory(&runtime.load);
        succeed(&mut runtime.kill)?;
        held = found?;
        Ok(())
    })?;
    Ok(held)
}

/// Gives the bench a mount namespace of its own, in which crun finds cgroups as it knows them.
fn own_mounts() -> io::Result<()> {
    thread_local!(static DONE: Cell<bool> = const { Cell::new(false) });
    if DONE.replace(true) {
        return Ok(());
    }
    sys::own_mounts()?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let mounted = rustix::fs::statat(CWD, UNIFIED, rustix::fs::AtFlags::empty()).is_ok();
    if mounted {
        unmount(UNIFIED, UnmountFlags::DETACH)?;
    }
    Ok(())
}
