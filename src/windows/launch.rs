//! The launch: a private temporary directory, the container and its grants, the program, its end.

use std::collections::hash_map::RandomState;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::windows::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::grants::{self, Grants, setup};
use super::sys::job::Job;
use super::sys::process::{Container, Process, Refused, Start, leave_keys_to_the_program};
use super::sys::wide;
use crate::cli::{self, Error, Failure, tool};
use crate::lower::Run;
use crate::lower::appcontainer::journal::Header;
use crate::lower::appcontainer::{command, path};
use crate::plan::with_temporary;
use crate::policy::{
    Access, AppContainerMode, Effect, Limits, Origin, Pattern, ResolvedPolicy, Rule,
};
use crate::trap::{Code, LimitReached, Mechanism, Resource, RuleRef};

/// The exit code of a run whose time is up, as `timeout -s KILL` has it.
const TIME_IS_UP: u32 = 137;

/// Runs the program under the policy, and returns its exit code.
///
/// # Errors
///
/// An error when the program did not run.
pub fn run(run: Run) -> Result<u32, Error> {
    launch(run, true)
}

/// The same, without the standard streams.
///
/// # Errors
///
/// As [`run`].
pub fn silently(run: Run) -> Result<u32, Error> {
    launch(run, false)
}

fn launch(run: Run, streams: bool) -> Result<u32, Error> {
    let Run { args, env, policy, accept } = run;
    let journals = journals()?;
    grants::recover(&journals);

    let name = format!("landstrip.{:016x}{:016x}", random(), random());
    let temporary = Temporary::make(&name)?;
    let mut policy = with_temporary(policy, &temporary.path);
    // Whoever writes a journal has a later run change what it names.
    policy.rules.push(keep(internal(&journals)?));
    let plan = super::plan(&policy);
    super::refuse(&plan, &accept)?;

    let mut start = start(&args, env, &policy, &temporary, streams)?;
    let job = Job::new(&plan.job).map_err(|error| setup("job object", &error))?;
    let mut grants =
        Grants::begin(&journals, Header::new(&name, plan.loopback, &temporary.path), &plan)?;
    grants.apply(&plan)?;
    let container = Container {
        sid: grants.sid().to_vec(),
        capabilities: plan.capabilities.iter().map(|one| one.identifier()).collect(),
        lpac: plan.mode == AppContainerMode::Lpac,
    };
    leave_keys_to_the_program();
    let process = Process::start(&mut start, Some(&container), &job)
        .map_err(|refused| refusal(&args[0], refused))?;
    let code = supervise(&process, &job, &policy.limits);
    // Only now is nobody left who could use the grants.
    drop(grants);
    // Other runs may have left what this one relied on.
    grants::recover(&journals);
    code
}

/// Waits for the end of the program and of all that it started.
fn supervise(process: &Process, job: &Job, limits: &Limits) -> Result<u32, Error> {
    let failed = |error: io::Error| Failure::new(Code::SuperviseFailed, error.to_string());
    let most = limits.time.as_ref().map(|time| Duration::from_secs(time.value));
    let code = process.wait(most);
    let ended = job.end(TIME_IS_UP);
    let code = code.map_err(failed)?;
    ended.map_err(failed)?;
    if let (None, Some(time)) = (code, &limits.time) {
        let Origin { file, line, key } = time.origin.clone();
        cli::limit(&LimitReached {
            resource: Resource::Time,
            value: time.value,
            rule: RuleRef { file, line, key, text: time.typed() },
            count: 1,
        });
    }
    Ok(code.unwrap_or(TIME_IS_UP))
}

/// The file, the command line, the environment and the directory.
fn start(
    args: &[OsString],
    env: Vec<OsString>,
    policy: &ResolvedPolicy,
    temporary: &Temporary,
    streams: bool,
) -> Result<Start, Error> {
    let named = |name: &str| {
        let value =
            |variable: &OsString| split(variable).filter(|(key, _)| is(key, name)).map(|two| two.1);
        env.iter().find_map(value)
    };
    let shown = |path: &str| path::shown(path).ok_or_else(|| launch_error(&args[0], path, None));
    let directory = shown(&policy.cwd)?;
    let paths = named("PATH").unwrap_or_default();
    let program = tool::find(&args[0], &paths, Path::new(&directory))
        .map_err(|error| launch_error(&args[0], &error.to_string(), Some(&error)))?;
    if command::is_batch(&program.to_string_lossy()) {
        let message =
            "a batch file is not started: its arguments cannot be quoted; run its interpreter";
        return Err(launch_error(&args[0], message, None));
    }
    let units = |text: &OsString| text.encode_wide().collect::<Vec<u16>>();
    let rest: Vec<Vec<u16>> = args[1..].iter().map(units).collect();
    let mut line = command::line(&units(&args[0]), &rest)
        .ok_or_else(|| launch_error(&args[0], "no command line can say the arguments", None))?;
    line.push(0);
    let temporary = shown(&temporary.path)?;
    Ok(Start {
        program: wide(program),
        line,
        environment: block(env, &temporary),
        directory: wide(directory),
        streams,
    })
}

/// The environment as Windows reads it: sorted, with the run's own temporary directory.
fn block(mut env: Vec<OsString>, temporary: &str) -> Vec<u16> {
    const OURS: [&str; 2] = ["TEMP", "TMP"];
    env.retain(|variable| {
        split(variable).is_none_or(|(name, _)| !OURS.iter().any(|own| is(&name, own)))
    });
    env.extend(OURS.iter().map(|own| format!("{own}={temporary}").into()));
    env.sort_by_key(|variable| variable.to_ascii_uppercase());
    let mut block: Vec<u16> = env.iter().flat_map(wide).collect();
    block.push(0);
    block
}

/// Name and value. The name may start with `=`: Windows keeps the directories of drives so.
fn split(variable: &OsString) -> Option<(OsString, OsString)> {
    use std::os::windows::ffi::OsStringExt;
    let units: Vec<u16> = variable.encode_wide().collect();
    let at = 1 + units.iter().skip(1).position(|unit| *unit == u16::from(b'='))?;
    Some((OsString::from_wide(&units[..at]), OsString::from_wide(&units[at + 1..])))
}

fn is(name: &OsStr, other: &str) -> bool {
    name.eq_ignore_ascii_case(other)
}

fn refusal(program: &OsStr, refused: Refused) -> Error {
    match refused {
        Refused::HostJob => Failure {
            mechanism: Some(Mechanism::Appcontainer),
            ..Failure::new(
                Code::HostJobIncompatible,
                "the job that this process is in lets no child be in a job of its own",
            )
        }
        .into(),
        Refused::Other(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let message =
                format!("{error}: the policy has to allow reading the program and its libraries");
            launch_error(program, &message, Some(&error))
        }
        Refused::Other(error) => launch_error(program, &error.to_string(), Some(&error)),
    }
}

fn launch_error(program: &OsStr, message: &str, error: Option<&io::Error>) -> Error {
    Error::Launch {
        program: program.to_string_lossy().into_owned(),
        errno: match error.map(io::Error::kind) {
            Some(io::ErrorKind::NotFound) => Some("ENOENT"),
            Some(io::ErrorKind::PermissionDenied) => Some("EACCES"),
            _ => None,
        },
        message: message.to_owned(),
    }
}

/// A denial of writing to our own files.
fn keep(path: String) -> Rule {
    Rule {
        access: Access::Write,
        effect: Effect::Deny,
        always: true,
        text: path.clone(),
        pattern: Pattern::Subtree(path),
        origin: Origin::built_in("journals"),
    }
}

/// Where journals are kept, for all runs of the user.
fn journals() -> Result<PathBuf, Failure> {
    let failed = |error: &io::Error| setup("the directory of journals", error);
    let home = std::env::var_os("LOCALAPPDATA").filter(|path| Path::new(path).is_absolute());
    let home = home.ok_or_else(|| failed(&io::Error::other("LOCALAPPDATA names no directory")))?;
    let path = Path::new(&home).join("landstrip").join("journals");
    fs::create_dir_all(&path).and_then(|()| path.canonicalize()).map_err(|error| failed(&error))
}

fn internal(native: &Path) -> Result<String, Failure> {
    native.to_str().and_then(path::internal).ok_or_else(|| {
        let message = format!("{} is not a path of a drive", native.display());
        Failure::setup(Mechanism::Appcontainer, message)
    })
}

fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The run's private temporary directory, removed when this is dropped.
struct Temporary {
    native: PathBuf,
    /// As policies have it.
    path: String,
}

impl Temporary {
    fn make(name: &str) -> Result<Temporary, Failure> {
        let failed = |error: io::Error| setup("the temporary directory", &error);
        let native = std::env::temp_dir().canonicalize().map_err(failed)?.join(name);
        let path = internal(&native)?;
        fs::create_dir(&native).map_err(failed)?;
        Ok(Temporary { native, path })
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // The end of the grants removes it too. What cannot be removed stays.
        let _ = fs::remove_dir_all(&self.native);
    }
}
