//! Calls that make, remove and move names.

use super::moves::Moving;
use super::report::Refusal;
use super::resolve::{Last, Object, Spot, file_type};
use super::task::Task;
use super::{Answer, Broker, Errno};
use crate::plan::TEMPORARY;
use crate::policy::{Access, Rule};
use rustix::fs::{AtFlags, FileType, Mode, RenameFlags, ResolveFlags};
use std::os::fd::AsFd;

/// A directory argument and the index of the path argument that goes with it.
type Place = (i32, usize);

/// A final name and the path as the target wrote it.
struct Name {
    spot: Spot,
    requested: Vec<u8>,
    path: Vec<u8>,
}

impl Task<'_> {
    /// Resolves a path whose last component is about to be made; `.`, `..` and `/` exist already.
    fn new_name(&self, (dirfd, path): Place) -> Result<Name, Errno> {
        self.named(dirfd, self.path(path)?, [Errno::EXIST; 3])
    }

    /// Resolves `requested` to a name. `others` are the errors for what ends in `.`, in `..`, and `/`.
    fn named(&self, dirfd: i32, requested: Vec<u8>, others: [Errno; 3]) -> Result<Name, Errno> {
        let [dot, dot_dot, root] = others;
        match self.spot(dirfd, &requested, ResolveFlags::empty())? {
            Last::Spot(spot) => Ok(Name { path: spot.path(), spot, requested }),
            Last::Dot => Err(dot),
            Last::DotDot => Err(dot_dot),
            Last::Root => Err(root),
        }
    }

    /// The refusal of writing the name, if it is refused.
    fn refused<'a>(&'a self, name: &'a Name) -> Option<Refusal<'a>> {
        let verdict = self.decide_change(&name.path);
        Refusal::of(&verdict, Access::Write, &name.path, &name.requested).or_else(|| {
            let closed = self.is_closed_control(name.spot.dir.as_fd(), &verdict);
            closed.then(|| Refusal::control(&name.path, &name.requested))
        })
    }

    /// The same for a name that will not be a directory's.
    fn refused_file<'a>(&'a self, name: &'a Name) -> Option<Refusal<'a>> {
        let rule = self.broker.decider.directory_name(&name.path);
        both(self.refused(name), rule.map(|rule| guarded(name, rule, NEEDS_DIRECTORY)))
    }

    /// The refusal of a symbolic link with this name, beside what stands against any other.
    fn refused_link<'a>(&'a self, name: &'a Name) -> Option<Refusal<'a>> {
        let (rule, message) = self.broker.link_name(&name.path)?;
        Some(guarded(name, rule, message))
    }

    /// Refuses to make a name, unless it exists: the kernel says so first.
    fn deny_new(&self, name: &Name, refusal: Refusal<'_>) -> Result<Answer, Errno> {
        match name.spot.stat() {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => Ok(self.refuse(refusal)),
            Err(errno) => Err(errno),
        }
    }

    /// Whether Landlock lets the target make and remove names there by itself.
    fn kernel_names(&self, spot: &Spot) -> bool {
        self.broker.kernel_holds(Access::Write, &spot.dir_path)
    }

    /// Whether Landlock lets the target move names and make links there, and nothing there could lose
    /// a denial by it: what may be written may well be closed to reading.
    fn kernel_moves(&self, spot: &Spot) -> bool {
        // What is listed for sockets, and where no link may stand, Landlock does not know.
        !self.broker.reads
            && !self.broker.endpoints.lists_sockets()
            && !self.broker.guards_links
            && self.kernel_names(spot)
    }

    /// From here on, the kernel is not relied upon for what stood at the name.
    fn forget(&self, name: &Name) {
        self.broker.kernel_read.forget(&name.path);
        self.broker.kernel_write.forget(&name.path);
    }

    fn assume_creator(&self) -> Result<(), Errno> {
        self.may_act()?;
        self.assume_umask()
    }

    /// mkdir(2) and mkdirat(2).
    pub(super) fn mkdir(&self, dirfd: i32, path: usize, mode: u64) -> Result<Answer, Errno> {
        let text = self.path(path)?;
        if let Some(answer) = self.held_names(dirfd, &text) {
            return Ok(answer);
        }
        let name = self.named(dirfd, text, [Errno::EXIST; 3])?;
        if let Some(refusal) = self.refused(&name) {
            return self.deny_new(&name, refusal);
        }
        if self.kernel_names(&name.spot) {
            return Ok(Answer::Continue);
        }
        self.assume_creator()?;
        let _alone = self.between_moves(&name.spot)?;
        let mode = Mode::from_raw_mode(mode as u32 & 0o1777);
        Ok(rustix::fs::mkdirat(&name.spot.dir, name.spot.name.as_slice(), mode).into())
    }

    /// mknod(2) and mknodat(2). Device nodes are never made.
    pub(super) fn mknod(
        &self,
        dirfd: i32,
        path: usize,
        mode: u64,
        device: u64,
    ) -> Result<Answer, Errno> {
        let name = self.new_name((dirfd, path))?;
        let kind = match mode as u32 & libc::S_IFMT {
            0 => FileType::RegularFile,
            kind => FileType::from_raw_mode(kind),
        };
        let is_device = matches!(kind, FileType::CharacterDevice | FileType::BlockDevice);
        let never = match mode & 0o6000 {
            0 if is_device => Some("device nodes cannot be made"),
            0 => None,
            _ => Some(NO_SETID),
        };
        if let Some(refusal) = self.refused_file(&name) {
            let refusal = match never {
                Some(why) => refusal.because(why),
                None => refusal,
            };
            return self.deny_new(&name, refusal);
        }
        if mode & 0o6000 != 0 {
            return Ok(self.refuse_setid(&name.requested));
        }
        match kind {
            FileType::RegularFile | FileType::Fifo | FileType::Socket => {}
            FileType::CharacterDevice | FileType::BlockDevice => {
                if name.spot.stat().is_ok() {
                    return Err(Errno::EXIST);
                }
                let refusal = Refusal::new(Access::Write, &name.path, &name.requested, None);
                let refusal = refusal.because("device nodes cannot be made");
                return Ok(self.refuse_with(refusal, Errno::PERM));
            }
            // As mknod(2) says of directories and of types that do not exist.
            FileType::Directory => return Err(Errno::PERM),
            _ => return Err(Errno::INVAL),
        }
        if self.kernel_names(&name.spot) {
            return Ok(Answer::Continue);
        }
        self.assume_creator()?;
        let mode = Mode::from_raw_mode(mode as u32 & 0o1777);
        Ok(rustix::fs::mknodat(&name.spot.dir, name.spot.name.as_slice(), kind, mode, device)
            .into())
    }

    /// symlink(2) and symlinkat(2).
    pub(super) fn symlink(&self, text: usize, dirfd: i32, path: usize) -> Result<Answer, Errno> {
        let text = self.path(text)?;
        if text.is_empty() {
            return Err(Errno::NOENT);
        }
        self.say("text", || String::from_utf8(text.clone()).ok());
        let name = self.new_name((dirfd, path))?;
        if let Some(mut refusal) = both(self.refused(&name), self.refused_link(&name)) {
            refusal.link = true;
            return self.deny_new(&name, refusal);
        }
        if self.kernel_moves(&name.spot) {
            return Ok(Answer::Continue);
        }
        self.assume_creator()?;
        let _alone = self.between_moves(&name.spot)?;
        Ok(rustix::fs::symlinkat(text.as_slice(), &name.spot.dir, name.spot.name.as_slice()).into())
    }

    /// link(2) and linkat(2). A new name must not open what the old one does not: the object has to be
    /// writable, and readable, by the name that it has.
    pub(super) fn link(&self, old: Place, new: Place, flags: i32) -> Result<Answer, Errno> {
        if flags & !(libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH) != 0 {
            return Err(Errno::INVAL);
        }
        let requested = self.path(old.1)?;
        let object = if requested.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
            self.object_of(old.0)?
        } else {
            let follow = flags & libc::AT_SYMLINK_FOLLOW != 0;
            self.object(old.0, &requested, follow, ResolveFlags::empty())?
        };
        let name = self.new_name(new)?;
        let broker = self.broker;
        let names = Some([object.path.as_slice(), name.path.as_slice()]);
        self.note(&object.path);
        self.note(&name.path);
        let shared_memory = {
            let verdict = broker.decide(Access::Write, &name.path);
            broker.memory.may_create(&name.spot.dir_path, &verdict)
                && broker.memory.owns_file(&rustix::fs::fstat(&object.fd)?)
        };
        if !shared_memory {
            let link = file_type(&rustix::fs::fstat(&object.fd)?) == FileType::Symlink;
            let old = match object.is_anonymous() {
                true => None,
                false => self.object_refused(&object, &requested)?,
            };
            // A second name outlives what an answer is about, and so does what is reached by it: nobody
            // is asked about the object. Where that is refused, nor about the name.
            let askable = old.is_none();
            let socket = self.socket_refused(&object, &name)?;
            let stands_for = self.refused_link(&name).filter(|_| link);
            let found = [self.refused_file(&name), old, socket, stands_for];
            if let Some(mut refusal) = found.into_iter().fold(None, both) {
                refusal.link = link;
                refusal.names = names;
                refusal.askable = refusal.askable && askable && self.is_at_its_name(&object);
                return self.deny_new(&name, refusal);
            }
            // Landlock wants the right to move names in the directories on both sides.
            let held = broker.kernel_holds(Access::Write, parent(&object.path));
            if held && self.kernel_moves(&name.spot) && !object.is_anonymous() {
                return Ok(Answer::Continue);
            }
        }
        self.may_act()?;
        let _alone = self.between_moves(&name.spot)?;
        let from = super::resolve::fd_name(std::os::fd::AsFd::as_fd(&object.fd));
        let to = name.spot.name.as_slice();
        let done =
            rustix::fs::linkat(&broker.own_fds, from, &name.spot.dir, to, AtFlags::SYMLINK_FOLLOW);
        Ok(done.into())
    }

    /// The refusal of giving the object another name, if it is refused.
    fn object_refused<'a>(
        &'a self,
        object: &'a Object,
        requested: &'a [u8],
    ) -> Result<Option<Refusal<'a>>, Errno> {
        let mut found = None;
        for access in [Access::Write, Access::Read] {
            let path = object.named()?;
            let verdict = match access {
                Access::Read => self.decide(access, path),
                Access::Write => self.decide_change(path),
            };
            found = both(found, self.refused_object(&verdict, (access, object), path, requested)?);
        }
        Ok(found)
    }

    /// unlink(2), rmdir(2) and unlinkat(2).
    pub(super) fn unlink(&self, dirfd: i32, path: usize, flags: i32) -> Result<Answer, Errno> {
        if flags & !libc::AT_REMOVEDIR != 0 {
            return Err(Errno::INVAL);
        }
        let text = self.path(path)?;
        if let Some(answer) = self.held_names(dirfd, &text) {
            return Ok(answer);
        }
        let directory = flags & libc::AT_REMOVEDIR != 0;
        let name = if directory {
            self.named(dirfd, text, [Errno::INVAL, Errno::NOTEMPTY, Errno::BUSY])?
        } else {
            self.named(dirfd, text, [Errno::ISDIR; 3])?
        };
        let mut own_memory = None;
        if let Some(mut refusal) = self.refused(&name) {
            let stat = name.spot.stat()?;
            refusal.link = file_type(&stat) == FileType::Symlink;
            let is_directory = file_type(&stat) == FileType::Directory;
            match (directory, is_directory) {
                (true, false) => return Err(Errno::NOTDIR),
                (false, true) => return Err(Errno::ISDIR),
                _ => {}
            }
            if refusal.rule.is_some() || !self.broker.memory.owns_file(&stat) {
                return Ok(self.refuse(refusal));
            }
            own_memory = Some(stat);
        } else if self.kernel_names(&name.spot) {
            return Ok(Answer::Continue);
        }
        self.may_act()?;
        self.forget(&name);
        let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let removed = rustix::fs::unlinkat(&name.spot.dir, name.spot.name.as_slice(), flags);
        if let (Ok(()), Some(stat)) = (removed, own_memory) {
            self.broker.memory.forget_file(&stat);
        }
        Ok(removed.into())
    }

    /// rename(2), renameat(2) and renameat2(2).
    pub(super) fn rename(&self, old: Place, new: Place, flags: u32) -> Result<Answer, Errno> {
        const KNOWN: u32 = libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE | libc::RENAME_WHITEOUT;
        if flags & !KNOWN != 0
            || (flags & libc::RENAME_EXCHANGE != 0 && flags != libc::RENAME_EXCHANGE)
        {
            return Err(Errno::INVAL);
        }
        if flags & libc::RENAME_WHITEOUT != 0 {
            // A whiteout is a device node.
            return Err(Errno::PERM);
        }
        let exchange = flags & libc::RENAME_EXCHANGE != 0;
        let noreplace = flags & libc::RENAME_NOREPLACE != 0;
        let target_is_special = if noreplace { Errno::EXIST } else { Errno::BUSY };
        let (old, new) = ((old.0, self.path(old.1)?), (new.0, self.path(new.1)?));
        let from = self.named(old.0, old.1, [Errno::BUSY; 3])?;
        let to = self.named(new.0, new.1, [target_is_special; 3])?;
        self.note(&from.path);
        self.note(&to.path);
        // The move is judged by what stands at the names, directory or file, which nothing else may change
        // meanwhile. Where a name is guarded, the kernel grants nothing to happen without us.
        let [(mount, device), (other, other_device)] = [from.spot.mount()?, to.spot.mount()?];
        if mount != other {
            // As the kernel says before it looks at the names: to wait for both would tie a file system that
            // does not answer to one that does.
            return Err(Errno::XDEV);
        }
        let _alone = self.begin_move([device, other_device])?;
        let moved = from.spot.stat()?;
        let replaced = match to.spot.stat() {
            Ok(stat) if noreplace => {
                let _ = stat;
                return Err(Errno::EXIST);
            }
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) if exchange => return Err(Errno::NOENT),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(errno),
        };
        let shared_memory = self.broker.memory.owns_file(&moved)
            && from.spot.dir_path == to.spot.dir_path
            && replaced.is_none_or(|stat| self.broker.memory.owns_file(&stat))
            && self.broker.memory.is_home(&from.spot.dir_path)
            && [&from, &to]
                .iter()
                .all(|name| self.refused(name).is_none_or(|refusal| refusal.rule.is_none()));
        if !shared_memory {
            let kind = |stat: &rustix::fs::Stat| file_type(stat);
            let refusal = self.refused_move(&from, &to, kind(&moved))?;
            let other = match &replaced {
                Some(replaced) if exchange => self.refused_move(&to, &from, kind(replaced))?,
                _ => None,
            };
            let loose = || {
                self.is_loose(&from, &to, kind(&moved))
                    || exchange && replaced.is_some_and(|old| self.is_loose(&to, &from, kind(&old)))
            };
            if let Some(mut refusal) = both(refusal, other) {
                let link = |stat: &rustix::fs::Stat| kind(stat) == FileType::Symlink;
                let replaces = exchange || refusal.path == to.path;
                refusal.link = link(&moved) || replaces && replaced.as_ref().is_some_and(link);
                refusal.names = Some([&from.path, &to.path]);
                // No answer would help.
                refusal.askable = refusal.askable && !loose();
                return Ok(self.refuse(refusal));
            }
            if self.kernel_moves(&from.spot) && self.kernel_moves(&to.spot) {
                return Ok(Answer::Continue);
            }
            if loose() {
                return Err(Errno::XDEV);
            }
        }
        self.may_act()?;
        let directory = [Some(moved), replaced]
            .into_iter()
            .flatten()
            .any(|stat| file_type(&stat) == FileType::Directory);
        let _moving = match &self.broker.queries {
            Some(queries) if directory => match queries.grants.start_move(&from.path, &to.path) {
                Some(moving) => Some(moving),
                None => {
                    let mut refusal =
                        Refusal::new(Access::Write, &from.path, &from.requested, None);
                    refusal.names = Some([&from.path, &to.path]);
                    return Ok(self.refuse(refusal.because(SETTLED)));
                }
            },
            _ => None,
        };
        self.forget(&from);
        self.forget(&to);
        Ok(rustix::fs::renameat_with(
            &from.spot.dir,
            from.spot.name.as_slice(),
            &to.spot.dir,
            to.spot.name.as_slice(),
            RenameFlags::from_bits_retain(flags),
        )
        .into())
    }

    /// Begins a move between directories on these devices, as soon as nothing else is being moved there.
    fn begin_move(&self, devices: [u64; 2]) -> Result<Moving<'_>, Errno> {
        let leave = || self.broker.pool.place_to_wait(self.helped).map_err(|_| Errno::BUSY);
        self.broker.moves.begin(devices, leave)
    }

    /// Holds moves off while a directory, or a link, is made at the name: one that was judged by what
    /// stood there would take it along.
    fn between_moves(&self, spot: &Spot) -> Result<Moving<'_>, Errno> {
        let (_, device) = spot.mount()?;
        self.begin_move([device, device])
    }

    /// Whether the kernel alone could put something else in the place of what is moved, of a kind that may
    /// not be moved there. Then the caller has to copy, as between two file systems. Who allowed a move by an
    /// answer has allowed it as it is.
    fn is_loose(&self, from: &Name, to: &Name, kind: FileType) -> bool {
        let answered = |name: &Name| !self.broker.decide_change(&name.path).is_allowed();
        if !self.kernel_names(&from.spot) || answered(from) || answered(to) {
            return false;
        }
        // One that is made meanwhile is empty: no socket comes with it.
        let directory = || self.denies_directory(from, to).is_some();
        let link = || self.broker.link_name(&to.path).is_some();
        kind != FileType::Directory && directory()
            || kind != FileType::Symlink && self.kernel_moves(&from.spot) && link()
    }

    /// Whether the name goes with the run's temporary directory, which no denial holds the launcher from
    /// removing.
    fn is_temporary(&self, name: &Name) -> bool {
        let verdict = self.broker.decider.decide(Access::Write, &name.path);
        verdict.rule().is_some_and(|rule| rule.origin.is_built_in() && rule.origin.key == TEMPORARY)
    }

    /// The rule that keeps a directory from being moved so, and why.
    fn guarded_directory(&self, from: &Name, to: &Name) -> Option<(&Rule, &'static str)> {
        self.denies_directory(from, to).or_else(|| {
            let rule = self.broker.endpoints.directory_move(&from.path, &to.path)?;
            Some((rule, MOVES_RULE))
        })
    }

    /// The same of the rules about files.
    fn denies_directory(&self, from: &Name, to: &Name) -> Option<(&Rule, &'static str)> {
        let decider = &self.broker.decider;
        if let Some(rule) = decider.directory_move(&from.path, &to.path) {
            return Some((rule, MOVES_RULE));
        }
        let into = self.is_temporary(to) && !self.is_temporary(from);
        let rule = decider.write_denial_below(&from.path).filter(|_| into)?;
        Some((rule, "what the rule is about would be removed with TMPDIR"))
    }

    /// The refusal of moving what stands at `from` to `to`, if either name, or a name below, is denied.
    fn refused_move<'a>(
        &'a self,
        from: &'a Name,
        to: &'a Name,
        kind: FileType,
    ) -> Result<Option<Refusal<'a>>, Errno> {
        let decider = &self.broker.decider;
        let guard = match kind {
            FileType::Directory => self.guarded_directory(from, to),
            FileType::Symlink => self.broker.link_name(&to.path),
            _ => decider.directory_name(&to.path).map(|rule| (rule, NEEDS_DIRECTORY)),
        };
        let mut found = None;
        for name in [from, to] {
            found = both(found, self.refused(name));
        }
        // An unreadable object must not get a readable name. Nor the other way about: Landlock's rules
        // go with an object, and a readable one would stay so, with all that comes to be in it.
        for name in [from, to] {
            let verdict = self.decide(Access::Read, &name.path);
            let unreadable = Refusal::of(&verdict, Access::Read, &name.path, &name.requested);
            found = both(found, unreadable);
        }
        // An answer about the names would not help where what is below them would change.
        if let Some(refusal) = &mut found {
            refusal.askable &= guard.is_none() || kind != FileType::Directory;
        }
        if !self.broker.linked.is_empty() {
            let object = self.object_at(&from.spot)?;
            for access in [Access::Write, Access::Read] {
                let rule = self.linked(&object, access)?;
                let linked =
                    rule.map(|rule| Refusal::linked(access, &from.path, &from.requested, rule));
                found = both(found, linked);
            }
        }
        if kind == FileType::Socket {
            found = both(found, self.socket_refused(&self.object_at(&from.spot)?, to)?);
        }
        Ok(both(found, guard.map(|(rule, message)| guarded(from, rule, message))))
    }
}

impl Task<'_> {
    /// The refusal of giving the object the name `to`, where it is a socket of a process outside that
    /// could be connected to by that name.
    fn socket_refused<'a>(
        &'a self,
        object: &Object,
        to: &'a Name,
    ) -> Result<Option<Refusal<'a>>, Errno> {
        // No list, no cost.
        let Some(rule) = self.broker.endpoints.socket_move(object.named()?, &to.path) else {
            return Ok(None);
        };
        let socket = file_type(&rustix::fs::fstat(&object.fd)?) == FileType::Socket;
        if !socket || self.broker.sockets.owns(&object.fd, b"")? {
            return Ok(None);
        }
        Ok(Some(guarded(to, rule, "a socket of another process could be connected to there")))
    }
}

impl Broker {
    /// The rule that no symbolic link may stand at `path` for, and why.
    fn link_name(&self, path: &[u8]) -> Option<(&Rule, &'static str)> {
        let denied = self.decider.link_name(path);
        let denied = denied.map(|r| (r, "a link here would stand for what the rule denies"));
        denied.or_else(|| {
            let granted =
                self.decider.grant_name(path).or_else(|| self.endpoints.grant_name(path))?;
            Some((granted, "a link here would lead what the rule grants elsewhere in the next run"))
        })
    }
}

/// Why a directory stays where it is while somebody is asked, or was.
const SETTLED: &str = "an answer to a query is about something in this directory";
/// Why a file is refused that would run as its owner or group.
pub const NO_SETID: &str = "set-user-ID and set-group-ID files cannot be made";
/// Why a directory is not moved.
const MOVES_RULE: &str = "moving this directory would move what the rule is about";
/// Why something other than a directory is refused.
pub const NEEDS_DIRECTORY: &str = "the rule is about what a directory of this name holds";

/// The refusal of an operation on a name that a rule further down depends on.
fn guarded<'a>(name: &'a Name, rule: &'a Rule, message: &str) -> Refusal<'a> {
    Refusal::new(Access::Write, &name.path, &name.requested, Some(rule)).because(message)
}

/// The first of two refusals, with what the other says.
fn both<'a>(first: Option<Refusal<'a>>, other: Option<Refusal<'a>>) -> Option<Refusal<'a>> {
    match first {
        Some(first) => Some(first.beside(other)),
        None => other,
    }
}

/// The directory of a path.
pub(super) fn parent(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|&byte| byte == b'/') {
        None | Some(0) => b"/",
        Some(at) => &path[..at],
    }
}
