//! The commands on containers, as engines call them.

pub mod args;
#[cfg(target_os = "linux")]
mod features;
#[cfg(target_os = "linux")]
mod log;
#[cfg(target_os = "linux")]
mod look;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod template;
#[cfg(target_os = "linux")]
mod update;

use std::ffi::OsString;
#[cfg(target_os = "linux")]
use std::path::PathBuf;

use args::{ContainerCommand, GlobalArgs};

#[cfg(target_os = "linux")]
pub use run::{Launch, is_host_root, run};
#[cfg(target_os = "linux")]
pub use template::template;

/// What the runtime says of its version: engines read three lines, as runc's (go-runc, and moby's `docker info`).
/// The last is `ociVersionMax` of `features`.
pub const VERSION: &str =
    concat!("version ", env!("CARGO_PKG_VERSION"), "\ncommit: none\nspec: 1.3.0");

/// Runs a command, reports what went wrong, and returns the exit code. `line` is the whole command line.
#[cfg(target_os = "linux")]
pub fn command(global: &GlobalArgs, command: ContainerCommand, line: &[OsString]) -> u8 {
    use crate::oci::{Error, lifecycle, signal};
    let preserved = match &command {
        ContainerCommand::Create(args) => Some(args.launch.preserve_fds),
        ContainerCommand::Exec(args) => Some(args.preserve_fds),
        _ => None,
    };
    if let Some(preserved) = preserved
        && let Err(code) = go_on(global, line, preserved)
    {
        return code;
    }
    with_runtime(global, super::name(line), |runtime| {
        match command {
            ContainerCommand::Create(args) => run::create(runtime, args)?,
            ContainerCommand::Start(args) => lifecycle::start(runtime, &args.id)?,
            ContainerCommand::State(args) => look::state(runtime, &args.id)?,
            ContainerCommand::Kill(args) => {
                let number = signal::number(&args.signal);
                let unknown = || Error::new(format!("unknown signal {:?}", args.signal));
                lifecycle::kill(runtime, &args.id, number.ok_or_else(unknown)?, args.all)?;
            }
            ContainerCommand::Delete(args) => lifecycle::delete(runtime, &args.id, args.force)?,
            ContainerCommand::Exec(args) => return run::exec(runtime, args),
            ContainerCommand::Ps(args) => look::ps(runtime, &args)?,
            ContainerCommand::List(args) => look::list(runtime, args)?,
            ContainerCommand::Pause(args) => lifecycle::freeze(runtime, &args.id, true)?,
            ContainerCommand::Resume(args) => lifecycle::freeze(runtime, &args.id, false)?,
            ContainerCommand::Update(args) => update::update(runtime, &args)?,
            ContainerCommand::Events(args) => look::events(runtime, &args)?,
            ContainerCommand::Features => features::features()?,
            ContainerCommand::Checkpoint(_) | ContainerCommand::Restore(_) => {
                return Err(Error::new("checkpoint and restore are not supported"));
            }
        }
        Ok(0)
    })
}

/// The same before the line is parsed, for commands that enter a container whatever else the line says: to
/// parse it in both lives of the program would cost 0.05 ms. Who cannot be executed anew says so later.
#[cfg(target_os = "linux")]
pub fn go_on_early(verb: &str, line: &[OsString]) {
    if matches!(verb, "create" | "exec") {
        let _told_later = crate::oci::sealed::execute(line);
    }
}

/// Goes on from a file of its own that no container can write to, for commands that enter one.
#[cfg(target_os = "linux")]
fn go_on(global: &GlobalArgs, line: &[OsString], preserved: u32) -> Result<(), u8> {
    crate::oci::sealed::go_on(line, preserved)
        .map_err(|error| with_runtime(global, super::name(line), |_| Err(error)))
}

/// Prepares what all commands share, and reports the error of the one that is run.
#[cfg(target_os = "linux")]
fn with_runtime(
    global: &GlobalArgs,
    name: &str,
    command: impl FnOnce(&crate::oci::runtime::Runtime<'_>) -> crate::oci::Result<u8>,
) -> u8 {
    use crate::oci::cgroup::Manager;
    use crate::oci::runtime::{Runtime, default_root, is_rootless};
    use crate::oci::state::Root;
    use args::{CgroupManager, Rootless};

    let log = match log::Log::open(global, name) {
        Ok(log) => log,
        Err(message) => {
            eprintln!("{name}: error: {message}");
            return 1;
        }
    };
    let rootless = match global.rootless {
        Some(Rootless::Said(said)) => said,
        None | Some(Rootless::Auto) => is_rootless(),
    };
    let manager = match global.cgroup_manager {
        Some(CgroupManager::Systemd) => Manager::Systemd,
        Some(CgroupManager::Disabled) => Manager::Disabled,
        None if global.systemd_cgroup => Manager::Systemd,
        Some(CgroupManager::Cgroupfs) | None => Manager::Cgroupfs,
    };
    let root = global.root.clone().unwrap_or_else(|| default_root(rootless));
    let root = std::path::absolute(&root).unwrap_or(root);
    let warn = |text: &str| log.warning(text);
    let whole = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let runtime = Runtime {
        root: Root::new(root),
        manager,
        rootless,
        policies: global.policy.clone(),
        accept: global.accept.clone(),
        traps: global.traps.as_ref().map(whole),
        warn: &warn,
    };
    command(&runtime).unwrap_or_else(|error| {
        let mut text = error.to_string();
        if global.root.is_none() && rootless {
            text.push_str(remedy(&text));
        }
        log.error(&text);
        run::exit_code(&text)
    })
}

/// What to do about an error of a user who may not keep containers where nobody says another place, and root does.
/// runc and crun have the same default and the same error.
#[cfg(target_os = "linux")]
fn remedy(error: &str) -> &'static str {
    use crate::oci::runtime::default_root;
    let root = default_root(true);
    let refused = error.contains("Permission denied")
        && root.to_str().is_some_and(|root| error.starts_with(root));
    match refused && root == default_root(false) {
        true => "; set XDG_RUNTIME_DIR, or give --root DIR",
        false => "",
    }
}

/// Says that there are no containers on this platform.
#[cfg(not(target_os = "linux"))]
pub fn command(
    _: &GlobalArgs,
    _: ContainerCommand,
    _: &[OsString],
) -> Result<u8, super::error::Error> {
    use super::error::Failure;
    use crate::trap::Code;
    let message = "containers are not available on this platform";
    Err(Failure::new(Code::PlatformUnsupported, message).into())
}
