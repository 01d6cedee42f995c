//! Readiness of a container's program, sd_notify(3), for a caller that waits for it, as systemd does for what it
//! starts.
//!
//! Where `NOTIFY_SOCKET` is set for the runtime, the container has a directory at that path, as with crun, and in
//! it the socket that the program is told. `READY=1` is passed on, and nothing else of what the program sends.

use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use oci_spec::runtime::{Mount, Spec};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, recv,
    sendto, socket_with,
};

use super::channel::socket_at;
use super::{Context, Error, Result};

const VARIABLE: &str = "NOTIFY_SOCKET";
/// The directory beside the state, and the socket in it.
const NAME: &str = "notify";
/// Where the directory is in the container, if the caller's socket has no path.
const USUAL: &str = "/run/notify";

/// The socket that the program sends to.
pub struct Notify {
    socket: OwnedFd,
    /// Where the caller waits.
    caller: SocketAddrUnix,
}

/// Where the caller waits, if it does.
fn caller() -> Option<Vec<u8>> {
    std::env::var_os(VARIABLE).map(OsStringExt::into_vec).filter(|name| name.len() > 1)
}

/// Adds the directory below `state` to the document of a container, and the variable, where a caller waits.
/// Returns whether one does.
pub fn weave(spec: &mut Spec, state: &Path) -> bool {
    let Some(name) = caller() else { return false };
    let name = Path::new(std::ffi::OsStr::from_bytes(&name));
    let place = if name.is_absolute() { name } else { Path::new(USUAL) };
    let mut mount = Mount::default();
    mount.set_destination(place.to_owned());
    mount.set_source(Some(state.join(NAME)));
    mount.set_typ(Some("bind".to_owned()));
    mount.set_options(Some(["bind", "nosuid", "nodev", "noexec"].map(str::to_owned).to_vec()));
    let mut mounts = spec.mounts().clone().unwrap_or_default();
    mounts.push(mount);
    spec.set_mounts(Some(mounts));
    if let Some(process) = spec.process_mut() {
        let mut env = process.env().clone().unwrap_or_default();
        env.retain(|entry| entry.split('=').next() != Some(VARIABLE));
        env.push(format!("{VARIABLE}={}", place.join(NAME).display()));
        process.set_env(Some(env));
    }
    true
}

/// Makes the directory below `state`.
///
/// # Errors
///
/// As mkdir(2).
pub fn make(state: &Path) -> Result<()> {
    let dir = state.join(NAME);
    DirBuilder::new().mode(0o755).create(&dir).context(dir.display())
}

impl Notify {
    /// Makes the socket of the container with this state, where a caller waits, and did when it was created.
    ///
    /// # Errors
    ///
    /// As bind(2).
    pub fn listen(state: &Path) -> Result<Option<Notify>> {
        let dir = state.join(NAME);
        let Some(name) = caller().filter(|_| dir.is_dir()) else { return Ok(None) };
        let caller = match name.strip_prefix(b"@") {
            Some(name) => SocketAddrUnix::new_abstract_name(name),
            None => SocketAddrUnix::new(PathBuf::from(std::ffi::OsString::from_vec(name))),
        };
        let caller = caller.context(VARIABLE)?;
        let (socket, address, _dir) = socket_at(&dir, NAME, SocketType::DGRAM)?;
        let path = dir.join(NAME);
        bind(&socket, &address).context(path.display())?;
        // Whoever the program runs as.
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777))
            .context(path.display())?;
        Ok(Some(Notify { socket, caller }))
    }

    /// Waits until the program is ready, and says so, or until the init process has ended.
    ///
    /// # Errors
    ///
    /// As poll(2); where the caller does not take it.
    pub fn wait(&self, init: &OwnedFd) -> Result<()> {
        loop {
            let mut fds =
                [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(init, PollFlags::IN)];
            match poll(&mut fds, None) {
                Err(Errno::INTR) => continue,
                result => result.context("poll")?,
            };
            let ended = !fds[1].revents().is_empty();
            let mut text = [0; 4096];
            match recv(&self.socket, &mut text, RecvFlags::DONTWAIT) {
                Ok((length, _)) if is_ready(&text[..length]) => return self.pass_on(),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if ended => return Ok(()),
                Err(Errno::AGAIN) => {}
                Err(errno) => return Err(errno).context(VARIABLE),
            }
        }
    }

    fn pass_on(&self) -> Result<()> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).context("socket")?;
        sendto(&socket, b"READY=1", SendFlags::NOSIGNAL, &self.caller)
            .map(|_| ())
            .map_err(|errno| Error::new(format!("{VARIABLE}: {errno}")))
    }
}

fn is_ready(text: &[u8]) -> bool {
    text.split(|byte| *byte == b'\n').any(|line| line == b"READY=1")
}
