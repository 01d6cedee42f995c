//! `run`: a program, or a bundle, under a policy.

use super::TrapFd;
use super::args::{PolicyArgs, RunArgs, What};
use super::error::{Error, Failure};
use super::load::load;
use crate::policy::{self, Place, ResolvedPolicy};
use crate::trap::{Code, Style};
use std::io::IsTerminal;

/// Runs it and returns its exit code; `traps` is the descriptor of `--trap-fd`.
///
/// # Errors
///
/// An error when the program did not run, or could not be supervised.
pub fn run(args: &RunArgs, what: What<'_>, _traps: Option<&TrapFd>) -> Result<u8, Error> {
    let What::Program {
        program,
        args: rest,
    } = what
    else {
        return Err(Failure::new(Code::PlatformUnsupported, "bundles are not available").into());
    };
    let policy = resolved(&args.policy)?;
    let job = crate::linux::launch::Job {
        args: std::iter::once(program).chain(rest).cloned().collect(),
        env: std::env::vars_os()
            .map(|(mut name, value)| {
                name.push("=");
                name.push(value);
                name
            })
            .collect(),
        policy,
        accept: args.accept.clone(),
        inherit: args.inherit.clone(),
        traps: args.trap_fd.map(TrapFd::inherit).transpose()?,
        style: if std::io::stderr().is_terminal() {
            Style::Text
        } else {
            Style::Json
        },
    };
    crate::linux::launch::run(job)
}

fn resolved(args: &PolicyArgs) -> Result<ResolvedPolicy, Error> {
    let sources = load(args, |name| {
        policy::shipped::find(&format!("@{name}")).map(|s| s.text)
    })?;
    let mut documents = Vec::new();
    for source in &sources {
        let format = match source.format {
            super::args::PolicyFormat::Json => policy::Format::Json,
            super::args::PolicyFormat::Yaml => policy::Format::Yaml,
        };
        documents.push(policy::parse(&source.name, &source.bytes, format).map_err(failure)?);
    }
    let merged = policy::merge(documents);
    let cwd = std::env::current_dir()
        .map_err(|e| Failure::new(Code::PolicyIoFailed, format!("current directory: {e}")))?;
    let cwd = match &args.cwd {
        Some(dir) => cwd.join(dir),
        None => cwd,
    };
    let home = std::env::var("HOME").ok();
    let place = Place {
        cwd: cwd.to_str().ok_or_else(|| {
            Failure::new(
                Code::PolicyParseFailed,
                "the current directory is not UTF-8",
            )
        })?,
        home: home.as_deref(),
        view: &crate::linux::host::HostView,
    };
    Ok(policy::resolve(&merged, &place).map_err(failure)?)
}

fn failure(error: policy::PolicyError) -> Failure {
    Failure {
        code: Code::from_name(error.code).unwrap_or(Code::InternalError),
        message: error.message,
        mechanism: None,
        file: error.file,
        line: error.line,
        key: error.key,
    }
}
