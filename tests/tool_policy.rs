//! The policy that is attached to a program's file, against the real program: it tightens, it never
//! loosens, it is that of the file which is executed, and it cannot be set from inside.

mod support;

use rustix::fs::XattrFlags;
use serde_json::{Value, json};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use support::{Bed, LANDSTRIP, Run, finish, have::have};

const ATTRIBUTE: &str = "user.landstrip.policy";

/// A policy of the run that lets its directory be written.
fn base() -> Value {
    json!({ "filesystem": { "allowWrite": ["{in}"] } })
}

/// A bed with a program `tool` in `out`, which touches what it is told to, and a function to attach a
/// policy to a file.
fn bed() -> Option<Bed> {
    have("attached policy", &["xattr"]).then(|| {
        let bed = Bed::new(&[]);
        script(&bed.root().join("out/tool"), "#!/bin/sh", "for f; do (: > \"$f\"); done");
        bed
    })
}

fn script(path: &Path, interpreter: &str, text: &str) {
    std::fs::write(path, format!("{interpreter}\n{text}\n")).expect("a script");
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("chmod");
}

fn attach(bed: &Bed, path: &str, policy: &str) {
    let (path, policy) = (bed.fill(path), bed.fill(policy));
    rustix::fs::setxattr(path, ATTRIBUTE, policy.as_bytes(), XattrFlags::empty())
        .expect("setxattr");
}

/// Which of the names `a`, `b` and `sub/c` in `in` a program has made.
fn made(bed: &Bed, run: impl FnOnce() -> Run) -> (Run, Vec<&'static str>) {
    bed.reset(&[]);
    let inside = bed.root().join("in");
    std::fs::create_dir(inside.join("sub")).expect("mkdir");
    let names = ["a", "b", "sub/c"];
    // The reset emptied `out` too.
    script(&bed.root().join("out/tool"), "#!/bin/sh", "for f; do (: > \"$f\"); done");
    let run = run();
    (run, names.into_iter().filter(|name| inside.join(name).exists()).collect())
}

const NAMES: [&str; 3] = ["a", "b", "sub/c"];

#[test]
fn it_adds_denials_and_narrows_grants() {
    let Some(bed) = bed() else { return };
    let cases: [(&str, &[&str]); 5] = [
        (r#"{}"#, &NAMES),
        (r#"{"filesystem":{"denyWrite":["{in}/b"]}}"#, &["a", "sub/c"]),
        (r#"{"filesystem":{"denyWriteAlways":["**/b"]}}"#, &["a", "sub/c"]),
        (r#"{"filesystem":{"allowWrite":["{in}/sub"]}}"#, &["sub/c"]),
        (r#"{"filesystem":{"allowWrite":["{in}"],"denyWrite":["{in}/sub"]}}"#, &["a", "b"]),
    ];
    for (policy, expected) in cases {
        let (run, names) = made(&bed, || {
            attach(&bed, "{out}/tool", policy);
            bed.launch(&base(), &[], &[&["{out}/tool"], &NAMES[..]].concat())
        });
        assert_eq!(names, expected, "{policy} {run:?}");
    }
    // The control: without the attribute the run's policy is all there is.
    let tool = [&["{out}/tool"], &NAMES[..]].concat();
    let (run, names) = made(&bed, || bed.launch(&base(), &[], &tool));
    assert_eq!(names, NAMES, "{run:?}");
}

#[test]
fn what_is_wrong_with_it_refuses_the_run() {
    let Some(bed) = bed() else { return };
    let cases = [
        (r#"{"filesystem":"#, "POLICY_PARSE_FAILED"),
        ("", "POLICY_PARSE_FAILED"),
        ("\u{0}{}", "POLICY_PARSE_FAILED"),
        (r#"{"filesystem":{"allowWrit":[]}}"#, "POLICY_PARSE_FAILED"),
        (r#"{"filesystem":{"allowWrite":["{out}"]}}"#, "POLICY_NOT_TIGHTER"),
        (r#"{"filesystem":{"allowWrite":["/"]}}"#, "POLICY_NOT_TIGHTER"),
        (r#"{"filesystem":{"allowRead":["/secret"]}}"#, ""),
        (r#"{"network":{"allowNetwork":true}}"#, "POLICY_NOT_TIGHTER"),
        (r#"{"network":{"allowAllUnixSockets":true}}"#, "POLICY_NOT_TIGHTER"),
        (r#"{"network":{"allowLocalBinding":true}}"#, "POLICY_NOT_TIGHTER"),
        (r#"{"network":{"httpProxyPort":3128}}"#, "POLICY_NOT_TIGHTER"),
        (r#"{"network":{"hostPorts":[3128]}}"#, "POLICY_NOT_TIGHTER"),
        (r#"{"network":{"expose":[3128]}}"#, "POLICY_NOT_TIGHTER"),
    ];
    for (policy, code) in cases {
        let (run, names) = made(&bed, || {
            attach(&bed, "{out}/tool", policy);
            bed.launch(&base(), &[], &["{out}/tool", "a"])
        });
        if code.is_empty() {
            // Reading is open anyway, so this asks for nothing.
            assert_eq!((run.code, names), (Some(0), vec!["a"]), "{policy} {run:?}");
            continue;
        }
        let trap: Value = serde_json::from_str(run.stderr.trim()).expect("one record");
        assert_eq!((run.code, &trap["code"]), (Some(1), &json!(code)), "{policy} {run:?}");
        assert_eq!(run.traps[0]["code"], trap["code"], "{policy}");
        let file = bed.fill("{out}/tool (user.landstrip.policy)");
        assert_eq!(trap["file"], json!(file), "{policy}");
        assert_eq!(names, [""; 0], "{policy}: launched all the same");
    }
}

#[test]
fn one_that_cannot_be_read_refuses_the_run() {
    let Some(bed) = bed() else { return };
    // Root reads everything; the file of a user is closed to its reading by its mode.
    let root = rustix::process::geteuid().is_root();
    let user: &[&str] = if root { &["3>{root}/traps", "uid=65534"] } else { &[] };
    let tool = bed.root().join("out/tool");
    // A script has to be read by its interpreter; a binary has not.
    std::fs::copy("/bin/true", &tool).expect("a copy");
    let run = |mode| {
        std::fs::set_permissions(&tool, PermissionsExt::from_mode(mode)).expect("chmod");
        bed.launch(&base(), user, &["{out}/tool"])
    };
    assert_eq!(run(0o111).code, Some(0), "without a policy there is nothing to be read");
    std::fs::set_permissions(&tool, PermissionsExt::from_mode(0o755)).expect("chmod");
    attach(&bed, "{out}/tool", "{}");
    assert_eq!(run(0o755).code, Some(0));
    let refused = run(0o111);
    let trap: Value = serde_json::from_str(refused.stderr.trim()).expect("one record");
    assert_eq!((refused.code, &trap["code"]), (Some(1), &json!("POLICY_IO_FAILED")), "{refused:?}");
}

#[test]
fn it_is_that_of_the_file_behind_every_name() {
    let Some(bed) = bed() else { return };
    let deny = r#"{"filesystem":{"denyWrite":["{in}/b"]}}"#;
    let prepare = || {
        attach(&bed, "{out}/tool", deny);
        symlink("tool", bed.root().join("out/link")).expect("a link");
        symlink(bed.root().join("out/link"), bed.root().join("in/link2")).expect("a link");
        std::fs::hard_link(bed.root().join("out/tool"), bed.root().join("out/hard"))
            .expect("a link");
    };
    let path = bed.fill("PATH={out}:/usr/bin:/bin");
    let out = bed.fill("--cwd={out}");
    let full = |name: &str| bed.fill(name);
    let cases: [(&[&str], &str); 7] = [
        (&[], "{out}/tool"),
        (&[], "{out}/link"),
        (&[], "link2"),
        (&[], "./link2"),
        (&[], "{out}/hard"),
        (&[&path], "tool"),
        (&[&out], "./tool"),
    ];
    for (options, name) in cases {
        let (run, names) = made(&bed, || {
            prepare();
            let name = if name == "link2" { full("{in}/link2") } else { name.to_owned() };
            bed.launch(&base(), options, &[&name, "{in}/a", "{in}/b"])
        });
        assert_eq!(names, ["a"], "{options:?} {name} {run:?}");
    }
}

/// A relative entry of `PATH` is about the directory that the program starts in, for the policy and for
/// the program.
#[test]
fn it_is_that_of_the_program_that_path_leads_to() {
    let Some(bed) = bed() else { return };
    for dir in ["in/bin", "out/bin"] {
        std::fs::create_dir(bed.root().join(dir)).expect("mkdir");
        let text = format!("echo {dir}; : > {}/b", bed.root().join("in").display());
        script(&bed.root().join(dir).join("tool"), "#!/bin/sh", &text);
    }
    attach(&bed, "{out}/bin/tool", r#"{"filesystem":{"denyWrite":["{in}/b"]}}"#);
    let run = bed.launch(&base(), &["PATH=bin", "--cwd={out}"], &["tool"]);
    assert_eq!(run.lines, ["out/bin"], "{run:?}");
    assert!(!bed.root().join("in/b").exists(), "{run:?}");
    let control = bed.launch(&base(), &["PATH=bin"], &["tool"]);
    assert_eq!(control.lines, ["in/bin"], "{control:?}");
    assert!(bed.root().join("in/b").exists(), "{control:?}");
}

#[test]
fn it_is_that_of_the_script_and_of_no_other_program() {
    let Some(bed) = bed() else { return };
    let deny = r#"{"filesystem":{"denyWrite":["{in}/b"]}}"#;
    let shell = |bed: &Bed| -> PathBuf {
        let shell = bed.root().join("out/sh");
        std::fs::copy("/bin/sh", &shell).expect("a copy");
        shell
    };
    // The interpreter's does not count: the run is about the script.
    let (run, names) = made(&bed, || {
        let shell = shell(&bed);
        attach(&bed, "{out}/sh", deny);
        script(&bed.root().join("out/tool"), &format!("#!{}", shell.display()), "(: > a); (: > b)");
        bed.launch(&base(), &[], &["{out}/tool"])
    });
    assert_eq!(names, ["a", "b"], "{run:?}");
    // Started itself, it does.
    let (run, names) = made(&bed, || {
        shell(&bed);
        attach(&bed, "{out}/sh", deny);
        bed.launch(&base(), &[], &["{out}/sh", "-c", "(: > a); (: > b)"])
    });
    assert_eq!(names, ["a"], "{run:?}");
    // What the program starts in turn is under the run's policy, which has been decided.
    let (run, names) = made(&bed, || {
        attach(&bed, "{out}/tool", deny);
        bed.launch(&base(), &[], &["/bin/sh", "-c", "{out}/tool a b"])
    });
    assert_eq!(names, ["a", "b"], "{run:?}");
}

#[test]
fn it_cannot_be_set_or_removed_from_inside() {
    let Some(bed) = bed() else { return };
    let set = [
        ("setxattr \"{in}/f \"NAME bytes:{} 2 0", ""),
        ("lsetxattr \"{in}/f \"NAME bytes:{} 2 0", ""),
        ("fsetxattr $f \"NAME bytes:{} 2 0", ""),
        ("setxattrat AT_FDCWD \"{in}/f 0 \"NAME xa:{} 16", "xattrat"),
        ("setxattr \"{in}/hard \"NAME bytes:{} 2 0", ""),
        ("fsetxattr $t \"NAME bytes:{} 2 0", "tmpfile"),
        ("removexattr \"{in}/has \"NAME", ""),
        ("lremovexattr \"{in}/has \"NAME", ""),
        ("fremovexattr $h \"NAME", ""),
        ("removexattrat AT_FDCWD \"{in}/has 0 \"NAME", "xattrat"),
    ];
    for (op, needs) in set {
        if !needs.is_empty() && !have(op, &[needs]) {
            continue;
        }
        let run = |name: &str, sandboxed: bool| {
            bed.reset(&[
                "put {in}/f x",
                "put {in}/has x",
                "linkat AT_FDCWD \"{in}/f AT_FDCWD \"{in}/hard 0",
                &format!("setxattr \"{{in}}/has \"{name} bytes:{{}} 2 0"),
            ]);
            let op = op.replace("NAME", name);
            let mut ops = vec!["f=openat AT_FDCWD \"{in}/f O_RDWR 0"];
            match () {
                () if op.contains("$t") => {
                    ops[0] = "t=openat AT_FDCWD \"{in} O_TMPFILE|O_RDWR 0600"
                }
                () if op.contains("$h") => ops[0] = "h=openat AT_FDCWD \"{in}/has O_RDWR 0",
                () => {}
            }
            ops.push(&op);
            let run = if sandboxed { bed.boxed(&base(), &ops) } else { bed.bare(&ops) };
            run.last().to_owned()
        };
        assert_eq!(run(ATTRIBUTE, true), "EPERM", "{op}");
        assert!(run(ATTRIBUTE, false).starts_with("ok"), "{op}: the control");
        assert!(run("user.other", true).starts_with("ok"), "{op}: another attribute");
    }
}

#[test]
fn a_copy_from_inside_leaves_it_behind() {
    let Some(bed) = bed() else { return };
    let copy = "cp --preserve=xattr {out}/tool {in}/copy 2>/dev/null; getfattr --absolute-names -d {in}/copy";
    if !have("copy", &["cmd:getfattr"]) {
        return;
    }
    attach(&bed, "{out}/tool", "{}");
    let run = bed.launch(&base(), &[], &["/bin/sh", "-c", copy]);
    assert!(!run.lines.iter().any(|line| line.contains("landstrip")), "{run:?}");
    let mut bare = bed.command(Path::new("/bin/sh"));
    bare.args(["-c", &bed.fill(copy)]);
    let bare = finish(bare, Path::new("none"));
    assert!(bare.lines.iter().any(|line| line.contains("landstrip")), "{bare:?}");
}

#[test]
fn the_policy_commands_include_it_when_asked() {
    let Some(bed) = bed() else { return };
    attach(&bed, "{out}/tool", r#"{"filesystem":{"denyWrite":["{in}/b"]}}"#);
    let policy = bed.policy(&base()).display().to_string();
    let ask = |args: &[&str]| {
        let mut command = bed.command(Path::new(LANDSTRIP));
        command.args(args).args(["-p", &policy, "--format", "json"]);
        finish(command, Path::new("none"))
    };
    let tool = bed.fill("{out}/tool");
    let resolved = ask(&["policy", "resolve", "--tool", &tool]);
    let text = resolved.lines.join("\n");
    assert!(text.contains("(user.landstrip.policy)"), "{resolved:?}");
    assert!(!ask(&["policy", "resolve"]).lines.join("\n").contains("user.landstrip"));
    assert_eq!(ask(&["policy", "validate", "--tool", &tool]).code, Some(0));
    attach(&bed, "{out}/tool", r#"{"network":{"allowNetwork":true}}"#);
    let refused = ask(&["policy", "validate", "--tool", &tool]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.lines.join("\n").contains("POLICY_NOT_TIGHTER"), "{refused:?}");
}
