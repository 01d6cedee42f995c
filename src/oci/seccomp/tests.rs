use super::*;
use serde_json::json;

fn read(profile: serde_json::Value) -> LinuxSeccomp {
    serde_json::from_value(profile).expect("a profile")
}

fn refused(profile: serde_json::Value) -> String {
    compile(&read(profile), Abi::X86_64).expect_err("refused").to_string()
}

fn with_rule(rule: serde_json::Value) -> serde_json::Value {
    let allow = json!({"names": ["read"], "action": "SCMP_ACT_ALLOW"});
    json!({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [allow, rule]})
}

#[test]
fn the_table_is_sorted_and_resolves() {
    for (name, abi, expected) in [
        ("read", Abi::X86_64, Some(0)),
        ("read", Abi::X32, Some(0x4000_0000)),
        ("read", Abi::X86, Some(3)),
        ("read", Abi::Aarch64, Some(63)),
        ("read", Abi::Arm, Some(3)),
        ("open", Abi::Aarch64, None),
        ("rt_sigaction", Abi::X32, Some(0x4000_0200)),
        ("breakpoint", Abi::Arm, Some(0xf_0001)),
        ("openat2", Abi::Arm, Some(437)),
        ("rea", Abi::X86_64, None),
        ("readx", Abi::X86_64, None),
        ("", Abi::X86_64, None),
        ("a_name_that_is_longer_than_any_in_the_table", Abi::X86_64, None),
    ] {
        assert_eq!(number(name, abi), expected, "{name} {abi:?}");
    }
    assert!(calls::CALLS.is_sorted_by(|a, b| a < b));
}

#[test]
fn what_is_refused_names_its_field() {
    let rule = |rule| refused(with_rule(rule));
    assert_eq!(
        refused(json!({"defaultAction": "SCMP_ACT_NOTIFY"})),
        "linux.seccomp.defaultAction: not every call can be notified"
    );
    assert_eq!(
        refused(json!({"defaultAction": "SCMP_ACT_ALLOW", "defaultErrnoRet": 1})),
        "linux.seccomp.defaultErrnoRet: SCMP_ACT_ALLOW returns no error"
    );
    assert_eq!(
        rule(json!({"names": ["write"], "action": "SCMP_ACT_ERRNO", "errnoRet": 4096})),
        "linux.seccomp.syscalls[1].errnoRet: 4096: an error number is at most 4095"
    );
    assert_eq!(
        rule(json!({"names": ["write"], "action": "SCMP_ACT_TRACE", "errnoRet": 65536})),
        "linux.seccomp.syscalls[1].errnoRet: 65536: what a tracer is told is at most 65535"
    );
    assert_eq!(
        rule(json!({"names": ["write", ""], "action": "SCMP_ACT_ALLOW"})),
        "linux.seccomp.syscalls[1].names[1]: the name is empty"
    );
    let args = json!([{"index": 6, "value": 0, "op": "SCMP_CMP_EQ"}]);
    assert_eq!(
        rule(json!({"names": ["write"], "action": "SCMP_ACT_ALLOW", "args": args})),
        "linux.seccomp.syscalls[1].args[0]: index 6: the arguments are 0 to 5"
    );
    assert_eq!(
        rule(json!({"names": ["mkdir"], "action": "SCMP_ACT_NOTIFY"})),
        "linux.seccomp.syscalls[1].action: SCMP_ACT_NOTIFY needs a listenerPath"
    );
    let mut profile = with_rule(json!({"names": ["write"], "action": "SCMP_ACT_NOTIFY"}));
    profile["listenerPath"] = "/run/agent".into();
    assert_eq!(refused(profile), "linux.seccomp.syscalls[1].names[0]: write cannot be notified");
    assert_eq!(
        refused(json!({"defaultAction": "SCMP_ACT_ALLOW", "listenerMetadata": "x"})),
        "linux.seccomp.listenerMetadata: there is no listenerPath to send it to"
    );
}

/// Conditions take instructions, and a profile can hold any number of them.
#[test]
fn a_program_that_the_kernel_would_not_take_is_refused() {
    let args = json!([{"index": 0, "value": 1, "op": "SCMP_CMP_EQ"}]);
    let rule = json!({"names": ["read"], "action": "SCMP_ACT_ALLOW", "args": args});
    let profile = |count: usize| json!({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": vec![rule.clone(); count]});
    let filter = compile(&read(profile(900)), Abi::X86_64).expect("fits");
    assert!(filter.program.len() <= LIMIT);
    let error = refused(profile(1100));
    assert!(error.starts_with("linux.seccomp: ") && error.ends_with("the kernel takes 4096"));
}

#[test]
fn notified_calls_are_listed_for_every_abi() {
    let mut profile = with_rule(
        json!({"names": ["mkdir", "mount", "no_such_call"], "action": "SCMP_ACT_NOTIFY"}),
    );
    profile["listenerPath"] = "/run/agent".into();
    profile["architectures"] = json!(["SCMP_ARCH_X86", "SCMP_ARCH_AARCH64"]);
    profile["flags"] = json!(["SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV"]);
    let filter = compile(&read(profile), Abi::X86_64).expect("a filter");
    let listed: Vec<_> = filter.notified.iter().map(|n| (n.arch, n.nr)).collect();
    let (x86, x86_64) = (0x4000_0003, 0xc000_003e);
    assert_eq!(listed, [(x86, 21), (x86, 39), (x86_64, 83), (x86_64, 165)]);
    assert_eq!(filter.flags, FLAG_NEW_LISTENER | FLAG_WAIT_KILLABLE_RECV);
}

#[test]
fn flags_are_those_that_the_kernel_takes_together() {
    let all = json!([
        "SECCOMP_FILTER_FLAG_LOG",
        "SECCOMP_FILTER_FLAG_SPEC_ALLOW",
        "SECCOMP_FILTER_FLAG_TSYNC",
        "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV"
    ]);
    let profile = json!({"defaultAction": "SCMP_ACT_ALLOW", "flags": all});
    let filter = compile(&read(profile), Abi::X86_64).expect("a filter");
    assert_eq!(filter.flags, FLAG_LOG | FLAG_SPEC_ALLOW);
}
