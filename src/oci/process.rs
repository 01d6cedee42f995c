//! The program of a container: what it is before execve(2), from the document to system calls.
//!
//! [`Program::prepare`] decides everything in the runtime, so that what is wrong is found before there is a
//! process. Then three things are done, in this order: what the runtime does to the process with its own
//! rights ([`Program::apply_outside`]), what the process does while it waits for `start`
//! ([`Program::settle`]), and what it does last ([`Program::execute`]).

use std::collections::HashMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use oci_spec::runtime::{Capabilities, Linux, Process};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{Gid, Pid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::landlock::{self, Landlock};
use super::schedule::Outside;
use super::seccomp::{self, Abi, Filter};
use super::sys::process::{self, Strings};
use super::{Context, Error, Result, label, schedule};
use crate::linux::launch;

/// Where programs are looked for when the environment does not say.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The annotation by which podman asks for the caller's groups to be kept, crun(1).
const KEEP_GROUPS: &str = "run.oci.keep_original_groups";
/// The most bytes of the container's `/etc/passwd` that are looked at.
const PASSWD: u64 = 1 << 20;

/// What the process becomes.
pub struct Program {
    args: Vec<CString>,
    env: Vec<String>,
    cwd: PathBuf,
    uid: Uid,
    gid: Gid,
    groups: Option<Vec<Gid>>,
    umask: Option<u32>,
    capabilities: Sets,
    no_new_privileges: bool,
    filter: Option<Filter>,
    label: Option<label::Label>,
    own: schedule::Own,
    outside: Outside,
    /// What it may do to files.
    pub landlock: Option<Landlock>,
}

/// Sets of capabilities, as bit masks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sets {
    bounding: u64,
    effective: u64,
    permitted: u64,
    inheritable: u64,
    ambient: u64,
}

/// The program, found; what is left is to become it.
pub struct Settled {
    path: CString,
    args: Strings,
    env: Strings,
    /// The Landlock ruleset of the document.
    ruleset: Option<OwnedFd>,
    listening: bool,
}

impl Settled {
    /// The program's file.
    #[must_use]
    pub fn path(&self) -> &OsStr {
        OsStr::from_bytes(self.path.as_bytes())
    }

    /// Whether the document has a Landlock domain.
    #[must_use]
    pub fn has_landlock(&self) -> bool {
        self.ruleset.is_some()
    }

    /// Enters the Landlock domain of the document, if it has one.
    ///
    /// # Errors
    ///
    /// As landlock_restrict_self(2).
    pub fn enter_landlock(&self) -> Result<()> {
        self.ruleset.as_ref().map_or(Ok(()), landlock::enter)
    }
}

/// What the document says around the process.
pub struct Around<'a> {
    /// `linux`, of the container.
    pub linux: Option<&'a Linux>,
    /// The annotations, of the container.
    pub annotations: Option<&'a HashMap<String, String>>,
}

impl Program {
    /// Reads the process of a document.
    ///
    /// # Errors
    ///
    /// The key that says what cannot be had here.
    pub fn prepare(given: &Process, around: &Around<'_>) -> Result<Program> {
        super::bundle::check_process(given)?;
        let texts = |texts: &Option<Vec<String>>, key: &str| {
            let texts = texts.iter().flatten();
            texts.map(|text| CString::new(text.as_str()).context(key)).collect::<Result<Vec<_>>>()
        };
        let user = given.user();
        let keep =
            around.annotations.and_then(|all| all.get(KEEP_GROUPS)).is_some_and(|v| v == "1");
        let groups = user.additional_gids().as_deref().unwrap_or_default();
        let profile = around.linux.and_then(|linux| linux.seccomp().as_ref());
        Ok(Program {
            args: texts(given.args(), "process.args")?,
            env: given.env().clone().unwrap_or_default(),
            cwd: given.cwd().clone(),
            uid: Uid::from_raw(user.uid()),
            gid: Gid::from_raw(user.gid()),
            groups: (!keep).then(|| groups.iter().map(|gid| Gid::from_raw(*gid)).collect()),
            umask: user.umask(),
            capabilities: Sets::of(given),
            no_new_privileges: given.no_new_privileges().unwrap_or(false),
            filter: profile
                .map(|profile| seccomp::compile(profile, Abi::NATIVE))
                .transpose()
                .map_err(|error| Error::new(error.to_string()))?,
            label: label::of(given)?,
            own: schedule::Own::of(around.linux)?,
            outside: Outside::of(given)?,
            landlock: None,
        })
    }

    /// Its arguments and its environment.
    #[must_use]
    pub fn words(&self) -> (Vec<OsString>, Vec<OsString>) {
        let args = self.args.iter().map(|arg| OsStr::from_bytes(arg.as_bytes()).to_owned());
        (args.collect(), self.environment().into_iter().map(OsString::from).collect())
    }

    /// The filter of the document.
    #[must_use]
    pub fn filter(&self) -> Option<&Filter> {
        self.filter.as_ref()
    }

    /// Whether a launcher with the rights of `self` can do for `other` what that could do itself: it acts as its
    /// user, and with its capabilities.
    #[must_use]
    pub fn covers(&self, other: &Program) -> bool {
        const IDENTITY: CapabilitySet = CapabilitySet::SETUID.union(CapabilitySet::SETGID);
        let is = |program: &Program| (program.uid, program.gid, program.groups.clone());
        let kept = |program: &Program| launch::kept(program.capabilities.permitted);
        let changes = self.capabilities.permitted & IDENTITY.bits() == IDENTITY.bits();
        (changes || is(self) == is(other)) && kept(other) & !kept(self) == 0
    }

    /// Whether it may become another user.
    #[must_use]
    pub fn changes_user(&self) -> bool {
        self.capabilities.permitted & CapabilitySet::SETUID.bits() != 0
    }

    /// Whether some calls are notified, so that a listener has to be handed over.
    #[must_use]
    pub fn listens(&self) -> bool {
        self.filter.as_ref().is_some_and(|filter| !filter.notified.is_empty())
    }

    /// The user, as the container knows it.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid.as_raw()
    }

    /// The group, as the container knows it.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.gid.as_raw()
    }

    /// Adds a variable to the environment.
    pub fn set_variable(&mut self, name: &str, value: &str) {
        self.env.retain(|entry| entry.split_once('=').is_none_or(|(known, _)| known != name));
        self.env.push(format!("{name}={value}"));
    }

    /// Applies to process `pid` what needs the rights of the runtime: limits, scores, scheduling.
    ///
    /// # Errors
    ///
    /// The key that could not be applied.
    pub fn apply_outside(&self, pid: Pid) -> Result<()> {
        self.outside.apply(pid)
    }

    /// Opens what takes the label.
    ///
    /// # Errors
    ///
    /// Where the label cannot be set on this host.
    pub fn open_label(&self) -> Result<Option<OwnedFd>> {
        self.label.as_ref().map(label::Label::open).transpose()
    }

    /// Makes the directory to start in, where the image has none.
    pub fn make_cwd(&self) {
        if let Err(Errno::NOENT) = rustix::fs::stat(&self.cwd) {
            // What is wrong is said when it is entered.
            let _entered_later = std::fs::create_dir_all(&self.cwd);
        }
    }

    /// Becomes the user, in the directory, with the capabilities; and finds the program.
    ///
    /// With `announce`, the filter is installed as well: it is called with the number that the listener is
    /// going to have, just before. Without, [`Program::execute`] installs it.
    ///
    /// # Errors
    ///
    /// The step that failed; the program that cannot be found or executed.
    pub fn settle(
        &self,
        label: Option<OwnedFd>,
        preserved: &[RawFd],
        announce: Option<&dyn Fn(i32) -> Result<()>>,
    ) -> Result<Settled> {
        self.own.apply()?;
        let ruleset = self.landlock.as_ref().map(Landlock::ruleset).transpose()?.flatten();
        process::close_on_exec(3).context("close_range")?;
        for fd in preserved {
            process::keep_open(*fd).context(format!("--preserve-fds: descriptor {fd}"))?;
        }
        if let (Some(label), Some(file)) = (&self.label, label) {
            label.write(&file)?;
        }
        // Whoever may enter it first: root may be kept out of a user's directory, and the user out of root's.
        let entered = rustix::process::chdir(&self.cwd);
        let all = rustix::thread::capabilities(None).context("capget")?.permitted;
        self.drop_bounding()?;
        self.become_user()?;
        // Changing the user has emptied the effective set.
        let raised =
            CapabilitySets { effective: all, permitted: all, inheritable: CapabilitySet::empty() };
        rustix::thread::set_capabilities(None, raised).context("capset")?;
        if entered.is_err() {
            let what = || format!("process.cwd: chdir {}", self.cwd.display());
            rustix::process::chdir(&self.cwd).context(what())?;
        }
        check_inside()?;
        if let Some(mask) = self.umask {
            rustix::process::umask(Mode::from_raw_mode(mask));
        }
        let env = self.environment();
        // As the program will be: what it may execute is what its user may.
        let last = CapabilitySets {
            effective: CapabilitySet::from_bits_retain(self.capabilities.effective) & all,
            permitted: all,
            inheritable: CapabilitySet::empty(),
        };
        rustix::thread::set_capabilities(None, last).context("capset")?;
        let path = self.find(&env)?;
        let cstring = |text: String| CString::new(text).context("process.env");
        let settled = Settled {
            path,
            args: Strings::new(self.args.clone()),
            env: Strings::new(env.into_iter().map(cstring).collect::<Result<_>>()?),
            ruleset,
            listening: announce.is_some(),
        };
        if let Some(announce) = announce {
            self.confine(&settled, || announce(process::next_descriptor().context("dup")?))?;
        }
        Ok(settled)
    }

    /// The last steps. Returns only on failure.
    pub fn execute(&self, settled: &Settled) -> Error {
        if !settled.listening
            && let Err(error) = self.confine(settled, || Ok(()))
        {
            return error;
        }
        let errno = process::execute(&settled.path, &settled.args, &settled.env);
        Error::new(format!("exec {:?}: {errno}", settled.path.to_string_lossy()))
    }

    /// The last steps of a process that is under a policy already. Returns only on failure.
    pub fn execute_under_policy(&self, settled: &Settled, env: Vec<OsString>) -> Error {
        if let Some(filter) = &self.filter
            && let Err(errno) = process::install_filter(&filter.program, filter.flags)
        {
            return Error::new(format!("linux.seccomp: seccomp: {errno}"));
        }
        let env = env.into_iter().filter_map(|entry| CString::new(entry.into_encoded_bytes()).ok());
        let errno = process::execute(&settled.path, &settled.args, &Strings::new(env.collect()));
        Error::new(format!("exec {:?}: {errno}", settled.path.to_string_lossy()))
    }

    fn become_user(&self) -> Result<()> {
        if let Some(groups) = &self.groups {
            match rustix::thread::set_thread_groups(groups) {
                // Where it is denied for good, user_namespaces(7), there are only the caller's.
                Err(Errno::PERM) if groups.is_empty() => {}
                Err(errno) => return Err(errno).context("process.user.additionalGids: setgroups"),
                Ok(()) => {}
            }
        }
        let (uid, gid) = (self.uid, self.gid);
        rustix::thread::set_keep_capabilities(true).context("PR_SET_KEEPCAPS")?;
        rustix::thread::set_thread_res_gid(gid, gid, gid).context("process.user.gid: setresgid")?;
        rustix::thread::set_thread_res_uid(uid, uid, uid).context("process.user.uid: setresuid")
    }

    fn drop_bounding(&self) -> Result<()> {
        for bit in 0..63 {
            if self.capabilities.bounding & 1 << bit != 0 {
                continue;
            }
            let one = CapabilitySet::from_bits_retain(1 << bit);
            match rustix::thread::remove_capability_from_bounding_set(one) {
                Ok(()) => {}
                // Behind the last that this kernel knows.
                Err(Errno::INVAL) => break,
                Err(errno) => return Err(errno).context("process.capabilities.bounding"),
            }
        }
        Ok(())
    }

    /// Capabilities, no_new_privs, the Landlock domain and the filter. Without no_new_privs, the last two take
    /// CAP_SYS_ADMIN.
    fn confine(&self, settled: &Settled, announce: impl FnOnce() -> Result<()>) -> Result<()> {
        let install = || match &self.filter {
            None => Ok(()),
            Some(filter) => {
                announce()?;
                let listener = process::install_filter(&filter.program, filter.flags);
                // It stays open until execve(2): the runtime takes it from here.
                listener.map(std::mem::forget).context("linux.seccomp: seccomp")
            }
        };
        if self.no_new_privileges {
            self.set_capabilities(CapabilitySet::empty())?;
            rustix::thread::set_no_new_privs(true).context("process.noNewPrivileges")?;
            settled.enter_landlock()?;
            return install();
        }
        if self.filter.is_some() || settled.ruleset.is_some() {
            let all = rustix::thread::capabilities(None).context("capget")?.permitted;
            let raised = CapabilitySets {
                effective: all,
                permitted: all,
                inheritable: CapabilitySet::empty(),
            };
            rustix::thread::set_capabilities(None, raised).context("capset")?;
            settled.enter_landlock()?;
            install()?;
        }
        self.set_capabilities(CapabilitySet::empty())
    }

    /// Takes on the capabilities that the program is to have, and `besides`, as far as they are held.
    ///
    /// # Errors
    ///
    /// As capset(2).
    pub fn set_capabilities(&self, besides: CapabilitySet) -> Result<()> {
        let held = rustix::thread::capabilities(None).context("capget")?.permitted;
        let set = |bits| CapabilitySet::from_bits_retain(bits);
        // What we do not hold ourselves cannot be given, config.md: a warning, not an error.
        let permitted = (set(self.capabilities.permitted) | besides) & held;
        let sets = CapabilitySets {
            effective: (set(self.capabilities.effective) | besides) & permitted,
            permitted,
            inheritable: set(self.capabilities.inheritable)
                & set(self.capabilities.bounding | self.capabilities.permitted),
        };
        rustix::thread::set_capabilities(None, sets).context("process.capabilities: capset")?;
        rustix::thread::clear_ambient_capability_set().context("PR_CAP_AMBIENT_CLEAR_ALL")?;
        let ambient = set(self.capabilities.ambient) & permitted & sets.inheritable;
        for bit in (0..63).filter(|bit| ambient.bits() & 1 << bit != 0) {
            let one = CapabilitySet::from_bits_retain(1 << bit);
            rustix::thread::configure_capability_in_ambient_set(one, true)
                .context("process.capabilities.ambient")?;
        }
        Ok(())
    }

    fn variable<'a>(env: &'a [String], name: &str) -> Option<&'a str> {
        env.iter().find_map(|entry| entry.strip_prefix(name)?.strip_prefix('='))
    }

    /// The environment, with `HOME` from the container's `/etc/passwd` where it is not said.
    fn environment(&self) -> Vec<String> {
        let mut env = self.env.clone();
        if Program::variable(&env, "HOME").is_none() {
            let home = home(self.uid.as_raw()).unwrap_or_else(|| "/".to_owned());
            env.push(format!("HOME={home}"));
        }
        env
    }

    /// The program's path, in the words that engines look for.
    fn find(&self, env: &[String]) -> Result<CString> {
        let name = &self.args[0];
        let failed = |cause: &dyn std::fmt::Display| {
            Error::new(format!("exec: {:?}: {cause}", name.to_string_lossy()))
        };
        if name.as_bytes().contains(&b'/') {
            return usable(name).map(|()| name.clone()).map_err(|errno| failed(&errno));
        }
        let mut denied = None;
        let directories = Program::variable(env, "PATH").unwrap_or(PATH);
        for directory in directories.split(':') {
            let directory = if directory.is_empty() { "." } else { directory };
            let path = Path::new(directory).join(OsStr::from_bytes(name.as_bytes()));
            let path = CString::new(path.into_os_string().into_encoded_bytes()).context("PATH")?;
            match usable(&path) {
                Ok(()) => return Ok(path),
                Err(errno @ Errno::ACCESS) => denied = Some(errno),
                Err(_) => {}
            }
        }
        match denied {
            Some(errno) => Err(failed(&errno)),
            None => Err(failed(&"executable file not found in $PATH")),
        }
    }
}

/// Whether there is a file that may be executed.
fn usable(path: &CString) -> std::result::Result<(), Errno> {
    let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::stat(path)?.st_mode);
    if kind.is_dir() {
        // What execve(2) says.
        return Err(Errno::ACCESS);
    }
    process::executable(path)
}

/// Checks that the directory is below the root: one that was reached through a descriptor of the host is not.
fn check_inside() -> Result<()> {
    let cwd = rustix::process::getcwd(Vec::new()).context("process.cwd: getcwd")?;
    if cwd.as_bytes().first() == Some(&b'/') {
        return Ok(());
    }
    Err(Error::new("process.cwd: outside of the container's root: permission denied"))
}

/// The home of `uid` by `/etc/passwd`, which is the container's: it may be anything.
fn home(uid: u32) -> Option<String> {
    let flags = (rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY).bits();
    let file =
        File::options().read(true).custom_flags(flags.cast_signed()).open("/etc/passwd").ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    file.take(PASSWD).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let this = fields.nth(2)?.parse() == Ok(uid);
        let home = fields.nth(2)?;
        (this && home.starts_with('/') && !home.contains('\0')).then(|| home.to_owned())
    })
}

impl Sets {
    fn of(process: &Process) -> Sets {
        // Nothing said is nothing given.
        let Some(given) = process.capabilities() else { return Sets::default() };
        let mask = |set: &Option<Capabilities>| {
            set.iter().flatten().fold(0, |mask, name| {
                let known = caps::Capability::from_str(&format!("CAP_{name}"));
                known.map_or(mask, |known| mask | known.bitmask())
            })
        };
        Sets {
            bounding: mask(given.bounding()),
            effective: mask(given.effective()),
            permitted: mask(given.permitted()),
            inheritable: mask(given.inheritable()),
            ambient: mask(given.ambient()),
        }
    }
}

/// Gives the user of the container the pipes and terminals that are its standard streams, so that it can open
/// `/dev/stdout`. Devices and files of the host keep their owner, and terminals their group.
pub fn own_stdio(uid: u32, gid: u32) {
    use rustix::fs::{FileType, fstat};
    for fd in [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()] {
        let Ok(stat) = fstat(fd) else { continue };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let terminal = kind.is_char_device() && rustix::termios::isatty(fd);
        if stat.st_uid != uid && (kind.is_fifo() || terminal) {
            let group = kind.is_fifo().then(|| Gid::from_raw(gid));
            // It may be another's, or on a file system that is read-only.
            let _kept = rustix::fs::fchown(fd, Some(Uid::from_raw(uid)), group);
        }
    }
}

/// Writes `text` to a file that is open already.
pub(super) fn write_all(file: &OwnedFd, text: &str) -> std::io::Result<()> {
    let mut file = File::from(file.as_fd().try_clone_to_owned()?);
    file.write_all(text.as_bytes())
}
