//! A program's file, and the policy that is attached to it.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::error::{Error, Failure};
use super::load::Source;
#[cfg(any(target_os = "linux", target_os = "macos"))]
use crate::policy::ATTRIBUTE;
use crate::policy::Origin;
use crate::trap::Code;

/// Permission denied: EACCES on Linux and macOS, ERROR_ACCESS_DENIED on Windows.
const EACCES: i32 = if cfg!(windows) { 5 } else { 13 };

/// What execvp(3) falls back to where `PATH` is not set.
pub const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Where execvp(3) would find `program` along `paths` when started in `cwd`.
///
/// # Errors
///
/// `NotFound` where there is no such file; `PermissionDenied` where there is one that may not be
/// executed.
pub fn find(program: &OsStr, paths: &OsStr, cwd: &Path) -> io::Result<PathBuf> {
    let program = &*with_extension(program);
    if names_a_path(program) {
        let path = cwd.join(program);
        fs::metadata(&path)?;
        return if is_program(&path) { Ok(path) } else { Err(denied()) };
    }
    let mut result = Err(io::Error::new(io::ErrorKind::NotFound, "not found in PATH"));
    if program.is_empty() {
        return result;
    }
    for dir in env::split_paths(paths) {
        let path = cwd.join(dir).join(program);
        if is_program(&path) {
            return Ok(path);
        }
        // As a shell has it: a directory that may not be searched holds nothing that was found.
        if path.exists() {
            result = Err(denied());
        }
    }
    result
}

/// Whether the program is not looked for in `PATH`.
fn names_a_path(program: &OsStr) -> bool {
    let separates = |byte: &u8| *byte == b'/' || (cfg!(windows) && matches!(byte, b'\\' | b':'));
    program.as_encoded_bytes().iter().any(separates)
}

#[cfg(not(windows))]
fn with_extension(program: &OsStr) -> std::borrow::Cow<'_, OsStr> {
    program.into()
}

/// A program without an extension is an `.exe`, as CreateProcess has it.
#[cfg(windows)]
fn with_extension(program: &OsStr) -> std::borrow::Cow<'_, OsStr> {
    match Path::new(program).extension() {
        None if !program.is_empty() => {
            let mut name = program.to_owned();
            name.push(".exe");
            name.into()
        }
        _ => program.into(),
    }
}

/// What keeps a path that exists from being run as a program.
fn obstacle(path: &Path) -> Option<&'static str> {
    let metadata = fs::metadata(path).ok()?;
    if metadata.is_dir() {
        Some("is a directory")
    } else if !metadata.is_file() {
        Some("is no regular file")
    } else if !may_execute(path) {
        Some("is not executable (`chmod +x` makes it so)")
    } else {
        None
    }
}

/// The message of `error`, which [`find`] gave, and what a person would look for next.
fn explain(error: &io::Error, program: &OsStr, paths: &OsStr, cwd: &Path) -> String {
    let bare = !program.is_empty() && !names_a_path(program);
    let here = cwd.join(program);
    match error.kind() {
        io::ErrorKind::NotFound if bare => {
            let name = program.display();
            match obstacle(&here) {
                Some(what) => format!("{error}; ./{name} {what}"),
                None if is_program(&here) => format!("{error}; did you mean ./{name}?"),
                None => error.to_string(),
            }
        }
        io::ErrorKind::PermissionDenied if bare => {
            let found = env::split_paths(paths).map(|dir| cwd.join(dir).join(program));
            let why = found.filter_map(|path| Some((obstacle(&path)?, path))).next();
            why.map_or(error.to_string(), |(what, path)| {
                format!("{error}: {} {what}", path.display())
            })
        }
        io::ErrorKind::PermissionDenied => {
            obstacle(&here).map_or(error.to_string(), |what| format!("{error}: it {what}"))
        }
        _ => error.to_string(),
    }
}

/// Why the kernel does not run a file that [`find`] found, execve(2).
#[must_use]
pub fn refused_by_kernel(error: &io::Error) -> String {
    const ENOEXEC: i32 = 8;
    match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::NotFound, _) => {
            format!("{error}: the interpreter that the file names does not exist")
        }
        (_, Some(ENOEXEC)) => {
            format!(
                "{error}: it is no program for this machine, and no script that starts with `#!`"
            )
        }
        _ => error.to_string(),
    }
}

/// With the system's number, the message reads as the system's own.
fn denied() -> io::Error {
    io::Error::from_raw_os_error(EACCES)
}

fn is_program(path: &Path) -> bool {
    path.is_file() && may_execute(path)
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
fn may_execute(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn may_execute(_: &Path) -> bool {
    true
}

/// The policy attached to the file of `program`, links resolved; `None` where it has none.
///
/// # Errors
///
/// [`Error::Launch`] where the program cannot be found or executed; `POLICY_IO_FAILED` where it has
/// a policy that cannot be read.
pub fn policy(program: &OsStr, paths: &OsStr, cwd: &Path) -> Result<Option<Source>, Error> {
    let path = find(program, paths, cwd).and_then(fs::canonicalize).map_err(|error| {
        let errno = match error.kind() {
            io::ErrorKind::PermissionDenied => Some("EACCES"),
            io::ErrorKind::NotFound => Some("ENOENT"),
            _ => error.raw_os_error().and_then(crate::trap::errno::name),
        };
        let message = explain(&error, program, paths, cwd);
        Error::Launch { program: program.to_string_lossy().into_owned(), errno, message }
    })?;
    let name = Origin::attached(&path.to_string_lossy());
    match attribute(&path) {
        Ok(Some(bytes)) => Ok(Some(Source { name, bytes, format: crate::policy::Format::Json })),
        Ok(None) => Ok(None),
        Err(error) => {
            Err(Failure::new(Code::PolicyIoFailed, error.to_string()).in_file(name).into())
        }
    }
}

/// The error of getxattr(2) where there is no such attribute.
#[cfg(target_os = "linux")]
const ABSENT: rustix::io::Errno = rustix::io::Errno::NODATA;
/// The error of getxattr(2) where there is no such attribute.
#[cfg(target_os = "macos")]
const ABSENT: rustix::io::Errno = rustix::io::Errno::NOATTR;

#[cfg(any(target_os = "linux", target_os = "macos"))]
fn attribute(path: &Path) -> io::Result<Option<Vec<u8>>> {
    use rustix::io::Errno;
    // The most that the kernel stores, limits.h XATTR_SIZE_MAX.
    let mut value = vec![0; 65_536];
    match rustix::fs::getxattr(path, ATTRIBUTE, value.as_mut_slice()) {
        Ok(length) => {
            value.truncate(length);
            Ok(Some(value))
        }
        Err(ABSENT | Errno::OPNOTSUPP) => Ok(None),
        // Reading an attribute takes read permission on the file, listing the names takes none: a
        // program that is executable only is refused just where it does have a policy.
        Err(Errno::ACCESS) => {
            let length = rustix::fs::listxattr(path, value.as_mut_slice())?;
            let mut names = value[..length].split(|byte| *byte == 0);
            match names.any(|name| name == ATTRIBUTE.as_bytes()) {
                true => Err(Errno::ACCESS.into()),
                false => Ok(None),
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// The stream of the file that holds its policy.
#[cfg(windows)]
fn attribute(path: &Path) -> io::Result<Option<Vec<u8>>> {
    use std::io::Read;
    // As on other systems; more is malformed.
    const MOST: u64 = 65_536;
    /// `ERROR_INVALID_NAME`: the file system has no streams.
    const NO_STREAMS: i32 = 123;
    let mut name = path.as_os_str().to_owned();
    name.push(":landstrip.policy");
    let mut bytes = Vec::new();
    match fs::File::open(name) {
        Ok(stream) => {
            stream.take(MOST + 1).read_to_end(&mut bytes)?;
            match bytes.len() as u64 {
                0..=MOST => Ok(Some(bytes)),
                _ => Err(io::Error::other("the attached policy is too large")),
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(NO_STREAMS) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn program(dir: &Path, name: &str, mode: u32) -> PathBuf {
        let path = dir.join(name);
        fs::write(&path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn programs_are_found_as_execvp_finds_them() {
        let dir = tempfile::tempdir().unwrap();
        program(dir.path(), "yes", 0o755);
        program(dir.path(), "no", 0o644);
        let paths = env::var_os("PATH").unwrap_or(DEFAULT_PATH.into());
        let find =
            |name: &str| find(OsStr::new(name), &paths, dir.path()).map_err(|error| error.kind());
        assert_eq!(find("./yes"), Ok(dir.path().join("./yes")));
        assert_eq!(find("./no"), Err(io::ErrorKind::PermissionDenied));
        assert_eq!(find("./."), Err(io::ErrorKind::PermissionDenied));
        assert_eq!(find("./none"), Err(io::ErrorKind::NotFound));
        assert_eq!(find("yes-is-not-in-path"), Err(io::ErrorKind::NotFound));
        assert_eq!(find(""), Err(io::ErrorKind::NotFound));
        assert!(find("sh").unwrap().ends_with("sh"));
    }

    #[test]
    fn what_path_names_first_and_may_be_executed_is_found() {
        let dir = tempfile::tempdir().unwrap();
        for sub in ["a", "b", "closed"] {
            fs::create_dir(dir.path().join(sub)).unwrap();
        }
        program(dir.path(), "a/x", 0o644);
        program(dir.path(), "b/x", 0o755);
        program(dir.path(), "closed/y", 0o644);
        let closed = dir.path().join("closed");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        let find = |paths: &str, name: &str| {
            let found = find(OsStr::new(name), OsStr::new(paths), dir.path());
            found.map_err(|error| error.kind())
        };
        assert_eq!(find("a:b", "x"), Ok(dir.path().join("b/x")));
        assert_eq!(find("none:a", "x"), Err(io::ErrorKind::PermissionDenied));
        assert_eq!(find("b", "y"), Err(io::ErrorKind::NotFound));
        // Root looks into a closed directory, and others do not.
        let root = rustix::process::geteuid().is_root();
        let expected = if root { io::ErrorKind::PermissionDenied } else { io::ErrorKind::NotFound };
        assert_eq!(find("closed", "y"), Err(expected));
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    }

    #[test]
    fn the_policy_is_that_of_the_file_behind_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let file = program(dir.path(), "tool", 0o755);
        symlink("tool", dir.path().join("link")).unwrap();
        let policy = || policy(OsStr::new("./link"), OsStr::new(""), dir.path());
        assert_eq!(policy(), Ok(None));
        let flags = rustix::fs::XattrFlags::empty();
        if rustix::fs::setxattr(&file, ATTRIBUTE, b"{}", flags) == Err(rustix::io::Errno::OPNOTSUPP)
        {
            eprintln!("skipped: {} takes no extended attributes", dir.path().display());
            return;
        }
        let source = policy().unwrap().unwrap();
        assert_eq!(source.bytes, b"{}");
        assert!(source.name.ends_with("/tool (user.landstrip.policy)"), "{}", source.name);
    }
}
