//! Compiled profiles answer as libseccomp's do. The library is used here alone, through a C program
//! that is built on the spot.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[path = "support/filter.rs"]
mod filter;
#[path = "support/profiles.rs"]
mod profiles;
mod support;

use filter::{every_name, run};
use landstrip::oci::seccomp::{Abi, Instruction, compile, number};
use oci_spec::runtime::{Arch, LinuxSeccomp, LinuxSeccompAction as Action, LinuxSyscall};
use profiles::{Random, engine_profile};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use support::have::have;

const X32: u32 = 0x4000_0000;
const ENOSYS: u32 = 0x0005_0026;
const ABIS: [(Abi, u32); 3] =
    [(Abi::X86_64, 0xc000_003e), (Abi::X86, 0x4000_0003), (Abi::X32, 0x4000_003e)];

struct Oracle {
    _directory: tempfile::TempDir,
    program: PathBuf,
}

impl Oracle {
    fn build() -> Oracle {
        let directory = tempfile::tempdir().expect("a directory");
        let program = directory.path().join("oracle");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/oracle/seccomp.c");
        let status =
            Command::new("cc").arg("-o").arg(&program).args([source, "-lseccomp"]).status();
        assert!(status.expect("cc").success(), "the oracle does not build");
        Oracle { _directory: directory, program }
    }

    fn ask(&self, input: &str) -> Vec<u8> {
        let (stdin, stdout) = (Stdio::piped(), Stdio::piped());
        let mut child = Command::new(&self.program).stdin(stdin).stdout(stdout).spawn().unwrap();
        let mut pipe = child.stdin.take().expect("a pipe");
        // The answers are longer than a pipe holds.
        let output = std::thread::scope(|scope| {
            scope.spawn(move || pipe.write_all(input.as_bytes()).expect("it reads"));
            child.wait_with_output().expect("its answers")
        });
        assert!(output.status.success(), "the oracle fails");
        output.stdout
    }

    /// What libseccomp makes of the profile, fed to it as runc does.
    fn compile(&self, profile: &LinuxSeccomp) -> Vec<Instruction> {
        let default = scmp(profile.default_action(), profile.default_errno_ret());
        let mut input = format!("default {default}\n");
        for arch in profile.architectures().iter().flatten() {
            writeln!(input, "arch {}", *arch as u32).unwrap();
        }
        for rule in profile.syscalls().iter().flatten() {
            let action = scmp(rule.action(), rule.errno_ret());
            if action == default {
                continue;
            }
            for name in rule.names() {
                write!(input, "rule {action} {name}").unwrap();
                for arg in rule.args().iter().flatten() {
                    let two = arg.value_two().unwrap_or(0);
                    write!(input, " {} {} {} {two}", arg.index(), arg.op() as u32, arg.value())
                        .unwrap();
                }
                input.push('\n');
            }
        }
        input.push_str("export\n");
        let bytes = self.ask(&input);
        let instruction = |b: &[u8]| Instruction {
            code: u16::from_ne_bytes([b[0], b[1]]),
            jt: b[2],
            jf: b[3],
            k: u32::from_ne_bytes([b[4], b[5], b[6], b[7]]),
        };
        bytes.chunks_exact(8).map(instruction).collect()
    }

    /// Whether the kernel takes the program, and lets the C program go on under it.
    fn installs(&self, program: &[Instruction]) -> bool {
        let mut input = String::new();
        for i in program {
            writeln!(input, "instruction {} {} {} {}", i.code, i.jt, i.jf, i.k).unwrap();
        }
        input.push_str("install\n");
        self.ask(&input) == b"installed\n"
    }

    /// The names for which libseccomp has another number than the kernel's headers, or none.
    fn disagrees(&self) -> BTreeSet<String> {
        let names = every_name();
        let ask: Vec<_> =
            names.iter().flat_map(|n| ABIS.map(|(abi, token)| (n, abi, token))).collect();
        let mut input = String::new();
        for (name, _, token) in &ask {
            writeln!(input, "number {token} {name}").unwrap();
        }
        let text = String::from_utf8(self.ask(&input)).expect("text");
        let numbers: Vec<i64> = text.lines().map(|line| line.parse().expect("a number")).collect();
        assert_eq!(numbers.len(), ask.len());
        let mut other = BTreeSet::new();
        for ((name, abi, _), theirs) in ask.iter().zip(numbers) {
            // Negative ones stand for both ways to the call.
            let both = *abi == Abi::X86 && (-300..-100).contains(&theirs);
            if !both && number(name, *abi) != u32::try_from(theirs).ok() {
                other.insert((*name).clone());
            }
        }
        other
    }
}

/// `SCMP_ACT_*`, which is the kernel's value.
fn scmp(action: Action, data: Option<u32>) -> u32 {
    let action = if action == Action::ScmpActKill { Action::ScmpActKillThread } else { action };
    action.as_u32(data)
}

fn without(profile: &LinuxSeccomp, names: &BTreeSet<String>) -> LinuxSeccomp {
    let mut profile = profile.clone();
    let keep = |rule: &LinuxSyscall| {
        let mut rule = rule.clone();
        rule.set_names(rule.names().iter().filter(|n| !names.contains(*n)).cloned().collect());
        rule
    };
    let rules = profile.syscalls().iter().flatten().map(keep).collect();
    profile.set_syscalls(Some(rules));
    profile
}

/// Compares on random calls; returns how many were let through.
fn compare(oracle: &Oracle, profile: &LinuxSeccomp, calls: usize) -> usize {
    let theirs = oracle.compile(profile);
    let ours = compile(profile, Abi::X86_64).expect("a filter").program;
    let time = (0..20).map(|_| {
        let start = std::time::Instant::now();
        std::hint::black_box(compile(profile, Abi::X86_64)).expect("a filter");
        start.elapsed()
    });
    let time = time.min().expect("a time");
    println!("{} instructions in {time:?}, libseccomp {}", ours.len(), theirs.len());
    let names = || profile.syscalls().iter().flatten().flat_map(|rule| rule.names());
    let last = |abi| names().filter_map(|name| number(name, abi)).max().unwrap_or(u32::MAX);
    let last = ABIS.map(|(abi, _)| last(abi));
    let default = profile.default_action();
    let lets = matches!(default, Action::ScmpActAllow | Action::ScmpActLog | Action::ScmpActTrace);
    let listed = |arch| profile.architectures().iter().flatten().any(|a| *a == arch);

    let text = || serde_json::to_string(profile).expect("JSON");
    let mut random = Random::new(profile);
    let (mut allowed, mut steps) = (0, [0, 0]);
    for _ in 0..calls {
        let call = random.call();
        let (ours, our_steps) = run(&ours, &call);
        let (theirs, their_steps) = run(&theirs, &call);
        steps = [steps[0] + our_steps, steps[1] + their_steps];
        // What runc puts before libseccomp's program.
        let last = match (call.arch, call.nr < X32) {
            (0xc000_003e, true) => last[0],
            (0xc000_003e, false) if listed(Arch::ScmpArchX32) => last[2],
            (0x4000_0003, _) if listed(Arch::ScmpArchX86) => last[1],
            _ => u32::MAX,
        };
        let skipped = call.arch == 0xc000_003e && call.nr == u32::MAX;
        let newer = call.nr > last && !skipped && !lets;
        assert_eq!(ours, if newer { ENOSYS } else { theirs }, "{call:x?} {}", text());
        allowed += usize::from(ours == 0x7fff_0000);
    }
    println!("steps on average: {}, libseccomp {}", steps[0] / calls, steps[1] / calls);
    allowed
}

/// LANDSTRIP_TEST_CALLS says how many calls are compared; more are for a run by hand.
fn calls() -> usize {
    std::env::var("LANDSTRIP_TEST_CALLS").map_or(20_000, |count| count.parse().expect("a number"))
}

/// The engines' own defaults, where their packages put them.
#[test]
fn engines_defaults_agree() {
    if !have("engines_defaults_agree", &["libseccomp"]) {
        return;
    }
    let oracle = Oracle::build();
    let disagrees = oracle.disagrees();
    println!("numbers that differ: {disagrees:?}");
    for path in [
        "/usr/share/containers/seccomp.json",
        "/usr/share/gocode/src/github.com/docker/docker/profiles/seccomp/default.json",
    ] {
        if !have("engines_defaults_agree", &[path]) {
            continue;
        }
        let text = std::fs::read_to_string(path).expect("a profile");
        for caps in [&[][..], &["CAP_AUDIT_WRITE", "CAP_SYS_CHROOT"], &["CAP_SYS_ADMIN"]] {
            let profile = without(&engine_profile(&text, caps), &disagrees);
            println!("{path} with {caps:?}");
            let allowed = compare(&oracle, &profile, calls());
            assert!(allowed > calls() / 10, "hardly a call was let through");
            let filter = compile(&engine_profile(&text, caps), Abi::X86_64).expect("a filter");
            assert!(oracle.installs(&filter.program), "the kernel refuses the program");
        }
    }
}
