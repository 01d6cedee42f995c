//! `run`: a program, or a bundle, under a policy.

use std::ffi::OsString;

use super::TrapFd;
use super::args::{RunArgs, What};
use super::error::{Error, Failure};
use crate::trap::Code;

#[cfg(target_os = "linux")]
pub use linux::{identity, of_command, run};

#[cfg(target_os = "linux")]
mod linux {
    use std::path::Path;
    use std::time::Duration;

    use super::super::args::PolicyArgs;
    use super::super::{HostFiles, bundle, resolve, stderr_style};
    use super::{Code, Error, Failure, OsString, RunArgs, TrapFd, What, environment};
    use crate::linux::{host, launch};
    use crate::lower::{Identity, Run};

    /// Runs it and returns its exit code; `traps` is the descriptor of `--trap-fd`.
    ///
    /// # Errors
    ///
    /// An error when the program did not run, or could not be supervised.
    pub fn run(args: &RunArgs, what: What<'_>, _traps: Option<&TrapFd>) -> Result<u8, Error> {
        let run = match what {
            What::Program { .. } => of_command(&args.policy, &args.accept, &args.command)?,
            What::Bundle { .. } if args.for_container() => {
                let message =
                    "this bundle's root is the host's: options of containers cannot be used";
                return Err(Error::Usage(message.to_owned()));
            }
            What::Bundle { dir, .. } => of_bundle(dir, &args.accept)?,
        };
        let Run { args: argv, env, policy, accept } = run;
        launch::run(launch::Job {
            args: argv,
            env,
            policy,
            accept,
            inherit: args.inherit.clone(),
            traps: args.trap_fd.map(TrapFd::inherit).transpose()?,
            query_timeout: Duration::from_secs(args.query_timeout.into()),
            style: stderr_style(),
            quiet: args.quiet,
            learn: None,
            inside: None,
        })
    }

    /// What a command line says; `command` is the program and its arguments.
    ///
    /// # Errors
    ///
    /// As [`resolve::resolved`]; a usage error where there is no program.
    pub fn of_command(
        policy: &PolicyArgs,
        accept: &[String],
        command: &[OsString],
    ) -> Result<Run, Error> {
        let Some(program) = command.first() else {
            return Err(Error::Usage("nothing to run".to_owned()));
        };
        let policy = resolve::resolved(policy, Some(program), &HostFiles)?;
        Ok(Run { args: command.to_vec(), env: environment(), policy, accept: accept.to_vec() })
    }

    /// What the bundle in `dir` says. The policy that is attached to the program is applied here as
    /// well: it may be newer than the bundle, and a bundle need not come from `spec`.
    fn of_bundle(dir: &Path, accept: &[String]) -> Result<Run, Error> {
        let mut run = bundle::read(dir, &identity()?)?;
        let environment = resolve::Environment::of(&run.env);
        run.policy = resolve::tightened(run.policy, &run.args[0], &environment, &HostFiles)?;
        run.accept.extend_from_slice(accept);
        Ok(run)
    }

    /// Who this is.
    ///
    /// # Errors
    ///
    /// `SANDBOX_SETUP_FAILED` where the kernel does not say.
    pub fn identity() -> Result<Identity, Error> {
        host::identity().map_err(|errno| {
            Failure::new(Code::SandboxSetupFailed, format!("user and capabilities: {errno}")).into()
        })
    }
}

/// Runs it and returns its exit code.
///
/// # Errors
///
/// An error when the program did not run.
#[cfg(target_os = "macos")]
pub fn run(args: &RunArgs, what: What<'_>, _: Option<&TrapFd>) -> Result<u8, Error> {
    crate::macos::launch::run(of_command(args, &what)?, args.quiet)
}

/// Runs it and returns its exit code. One that does not fit, as the number of an exception, ends this process
/// with all of its 32 bits.
///
/// # Errors
///
/// An error when the program did not run.
#[cfg(windows)]
pub fn run(args: &RunArgs, what: What<'_>, _: Option<&TrapFd>) -> Result<u8, Error> {
    let code = crate::windows::launch::run(of_command(args, &what)?)?;
    Ok(u8::try_from(code).unwrap_or_else(|_| std::process::exit(code.cast_signed())))
}

/// What a command line says.
#[cfg(not(target_os = "linux"))]
fn of_command(args: &RunArgs, what: &What<'_>) -> Result<crate::lower::Run, Error> {
    let What::Program { .. } = what else {
        let message = "bundles are not run on this platform yet";
        return Err(Failure::new(Code::PlatformUnsupported, message).into());
    };
    let [program, ..] = &args.command[..] else {
        return Err(Error::Usage("nothing to run".to_owned()));
    };
    let policy = super::resolve::resolved(&args.policy, Some(program), &super::HostFiles)?;
    let (args, accept) = (args.command.clone(), args.accept.clone());
    Ok(crate::lower::Run { args, env: environment(), policy, accept })
}

/// The environment of this process, as `NAME=value`.
#[must_use]
pub fn environment() -> Vec<OsString> {
    let variable = |(mut name, value): (OsString, OsString)| {
        name.push("=");
        name.push(value);
        name
    };
    std::env::vars_os().map(variable).collect()
}
