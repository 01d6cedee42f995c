//! Ways around the rules through other parts of the kernel: namespaces, mounts, other processes,
//! keys, shared memory, other entries for system calls, terminals, devices.
#![cfg(target_os = "linux")]

mod support;

use serde_json::{Value, json};
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use support::attack::{Attack, Stage, attacks};
use support::{Bed, finish, have::have};

/// How a call that is closed altogether may fail.
const CLOSED: &str = "EPERM|EACCES|ENOSYS";
/// How an object that lives outside may be missing: refused, or in another namespace.
const ELSEWHERE: &str = "EPERM|EACCES|ENOSYS|ENOENT|EINVAL|EIDRM";

const fn at(name: &'static str, op: &'static str) -> Attack {
    Attack::new(name, op).quiet().error(CLOSED)
}

fn policy() -> Value {
    json!({"filesystem": {"allowWrite": ["{in}"], "denyWrite": ["**/*.denied"]}})
}

fn stage<'a>(setup: &'a [&'a str], words: &'a [(&'a str, String)]) -> Stage<'a> {
    Stage { policy: policy(), setup, guarded: &["{out}"], target: "", words }
}

/// For a control that needs mounts of its own.
const MOUNTS: &[&str] = &["unshare CLONE_NEWUSER|CLONE_NEWNS"];

/// For a control that needs a mount at `{in}`.
const TMPFS: &[&str] = &["unshare CLONE_NEWUSER|CLONE_NEWNS", "mount \"none \"{in} \"tmpfs 0 0"];

#[test]
fn namespaces_and_mounts_are_closed() {
    attacks(
        &stage(&[], &[]),
        &[
            at("unshare user", "unshare CLONE_NEWUSER").needs(&["userns"]),
            at("unshare user and mounts", "unshare CLONE_NEWUSER|CLONE_NEWNS").needs(&["userns"]),
            at("unshare mounts", "child unshare CLONE_NEWNS")
                .needs(&["root"])
                .works("ok child ok")
                .error("ok child EPERM|ok child EACCES|ok child ENOSYS"),
            at("unshare pids", "unshare CLONE_NEWPID").needs(&["root"]),
            at("unshare network", "unshare CLONE_NEWNET").needs(&["root"]),
            at("unshare ipc", "unshare CLONE_NEWIPC").needs(&["root"]),
            at("unshare uts", "unshare CLONE_NEWUTS").needs(&["root"]),
            at("unshare cgroup", "unshare CLONE_NEWCGROUP").needs(&["root"]),
            at("unshare time", "unshare CLONE_NEWTIME").needs(&["root"]),
            at("clone user", "clone CLONE_NEWUSER").needs(&["userns"]),
            at("clone mounts", "clone CLONE_NEWNS").needs(&["root"]),
            at("clone pids", "clone CLONE_NEWPID").needs(&["root"]),
            at("clone3 user", "clone3 CLONE_NEWUSER").needs(&["userns"]),
            at("clone3 network", "clone3 CLONE_NEWNET").needs(&["root"]),
            at("setns", "setns $n CLONE_NEWNET")
                .needs(&["root"])
                .prepare(&["n=openat AT_FDCWD \"/proc/self/ns/net O_RDONLY 0"]),
            at("mount", "mount \"none \"{in} \"tmpfs 0 0").control(MOUNTS).needs(&["userns"]),
            at("bind mount", "mount \"{out} \"{in} 0 MS_BIND 0").control(MOUNTS).needs(&["userns"]),
            at("umount", "umount2 \"{in} MNT_DETACH").needs(&["userns"]).control(TMPFS),
            at("pivot_root", "pivot_root \"{in} \"{in}").needs(&["userns"]).control(TMPFS),
            at("chroot", "chroot \"{in}").control(MOUNTS).needs(&["userns"]),
            at("fsopen", "fsopen \"tmpfs 0").control(MOUNTS).needs(&["userns"]),
            at("open_tree", "open_tree AT_FDCWD \"{in} OPEN_TREE_CLONE")
                .control(TMPFS)
                .needs(&["userns"]),
            at("open_tree_attr", "open_tree_attr AT_FDCWD \"{in} OPEN_TREE_CLONE 0 0")
                .control(TMPFS)
                .needs(&["userns", "open_tree_attr"]),
            at("move_mount", "move_mount 99 \" AT_FDCWD \"{in} MOVE_MOUNT_F_EMPTY_PATH")
                .control(MOUNTS)
                .needs(&["userns"])
                .works("EBADF"),
            at("fspick", "fspick AT_FDCWD \"{in} 0").needs(&["userns"]).control(TMPFS),
            at("mount_setattr", "mount_setattr AT_FDCWD \"{in} 0 i:0,0,0,0 32")
                .needs(&["userns"])
                .control(TMPFS),
            at("host name", "sethostname \"x 1")
                .needs(&["userns"])
                .control(&["unshare CLONE_NEWUSER|CLONE_NEWUTS"]),
        ],
    );
}

/// A program that only threads and ordinary processes are left to.
#[test]
fn ordinary_processes_still_start() {
    let bed = Bed::new(&[]);
    let ops = [
        "thread getuid",
        "child getuid",
        "vchild getuid",
        "clone 0",
        "sh true",
        "threads 8 50 getuid",
    ];
    let (bare, boxed) = (bed.bare(&ops), bed.boxed(&policy(), &ops));
    assert_eq!(bare.lines, boxed.lines, "{}", boxed.stderr);
}

#[test]
fn other_interfaces_are_closed() {
    // struct perf_event_attr: PERF_TYPE_SOFTWARE, 112 bytes; disabled, exclude_kernel, exclude_hv.
    const PERF: &str = "perf_event_open i:481036337153,0,0,0,0,0x61,0,0,0,0,0,0,0,0 0 -1 -1 0";
    // union bpf_attr for BPF_MAP_CREATE: an array of one entry of 4 bytes.
    const BPF: &str = "bpf 0 i:17179869186,4294967300,0,0,0,0,0,0,0 72";
    attacks(
        &stage(&["put {in}/f text"], &[]),
        &[
            at("io_uring", "io_uring_setup 4 buf:120").needs(&["io_uring"]),
            at("io_uring_register", "io_uring_register 99 0 0 0").works("E"),
            at("userfaultfd", "userfaultfd UFFD_USER_MODE_ONLY"),
            at("perf_event_open", PERF).needs(&["perf"]),
            at("bpf", BPF).needs(&["root"]),
            at("add_key", "add_key \"user \"k bytes:v 1 KEY_SPEC_PROCESS_KEYRING"),
            at("keyctl", "keyctl KEYCTL_JOIN_SESSION_KEYRING 0"),
            at("request_key", "request_key \"user \"k 0 0").works("ENOKEY"),
            at("open_by_handle_at", "open_by_handle_at $m $h O_RDWR")
                .needs(&["root"])
                .prepare(&["handle h m {in}/f"]),
            at("fanotify_init", "fanotify_init 0 0").needs(&["root"]),
        ],
    );
}

/// What root may do to the machine, with arguments that change nothing.
#[test]
fn root_does_not_reach_the_machine() {
    if !have("the powers of root", &["root"]) {
        return;
    }
    attacks(
        &stage(&[], &[]),
        &[
            at("iopl", "iopl 3").needs(&["iopl"]),
            at("ioperm", "ioperm 0x80 1 1").needs(&["iopl"]),
            at("kexec_load", "kexec_load 0 0 0 0xff").needs(&["kexec"]).works("E"),
            at("init_module", "init_module buf:8 8 \"").works("E"),
            at("reboot", "reboot 0 0 0 0").works("EINVAL"),
            at("swapon", "swapon \"{in}/none 0").works("ENOENT"),
            at("acct", "acct \"{in}/none").works("ENOENT"),
            at("settimeofday", "settimeofday 0 0"),
            at("clock_settime", "clock_settime 0 0x1").works("EFAULT"),
            at("quotactl", "quotactl 0x80000700 \"/dev/none 0 0").works("E"),
            at("kernel log", "syslog 10 0 0"),
            at("character device", "mknodat AT_FDCWD \"{in}/n S_IFCHR|0600 0x103"),
            at("block device", "mknodat AT_FDCWD \"{in}/n S_IFBLK|0600 0x700"),
            at("kernel memory", "openat AT_FDCWD \"/dev/mem O_WRONLY 0").needs(&["/dev/mem"]),
            at("system settings", "openat AT_FDCWD \"/proc/sys/kernel/core_pattern O_WRONLY 0"),
            at("system request", "openat AT_FDCWD \"/proc/sysrq-trigger O_WRONLY 0")
                .needs(&["/proc/sysrq-trigger"]),
        ],
    );
}

/// A process outside the sandbox: it waits, then says whether its memory was touched.
struct Victim {
    child: Child,
    address: String,
}

impl Victim {
    fn new() -> Victim {
        use std::io::BufRead;
        let mut command = std::process::Command::new(support::probe());
        command
            .args(["a=secret", "await", "mem $a 9"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("a victim");
        let mut line = String::new();
        let output = child.stdout.as_mut().expect("piped");
        // One byte at a time, so that nothing is read ahead.
        std::io::BufReader::with_capacity(1, output).read_line(&mut line).expect("its address");
        let address = line.trim().strip_prefix("ok ").expect("an address").to_owned();
        Victim { child, address }
    }

    fn words(&self) -> [(&'static str, String); 2] {
        [("{victim}", self.child.id().to_string()), ("{address}", self.address.clone())]
    }

    /// What it says in the end, if it still can.
    fn verdict(mut self) -> String {
        use std::io::Read;
        drop(self.child.stdin.take());
        let mut text = String::new();
        let _ = self.child.stdout.as_mut().expect("piped").read_to_string(&mut text);
        text.lines().last().unwrap_or("gone").to_owned()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // It may be stopped: a tracer that goes leaves a SIGSTOP behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a program would get back by executing another one: capabilities that can be inherited, or are ambient.
#[test]
fn no_capability_is_inherited() {
    if !have("capabilities that are inherited", &["root", "cmd:setpriv"]) {
        return;
    }
    let bed = Bed::new(&[]);
    let sets = |command: Command| {
        let inherited =
            ["--inh-caps", "+chown,+net_raw", "--ambient-caps", "+chown,+net_raw", "--"];
        let mut around = bed.command("setpriv".as_ref());
        around.args(inherited).arg(command.get_program()).args(command.get_args());
        let run = finish(around, &bed.root().join("traps"));
        assert_eq!(run.code, Some(0), "{run:?}");
        ["CapInh", "CapAmb", "CapPrm", "CapEff"].map(|set| {
            let line = run.lines.iter().find_map(|line| line.strip_prefix(set)).expect(set);
            u64::from_str_radix(line.trim_start_matches(':').trim(), 16).expect("a mask")
        })
    };
    const CHOWN: u64 = 1;
    const NET_RAW: u64 = 1 << 13;
    let show = ["cat", "/proc/self/status"];
    let mut bare = Command::new(show[0]);
    bare.arg(show[1]);
    let [inheritable, ambient, ..] = sets(bare);
    assert_eq!([inheritable & ambient, ambient], [CHOWN | NET_RAW; 2], "the control");
    let policy = json!({"filesystem": {"allowWrite": ["{in}"]}});
    for show in [&show[..], &["sh", "-c", "cat /proc/self/status"]] {
        let [inheritable, ambient, permitted, effective] = sets(bed.sandboxed(&policy, &[], show));
        assert_eq!([inheritable, ambient], [0, 0]);
        assert_eq!([permitted & NET_RAW, effective & NET_RAW], [0, 0]);
    }
}

#[test]
fn processes_outside_are_out_of_reach() {
    let pid = |op: &'static str, name| at(name, op).error("EPERM|EACCES|ENOSYS|ESRCH");
    let place = &["p=pidfd_open {victim} 0"];
    let mut table = vec![
        pid("ptrace PTRACE_SEIZE {victim} 0 0", "ptrace seize"),
        pid("ptrace PTRACE_ATTACH {victim} 0 0", "ptrace attach"),
        pid("pvw {victim} {address} HACK", "process_vm_writev"),
        pid("do m=openat AT_FDCWD \"/proc/{victim}/mem O_RDWR 0 ; pwrite64 $m bytes:HACK 4 {address}", "/proc/PID/mem")
            .works("ok 4"),
        pid("cat /proc/{victim}/environ", "its environment"),
        pid("openat AT_FDCWD \"/proc/{victim}/fd/1 O_WRONLY 0", "its output by /proc"),
        pid("ls /proc/{victim}/root", "its root by /proc").error("EPERM|EACCES|ENOENT"),
        pid("pidfd_getfd $p 1 0", "pidfd_getfd").prepare(place).needs(&["pidfd_getfd"]),
        pid("prlimit64 {victim} RLIMIT_CORE i:0,0 0", "prlimit64"),
        pid("setpriority PRIO_PROCESS {victim} 5", "setpriority"),
        pid("openat AT_FDCWD \"/proc/{victim}/oom_score_adj O_WRONLY 0", "its score"),
    ];
    for (name, op) in [
        ("kill 0", "kill {victim} 0"),
        ("kill", "kill {victim} SIGURG"),
        ("tgkill", "tgkill {victim} {victim} SIGURG"),
        ("tkill", "tkill {victim} SIGURG"),
        ("pidfd_send_signal", "do p=pidfd_open {victim} 0 ; pidfd_send_signal $p SIGURG 0 0"),
        ("the launcher", "kill $ppid SIGCONT"),
    ] {
        table.push(pid(op, name));
    }
    // One victim an attack: being traced by one would hide what another can do.
    let mut failures = Vec::new();
    for attack in table {
        let victim = Victim::new();
        let words = victim.words();
        let held = std::panic::catch_unwind(|| attacks(&stage(&[], &words), &[attack]));
        if held.is_err() {
            failures.push(attack.name);
        }
    }
    assert!(failures.is_empty(), "{failures:?}; each one's reason is above");
}

/// Bytes written to a process outside never arrive, whatever the call said.
#[test]
fn memory_outside_stays_as_it_is() {
    for op in [
        "pvw {victim} {address} HACK",
        "do m=openat AT_FDCWD \"/proc/{victim}/mem O_RDWR 0 ; pwrite64 $m bytes:HACK 4 {address}",
    ] {
        let verdict = |boxed: bool| {
            let victim = Victim::new();
            let op = victim.words().iter().fold(op.to_owned(), |op, (w, text)| op.replace(w, text));
            let bed = Bed::new(&[]);
            let run = if boxed { bed.boxed(&policy(), &[&op]) } else { bed.bare(&[&op]) };
            (victim.verdict(), run)
        };
        assert_eq!(verdict(false).0, "ok HACKuched", "the control of {op}");
        let (text, run) = verdict(true);
        assert_eq!(text, "ok untouched", "{op}: {run:?}");
    }
}

/// SIGIO comes from the kernel, on behalf of whoever named the victim as owner of a descriptor.
#[test]
fn nothing_outside_is_named_as_the_owner_of_a_descriptor() {
    let verdict = |boxed: bool| {
        let victim = Victim::new();
        let owner = format!("fcntl $a F_SETOWN {}", victim.child.id());
        let ops = [
            "socketpair a b SOCK_STREAM",
            &owner,
            "fcntl $a F_SETFL O_ASYNC",
            "write $b bytes:x 1",
        ];
        let bed = Bed::new(&[]);
        let run = if boxed { bed.boxed(&policy(), &ops) } else { bed.bare(&ops) };
        (victim.verdict(), run)
    };
    assert_eq!(verdict(false).0, "gone", "the control: SIGIO ends a process");
    let (text, run) = verdict(true);
    assert_eq!(text, "ok untouched", "{run:?}");
}

#[test]
fn processes_inside_are_in_reach() {
    let bed = Bed::new(&[]);
    let ops = [
        "sh sleep 60 & kill $! && wait $!; echo $?",
        "kill $pid 0",
        "kill 0 0",
        "sh trap 'echo got; exit 5' TERM; (kill $$); sleep 60 & wait",
    ];
    let (bare, boxed) = (bed.bare(&ops), bed.boxed(&policy(), &ops));
    assert_eq!(bare.lines, boxed.lines, "{}", boxed.stderr);
    if have("gdb and strace", &["cmd:strace"]) {
        let ops = ["sh strace -o {in}/trace /bin/true; grep -c execve {in}/trace"];
        let (bare, boxed) = (bed.bare(&ops), bed.boxed(&policy(), &ops));
        assert_eq!(bare.lines, boxed.lines, "{}", boxed.stderr);
    }
}

#[test]
fn other_entries_of_the_processor_kill() {
    let setup = &["put {in}/f text"];
    attacks(
        &stage(setup, &[]),
        &[
            at("int 0x80", "child int80 {in}/f 0 0")
                .needs(&["i386"])
                .works("ok child ok")
                .error("ok killed by 31"),
            at("x32 openat", "child x32 openat AT_FDCWD \"{in}/f O_RDONLY 0")
                .needs(&["x86_64"])
                .works("ok child")
                .error("ok killed by 31"),
            at("x32 write", "child x32 write 1 \"x 1")
                .needs(&["x86_64"])
                .works("ok child")
                .error("ok killed by 31"),
        ],
    );
}

#[test]
fn shared_memory_outside_is_out_of_reach() {
    let key = 0x1a5d_0000 + i64::from(std::process::id());
    let name = format!("landstrip-test-{}", std::process::id());
    let words = [("{key}", key.to_string()), ("{name}", name.clone())];
    let make = |op: &str| {
        Bed::new(&[]).bare(&[&words.iter().fold(op.to_owned(), |op, (w, t)| op.replace(w, t))])
    };
    for op in [
        "shmget {key} 4096 IPC_CREAT|0666",
        "msgget {key} IPC_CREAT|0666",
        "semget {key} 1 IPC_CREAT|0666",
        "mq_open \"{name} O_CREAT|O_RDWR 0666 0",
        "put /dev/shm/{name} theirs",
    ] {
        let run = make(op);
        assert!(run.last().starts_with("ok"), "{op}: {}", run.last());
    }
    let elsewhere = |name, op| at(name, op).error(ELSEWHERE);
    let outcome = std::panic::catch_unwind(|| {
        attacks(
            &stage(&[], &words),
            &[
                elsewhere("shmget", "shmget {key} 0 0"),
                elsewhere("shmat", "do i=shmget {key} 0 0 ; shmat $i 0 0"),
                elsewhere("shmctl", "do i=shmget {key} 0 0 ; shmctl $i IPC_STAT buf:256"),
                elsewhere("msgget", "msgget {key} 0"),
                elsewhere("msgsnd", "do i=msgget {key} 0 ; msgsnd $i i:1,2 8 0"),
                elsewhere("semget", "semget {key} 0 0"),
                elsewhere("mq_open", "mq_open \"{name} O_RDWR 0 0"),
                elsewhere("/dev/shm to write", "openat AT_FDCWD \"/dev/shm/{name} O_RDWR 0"),
                elsewhere("/dev/shm to change", "fchmodat AT_FDCWD \"/dev/shm/{name} 0644 0"),
            ],
        )
    });
    for op in [
        "sh ipcrm -M {key}; ipcrm -Q {key}; ipcrm -S {key}",
        "mq_unlink \"{name}",
        "sh rm -f /dev/shm/{name}",
    ] {
        make(op);
    }
    assert!(outcome.is_ok(), "see above");
}

/// By number, without asking for the key: identifiers are small and easily guessed.
#[test]
fn shared_memory_is_not_reached_by_number() {
    let run = Bed::new(&[]).bare(&["i=shmget IPC_PRIVATE 4096 IPC_CREAT|0666", "sh echo {i}"]);
    let id = run.last().trim_start_matches("ok 0 ").to_owned();
    let words = [("{id}", id.clone())];
    let outcome = std::panic::catch_unwind(|| {
        attacks(
            &stage(&[], &words),
            &[
                at("shmat", "shmat {id} 0 0").error(ELSEWHERE),
                at("shmctl", "shmctl {id} IPC_STAT buf:256").error(ELSEWHERE),
            ],
        )
    });
    Bed::new(&[]).bare(&[&format!("shmctl {id} IPC_RMID 0")]);
    assert!(outcome.is_ok(), "see above");
}

#[test]
fn shared_memory_inside_works() {
    let bed = Bed::new(&[]);
    let ops = [
        "i=shmget IPC_PRIVATE 4096 IPC_CREAT|0600",
        "a=shmat $i 0 0",
        "child shmat $i 0 0",
        "shmctl $i IPC_RMID 0",
        "k=shmget 0x1a5dfee1 4096 IPC_CREAT|IPC_EXCL|0600",
        "shmget 0x1a5dfee1 0 0",
        "shmctl $k IPC_RMID 0",
        "i=semget IPC_PRIVATE 1 IPC_CREAT|0600",
        "semctl $i 0 IPC_RMID",
        "put /dev/shm/landstrip-inside text",
        "cat /dev/shm/landstrip-inside",
        "unlinkat AT_FDCWD \"/dev/shm/landstrip-inside 0",
    ];
    let (bare, boxed) = (bed.bare(&ops), bed.boxed(&policy(), &ops));
    assert_eq!(bare.lines, boxed.lines, "{}", boxed.stderr);
}

/// A terminal, and what was typed into it according to its other side.
#[test]
fn nothing_is_typed_into_the_terminal() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    if !have("TIOCSTI", &["tiocsti"]) {
        return;
    }
    let ops = [
        ("TIOCSTI", "ioctl 0 TIOCSTI bytes:X"),
        ("TIOCSTI with high bits", "ioctl 0 0x100005412 bytes:X"),
        (
            "TIOCSTI on /dev/tty",
            "do t=openat AT_FDCWD \"/dev/tty O_RDWR 0 ; ioctl $t TIOCSTI bytes:X",
        ),
        ("TIOCSTI in a thread", "thread ioctl 0 TIOCSTI bytes:X"),
    ];
    let typed = |op: &str, boxed: bool| {
        let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("a terminal");
        grantpt(&near).and_then(|()| unlockpt(&near)).expect("its other side");
        let path = ptsname(&near, Vec::new()).expect("its name").into_string().expect("utf-8");
        let bed = Bed::new(&[]);
        let probe = support::probe().display().to_string();
        // FIONREAD: how many bytes wait to be read. Written to a file: the terminal is the program's.
        let program = [probe.as_str(), op, "n=set 0", "sh cat > {in}/typed"];
        let mut command = if boxed {
            bed.sandboxed(&policy(), &[&format!("tty={path}"), "1>{in}/lines"], &program[..2])
        } else {
            let mut command = bed.command(&support::probe());
            command.args(["@spawn", &format!("tty={path}"), &bed.fill("1>{in}/lines"), "--"]);
            command.args(&program[..2]);
            command
        };
        let mut child = command.spawn().expect("spawn");
        assert!(support::wait(&mut child, Duration::from_secs(60)).is_some(), "hung");
        // What was typed is echoed to our side.
        rustix::io::ioctl_fionbio(&near, true).expect("nonblocking");
        let mut seen = [0; 64];
        let size = rustix::io::read(&near, &mut seen).unwrap_or(0);
        let lines = std::fs::read_to_string(bed.root().join("in/lines")).unwrap_or_default();
        (lines.trim().to_owned(), String::from_utf8_lossy(&seen[..size]).contains('X'))
    };
    let mut failures = Vec::new();
    for (name, op) in ops {
        if typed(op, false) != ("ok".into(), true) {
            failures.push(format!("{name}: the control failed: {:?}", typed(op, false)));
        }
        let (line, echoed) = typed(op, true);
        if echoed || !CLOSED.split('|').any(|e| e == line) {
            failures.push(format!("{name}: {line}, typed: {echoed}"));
        }
    }
    // The console's own way: not for a pseudo terminal, so only the refusal shows.
    if typed("ioctl 0 TIOCLINUX bytes:x", false).0 != "ENOTTY" {
        failures.push("TIOCLINUX: the control failed".into());
    }
    let (line, _) = typed("ioctl 0 TIOCLINUX bytes:x", true);
    if !CLOSED.split('|').any(|e| e == line) {
        failures.push(format!("TIOCLINUX: {line}"));
    }
    let _ = std::io::stdout().flush();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn the_ordinary_devices_work() {
    let bed = Bed::new(&[]);
    let ops = [
        "openat AT_FDCWD \"/dev/null O_RDWR 0",
        "put /dev/null x",
        "openat AT_FDCWD \"/dev/zero O_RDWR 0",
        "put /dev/full x",
        "openat AT_FDCWD \"/dev/random O_RDONLY 0",
        "openat AT_FDCWD \"/dev/urandom O_RDWR 0",
        "sh echo x > /dev/null",
        "sh echo x > /dev/stdout",
        "sh echo x > /dev/fd/1",
        "sh echo x >/dev/stderr",
        "m=openat AT_FDCWD \"/dev/ptmx O_RDWR|O_NOCTTY 0",
        "ioctl $m TIOCSPTLCK i:0",
        "ioctl $m TIOCGPTPEER O_RDWR|O_NOCTTY",
    ];
    let (bare, boxed) = (bed.bare(&ops), bed.boxed(&policy(), &ops));
    assert_eq!(bare.lines, boxed.lines, "{}", boxed.stderr);
}
