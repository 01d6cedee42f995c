//! What the commands print, on the real binary.
#![cfg(target_os = "linux")]

mod cli_support;

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};

use cli_support::{Answer, Place, finish, repository, skipped};
use serde_json::{Value, json};

const POLICY: &str = r#"{"filesystem": {
  "allowWrite": ["."],
  "denyWrite": ["link/held", "**/*.lock"],
  "denyRead": ["secret"],
  "denyReadAlways": ["~/keys"]}}"#;

/// A directory with the policy, a link, a denied file and a second name of it.
fn place() -> Place {
    let place = Place::new();
    place.write("p.json", POLICY);
    for name in ["sub", "keys"] {
        std::fs::create_dir(place.path(name)).unwrap();
    }
    symlink("sub", place.path("link")).unwrap();
    place.write("secret", "hidden\n");
    place.write("other", "shown\n");
    place
}

/// The lines of a plan as (key, holder).
fn holders(plan: &Value) -> Vec<(String, Value)> {
    let lines = plan["lines"].as_array().unwrap().iter();
    lines.map(|l| (l["origin"]["key"].as_str().unwrap().to_owned(), l["held_by"].clone())).collect()
}

#[test]
fn the_plan_says_who_holds_each_line() {
    let place = place();
    let answer = place.run(&["policy", "plan", "-p", "p.json"]);
    let plan = answer.json();
    assert_eq!((answer.code, &plan["runs"]), (0, &json!(true)), "{answer:?}");
    let held = holders(&plan);
    for (key, holder) in [
        // A glob of the whole tree leaves nothing to grant whole.
        ("filesystem.allowWrite[0]", "broker"),
        ("filesystem.denyWrite[0]", "landlock-and-broker"),
        ("filesystem.denyWrite[1]", "landlock-and-broker"),
        ("filesystem.denyRead[0]", "landlock-and-broker"),
        ("filesystem.denyReadAlways[0]", "landlock-and-broker"),
    ] {
        let found: Vec<_> = held.iter().filter(|(at, _)| at == key).collect();
        assert!(!found.is_empty(), "{key} in {held:?}");
        assert!(found.iter().all(|(_, by)| by == holder), "{key} in {held:?}");
    }
    assert_eq!(plan["shortfalls"], json!([]));
    let grants = plan["domains"]["inner"]["grants"].as_array().unwrap();
    let grants: Vec<_> = grants.iter().filter_map(|grant| grant["path"].as_str()).collect();
    assert!(!grants.contains(&place.text("secret").as_str()), "{grants:?}");
    assert!(plan["host"]["landlock_abi"].as_u64().unwrap() >= 2);
    let text = place.run(&["policy", "plan", "-p", "p.json", "--format", "text"]).stdout;
    assert!(text.contains("p.json:2 filesystem.allowWrite[0] \".\""), "{text}");
    assert!(text.starts_with("runs: this host holds every line"), "{text}");
}

/// A rule about everything means files, and says so.
#[test]
fn the_plan_and_why_tell_files_from_controls() {
    let place = place();
    place.write("all.json", r#"{"filesystem": {"allowWrite": ["/", "/proc/sys/vm"]}}"#);
    let plan = place.run(&["policy", "plan", "-p", "all.json"]).json();
    let notes: Vec<_> = plan["lines"].as_array().unwrap().iter().map(|l| &l["note"]).collect();
    assert!(notes[0].as_str().is_some_and(|note| note.contains("controls")), "{notes:?}");
    assert_eq!(notes[1], &Value::Null);
    let grants = plan["domains"]["inner"]["grants"].as_array().unwrap();
    let written: Vec<_> = grants
        .iter()
        .filter(|grant| grant["write"] == "all")
        .filter_map(|grant| grant["path"].as_str())
        .collect();
    assert!(written.contains(&"/proc/sys/vm") && written.contains(&"/etc"), "{written:?}");
    assert!(!["/", "/proc", "/sys", "/dev"].iter().any(|top| written.contains(top)), "{written:?}");
    for (path, allowed) in [
        ("/etc/passwd", true),
        ("/proc/sys/vm/swappiness", true),
        ("/proc/sys/kernel/hostname", false),
        ("/sys/power/state", false),
        ("/dev/kmsg", false),
        ("/dev/null", true),
    ] {
        let write = &place.run(&["why", "-p", "all.json", path]).json()["write"];
        assert_eq!(write["allowed"], allowed, "{path}: {write}");
        if !allowed {
            assert_eq!(write["rule"]["key"], "controls", "{path}: {write}");
            assert_eq!(write["suggested_grant"]["allowWrite"], path, "{path}: {write}");
            let note = write["note"].as_str().unwrap_or_default();
            assert!(note.contains("control of the kernel"), "{path}: {write}");
        }
    }
}

#[test]
fn a_shortfall_refuses_until_it_is_accepted() {
    let place = place();
    place.write(
        "net.json",
        "{\"network\": {\n\"deniedDomains\": [\"a.com\"],\n\"httpProxyPort\": 3128},\n\"windows\": \
         {\"allowLoopback\": true}}",
    );
    let answer = place.run(&["policy", "plan", "-p", "net.json"]);
    let plan = answer.json();
    assert_eq!((answer.code, &plan["runs"]), (1, &json!(false)));
    let shortfall = &plan["shortfalls"][0];
    assert_eq!((&shortfall["name"], &shortfall["accepted"]), (&json!("domains"), &json!(false)));
    assert_eq!(shortfall["origin"]["line"], 2);
    let held = holders(&plan);
    assert!(held.contains(&("network.deniedDomains[0]".into(), json!("proxy"))), "{held:?}");
    let holder = match plan["host"]["namespace"].as_str() {
        Some("available") => "namespace-and-broker",
        _ => "landlock-and-broker",
    };
    assert!(held.contains(&("network.httpProxyPort".into(), json!(holder))), "{held:?}");
    assert!(held.contains(&("windows.allowLoopback".into(), Value::Null)), "{held:?}");
    let text = place.run(&["policy", "plan", "-p", "net.json", "--format", "text"]).stdout;
    assert!(
        text.contains("shortfall `domains` net.json:2") && text.starts_with("refused: "),
        "{text}"
    );
    for command in [&["policy", "plan"][..], &["policy", "validate"]] {
        let accept = ["-p", "net.json", "--accept", "domains"];
        assert_eq!(place.run(&[command, &accept].concat()).code, 0, "{command:?}");
        let accept = ["-p", "net.json", "--accept", "signals"];
        assert_eq!(place.run(&[command, &accept].concat()).code, 1, "{command:?}");
    }
}

/// `why TARGET` under the policy of the place.
fn why(place: &Place, target: &str) -> Value {
    let answer = place.run(&["why", "-p", "p.json", target]);
    assert_eq!(answer.code, 0, "{answer:?}");
    answer.json()
}

#[test]
fn why_names_the_rule_and_the_grant() {
    let place = place();
    let answer = why(&place, "link/held");
    assert_eq!(answer["path"], json!(place.text("sub/held")));
    assert_eq!(answer["links"], json!([place.text("link")]));
    assert_eq!((&answer["exists"], &answer["read"]["allowed"]), (&json!(false), &json!(true)));
    let write = &answer["write"];
    assert_eq!((&write["allowed"], &write["reason"]), (&json!(false), &json!("deny_match")));
    let rule = json!({"file": "p.json", "line": 3, "key": "filesystem.denyWrite[0]",
        "text": "link/held"});
    assert_eq!(write["rule"], rule);
    assert_eq!(write["held_by"], "landlock-and-broker");
    // The rule names this very path, which no grant can undo.
    assert_eq!(write["suggested_grant"], Value::Null);

    let secret = why(&place, &place.text("secret"));
    let grant = json!({"allowRead": place.text("secret")});
    assert_eq!(secret["read"]["suggested_grant"], grant);
    assert_eq!(secret["write"]["rule"]["line"], 2);
    assert_eq!(why(&place, "~/keys/k")["read"]["suggested_grant"], Value::Null);
    let outside = why(&place, "/nowhere/x");
    assert_eq!(outside["write"]["reason"], "allow_miss");
    assert_eq!(outside["write"]["rule"], Value::Null);
    // Nothing can be made in a directory that is not there.
    assert_eq!(outside["write"]["suggested_grant"], Value::Null);
    assert!(outside["write"]["note"].as_str().unwrap().contains("directory /nowhere"), "{outside}");
    let outside = why(&place, "/landstrip-x");
    assert_eq!(outside["write"]["suggested_grant"], json!({"allowWrite": "/landstrip-x"}));
    assert_eq!(why(&place, "./a.lock")["write"]["rule"]["key"], "filesystem.denyWrite[1]");
    let text = place.run(&["why", "-p", "p.json", "--format", "text", "other"]).stdout;
    assert!(text.contains("write: allowed: p.json:2 filesystem.allowWrite[0] \".\""), "{text}");
}

#[test]
fn why_knows_a_denied_file_by_its_other_names() {
    let place = place();
    std::fs::hard_link(place.path("secret"), place.path("alias")).unwrap();
    let answer = why(&place, "alias");
    assert_eq!(answer["read"]["allowed"], false, "{answer}");
    assert_eq!(answer["read"]["rule"]["key"], "filesystem.denyRead[0]");
    assert!(answer["read"]["note"].as_str().unwrap().contains("hard link"), "{answer}");
    assert_eq!(answer["write"]["allowed"], true);
    // A file of the same directory that is not it.
    assert_eq!(why(&place, "other")["read"]["allowed"], true);
}

#[test]
fn what_why_says_is_what_a_run_does() {
    let place = place();
    let file = |name: &str| place.text(name);
    for (name, read, write) in
        [("secret", false, true), ("other", true, true), ("sub/x.lock", true, false)]
    {
        if !place.path(name).exists() {
            place.write(name, "x\n");
        }
        let said = why(&place, &file(name));
        assert_eq!(said["read"]["allowed"], read, "{name}");
        assert_eq!(said["write"]["allowed"], write, "{name}");
        for (script, allowed) in [("cat \"$0\"", read), ("echo >> \"$0\"", write)] {
            let run = place.run(&["run", "-p", "p.json", "--", "sh", "-c", script, &file(name)]);
            assert_eq!(run.code == 0, allowed, "{script} {name}: {run:?}");
        }
    }
}

#[test]
fn why_says_whether_a_host_can_be_reached() {
    let place = place();
    let local = r#"{"network": {"allowLocalBinding": true}}"#;
    let proxy = r#"{"network": {"httpProxyPort": 3128}}"#;
    let ports = r#"{"network": {"hostPorts": [18080]}}"#;
    let hosts =
        r#"{"network": {"allowedDomains": ["a.com:443", "b.com:80", "b.com:22", "c.com"]}}"#;
    let open = r#"{"network": {"allowNetwork": true}}"#;
    let closed = r#"{"network": {"allowNetwork": false}}"#;
    let host = |entry: &str| json!({ "allowedDomains": entry });
    let port = |port: u16| json!({ "hostPorts": port });
    let key = |key: &str| json!(format!("network.{key}"));
    for (policy, target, allowed, grant, rule, note) in [
        ("{}", "example.com", false, host("example.com"), Value::Null, ""),
        ("{}", "example.com:443", false, host("example.com:443"), Value::Null, ""),
        ("{}", "10.1.2.3:80", false, host("10.1.2.3:80"), Value::Null, ""),
        ("{}", "127.0.0.1", false, Value::Null, Value::Null, "no port is named"),
        ("{}", "127.0.0.1:80", false, port(80), Value::Null, ""),
        ("{}", "[::1]:80", false, port(80), Value::Null, ""),
        ("{}", "localhost:80", false, port(80), Value::Null, ""),
        ("{}", "127.0.0.2:80", false, host("127.0.0.2:80"), Value::Null, ""),
        (open, "[::1]:80", true, Value::Null, key("allowNetwork"), ""),
        (closed, "a.b", false, host("a.b"), key("allowNetwork"), ""),
        (local, "localhost", true, Value::Null, key("allowLocalBinding"), ""),
        (local, "[::ffff:127.9.9.9]:1", true, Value::Null, key("allowLocalBinding"), ""),
        (local, "10.0.0.1", false, host("10.0.0.1"), Value::Null, ""),
        (local, "localhost.example.com:1", false, host("localhost.example.com:1"), Value::Null, ""),
        (proxy, "127.0.0.1:3128", true, Value::Null, key("httpProxyPort"), ""),
        (proxy, "127.0.0.1:3129", false, port(3129), Value::Null, ""),
        (proxy, "127.0.0.2:3129", false, Value::Null, Value::Null, "a proxy's port"),
        (proxy, "localhost", false, Value::Null, Value::Null, "at port 3128 alone"),
        (proxy, "example.com", false, json!({"allowNetwork": true}), Value::Null, ""),
        (ports, "127.0.0.1:18080", true, Value::Null, key("hostPorts[0]"), ""),
        (ports, "127.0.77.5:18080", false, host("127.0.77.5:18080"), Value::Null, ""),
        (hosts, "a.com:443", true, Value::Null, key("allowedDomains[0]"), ""),
        (hosts, "a.com:80", false, host("a.com:80"), Value::Null, ""),
        (hosts, "a.com", true, Value::Null, key("allowedDomains[0]"), "at port 443 alone"),
        (hosts, "b.com", true, Value::Null, key("allowedDomains[1]"), "at the ports 22, 80 alone"),
        (hosts, "c.com", true, Value::Null, key("allowedDomains[3]"), ""),
        (hosts, "127.0.0.1:80", false, host("127.0.0.1:80"), Value::Null, ""),
    ] {
        place.write("n.json", policy);
        let connect = place.run(&["why", "-p", "n.json", target]).json()["connect"].clone();
        assert_eq!(connect["allowed"], allowed, "{policy} {target}");
        assert_eq!(connect["rule"]["key"], rule, "{policy} {target}");
        assert_eq!(connect["suggested_grant"], grant, "{policy} {target}");
        let said = connect["note"].as_str().unwrap_or_default();
        assert!(said.contains(note) && !(note.is_empty() && said.contains("alone")), "{connect}");
        // In words as well.
        let text = place.run(&["why", "-p", "n.json", target, "--format", "text"]).stdout;
        let unlisted = "connect: denied: no entry allows it";
        assert_eq!(text.contains(unlisted), policy == hosts && !allowed, "{target}: {text}");
    }
}

/// What holds loopback is what the plan says, and what is said of an address is what happens.
#[test]
fn why_and_the_plan_name_one_mechanism() {
    let place = place();
    place.write("n.json", r#"{"network": {"hostPorts": [18080]}}"#);
    let plan = place.run(&["policy", "plan", "-p", "n.json"]).json();
    let lines = plan["lines"].as_array().expect("lines");
    let line = lines.iter().find(|line| line["origin"]["key"] == "network.hostPorts[0]");
    let held = line.unwrap_or_else(|| panic!("{plan}"))["held_by"].clone();
    assert!(held.is_string(), "{plan}");
    for target in ["127.0.0.1:18080", "127.0.0.1:18081"] {
        let connect = place.run(&["why", "-p", "n.json", target]).json()["connect"].clone();
        assert_eq!(connect["held_by"], held, "{target}");
    }
}

/// What exists is a path, and what is said goes. A guess is told, with the way to say otherwise.
#[test]
fn why_says_what_it_took_its_argument_for() {
    let place = place();
    for (args, kind, says) in [
        (&["other"][..], "path", "--as host"),
        (&["README"], "host", "--as path"),
        (&["main.rs"], "host", "--as path"),
        (&["./README"], "path", ""),
        (&["~"], "path", ""),
        (&["localhost"], "host", ""),
        (&["10.0.0.1"], "host", ""),
        (&["example.com:80"], "host", ""),
        (&["--as", "host", "other"], "host", ""),
        (&["--as", "path", "a.b"], "path", ""),
    ] {
        let answer = place.run(&[&["why"], args].concat()).json();
        assert_eq!(answer["kind"], kind, "{args:?}: {answer}");
        let note = answer["note"].as_str().unwrap_or_default();
        assert!(note.contains(says) && note.is_empty() == says.is_empty(), "{args:?}: {answer}");
        let text = place.run(&[&["why", "--format", "text"], args].concat()).stdout;
        assert!(text.contains(note), "{args:?}: {text}");
    }
}

/// What may be written and cannot be made: nothing could be done with such a line.
#[test]
fn a_path_in_a_directory_that_is_not_there_is_told() {
    let place = place();
    let missing = place.text("no");
    for (entry, target, told) in [
        ("no/such/tool", "no/such/tool/x", true),
        ("no/such/*.log", "no/such/a.log", true),
        ("~/no/x", "no/x", true),
        ("no", "no/such/tool", false),
        (".", "no/such/tool", false),
        ("sub/new", "sub/new/x", false),
        ("sub/*.log", "sub/a.log", false),
    ] {
        place.write("w.json", json!({"filesystem": {"allowWrite": [entry]}}).to_string());
        let report = place.run(&["policy", "validate", "-p", "w.json"]).json();
        assert_eq!(report["valid"], true, "{entry}: {report}");
        let warnings = report["warnings"].as_array().unwrap();
        assert_eq!(warnings.len(), usize::from(told), "{entry}: {report}");
        let write = place.run(&["why", "-p", "w.json", target]).json()["write"].clone();
        assert_eq!(write["allowed"], true, "{entry}: {write}");
        let note = write["note"].as_str().unwrap_or_default();
        for said in
            warnings.iter().filter_map(|w| w["message"].as_str()).chain(told.then_some(note))
        {
            assert!(said.contains(&format!("the directory {missing}")), "{entry}: {said}");
        }
        // Control: what is told of is what happens.
        let script = "mkdir -p \"$(dirname \"$0\")\" && : > \"$0\"";
        let run =
            place.run(&["run", "-p", "w.json", "--", "sh", "-c", script, &place.text(target)]);
        assert_eq!(run.code != 0, told, "{entry}: {run:?}");
        let _made = std::fs::remove_dir_all(place.path("no"));
        for name in ["sub/new", "sub/a.log"] {
            let _made = std::fs::remove_dir_all(place.path(name))
                .or(std::fs::remove_file(place.path(name)));
        }
    }
}

#[test]
fn so_little_memory_that_nothing_starts_is_warned_of() {
    let place = place();
    for (memory, warned) in [("512", true), ("\"512K\"", true), ("\"64M\"", false)] {
        place.write("m.json", format!("{{\"limits\": {{\"memory\": {memory}}}}}"));
        let report =
            place.run(&["policy", "validate", "-p", "m.json", "--accept", "limits"]).json();
        let warnings = report["warnings"].as_array().unwrap();
        assert_eq!(warnings.len(), usize::from(warned), "{memory}: {report}");
        assert!(warnings.iter().all(|w| w["key"] == "limits.memory"), "{report}");
    }
}

/// The text of a rule is what stands in the policy, however that is understood.
#[test]
fn rules_are_quoted_as_they_are_written() {
    let place = place();
    for (written, target) in [
        (r#""./sub//""#, "sub"),
        (r#""~/sub""#, "sub"),
        (r#""**/{sub,x}""#, "sub"),
        (r#"{"literal":"sub"}"#, "sub"),
        (r#"{"glob":"s?b"}"#, "sub"),
    ] {
        place.write("t.json", format!(r#"{{"filesystem": {{"denyRead": [{written}]}}}}"#));
        let expected = serde_json::from_str::<String>(written).unwrap_or(written.to_owned());
        let said = place.run(&["why", "-p", "t.json", "--as", "path", target]).json();
        assert_eq!(said["read"]["rule"]["text"], expected, "{written}");
        let run = place.run(&["run", "-p", "t.json", "--", "ls", target]);
        assert_eq!(run.trap()["rule"]["text"], expected, "{written}");
    }
    for (limits, key, text) in [
        (r#"{"time": 1e0}"#, "limits.time", "1e0"),
        (r#"{"cpu": 0.50, "time": 1}"#, "limits.cpu", "0.50"),
        (r#"{"memory": "512M"}"#, "limits.memory", "512M"),
        (r#"{"memory": 536870912}"#, "limits.memory", "536870912"),
    ] {
        place.write("t.json", format!(r#"{{"limits": {limits}}}"#));
        let plan = place.run(&["policy", "plan", "-p", "t.json"]).json();
        let mut lines = plan["lines"].as_array().unwrap().iter();
        let line = lines.find(|line| line["origin"]["key"] == key);
        assert_eq!(line.map(|line| &line["text"]), Some(&json!(text)), "{plan}");
    }
    place.write("t.json", r#"{"limits": {"time": 1e0}}"#);
    let run = place.run(&["run", "-p", "t.json", "--", "sleep", "10"]);
    assert_eq!(run.trap()["rule"]["text"], "1e0", "{run:?}");
    place.write("t.json", r#"{"network": {"httpProxyPort": 3.128e3}}"#);
    let said = place.run(&["why", "-p", "t.json", "127.0.0.1:3128"]).json();
    assert_eq!(said["connect"]["rule"]["text"], "3.128e3", "{said}");
}

/// The record that the README explains is what a run under its policy gives.
#[test]
fn the_record_of_the_readme_is_what_a_run_gives() {
    let readme = std::fs::read_to_string(repository("README.md")).unwrap();
    let blocks: Vec<&str> = readme.split("```json\n").skip(1).collect();
    let blocks: Vec<&str> = blocks.iter().map(|text| text.split("```").next().unwrap()).collect();
    let record = blocks.iter().find(|text| text.contains("FILESYSTEM_DENIED")).expect("a record");
    let mut expected: Value = serde_json::from_str(record).unwrap();
    let place = Place::new();
    place.write("policy.json", blocks[0]);
    std::fs::create_dir_all(place.path(".git/hooks")).unwrap();
    let script = "echo x > .git/hooks/pre-commit";
    let mut record = place.run(&["run", "-p", "policy.json", "--", "sh", "-c", script]).trap();
    let given: Value =
        serde_json::from_str(&record.to_string().replace(&place.text(""), "/w")).unwrap();
    record = given;
    for record in [&mut record, &mut expected] {
        record["ts"] = Value::Null;
        record["process"]["pid"] = Value::Null;
        record["process"]["exe"] = Value::Null;
    }
    assert_eq!(record, expected);
}

/// The help says what is so: of every option that a command has, and in the same words.
#[test]
fn help_is_the_same_everywhere() {
    let place = place();
    let mut texts = std::collections::BTreeMap::new();
    for command in [
        &["run"][..],
        &["learn"],
        &["spec"],
        &["why"],
        &["policy", "validate"],
        &["policy", "resolve"],
        &["policy", "plan"],
    ] {
        let help = place.run(&[command, &["--help"]].concat()).stdout;
        assert!(help.contains("which needs --policy-format"), "{command:?}: {help}");
        let options = help.split("\n\n").filter(|part| part.trim_start().starts_with('-'));
        for option in options {
            let (name, text) = option.trim().split_once('\n').unwrap_or_default();
            // What a policy is for differs.
            if name != "-p, --policy <FILE>" && name != "-b, --bundle <DIR>" {
                let first = texts.entry(name.to_owned()).or_insert_with(|| text.to_owned());
                assert_eq!(first, text, "{command:?} {name}");
            }
            assert!(text.trim_start().starts_with(char::is_uppercase), "{command:?} {option}");
            assert!(!text.trim_end().ends_with('.'), "{command:?} {option}");
        }
    }
    let learn = place.run(&["learn", "--help"]).stdout;
    assert!(learn.contains("What it allows is not learned again"), "{learn}");
    let why = place.run(&["why", "--help"]).stdout;
    assert!(why.contains("exit code is 0") && !why.contains("TARGET"), "{why}");
}

#[test]
fn why_says_whether_a_socket_can_be_reached() {
    let place = place();
    let _listeners = ["listed.sock", "other.sock", "docker.sock"]
        .map(|name| std::os::unix::net::UnixListener::bind(place.path(name)).unwrap());
    let policy = r#"{"network": {"allowUnixSockets": ["listed.sock", "sub"]}}"#;
    place.write("n.json", policy);
    let connect = |target| place.run(&["why", "-p", "n.json", target]).json()["connect"].clone();
    assert_eq!(connect("listed.sock")["rule"]["key"], "network.allowUnixSockets[0]");
    let other = connect("./other.sock");
    assert_eq!(other["suggested_grant"]["allowUnixSockets"], json!(place.text("other.sock")));
    place.write("n.json", r#"{"network": {"allowAllUnixSockets": true}}"#);
    assert_eq!(connect("./other.sock")["allowed"], true);
    let daemon = connect("docker.sock");
    assert_eq!((&daemon["allowed"], &daemon["suggested_grant"]), (&json!(false), &Value::Null));
    assert_eq!(connect("other"), Value::Null, "a file is not connected to");
}

#[test]
fn naming_a_socket_as_good_as_the_host_is_warned_of() {
    let place = place();
    place.write(
        "n.json",
        "{\"network\": {\"allowUnixSockets\": [\"/run\",\n\"/run/docker.sock\"]}}",
    );
    let warnings = place.run(&["policy", "validate", "-p", "n.json"]).json()["warnings"].clone();
    assert_eq!(warnings.as_array().map(Vec::len), Some(1), "{warnings}");
    assert_eq!(
        (&warnings[0]["line"], &warnings[0]["key"]),
        (&json!(2), &json!("network.allowUnixSockets[1]"))
    );
    let plan = place.run(&["policy", "plan", "-p", "n.json"]).json();
    let line = plan["lines"].as_array().unwrap().iter().find(|l| l["text"] == "/run/docker.sock");
    assert!(line.unwrap()["note"].as_str().unwrap().contains("as good as the host"), "{plan}");
}

#[test]
fn spec_prints_a_document_that_is_always_the_same() {
    let place = place();
    let args = ["spec", "-p", "p.json", "--accept", "signals", "--", "cat", "é"];
    let first = place.run(&args);
    assert_eq!(first.code, 0, "{first:?}");
    assert!(
        first.stderr.lines().all(|line| line.starts_with("spec: other runtimes: ")),
        "{first:?}"
    );
    assert_eq!(first.stdout, place.run(&args).stdout);
    let spec = first.json();
    assert_eq!(spec["process"]["args"], json!(["cat", "é"]));
    assert_eq!(spec["process"]["cwd"], json!(place.text("")));
    assert_eq!(spec["process"]["noNewPrivileges"], true);
    assert_eq!(spec["process"]["terminal"], false);
    let uid = rustix::process::geteuid().as_raw();
    // In a user namespace, of which it is the root.
    assert_eq!(spec["process"]["user"]["uid"], 0);
    let hosts = &spec["linux"]["uidMappings"][0]["hostID"];
    assert_eq!(hosts, &if uid == 0 { Value::Null } else { json!(uid) });
    let kept = spec["process"]["capabilities"]["effective"].as_array().unwrap();
    assert_eq!(kept.contains(&json!("CAP_CHOWN")), uid == 0);
    assert!(!kept.contains(&json!("CAP_SYS_ADMIN")));
    assert_eq!(spec["root"], json!({"path": "rootfs", "readonly": true}));
    let enforcement = spec["annotations"]["dev.landstrip.enforcement"].as_str().unwrap();
    let enforcement: Value = serde_json::from_str(enforcement).unwrap();
    assert_eq!((&enforcement["version"], &enforcement["accept"]), (&json!(1), &json!(["signals"])));
}

/// Runs a script directly and as a bundle, in the same environment.
fn both(place: &Place, name: &str, script: &str) -> (Answer, Answer) {
    let script = ["--", "sh", "-c", script, "name", "a b", "é", ""];
    let command = |args: &[&str]| {
        let mut command = place.command(args);
        command.env_clear();
        command.envs([("PATH", "/usr/bin:/bin"), ("A", "1 2\n3"), ("EMPTY", ""), ("É", "ü")]);
        command.env("HOME", place.path("")).env("TMPDIR", std::env::temp_dir());
        command
    };
    let bundle = format!("bundle-{name}");
    std::fs::create_dir(place.path(&bundle)).unwrap();
    let direct = finish(command(&[&["run", "-p", "p.json"], &script[..]].concat()), b"in\n");
    let spec = ["spec", "-p", "p.json", "--bundle", &bundle];
    let made = finish(command(&[&spec, &script[..]].concat()), b"");
    assert_eq!((made.code, made.stdout.as_str()), (0, ""), "{made:?}");
    let mode = std::fs::metadata(place.path(&bundle).join("config.json")).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o600, "the environment is nobody else's");
    // The environment of the bundle counts, not that of whoever runs it.
    let mut run = place.command(&["run", "--bundle", &bundle, "id"]);
    run.env_clear().env("PATH", "/nowhere").env("OTHER", "x");
    let bundled = finish(run, b"in\n");
    (direct, bundled)
}

#[test]
fn a_bundle_runs_to_the_same_effect() {
    for (name, script, code) in [
        // The temporary directory is the run's own, and its name random.
        ("environment", "env -u TMPDIR | sort; test -d \"$TMPDIR\"; echo $?", 0),
        ("arguments", "printf '<%s>' \"$0\" \"$@\"; pwd; cat", 0),
        ("status", "exit 37", 37),
        ("signal", "kill -KILL $$", 137),
        ("write", "echo x > new && cat new && rm new", 0),
        ("refused", "echo x > /usr/landstrip-test || exit 3", 3),
        ("secret", "cat secret", 1),
        ("glob", "echo x > sub/a.lock", 2),
        ("always", "ls keys", 2),
        (
            "identity",
            "grep -E 'Uid|Gid|Groups|CapEff|CapPrm|NoNewPrivs|SigBlk|SigIgn' /proc/self/status; umask; ulimit -a",
            0,
        ),
    ] {
        let place = place();
        let (direct, bundled) = both(&place, name, script);
        assert_eq!(direct.code, code, "{name}: {direct:?}");
        assert_eq!(bundled.code, code, "{name}: {bundled:?}");
        assert_eq!(direct.stdout, bundled.stdout, "{name}");
        assert_eq!(denials(&direct), denials(&bundled), "{name}");
        let expected = matches!(name, "refused" | "secret" | "glob" | "always");
        assert_eq!(!denials(&direct).is_empty(), expected, "{name}: {direct:?}");
    }
}

/// The denials of a run, without what differs from one to the next.
fn denials(answer: &Answer) -> Vec<Value> {
    let records = answer.stderr.lines().filter_map(|line| serde_json::from_str(line).ok());
    let denials = records.filter(|record: &Value| record["kind"] == "filesystem");
    denials
        .map(|mut record| {
            record["ts"] = Value::Null;
            record["process"]["pid"] = Value::Null;
            record
        })
        .collect()
}

#[test]
fn a_bundle_is_never_overwritten() {
    let place = place();
    std::fs::create_dir(place.path("b")).unwrap();
    place.write("b/config.json", "mine");
    let answer = place.run(&["spec", "--bundle", "b", "--", "true"]);
    assert_eq!((answer.code, &answer.trap()["code"]), (2, &json!("USAGE_ERROR")));
    assert_eq!(std::fs::read_to_string(place.path("b/config.json")).unwrap(), "mine");
}

#[test]
fn a_bundle_holds_the_policy_that_its_program_has_by_then() {
    let place = place();
    std::fs::copy("/bin/touch", place.path("tool")).unwrap();
    place.write("p.json", r#"{"filesystem": {"allowWrite": ["."]}}"#);
    std::fs::create_dir(place.path("b")).unwrap();
    let made = place.run(&["spec", "-p", "p.json", "-b", "b", "--", "./tool", "mark"]);
    assert_eq!(made.code, 0, "{made:?}");
    assert_eq!(place.run(&["run", "b"]).code, 0);
    let policy = br#"{"filesystem": {"denyWrite": ["mark"]}}"#;
    let flags = rustix::fs::XattrFlags::empty();
    match rustix::fs::setxattr(place.path("tool"), "user.landstrip.policy", policy, flags) {
        Err(rustix::io::Errno::OPNOTSUPP) => {
            return skipped("the policy of a program", "no extended attributes here");
        }
        set => set.unwrap(),
    }
    let answer = place.run(&["run", "b"]);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert_eq!(denials(&answer)[0]["rule"]["key"], "filesystem.denyWrite[0]");
}

/// What `spec` has tightened already is tightened again, and means the same.
#[test]
fn a_bundle_of_a_program_with_a_policy_runs_as_the_program_does() {
    let place = place();
    std::fs::copy("/bin/touch", place.path("tool")).unwrap();
    place.write("p.json", r#"{"filesystem": {"allowWrite": ["."]}}"#);
    let policy = br#"{"filesystem": {"allowWrite": ["sub"], "denyWrite": ["sub/held"]}}"#;
    let flags = rustix::fs::XattrFlags::empty();
    match rustix::fs::setxattr(place.path("tool"), "user.landstrip.policy", policy, flags) {
        Err(rustix::io::Errno::OPNOTSUPP) => {
            return skipped("the policy of a program", "no extended attributes here");
        }
        set => set.unwrap(),
    }
    for (target, code) in [("sub/new", 0), ("sub/held", 1), ("new", 1)] {
        let bundle = format!("b-{}", target.replace('/', "-"));
        std::fs::create_dir(place.path(&bundle)).unwrap();
        let program = ["--", "./tool", target];
        let made = place.run(&[&["spec", "-p", "p.json", "-b", &bundle], &program[..]].concat());
        assert_eq!(made.code, 0, "{made:?}");
        let direct = place.run(&[&["run", "-p", "p.json"], &program[..]].concat());
        let bundled = place.run(&["run", &bundle]);
        assert_eq!((direct.code, bundled.code), (code, code), "{target}: {direct:?} {bundled:?}");
        assert_eq!(denials(&direct), denials(&bundled), "{target}");
    }
}

#[test]
fn a_bundle_whose_paths_moved_is_refused() {
    let place = place();
    std::fs::create_dir(place.path("b")).unwrap();
    let made = place.run(&["spec", "-p", "p.json", "-b", "b", "--", "true"]);
    assert_eq!(made.code, 0, "{made:?}");
    assert_eq!(place.run(&["run", "b"]).code, 0);
    std::fs::remove_file(place.path("link")).unwrap();
    symlink("keys", place.path("link")).unwrap();
    let answer = place.run(&["run", "b"]);
    let record = answer.trap();
    assert_eq!((answer.code, &record["code"]), (1, &json!("POLICY_PARSE_FAILED")));
    assert!(record["message"].as_str().unwrap().contains("p.json:3"), "{record}");
}

#[test]
fn text_that_is_not_utf8_survives_the_direct_form_alone() {
    let place = place();
    let bytes = std::ffi::OsStr::from_bytes(b"a\xff");
    let with = |args: &[&str]| {
        let mut command = place.command(args);
        command.arg(bytes).env("X", bytes);
        finish(command, b"")
    };
    let script = "test \"$0\" = \"$X\" && printf %s \"$0$X\" | od -An -tx1";
    let answer = with(&["run", "--", "sh", "-c", script]);
    assert_eq!((answer.code, answer.stdout.trim()), (0, "61 ff 61 ff"), "{answer:?}");
    let answer = with(&["spec", "--", "echo"]);
    assert_eq!((answer.code, &answer.trap()["key"]), (1, &json!("process.args[1]")), "{answer:?}");
}

#[test]
fn the_doctor_tries_everything() {
    let place = place();
    let answer = place.run(&["doctor"]);
    let report = answer.json();
    assert_eq!((answer.code, answer.stderr.as_str()), (0, ""), "{report}");
    assert_eq!(report["healthy"], true);
    let checks = report["checks"].as_array().unwrap();
    let names: Vec<_> = checks.iter().map(|check| check["name"].as_str().unwrap()).collect();
    let expected = [
        "system-calls",
        "landlock",
        "landlock-errata",
        "landlock-signals",
        "seccomp-listener",
        "process-memory",
        "pidfd-getfd",
        "proc",
        "temporary-directory",
        "user-namespace",
        "network-namespace",
        "limit-memory",
        "limit-pids",
        "limit-cpu",
    ];
    assert_eq!(names, expected);
    for check in checks {
        let status = check["status"].as_str().unwrap();
        assert!(["ok", "failed", "unavailable"].contains(&status), "{check}");
        assert!(check["required"] == false || status == "ok", "{check}");
        assert!(!check["message"].as_str().unwrap().is_empty(), "{check}");
    }
    let text = place.run(&["doctor", "--format", "text"]).stdout;
    assert!(expected.iter().all(|name| text.contains(name)), "{text}");
    assert!(text.ends_with("\nhealthy\n"), "{text}");
}

/// Inside a run of ours, Landlock alone has to hold, and the listener is taken.
#[test]
fn the_doctor_knows_that_it_is_inside() {
    let place = place();
    let inside = [&["run", "--", cli_support::LANDSTRIP][..], &["doctor"]].concat();
    let answer = place.run(&inside);
    let report = answer.json();
    assert_eq!((answer.code, &report["host"]["nested"]), (0, &json!(true)), "{answer:?}");
    let listener = &report["checks"][4];
    assert_eq!(listener["name"], "seccomp-listener");
    assert_eq!((&listener["status"], &listener["errno"]), (&json!("unavailable"), &json!("EBUSY")));
    assert_eq!(listener["required"], false);
}

/// A host without a usable `/proc` and without a temporary directory is told so.
#[test]
fn an_unhealthy_host_is_reported() {
    let place = place();
    let script = format!("mount -t tmpfs x /proc && exec {} doctor", cli_support::LANDSTRIP);
    let mut command = std::process::Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
    command.current_dir(place.path(""));
    let mut control = std::process::Command::new("unshare");
    control.args(["--user", "--map-root-user", "--mount", "true"]);
    if !control.stderr(std::process::Stdio::null()).status().is_ok_and(|status| status.success()) {
        return skipped("an unhealthy host", "no user namespaces here to make one");
    }
    let answer = finish(command, b"");
    let report = answer.json();
    assert_eq!((answer.code, &report["healthy"]), (1, &json!(false)), "{answer:?}");
    let checks = report["checks"].as_array().unwrap();
    let proc = checks.iter().find(|check| check["name"] == "proc").unwrap();
    assert_eq!((&proc["status"], &proc["required"]), (&json!("failed"), &json!(true)));
}

#[test]
fn completions_and_the_manual_know_every_command() {
    let place = place();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let answer = place.run(&["completions", shell]);
        assert_eq!(answer.code, 0, "{shell}: {answer:?}");
        for word in ["run", "validate", "doctor", "why", "accept", "bundle"] {
            assert!(answer.stdout.contains(word), "{shell}: {word}");
        }
    }
    let script = place.run(&["completions", "bash"]).stdout;
    place.write("landstrip.bash", script);
    let mut check = std::process::Command::new("bash");
    check.arg("-n").arg(place.path("landstrip.bash"));
    assert!(check.status().expect("bash").success());
    let manual = place.run(&["man"]).stdout;
    for word in ["LANDSTRIP DOCTOR", "LANDSTRIP WHY", "Exit codes"] {
        assert!(manual.contains(word), "{word}");
    }
}

#[test]
fn schemas_and_shipped_policies_are_what_the_repository_holds() {
    let place = place();
    for name in ["policy", "trap"] {
        let file = repository(&format!("config/{name}.schema.json"));
        let answer = place.run(&["policy", "schema", name]);
        assert_eq!(answer.stdout, std::fs::read_to_string(file).unwrap());
        let asked = place.run(&["policy", "schema", name, "--format", "json"]);
        assert_eq!((asked.code, asked.stdout), (0, answer.stdout));
    }
    let list = place.run(&["policy", "list"]).json();
    for entry in list.as_array().unwrap() {
        let name = entry["name"].as_str().unwrap();
        let answer = place.run(&["policy", "validate", "-p", name]);
        assert_eq!((answer.code, &answer.json()["valid"]), (0, &json!(true)), "{name}: {answer:?}");
    }
}
