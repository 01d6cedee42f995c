//! The least that the kernel's mechanisms cost: a Landlock domain and a supervisor that does what cannot
//! be left out, and nothing else. Not a sandbox: it refuses nothing.
//!
//! `speed --inner least MODE WORDS...` runs the load WORDS so. In mode `held` there is a domain and a filter
//! without notifications; in `reported` opens are notified, their path is read and looked up, and the kernel goes
//! on; in `done` opens and removals are done by the supervisor. `speed --inner relay PORT` is the least of a relay.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::thread;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr,
};
use landstrip::linux::sys::{memory, seccomp};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, open, openat2, unlinkat};
use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, pipe, splice};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// Starts the load as a child of this process and answers its notifications.
pub fn supervise(mode: &str, words: &[&str]) -> io::Result<()> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--inner", "least-target", mode])
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let pipes = child.stdin.take().zip(child.stdout.take());
    let (mut stdin, stdout) = pipes.ok_or_else(|| io::Error::other("no pipes"))?;
    let mut stdout = BufReader::new(stdout);
    let mut line = String::new();
    stdout.read_line(&mut line)?;
    if mode != "held" {
        let number = line.trim().parse().map_err(io::Error::other)?;
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        let listener = pidfd_getfd(process, number, PidfdGetfdFlags::empty())?;
        seccomp::set_sync_wake_up(listener.as_fd());
        let does = mode == "done";
        // It ends with this process.
        std::thread::spawn(move || serve(&listener, does));
    }
    stdin.write_all(b"\n")?;
    let mut figure = String::new();
    stdout.read_to_string(&mut figure)?;
    if !child.wait()?.success() {
        return Err(io::Error::other("the load failed"));
    }
    io::stdout().write_all(figure.as_bytes())
}

/// Restricts this process, says the number of its listener, and waits for the word to go on.
pub fn restrict(mode: &str) -> io::Result<()> {
    let domains = if mode == "held" { 1 } else { 2 };
    for _ in 0..domains {
        enter_domain().map_err(io::Error::other)?;
    }
    rustix::thread::set_no_new_privs(true)?;
    let line = if mode == "held" {
        seccomp::install_plain(&filter(&[]))?;
        String::new()
    } else {
        let calls = [libc::SYS_openat, libc::SYS_unlinkat];
        let notified = if mode == "done" { &calls[..] } else { &calls[..1] };
        seccomp::install_with_listener(&filter(notified))?.to_string()
    };
    writeln!(io::stdout(), "{line}")?;
    io::stdin().read_exact(&mut [0])
}

/// A domain that grants everything.
fn enter_domain() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let all = AccessFs::from_all(ABI::V2);
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(all)?
        .create()?
        .add_rule(PathBeneath::new(PathFd::new("/")?, all))?
        .restrict_self()?;
    Ok(())
}

/// Notifies these calls, allows the others.
fn filter(notified: &[libc::c_long]) -> Vec<seccomp::Instruction> {
    let statement = |code: u32, k: u32| seccomp::Instruction { code: code as u16, jt: 0, jf: 0, k };
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for &number in notified {
        let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        program.push(seccomp::Instruction { code, jt: 0, jf: 1, k: number as u32 });
        program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_USER_NOTIF));
    }
    program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    program
}

/// Answers until the target is gone.
fn serve(listener: &OwnedFd, does: bool) {
    while let Ok(call) = seccomp::receive(listener.as_fd()) {
        let answered = answer(listener, &call, does);
        let id = call.id();
        let _target_may_be_gone = match answered {
            Ok(None) => seccomp::answer_continue(listener.as_fd(), id),
            Ok(Some(value)) => seccomp::answer_value(listener.as_fd(), id, value),
            Err(errno) => seccomp::answer_error(listener.as_fd(), id, errno.raw_os_error()),
        };
    }
}

/// The value to answer with, or none to let the kernel go on. Paths are relative to this directory, which is
/// the target's: a real supervisor has to find that out.
fn answer(
    listener: &OwnedFd,
    call: &seccomp::Notification,
    does: bool,
) -> Result<Option<i64>, Errno> {
    let opens = call.nr() == libc::SYS_openat;
    let mut path = Vec::with_capacity(256);
    memory::read_string(call.tid(), call.arg(1), 4096, &mut path)?;
    let plain = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    if !does {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        openat2(CWD, path.as_slice(), flags, Mode::empty(), plain)?;
        return Ok(None);
    }
    if !seccomp::id_valid(listener.as_fd(), call.id()) {
        return Err(Errno::NOENT);
    }
    if opens {
        let flags = OFlags::from_bits_retain(call.arg(2) as u32) | OFlags::CLOEXEC;
        let mode = if flags.contains(OFlags::CREATE) { call.arg(3) as u32 } else { 0 };
        let file = openat2(CWD, path.as_slice(), flags, Mode::from_raw_mode(mode), plain)?;
        return seccomp::add_fd(listener.as_fd(), call.id(), file.as_fd(), true).map(Some);
    }
    let (directory, name) = match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..=at], &path[at + 1..]),
        None => (&b"."[..], &path[..]),
    };
    let directory = open(directory, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    unlinkat(&directory, name, AtFlags::empty())?;
    Ok(Some(0))
}

/// Says at which port of loopback it listens, and joins each connection with one to `port`: a thread for each way,
/// which waits in splice(2) and nowhere else.
pub fn relay(port: &str) -> io::Result<()> {
    let port: u16 = port.parse().map_err(io::Error::other)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    writeln!(io::stdout(), "{}", listener.local_addr()?.port())?;
    loop {
        let (inner, _) = listener.accept()?;
        let outer = TcpStream::connect(("127.0.0.1", port))?;
        for (from, to) in [(&inner, &outer), (&outer, &inner)] {
            to.set_nodelay(true)?;
            let (from, to) = (from.try_clone()?, to.try_clone()?);
            thread::spawn(move || {
                // However it ends, the other end is to see that.
                let _ = pump(&from, &to);
                let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
            });
        }
    }
}

fn pump(from: &TcpStream, to: &TcpStream) -> io::Result<()> {
    const ROOM: usize = 1 << 20;
    let (reader, writer) = pipe()?;
    fcntl_setpipe_size(&writer, ROOM)?;
    loop {
        let mut left = splice(from, None, &writer, None, ROOM, SpliceFlags::MOVE)?;
        if left == 0 {
            return Ok(());
        }
        while left > 0 {
            left -= splice(&reader, None, to, None, left, SpliceFlags::MOVE)?;
        }
    }
}
