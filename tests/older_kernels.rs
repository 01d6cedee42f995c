//! On kernels before Linux 6.12, whose Landlock keeps no signals inside, and before 6.10, where it holds no requests on
//! devices.
//!
//! strace(1) has the launcher be told of an older version of Landlock. It then makes rulesets without what came later,
//! and holds the rest by itself, as it does there.
#![cfg(target_os = "linux")]

mod support;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use support::attack::{Attack, Stage, attacks};
use support::have::have;
use support::pty::Terminal;
use support::{Bed, PATIENCE, ends, finish, launcher, on_landlock, wait};

/// The newest version without scopes, and the newest one without requests on devices.
const NO_SCOPES: i64 = 5;
const NO_IOCTL: i64 = 4;

fn ready(what: &str) -> bool {
    have(what, &["cmd:strace", "cmd:python3", "cmd:bash"])
}

fn policy() -> Value {
    json!({"filesystem": {"allowWrite": ["{in}"]}})
}

/// Runs a program bare and in a sandbox.
fn both(abi: i64, program: &[&str]) -> (support::Run, support::Run) {
    let bed = Bed::new(&[]);
    let mut bare = bed.command(program[0].as_ref());
    bare.args(&program[1..]);
    let bare = finish(bare, &bed.root().join("none"));
    (bare, on_landlock(abi, || bed.launch(&policy(), &[], program)))
}

fn same(abi: i64, program: &[&str]) {
    let (bare, boxed) = both(abi, program);
    assert_eq!(bare.code, Some(0), "{abi} {program:?}: {bare:?}");
    assert_eq!((bare.lines, bare.code), (boxed.lines, boxed.code), "{abi} {}", boxed.stderr);
}

/// A process outside, until this is dropped.
struct Outside(Child);

impl Outside {
    fn new() -> Outside {
        Outside(Command::new("sleep").arg("1000").spawn().expect("sleep"))
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().expect("its status").is_none()
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn lives(pid: u32) -> bool {
    !ends(pid, Duration::ZERO)
}

#[test]
fn nothing_is_refused() {
    if !ready("older kernels") {
        return;
    }
    let bed = Bed::new(&[]);
    for abi in 2..=NO_SCOPES {
        let run = on_landlock(abi, || bed.launch(&policy(), &[], &["true"]));
        assert_eq!(run.code, Some(0), "{abi}: {run:?}");
        let command = on_landlock(abi, launcher);
        let mut learn = bed.command(command[0].as_ref());
        learn
            .args(&command[1..])
            .args(["learn", "-o"])
            .arg(bed.root().join(format!("learned-{abi}")));
        learn.args(["--", "true"]);
        let learn = finish(learn, &bed.root().join("none"));
        assert_eq!(learn.code, Some(0), "{abi}: {learn:?}");
        let mut plan = bed.command(command[0].as_ref());
        plan.args(&command[1..]).args(["policy", "plan", "--format", "json", "-p"]);
        let plan = finish(
            {
                plan.arg(bed.policy(&policy()));
                plan
            },
            &bed.root().join("none"),
        );
        let plan: Value = serde_json::from_str(&plan.lines.join("\n")).expect("a plan");
        assert_eq!(plan["host"]["landlock_abi"], abi.min(support::have::landlock()));
        let held = (&plan["signals"], &plan["devices"], &plan["shortfalls"]);
        assert_eq!(held, (&json!(true), &json!(abi <= NO_IOCTL), &json!([])), "{plan}");
    }
}

/// Every call that sends a signal, and every one that has the kernel send some.
#[test]
fn processes_outside_get_no_signals() {
    if !ready("older kernels") {
        return;
    }
    const SOCKETS: &[&str] = &["socketpair a b SOCK_STREAM"];
    let table = [
        ("kill 0", "kill {victim} 0", &[][..]),
        ("kill", "kill {victim} SIGURG", &[]),
        ("kill with high bits", "kill 0x100000000|{victim} SIGURG", &[]),
        ("tkill", "tkill {victim} SIGURG", &[]),
        ("tgkill", "tgkill {victim} {victim} SIGURG", &[]),
        (
            "rt_sigqueueinfo",
            "rt_sigqueueinfo {victim} SIGURG i:0,4294967295,0,0,0,0,0,0,0,0,0,0,0,0,0,0",
            &[],
        ),
        ("pidfd_send_signal", "do p=pidfd_open {victim} 0 ; pidfd_send_signal $p SIGURG 0 0", &[]),
        (
            "pidfd_send_signal by procfs",
            "do p=openat AT_FDCWD \"/proc/{victim} O_RDONLY|O_DIRECTORY 0 ; pidfd_send_signal $p SIGURG 0 0",
            &[],
        ),
        ("the launcher", "kill $ppid SIGCONT", &[]),
        ("F_SETOWN", "fcntl $a F_SETOWN {victim}", SOCKETS),
        ("F_SETOWN with a high bit", "fcntl $a 0x100000008 {victim}", SOCKETS),
        ("F_SETOWN of a group", "fcntl $a F_SETOWN -{group}", SOCKETS),
        // F_OWNER_PID is 1.
        ("F_SETOWN_EX", "fcntl $a 15 i:{own_ex}", SOCKETS),
        ("FIOSETOWN", "ioctl $a 0x8901 i:{victim}", SOCKETS),
        ("SIOCSPGRP", "ioctl $a 0x8902 i:{victim}", SOCKETS),
    ];
    let group = rustix::process::getpgrp().as_raw_nonzero().get().to_string();
    for abi in [NO_SCOPES, NO_IOCTL] {
        let mut failures = Vec::new();
        for (name, op, prepare) in table {
            let mut victim = Outside::new();
            let id = victim.0.id();
            let owner = (u64::from(id) << 32 | 1).to_string();
            let words =
                [("{victim}", id.to_string()), ("{group}", group.clone()), ("{own_ex}", owner)];
            let attack = Attack::new(name, op).quiet().prepare(prepare).error("EPERM|EBADF");
            let stage =
                Stage { policy: policy(), setup: &[], guarded: &[], target: "", words: &words };
            let held = std::panic::catch_unwind(|| on_landlock(abi, || attacks(&stage, &[attack])));
            on_landlock(abi, || ()); // a panic left it set
            if held.is_err() || !victim.lives() {
                failures.push(name);
            }
        }
        assert!(failures.is_empty(), "{abi}: {failures:?}; each one's reason is above");
    }
}

/// A terminal tells its foreground group of input, by SIGIO or any other signal: with one of the run's own the launcher,
/// and who is started beside it, would be killed.
#[test]
fn a_terminal_signals_nobody_outside() {
    if !ready("older kernels") {
        return;
    }
    let program = "import fcntl, os, struct, sys
SETSIG, FIOASYNC = 10, 0x5452
def refused(call, *args):
    try: call(*args)
    except PermissionError: return 1
    return 0
fcntl.fcntl(0, SETSIG, 9)
n = refused(fcntl.fcntl, 0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
n += refused(fcntl.ioctl, 0, FIOASYNC, struct.pack('i', 1))
print('refused', n, flush=True)
print('read', sys.stdin.readline(), flush=True)
sys.stdin.readline()";
    for boxed in [false, true] {
        let bed = Bed::new(&[]);
        std::fs::write(bed.root().join("in/program.py"), program).expect("write");
        let policy = bed.policy(&policy()).display().to_string();
        let runner = on_landlock(NO_SCOPES, support::runner).join(" ");
        let run = if boxed { format!("{runner} -p {policy} --") } else { String::new() };
        let script = format!("sleep 1000 & echo outside $!; {run} python3 program.py");
        let mut terminal = Terminal::start(&bed, &["sh", "-c", &script]);
        terminal.expect("outside ");
        let outside: u32 = terminal.line().trim().parse().expect("a pid");
        terminal.expect("refused ");
        assert_eq!(terminal.line().trim(), if boxed { "2" } else { "0" });
        terminal.write("line\n");
        if boxed {
            terminal.expect("read line");
            assert!(lives(outside), "it was signalled");
            terminal.write("end\n");
            terminal.ends_with(0);
        }
        // In the end the terminal hangs up.
        assert!(ends(outside, PATIENCE), "the control");
    }
}

/// What signals do inside is the same as without a sandbox.
#[test]
fn processes_inside_are_signalled() {
    if !ready("older kernels") {
        return;
    }
    let shell = "
sleep 1000 & kill -0 $! && kill -STOP $! && kill -CONT $! && kill $!; wait $!; echo wait $?
(trap 'echo got; exit 5' TERM; kill $BASHPID; exit 1); echo trap $?
bash -c 'kill -SEGV $$' 2> /dev/null; echo segv $?
timeout 0.1 sleep 1000; echo timeout $?
kill -0 4194305 2> /dev/null; echo nobody $?
set -m
sleep 1000 & kill %1; wait %1 2> /dev/null; echo job $?
sh -c 'sleep 1000 & sleep 1000 & wait' & kill -KILL -- -$!; wait $! 2> /dev/null; echo group $?
sleep 1000 | sleep 1000 & kill -STOP %%; kill -CONT %%; kill %%; wait $! 2> /dev/null; echo pipeline $?
set +m
";
    let python = "
import ctypes, errno, fcntl, os, select, signal, socket, struct, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def call(name, number, *args):
    got = libc.syscall(number, *args)
    print(name, 'ok' if got == 0 else errno.errorcode[ctypes.get_errno()])
KILL, TKILL, TGKILL, QUEUE, TGQUEUE, PIDFD = 62, 200, 234, 129, 297, 424
if os.uname().machine == 'aarch64':
    KILL, TKILL, TGKILL, QUEUE, TGQUEUE = 129, 130, 131, 138, 240
got = []
signal.signal(signal.SIGUSR1, lambda *_: got.append(threading.get_ident()))
signal.raise_signal(signal.SIGUSR1)
os.kill(os.getpid(), signal.SIGUSR1)
signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
call('tkill', TKILL, threading.get_native_id(), signal.SIGUSR1)
call('tgkill', TGKILL, os.getpid(), threading.get_native_id(), signal.SIGUSR1)
print('own', len(got))
# A thread, from the first one and from itself; and the first one, from a thread.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
def other():
    tids.append(threading.get_native_id())
    ready.set()
    taken = [signal.sigwait([signal.SIGUSR2])]
    sent.wait()
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR2)
    taken.append(signal.sigwait([signal.SIGUSR2]))
    print('thread', taken)
    call('first', TKILL, os.getpid(), signal.SIGUSR2)
    call('by a thread of it', KILL, tids[0], 0)
tids, ready, sent = [], threading.Event(), threading.Event()
thread = threading.Thread(target=other)
thread.start(); ready.wait()
call('thread', TKILL, tids[0], signal.SIGUSR2)
sent.set(); thread.join()
print('first', signal.sigwait([signal.SIGUSR2]) == signal.SIGUSR2)
# Another process.
def child(sigs, work):
    r, w = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, sigs)
    pid = os.fork()
    if pid == 0:
        os.close(r)
        os.write(w, b'.')
        for _ in sigs:
            info = signal.sigwaitinfo(sigs)
            os.write(w, f'{info.si_signo} {info.si_code} '.encode())
        os._exit(0)
    os.close(w)
    os.read(r, 1)
    work(pid)
    text = b''
    while part := os.read(r, 100): text += part
    print(text.decode(), os.waitpid(pid, 0)[1])
info = struct.pack('iii', 0, 0, -1) + bytes(116)
child([40], lambda pid: call('queue', QUEUE, pid, 40, info))
child([10], lambda pid: call('kill', KILL, pid, 10))
forged = struct.pack('iii', 10, 0, 0) + bytes(116)
def more(pid):
    call('forged', QUEUE, pid, 10, forged)
    call('by tkill', QUEUE, pid, 10, struct.pack('iii', 10, 0, -6) + bytes(116))
    call('nowhere', QUEUE, pid, 10, 1)
    call('65', KILL, pid, 65)
    call('-1', KILL, pid, -1)
    fd = os.pidfd_open(pid)
    call('flags', PIDFD, fd, 10, None, 8)
    signal.pidfd_send_signal(fd, 10)
    call('another group', TGKILL, pid, os.getpid(), 0)
    call('0', TGKILL, 0, 0, 0)
child([10], more)
child([12], lambda pid: call('tgkill', TGKILL, pid, pid, 12))
child([12], lambda pid: call('tkill', TKILL, pid, 12))
call('no descriptor', PIDFD, 1000, 10, None, 0)
call('no pidfd', PIDFD, 1, 10, None, 0)
call('nobody', KILL, 4194305, 0)
call('no group', KILL, -4194305, 0)
call('minimum', KILL, -2147483648, 0)
call('itself', QUEUE, os.getpid(), 10, forged)
call('own threads', TGQUEUE, os.getpid(), threading.get_native_id(), 10, forged)
# One that has ended, and one that was waited for.
pid = os.fork()
if pid == 0: os._exit(0)
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
fd = os.pidfd_open(pid)
call('ended', KILL, pid, 0)
os.waitpid(pid, 0)
call('gone', PIDFD, fd, 0, None, 0)
# A process whose first thread has ended, and one that its parent left.
r, w = os.pipe()
pid = os.fork()
if pid == 0:
    def stay():
        while open(f'/proc/{os.getpid()}/stat').read().rsplit(')')[1].split()[0] != 'Z': pass
        os.write(w, b'.')
        time.sleep(1000)
    threading.Thread(target=stay).start()
    libc.pthread_exit(None)
os.read(r, 1)
call('headless', KILL, pid, 9)
print(os.waitpid(pid, 0)[1])
pid = os.fork()
if pid == 0:
    if os.fork() == 0:
        os.write(w, str(os.getpid()).encode())
        time.sleep(1000)
    os._exit(0)
orphan = int(os.read(r, 10))
call('orphan', KILL, orphan, 0)
os.waitpid(pid, 0)
call('orphan', KILL, orphan, 9)
# Signals of the kernel's, to the owner of a socket.
for name, start in [
    ('F_SETFL', lambda s: fcntl.fcntl(s, fcntl.F_SETFL, os.O_ASYNC)),
    ('FIOASYNC', lambda s: fcntl.ioctl(s, 0x5452, struct.pack('i', 1))),
]:
    a, b = socket.socketpair()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
    fcntl.fcntl(a, fcntl.F_SETOWN, os.getpid())
    start(a)
    b.send(b'x')
    print(name, signal.sigwait([signal.SIGIO]) == signal.SIGIO, fcntl.fcntl(a, fcntl.F_GETFL) & os.O_ASYNC != 0)
    fcntl.ioctl(a, 0x5452, struct.pack('i', 0))
    fcntl.fcntl(a, fcntl.F_SETOWN, 0)
pid = os.fork()
if pid == 0: os.abort()
print('abort', os.waitpid(pid, 0)[1] & 127)
";
    for abi in [NO_SCOPES, NO_IOCTL] {
        same(abi, &["bash", "-c", shell]);
        same(abi, &["python3", "-c", python]);
    }
}

/// A user that the program became is signalled as by root.
#[test]
fn processes_of_another_user_are_signalled() {
    if !ready("older kernels") || !have("another user", &["root"]) {
        return;
    }
    let program = "
import os, signal, time
def forked(uid):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setgid(uid); os.setuid(uid)
        os.write(w, b'.')
        time.sleep(1000)
    os.read(r, 1)
    return pid
one, two = forked(65534), forked(65534)
os.kill(one, signal.SIGTERM)
print(os.waitpid(one, 0)[1])
r, w = os.pipe()
pid = os.fork()
if pid == 0:
    os.setgid(65534); os.setuid(65534)
    for who in os.getppid(), two:
        try: os.kill(who, signal.SIGTERM); os.write(w, b'sent ')
        except PermissionError: os.write(w, b'refused ')
    os._exit(0)
print(os.waitpid(pid, 0)[1], os.waitpid(two, 0)[1], os.read(r, 100))
";
    same(NO_SCOPES, &["python3", "-c", program]);
}

/// Whoever signals a group, or everybody, reaches the processes of the run.
#[test]
fn groups_end_at_the_run() {
    if !ready("older kernels") {
        return;
    }
    let program = "
import os, signal, sys, time
def fork(session=False):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        if session: os.setsid()
        os.write(w, b'.')
        time.sleep(1000)
    os.read(r, 1)
    return pid
near, far = fork(), fork(True)
got = []
signal.signal(signal.SIGTERM, lambda *_: got.append(1))
whom = {'group': 0, 'its number': -os.getpgrp(), 'all': -1}[sys.argv[1]]
os.kill(whom, 0)
os.kill(whom, signal.SIGTERM)
print(os.waitpid(near, 0)[1], 'self', len(got), flush=True)
if whom != -1: os.kill(far, signal.SIGTERM)
print(os.waitpid(far, 0)[1], flush=True)
os.kill(whom, signal.SIGKILL if whom != -1 else 0)
print('alive')";
    for whom in ["group", "its number", "all"] {
        let bed = Bed::new(&[]);
        std::fs::write(bed.root().join("in/program.py"), program).expect("write");
        let policy = bed.policy(&policy()).display().to_string();
        let runner = on_landlock(NO_SCOPES, support::runner).join(" ");
        let run = |start: String| {
            let script = format!(
                "sleep 1000 > /dev/null 2>&1 & echo $!; {start} python3 program.py '{whom}' < /dev/null"
            );
            let mut command = bed.command("sh".as_ref());
            command.args(["-c", &script]);
            finish(command, &bed.root().join("none"))
        };
        let boxed = run(format!("{runner} -p {policy} --"));
        let outside: u32 = boxed.lines[0].parse().expect("a pid");
        let expected: &[&str] = match whom {
            "all" => &["15 self 0", "15", "alive"],
            _ => &["15 self 1", "15"],
        };
        assert_eq!(boxed.lines[1..], *expected, "{whom}: {boxed:?}");
        assert!(lives(outside), "{whom} reached outside");
        let pid = Pid::from_raw(outside.cast_signed()).expect("a pid");
        kill_process(pid, Signal::KILL).expect("its end");
        // Everybody is not for a control.
        if whom != "all" {
            let bare = run(String::new());
            assert!(ends(bare.lines[0].parse().expect("a pid"), PATIENCE), "the control of {whom}");
        }
    }
}

/// Who keeps forking is killed like anybody.
#[test]
fn a_group_that_grows_is_killed() {
    if !ready("older kernels") {
        return;
    }
    let program = "
import os, signal, time
r, w = os.pipe()
top = os.fork()
if top == 0:
    os.setpgid(0, 0)
    os.close(r)
    for _ in range(2):
        if os.fork() == 0:
            # Each ends, and goes on in its child.
            while os.fork(): os._exit(0)
            while True:
                if os.fork(): os._exit(0)
    os.write(w, b'.')
    time.sleep(1000)
os.close(w)
os.read(r, 1)
os.kill(-top, signal.SIGKILL)
# Everybody in there has the other end.
print(os.read(r, 1), os.waitpid(top, 0)[1])";
    same(NO_SCOPES, &["python3", "-c", program]);
}

/// Descriptors, numbers and memory that change while the broker looks.
#[test]
fn races_reach_nobody_outside() {
    if !ready("older kernels") {
        return;
    }
    let program = "
import ctypes, os, signal, sys, threading, time
victim, seconds = int(sys.argv[1]), float(sys.argv[2])
libc = ctypes.CDLL(None)
child = os.fork()
if child == 0:
    while True: time.sleep(1000)
one, two = os.pidfd_open(child), os.pidfd_open(victim)
number = os.dup(one)
end = time.monotonic() + seconds
def swap():
    while time.monotonic() < end:
        os.dup2(one, number)
        os.dup2(two, number)
swaps = threading.Thread(target=swap)
swaps.start()
n = 0
while time.monotonic() < end:
    libc.syscall(424, number, signal.SIGURG if n % 2 else signal.SIGUSR2, None, 0)
    n += 1
swaps.join()
print('done', n > 10)
os.kill(child, 9)";
    for boxed in [false, true] {
        let mut victim = Outside::new();
        let id = victim.0.id().to_string();
        let bed = Bed::new(&[]);
        let arguments = ["python3", "-c", program, &id, "1"];
        let run = if boxed {
            on_landlock(NO_SCOPES, || bed.launch(&policy(), &[], &arguments))
        } else {
            let mut command = bed.command(arguments[0].as_ref());
            command.args(&arguments[1..]);
            finish(command, &bed.root().join("none"))
        };
        assert_eq!(run.last(), "done True", "{run:?}");
        // SIGUSR2 ends it.
        assert_eq!(victim.lives(), boxed, "{run:?}");
    }
}

/// A run under an older Landlock, with its launcher's number.
fn start(bed: &Bed, program: &str) -> (Child, u32, impl FnMut() -> String + use<>) {
    let mut command =
        on_landlock(NO_SCOPES, || bed.sandboxed(&policy(), &[], &["python3", "-c", program]));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a run");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut line = move || lines.next().and_then(Result::ok).expect("a line");
    let launcher = line().parse().expect("a pid");
    (child, launcher, line)
}

/// Processes in every relation, and such as are hard to see: one without its first thread, one of another user.
const FAMILY: &str = "
import ctypes, os, signal, sys, threading, time
print(os.getppid(), flush=True)
def family(begin):
    r, w = os.pipe()
    if os.fork() == 0:
        begin()
        os.write(w, str(os.getpid()).encode())
        time.sleep(1000)
    print(os.read(r, 20).decode(), flush=True)
def orphan():
    if os.fork(): os._exit(0)
def headless():
    r, w = os.pipe()
    def stay():
        while open(f'/proc/{os.getpid()}/stat').read().rsplit(')')[1].split()[0] != 'Z': pass
        os.write(w, b'.')
        time.sleep(1000)
    if (pid := os.fork()):
        os.read(r, 1)
        print(pid, flush=True)
        return
    threading.Thread(target=stay).start()
    ctypes.CDLL(None).pthread_exit(None)
def stopped(): signal.signal(signal.SIGTERM, signal.SIG_IGN); os.setsid()
def other():
    if os.getuid() == 0: os.setgid(65534); os.setuid(65534)
family(lambda: None); family(os.setsid); family(orphan); family(stopped); family(other); headless()
";
const MEMBERS: usize = 6;

#[test]
fn nothing_outlives_a_killed_launcher() {
    if !ready("older kernels") {
        return;
    }
    let bed = Bed::new(&[]);
    for stop in [false, true] {
        let (mut child, launcher, mut line) =
            start(&bed, &format!("{FAMILY}\nprint('end', flush=True)\ntime.sleep(1000)"));
        let pids: Vec<u32> = (0..MEMBERS).map(|_| line().parse().expect("a pid")).collect();
        assert_eq!(line(), "end");
        if stop {
            let pid = Pid::from_raw(pids[0].cast_signed()).expect("a pid");
            kill_process(pid, Signal::STOP).expect("stop");
        }
        let mut outside = Outside::new();
        let launcher = Pid::from_raw(launcher.cast_signed()).expect("a pid");
        kill_process(launcher, Signal::KILL).expect("kill");
        for pid in pids {
            assert!(ends(pid, PATIENCE), "{pid} lives on");
        }
        assert!(wait(&mut child, PATIENCE).is_some());
        assert!(outside.lives(), "the watcher killed somebody else");
    }
}

/// Killed with the launcher's death among forks without end.
#[test]
fn no_fork_slips_past_the_watcher() {
    if !ready("older kernels") {
        return;
    }
    let bed = Bed::new(&[]);
    let program = "
import os, sys
print(os.getppid(), flush=True)
for _ in range(4):
    if os.fork() == 0:
        while True:
            if os.fork(): os._exit(0)
print('forks', flush=True)
sys.stdin.read()";
    let (mut child, launcher, mut line) = start(&bed, program);
    assert_eq!(line(), "forks");
    let launcher = Pid::from_raw(launcher.cast_signed()).expect("a pid");
    kill_process(launcher, Signal::KILL).expect("kill");
    // Every process has the other end of the pipe.
    let stdin = child.stdin.as_mut().expect("piped");
    while stdin.write(b"x").is_ok() {}
    assert!(wait(&mut child, PATIENCE).is_some());
    assert!(test_kill_process(launcher).is_err());
}

#[test]
fn the_end_of_the_program_is_that_of_everybody() {
    if !ready("older kernels") {
        return;
    }
    let bed = Bed::new(&[]);
    let (mut child, _, mut line) = start(&bed, &format!("{FAMILY}\nsys.exit(4)"));
    let pids: Vec<u32> = (0..MEMBERS).map(|_| line().parse().expect("a pid")).collect();
    let status = wait(&mut child, PATIENCE).expect("an end");
    assert_eq!(status.code(), Some(4));
    for pid in pids {
        assert!(ends(pid, PATIENCE), "{pid} lives on");
    }
}

/// The settings of another terminal, by each way to it that is open for reading.
#[test]
fn other_terminals_are_not_set() {
    if !ready("older kernels") {
        return;
    }
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("openpt");
    grantpt(&master).and_then(|()| unlockpt(&master)).expect("its other side");
    let name = ptsname(&master, Vec::new()).expect("its name").into_string().expect("UTF-8");
    let program = format!(
        "
import errno, fcntl, os, struct, termios
t = os.open('{name}', os.O_RDONLY | os.O_NOCTTY)
size = fcntl.ioctl(t, termios.TIOCGWINSZ, bytes(8))
mode = termios.tcgetattr(t)
mode[3] ^= termios.ECHO
def tried(call, *args):
    try: call(*args); print('ok')
    except (OSError, termios.error) as error: print(errno.errorcode[error.args[0]])
for when in termios.TCSANOW, termios.TCSADRAIN, termios.TCSAFLUSH:
    tried(termios.tcsetattr, t, when, mode)
tried(fcntl.ioctl, t, termios.TIOCSWINSZ, struct.pack('4H', 7, 7, 7, 7))
tried(fcntl.ioctl, t, termios.TIOCEXCL)
tried(fcntl.ioctl, t, termios.TIOCNXCL)
tried(termios.tcflush, t, termios.TCIOFLUSH)
tried(termios.tcflow, t, termios.TCOON)
tried(termios.tcsendbreak, t, 0)
tried(fcntl.ioctl, t, termios.TIOCSETD, struct.pack('i', 0))
"
    );
    for policy in
        [json!({}), json!({"filesystem": {"denyRead": ["**/hidden"], "allowWrite": ["."]}})]
    {
        let bed = Bed::new(&[]);
        let mut bare = bed.command("python3".as_ref());
        bare.args(["-c", &program]);
        let bare = finish(bare, &bed.root().join("none"));
        assert_eq!(bare.lines, ["ok"; 10], "the control: {bare:?}");
        let boxed =
            on_landlock(NO_IOCTL, || bed.launch(&policy, &[], &["python3", "-c", &program]));
        assert_eq!(boxed.lines, ["EACCES"; 10], "{boxed:?}");
    }
}

/// A number of a descriptor that is the run's own terminal in one moment and another one in the next.
#[test]
fn no_race_sets_another_terminal() {
    if !ready("older kernels") {
        return;
    }
    let program = "
import fcntl, os, pty, struct, sys, termios, threading, time
m, s = pty.openpty()
other = os.open(sys.argv[1], os.O_RDONLY | os.O_NOCTTY)
number = os.dup(s)
end = time.monotonic() + 1
def swap():
    while time.monotonic() < end:
        os.dup2(other, number)
        os.dup2(s, number)
swaps = threading.Thread(target=swap)
swaps.start()
done = 0
while time.monotonic() < end:
    try: fcntl.ioctl(number, termios.TIOCSWINSZ, struct.pack('4H', 7, 7, 7, 7)); done += 1
    except OSError: pass
swaps.join()
print('done', done > 0)";
    for boxed in [false, true] {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("openpt");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("its other side");
        let name = ptsname(&master, Vec::new()).expect("its name").into_string().expect("UTF-8");
        let bed = Bed::new(&[]);
        let arguments = ["python3", "-c", program, &name];
        let run = if boxed {
            on_landlock(NO_IOCTL, || bed.launch(&policy(), &[], &arguments))
        } else {
            let mut command = bed.command(arguments[0].as_ref());
            command.args(&arguments[1..]);
            finish(command, &bed.root().join("none"))
        };
        assert_eq!(run.last(), "done True", "{run:?}");
        let size = rustix::termios::tcgetwinsize(&master).expect("its size").ws_row;
        assert_eq!(size, if boxed { 0 } else { 7 }, "{run:?}");
    }
}

/// Terminals of the run's own, the one that it was given among them, are set.
#[test]
fn own_terminals_are_set() {
    if !ready("older kernels") {
        return;
    }
    let bed = Bed::new(&[]);
    let script = "stty -echo && stty size && stty echo rows 33 cols 77 && stty size < /dev/tty \
        && stty -a < /dev/tty | grep -o ' echo ' && stty -echo < /dev/tty && stty sane \
        && python3 -c '
import os, pty, termios, tty
child, m = pty.fork()
if child == 0:
    for name in None, \"/dev/tty\", os.ttyname(0):
        t = os.open(name, os.O_RDWR) if name else 0
        tty.setraw(t)
        assert not termios.tcgetattr(t)[3] & termios.ECHO
    os.write(1, b\"raw\")
    os._exit(0)
print(os.read(m, 3).decode(), os.waitpid(child, 0)[1])
m, s = pty.openpty()
tty.setraw(s); tty.setraw(m)
print(\"pair\")'; echo status $?";
    let mut terminal = on_landlock(NO_IOCTL, || Terminal::boxed(&bed, &["bash", "-c", script]));
    for text in ["0 0", "33 77", " echo ", "raw 0", "pair", "status 0"] {
        terminal.expect(text);
    }
    terminal.ends_with(0);
}

/// An interactive shell inside: it takes the terminal, gives it to its jobs, and stops who sets it in the background.
#[test]
fn a_shell_inside_controls_its_jobs() {
    if !ready("older kernels") {
        return;
    }
    for boxed in [false, true] {
        let bed = Bed::new(&[]);
        let shell = ["bash", "--norc", "--noprofile", "-i"];
        let mut terminal = match boxed {
            false => Terminal::start(&bed, &shell),
            true => on_landlock(NO_IOCTL, || Terminal::boxed(&bed, &shell)),
        };
        terminal.expect("prompt> ");
        terminal.write("sh -c 'echo ready-$((40 + 2)); exec sleep 1000'\n");
        terminal.expect("ready-42");
        terminal.write("\x1a");
        terminal.expect("Stopped");
        let end =
            "p=$(jobs -p); kill -KILL $p; while kill -0 $p 2> /dev/null; do :; done; echo job-$?\n";
        terminal.write(end);
        terminal.expect("job-0");
        terminal.write("stty -echo & wait\n");
        terminal.expect("Stopped");
        terminal.write("fg; echo fore-$?\n");
        terminal.expect("fore-0");
        terminal.write("(trap '' TTOU; stty echo) & wait $!; echo ignored-$?\n");
        terminal.expect("ignored-0");
        terminal.write("exit 3\n");
        terminal.ends_with(3);
    }
}

/// In a group that nobody would have go on, setting the terminal fails in the background.
#[test]
fn an_orphaned_group_is_not_stopped() {
    if !ready("older kernels") {
        return;
    }
    let program = "
import errno, os, pty, termios
child, m = pty.fork()
if child:
    print(os.read(m, 100).decode(), os.waitpid(child, 0)[1], flush=True)
    os._exit(0)
r, w = os.pipe()
leader = os.fork()
if leader == 0:
    os.setpgid(0, 0)
    own = os.getpid()
    if os.fork() == 0:
        while os.getppid() == own: pass
        try: termios.tcsetattr(0, termios.TCSANOW, termios.tcgetattr(0)); os.write(w, b'set')
        except termios.error as error: os.write(w, errno.errorcode[error.args[0]].encode())
    os._exit(0)
os.waitpid(leader, 0)
os.write(1, os.read(r, 100))
os._exit(0)
";
    let (bare, boxed) = both(NO_IOCTL, &["python3", "-c", program]);
    assert_eq!((bare.last(), boxed.last()), ("EIO 0", "EIO 0"), "{bare:?} {boxed:?}");
}

/// Requests that are not known: no driver hears of them.
#[test]
fn devices_hear_no_other_requests() {
    if !ready("older kernels") {
        return;
    }
    let bed = Bed::new(&["put {in}/file x"]);
    // KVM_GET_API_VERSION, LOOP_CTL_GET_FREE, nothing at all.
    let ops =
        ["f=openat AT_FDCWD \"file O_RDONLY 0", "ioctl $f 0xae00", "ioctl $f 0x4c82", "ioctl $f 0"];
    assert_eq!(bed.bare(&ops).lines[1..], ["ENOTTY"; 3]);
    let run = on_landlock(NO_IOCTL, || bed.boxed(&policy(), &ops));
    assert_eq!(run.lines[1..], ["EACCES"; 3], "{run:?}");
    if support::have::landlock() >= NO_SCOPES {
        let run = on_landlock(NO_SCOPES, || bed.boxed(&policy(), &ops));
        assert_eq!(run.lines[1..], ["ENOTTY"; 3], "{run:?}");
    }
}

/// A policy that opens a device leaves requests on all of them open, which has to be accepted.
#[test]
fn a_device_that_is_open_takes_requests() {
    if !ready("older kernels") {
        return;
    }
    let policy = json!({"filesystem": {"allowWrite": ["{in}", "/dev/kvm"]}});
    let bed = Bed::new(&["put {in}/file x"]);
    let ops = ["f=openat AT_FDCWD \"file O_RDONLY 0", "ioctl $f 0xae00"];
    let run = on_landlock(NO_IOCTL, || bed.boxed(&policy, &ops));
    assert!(run.lines.is_empty() && run.stderr.contains("devices"), "{run:?}");
    let probe = support::probe().display().to_string();
    let program = [probe.as_str(), ops[0], ops[1]];
    let run = on_landlock(NO_IOCTL, || bed.launch(&policy, &["--accept=devices"], &program));
    assert_eq!(run.last(), "ENOTTY", "{run:?}");
}
