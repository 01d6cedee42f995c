//! Where the policy of a container comes from, and who is believed.
//!
//! The caller's options and the host's file are the operator's. A document is not: engines copy annotations of
//! images and of pods into it, so that anybody may have written one. It is believed as the policy is that is
//! attached to a program's file: it may tighten what the operator says, and ask for nothing more.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use oci_spec::runtime::Spec;
use rustix::fs::{FileType, Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::runtime::Runtime;
use super::{Context, Error, Result};
use crate::cli::args::PolicyArgs;
use crate::cli::{Error as CliError, Source, format_of, load, with_hint};
use crate::policy::{self, Document, Limits, Network, Place, ResolvedPolicy};

/// The annotation with a policy: a path of the host, the name of a shipped one, or JSON.
pub const POLICY: &str = "dev.landstrip.policy";
/// The policy of all containers on this host.
const OF_THE_HOST: &str = "/etc/landstrip/policy.json";

/// The documents that make a container's policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sources {
    /// The operator's, in order.
    operator: Vec<Kept>,
    /// The one that the document asks for.
    asked: Option<Kept>,
}

/// A document as it was read.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Kept {
    name: String,
    yaml: bool,
    text: String,
}

impl Sources {
    /// The policies that the caller, the host and the document ask for; none where nobody asks for any.
    ///
    /// # Errors
    ///
    /// A policy that cannot be read, or is none.
    pub fn gather(runtime: &Runtime<'_>, spec: &Spec) -> Result<Option<Sources>> {
        let mut operator = read(&runtime.policies)?;
        if let Some(path) = of_the_host(runtime.rootless)
            && is_there(&path, runtime.rootless)
        {
            operator.extend(read(&[path.into_os_string()])?);
        }
        let asked = match spec.annotations().as_ref().and_then(|all| all.get(POLICY)) {
            Some(text) if text.trim_start().starts_with('{') => Some(Kept {
                name: format!("annotations.{POLICY}"),
                yaml: false,
                text: text.clone(),
            }),
            Some(name) if name.starts_with('@') => {
                let found =
                    read(&[OsString::from(name)]).context(format!("annotations.{POLICY}"))?;
                found.into_iter().next()
            }
            Some(path) if path.starts_with('/') => {
                Some(named(path).context(format!("annotations.{POLICY}: {path}"))?)
            }
            Some(other) => {
                let what = "is no absolute path, no @NAME and no JSON object";
                return Err(Error::new(format!("annotations.{POLICY}: {other:?} {what}")));
            }
            None => None,
        };
        if operator.is_empty() && asked.is_none() {
            return Ok(None);
        }
        let sources = Sources { operator, asked };
        sources.parsed()?;
        Ok(Some(sources))
    }

    /// The ceilings of all of them: of two, the lower.
    ///
    /// # Errors
    ///
    /// As [`Sources::gather`].
    pub fn limits(&self) -> Result<Limits> {
        let (base, own) = self.parsed()?;
        let mut limits = base.limits;
        limits.tighten(own.unwrap_or_default().limits);
        Ok(limits)
    }

    /// Whether all Unix sockets are opened, those of datagrams among them.
    ///
    /// # Errors
    ///
    /// As [`Sources::gather`].
    pub fn opens_all_unix_sockets(&self) -> Result<bool> {
        let (base, own) = self.parsed()?;
        let said = |policy: &policy::Policy| {
            policy.network.allow_all_unix_sockets.as_ref().map(|all| all.value)
        };
        Ok(said(&base) == Some(true) && own.as_ref().and_then(said) != Some(false))
    }

    /// The section about the network but for its paths, where the operator has a policy: what nobody but a document
    /// asks for opens nothing of the host's.
    ///
    /// # Errors
    ///
    /// Where the document asks for more than the operator gives.
    pub fn network(&self) -> Result<Option<Network>> {
        if self.operator.is_empty() {
            return Ok(None);
        }
        let (base, own) = self.parsed()?;
        let alone = |policy: &policy::Policy| ResolvedPolicy {
            network: Network::of(&policy.network),
            ..ResolvedPolicy::default()
        };
        let tightened = match own {
            Some(own) => policy::tighten(alone(&base), alone(&own)),
            None => Ok(alone(&base)),
        };
        tightened.map(|policy| Some(policy.network)).map_err(|error| in_words(error.into()))
    }

    /// The policy, with paths as they are found in `place`.
    ///
    /// # Errors
    ///
    /// A path that cannot be resolved; where the document asks for more than the operator gives.
    pub fn resolve(&self, place: &Place<'_>) -> Result<ResolvedPolicy> {
        let (base, own) = self.parsed()?;
        let resolve = || {
            let base = policy::resolve(&base, place)?;
            match own {
                Some(own) => {
                    let own = policy::resolve_executable(&own, place, &base)?;
                    policy::tighten(base, own)
                }
                None => Ok(base),
            }
        };
        resolve().map_err(|error| in_words(error.into()))
    }

    /// The policy to start from, and the one that may tighten it.
    fn parsed(&self) -> Result<(policy::Policy, Option<policy::Policy>)> {
        let parse = |kept: &Kept| kept.parse().map_err(|error| in_words(error.into()));
        let operator = self.operator.iter().map(parse).collect::<Result<Vec<_>>>()?;
        let asked = self.asked.as_ref().map(parse).transpose()?;
        let asked = asked.map(|document| policy::merge(vec![document]));
        // Where the operator says nothing, a container has no policy: whatever one says is tighter.
        match asked {
            Some(asked) if operator.is_empty() => Ok((asked, None)),
            asked => Ok((policy::merge(operator), asked)),
        }
    }
}

impl Kept {
    fn parse(&self) -> std::result::Result<Document, policy::PolicyError> {
        let format = if self.yaml { policy::Format::Yaml } else { policy::Format::Json };
        policy::parse(&self.name, self.text.as_bytes(), format).map_err(|error| {
            let (name, bytes) = (self.name.clone(), self.text.clone().into_bytes());
            let why = "a name that does not end in .yaml or .yml is read as JSON";
            with_hint(&Source { name, bytes, format }, error, why)
        })
    }
}

/// The policy file of this host's, or user's, containers.
fn of_the_host(rootless: bool) -> Option<PathBuf> {
    if !rootless {
        return Some(OF_THE_HOST.into());
    }
    let config = variable("XDG_CONFIG_HOME").or_else(|| Some(variable("HOME")?.join(".config")))?;
    Some(config.join("landstrip/policy.json"))
}

/// A variable that names a directory.
pub fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Whether there is a file, or something that keeps us from knowing, which is said when it is read. In a directory
/// that is closed to a user without root, nobody but others has put one.
fn is_there(path: &Path, rootless: bool) -> bool {
    use std::io::ErrorKind::{NotFound, PermissionDenied};
    match path.symlink_metadata().map_err(|error| error.kind()) {
        Err(NotFound) => false,
        Err(PermissionDenied) => !rootless,
        _ => true,
    }
}

/// Reads policies of the operator.
fn read(names: &[OsString]) -> Result<Vec<Kept>> {
    let args = PolicyArgs { policies: names.to_vec(), ..PolicyArgs::default() };
    let keep = |source: Source| {
        let Source { name, bytes, format } = source;
        let text = String::from_utf8(bytes).context(format!("policy {name}"))?;
        Ok(Kept { name, yaml: format == policy::Format::Yaml, text })
    };
    load(&args).map_err(in_words)?.into_iter().map(keep).collect()
}

/// Reads the file of the host that a document names. It may be one that whoever wrote the document could not read,
/// and errors come back to them: nothing that is in it is quoted.
fn named(path: &str) -> Result<Kept> {
    // To open a device, or a FIFO, does something already.
    let found = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| Error::new(errno.to_string()))?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&found).context("fstat")?.st_mode);
    if kind != FileType::RegularFile {
        return Err(Error::new("is no regular file"));
    }
    let file = File::open(format!("/proc/self/fd/{}", found.as_raw_fd())).context("open")?;
    let mut bytes = Vec::new();
    // One byte more than may be: then it is too large.
    file.take(policy::node::MAX_BYTES as u64 + 1).read_to_end(&mut bytes).context("read")?;
    let none = |line: Option<u32>| {
        let line = line.map(|line| format!("line {line}: ")).unwrap_or_default();
        let how = format!("`landstrip policy validate -p {path}` says why");
        Error::new(format!("{line}is no policy; {how}"))
    };
    let text = String::from_utf8(bytes).map_err(|_| none(None))?;
    let yaml = format_of(Path::new(path)) == policy::Format::Yaml;
    let kept = Kept { name: path.to_owned(), yaml, text };
    kept.parse().map_err(|error| none(error.line))?;
    Ok(kept)
}

/// The error in the words that engines look for.
pub fn in_words(error: CliError) -> Error {
    match error {
        CliError::Usage(message) => Error::new(format!("policy: {message}")),
        CliError::Launch { program, message, .. } => {
            Error::new(format!("exec: {program:?}: {message}"))
        }
        CliError::Policy(failure) | CliError::Failure(failure) => {
            let mut text = "policy: ".to_owned();
            for part in [failure.file, failure.line.map(|line| format!("line {line}")), failure.key]
            {
                text.extend(part.map(|part| format!("{part}: ")));
            }
            Error::new(text + &failure.message)
        }
    }
}
