//! `create`, `run` and `exec`: commands that start a program in a container.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use oci_spec::runtime::Mount;
use serde::Deserialize;

use super::args::{CreateArgs, ExecArgs, GlobalArgs, LaunchArgs};
use super::{go_on, with_runtime};
use crate::cli::name;
use crate::lower::container::shows_the_host;
use crate::lower::spec::ENFORCEMENT;
use crate::oci::attach::Attached;
use crate::oci::create::{Created, Options};
use crate::oci::runtime::Runtime;
use crate::oci::{Context, Error, Result, bundle, create as oci, exec as more, lifecycle};

/// A container to be run.
pub struct Launch<'a> {
    /// The bundle.
    pub bundle: &'a Path,
    /// Its name; one is made up where there is none.
    pub id: Option<String>,
    /// The options that `create` has, too.
    pub launch: &'a LaunchArgs,
    /// Return when the program has started.
    pub detach: bool,
    /// Keep the container when its program has ended.
    pub keep: bool,
}

fn options(id: String, bundle: PathBuf, launch: &LaunchArgs) -> Options {
    Options {
        id,
        bundle,
        config: launch.config.clone(),
        pid_file: launch.pid_file.clone(),
        console_socket: launch.console_socket.clone(),
        no_pivot: launch.no_pivot,
        no_new_keyring: launch.no_new_keyring,
        preserve_fds: launch.preserve_fds,
    }
}

/// `create`.
///
/// # Errors
///
/// As [`oci::create`].
pub fn create(runtime: &Runtime<'_>, args: CreateArgs) -> Result<()> {
    let CreateArgs { bundle, launch, id } = args;
    oci::create(runtime, &options(id, bundle, &launch), None, true).map(|_| ())
}

/// `run` of a container: runs it, and deletes it when it has ended.
pub fn run(global: &GlobalArgs, launch: Launch<'_>, line: &[OsString]) -> u8 {
    if let Err(code) = go_on(global, line, launch.launch.preserve_fds) {
        return code;
    }
    with_runtime(global, name(line), |runtime| {
        let id = launch.id.clone().unwrap_or_else(made_up);
        let options = options(id, launch.bundle.to_owned(), launch.launch);
        if launch.detach {
            let created = oci::create(runtime, &options, None, false)?;
            started(runtime, &created)?;
            let Created { lock, init, notify, .. } = created;
            drop(lock);
            return notify.map_or(Ok(0), |notify| notify.wait(&init.pidfd).map(|()| 0));
        }
        let terminal = options.console_socket.is_none() && has_terminal(&options);
        let (attached, socket) = Attached::prepare(terminal)?;
        let created = oci::create(runtime, &options, socket, false)?;
        started(runtime, &created)?;
        let Created { lock, container, record, init, channel, notify } = created;
        drop((lock, channel));
        if let Some(notify) = notify {
            // It ends with the program.
            let init = init.pidfd.try_clone().context("dup")?;
            std::thread::spawn(move || notify.wait(&init));
        }
        let code = attached.follow(&init)?;
        if !launch.keep {
            // Somebody else may have been quicker.
            match container.lock(&record.id) {
                Ok(_lock) => lifecycle::remove(runtime, &container, &record)?,
                Err(_) if !container.dir().exists() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(u8::try_from(code).unwrap_or(1))
    })
}

/// Lets the program of a container that waits for it start; takes it away where that fails.
fn started(runtime: &Runtime<'_>, created: &Created) -> Result<()> {
    let Created { container, record, .. } = created;
    lifecycle::started(&created.channel).inspect_err(|_| {
        lifecycle::remove(runtime, container, record).unwrap_or_else(|other| runtime.warn(other));
    })?;
    lifecycle::poststart(runtime, container, record)
}

/// Whether the process of the document has a terminal. What is wrong with it is said when it is read.
fn has_terminal(options: &Options) -> bool {
    let config = options.config.clone().unwrap_or_else(|| options.bundle.join("config.json"));
    let spec = bundle::bytes(&config).and_then(|text| bundle::parse(&text));
    spec.is_ok_and(|(spec, _)| spec.process().as_ref().and_then(|p| p.terminal()).unwrap_or(false))
}

/// A name for a container that nobody named: no two processes have it at one time.
fn made_up() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    format!("run-{}-{:x}", std::process::id(), now.map_or(0, |time| time.as_micros()))
}

/// `exec`.
///
/// # Errors
///
/// As [`more::exec`].
pub fn exec(runtime: &Runtime<'_>, args: ExecArgs) -> Result<u8> {
    if args.process.is_none() && args.args.is_empty() {
        return Err(Error::new("exec: no program is given, and no --process"));
    }
    let options = more::Options {
        id: args.id,
        process: args.process,
        args: args.args,
        tty: args.tty,
        console_socket: args.console_socket,
        pid_file: args.pid_file,
        cwd: args.cwd,
        env: args.env,
        user: args.user,
        groups: args.additional_gids,
        capabilities: args.cap,
        no_new_privileges: args.no_new_privs,
        apparmor: args.apparmor,
        label: args.process_label,
        preserve_fds: args.preserve_fds,
        ignore_paused: args.ignore_paused,
        cgroups: args.cgroup,
    };
    if args.detach {
        more::exec(runtime, &options, None)?;
        return Ok(0);
    }
    let terminal = options.console_socket.is_none() && wants_terminal(&options);
    let (attached, socket) = Attached::prepare(terminal)?;
    let process = more::exec(runtime, &options, socket)?;
    let code = attached.follow(&process)?;
    Ok(u8::try_from(code).unwrap_or(1))
}

fn wants_terminal(options: &more::Options) -> bool {
    let document = options.process.as_ref().and_then(|path| bundle::bytes(path).ok());
    let document = document.and_then(|text| bundle::parse_process(&text).ok());
    document.map_or(options.tty, |(process, _)| options.tty || process.terminal().unwrap_or(false))
}

/// What `run` of a program ends with, where it did not start: what a shell uses.
pub fn exit_code(message: &str) -> u8 {
    let lower = message.to_ascii_lowercase();
    match message.starts_with("exec") {
        true if lower.contains("not found in") || lower.contains("no such file") => 127,
        true if lower.contains("permission denied") || lower.contains("exec format") => 126,
        _ => 1,
    }
}

/// Whether the bundle in `dir` is one whose root is the host's, and that asks for no mount namespace, or one that
/// says of itself that it is a run on the host, and shows the host's files: then its program is run where it is.
/// To say it is not enough, for an image can: engines, and tools that unpack images, copy its annotations. A bundle
/// that cannot be read is not told apart here.
#[must_use]
pub fn is_host_root(dir: &Path, config: Option<&Path>) -> bool {
    #[derive(Deserialize)]
    struct Document {
        root: Option<Root>,
        mounts: Option<Vec<Mount>>,
        linux: Option<Linux>,
        annotations: Option<HashMap<String, String>>,
    }
    #[derive(Deserialize)]
    struct Root {
        path: PathBuf,
    }
    #[derive(Deserialize)]
    struct Linux {
        #[serde(default)]
        namespaces: Vec<Namespace>,
    }
    #[derive(Deserialize)]
    struct Namespace {
        r#type: String,
    }
    let path = config.map_or_else(|| dir.join("config.json"), Path::to_owned);
    let Ok(text) = bundle::bytes(&path) else { return config.is_none() };
    let Ok(document) = serde_json::from_slice::<Document>(&text) else { return config.is_none() };
    if document.annotations.is_some_and(|all| all.contains_key(ENFORCEMENT))
        && shows_the_host(document.mounts.as_deref().unwrap_or_default())
    {
        return true;
    }
    let namespaces = document.linux.map(|linux| linux.namespaces).unwrap_or_default();
    document.root.is_none_or(|root| root.path.as_os_str() == "/")
        && !namespaces.iter().any(|namespace| namespace.r#type == "mount")
}
