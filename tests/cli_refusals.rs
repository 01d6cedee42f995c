//! Everything that is refused, on the real binary: the message says where, the code and the exit
//! status are right, and nothing was launched.
#![cfg(target_os = "linux")]

mod cli_support;

use std::os::unix::fs::{PermissionsExt, symlink};

use cli_support::{Answer, Place, finish, repository, skipped};
use serde_json::{Value, json};

/// What has to be said about a policy.
struct Refusal<'a> {
    code: &'a str,
    /// The line, where it is known.
    line: Option<u64>,
    /// The key path, where there is one.
    key: Option<&'a str>,
    /// Part of the message.
    says: &'a str,
}

impl Refusal<'_> {
    fn check(&self, name: &str, file: &str, record: &Value) {
        let context = format!("{name}: {record}");
        assert_eq!(record["code"], self.code, "{context}");
        assert_eq!(record["file"], file, "{context}");
        assert_eq!(record["line"], json!(self.line), "{context}");
        assert_eq!(record["key"], json!(self.key), "{context}");
        let message = record["message"].as_str().unwrap_or_default();
        assert!(message.contains(self.says), "{context}");
    }
}

/// The program that would leave a mark if it were launched.
const MARK: &[&str] = &["--", "touch", "mark"];

impl Place {
    /// Runs `args`, with the marking program where `run` or `spec` takes one, and checks that it was
    /// not launched.
    fn refused(&self, args: &[&str], input: &[u8]) -> Answer {
        let answer = finish(self.command(args), input);
        assert!(!self.path("mark").exists(), "launched: {args:?} {answer:?}");
        assert_eq!(answer.stdout, "", "{args:?}");
        answer
    }

    /// A policy in the file `name` is refused by `run`, and not valid to `policy validate`.
    fn refuses_policy(&self, case: &str, name: &str, expected: &Refusal<'_>) {
        let answer = self.refused(&[&["run", "-p", name], MARK].concat(), b"");
        assert_eq!(answer.code, 1, "{case}: {answer:?}");
        assert_eq!(answer.trap()["kind"], "internal", "{case}");
        expected.check(case, name, &answer.trap());
        let answer = self.run(&["policy", "validate", "-p", name]);
        assert_eq!(answer.code, 1, "{case}: {answer:?}");
        if expected.code == "POLICY_IO_FAILED" {
            expected.check(case, name, &answer.trap());
            return;
        }
        let document = answer.json();
        assert_eq!(document["valid"], false, "{case}");
        expected.check(case, name, &document["error"]);
    }
}

/// Control: what the other tests show not to happen does happen under a policy that is right.
#[test]
fn a_right_policy_launches_the_program() {
    let place = Place::new();
    place.write("policy.json", r#"{"filesystem": {"allowWrite": ["."]}}"#);
    let answer = place.run(&[&["run", "-p", "policy.json"], MARK].concat());
    assert_eq!((answer.code, answer.stderr.as_str()), (0, ""));
    assert!(place.path("mark").exists());
}

/// Every document among the fixtures, with the verdict that the parser is held to.
#[test]
fn documents_are_refused_where_they_are_wrong() {
    let mut count = 0;
    for entry in std::fs::read_dir(repository("tests/fixtures/policy")).unwrap() {
        let dir = entry.unwrap().path();
        let case = dir.file_name().unwrap().to_str().unwrap().to_owned();
        let verdict = std::fs::read(dir.join("verdict.json")).unwrap();
        let verdict: Value = serde_json::from_slice(&verdict).unwrap();
        if verdict["valid"] == true {
            continue;
        }
        let place = Place::new();
        let json = dir.join("policy.json");
        let (file, from) = match json.exists() {
            true => ("policy.json", json),
            false => ("policy.yaml", dir.join("policy.yaml")),
        };
        place.write(file, std::fs::read(from).unwrap());
        let answer = place.run(&["policy", "validate", "-p", file]);
        let expected = Refusal {
            code: verdict["code"].as_str().unwrap(),
            // A verdict that names no line leaves it open.
            line: verdict["line"].as_u64().or(answer.json()["error"]["line"].as_u64()),
            key: verdict["key"].as_str(),
            says: verdict["says"].as_str().unwrap_or_default(),
        };
        place.refuses_policy(&case, file, &expected);
        count += 1;
    }
    assert!(count > 80, "only {count} fixtures");
}

#[test]
fn large_and_hostile_documents_are_refused() {
    let nested =
        |open: &str| format!("{{\"filesystem\": {{\"allowWrite\": {}", open.repeat(50_000));
    let entry = |i: usize| format!("\"/a/{i}\"");
    let list = |n: usize| (0..n).map(entry).collect::<Vec<_>>().join(",");
    let blocks: String = (0..2_500).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    let parse = "POLICY_PARSE_FAILED";
    for (case, file, bytes, code, line, says) in [
        ("10 MB", "p.json", vec![b' '; 10 << 20], "POLICY_IO_FAILED", None, "larger than 4 MiB"),
        ("10 MB of YAML", "p.yaml", vec![b'#'; 10 << 20], "POLICY_IO_FAILED", None, "4 MiB"),
        ("4 MiB of nothing", "p.json", vec![b'\n'; 4 << 20], parse, None, "empty"),
        ("JSON lists", "p.json", nested("[").into_bytes(), parse, Some(1), "nest"),
        ("JSON objects", "p.json", nested("{\"a\":").into_bytes(), parse, Some(1), "nest"),
        ("YAML flow lists", "p.yaml", "[".repeat(50_000).into_bytes(), parse, Some(1), "limit"),
        (
            "YAML flow objects",
            "p.yaml",
            "{a: ".repeat(50_000).into_bytes(),
            parse,
            Some(1),
            "limit",
        ),
        ("YAML sequences", "p.yaml", "- ".repeat(50_000).into_bytes(), parse, Some(1), "nest"),
        ("YAML blocks", "p.yaml", blocks.into_bytes(), parse, None, "nest"),
        (
            "250,000 entries",
            "p.json",
            format!("{{\"filesystem\":\n{{\"allowWrite\": [{}]}}}}", list(250_000)).into_bytes(),
            parse,
            Some(2),
            "more than",
        ),
    ] {
        let place = Place::new();
        place.write(file, &bytes);
        let answer = place.refused(&[&["run", "-p", file], MARK].concat(), b"");
        let record = answer.trap();
        assert_eq!((answer.code, &record["code"]), (1, &json!(code)), "{case}: {record}");
        assert_eq!(record["file"], file, "{case}");
        if line.is_some() {
            assert_eq!(record["line"].as_u64(), line, "{case}: {record}");
        }
        assert!(record["message"].as_str().unwrap().contains(says), "{case}: {record}");
    }
}

/// Large documents that are right are answered, too.
#[test]
fn large_documents_that_are_right_are_answered() {
    let globs: Vec<String> = (0..1_000).map(|i| format!("**/dir{i}/*.{{a,b}}[0-9]?")).collect();
    let paths: Vec<String> = (0..99_000).map(|i| format!("/nowhere/{}/{i}", i % 300)).collect();
    for (case, policy) in [
        ("1,000 globs", json!({"filesystem": {"allowWrite": ["."], "denyWrite": globs}})),
        ("99,000 denials", json!({"filesystem": {"denyWrite": paths}})),
        ("99,000 grants", json!({"filesystem": {"allowWrite": paths}})),
    ] {
        let place = Place::new();
        place.write("p.json", policy.to_string());
        let answer = place.run(&["policy", "validate", "-p", "p.json"]);
        assert_eq!((answer.code, &answer.json()["valid"]), (0, &json!(true)), "{case}: {answer:?}");
    }
}

#[test]
fn paths_that_lead_nowhere_are_refused() {
    let place = Place::new();
    symlink("loop", place.path("loop")).unwrap();
    std::os::unix::fs::symlink(
        <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"x\xff"),
        place.path("bytes"),
    )
    .unwrap();
    for (text, code, says) in [
        ("loop/x", "POLICY_TRAVERSAL_DEPTH", "more than 40 symbolic links"),
        ("bytes/x", "POLICY_PARSE_FAILED", "not UTF-8"),
    ] {
        let policy = format!("{{\"filesystem\": {{\n\"denyWrite\": [\"a\",\n \"{text}\"]}}}}");
        place.write("p.json", policy);
        let key = Some("filesystem.denyWrite[1]");
        place.refuses_policy(text, "p.json", &Refusal { code, line: Some(3), key, says });
    }
}

#[test]
fn a_home_that_is_not_there_is_refused() {
    for home in [None, Some(""), Some("relative")] {
        let place = Place::new();
        place.write("p.json", r#"{"filesystem": {"denyRead": ["~/.ssh"]}}"#);
        let mut command = place.command(&[&["run", "-p", "p.json"], MARK].concat());
        match home {
            None => command.env_remove("HOME"),
            Some(home) => command.env("HOME", home),
        };
        let answer = finish(command, b"");
        let key = Some("filesystem.denyRead[0]");
        let says = "no home directory";
        let expected = Refusal { code: "POLICY_HOME_UNAVAILABLE", line: Some(1), key, says };
        expected.check("no home", "p.json", &answer.trap());
        assert!(answer.code == 1 && !place.path("mark").exists());
    }
}

#[test]
fn files_that_cannot_be_read_are_refused() {
    let place = Place::new();
    std::fs::create_dir(place.path("dir")).unwrap();
    let io = |says| Refusal { code: "POLICY_IO_FAILED", line: None, key: None, says };
    place.refuses_policy("missing", "nowhere.json", &io("No such file"));
    place.refuses_policy("a directory", "dir", &io("Is a directory"));
    place.refuses_policy("below a file", "/dev/null/x", &io("Not a directory"));
    place.refuses_policy("without end", "/dev/zero", &io("larger than"));
    place.write("closed.json", "{}");
    let closed = std::fs::Permissions::from_mode(0o0);
    std::fs::set_permissions(place.path("closed.json"), closed).unwrap();
    if rustix::process::geteuid().is_root() {
        skipped("an unreadable file", "root reads every file");
    } else {
        place.refuses_policy("unreadable", "closed.json", &io("Permission denied"));
    }
    // The second of two is refused as the first is.
    place.write("good.json", "{}");
    let args = [&["run", "-p", "good.json", "-p", "nowhere.json"], MARK].concat();
    io("No such file").check("second", "nowhere.json", &place.refused(&args, b"").trap());
}

/// A name that is nearly that of a shipped policy, and a file that is not what its name says.
#[test]
fn policies_that_are_named_wrongly_are_refused_with_a_hint() {
    let place = Place::new();
    place.write("y.txt", "filesystem:\n  allowWrite: [.]\n");
    place.write("y.json", "# a comment\nfilesystem:\n  allowWrit: [.]\n");
    place.write("broken.txt", "{\"filesystem\": {\"allowWrite\": [\".\"],}}");
    place.write("text.txt", "hello: : world");
    for (file, code, says) in [
        ("workspace", "POLICY_IO_FAILED", "did you mean @workspace"),
        ("wrokspace", "POLICY_IO_FAILED", "did you mean @workspace"),
        ("Agent", "POLICY_IO_FAILED", "did you mean @agent"),
        ("y.txt", "POLICY_PARSE_FAILED", "--policy-format yaml"),
        ("y.json", "POLICY_PARSE_FAILED", "--policy-format yaml"),
    ] {
        let record = place.refused(&[&["run", "-p", file], MARK].concat(), b"").trap();
        assert_eq!((&record["code"], &record["file"]), (&json!(code), &json!(file)));
        assert!(record["message"].as_str().unwrap().contains(says), "{record}");
    }
    // Where it is no such thing, nothing is guessed.
    for file in ["nowhere", "a/workspace", "broken.txt", "text.txt"] {
        let record = place.refused(&[&["run", "-p", file], MARK].concat(), b"").trap();
        let message = record["message"].as_str().unwrap();
        assert!(!message.contains("did you mean") && !message.contains("yaml"), "{record}");
    }
    let said = place.run(&["policy", "validate", "-p", "y.txt", "--policy-format", "yaml"]);
    assert_eq!(said.code, 0, "{said:?}");
}

#[test]
fn what_this_host_cannot_enforce_is_refused() {
    let place = Place::new();
    place.write(
        "p.json",
        "{\"network\": {\n\"deniedDomains\": [\"a.com\"], \"socksProxyPort\": 1}}",
    );
    let (code, key) = ("POLICY_SHORTFALL", Some("network.deniedDomains[0]"));
    let expected = Refusal { code, line: Some(2), key, says: "--accept domains" };
    place.refuses_policy("domains", "p.json", &expected);
    // An empty list means no host, and an open network all of them.
    for (text, key) in [
        ("\"allowedDomains\": [],\n\"allowNetwork\": true", "network.allowNetwork"),
        ("\"allowNetwork\": true,\n\"allowedDomains\": [\"a.com\"]", "network.allowedDomains[0]"),
        ("\"allowNetwork\": true,\n\"deniedDomains\": [\"a.com\"]", "network.deniedDomains[0]"),
    ] {
        place.write("p.json", format!("{{\"network\": {{{text}}}}}"));
        let says = "`allowNetwork` opens it";
        let expected = Refusal { code, line: Some(2), key: Some(key), says };
        place.refuses_policy("an open network", "p.json", &expected);
    }
}

#[test]
fn the_policy_of_a_program_may_only_tighten() {
    let place = Place::new();
    std::fs::copy("/bin/true", place.path("tool")).unwrap();
    place.write("p.json", r#"{"filesystem": {"allowWrite": ["."]}}"#);
    let name = format!("{} (user.landstrip.policy)", place.text("tool"));
    for (text, code, line, key, says) in [
        ("{", "POLICY_PARSE_FAILED", Some(1), None, ""),
        ("", "POLICY_PARSE_FAILED", None, None, "empty"),
        (
            "filesystem:\n  denyRead: [/etc]\n",
            "POLICY_PARSE_FAILED",
            Some(1),
            None,
            "an attached policy is JSON",
        ),
        (
            "{\"filesystem\":\n{\"allowWrite\": [\"/\"]}}",
            "POLICY_NOT_TIGHTER",
            Some(2),
            Some("filesystem.allowWrite[0]"),
            "only tighten",
        ),
        (
            "{\"network\": {\"allowNetwork\": true}}",
            "POLICY_NOT_TIGHTER",
            Some(1),
            Some("network.allowNetwork"),
            "only tighten",
        ),
    ] {
        let flags = rustix::fs::XattrFlags::empty();
        let set = rustix::fs::setxattr(
            place.path("tool"),
            "user.landstrip.policy",
            text.as_bytes(),
            flags,
        );
        if set == Err(rustix::io::Errno::OPNOTSUPP) {
            skipped("the policy of a program", "no extended attributes here");
            return;
        }
        set.unwrap();
        let expected = Refusal { code, line, key, says };
        for args in [
            &["run", "-p", "p.json", "--", "./tool"][..],
            &["spec", "-p", "p.json", "--", "./tool"],
        ] {
            let answer = place.refused(args, b"");
            assert_eq!(answer.code, 1, "{answer:?}");
            expected.check(text, &name, &answer.trap());
        }
        let answer = place.run(&["policy", "validate", "-p", "p.json", "--tool", "./tool"]);
        assert_eq!(answer.code, 1);
        expected.check(text, &name, &answer.json()["error"]);
        // A program of that kind is only run by its name.
        assert_eq!(place.run(&["policy", "validate", "-p", "p.json"]).code, 0);
    }
}

#[test]
fn a_policy_on_standard_input_is_refused_by_its_name() {
    let place = Place::new();
    let args = [&["run", "-p", "-", "--policy-format", "json"], MARK].concat();
    let answer = place.refused(&args, b"{\"filesystem\":\n{\"x\": 1}}");
    assert_eq!(answer.code, 1);
    let key = Some("filesystem.x");
    let expected = Refusal { code: "POLICY_PARSE_FAILED", line: Some(2), key, says: "unknown key" };
    expected.check("stdin", "<stdin>", &answer.trap());
}

#[test]
fn wrong_command_lines_are_usage_errors() {
    let place = Place::new();
    place.write("p.json", "{}");
    std::fs::create_dir(place.path("bundle")).unwrap();
    place.write("bundle/config.json", "{}");
    std::fs::create_dir_all(place.path("rooted/rootfs")).unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&[], "Usage"),
        (&["frobnicate"], "frobnicate"),
        (&["run"], "nothing to run"),
        (&["run", "--"], "nothing to run"),
        (&["--policy", "p.json", "run", "--", "touch", "mark"], "put it after the command"),
        (&["--policy", "p.json", "why", "mark"], "put it after the command"),
        (&["run", "--polcy", "x", "--", "touch", "mark"], "--polcy"),
        (&["run", "-p", "p.json", "--policy-format", "toml", "--", "touch", "mark"], "toml"),
        (&["run", "-p", "-", "--", "touch", "mark"], "--policy-format"),
        (&["run", "-p", "@worksapce", "--", "touch", "mark"], "did you mean @workspace?"),
        (&["run", "-p", "-", "-p", "-", "--policy-format", "json", "--", "touch", "mark"], "once"),
        (&["run", "-p", "@nowhere", "--", "touch", "mark"], "`@nowhere`"),
        (&["run", "-p", "@nowhere", "--", "touch", "mark"], "; there are @workspace, @agent"),
        (&["run", "-p", "@worksapce", "--", "touch", "mark"], "? There are @workspace"),
        (&["run", "-p", "", "--", "touch", "mark"], "'--policy <FILE>': is empty"),
        (&["--policy", "", "run", "bundle"], "'--policy <FILE>': is empty"),
        (&["run", "--cwd", "", "--", "touch", "mark"], "--cwd"),
        (&["policy", "plan", "--tool", ""], "'--tool <PROGRAM>': is empty"),
        (&["learn", "-o", "", "--", "touch", "mark"], "--output"),
        (&["rn", "--", "touch", "mark"], "similar subcommand exists: 'run'"),
        (&["wyh"], "similar subcommand exists: 'why'"),
        (&["cretae"], "similar subcommand exists: 'create'"),
        (&["run", "--trap-fd", "2", "--", "touch", "mark"], "--trap-fd"),
        (&["run", "--trap-fd", "2", "--", "touch", "mark"], "open descriptor, 3 or above"),
        (&["run", "--trap-fd", "-1", "--", "touch", "mark"], "'-1'"),
        (&["run", "--trap-fd", "-1", "--", "touch", "mark"], "open descriptor, 3 or above"),
        (&["run", "--trap-fd", "three", "--", "touch", "mark"], "open descriptor, 3 or above"),
        (
            &["run", "--trap-fd", "99", "--", "touch", "mark"],
            "--trap-fd 99: descriptor 99 is not open",
        ),
        (
            &["run", "--inherit", "99", "--", "touch", "mark"],
            "--inherit 99: descriptor 99 is not open",
        ),
        (&["run", "--inherit", "0", "--", "touch", "mark"], "open descriptor, 3 or above"),
        (&["run", "--inherit", "3,-1", "--", "touch", "mark"], "open descriptor, 3 or above"),
        (&["run", "--query-timeout", "-1", "--", "touch", "mark"], "whole number of seconds"),
        (&["run", "--query-timeout", "2m", "--", "touch", "mark"], "whole number of seconds"),
        (&["run", "--cwd", "nowhere", "--", "touch", "mark"], "--cwd nowhere"),
        (&["run", "--cwd", "p.json", "--", "touch", "mark"], "--cwd p.json"),
        (&["run", "bundle", "--", "touch", "mark"], "exclude each other"),
        (&["run", "-p", "p.json", "bundle"], "brings its policy"),
        (&["run", "--cwd", ".", "bundle"], "brings its policy"),
        (&["run", "--bundle", "bundle"], "BUNDLE|ID"),
        (&["run", "--bundle", "bundle", "a/b"], "invalid character"),
        (&["spec", "-p", "p.json"], "PROGRAM"),
        (&["spec", "--rootless", "--", "touch", "mark"], "--rootless"),
        (&["run", "--detach", "--", "touch", "mark"], "containers"),
        (
            &["spec", "--bundle", "bundle", "--", "touch", "mark"],
            "bundle/config.json: exists already: remove it, or name another directory",
        ),
        (
            &["spec", "--bundle", "rooted", "--", "touch", "mark"],
            "rooted/rootfs: exists already: remove it, or name another directory",
        ),
        (&["spec", "--bundle", "no/where", "--", "touch", "mark"], "no/where/config.json"),
        (&["run", "--accept", "nosuch", "--", "touch", "mark"], "nosuch"),
        (&["run", "nowhere"], "put `--` before it: run -- nowhere"),
        (&["run", "./p.json"], "put `--` before it: run -- ./p.json"),
        (&["run", "nowhere/"], "no directory 'nowhere/'"),
        (&["run", "nowhere/"], "spec --bundle nowhere/"),
        (&["run", "p.json", "--", "touch", "mark"], "named with -p"),
        (&["learn", "-o", "l.yaml", "touch", "mark"], "learn [OPTIONS] -- PROGRAM"),
        (&["learn", "-o", "l.yaml", "./s.sh"], "learn [OPTIONS] -- PROGRAM"),
        (&["spec", "touch", "mark"], "spec [OPTIONS] -- PROGRAM"),
        (&["policy", "validate", "p.json"], "policy validate -p p.json"),
        (&["policy", "resolve", "p.json"], "policy resolve -p p.json"),
        (&["policy", "plan", "p.json"], "policy plan -p p.json"),
        (&["why", "p.json", "mark"], "named with -p"),
        (&["why", "foo:0"], "ends in \"0\", which is not a port"),
        (&["why", "foo:65536"], "ends in \"65536\""),
        (&["why", "foo:http"], "ends in \"http\""),
        (&["why", "2001:db8::1"], "in brackets"),
        (&["run", "touch", "mark"], "Put `--` before the program"),
        (&["why"], "PATH|HOST"),
        (&["why", ""], "empty"),
        (&["why", "http://example.com"], "schemes"),
        (&["why", "*.example.com"], "pattern"),
        (&["why", "--as", "host", "127.1"], "not a host"),
        (&["policy"], "Usage"),
        (&["policy", "valid"], "valid"),
        (&["policy", "schema", "traps"], "traps"),
        (&["policy", "schema", "--format", "text"], "possible values: json"),
        (&["policy", "plan", "--format", "xml"], "xml"),
        (&["completions", "tcsh"], "tcsh"),
        (&["doctor", "x"], "x"),
    ];
    for (args, says) in cases {
        let answer = place.refused(args, b"{}");
        let record = answer.trap();
        assert_eq!(answer.code, 2, "{args:?}: {record}");
        assert_eq!(record["kind"], "usage", "{args:?}");
        assert_eq!(record["code"], "USAGE_ERROR", "{args:?}");
        assert!(record["message"].as_str().unwrap().contains(says), "{args:?}: {record}");
    }
}

#[test]
fn advice_offers_what_the_help_shows_and_takes_no_option_for_a_value() {
    let place = Place::new();
    let message = |args: &[&str]| {
        let record = place.refused(args, b"").trap();
        record["message"].as_str().expect("a message").to_owned()
    };
    let help = place.run(&["--help"]).stdout;
    let (_, listed) = help.split_once("Commands:\n").expect("commands");
    let (listed, _) = listed.split_once("\n\n").expect("an end");
    let listed: Vec<_> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(listed.contains(&"run") && !listed.contains(&"windows"), "{listed:?}");
    let offered = message(&[]);
    assert!(offered.contains(&format!("[subcommands: {}]", listed.join(", "))), "{offered}");
    let nested = message(&["policy"]);
    assert!(nested.contains("[subcommands: validate, resolve, plan, schema, list]"), "{nested}");
    for typed in ["restor", "checkpont", "widows"] {
        let text = message(&[typed]);
        assert!(!text.contains("'restore'") && !text.contains("'checkpoint'"), "{text}");
        assert!(!text.contains("'windows'"), "{text}");
    }
    for args in [
        &["policy", "plan", "--formt"][..],
        &["completions", "bash", "--format", "json"],
        &["spec", "--format", "json"],
        &["why", "--odd"],
    ] {
        let text = message(args);
        assert!(text.contains("unexpected argument '--"), "{text}");
        assert!(!text.contains("as a value"), "{text}");
    }
    assert!(message(&["policy", "plan", "--formt"]).contains("'--format'"));
}

#[test]
fn programs_that_cannot_be_run_have_the_exit_codes_of_a_shell() {
    let place = Place::new();
    std::fs::create_dir(place.path("dir")).unwrap();
    place.write("text", "x");
    place.write("script", "#!/nowhere/interpreter\n");
    place.write("noexec", [0u8, 1, 2, 3]);
    for name in ["script", "noexec"] {
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(place.path(name), mode).unwrap();
    }
    for name in ["path", "subdir"] {
        std::fs::create_dir(place.path(name)).unwrap();
    }
    place.write("path/closed", "x");
    let program = "#!/bin/sh\ntouch mark\n";
    place.write("tool", program);
    std::fs::set_permissions(place.path("tool"), std::fs::Permissions::from_mode(0o755)).unwrap();
    for (program, code, errno, says) in [
        ("is-not-in-path", 127, "ENOENT", "not found in PATH"),
        ("tool", 127, "ENOENT", "did you mean ./tool?"),
        ("text", 127, "ENOENT", "./text is not executable"),
        ("subdir", 127, "ENOENT", "./subdir is a directory"),
        ("closed", 126, "EACCES", "path/closed is not executable"),
        ("./nowhere", 127, "ENOENT", "No such file"),
        ("./text/x", 127, "ENOTDIR", "Not a directory"),
        ("./text", 126, "EACCES", "it is not executable (`chmod +x` makes it so)"),
        ("./dir", 126, "EACCES", "it is a directory"),
        ("/dev/null", 126, "EACCES", "it is no regular file"),
        ("./script", 127, "ENOENT", "the interpreter that the file names does not exist"),
        ("./noexec", 126, "ENOEXEC", "no script that starts with `#!`"),
    ] {
        let mut command = place.command(&["run", "--", program]);
        command.env("PATH", format!("{}:/usr/bin:/bin", place.text("path")));
        let answer = finish(command, b"");
        assert!(!place.path("mark").exists(), "{program}");
        let record = answer.trap();
        assert_eq!((answer.code, &record["kind"]), (code, &json!("launch")), "{program}: {record}");
        assert_eq!(record["code"], "LAUNCH_FAILED", "{program}");
        assert_eq!(record["errno"], errno, "{program}: {record}");
        assert!(record["message"].as_str().unwrap().contains(says), "{program}: {record}");
    }
}

#[test]
fn what_is_for_windows_is_refused_here() {
    let place = Place::new();
    for verb in ["install", "status", "uninstall"] {
        let answer = place.refused(&["windows", verb], b"");
        assert_eq!((answer.code, &answer.trap()["code"]), (1, &json!("PLATFORM_UNSUPPORTED")));
    }
}

#[test]
fn bundles_that_ask_for_more_are_refused_by_field() {
    let place = Place::new();
    place.write("p.json", r#"{"filesystem": {"allowWrite": ["."]}}"#);
    std::fs::create_dir(place.path("b")).unwrap();
    let answer = place.run(&[&["spec", "-p", "p.json"], MARK].concat());
    let good = answer.json();
    let inside = |change: fn(&mut Value)| {
        let mut bundle = good.clone();
        let text = bundle["annotations"]["dev.landstrip.enforcement"].as_str().unwrap();
        let mut value: Value = serde_json::from_str(text).unwrap();
        change(&mut value);
        bundle["annotations"]["dev.landstrip.enforcement"] = json!(value.to_string());
        bundle
    };
    let with = |section: &str, key: &str, value: Value| {
        let mut bundle = good.clone();
        match section {
            "" => bundle[key] = value,
            section => bundle[section][key] = value,
        }
        bundle
    };
    let annotation = "annotations.dev.landstrip.enforcement";
    let mut fewer = good["mounts"].clone();
    fewer.as_array_mut().unwrap().pop();
    let mut on_the_host = with("", "annotations", json!({}));
    on_the_host["root"] = json!({"path": "/"});
    on_the_host["linux"] = json!({});
    for (bundle, key, says) in [
        (with("root", "readonly", json!(false)), "root", "can only be"),
        (with("linux", "namespaces", json!([{"type": "pid"}])), "linux.namespaces", "can only be"),
        (with("", "mounts", fewer), "mounts", "can only be"),
        (with("", "hostname", json!("h")), "hostname", "cannot be had"),
        (on_the_host, annotation, "is missing"),
        (inside(|v| v["version"] = json!(2)), annotation, "version 2"),
        (inside(|v| v["policy"]["denyRead"] = json!(["/"])), annotation, "not understood"),
        (with("process", "cwd", json!("/")), "process.cwd", "can only be"),
        (with("process", "user", json!({"uid": 4242, "gid": 1})), "process.user", "can only be"),
    ] {
        place.write("b/config.json", bundle.to_string());
        for args in [&["run", "b"][..], &["run", "b/"], &["run", "--bundle", "b", "id"]] {
            let answer = place.refused(args, b"");
            let record = answer.trap();
            assert_eq!(answer.code, 1, "{key}: {record}");
            assert_eq!(record["code"], "POLICY_PARSE_FAILED", "{key}");
            assert_eq!(record["file"], "b/config.json", "{key}: {record}");
            assert!(record["key"].as_str().unwrap_or_default().starts_with(key), "{record}");
            assert!(record["message"].as_str().unwrap().contains(says), "{record}");
        }
    }
    for (text, line) in [("", Some(1)), ("{\n\"ociVersion\": 1}", Some(2)), ("\u{feff}{}", Some(1))]
    {
        place.write("b/config.json", text);
        let record = place.refused(&["run", "b"], b"").trap();
        assert_eq!(record["code"], "POLICY_PARSE_FAILED", "{text:?}: {record}");
        assert_eq!(record["line"].as_u64(), line, "{text:?}: {record}");
    }
    std::fs::create_dir(place.path("empty")).unwrap();
    let record = place.refused(&["run", "empty"], b"").trap();
    assert_eq!(
        (&record["code"], &record["file"]),
        (&json!("POLICY_IO_FAILED"), &json!("empty/config.json"))
    );
    assert!(record["message"].as_str().unwrap().contains("spec --bundle empty -- "), "{record}");
    // Control: the one that asks for nothing more is launched.
    place.write("b/config.json", good.to_string());
    let answer = place.run(&["run", "b"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(place.path("mark").exists());
}
