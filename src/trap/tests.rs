//! Every kind of record against the schema, and the text for people.

use std::time::{Duration, UNIX_EPOCH};

use super::*;

pub(super) fn filesystem() -> Denial {
    Denial {
        kind: Kind::Filesystem,
        operation: Operation::Write,
        path: Some("/repo/out".to_owned()),
        requested_path: Some("out".to_owned()),
        old_path: None,
        new_path: None,
        target: None,
        syscall: Some("openat"),
        errno: Some("EACCES"),
        flags: vec!["O_WRONLY", "O_CREAT", "O_TRUNC"],
        arguments: vec![("mode", "0644".to_owned())],
        reason: Some(Reason::AllowMiss),
        suggested_grant: Some(Grant::path("filesystem", "allowWrite", "/repo/out")),
        rule: None,
        process: Process { pid: 1234, exe: "/usr/bin/sh".to_owned(), cwd: "/repo".to_owned() },
        message: None,
    }
}

fn rule() -> RuleRef {
    RuleRef {
        file: "policy.json".to_owned(),
        line: 12,
        key: "filesystem.denyWrite[0]".to_owned(),
        text: "**/.env".to_owned(),
    }
}

fn network() -> Denial {
    Denial {
        kind: Kind::Network,
        operation: Operation::Connect,
        path: None,
        requested_path: None,
        target: Some("127.0.0.1:9999".to_owned()),
        syscall: Some("connect"),
        flags: Vec::new(),
        arguments: Vec::new(),
        reason: None,
        suggested_grant: Some(Grant::switch("allowNetwork")),
        ..filesystem()
    }
}

fn ipc() -> Denial {
    let target = Some("shm key 0x2a".to_owned());
    Denial { kind: Kind::Ipc, syscall: Some("shmget"), target, suggested_grant: None, ..network() }
}

/// As the sandbox of macOS tells it: by its own name for the operation.
fn seatbelt() -> Denial {
    let arguments = vec![("operation", "file-write-create".to_owned())];
    Denial { syscall: None, errno: Some("EPERM"), arguments, requested_path: None, ..filesystem() }
}

fn limit(resource: Resource, count: u64) -> LimitReached {
    let key = "limits.pids".to_owned();
    LimitReached { resource, value: 20, count, rule: RuleRef { key, text: "20".into(), ..rule() } }
}

/// One trap of every kind, each with and without its optional fields.
fn every_kind() -> Vec<Trap> {
    let literal = Some(Grant::path("filesystem", "allowWrite", "/repo/[x]"));
    let mut traps = vec![
        Trap::Denial(filesystem()),
        Trap::Denial(Denial {
            reason: Some(Reason::DenyMatch),
            rule: Some(rule()),
            suggested_grant: literal,
            message: Some("would move a denied name".to_owned()),
            ..filesystem()
        }),
        Trap::Denial(Denial { requested_path: None, suggested_grant: None, ..filesystem() }),
        Trap::Denial(Denial {
            old_path: Some("/repo/a".to_owned()),
            new_path: Some("/repo/out".to_owned()),
            syscall: Some("renameat2"),
            flags: vec!["RENAME_EXCHANGE"],
            arguments: Vec::new(),
            ..filesystem()
        }),
        Trap::Control { query_id: None, message: "not a JSON object".to_owned() },
        Trap::Control { query_id: Some(3), message: "unknown field `why`".to_owned() },
        Trap::Denial(network()),
        Trap::Denial(Denial { rule: Some(rule()), suggested_grant: None, ..network() }),
        Trap::Denial(Denial { operation: Operation::Read, ..ipc() }),
        Trap::Denial(seatbelt()),
        Trap::Limit(limit(Resource::Memory, 1)),
        Trap::Limit(limit(Resource::Pids, 7)),
        Trap::Limit(limit(Resource::Time, 1)),
        Trap::Usage { message: "unexpected argument '--x'".to_owned() },
    ];
    for errno in [None, Some("ENOENT")] {
        let (program, message) = ("/usr/bin/cargo".to_owned(), "No such file".to_owned());
        traps.push(Trap::Launch { program, errno, message });
    }
    let internal = Code::ALL.iter().filter(|code| !has_own_kind(**code));
    traps.extend(internal.map(|code| Trap::Internal {
        code: *code,
        mechanism: (*code == Code::SandboxSetupFailed).then_some(Mechanism::Landlock),
        message: "what went wrong".to_owned(),
        file: Some("policy.json".to_owned()),
        line: Some(3),
        key: Some("filesystem".to_owned()),
    }));
    traps.push(Trap::Internal {
        code: Code::InternalError,
        mechanism: None,
        message: String::new(),
        file: None,
        line: None,
        key: None,
    });
    traps
}

/// Whether records with this code have a kind of their own, apart from `internal`.
fn has_own_kind(code: Code) -> bool {
    matches!(
        code,
        Code::FilesystemDenied
            | Code::NetworkDenied
            | Code::IpcDenied
            | Code::MemoryLimitReached
            | Code::PidsLimitReached
            | Code::TimeLimitReached
            | Code::ControlIgnored
            | Code::DenialsOmitted
            | Code::LaunchFailed
            | Code::UsageError
    )
}

fn schema() -> jsonschema::Validator {
    jsonschema::draft202012::new(&serde_json::from_str(SCHEMA).unwrap()).unwrap()
}

#[test]
fn every_record_satisfies_the_schema() {
    let schema = schema();
    let check = |line: &str| {
        assert!(line.ends_with('\n') && line.matches('\n').count() == 1, "{line}");
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        let errors: Vec<_> = schema.iter_errors(&record).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{line}{errors:?}");
    };
    for trap in every_kind() {
        check(&trap.json_line(UNIX_EPOCH, State::Info, 0));
        check(&trap.json_line(UNIX_EPOCH, State::Query, u64::MAX));
    }
    let mut summary = Summary::new();
    for n in 0..300 {
        summary.record(&Denial { path: Some(format!("/{n}")), ..filesystem() }, UNIX_EPOCH);
    }
    let mut out = Vec::new();
    summary.write(&mut out, Style::Json).unwrap();
    let out = String::from_utf8(out).unwrap();
    assert_eq!(out.lines().count(), 201);
    out.split_inclusive('\n').for_each(check);
}

#[test]
fn the_schema_refuses_what_is_not_a_record() {
    let schema = schema();
    let line = Trap::Denial(filesystem()).json_line(UNIX_EPOCH, State::Info, 0);
    let good: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert!(schema.is_valid(&good));
    for (field, value) in [
        ("kind", Some("network")),
        ("kind", Some("other")),
        ("code", Some("LAUNCH_FAILED")),
        ("state", Some("maybe")),
        ("query_id", Some("-1")),
        ("operation", Some("connect")),
        ("errno", Some("13")),
        ("reason", Some("because")),
        ("extra", Some("x")),
        ("path", None),
        ("arguments", Some("0644")),
        ("process", None),
        ("ts", None),
    ] {
        let mut bad = good.clone();
        match value {
            Some(value) => bad[field] = value.into(),
            None => drop(bad.as_object_mut().unwrap().remove(field)),
        }
        assert!(!schema.is_valid(&bad), "{field} {value:?}");
    }
}

#[test]
fn the_schema_lists_the_codes() {
    let schema: serde_json::Value = serde_json::from_str(SCHEMA).unwrap();
    let listed = schema["$defs"]["internal"]["properties"]["code"]["enum"].as_array().unwrap();
    let codes: Vec<_> = Code::ALL.iter().filter(|c| !has_own_kind(**c)).collect();
    assert_eq!(listed, &codes.iter().map(|c| c.as_str()).collect::<Vec<_>>());
}

#[test]
fn a_line_has_its_fields_in_order() {
    let ts = UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456);
    let line = Trap::Denial(filesystem()).json_line(ts, State::Info, 0);
    assert_eq!(
        line,
        "{\"kind\":\"filesystem\",\"code\":\"FILESYSTEM_DENIED\",\"state\":\"info\",\
         \"query_id\":\"0\",\"operation\":\"write\",\"path\":\"/repo/out\",\
         \"requested_path\":\"out\",\"syscall\":\"openat\",\"errno\":\"EACCES\",\
         \"flags\":[\"O_WRONLY\",\"O_CREAT\",\"O_TRUNC\"],\"arguments\":{\"mode\":\"0644\"},\
         \"reason\":\"allow_miss\",\
         \"suggested_grant\":{\"allowWrite\":\"/repo/out\"},\"mechanism\":\"seccomp\",\
         \"process\":{\"pid\":1234,\"exe\":\"/usr/bin/sh\",\"cwd\":\"/repo\"},\
         \"ts\":1700000000.123456}\n"
    );
}

#[test]
fn text_names_the_thing_the_rule_and_the_grant() {
    let denied = Denial { rule: Some(rule()), ..filesystem() };
    let built_in = RuleRef { file: "built-in".to_owned(), line: 0, ..rule() };
    for (trap, expected) in [
        (
            Trap::Denial(filesystem()),
            "landstrip: denied write /repo/out: no rule allows it; \
             allow it with {\"filesystem\":{\"allowWrite\":[\"/repo/out\"]}}\n",
        ),
        (
            Trap::Denial(Denial { suggested_grant: None, ..denied.clone() }),
            "landstrip: denied write /repo/out by policy.json:12 \
             filesystem.denyWrite[0] \"**/.env\"\n",
        ),
        (
            Trap::Denial(Denial { rule: Some(built_in), suggested_grant: None, ..denied }),
            "landstrip: denied write /repo/out by built-in filesystem.denyWrite[0] \"**/.env\"\n",
        ),
        (
            Trap::Denial(Denial {
                old_path: Some("/repo/a".to_owned()),
                new_path: Some("/repo/out".to_owned()),
                syscall: Some("rename"),
                suggested_grant: None,
                ..filesystem()
            }),
            "landstrip: denied write /repo/out (rename of /repo/a to /repo/out): \
             no rule allows it\n",
        ),
        (
            Trap::Denial(network()),
            "landstrip: denied connect 127.0.0.1:9999; \
             allow it with {\"network\":{\"allowNetwork\":true}}\n",
        ),
        (
            Trap::Denial(Denial { operation: Operation::Read, ..ipc() }),
            "landstrip: denied ipc read shm key 0x2a\n",
        ),
        (
            Trap::Launch {
                program: "cargo".to_owned(),
                errno: Some("ENOENT"),
                message: "No such file or directory (os error 2)".to_owned(),
            },
            "landstrip: cannot run cargo: No such file or directory (os error 2)\n",
        ),
        (
            Trap::Internal {
                code: Code::PolicyParseFailed,
                mechanism: None,
                message: "unknown key".to_owned(),
                file: Some("p.json".to_owned()),
                line: Some(3),
                key: Some("filesystem.x".to_owned()),
            },
            "landstrip: p.json:3: filesystem.x: unknown key (POLICY_PARSE_FAILED)\n",
        ),
    ] {
        assert_eq!(trap.text(), expected);
    }
}

#[test]
fn text_cannot_drive_a_terminal_or_add_lines() {
    let path = "/a\nlandstrip: fine\u{1b}[2J\u{202e}\u{9b}\u{2028}é日";
    let shown = printable(path).to_string();
    assert_eq!(shown, "/a\\nlandstrip: fine\\u{1b}[2J\\u{202e}\\u{9b}\\u{2028}é日");
    let denial = Denial {
        path: Some(path.to_owned()),
        suggested_grant: Some(Grant::path("filesystem", "allowWrite", path)),
        ..filesystem()
    };
    let text = Trap::Denial(denial).text();
    assert_eq!(text.matches('\n').count(), 1);
    assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text:?}");
}
