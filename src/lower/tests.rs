use super::spec::{ENFORCEMENT, document, read};
use super::*;
use crate::policy::{Format, Kind, MemoryTree, Place, merge, parse, resolve};
use serde_json::{Value, json};

const POLICY: &str = r#"{"filesystem": {
    "allowWrite": [".", "/repo/later/x"],
    "denyRead": ["~/.ssh", "**/*.pem"],
    "denyWrite": ["/repo/file"]}}"#;

pub(super) fn tree() -> MemoryTree {
    let mut tree = MemoryTree::new();
    tree.dir("/repo").dir("/data/u/.ssh").dir("/data/other").link("/home/u", "/data/u");
    tree.file("/repo/file", "");
    tree
}

pub(super) fn identity() -> Identity {
    let capabilities = vec!["CAP_CHOWN".to_owned(), "CAP_KILL".to_owned()];
    Identity { uid: 0, gid: 0, groups: vec![10, 2], capabilities, terminal: false }
}

pub(super) fn run_of(json: &str) -> Run {
    let view = tree();
    let place = Place { cwd: "/repo", home: Some("/home/u"), view: &view };
    let policy = merge(vec![parse("p", json.as_bytes(), Format::Json).unwrap()]);
    Run {
        args: vec!["make".into(), "é".into()],
        env: vec!["PATH=/bin".into(), "A=1".into()],
        policy: resolve(&policy, &place).unwrap(),
        accept: vec!["signals".into()],
    }
}

fn reread(value: &Value, view: &MemoryTree) -> Result<Run, Refusal> {
    read(value.to_string().as_bytes(), &identity(), view)
}

#[test]
fn a_run_comes_back_as_it_went() {
    let run = run_of(POLICY);
    let value = document(&run, &identity()).unwrap();
    assert_eq!(reread(&value, &tree()), Ok(run.clone()));
    assert_eq!(document(&run, &identity()).unwrap().to_string(), value.to_string());
    assert_eq!(value["process"]["user"]["additionalGids"], json!([2, 10]));
    assert_eq!(value["process"]["capabilities"]["permitted"], json!(["CAP_CHOWN", "CAP_KILL"]));
    assert_eq!(value["process"]["cwd"], "/repo");
    assert_eq!((&value["root"]["path"], &value["mounts"]), (&json!("/"), &json!([])));
    assert_eq!(value["linux"], json!({"namespaces": []}));
}

#[test]
fn limits_are_said_in_ocis_words() {
    let run = run_of(r#"{"limits": {"memory": "1M", "pids": 7, "cpu": 1.5, "time": 9}}"#);
    let value = document(&run, &identity()).unwrap();
    let expected = json!({"memory": {"limit": 1 << 20}, "pids": {"limit": 7},
        "cpu": {"quota": 150_000, "period": 100_000}});
    assert_eq!(value["linux"]["resources"], expected);
    assert_eq!(reread(&value, &tree()), Ok(run));
}

#[cfg(unix)]
#[test]
fn what_json_cannot_hold_is_refused() {
    use std::os::unix::ffi::OsStringExt;
    let mut run = run_of("{}");
    run.env.push(OsString::from_vec(b"X=\xff".to_vec()));
    let refusal = document(&run, &identity()).unwrap_err();
    assert_eq!(refusal.key.as_deref(), Some("process.env[2]"));
}

/// Sets the field at a JSON pointer.
fn with(value: &Value, pointer: &str, to: Value) -> Value {
    let mut value = value.clone();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    value.pointer_mut(parent).unwrap()[name] = to;
    value
}

#[test]
fn what_a_launch_would_not_do_is_refused_by_name() {
    let value = document(&run_of(POLICY), &identity()).unwrap();
    for (pointer, to, key) in [
        ("/ociVersion", json!("2.0.0"), "ociVersion"),
        ("/root", Value::Null, "root"),
        ("/root/path", json!("rootfs"), "root.path"),
        ("/root/readonly", json!(true), "root.readonly"),
        ("/process", Value::Null, "process"),
        ("/process/args", json!([]), "process.args"),
        ("/process/cwd", json!("/tmp"), "process.cwd"),
        ("/process/terminal", json!(true), "process.terminal"),
        ("/process/user/uid", json!(7), "process.user.uid"),
        ("/process/user/umask", json!(18), "process.user.umask"),
        ("/process/noNewPrivileges", json!(false), "process.noNewPrivileges"),
        ("/process/capabilities/permitted", json!(["CAP_SYS_ADMIN"]), ""),
        ("/process/capabilities/ambient", json!(["CAP_KILL"]), ""),
        ("/process/rlimits", json!([{"type": "RLIMIT_CORE", "soft": 0, "hard": 0}]), ""),
        ("/process/apparmorProfile", json!("x"), "process.apparmorProfile"),
        ("/process/oomScoreAdj", json!(1), "process.oomScoreAdj"),
        ("/mounts", json!([{"destination": "/x"}]), "mounts"),
        ("/hostname", json!("h"), "hostname"),
        ("/hooks", json!({"prestart": [{"path": "/x"}]}), "hooks"),
        ("/linux/namespaces", json!([{"type": "mount"}]), "linux.namespaces"),
        ("/linux/maskedPaths", json!(["/proc/kcore"]), "linux.maskedPaths"),
        ("/linux/readonlyPaths", json!(["/proc/sys"]), "linux.readonlyPaths"),
        ("/linux/seccomp", json!({"defaultAction": "SCMP_ACT_ALLOW"}), "linux.seccomp"),
        ("/linux/resources", json!({"pids": {"limit": 3}}), "linux.resources"),
        ("/linux/cgroupsPath", json!("/x"), "linux.cgroupsPath"),
        ("/linux/sysctl", json!({"a": "b"}), "linux.sysctl"),
    ] {
        let refusal = reread(&with(&value, pointer, to), &tree()).expect_err(pointer);
        let found = refusal.key.unwrap_or_default();
        let key = if key.is_empty() {
            pointer.trim_start_matches('/').replace('/', ".")
        } else {
            key.into()
        };
        assert!(found.starts_with(&key), "{pointer}: {found}: {}", refusal.message);
    }
}

#[test]
fn what_is_for_others_is_left_to_them() {
    let value = document(&run_of(POLICY), &identity()).unwrap();
    let mut value = with(&value, "/unknownProperty", json!({"a": 1}));
    value["annotations"]["org.example.other"] = json!("x");
    value["ociVersion"] = json!("1.3.0-rc");
    assert_eq!(reread(&value, &tree()), Ok(run_of(POLICY)));
}

/// Changes the policy inside the annotation.
fn enforced(change: impl FnOnce(&mut Value)) -> Value {
    let mut value = document(&run_of(POLICY), &identity()).unwrap();
    let text = value["annotations"][ENFORCEMENT].as_str().unwrap();
    let mut inner: Value = serde_json::from_str(text).unwrap();
    change(&mut inner);
    value["annotations"][ENFORCEMENT] = json!(inner.to_string());
    value
}

#[test]
fn an_annotation_that_is_not_understood_is_refused() {
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 9] = [
        ("version 2", |v| v["version"] = json!(2)),
        ("no version", |v| v["version"] = Value::Null),
        ("expected a sequence", |v| v["accept"] = json!(7)),
        ("policy.rules[0].alway is not", |v| v["policy"]["rules"][0]["alway"] = json!(true)),
        ("policy.filesystem is not", |v| v["policy"]["filesystem"] = json!({"denyRead": ["/"]})),
        ("not absolute", |v| v["policy"]["rules"][0]["pattern"] = json!({"subtree": "repo"})),
        ("not absolute", |v| v["policy"]["rules"][0]["pattern"] = json!({"subtree": "/repo/"})),
        ("not absolute", |v| v["policy"]["rules"][0]["pattern"] = json!({"subtree": "/a/../b"})),
        ("such a rule", |v| v["policy"]["rules"][0]["always"] = json!(true)),
    ];
    for (says, change) in changes {
        let refusal = reread(&enforced(change), &tree()).expect_err(says);
        assert_eq!(refusal.key.as_deref(), Some("annotations.dev.landstrip.enforcement"));
        assert!(refusal.message.contains(says), "{says}: {}", refusal.message);
    }
    let mut value = document(&run_of(POLICY), &identity()).unwrap();
    value["annotations"] = json!({});
    assert!(reread(&value, &tree()).unwrap_err().message.contains("is missing"));
}

#[test]
fn a_policy_that_means_other_paths_by_now_is_refused() {
    let value = document(&run_of(POLICY), &identity()).unwrap();
    type Change = fn(&mut MemoryTree);
    let changes: [(&str, Change); 6] = [
        ("no symbolic link any more", |tree| _ = tree.dir("/home/u")),
        ("leads to /data/other", |tree| _ = tree.link("/home/u", "/data/other")),
        ("/repo/later is a symbolic link", |tree| _ = tree.link("/repo/later", "/data/u")),
        ("a symbolic link by now", |tree| _ = tree.link("/repo/later/x", "/data/u")),
        ("a symbolic link by now", |tree| _ = tree.link("/repo/file", "/data/u/f")),
        ("a symbolic link by now", |tree| _ = tree.link("/repo", "/data")),
    ];
    for (says, change) in changes {
        let mut view = tree();
        change(&mut view);
        let refusal = reread(&value, &view).expect_err(says);
        assert!(refusal.message.contains(says), "{says}: {}", refusal.message);
        assert!(refusal.message.contains("p:"), "names the line: {}", refusal.message);
    }
}

#[test]
fn other_names_of_denied_files_are_looked_for_anew() {
    let value = document(&run_of(POLICY), &identity()).unwrap();
    let mut view = tree();
    view.add("/repo/file", Kind::File { links: 2, executable: false }, b"");
    let run = reread(&value, &view).unwrap();
    let linked: Vec<_> = run.policy.linked.iter().map(|linked| linked.path.as_str()).collect();
    assert_eq!(linked, ["/repo/file"]);
}
