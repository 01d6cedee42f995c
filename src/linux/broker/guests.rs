//! Commands that an engine executes in a container whose program runs.
//!
//! Such a command comes from outside: with the user, the capabilities and the terminal that it was asked for, as
//! a child of whoever asked. A Landlock domain is inherited and cannot be joined, so it enters one of its own,
//! from the ruleset of the program's; it installs the same filter, and hands its listener to the launcher. From
//! then on it is served here, as the program is, by the same books: one [`Run`](super::Run), two brokers.
//!
//! Looking at a process takes a domain that contains the other's, or none. So the thread that receives guests, and
//! those that serve them, are started before the launcher enters its own. They lack the right to look at
//! processes of other users that a launcher may have.

use super::pool::{self, STACK};
use super::task::{ALWAYS, status_of};
use super::{Broker, Errno};
use crate::linux::inherited;
use crate::linux::sys::seccomp::{self, Instruction};
use crate::linux::sys::{self, identity};
use crate::linux::tmpdir;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, openat};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, accept_with, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

/// The longest message: the filter, and a path.
const LONGEST: usize = 64 * 1024;
/// The namespaces that a guest can enter, as files of `/proc/PID/ns` and as `CLONE_NEW*`, in an order that it may: the
/// one of users first, which owns the others where an ordinary user made them.
pub const NAMESPACES: [(&str, libc::c_int); 8] = [
    ("user", libc::CLONE_NEWUSER),
    ("mnt", libc::CLONE_NEWNS),
    ("pid", libc::CLONE_NEWPID),
    ("net", libc::CLONE_NEWNET),
    ("ipc", libc::CLONE_NEWIPC),
    ("uts", libc::CLONE_NEWUTS),
    ("cgroup", libc::CLONE_NEWCGROUP),
    ("time", libc::CLONE_NEWTIME),
];
/// The most descriptors in a message: a ruleset and namespaces.
const FDS: usize = 1 + NAMESPACES.len();
/// How long a guest waits to be received.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked whether the threads of a guest that left are gone.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Where guests are received.
pub struct Desk {
    /// A listening socket that keeps messages apart.
    pub door: OwnedFd,
    /// The ruleset of the program's domain.
    pub ruleset: OwnedFd,
    /// The filter of the program.
    pub filter: Vec<Instruction>,
    /// What a guest is told.
    pub given: Given,
    /// The directory that it is in, where others may have been left.
    pub parent: Option<OwnedFd>,
}

/// What the environment of a program in the run has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// The run's temporary directory.
    pub temporary: Option<String>,
    /// The port of its proxy on loopback.
    pub proxy: Option<u16>,
}

impl Desk {
    /// Opens it, on a thread that is in no domain as long as the caller is in none.
    ///
    /// # Errors
    ///
    /// `EAGAIN` when no thread can be had.
    pub fn open(self, broker: &Arc<Broker>) -> io::Result<()> {
        let host = Arc::clone(broker);
        let attend = move || {
            let own = guest_capabilities(&host);
            if identity::set_capabilities(own, own).is_err() {
                return;
            }
            if let Some(parent) = &self.parent {
                tmpdir::sweep(parent.as_fd(), self.door.as_fd());
            }
            self.attend(&host);
        };
        thread::Builder::new().stack_size(STACK).spawn(attend).map(drop)
    }

    fn attend(&self, host: &Arc<Broker>) {
        let mut waiting: Vec<OwnedFd> = Vec::new();
        let (mut guests, mut left): (Vec<Arc<Broker>>, Vec<Arc<Broker>>) = Default::default();
        loop {
            left.retain(|guest: &Arc<Broker>| !pool::end(guest));
            let mut fds = vec![PollFd::new(&self.door, PollFlags::IN)];
            fds.extend(waiting.iter().map(|guest| PollFd::new(guest, PollFlags::IN)));
            // Whether they have ended is told in any case; what they ask is for their workers.
            let listeners: Vec<_> = guests.iter().map(|guest| guest.listener()).collect();
            fds.extend(listeners.iter().map(|fd| PollFd::new(fd, PollFlags::empty())));
            if poll(&mut fds, (!left.is_empty()).then_some(&LOOK)).is_err() {
                continue;
            }
            let mut ready =
                fds.iter().map(|fd| !fd.revents().is_empty()).collect::<Vec<_>>().into_iter();
            drop(fds);
            let knocks = ready.next() == Some(true);
            let (said, still) = waiting.into_iter().partition(|_| ready.next() == Some(true));
            waiting = still;
            left.extend(guests.extract_if(.., |_| ready.next() == Some(true)));
            for guest in said {
                guests.extend(self.receive(host, guest));
            }
            if knocks {
                match self.greet(host) {
                    Ok(guest) => waiting.extend(guest),
                    // Nothing is left to receive anybody with: until somebody leaves, others wait.
                    Err(_) => thread::sleep(Duration::from_millis(20)),
                }
            }
        }
    }

    /// Lets somebody in, and gives what a guest needs; `None` who left meanwhile.
    fn greet(&self, host: &Broker) -> Result<Option<OwnedFd>, Errno> {
        let guest = accept_with(&self.door, SocketFlags::CLOEXEC)?;
        let namespace = |(name, _)| {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            openat(&host.proc, format!("self/ns/{name}"), flags, Mode::empty()).ok()
        };
        // As many as the kernel has.
        let namespaces: Vec<OwnedFd> = NAMESPACES.into_iter().map_while(namespace).collect();
        let mut content = (self.filter.len() as u32).to_ne_bytes().to_vec();
        content.extend(self.filter.iter().flat_map(to_bytes));
        content.extend(self.given.proxy.unwrap_or(0).to_ne_bytes());
        content.extend(self.given.temporary.iter().flat_map(|path| path.bytes()));
        let fds = std::iter::once(&self.ruleset).chain(&namespaces);
        let sent = send(guest.as_fd(), &content, &fds.map(AsFd::as_fd).collect::<Vec<_>>());
        Ok(sent.is_ok().then_some(guest))
    }

    /// Serves a guest from now on, and says so.
    fn receive(&self, host: &Arc<Broker>, guest: OwnedFd) -> Option<Arc<Broker>> {
        let (content, fds) = receive(guest.as_fd()).ok()?;
        let pid = i32::from_ne_bytes(*content.first_chunk()?);
        let profile = content.get(4) == Some(&1);
        let mut fds = fds.into_iter();
        let listener = fds.next()?;
        let streams: Vec<OwnedFd> = fds.collect();
        let served = host
            .of_guest(pid, profile, &streams)
            .map_err(|errno| format!("it cannot be served: {errno}"))
            .and_then(|broker| {
                let broker = Arc::new(broker);
                let served = pool::serve(&broker, listener);
                served.map_err(|error| format!("no thread: {error}")).map(|()| broker)
            });
        let (answer, broker) = match served {
            Ok(broker) => (String::new(), Some(broker)),
            Err(message) => (message, None),
        };
        // Who left meanwhile is found out by the listener.
        let _ = send(guest.as_fd(), answer.as_bytes(), &[]);
        broker
    }
}

fn guest_capabilities(host: &Broker) -> u64 {
    const SYS_PTRACE: u64 = 1 << 19;
    host.own_capabilities & !SYS_PTRACE
}

impl Broker {
    /// A broker of the same run for process `pid`, whose filter is installed already; `profile` says whether
    /// one more follows.
    ///
    /// # Errors
    ///
    /// `EPERM` for a user that the launcher may not act as.
    fn of_guest(&self, pid: i32, profile: bool, streams: &[OwnedFd]) -> Result<Broker, Errno> {
        const IDENTITY: u64 = 1 << 6 | 1 << 7;
        let status = status_of(&self.proc, pid)?;
        let own_capabilities = guest_capabilities(self);
        let same = status.uids == [self.uid; 4]
            && status.gids == [self.gid; 4]
            && status.groups == self.groups
            && status.capabilities | own_capabilities & ALWAYS == own_capabilities;
        if !same && own_capabilities & IDENTITY != IDENTITY {
            return Err(Errno::PERM);
        }
        let streams: Vec<_> = streams.iter().map(AsFd::as_fd).collect();
        let inherited = inherited::files(self.reads, &self.decider, &streams);
        Ok(Broker {
            run: Arc::clone(&self.run),
            listener: OnceLock::new(),
            inherited: inherited.into_iter().map(|(_, file)| file).collect(),
            guest: true,
            umask: status.umask,
            umask_changed: AtomicBool::new(false),
            identity_changed: AtomicBool::new(!same),
            nested: AtomicBool::new(false),
            filters: OnceLock::from(status.filters + u32::from(profile)),
            own_filters: 0,
            uid: self.uid,
            gid: self.gid,
            groups: self.groups.clone(),
            own_capabilities,
            pool: pool::Pool::default(),
        })
    }
}

/// The namespaces of the launcher at `desk`: [`NAMESPACES`], as many as the kernel has.
///
/// # Errors
///
/// What the launcher did not do.
pub fn namespaces(desk: OwnedFd) -> Result<Vec<OwnedFd>, String> {
    let (_, mut fds) = hear(desk.as_fd())?;
    fds.drain(..1.min(fds.len()));
    Ok(fds)
}

/// A process that becomes a guest: its connection to a desk.
pub struct Guest(OwnedFd);

impl Guest {
    /// Who is connected by `desk`.
    pub fn new(desk: OwnedFd) -> Guest {
        Guest(desk)
    }

    /// Puts this process under the policy of the run, with the capabilities `keep` of those that it has; returns
    /// what its environment is to have. `profile` says whether one more filter is going to follow. Up to
    /// execve(2) this process may make no call that is notified.
    ///
    /// # Errors
    ///
    /// What went wrong: then this process may be restricted already, and must end.
    pub fn enter(self, keep: u64, profile: bool) -> Result<Given, String> {
        let failed = |what: &'static str| move |errno: Errno| format!("{what}: {errno}");
        let (content, fds) = hear(self.0.as_fd())?;
        let ruleset = fds.into_iter().next();
        let (Some(ruleset), Some((filter, given))) = (ruleset, parse(&content)) else {
            return Err("the launcher makes no sense".to_owned());
        };
        identity::limit_capabilities(keep).map_err(failed("capset"))?;
        sys::restrict_self(ruleset.as_fd()).map_err(failed("landlock_restrict_self"))?;
        // The launcher has to read what is executed. To the container's processes this one stays closed: its domain
        // does not contain theirs, nor theirs this one.
        let dumpable = rustix::process::DumpableBehavior::Dumpable;
        rustix::process::set_dumpable_behavior(dumpable).map_err(failed("PR_SET_DUMPABLE"))?;
        let listener = seccomp::install_owning(&filter).map_err(failed("seccomp"))?;
        let pid = std::process::id().cast_signed().to_ne_bytes();
        let content = [pid.as_slice(), &[u8::from(profile)]].concat();
        let fds = [
            listener.as_fd(),
            rustix::stdio::stdin(),
            rustix::stdio::stdout(),
            rustix::stdio::stderr(),
        ];
        send(self.0.as_fd(), &content, &fds).map_err(silent)?;
        // While this process holds it, too, nobody would be told that the launcher is gone.
        drop(listener);
        let (answer, _) = receive(self.0.as_fd()).map_err(silent)?;
        if answer.is_empty() { Ok(given) } else { Err(String::from_utf8_lossy(&answer).into()) }
    }
}

/// What the launcher says first, and what comes with it.
fn hear(desk: BorrowedFd<'_>) -> Result<(Vec<u8>, Vec<OwnedFd>), String> {
    let timeout = rustix::net::sockopt::Timeout::Recv;
    rustix::net::sockopt::set_socket_timeout(desk, timeout, Some(PATIENCE))
        .map_err(|errno| format!("setsockopt: {errno}"))?;
    receive(desk).map_err(silent)
}

fn silent(errno: Errno) -> String {
    match errno {
        Errno::AGAIN => format!("the launcher did not answer in {} s", PATIENCE.as_secs()),
        Errno::CONNRESET => "the launcher ended".to_owned(),
        errno => format!("the launcher: {errno}"),
    }
}

fn to_bytes(instruction: &Instruction) -> [u8; 8] {
    let [a, b] = instruction.code.to_ne_bytes();
    let [c, d, e, f] = instruction.k.to_ne_bytes();
    [a, b, instruction.jt, instruction.jf, c, d, e, f]
}

/// The filter of a message, and what else is given.
fn parse(content: &[u8]) -> Option<(Vec<Instruction>, Given)> {
    let (length, rest) = content.split_first_chunk()?;
    let length = 8 * u32::from_ne_bytes(*length) as usize;
    let (filter, rest) = rest.split_at_checked(length)?;
    let (proxy, path) = rest.split_first_chunk()?;
    let instruction = |bytes: &[u8]| {
        let [a, b, jt, jf, c, d, e, f] = *bytes.first_chunk()?;
        let (code, k) = (u16::from_ne_bytes([a, b]), u32::from_ne_bytes([c, d, e, f]));
        Some(Instruction { code, jt, jf, k })
    };
    let filter = filter.chunks(8).map(instruction).collect::<Option<_>>()?;
    let path = String::from_utf8(path.to_vec()).ok()?;
    let given = Given {
        temporary: Some(path).filter(|path| !path.is_empty()),
        proxy: Some(u16::from_ne_bytes(*proxy)).filter(|port| *port != 0),
    };
    Some((filter, given))
}

fn send(socket: BorrowedFd<'_>, content: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    // An empty message could not be told from the end.
    let content = [content, &[0]].concat();
    let parts = [IoSlice::new(&content)];
    sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).map(drop)
}

/// The next message and what came with it.
fn receive(socket: BorrowedFd<'_>) -> Result<(Vec<u8>, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut content = vec![0; LONGEST];
    let length = loop {
        let mut parts = [IoSliceMut::new(&mut content)];
        match recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            result => break result?.bytes,
        }
    };
    content.truncate(length);
    content.pop().ok_or(Errno::CONNRESET)?;
    let fds = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.collect(),
        _ => Vec::new(),
    });
    Ok((content, fds.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_off_is_no_filter() {
        let one = Instruction { code: 0x15, jt: 1, jf: 2, k: 0x0102_0304 };
        let mut content = 2u32.to_ne_bytes().to_vec();
        content.extend([to_bytes(&one), to_bytes(&Instruction { k: 7, ..one })].concat());
        content.extend(7u16.to_ne_bytes());
        content.extend(b"/tmp/x");
        let (filter, given) = parse(&content).unwrap();
        let fields = |i: &Instruction| (i.code, i.jt, i.jf, i.k);
        let filter: Vec<_> = filter.iter().map(fields).collect();
        assert_eq!(filter, [(0x15, 1, 2, 0x0102_0304), (0x15, 1, 2, 7)]);
        assert_eq!(given, Given { temporary: Some("/tmp/x".to_owned()), proxy: Some(7) });
        assert_eq!(parse(&content[..22]).unwrap().1.temporary, None);
        for length in 0..22 {
            assert!(parse(&content[..length]).is_none(), "{length}");
        }
    }
}
