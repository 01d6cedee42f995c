//! OCI bundles: directories with a config.json.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use serde_json::Value;

use super::HostFiles;
use super::error::{Error, Failure};
use crate::lower::container::ROOTFS;
use crate::lower::{Identity, Refusal, Run, spec};
use crate::trap::Code;

/// The name of the document in a bundle, config.md.
const CONFIG: &str = "config.json";

/// Reads the bundle in `dir` for a launch by `identity`.
///
/// # Errors
///
/// `POLICY_IO_FAILED` where the document cannot be read, `POLICY_PARSE_FAILED` where it is not JSON of
/// the right shape or says what is not done here.
pub fn read(dir: &Path, identity: &Identity) -> Result<Run, Error> {
    let path = dir.join(CONFIG);
    let name = path.to_string_lossy().into_owned();
    let bytes = bytes(&path).map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::NotFound => {
                format!("; `spec --bundle {} -- PROGRAM` makes one", dir.display())
            }
            _ => String::new(),
        };
        Failure::new(Code::PolicyIoFailed, format!("{error}{hint}")).in_file(name.clone())
    })?;
    spec::read(&bytes, identity, &HostFiles)
        .map_err(|refusal| refused(refusal).in_file(name).into())
}

/// Reads to the end, or to one byte past what is allowed: a file may grow, or have no end.
fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(spec::MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > spec::MAX_BYTES {
        let message = format!("larger than {} MiB", spec::MAX_BYTES >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

/// The failure of a document that is refused.
pub fn refused(refusal: Refusal) -> Failure {
    let Refusal { key, line, message } = refusal;
    Failure { key, line, ..Failure::new(Code::PolicyParseFailed, message) }
}

/// Writes `document` into `dir`, which is made where it does not exist. It holds the environment, so that only its owner may read it.
///
/// # Errors
///
/// A usage error where there is a document already, or it cannot be written.
pub fn write(dir: &Path, document: &Value) -> Result<(), Error> {
    let path = dir.join(CONFIG);
    let failed = |error: io::Error| in_the_way(&path, &error);
    let mut text = serde_json::to_vec_pretty(document)
        .map_err(|error| Failure::new(Code::InternalError, error.to_string()))?;
    text.push(b'\n');
    match std::fs::create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let mut file = private().open(&path).map_err(failed)?;
    file.write_all(&text).map_err(|error| {
        // Half a document would keep the next try from writing a whole one.
        let _it_stays = std::fs::remove_file(&path);
        failed(error)
    })
}

/// Makes the root directory of the bundle in `dir`, with the links that it holds.
///
/// # Errors
///
/// A usage error where something is in the way.
pub fn make_root(dir: &Path, links: &[(String, String)]) -> Result<(), Error> {
    let root = dir.join(ROOTFS);
    let made = std::fs::create_dir(&root).and_then(|()| {
        links
            .iter()
            .try_for_each(|(name, target)| std::os::unix::fs::symlink(target, root.join(name)))
    });
    made.map_err(|error| {
        // Nothing of it is left, so that the next try writes a whole one.
        let _it_stays = std::fs::remove_file(dir.join(CONFIG));
        in_the_way(&root, &error)
    })
}

/// The usage error of a bundle that cannot be written, at `path`.
fn in_the_way(path: &Path, error: &io::Error) -> Error {
    let what = match error.kind() {
        io::ErrorKind::AlreadyExists => {
            "exists already: remove it, or name another directory".to_owned()
        }
        _ => error.to_string(),
    };
    Error::Usage(format!("--bundle: {}: {what}", path.display()))
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}
