//! From the command line to a resolved policy: load, parse, merge, resolve, tighten.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::PathBuf;

use super::args::PolicyArgs;
use super::error::{Error, Failure};
use super::load::{Source, load, with_hint};
use super::tool;
use crate::policy::{self, Daemons, FsView, Place, PolicyError, ResolvedPolicy};
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

/// The variable that names the home directory.
const HOME: &str = if cfg!(windows) { "USERPROFILE" } else { "HOME" };

/// The sockets that are as good as the host, by the environment of this process.
pub fn daemons() -> Daemons {
    let variables: Vec<(String, String)> = env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let variables = variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let canonical = |path: &str| {
        let found = fs::canonicalize(path).ok().and_then(|found| utf8(found).ok());
        found.unwrap_or_else(|| path.to_owned())
    };
    Daemons::of(variables, canonical)
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
    place(path).map_err(|path| {
        let message = format!("the start directory has no path in a policy: {}", path.display());
        Failure::new(Code::PolicyIoFailed, message).into()
    })
}

fn utf8(path: PathBuf) -> Result<String, PathBuf> {
    path.into_os_string().into_string().map_err(PathBuf::from)
}

/// A path of the system as policies have it.
#[cfg(not(windows))]
fn place(path: PathBuf) -> Result<String, PathBuf> {
    utf8(path)
}

/// A path of the system as policies have it.
#[cfg(windows)]
fn place(path: PathBuf) -> Result<String, PathBuf> {
    path.to_str().and_then(crate::lower::appcontainer::path::internal).ok_or(path)
}

/// A path of a policy as the system has it.
#[cfg(not(windows))]
fn native(path: &str) -> PathBuf {
    path.into()
}

/// A path of a policy as the system has it.
#[cfg(windows)]
fn native(path: &str) -> PathBuf {
    crate::lower::appcontainer::path::shown(path).unwrap_or_else(|| path.to_owned()).into()
}

/// What decides how a policy is read beside its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// The home directory; an empty or relative `HOME` is no place to anchor a path.
    pub home: Option<String>,
    /// Where programs are looked for.
    pub path: OsString,
}

impl Environment {
    /// That of this process.
    pub fn own() -> Environment {
        Environment::with(|name| env::var_os(name))
    }

    /// That of a list of variables, `NAME=value`. The first of a name counts, as in getenv(3).
    pub fn of(variables: &[OsString]) -> Environment {
        Environment::with(|name| {
            variables.iter().find_map(|variable| {
                let value = variable.to_str()?.strip_prefix(name)?.strip_prefix('=')?;
                Some(value.into())
            })
        })
    }

    fn with(get: impl Fn(&str) -> Option<OsString>) -> Environment {
        let home = get(HOME).and_then(|home| place(home.into()).ok());
        Environment {
            home: home.filter(|home| home.starts_with('/')),
            path: get("PATH").unwrap_or_else(|| tool::DEFAULT_PATH.into()),
        }
    }
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
    resolved_from(args, load(args)?, tool, view)
}

/// The same of policies that were loaded already.
///
/// # Errors
///
/// As [`resolved`].
pub fn resolved_from(
    args: &PolicyArgs,
    sources: Vec<Source>,
    tool: Option<&OsStr>,
    view: &dyn FsView,
) -> Result<ResolvedPolicy, Error> {
    let cwd = start_directory(args)?;
    let environment = Environment::own();
    let place = Place { cwd: &cwd, home: environment.home.as_deref(), view };
    let documents = sources.into_iter().map(|source| {
        parse(&source).map_err(|error| match args.policy_format {
            Some(_) => error,
            None => with_hint(
                &source,
                error,
                "a name that does not end in .yaml or .yml is read as JSON: rename it, or give \
                    --policy-format yaml",
            ),
        })
    });
    let documents = documents.collect::<Result<Vec<_>, _>>()?;
    let base = policy::resolve(&policy::merge(documents), &place)?;
    match tool {
        Some(program) => tightened(base, program, &environment, view),
        None => Ok(base),
    }
}

#[cfg(not(windows))]
fn parse(source: &Source) -> Result<policy::Document, PolicyError> {
    policy::parse(&source.name, &source.bytes, source.format)
}

#[cfg(windows)]
fn parse(source: &Source) -> Result<policy::Document, PolicyError> {
    let mut document = policy::parse(&source.name, &source.bytes, source.format)?;
    crate::lower::appcontainer::path::rewrite(&mut document)?;
    Ok(document)
}

/// A resolved policy, tightened by the one that is attached to `program`.
///
/// # Errors
///
/// [`Error::Launch`] where the program is not found; `POLICY_IO_FAILED` and [`Error::Policy`] for its
/// policy.
pub fn tightened(
    base: ResolvedPolicy,
    program: &OsStr,
    environment: &Environment,
    view: &dyn FsView,
) -> Result<ResolvedPolicy, Error> {
    let Some(source) = tool::policy(program, &environment.path, &native(&base.cwd))? else {
        return Ok(base);
    };
    let cwd = base.cwd.clone();
    let place = Place { cwd: &cwd, home: environment.home.as_deref(), view };
    let document =
        parse(&source).map_err(|error| with_hint(&source, error, "an attached policy is JSON"))?;
    let own = policy::resolve_executable(&policy::merge(vec![document]), &place, &base)?;
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
