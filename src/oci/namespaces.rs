//! The namespaces of a container: which are new, which are joined, and the process that enters them.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use oci_spec::runtime::{LinuxNamespaceType as Kind, Spec};
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, WaitOptions, pidfd_open, set_dumpable_behavior, waitpid,
};
use rustix::thread::{
    LinkNameSpaceType, ThreadNameSpaceType, move_into_link_name_space, move_into_thread_name_spaces,
};

use super::channel::{Channel, Tag};
use super::sys::process::{self, Process};
use super::{Context, Error, Result};
use crate::linux::NAMESPACES;

/// What is asked for.
pub struct Namespaces {
    /// New ones, as `CLONE_NEW*`.
    pub new: u64,
    /// Those that exist.
    pub joined: Vec<Joined>,
}

/// A namespace that exists.
pub struct Joined {
    kind: Kind,
    file: OwnedFd,
    path: PathBuf,
}

/// `CLONE_NEW*` of a kind.
#[must_use]
pub fn flag(kind: Kind) -> u64 {
    kind as u64
}

/// The name of a kind in messages.
fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Mount => "mount",
        Kind::Cgroup => "cgroup",
        Kind::Uts => "uts",
        Kind::Ipc => "ipc",
        Kind::User => "user",
        Kind::Pid => "pid",
        Kind::Network => "network",
        Kind::Time => "time",
    }
}

impl Namespaces {
    /// Reads the document and opens what it joins.
    ///
    /// # Errors
    ///
    /// The path that cannot be opened.
    pub fn of(spec: &Spec) -> Result<Namespaces> {
        let listed = spec.linux().as_ref().and_then(|l| l.namespaces().as_deref());
        let mut namespaces = Namespaces { new: 0, joined: Vec::new() };
        for namespace in listed.unwrap_or_default() {
            let kind = namespace.typ();
            match namespace.path().as_ref().filter(|path| !path.as_os_str().is_empty()) {
                None => namespaces.new |= flag(kind),
                Some(path) => {
                    let what = || format!("{} namespace {}", name(kind), path.display());
                    let file = File::open(path).context(what())?.into();
                    let joined = Joined { kind, file, path: path.clone() };
                    // A user namespace cannot be entered twice, user_namespaces(7).
                    if kind != Kind::User || !joined.is_own()? {
                        namespaces.joined.push(joined);
                    }
                }
            }
        }
        Ok(namespaces)
    }

    /// Whether a user namespace is among them.
    #[must_use]
    pub fn has_user(&self) -> bool {
        self.is_new(Kind::User) || self.joins(Kind::User)
    }

    /// Whether one of this kind is new.
    #[must_use]
    pub fn is_new(&self, kind: Kind) -> bool {
        self.new & flag(kind) != 0
    }

    fn joins(&self, kind: Kind) -> bool {
        self.joined.iter().any(|joined| joined.kind == kind)
    }

    /// All of them, as `CLONE_NEW*`.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.joined.iter().fold(self.new, |all, joined| all | flag(joined.kind))
    }

    /// What clone3(2) makes. A cgroup namespace begins where its process is when it is made, which is
    /// not yet the container's cgroup; a time namespace is entered when its offsets are written.
    fn at_clone(&self) -> u64 {
        self.new & !(flag(Kind::Cgroup) | flag(Kind::Time))
    }

    /// Whether it takes a process between. A pid namespace is entered by children alone. What others own has
    /// to be joined with the rights from before a user namespace is entered, and what that one owns with
    /// those from after.
    #[must_use]
    pub fn takes_two(&self) -> bool {
        let other = self.joined.iter().any(|joined| joined.kind != Kind::Mount);
        self.joins(Kind::User) || self.joins(Kind::Pid) || (self.is_new(Kind::User) && other)
    }

    /// Makes the process of the container, in its namespaces but for those that [`Namespaces::time`] and
    /// [`Namespaces::cgroup`] enter.
    /// `None` is returned in that process; `theirs` is its end of the channel, `ours` the runtime's. `cgroup`
    /// is the directory of the cgroup that it is made in, where it [takes no two](Namespaces::takes_two).
    ///
    /// # Errors
    ///
    /// The namespace that cannot be made or joined, and why.
    pub fn spawn(
        &self,
        cgroup: Option<BorrowedFd<'_>>,
        ours: &Channel,
        theirs: &Channel,
    ) -> Result<Option<Process>> {
        if !self.takes_two() {
            let child = process::fork(self.at_clone(), cgroup).map_err(|e| self.refused(e))?;
            if child.is_none() {
                self.enter_here(|_| true, theirs);
            }
            return Ok(child);
        }
        let child = through_another(ours, theirs, || {
            let (mut later, mut user) = (Vec::new(), Vec::new());
            for joined in self.joined.iter().filter(|joined| joined.kind != Kind::Mount) {
                match joined.kind {
                    Kind::User => user.push(joined),
                    _ => match move_into(joined) {
                        Err(Errno::PERM) if self.joins(Kind::User) => later.push(joined),
                        result => result.context(joined.what())?,
                    },
                }
            }
            for joined in user.into_iter().chain(later) {
                joined.enter()?;
            }
            let flags = self.at_clone() | libc::CLONE_PARENT as u64;
            process::fork(flags, None).map_err(|errno| self.refused(errno))
        })?;
        if child.is_none() {
            self.enter_here(|kind| kind == Kind::Mount, theirs);
        }
        Ok(child)
    }

    /// Joins some, in the new process itself. What the caller would do about an error is the runtime's.
    fn enter_here(&self, which: impl Fn(Kind) -> bool, theirs: &Channel) {
        for joined in self.joined.iter().filter(|joined| which(joined.kind)) {
            if let Err(error) = joined.enter() {
                theirs.fail(&error);
            }
        }
    }

    /// Enters a new time namespace, in the process itself. It has to be the user yet that it was made as: files
    /// in `/proc` of one that has changed its user belong to the host's root.
    ///
    /// # Errors
    ///
    /// As unshare(2) and setns(2); offsets that the kernel does not take.
    pub fn time(&self, spec: &Spec) -> Result<()> {
        if !self.is_new(Kind::Time) {
            return Ok(());
        }
        process::unshare(flag(Kind::Time)).context("new time namespace")?;
        time_offsets(spec)?;
        let own = File::open("/proc/self/ns/time_for_children").context("new time namespace")?;
        move_into_link_name_space(own.as_fd(), Some(LinkNameSpaceType::Time))
            .context("new time namespace")
    }

    /// Enters a new cgroup namespace, in the process itself and once it is in its cgroup.
    ///
    /// # Errors
    ///
    /// As unshare(2).
    pub fn cgroup(&self) -> Result<()> {
        match self.is_new(Kind::Cgroup) {
            true => process::unshare(flag(Kind::Cgroup)).context("new cgroup namespace"),
            false => Ok(()),
        }
    }

    /// Says why the kernel makes no namespaces.
    fn refused(&self, errno: Errno) -> Error {
        let root = rustix::process::geteuid().is_root();
        if !self.is_new(Kind::User) {
            let hint = if root { "" } else { " (without a user namespace a container needs root)" };
            return Error::new(format!("new namespaces: {errno}{hint}"));
        }
        let sysctl = [
            ("user.max_user_namespaces", "0"),
            ("kernel.unprivileged_userns_clone", "0"),
            (APPARMOR, "1"),
        ];
        let cause = sysctl.iter().find(|(name, value)| says(name, value));
        let cause = match cause {
            Some((name, value)) => format!(" (the sysctl {name} is {value})"),
            // What a default profile of Docker answers to clone(2) and clone3(2).
            None if matches!(errno, Errno::PERM | Errno::NOSYS) && is_filtered() => {
                " (by a seccomp filter that is in force here, as engines' default one)".to_owned()
            }
            None => String::new(),
        };
        Error::new(format!("new user namespace: {errno}{cause}"))
    }

    /// Says why the new process may not do what it should. AppArmor lets an ordinary user make a user namespace,
    /// and takes the rights in it away (apparmor_restrict_unprivileged_userns of Ubuntu): what fails is a mount.
    #[must_use]
    pub fn explain(&self, error: Error) -> Error {
        let text = error.to_string();
        let refused = ["Permission denied", "Operation not permitted"];
        let refused = refused.iter().any(|errno| text.contains(errno));
        if !(refused && self.is_new(Kind::User) && says(APPARMOR, "1")) {
            return error;
        }
        Error::new(format!("{text} (the sysctl {APPARMOR} is 1)"))
    }
}

/// The sysctl by which AppArmor takes the rights in new user namespaces away.
const APPARMOR: &str = "kernel.apparmor_restrict_unprivileged_userns";

/// Whether a sysctl has this value.
fn says(name: &str, value: &str) -> bool {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    std::fs::read_to_string(path).is_ok_and(|text| text.trim() == value)
}

/// Whether this process is under a seccomp filter.
fn is_filtered() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|text| text.contains("\nSeccomp:\t2"))
}

/// Runs `fork` in a process between, whose child becomes ours; returns that child as `fork` would.
fn through_another(
    ours: &Channel,
    theirs: &Channel,
    fork: impl FnOnce() -> Result<Option<Process>>,
) -> Result<Option<Process>> {
    let Some(between) = process::fork(0, None).context("fork")? else {
        let made = match fork() {
            Ok(None) => return Ok(None),
            Ok(Some(made)) => made,
            Err(error) => theirs.fail(&error),
        };
        let number = made.pid.as_raw_nonzero().get().to_ne_bytes();
        let sent = theirs.send(Tag::Instead, &number);
        process::exit(i32::from(sent.is_err()));
    };
    let message = ours.expect(Tag::Instead);
    let _reaped = waitpid(Some(between.pid), WaitOptions::empty());
    let number = message?.try_into().map(i32::from_ne_bytes).unwrap_or_default();
    let pid = Pid::from_raw(number).ok_or_else(|| Error::new("message: no process"))?;
    // It is a child of ours: its number stays its own until it is reaped.
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).context("pidfd_open")?;
    Ok(Some(Process { pid, pidfd }))
}

/// Makes a process in the namespaces of another (`kinds`, as `CLONE_NEW*`), returned as by
/// [`Namespaces::spawn`]. What the other one gives of [`NAMESPACES`] is asked for by `given` where it may not be looked
/// at: by an ordinary user, a launcher, which belongs to the user namespace that its program was executed
/// in, the host's (ptrace(2), "access mode checking").
///
/// # Errors
///
/// As setns(2).
pub fn follow(
    leader: &OwnedFd,
    kinds: u64,
    given: &dyn Fn() -> Result<Option<Vec<OwnedFd>>>,
    ours: &Channel,
    theirs: &Channel,
) -> Result<Option<Process>> {
    let user = flag(Kind::User);
    let enter = |kinds: u64| {
        let kinds = ThreadNameSpaceType::from_bits_retain(kinds as u32);
        move_into_thread_name_spaces(leader.as_fd(), kinds)
    };
    through_another(ours, theirs, || {
        // The container's processes see this one from now on: none of them may look into it.
        set_dumpable_behavior(DumpableBehavior::NotDumpable).context("PR_SET_DUMPABLE")?;
        if kinds & user == 0 {
            enter(kinds).context("namespaces of the container")?;
        } else {
            // What the host owns can be joined before the user namespace is, what it owns after.
            match enter(kinds & !user) {
                Ok(()) => enter(user).context("user namespace of the container")?,
                Err(Errno::PERM) => match enter(kinds) {
                    Err(Errno::PERM) => match given()? {
                        Some(given) => enter_given(kinds, &given),
                        None => Err(Errno::PERM),
                    },
                    result => result,
                }
                .context("namespaces of the container")?,
                Err(errno) => return Err(errno).context("namespaces of the container"),
            }
        }
        process::fork(libc::CLONE_PARENT as u64, None).context("fork")
    })
}

fn enter_given(kinds: u64, given: &[OwnedFd]) -> std::result::Result<(), Errno> {
    let asked = given.iter().zip(NAMESPACES).filter(|(_, (_, kind))| kinds & *kind as u64 != 0);
    for (file, _) in asked {
        move_into_link_name_space(file.as_fd(), None)?;
    }
    Ok(())
}

fn time_offsets(spec: &Spec) -> Result<()> {
    let offsets = spec.linux().as_ref().and_then(|linux| linux.time_offsets().as_ref());
    let mut text = String::new();
    for (clock, offset) in offsets.into_iter().flatten() {
        let (secs, nanos) = (offset.secs().unwrap_or(0), offset.nanosecs().unwrap_or(0));
        text.push_str(&format!("{clock} {secs} {nanos}\n"));
    }
    if text.is_empty() {
        return Ok(());
    }
    std::fs::write("/proc/self/timens_offsets", text).context("linux.timeOffsets")
}

fn move_into(joined: &Joined) -> std::result::Result<(), Errno> {
    let kind = match joined.kind {
        Kind::Mount => LinkNameSpaceType::Mount,
        Kind::Cgroup => LinkNameSpaceType::ControlGroup,
        Kind::Uts => LinkNameSpaceType::HostNameAndNISDomainName,
        Kind::Ipc => LinkNameSpaceType::InterProcessCommunication,
        Kind::User => LinkNameSpaceType::User,
        Kind::Pid => LinkNameSpaceType::ProcessID,
        Kind::Network => LinkNameSpaceType::Network,
        Kind::Time => LinkNameSpaceType::Time,
    };
    move_into_link_name_space(joined.file.as_fd(), Some(kind))
}

impl Joined {
    fn what(&self) -> String {
        format!("join {} namespace {}", name(self.kind), self.path.display())
    }

    fn enter(&self) -> Result<()> {
        move_into(self).context(self.what())
    }

    /// Whether it is the one that this process is in.
    fn is_own(&self) -> Result<bool> {
        let own = rustix::fs::stat("/proc/self/ns/user").context("/proc/self/ns/user")?;
        let this = rustix::fs::fstat(&self.file).context(self.what())?;
        Ok((own.st_dev, own.st_ino) == (this.st_dev, this.st_ino))
    }
}
