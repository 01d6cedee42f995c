//! The open family.

use super::direct::Made;
use super::names::{NEEDS_DIRECTORY, NO_SETID};
use super::report::Refusal;
use super::resolve::{Last, Object, Spot, file_type, goes_up, normalize};
use super::task::Task;
use super::text::is_name;
use super::{Answer, Errno};
use crate::linux::how;
use crate::policy::{Access, Verdict};
use crate::trap::errno;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use std::os::fd::{AsFd, OwnedFd};

/// An open as it was asked for.
pub(super) struct Request {
    pub(super) dirfd: i32,
    pub(super) path: Vec<u8>,
    pub(super) flags: OFlags,
    pub(super) mode: u32,
    pub(super) resolve: ResolveFlags,
    /// Flags and mode came in registers, so the kernel would see the same ones.
    in_registers: bool,
}

/// `O_TMPFILE` without the `O_DIRECTORY` that it contains.
const TMPFILE: OFlags = OFlags::TMPFILE.difference(OFlags::DIRECTORY);
/// Bits of a mode that make a file run as its owner or group.
const SETID: u32 = 0o6000;
/// Most bytes of a structure that the kernel takes, see copy_struct_from_user in linux/uaccess.h.
const PAGE: usize = 4096;
/// Most symbolic links that a creation follows.
const MAX_LINKS: usize = 40;

impl Request {
    /// What the open needs. Mode 3 is Linux's own: it checks for both and grants neither.
    pub(super) fn wants(&self) -> &'static [Access] {
        let mode = self.flags.bits() & ACCESS_MODE;
        let truncate = self.flags.contains(OFlags::TRUNC);
        match (mode as i32, truncate) {
            (libc::O_RDONLY, false) => &[Access::Read],
            (libc::O_WRONLY, _) => &[Access::Write],
            _ => &[Access::Read, Access::Write],
        }
    }

    /// Landlock sees no writing in `O_TRUNC` with mode `O_RDONLY` or 3, which cuts the file all the same.
    fn hides_truncation(&self) -> bool {
        let mode = (self.flags.bits() & ACCESS_MODE) as i32;
        self.flags.contains(OFlags::TRUNC) && mode != libc::O_WRONLY && mode != libc::O_RDWR
    }

    pub(super) fn writes(&self) -> bool {
        self.wants().contains(&Access::Write)
    }

    /// Whether the kernel may run the call where Landlock holds its accesses. It must not where it
    /// would see other flags than we do, or where they cut a file without a right that Landlock sees:
    /// the path is in memory, and may name anything by then.
    pub(super) fn may_continue(&self) -> bool {
        let mode = self.flags.bits() & ACCESS_MODE;
        self.in_registers && !self.hides_truncation() && mode != ACCESS_MODE
    }

    pub(super) fn cloexec(&self) -> bool {
        self.flags.contains(OFlags::CLOEXEC)
    }
}

impl Task<'_> {
    /// open(2), openat(2) and creat(2).
    pub(super) fn open(
        &self,
        dirfd: i32,
        path: usize,
        flags: i32,
        mode: u64,
    ) -> Result<Answer, Errno> {
        self.perform(&Request {
            dirfd,
            path: self.path(path)?,
            flags: OFlags::from_bits_retain(flags as u32),
            mode: mode as u32 & 0o7777,
            resolve: ResolveFlags::empty(),
            in_registers: true,
        })
    }

    /// openat2(2), whose flags are in memory.
    pub(super) fn openat2(&self) -> Result<Answer, Errno> {
        if self.nested.get() {
            // Never continued, since its flags are in memory. Callers go back to openat(2).
            return Err(Errno::NOSYS);
        }
        const SIZE: u64 = how::SIZE as u64;
        let (address, size) = (self.call.arg(2), self.call.arg(3));
        if size < SIZE {
            return Err(Errno::INVAL);
        }
        if size > SIZE {
            // A later version of the structure: the same when its new fields are zero.
            let rest = usize::try_from(size - SIZE).ok().filter(|&rest| rest <= PAGE);
            let mut bytes = vec![0; rest.ok_or(Errno::TOOBIG)?];
            let rest = address.checked_add(SIZE).ok_or(Errno::FAULT)?;
            if self.read(rest, &mut bytes)? < bytes.len() {
                return Err(Errno::FAULT);
            }
            if bytes.iter().any(|&byte| byte != 0) {
                return Err(Errno::TOOBIG);
            }
        }
        let how = how::decode(&self.read_array(address)?)?;
        if how.flags.intersects(OFlags::CREATE | TMPFILE) {
            self.say("mode", || Some(format!("0{:o}", how.mode)));
        }
        self.perform(&Request {
            dirfd: self.int(0),
            path: self.path(1)?,
            flags: how.flags,
            mode: how.mode,
            resolve: how.resolve,
            in_registers: false,
        })
    }

    fn perform(&self, request: &Request) -> Result<Answer, Errno> {
        let flags = request.flags;
        if flags.contains(OFlags::PATH) {
            // No rule is about a place, but the kernel may see other flags than these when they are
            // in memory, and a place cannot be handed over: SECCOMP_IOCTL_NOTIF_ADDFD takes open
            // files only. Callers go back to openat(2).
            return if request.in_registers { Ok(Answer::Continue) } else { Err(Errno::NOSYS) };
        }
        if !self.broker.reads
            && request.wants() == [Access::Read]
            && !flags.intersects(OFlags::CREATE | TMPFILE)
            && request.may_continue()
        {
            return Ok(Answer::Continue);
        }
        if flags.intersects(OFlags::CREATE | TMPFILE) && request.mode & SETID != 0 {
            self.still_waits()?;
            return Ok(self.refuse_setid(&request.path));
        }
        if flags.contains(TMPFILE) {
            return self.unnamed(request);
        }
        if let Some(answer) = self.held_open(request) {
            return Ok(answer);
        }
        if let Some(answer) = self.direct(request)? {
            return Ok(answer);
        }
        if flags.contains(OFlags::CREATE) {
            return self.create(request);
        }
        let follow = !flags.contains(OFlags::NOFOLLOW);
        let object = self.object(request.dirfd, &request.path, follow, request.resolve)?;
        self.existing(request, object)
    }

    /// Lets the kernel do an open that it holds anyway, at the least cost: without looking at the
    /// object, but for one lookup that proves that the text is its name, free of links.
    ///
    /// Nothing here has to be exact but the "yes": a continued open is checked by Landlock.
    fn held_open(&self, request: &Request) -> Option<Answer> {
        let broker = self.broker;
        if !request.resolve.is_empty()
            || !request.may_continue()
            || !request.wants().iter().all(|&access| self.worth_a_look(access, &request.path))
        {
            return None;
        }
        let text = self.absolute(request.dirfd, &request.path)?;
        let path = normalize(b"/", &text);
        let held = |path: &[u8]| {
            request.wants().iter().all(|&access| {
                broker.kernel_holds(access, path) && broker.decide(access, path).is_allowed()
            })
        };
        if !held(&path) {
            return None;
        }
        let creates = request.flags.contains(OFlags::CREATE);
        if is_name(&request.path) && request.flags.contains(OFlags::NOFOLLOW) && !creates {
            return Some(Answer::Continue);
        }
        // Where a file is made for sure, only its directory can lead elsewhere.
        if !request.flags.contains(OFlags::CREATE | OFlags::EXCL) {
            match self.stands(&text, OFlags::empty()) {
                Err(Errno::NOENT) if creates => {}
                // The kernel finds the same, or what Landlock lets it open.
                Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => return Some(Answer::Continue),
                Err(Errno::LOOP) if !creates && !request.flags.contains(OFlags::NOFOLLOW) => {
                    return held(&self.followed(&text)?).then_some(Answer::Continue);
                }
                Err(_) => return None,
            }
        }
        (!goes_up(&text) && self.held_name(&path, is_name(&request.path)))
            .then_some(Answer::Continue)
    }

    /// Opens an object that exists.
    fn existing(&self, request: &Request, object: Object) -> Result<Answer, Errno> {
        // Pipes, sockets and memory files have no place in the tree: no policy is about them.
        if object.is_anonymous() {
            return self.reopened(request, &object);
        }
        let broker = self.broker;
        let path = object.named()?;
        let mut wants = request.wants();
        while let [access, rest @ ..] = wants {
            let access = *access;
            wants = rest;
            let mut verdict = self.decide(access, path);
            if self.is_own_process(&object, &verdict)? {
                verdict = Verdict::Allow(None);
            }
            let found = self.refused_object(&verdict, (access, &object), path, &request.path)?;
            if let Some(mut refusal) = found {
                // What else stands against it: another access, or something that is no matter of rules.
                for &other in rest {
                    let (verdict, about) = (self.decide(other, path), (other, &object));
                    let found = self.refused_object(&verdict, about, path, &request.path)?;
                    refusal = refusal.beside(found);
                }
                refusal = refusal.beside(self.guarded_open(request, &object, path)?);
                return self.deny_open(request, &object, access, refusal);
            }
        }
        if let Some(refusal) = self.guarded_device(request, &object, path)? {
            let access = refusal.access();
            return self.deny_open(request, &object, access, refusal);
        }
        let held = request.wants().iter().all(|&access| broker.kernel_holds(access, path));
        if held && request.may_continue() {
            return Ok(Answer::Continue);
        }
        if let Some(refusal) = self.guarded_name(request, &object, path)? {
            return self.deny_open(request, &object, Access::Write, refusal);
        }
        self.reopened(request, &object)
    }

    /// What refuses to open the object by this name although the rules about it would not.
    fn guarded_open<'a>(
        &'a self,
        request: &'a Request,
        object: &Object,
        path: &'a [u8],
    ) -> Result<Option<Refusal<'a>>, Errno> {
        match self.guarded_device(request, object, path)? {
            None => self.guarded_name(request, object, path),
            found => Ok(found),
        }
    }

    /// The same for the name that it has.
    fn guarded_name<'a>(
        &'a self,
        request: &'a Request,
        object: &Object,
        path: &'a [u8],
    ) -> Result<Option<Refusal<'a>>, Errno> {
        if request.writes()
            && let Some(rule) = self.broker.decider.directory_name(path)
            && file_type(&rustix::fs::fstat(&object.fd)?) == FileType::RegularFile
        {
            let refusal = Refusal::new(Access::Write, path, &request.path, Some(rule));
            return Ok(Some(refusal.because(NEEDS_DIRECTORY)));
        }
        Ok(None)
    }

    /// The object, opened by the broker.
    fn reopened(&self, request: &Request, object: &Object) -> Result<Answer, Errno> {
        let stat = rustix::fs::fstat(&object.fd)?;
        if let Some(terminal) = self.controlling_terminal(&stat)? {
            let fd = self.broker.reopen(terminal.fd.as_fd(), request.flags)?;
            return Ok(Answer::Descriptor(fd, request.cloexec()));
        }
        // What a process shows of itself is for those who may look at it, which the kernel has to
        // judge by who asks.
        if self.shows_another_process(object, &stat)? {
            return Err(Errno::ACCESS);
        }
        // No Landlock domain is about what has no place in the tree.
        if !object.is_anonymous() {
            self.may_act()?;
        }
        let fd = match self.is_to_look_at(request, object, &stat)? {
            true => self.open_without_control(object, request.flags)?,
            false => self.open_waiting(object, file_type(&stat), request.flags)?,
        };
        Ok(Answer::Descriptor(fd, request.cloexec()))
    }

    /// Opens an object for real, which takes as long as the other end of a FIFO, or who holds a lease on a
    /// file, lets it: as long as lease-break-time in proc_sys_fs(5).
    ///
    /// # Errors
    ///
    /// As open(2); `ENFILE` when it would have to wait and too many others do.
    pub(super) fn open_waiting(
        &self,
        object: &Object,
        kind: FileType,
        flags: OFlags,
    ) -> Result<OwnedFd, Errno> {
        let (broker, fd) = (self.broker, object.fd.as_fd());
        let full = match broker.pool.place_to_wait(self.helped) {
            Ok(_place) => return broker.reopen(fd, flags),
            Err(errno) => errno,
        };
        if flags.contains(OFlags::NONBLOCK) {
            return broker.reopen(fd, flags);
        }
        if kind == FileType::Fifo {
            return Err(full);
        }
        let file = broker.reopen(fd, flags | OFlags::NONBLOCK);
        let file = file.map_err(|errno| if errno == Errno::AGAIN { full } else { errno })?;
        rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
        Ok(file)
    }

    /// The rule that denies `access` to the object by another of its names.
    pub(super) fn linked(
        &self,
        object: &Object,
        access: Access,
    ) -> Result<Option<&crate::policy::Rule>, Errno> {
        if self.broker.linked.is_empty() {
            return Ok(None);
        }
        let stat = rustix::fs::fstat(&object.fd)?;
        let rule = self.broker.linked.get(&(stat.st_dev, stat.st_ino, access));
        // Who allows this name has allowed the object.
        let granted = || {
            object
                .named()
                .is_ok_and(|path| self.is_granted(&self.broker.decide(access, path), access, path))
        };
        Ok(rule.filter(|rule| rule.always || !granted()))
    }

    /// Refuses an open, after the errors that the kernel finds before it looks at permissions.
    fn deny_open(
        &self,
        request: &Request,
        object: &Object,
        access: Access,
        mut refusal: Refusal<'_>,
    ) -> Result<Answer, Errno> {
        let stat = rustix::fs::fstat(&object.fd)?;
        match file_type(&stat) {
            FileType::Symlink => return Err(Errno::LOOP),
            FileType::Directory if request.writes() => return Err(Errno::ISDIR),
            FileType::Directory => {}
            _ if request.flags.contains(OFlags::DIRECTORY) => return Err(Errno::NOTDIR),
            _ => {}
        }
        if self.broker.inherited.contains(&(stat.st_dev, stat.st_ino, access)) {
            // Landlock grants it, but whatever else such an open could come to read it may grant too.
            let continues = !self.broker.guest && request.may_continue();
            match request.wants() {
                [Access::Read] => return self.reopened(request, object),
                [Access::Write] if continues => return Ok(Answer::Continue),
                _ if !self.broker.reads && continues => return Ok(Answer::Continue),
                // A terminal, which the broker may open for writing, too.
                _ if object.path.starts_with(b"/dev/") => return self.reopened(request, object),
                _ => {}
            }
        }
        if access == Access::Write && refusal.rule.is_none() && self.broker.memory.owns_file(&stat)
        {
            self.may_act()?;
            let fd = self.broker.reopen(object.fd.as_fd(), request.flags)?;
            return Ok(Answer::Descriptor(fd, request.cloexec()));
        }
        refusal.flags = errno::open_flags(request.flags.bits());
        refusal.askable = refusal.askable && self.is_named(&stat, object);
        Ok(self.refuse(refusal))
    }

    /// `O_TMPFILE`: a file without a name in the directory `path`.
    fn unnamed(&self, request: &Request) -> Result<Answer, Errno> {
        let follow = !request.flags.contains(OFlags::NOFOLLOW);
        let object = self.object(request.dirfd, &request.path, follow, request.resolve)?;
        let verdict = self.decide_change(&object.path);
        if let Some(mut refusal) = Refusal::of(&verdict, Access::Write, &object.path, &request.path)
        {
            refusal.flags = errno::open_flags(request.flags.bits());
            return Ok(self.refuse(refusal));
        }
        if self.broker.kernel_holds(Access::Write, &object.path) && request.in_registers {
            return Ok(Answer::Continue);
        }
        self.may_act()?;
        self.assume_umask()?;
        let flags = (request.flags - OFlags::NOFOLLOW) | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&object.fd, ".", flags, Mode::from_raw_mode(request.mode))?;
        Ok(Answer::Descriptor(fd, request.cloexec()))
    }

    /// `O_CREAT`: opens what is there, or makes it. A link's target is what gets made, so links are
    /// followed here, one at a time.
    fn create(&self, request: &Request) -> Result<Answer, Errno> {
        let exclusive = request.flags.contains(OFlags::EXCL);
        let mut text = request.path.clone();
        let mut at = self.spot(request.dirfd, &text, request.resolve)?;
        for _ in 0..=MAX_LINKS {
            let Last::Spot(spot) = at else {
                return Err(if exclusive { Errno::EXIST } else { Errno::ISDIR });
            };
            if spot.name.ends_with(b"/") {
                return Err(Errno::ISDIR);
            }
            let stat = match spot.stat() {
                Ok(stat) => stat,
                Err(Errno::NOENT) => match self.create_at(request, spot)? {
                    Ok(answer) => return Ok(answer),
                    // Somebody else made it meanwhile.
                    Err(spot) => {
                        at = Last::Spot(spot);
                        continue;
                    }
                },
                Err(errno) => return Err(errno),
            };
            if exclusive {
                return Err(Errno::EXIST);
            }
            if file_type(&stat) != FileType::Symlink {
                if file_type(&stat) == FileType::Directory {
                    return Err(Errno::ISDIR);
                }
                self.broker.sticky_file(spot.dir.as_fd(), &stat)?;
                let object = self.object_at(&spot)?;
                return self.existing(request, object);
            }
            let no_links = request.resolve.contains(ResolveFlags::NO_SYMLINKS);
            if request.flags.contains(OFlags::NOFOLLOW) || no_links {
                return Err(Errno::LOOP);
            }
            if self.broker.on_procfs(spot.dir.as_fd())? {
                // /dev/stdout and the like: a magic link never dangles.
                let object = self.object(request.dirfd, &text, true, request.resolve)?;
                return self.existing(request, object);
            }
            self.sticky_link(&spot, &stat)?;
            let link =
                rustix::fs::readlinkat(&spot.dir, spot.bare_name(), Vec::new())?.into_bytes();
            at = if request.resolve.intersects(ResolveFlags::BENEATH | ResolveFlags::IN_ROOT) {
                text = beside(&text, &link);
                self.spot(request.dirfd, &text, request.resolve)?
            } else {
                text = super::resolve::join(&spot.dir_path, &link);
                if link.starts_with(b"/") {
                    text.clone_from(&link);
                }
                self.spot_from(&spot, &link)?
            };
        }
        Err(Errno::LOOP)
    }

    /// Makes a new file at `spot`; gives `spot` back when one appeared there meanwhile.
    fn create_at(&self, request: &Request, spot: Spot) -> Result<Result<Answer, Spot>, Errno> {
        let broker = self.broker;
        let path = spot.path();
        let verdict = self.decide_change(&path);
        let shared_memory = broker.memory.may_create(&spot.dir_path, &verdict);
        let write = Refusal::of(&verdict, Access::Write, &path, &request.path).or_else(|| {
            let closed = self.is_closed_control(spot.dir.as_fd(), &verdict);
            closed.then(|| Refusal::control(&path, &request.path))
        });
        let write = write.filter(|_| !shared_memory);
        let read =
            request.wants().contains(&Access::Read).then(|| self.decide(Access::Read, &path));
        let read =
            read.and_then(|verdict| Refusal::of(&verdict, Access::Read, &path, &request.path));
        let needs = broker.decider.directory_name(&path).map(|rule| {
            let refusal = Refusal::new(Access::Write, &path, &request.path, Some(rule));
            refusal.because(NEEDS_DIRECTORY)
        });
        let found = [write, read, needs].into_iter().flatten();
        if let Some(mut refusal) = found.reduce(|first, other| first.beside(Some(other))) {
            refusal.flags = errno::open_flags(request.flags.bits());
            return Ok(Ok(self.refuse(refusal)));
        }
        let reads = request.wants().contains(&Access::Read);
        if request.may_continue()
            && broker.kernel_holds(Access::Write, &spot.dir_path)
            && (!reads || broker.kernel_holds(Access::Read, &path))
        {
            return Ok(Ok(Answer::Continue));
        }
        self.may_act()?;
        self.assume_umask()?;
        let flags = request.flags
            | OFlags::CREATE
            // Never follows a link either, and unlike O_NOFOLLOW leaves no trace in F_GETFL.
            | OFlags::EXCL
            | OFlags::NOCTTY
            | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(request.mode);
        match rustix::fs::openat(&spot.dir, spot.bare_name(), flags, mode) {
            Ok(fd) => {
                if shared_memory && let Err(errno) = broker.memory.own_file(&fd, spot.bare_name()) {
                    spot.take_back(&fd);
                    return Err(errno);
                }
                Ok(Ok(Answer::Created(fd, request.cloexec(), Made::At(spot))))
            }
            Err(Errno::EXIST) if !request.flags.contains(OFlags::EXCL) => Ok(Err(spot)),
            Err(errno) => Err(errno),
        }
    }

    /// Refuses a mode with set-user-ID or set-group-ID bits: a file of such a mode gives the run's
    /// user away to whoever starts it outside.
    pub(super) fn refuse_setid(&self, requested: &[u8]) -> Answer {
        let refusal = Refusal::new(Access::Write, requested, requested, None);
        let refusal = refusal.because(NO_SETID);
        self.refuse_with(refusal, Errno::PERM)
    }

    fn sticky_link(&self, spot: &Spot, link: &Stat) -> Result<(), Errno> {
        super::resolve::sticky_link(self.broker, spot.dir.as_fd(), link)
    }
}

/// The access mode's bits; `O_ACCMODE` is another value in musl.
const ACCESS_MODE: u32 = 3;

/// The text `link` as it reads from where `path` stands.
fn beside(path: &[u8], link: &[u8]) -> Vec<u8> {
    if link.starts_with(b"/") {
        return link.to_vec();
    }
    let directory = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    [&path[..directory], link].concat()
}
