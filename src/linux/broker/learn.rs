//! Writing down what a run does that its policy would not allow, while nothing but denials holds it.
//!
//! Such a run has a policy that lets everything be written. The broker does every change itself, so
//! that it knows what came of it: what failed needs no rule.

use super::internet::name_of;
use super::task::Task;
use super::{Answer, Errno};
use crate::learn::{Change, Endpoint, Notes, Socket, Why};
use crate::linux::sys::memory;
use crate::policy::endpoint::{Reach, reach};
use crate::policy::hosts::LOCALHOST;
use crate::policy::{Access, Decider, Endpoints, Host, Use};
use crate::trap::{Adviser, Denial, Kind, Operation, Process};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use std::cell::RefCell;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most names that are remembered as the run's own.
const LIMIT: usize = 16 * 1024;
/// `sizeof(struct sockaddr_storage)`, the longest address the kernel takes.
const ADDRESS_MAX: usize = 128;
/// Where shared memory lives: what the run makes there needs no rule.
const SHARED_MEMORY: &[u8] = b"/dev/shm/";

/// What is learned in one run.
#[derive(Debug)]
pub struct Learner {
    /// What is allowed already.
    base: Decider,
    /// The same of addresses.
    endpoints: Endpoints,
    notes: Arc<Mutex<Notes>>,
    /// Shared memory that the run made, by name.
    own: Mutex<HashSet<Vec<u8>>>,
}

/// A path that the call of this thread is about to change, and what stood there.
struct Pending {
    path: Vec<u8>,
    before: Option<Stat>,
}

thread_local! {
    static PENDING: RefCell<Vec<Pending>> = const { RefCell::new(Vec::new()) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Learner {
    /// A learner that writes down into `notes` what `base` does not allow.
    #[must_use]
    pub fn new(base: Decider, endpoints: Endpoints, notes: Arc<Mutex<Notes>>) -> Learner {
        Learner { base, endpoints, notes, own: Mutex::default() }
    }

    /// The call at hand will change `path` if nothing goes wrong.
    pub(super) fn expect(&self, path: &[u8]) {
        if self.base.decide(Access::Write, path).is_allowed() {
            return;
        }
        let before = rustix::fs::lstat(path).ok();
        PENDING.with_borrow_mut(|pending| {
            if !pending.iter().any(|known| known.path == path) {
                pending.push(Pending { path: path.to_vec(), before });
            }
        });
    }

    /// The call at hand came to `answer`.
    pub(super) fn settle(&self, task: &Task<'_>, answer: &Answer) {
        if task.call.nr() == libc::SYS_bind && !matches!(answer, Answer::Error(_)) {
            self.bound(task);
        }
        let pending = PENDING.take();
        if pending.is_empty() || matches!(answer, Answer::Error(_)) {
            return;
        }
        let mut by = None;
        for Pending { path, before } in pending {
            let after = rustix::fs::lstat(path.as_slice()).ok();
            if !is_own_name(&task.broker.root, &path) || is_passed(before.as_ref(), after.as_ref())
            {
                continue;
            }
            let change = match (&before, &after) {
                (Some(stat), _) if is(stat, FileType::Directory) => Change::Directory,
                (Some(_), _) => Change::File,
                (None, Some(stat)) if is(stat, FileType::Directory) => Change::MadeDirectory,
                (None, _) => Change::MadeFile,
            };
            let made = matches!(change, Change::MadeFile | Change::MadeDirectory);
            if path.starts_with(SHARED_MEMORY) && (made || lock(&self.own).contains(&path)) {
                self.remember(path);
                continue;
            }
            // What the program was given open needs no rule.
            let given = |stat: &Stat| (stat.st_dev, stat.st_ino, Access::Write);
            if before.is_some_and(|stat| task.broker.inherited.contains(&given(&stat))) {
                continue;
            }
            let by = by.get_or_insert_with(|| task.process());
            lock(&self.notes).wrote(&path, change, program(by));
        }
    }

    /// A denial was written down.
    pub(super) fn denied(&self, denial: &Denial, adviser: &Adviser) {
        let by = program(&denial.process);
        match (denial.kind, &denial.path, &denial.target) {
            (Kind::Filesystem, Some(path), _) => {
                let access = match denial.operation {
                    Operation::Write => Access::Write,
                    _ => Access::Read,
                };
                let why = match denial.rule {
                    _ if adviser.is_attached(access, path.as_bytes()) => Why::Attached,
                    Some(_) => Why::Denied,
                    None => Why::Impossible,
                };
                lock(&self.notes).denied(path.as_bytes(), why, by);
            }
            (Kind::Network, _, Some(target)) if adviser.network_is_attached() => {
                lock(&self.notes).closed(target, by);
            }
            _ => {}
        }
    }

    fn remember(&self, name: Vec<u8>) {
        let mut own = lock(&self.own);
        if own.len() < LIMIT {
            own.insert(name);
        }
    }

    /// The socket in register 0 was bound, to a port that the kernel may have picked.
    fn bound(&self, task: &Task<'_>) {
        let own = task.own_copy().and_then(|socket| name_of(&socket));
        if let Some(port) = own.ok().map(|own| own.port()).filter(|port| *port != 0) {
            lock(&self.notes).bound(port);
        }
    }

    /// Whether the policy that is there allows it already. All of loopback does not say that a server of the host
    /// is reached: that may be the run's own loopback.
    fn is_open(&self, socket: &Socket) -> bool {
        let (using, to) = match socket {
            Socket::Connect(Endpoint::Internet(to)) => (Use::Connect, to),
            Socket::Bind(Endpoint::Internet(to)) => (Use::Bind, to),
            _ => return false,
        };
        let own = using == Use::Connect
            && reach(to.ip()) != Reach::Outside
            && self.endpoints.is_local()
            && !self.endpoints.is_open();
        !own && self.endpoints.internet(using, to.ip(), to.port()).is_open()
    }

    fn used(&self, task: &Task<'_>, socket: &Socket) {
        // What goes to the proxy, that tells of.
        let to_proxy = |to: &SocketAddr| task.broker.by_proxy(*to).is_some();
        if self.is_open(socket)
            || matches!(socket, Socket::Connect(Endpoint::Internet(to)) if to_proxy(to))
        {
            return;
        }
        let endpoints = &task.broker.endpoints;
        let open = match socket {
            Socket::Connect(Endpoint::Internet(to)) => {
                endpoints.internet(Use::Connect, to.ip(), to.port()).is_open()
            }
            Socket::Bind(Endpoint::Internet(to)) => {
                endpoints.internet(Use::Bind, to.ip(), to.port()).is_open()
            }
            Socket::Connect(Endpoint::Path(path)) => endpoints.socket(path).is_open(),
            _ => true,
        };
        // Nothing but a policy attached to the program closes what this run opens, and its denial is
        // written down.
        if !open && task.broker.adviser.network_is_attached() {
            return;
        }
        lock(&self.notes).used(socket, program(&task.process()));
    }

    /// The proxy was asked for `host` at `port` by a process. This host itself is what would be connected to without it.
    pub(super) fn reached(&self, host: &str, port: u16, by: &Process) {
        let Ok(host) = Host::parse(host) else { return };
        if self.endpoints.name(&host, Some(port)).is_open() {
            return;
        }
        let address = match &host {
            Host::Address(address) => Some(*address),
            Host::Name(_) if host.is_local_name() => Some(LOCALHOST[0]),
            Host::Name(_) => None,
        };
        let mut notes = lock(&self.notes);
        match address.map(|address| Socket::Connect(Endpoint::Internet((address, port).into()))) {
            Some(socket) if self.is_open(&socket) => {}
            Some(socket) => notes.used(&socket, program(by)),
            None => notes.named(&host.with_port(port), program(by)),
        }
    }

    /// Writes down what a call on a socket uses, and lets the kernel run what is notified for this
    /// alone: sending, and making Unix datagram sockets. No decision hangs on it.
    pub(super) fn socket_call(&self, task: &Task<'_>) -> Option<Answer> {
        let (address, length) = match task.call.nr() {
            libc::SYS_socket | libc::SYS_socketpair => return self.made(task),
            libc::SYS_connect | libc::SYS_bind => (task.call.arg(1), task.call.arg(2) as u32),
            libc::SYS_sendto => (task.call.arg(4), task.call.arg(5) as u32),
            // `struct msghdr` and `struct mmsghdr` start with the address and its length.
            libc::SYS_sendmsg | libc::SYS_sendmmsg => {
                let header = memory::read_array::<12>(task.tid(), task.call.arg(1)).ok();
                header.map_or((0, 0), |header| {
                    let (address, length) = header.split_at(8);
                    (
                        u64::from_ne_bytes(address.try_into().expect("eight bytes")),
                        u32::from_ne_bytes(length.try_into().expect("four bytes")),
                    )
                })
            }
            _ => return None,
        };
        let mut bytes = vec![0; (length as usize).min(ADDRESS_MAX)];
        if address != 0
            && !bytes.is_empty()
            && memory::read(task.tid(), address, &mut bytes).is_ok()
        {
            let endpoint = Endpoint::decode(&bytes);
            if let Endpoint::Internet(address) = endpoint
                && is_datagram(task)
            {
                self.used(task, &Socket::Datagram(address));
            } else {
                self.went_to(task, endpoint);
            }
        }
        match task.call.nr() {
            libc::SYS_connect | libc::SYS_bind => None,
            _ => Some(Answer::Continue),
        }
    }

    fn went_to(&self, task: &Task<'_>, endpoint: Endpoint) {
        match task.call.nr() {
            libc::SYS_bind => self.used(task, &Socket::Bind(endpoint)),
            // An address that leads nowhere is the kernel's to refuse.
            _ => drop(self.connected(task, endpoint)),
        }
    }

    /// The filter notifies Unix datagram sockets, and what no policy opens.
    fn made(&self, task: &Task<'_>) -> Option<Answer> {
        const TYPE: i32 = 0xf;
        if (task.int(0), task.int(1) & TYPE) == (libc::AF_UNIX, libc::SOCK_DGRAM) {
            self.used(task, &Socket::UnixDatagram);
            return Some(Answer::Continue);
        }
        None
    }

    fn connected(&self, task: &Task<'_>, endpoint: Endpoint) -> Result<(), Errno> {
        let bound = &task.broker.sockets;
        let endpoint = match endpoint {
            Endpoint::Path(path) => {
                let object = task.object(libc::AT_FDCWD, &path, true, ResolveFlags::empty())?;
                if bound.owns(&object.fd, b"")? {
                    return Ok(());
                }
                Endpoint::Path(object.path)
            }
            Endpoint::Abstract(name) if bound.owns_abstract(&[b"\0", &name[..]].concat()) => {
                return Ok(());
            }
            other => other,
        };
        self.used(task, &Socket::Connect(endpoint));
        Ok(())
    }
}

/// Whether the socket in register 0 sends datagrams: then it is no address that opens it.
fn is_datagram(task: &Task<'_>) -> bool {
    let protocol = task.descriptor(task.int(0)).and_then(|socket| task.broker.protocol(&socket));
    protocol.is_ok_and(|name| {
        [&b"UDP"[..], b"PING", b"RAW"].iter().any(|datagrams| name.starts_with(datagrams))
    })
}

fn is(stat: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == kind
}

/// Whether no link leads to the directory of `path`: some calls are decided by the text of a path
/// first, and then again by the object's name, which is expected, too.
fn is_own_name(root: &OwnedFd, path: &[u8]) -> bool {
    let end = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0).max(1);
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let plain = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, &path[..end], flags, Mode::empty(), plain).is_ok()
}

/// Whether the name is of a link that the call went through and left as it was.
fn is_passed(before: Option<&Stat>, after: Option<&Stat>) -> bool {
    matches!((before, after), (Some(before), Some(after))
        if is(before, FileType::Symlink) && is(after, FileType::Symlink)
            && (before.st_dev, before.st_ino) == (after.st_dev, after.st_ino))
}

/// The name of the program that a process runs.
fn program(process: &Process) -> &str {
    process.exe.rsplit('/').next().unwrap_or(&process.exe)
}
