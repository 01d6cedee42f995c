//! A compiled profile answers every call as the profile, read slowly, says.

#[path = "../support/filter.rs"]
mod filter;

use super::cases;
use filter::{Call, VALUES, every_name, run};
use landstrip::oci::seccomp::{Abi, Filter, compile, number};
use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction as Action, LinuxSeccompArg,
    LinuxSeccompOperator as Operator, LinuxSyscall,
};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;

const X32: u32 = 0x4000_0000;
const KILL: u32 = 0;
const ENOSYS: u32 = 0x0005_0026;

/// What the machine can meet, by what the profile calls it.
fn abis(native: Abi) -> &'static [(Abi, Arch)] {
    match native {
        Abi::Aarch64 => &[(Abi::Aarch64, Arch::ScmpArchAarch64), (Abi::Arm, Arch::ScmpArchArm)],
        _ => &[
            (Abi::X86_64, Arch::ScmpArchX86_64),
            (Abi::X86, Arch::ScmpArchX86),
            (Abi::X32, Arch::ScmpArchX32),
        ],
    }
}

fn value(action: Action, errno: Option<u32>) -> u32 {
    match action {
        Action::ScmpActKill | Action::ScmpActKillThread => 0,
        Action::ScmpActKillProcess => 0x8000_0000,
        Action::ScmpActTrap => 0x0003_0000,
        Action::ScmpActErrno => 0x0005_0000 + errno.unwrap_or(1),
        Action::ScmpActNotify => 0x7fc0_0000,
        Action::ScmpActTrace => 0x7ff0_0000 + errno.unwrap_or(1),
        Action::ScmpActLog => 0x7ffc_0000,
        Action::ScmpActAllow => 0x7fff_0000,
    }
}

/// From the strictest to the laxest.
fn rank(action: u32) -> usize {
    const ORDER: [u32; 8] =
        [0x8000_0000, 0, 0x3_0000, 0x5_0000, 0x7fc0_0000, 0x7ff0_0000, 0x7ffc_0000, 0x7fff_0000];
    ORDER.iter().position(|kind| *kind == action & 0xffff_0000).expect("an action")
}

fn holds(arg: &LinuxSeccompArg, call: &Call, bits: u64) -> bool {
    let (given, value) = (call.args[arg.index()] & bits, arg.value() & bits);
    match arg.op() {
        Operator::ScmpCmpNe => given != value,
        Operator::ScmpCmpLt => given < value,
        Operator::ScmpCmpLe => given <= value,
        Operator::ScmpCmpEq => given == value,
        Operator::ScmpCmpGe => given >= value,
        Operator::ScmpCmpGt => given > value,
        Operator::ScmpCmpMaskedEq => given & value == arg.value_two().unwrap_or(0) & value,
    }
}

/// The operation that the call asks a multiplexer of x86 for.
fn operation(call: &Call) -> Option<&'static str> {
    match (call.nr, call.args[0] as u32) {
        (102, 1) => Some("socket"),
        (102, 9) => Some("send"),
        (117, op) if op & 0xffff == 1 => Some("semop"),
        _ => None,
    }
}

fn model(profile: &LinuxSeccomp, native: Abi, call: &Call) -> u32 {
    let default = value(profile.default_action(), profile.default_errno_ret());
    let listed = profile.architectures().clone().unwrap_or_default();
    let x86_64 = call.arch == Abi::X86_64.audit();
    let met = abis(native).iter().find(|(abi, name)| {
        let this = (*abi == Abi::X32) == (x86_64 && call.nr >= X32);
        (*abi == native || listed.contains(name)) && abi.audit() == call.arch && this
    });
    if x86_64 && native == Abi::X86_64 && call.nr == u32::MAX {
        return default;
    }
    let Some((abi, _)) = met else { return KILL };
    let bits = if matches!(abi, Abi::X86_64 | Abi::Aarch64) { u64::MAX } else { 0xffff_ffff };

    let rules = profile.syscalls().clone().unwrap_or_default();
    let mut matching = Vec::new();
    let mut last = None;
    for rule in &rules {
        let action = value(rule.action(), rule.errno_ret());
        let args = rule.args().clone().unwrap_or_default();
        let mut indices: Vec<_> = args.iter().map(LinuxSeccompArg::index).collect();
        indices.sort_unstable();
        indices.dedup();
        for name in rule.names() {
            let number = number(name, *abi);
            if number.is_some_and(|n| *abi != Abi::Arm || n < 0xf_0000) {
                last = last.max(number);
            }
            if action == default {
                continue;
            }
            if number == Some(call.nr) {
                let compares = |a: &LinuxSeccompArg| {
                    a.op() != Operator::ScmpCmpMaskedEq || a.value() & bits != 0
                };
                let always = if indices.len() < args.len() {
                    !args.iter().all(compares)
                } else {
                    !args.iter().any(compares)
                };
                if always {
                    matching.push((true, action));
                } else if indices.len() < args.len() {
                    matching.extend(
                        args.iter().filter(|a| holds(a, call, bits)).map(|_| (false, action)),
                    );
                } else if args.iter().all(|a| holds(a, call, bits)) {
                    matching.push((false, action));
                }
            }
            let through = *abi == Abi::X86 && operation(call) == Some(name.as_str());
            if through && (args.is_empty() || rank(action) < rank(default)) {
                matching.push((false, action));
            }
        }
    }
    if let Some((_, action)) = matching.iter().find(|(always, _)| *always) {
        return *action;
    }
    if let Some((_, action)) = matching.iter().min_by_key(|(_, action)| rank(*action)) {
        return *action;
    }
    let newer = last.is_some_and(|last| call.nr > last);
    let may = rank(default) < rank(0x7ff0_0000);
    if newer && may { ENOSYS } else { default }
}

const NAMES: [&str; 16] = [
    "read",
    "write",
    "openat",
    "openat2",
    "clone",
    "clone3",
    "personality",
    "socket",
    "socketcall",
    "ipc",
    "semop",
    "send",
    "breakpoint",
    "rt_sigaction",
    "ptrace",
    "no_such_call",
];

fn action() -> impl Strategy<Value = (&'static str, Option<u32>)> {
    let errno = prop::option::of(select(vec![0, 1, 38, 4095]));
    prop_oneof![
        3 => Just(("SCMP_ACT_ALLOW", None)),
        3 => errno.clone().prop_map(|e| ("SCMP_ACT_ERRNO", e)),
        1 => errno.prop_map(|e| ("SCMP_ACT_TRACE", e)),
        1 => select(vec![
            ("SCMP_ACT_KILL", None), ("SCMP_ACT_KILL_PROCESS", None), ("SCMP_ACT_TRAP", None),
            ("SCMP_ACT_LOG", None), ("SCMP_ACT_KILL_THREAD", None),
        ]),
    ]
}

fn value_near() -> impl Strategy<Value = u64> {
    (select(VALUES.to_vec()), 0..3u64).prop_map(|(v, by)| v.wrapping_add(by).wrapping_sub(1))
}

fn argument() -> impl Strategy<Value = serde_json::Value> {
    let ops = ["NE", "LT", "LE", "EQ", "GE", "GT", "MASKED_EQ", "MASKED_EQ"];
    (0..6usize, select(ops.to_vec()), value_near(), prop::option::of(value_near())).prop_map(
        |(index, op, value, two)| match two {
            Some(two) => {
                json!({"index": index, "op": format!("SCMP_CMP_{op}"), "value": value, "valueTwo": two})
            }
            None => json!({"index": index, "op": format!("SCMP_CMP_{op}"), "value": value}),
        },
    )
}

fn rule() -> impl Strategy<Value = serde_json::Value> {
    let names = prop::collection::vec(select(NAMES.to_vec()), 1..4);
    let actions = prop_oneof![6 => action(), 1 => Just(("SCMP_ACT_NOTIFY", None))];
    (names, actions, prop::collection::vec(argument(), 0..4)).prop_map(
        |(mut names, (action, errno), args)| {
            if action == "SCMP_ACT_NOTIFY" {
                names.retain(|name| *name != "write");
            }
            let mut rule = json!({"names": names, "action": action, "args": args});
            if let Some(errno) = errno {
                rule["errnoRet"] = errno.into();
            }
            rule
        },
    )
}

fn profile() -> impl Strategy<Value = LinuxSeccomp> {
    let listed = prop::sample::subsequence(
        vec![
            "SCMP_ARCH_X86_64",
            "SCMP_ARCH_X86",
            "SCMP_ARCH_X32",
            "SCMP_ARCH_ARM",
            "SCMP_ARCH_AARCH64",
            "SCMP_ARCH_S390X",
        ],
        0..=6,
    );
    (action(), listed, prop::collection::vec(rule(), 0..12)).prop_map(
        |((action, errno), listed, rules)| {
            let mut profile = json!({
                "defaultAction": action, "architectures": listed, "syscalls": rules,
                "listenerPath": "/run/agent",
            });
            if let Some(errno) = errno {
                profile["defaultErrnoRet"] = errno.into();
            }
            serde_json::from_value(profile).expect("a profile")
        },
    )
}

fn call(native: Abi) -> impl Strategy<Value = Call> {
    let arches: Vec<u32> = abis(native).iter().map(|(abi, _)| abi.audit()).chain([7]).collect();
    let known = abis(native).iter().flat_map(|(abi, _)| NAMES.map(|name| number(name, *abi)));
    let known: Vec<u32> = known.flatten().collect();
    let near = (select(known), 0..3u32).prop_map(|(n, by)| n.wrapping_add(by).wrapping_sub(1));
    let nr = prop_oneof![
        8 => near,
        1 => 0..500u32,
        1 => select(vec![X32 - 1, X32, X32 + 600, 0xf_0000, u32::MAX, u32::MAX - 1, 102, 117]),
    ];
    (select(arches), nr, prop::array::uniform6(value_near())).prop_map(|(arch, nr, args)| Call {
        nr,
        arch,
        args,
    })
}

fn check(filter: &Filter, profile: &LinuxSeccomp, native: Abi, call: &Call) {
    let (answer, steps) = run(&filter.program, call);
    assert_eq!(answer, model(profile, native, call), "{call:x?}");
    assert!(steps < 400, "{steps} steps for {call:x?}");
    if answer == 0x7fc0_0000 {
        let found = filter.notified.iter().any(|n| n.arch == call.arch && n.nr == call.nr);
        assert!(found, "{call:x?} is notified, and not said to be");
    }
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn a_filter_answers_as_its_profile_says(
        profile in profile(),
        calls in prop::collection::vec((call(Abi::X86_64), call(Abi::Aarch64)), 64),
    ) {
        for native in [Abi::X86_64, Abi::Aarch64] {
            let filter = compile(&profile, native).expect("a filter");
            for (x86, arm) in &calls {
                check(&filter, &profile, native, if native == Abi::X86_64 { x86 } else { arm });
            }
        }
    }
}

/// Every call that anything has a number for, by turns allowed and refused: the longest search
/// there is, in jumps that do not reach.
#[test]
fn a_filter_of_every_number_fits() {
    let names: Vec<String> = every_name();
    let (even, odd): (Vec<_>, Vec<_>) = names.iter().enumerate().partition(|(at, _)| at % 2 == 0);
    let rule = |list: Vec<(usize, &String)>, action| {
        let mut rule = LinuxSyscall::default();
        rule.set_names(list.into_iter().map(|(_, name)| name.clone()).collect());
        rule.set_action(action);
        rule
    };
    let rules = vec![rule(even, Action::ScmpActAllow), rule(odd, Action::ScmpActErrno)];
    let mut profile = LinuxSeccomp::default();
    profile.set_default_action(Action::ScmpActTrap);
    profile.set_architectures(Some(abis(Abi::X86_64).iter().map(|(_, name)| *name).collect()));
    profile.set_syscalls(Some(rules));
    let filter = compile(&profile, Abi::X86_64).expect("a filter");
    assert!(filter.program.len() < 2500, "{}", filter.program.len());
    for arch in [Abi::X86_64.audit(), Abi::X86.audit(), 7] {
        for nr in (0..600).chain(X32..X32 + 600).chain([u32::MAX]) {
            check(&filter, &profile, Abi::X86_64, &Call { nr, arch, args: [1; 6] });
        }
    }
}
