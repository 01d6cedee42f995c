//! From the command line to a resolved policy: load, parse, merge, resolve, tighten.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;

use super::args::PolicyArgs;
use super::error::{Error, Failure};
use super::load::load;
use super::tool;
use crate::policy::{self, FsView, Place, PolicyError, ResolvedPolicy};
use crate::trap::Code;

impl From<PolicyError> for Failure {
    fn from(error: PolicyError) -> Failure {
        let PolicyError { code, file, line, key, message } = error;
        let code = Code::from_name(code).unwrap_or(Code::InternalError);
        Failure { code, message, mechanism: None, file, line, key }
    }
}

impl From<PolicyError> for Error {
    fn from(error: PolicyError) -> Error {
        Error::Policy(error.into())
    }
}

/// The directory that the run starts in: absolute and free of links.
///
/// # Errors
///
/// A usage error where `--cwd` is no directory; `POLICY_IO_FAILED` where the current directory is
/// gone, or its path is not UTF-8.
pub fn start_directory(args: &PolicyArgs) -> Result<String, Error> {
    let path = match &args.cwd {
        Some(dir) => {
            let usage = |error| Error::Usage(format!("--cwd {}: {error}", dir.display()));
            let path = fs::canonicalize(dir).map_err(usage)?;
            if !path.is_dir() {
                return Err(usage(std::io::ErrorKind::NotADirectory.into()));
            }
            path
        }
        None => env::current_dir().map_err(|error| {
            Failure::new(
                Code::PolicyIoFailed,
                format!("cannot tell the current directory: {error}"),
            )
        })?,
    };
    utf8(path).map_err(|path| {
        let message = format!("the start directory is not UTF-8: {}", path.display());
        Failure::new(Code::PolicyIoFailed, message).into()
    })
}

fn utf8(path: PathBuf) -> Result<String, PathBuf> {
    path.into_os_string().into_string().map_err(PathBuf::from)
}

/// The policy that `args` name, merged and resolved against `view`; with a `tool`, tightened by
/// the policy that is attached to that program.
///
/// # Errors
///
/// As [`load`] and [`start_directory`]; [`Error::Policy`] where a policy is refused.
pub fn resolved(
    args: &PolicyArgs,
    tool: Option<&OsStr>,
    view: &dyn FsView,
) -> Result<ResolvedPolicy, Error> {
    let sources = load(args)?;
    let cwd = start_directory(args)?;
    // An empty or relative HOME is no place to anchor a path.
    let home = env::var("HOME").ok().filter(|home| home.starts_with('/'));
    let place = Place { cwd: &cwd, home: home.as_deref(), view };
    let parse = |source: super::Source| policy::parse(&source.name, &source.bytes, source.format);
    let documents = sources.into_iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    let base = policy::resolve(&policy::merge(documents), &place)?;
    let Some(program) = tool else { return Ok(base) };
    let Some(source) = tool::policy(program, cwd.as_ref())? else { return Ok(base) };
    let own = policy::resolve_executable(&policy::merge(vec![parse(source)?]), &place, &base)?;
    Ok(policy::tighten(base, own)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_the_policy_engine_is_a_code_of_traps() {
        for code in policy::error::ALL {
            assert!(Code::from_name(code).is_some(), "{code}");
        }
    }

    #[test]
    fn the_start_directory_is_a_directory() {
        let at = |cwd: &str| {
            start_directory(&PolicyArgs { cwd: Some(cwd.into()), ..PolicyArgs::default() })
        };
        assert_eq!(at("/dev/.."), Ok("/".into()));
        for cwd in ["/dev/null", "/nonexistent"] {
            assert!(matches!(at(cwd), Err(Error::Usage(text)) if text.contains(cwd)), "{cwd}");
        }
    }
}
