//! Reads the policies that the command line names.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::args::{PolicyArgs, PolicyFormat};
use super::error::{Error, Failure};
use crate::policy::{self, Format, PolicyError, shipped};
use crate::trap::Code;

/// The most bytes that one policy may have.
pub const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// A policy as read, to be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its name in messages: the path as typed, `<stdin>`, or `@name`.
    pub name: String,
    /// Its text.
    pub bytes: Vec<u8>,
    /// Its format.
    pub format: Format,
}

/// Reads every policy named in `args`, in order.
///
/// # Errors
///
/// A usage error when standard input is named twice or without a format, or when no policy ships
/// under a name; `POLICY_IO_FAILED` when a file cannot be read or is larger than [`MAX_BYTES`].
pub fn load(args: &PolicyArgs) -> Result<Vec<Source>, Error> {
    // Everything wrong with the line itself comes first: nothing is read before that is known.
    if args.policies.iter().filter(|name| *name == "-").count() > 1 {
        return Err(Error::Usage("`-p -` can be given once: standard input ends".into()));
    }
    if args.policies.iter().any(|name| name == "-") && args.policy_format.is_none() {
        let message = "`-p -` needs `--policy-format json` or `--policy-format yaml`";
        return Err(Error::Usage(message.into()));
    }
    let names = args.policies.iter().map(|name| name.to_string_lossy());
    for name in names.filter(|name| name.starts_with('@')) {
        if shipped::find(&name).is_none() {
            let hint = match shipped::nearest(&name) {
                Some(near) => format!("did you mean {near}? There"),
                None => "there".to_owned(),
            };
            let all: Vec<_> = shipped::ALL.iter().map(|shipped| shipped.name).collect();
            return Err(Error::Usage(format!(
                "no policy `{name}` ships with this program; {hint} are {}; a file of that \
                    name is ./{name}",
                all.join(", ")
            )));
        }
    }
    args.policies.iter().map(|name| source(name, args.policy_format)).collect()
}

fn source(path: &OsStr, format: Option<PolicyFormat>) -> Result<Source, Error> {
    let name = path.to_string_lossy().into_owned();
    if let Some(shipped) = shipped::find(&name) {
        let bytes = shipped.text.as_bytes().to_vec();
        return Ok(Source { name, bytes, format: Format::Json });
    }
    let (name, bytes) = match path == "-" {
        true => ("<stdin>".to_owned(), read(io::stdin().lock())),
        false => (name, File::open(path).and_then(read)),
    };
    let format = match format {
        Some(PolicyFormat::Json) => Format::Json,
        Some(PolicyFormat::Yaml) => Format::Yaml,
        None => format_of(Path::new(path)),
    };
    match bytes {
        Ok(bytes) => Ok(Source { name, bytes, format }),
        Err(error) => {
            let mut message = error.to_string();
            if error.kind() == io::ErrorKind::NotFound
                && let Some(shipped) = shipped::nearest(&name)
            {
                message.push_str(&format!("; did you mean {shipped}, which ships with landstrip?"));
            }
            Err(Failure::new(Code::PolicyIoFailed, message).in_file(name).into())
        }
    }
}

/// Whether a policy that was refused as JSON is probably YAML.
fn looks_like_yaml(source: &Source, error: &PolicyError) -> bool {
    let object = source.bytes.trim_ascii_start().starts_with(b"{");
    // Whatever it says, it is in order as YAML.
    source.format == Format::Json
        && !object
        && error.key.is_none()
        && !matches!(
            policy::parse(&source.name, &source.bytes, Format::Yaml),
            Err(PolicyError { key: None, .. })
        )
}

/// The error of a policy that is read as JSON for the reason `why`, which is said where it is probably YAML.
pub fn with_hint(source: &Source, error: PolicyError, why: &str) -> PolicyError {
    if !looks_like_yaml(source, &error) {
        return error;
    }
    PolicyError { message: format!("{}; {why}", error.message), ..error }
}

/// The format that a file's name promises.
pub fn format_of(path: &Path) -> Format {
    match path.extension().and_then(OsStr::to_str) {
        Some("yaml" | "yml") => Format::Yaml,
        _ => Format::Json,
    }
}

/// Reads to the end, or to one byte past what is allowed: a file may grow, or have no end.
fn read(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        let message = format!("larger than {} MiB", MAX_BYTES / 1024 / 1024);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(policies: &[&str], policy_format: Option<PolicyFormat>) -> PolicyArgs {
        let policies = policies.iter().map(Into::into).collect();
        PolicyArgs { policies, policy_format, cwd: None }
    }

    #[test]
    fn formats_follow_the_name_unless_given() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        for (name, given, expected) in [
            ("a.json", None, Format::Json),
            ("a", None, Format::Json),
            ("a.yaml", None, Format::Yaml),
            ("a.yml", None, Format::Yaml),
            ("a.yml", Some(PolicyFormat::Json), Format::Json),
            ("a.json", Some(PolicyFormat::Yaml), Format::Yaml),
        ] {
            std::fs::write(path(name), "x").unwrap();
            let sources = load(&args(&[&path(name)], given)).unwrap();
            let source = Source { name: path(name), bytes: b"x".to_vec(), format: expected };
            assert_eq!(sources, [source]);
        }
    }

    #[test]
    fn shipped_policies_are_json_whatever_is_said() {
        let sources = load(&args(&["@workspace"], Some(PolicyFormat::Yaml))).unwrap();
        assert_eq!((sources[0].name.as_str(), sources[0].format), ("@workspace", Format::Json));
    }

    #[test]
    fn a_wrong_line_is_found_before_anything_is_read() {
        for (policies, format) in [
            (&["/nonexistent", "@nothing"][..], None),
            (&["/nonexistent", "-"], None),
            (&["-", "/nonexistent", "-"], Some(PolicyFormat::Json)),
        ] {
            let result = load(&args(policies, format));
            assert!(matches!(result, Err(Error::Usage(_))), "{policies:?} {result:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for name in ["/nonexistent/policy.json", "/"] {
            let error = load(&args(&[name], None)).unwrap_err();
            let Error::Failure(failure) = error else { panic!("{error:?}") };
            assert_eq!((failure.code, failure.file.as_deref()), (Code::PolicyIoFailed, Some(name)));
        }
    }

    #[test]
    fn the_size_limit_holds_for_a_file_without_end() {
        assert_eq!(read(&vec![b' '; 4 * 1024 * 1024][..]).unwrap().len(), 4 * 1024 * 1024);
        let error = read(io::repeat(b' ')).unwrap_err();
        assert_eq!(error.to_string(), "larger than 4 MiB");
    }
}
