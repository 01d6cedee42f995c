//! Suggested grants keep their promise: with the entry added, the very same call passes. Where a record
//! suggests nothing, it says why.
#![cfg(target_os = "linux")]

mod cli_support;
mod support;

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::thread;

use cli_support::{Place, finish};
use serde_json::{Value, json};
use support::mutations::{MUTATIONS, SETUP};
use support::net::outside_addresses;
use support::{Bed, have::have, without_namespaces};

/// The policy document that holds a suggested grant.
fn document(grant: &Value) -> Value {
    let (key, value) = grant.as_object().and_then(|grant| grant.iter().next()).expect("one entry");
    let section = match key.as_str() {
        "allowRead" | "allowWrite" | "gitDir" => "filesystem",
        "allowNetwork"
        | "allowLocalBinding"
        | "allowUnixSockets"
        | "allowAllUnixSockets"
        | "allowedDomains"
        | "hostPorts" => "network",
        other => panic!("an entry of which section? {other}"),
    };
    let value = if value == true { json!(true) } else { json!([value]) };
    json!({ section: { key: value } })
}

/// Runs `ops` under `policy`; the last is refused. Then what the record says holds: with the suggested
/// entry the last passes, and without one there is a reason. The name of the entry, or the reason.
fn promised(bed: &Bed, policy: &Value, setup: &[&str], ops: &[&str]) -> Result<String, String> {
    bed.reset(setup);
    let denied = bed.boxed(policy, ops);
    let refused = |line: &str| line.contains("EACCES") || line.contains("EPERM");
    if !refused(denied.last()) {
        return Err(format!("not refused: {:?} {}", denied.lines, denied.stderr));
    }
    let Some(trap) = denied.traps.last() else {
        return Err(format!("no record of it: {}", denied.stderr));
    };
    let grant = &trap["suggested_grant"];
    if grant.is_null() {
        return trap["message"].as_str().map(str::to_owned).ok_or(format!("no reason: {trap}"));
    }
    std::fs::write(bed.root().join("grant.json"), document(grant).to_string()).expect("a policy");
    bed.reset(setup);
    let probe = support::probe().display().to_string();
    let args: Vec<&str> = [&[probe.as_str()], ops].concat();
    let run = bed.launch(policy, &["--policy={root}/grant.json"], &args);
    if refused(run.last()) || run.lines.len() != ops.len() {
        let (lines, traps) = (run.lines, run.traps);
        return Err(format!("{grant} does not help: {lines:?} {traps:?} {}", run.stderr));
    }
    Ok(grant.as_object().expect("an object").keys().next().expect("a key").clone())
}

/// Every change that is refused, in a directory `target` under `policy`: how many had a suggestion.
fn every_change(policy: &Value, target: &str, first: &[&str]) -> usize {
    let put =
        |ops: &[&str]| -> Vec<String> { ops.iter().map(|op| op.replace("{T}", target)).collect() };
    let setup = [put(first), put(SETUP)].concat();
    let setup: Vec<&str> = setup.iter().map(String::as_str).collect();
    let (mut failures, mut suggested) = (Vec::new(), 0);
    let bed = Bed::new(&[]);
    // What the filter closes for every run leaves no record.
    let open = |name: &str| {
        !name.contains("FS_IOC") && !name.contains("whiteout") && name != "file_setattr"
    };
    for case in MUTATIONS.iter().filter(|case| open(case.name) && have(case.name, case.needs)) {
        let ops = [put(case.prepare), put(&[case.op])].concat();
        let ops: Vec<&str> = ops.iter().map(String::as_str).collect();
        match promised(&bed, policy, &setup, &ops) {
            Ok(said) => suggested += usize::from(said.starts_with("allow")),
            Err(why) => failures.push(format!("{}: {why}", case.name)),
        }
    }
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
    suggested
}

#[test]
fn every_change_outside() {
    let policy = json!({"filesystem": {"allowWrite": ["{in}"]}});
    assert!(every_change(&policy, "{out}", &[]) > 50);
}

#[test]
fn every_change_below_a_denied_directory() {
    let first = ["mkdirat AT_FDCWD \"{T} 0755"];
    let policy = json!({"filesystem": {"allowWrite": ["{in}"], "denyWrite": ["{in}/deny"]}});
    assert!(every_change(&policy, "{in}/deny", &first) > 50);
}

#[test]
fn every_change_below_what_a_glob_denies() {
    let first = ["mkdirat AT_FDCWD \"{T} 0755"];
    let policy = json!({"filesystem": {"allowWrite": ["{in}"], "denyWrite": ["**/den[xy]"]}});
    assert!(every_change(&policy, "{in}/deny", &first) > 50);
}

#[test]
fn nothing_helps_against_a_denial_that_always_holds() {
    let first = ["mkdirat AT_FDCWD \"{T} 0755"];
    let policy = json!({"filesystem": {"allowWrite": ["{in}"], "denyWriteAlways": ["{in}/deny"]}});
    assert_eq!(every_change(&policy, "{in}/deny", &first), 0);
}

/// A refusal, and the entry that its record suggests, or part of why there is none.
struct Case {
    name: &'static str,
    needs: &'static [&'static str],
    policy: &'static str,
    ops: &'static [&'static str],
    says: &'static str,
}

const fn case(
    name: &'static str,
    policy: &'static str,
    ops: &'static [&'static str],
    says: &'static str,
) -> Case {
    Case { name, needs: &[], policy, ops, says }
}

impl Case {
    const fn needs(self, needs: &'static [&'static str]) -> Case {
        Case { needs, ..self }
    }
}

/// Runs every case on the same prepared directories.
fn cases(setup: &[&str], table: &[Case]) {
    let bed = Bed::new(&[]);
    let mut failures = Vec::new();
    for case in table.iter().filter(|case| have(case.name, case.needs)) {
        let policy: Value = serde_json::from_str(case.policy).expect(case.name);
        match promised(&bed, &policy, setup, case.ops) {
            Ok(said) if said.contains(case.says) => {}
            Ok(said) => failures.push(format!("{}: {said:?} and not {:?}", case.name, case.says)),
            Err(why) => failures.push(format!("{}: {why}", case.name)),
        }
    }
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

const IN: &str = r#"{"filesystem": {"allowWrite": ["{in}"]}}"#;
const LISTED: &str = r#"{"filesystem": {"allowWrite": ["{in}"], "denyWrite": ["{in}/f", "{in}/via/f", "**/.git/hooks"]}}"#;

#[test]
fn changes_that_no_entry_allows_say_why() {
    let setup = [
        "put {in}/f text",
        "put {in}/g text",
        "put {out}/f text",
        "put {out}/g text",
        "symlinkat \"f AT_FDCWD \"{out}/l",
        "mkdirat AT_FDCWD \"{in}/d 0755",
        "mkdirat AT_FDCWD \"{out}/d 0755",
        "symlinkat \"d AT_FDCWD \"{in}/via",
    ];
    let table = [
        case("set-user-ID", IN, &["fchmodat AT_FDCWD \"{in}/f 04755 0"], "set-user-ID"),
        case("set-group-ID", IN, &["fchmodat AT_FDCWD \"{in}/f 02755 0"], "set-user-ID"),
        case("set-user-ID outside", IN, &["fchmodat AT_FDCWD \"{out}/f 04755 0"], "set-user-ID"),
        case(
            "a new set-user-ID file",
            IN,
            &["openat AT_FDCWD \"{in}/n O_CREAT|O_WRONLY 04755"],
            "set-user-ID",
        ),
        case(
            "mknod set-user-ID",
            IN,
            &["mknodat AT_FDCWD \"{in}/n S_IFREG|04755 0"],
            "set-user-ID",
        ),
        case(
            "mknod set-user-ID outside",
            IN,
            &["mknodat AT_FDCWD \"{out}/n S_IFREG|04755 0"],
            "set-user-ID",
        ),
        case("a device", IN, &["mknodat AT_FDCWD \"{in}/n S_IFCHR|0644 259"], "device nodes"),
        case(
            "a device outside",
            IN,
            &["mknodat AT_FDCWD \"{out}/n S_IFCHR|0644 259"],
            "device nodes",
        ),
        case(
            "the policy of a program",
            IN,
            &["setxattr \"{in}/f \"user.landstrip.policy bytes:{} 2 0"],
            "own policy",
        )
        .needs(&["xattr"]),
        case("a link's name", IN, &["unlinkat AT_FDCWD \"{out}/l 0"], "the directory that holds"),
        case("a new link", IN, &["symlinkat \"f AT_FDCWD \"{out}/n"], "the directory that holds"),
        case(
            "a link's owner",
            IN,
            &["fchownat AT_FDCWD \"{out}/l {uid} {gid} AT_SYMLINK_NOFOLLOW"],
            "the directory that holds",
        ),
        case(
            "a link moved out",
            IN,
            &["renameat AT_FDCWD \"{in}/via AT_FDCWD \"{out}/n"],
            "the directory that holds",
        ),
        case(
            "over a link",
            IN,
            &["renameat AT_FDCWD \"{in}/f AT_FDCWD \"{out}/l"],
            "the directory that holds",
        ),
        case(
            "two names",
            IN,
            &["renameat AT_FDCWD \"{out}/f AT_FDCWD \"{out}/n"],
            "one entry is not enough: the call also needs writing",
        ),
        case(
            "two names exchanged",
            IN,
            &["renameat2 AT_FDCWD \"{out}/f AT_FDCWD \"{out}/g RENAME_EXCHANGE"],
            "also needs writing",
        ),
        case(
            "a link of two names",
            IN,
            &["linkat AT_FDCWD \"{out}/f AT_FDCWD \"{out}/n 0"],
            "also needs writing",
        ),
        case(
            "a directory moved in",
            IN,
            &["renameat AT_FDCWD \"{out}/d AT_FDCWD \"{in}/n"],
            "moving this directory",
        ),
        case(
            "a directory moved out",
            IN,
            &["renameat AT_FDCWD \"{in}/d AT_FDCWD \"{out}/n"],
            "moving this directory",
        ),
        case(
            "a device's mode",
            IN,
            &["fchmodat AT_FDCWD \"/dev/full 0666 0"],
            "used, and not changed",
        ),
        case(
            "a denied name",
            LISTED,
            &["openat AT_FDCWD \"{in}/f O_WRONLY 0"],
            "names this very path",
        ),
        case(
            "a link on the way",
            LISTED,
            &["unlinkat AT_FDCWD \"{in}/via 0"],
            "this link leads to",
        ),
        case(
            "a name that needs a directory",
            LISTED,
            &["mknodat AT_FDCWD \"{in}/.git S_IFREG|0644 0"],
            "what a directory of this name holds",
        ),
        case(
            "a socket there",
            LISTED,
            &["do s=socket AF_UNIX SOCK_STREAM 0 ; bind $s un:{in}/.git #"],
            "what a directory of this name holds",
        ),
        case(
            "a process",
            IN,
            &["openat AT_FDCWD \"/proc/self/coredump_filter O_WRONLY 0"],
            "number of a process",
        ),
        // Controls: the same kinds of calls, where one entry does.
        case("mode", IN, &["fchmodat AT_FDCWD \"{out}/f 0600 0"], "allowWrite"),
        case(
            "a file moved in",
            IN,
            &["renameat AT_FDCWD \"{out}/f AT_FDCWD \"{in}/n"],
            "allowWrite",
        ),
        case(
            "a file moved out",
            IN,
            &["renameat AT_FDCWD \"{in}/f AT_FDCWD \"{out}/n"],
            "allowWrite",
        ),
        case("a directory", IN, &["mkdirat AT_FDCWD \"{out}/n 0755"], "allowWrite"),
        case(
            "a socket outside",
            IN,
            &["do s=socket AF_UNIX SOCK_STREAM 0 ; bind $s un:{out}/s #"],
            "allowWrite",
        ),
        case("through a link", IN, &["openat AT_FDCWD \"{out}/l O_WRONLY 0"], "allowWrite"),
    ];
    cases(&setup, &table);
}

/// What no rule is about is not said to be for want of one.
#[test]
fn what_is_never_possible_has_no_reason_among_rules() {
    let place = Place::new();
    place.write("f", "x");
    let trap = place.run(&["run", "-p", "@workspace", "--", "chmod", "u+s", "f"]).trap();
    assert_eq!((&trap["errno"], &trap["reason"]), (&json!("EPERM"), &Value::Null), "{trap}");
    assert_eq!(trap["message"], "set-user-ID and set-group-ID files cannot be made");
    // Control: the same call where a rule is wanting.
    let trap = place.run(&["run", "--", "chmod", "600", "f"]).trap();
    assert_eq!((&trap["errno"], &trap["reason"]), (&json!("EACCES"), &json!("allow_miss")));
}

#[test]
fn a_name_that_is_no_text_is_not_suggested() {
    let place = Place::new();
    let run = place.run(&["run", "--", "sh", "-c", "> $(printf '\\377')"]);
    let trap = run.trap();
    assert_eq!((&trap["kind"], &trap["suggested_grant"]), (&json!("filesystem"), &Value::Null));
    assert!(trap["message"].as_str().is_some_and(|why| why.contains("not UTF-8")), "{trap}");
}

const HIDDEN: &str =
    r#"{"filesystem": {"allowWrite": ["{in}"], "denyRead": ["{in}/hid", "{in}/file", "**/.env"]}}"#;
const NEITHER: &str = r#"{"filesystem": {"denyRead": ["{out}"]}}"#;

#[test]
fn what_may_not_be_read_is_opened_by_what_is_suggested() {
    let setup = [
        "mkdirat AT_FDCWD \"{in}/hid 0755",
        "put {in}/hid/f secret",
        "sh cp /bin/true {in}/hid/prog",
        "put {in}/hid/script #!{in}/hid/prog",
        "put {in}/script #!{in}/hid/prog",
        "fchmodat AT_FDCWD \"{in}/hid/script 0755 0",
        "fchmodat AT_FDCWD \"{in}/script 0755 0",
        "put {in}/file secret",
        "linkat AT_FDCWD \"{in}/file AT_FDCWD \"{in}/hard 0",
        "linkat AT_FDCWD \"{in}/file AT_FDCWD \"{in}/hid/hard 0",
        "put {in}/.env secret",
        "put {out}/f text",
    ];
    let table = [
        case("below", HIDDEN, &["cat {in}/hid/f"], "allowRead"),
        case("the directory itself", HIDDEN, &["ls {in}/hid"], "allowRead"),
        case("by its name", HIDDEN, &["cat {in}/file"], "allowRead"),
        case("by a glob", HIDDEN, &["cat {in}/.env"], "allowRead"),
        case(
            "to be linked",
            HIDDEN,
            &["linkat AT_FDCWD \"{in}/.env AT_FDCWD \"{in}/n 0"],
            "allowRead",
        ),
        case(
            "to be moved",
            HIDDEN,
            &["renameat AT_FDCWD \"{in}/.env AT_FDCWD \"{in}/n"],
            "allowRead",
        ),
        case("a program", HIDDEN, &["run {in}/hid/prog"], "allowRead"),
        case("an interpreter", HIDDEN, &["run {in}/script"], "allowRead"),
        case("to read and write", HIDDEN, &["openat AT_FDCWD \"{in}/.env O_RDWR 0"], "allowRead"),
        case(
            "a program and its interpreter",
            HIDDEN,
            &["run {in}/hid/script"],
            "also needs reading",
        ),
        case("another name", HIDDEN, &["cat {in}/hard"], "hard link"),
        case("another name, denied itself", HIDDEN, &["cat {in}/hid/hard"], "hard link"),
        case(
            "neither read nor written",
            NEITHER,
            &["openat AT_FDCWD \"{out}/f O_RDWR 0"],
            "also needs writing",
        ),
        case(
            "neither, new",
            NEITHER,
            &["openat AT_FDCWD \"{out}/n O_RDWR|O_CREAT 0600"],
            "also needs reading",
        ),
    ];
    cases(&setup, &table);
}

#[test]
fn sockets_and_addresses_are_opened_by_what_is_suggested() {
    const LOCAL: &str = r#"{"network": {"allowLocalBinding": true}}"#;
    const PORT: &str = r#"{"network": {"hostPorts": [3128]}}"#;
    const HOSTS: &str = r#"{"network": {"allowedDomains": ["192.0.2.7"]}}"#;
    let table = [
        case(
            "bind",
            "{}",
            &["do s=socket AF_INET SOCK_STREAM 0 ; bind $s in:127.0.0.1:0 #"],
            "allowLocalBinding",
        ),
        case(
            "bind everywhere",
            "{}",
            &["do s=socket AF_INET SOCK_STREAM 0 ; bind $s in:0.0.0.0:0 #"],
            "allowLocalBinding",
        ),
        case(
            "listen",
            "{}",
            &["do s=socket AF_INET SOCK_STREAM 0 ; listen $s 1"],
            "allowLocalBinding",
        ),
        // TEST-NET-1: whatever the network says, it is not we who refuse.
        case(
            "connect",
            "{}",
            &["do s=socket AF_INET SOCK_STREAM|SOCK_NONBLOCK 0 ; connect $s in:192.0.2.1:9 #"],
            "allowedDomains",
        ),
        case(
            "connect beside loopback",
            LOCAL,
            &["do s=socket AF_INET SOCK_STREAM|SOCK_NONBLOCK 0 ; connect $s in:192.0.2.1:9 #"],
            "allowedDomains",
        ),
        case(
            "connect beside hosts",
            HOSTS,
            &["do s=socket AF_INET SOCK_STREAM|SOCK_NONBLOCK 0 ; connect $s in:192.0.2.1:9 #"],
            "allowedDomains",
        ),
        case(
            "connect to no port",
            HOSTS,
            &["do s=socket AF_INET SOCK_STREAM 0 ; connect $s in:192.0.2.1:0 #"],
            "no entry",
        ),
        case(
            "bind elsewhere",
            "{}",
            &["do s=socket AF_INET SOCK_STREAM 0 ; bind $s in:192.0.2.1:0 #"],
            "allowNetwork",
        ),
        case(
            "bind elsewhere beside hosts",
            HOSTS,
            &["do s=socket AF_INET SOCK_STREAM 0 ; bind $s in:192.0.2.1:0 #"],
            "is refused",
        ),
        // A name is wanted, and the whole network is not suggested for that.
        case("UDP", "{}", &["socket AF_INET SOCK_DGRAM 0"], "network.allowedDomains"),
        case(
            "UDP beside a port",
            PORT,
            &["socket AF_INET6 SOCK_DGRAM 0"],
            "network.allowedDomains",
        ),
        case("a raw socket", "{}", &["socket AF_INET SOCK_RAW IPPROTO_UDP"], "CAP_NET_RAW"),
        case(
            "MPTCP beside loopback",
            LOCAL,
            &["socket AF_INET SOCK_STREAM IPPROTO_MPTCP"],
            "only TCP",
        )
        .needs(&["mptcp"]),
        case(
            "a Unix socket",
            "{}",
            &["do s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{root}/outside.sock #"],
            "allowUnixSockets",
        ),
        case(
            "a Unix datagram socket",
            "{}",
            &["socket AF_UNIX SOCK_DGRAM 0"],
            "allowAllUnixSockets",
        ),
        case(
            "a daemon's socket",
            "{}",
            &["do s=socket AF_UNIX SOCK_STREAM 0 ; connect $s un:{root}/docker.sock #"],
            "as good as the host",
        ),
        case(
            "an abstract socket",
            "{}",
            &["do s=socket AF_UNIX SOCK_STREAM 0 ; connect $s abs:nobody-bound-it #"],
            "abstract sockets",
        ),
        case(
            "events of the kernel",
            "{}",
            &["socket AF_NETLINK SOCK_RAW 15"],
            "of netlink, routes alone",
        ),
        case("another family", "{}", &["socket 40 SOCK_STREAM 0"], "not open in any run"),
    ];
    let bed = Bed::new(&[]);
    let _listeners = ["outside.sock", "docker.sock"]
        .map(|name| UnixListener::bind(bed.root().join(name)).expect("a socket"));
    let mut failures = Vec::new();
    for case in table.iter().filter(|case| have(case.name, case.needs)) {
        let policy: Value = serde_json::from_str(case.policy).expect(case.name);
        match promised(&bed, &policy, &[], case.ops) {
            Ok(said) if said.contains(case.says) => {}
            other => failures.push(format!("{}: {other:?} and not {:?}", case.name, case.says)),
        }
    }
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

/// A server that greets who connects, until the test ends.
fn greeting(ip: IpAddr) -> u16 {
    let listener = TcpListener::bind((ip, 0)).expect("bind");
    let port = listener.local_addr().expect("its address").port();
    thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let _gone = client.write_all(b"hello");
        }
    });
    port
}

/// What a run is told to add for a server of the host reaches that server, and not a loopback of the run's own.
#[test]
fn a_server_of_the_host_is_reached_by_what_is_suggested() {
    let far = outside_addresses();
    let mut all: Vec<(IpAddr, IpAddr, &str)> = Vec::new();
    for (to, at, key) in [
        ("127.0.0.1", "127.0.0.1", "hostPorts"),
        ("0.0.0.0", "127.0.0.1", "hostPorts"),
        ("::ffff:127.0.0.1", "127.0.0.1", "hostPorts"),
        ("::1", "::1", "hostPorts"),
        ("127.0.77.5", "127.0.77.5", "allowedDomains"),
    ] {
        let needs: &[&str] = if to.contains(':') { &["ipv6"] } else { &[] };
        if have(to, needs) {
            all.push((to.parse().unwrap(), at.parse().unwrap(), key));
        }
    }
    all.extend(far.iter().map(|ip| (*ip, *ip, "allowedDomains")));
    let bed = Bed::new(&[]);
    let probe = support::probe().display().to_string();
    let proxy = greeting(Ipv4Addr::LOCALHOST.into());
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
    let free = free.expect("a port").port();
    for (to, at, key) in all {
        let port = greeting(at);
        let to = SocketAddr::new(to, port);
        let family = if to.is_ipv4() { "AF_INET" } else { "AF_INET6" };
        let op =
            format!("do s=socket {family} SOCK_STREAM 0 ; connect $s in:{to} # ; read $s buf:9 9");
        let bare = bed.bare(&[&op]);
        assert!(bare.last().starts_with("ok"), "the control of {to}: {bare:?}");
        for (network, key) in [
            (json!({}), key),
            (json!({"allowNetwork": false}), key),
            (json!({"hostPorts": [proxy]}), key),
            (json!({"expose": [free]}), key),
            (json!({"allowedDomains": []}), "allowedDomains"),
            (json!({"deniedDomains": ["192.0.2.7"]}), "allowedDomains"),
            // Beside a proxy no hosts are listed.
            (
                json!({"httpProxyPort": proxy}),
                match key {
                    "hostPorts" => key,
                    _ if to.ip().is_loopback() => "",
                    _ => "allowNetwork",
                },
            ),
        ] {
            let network = json!({ "network": network });
            let run = |more: &[&str]| bed.launch(&network, more, &[&probe, &op]);
            for forbidden in [false, true] {
                let run = |more: &[&str]| match forbidden {
                    true => without_namespaces(|| run(more)),
                    false => run(more),
                };
                let denied = run(&[]);
                let what = format!("{to} {network} {forbidden}: {denied:?}");
                assert_eq!(denied.last(), "EACCES", "{what}");
                let grant = &denied.traps[0]["suggested_grant"];
                if key.is_empty() {
                    assert_eq!(grant, &Value::Null, "{what}");
                    assert!(denied.traps[0]["message"].is_string(), "{what}");
                    continue;
                }
                assert!(grant.get(key).is_some(), "{what}");
                let document = document(grant).to_string();
                std::fs::write(bed.root().join("grant.json"), document).expect("a policy");
                let granted = run(&["--policy={root}/grant.json"]);
                assert_eq!(granted.lines, bare.lines, "{what}: {granted:?}");
                assert!(granted.traps.is_empty(), "{what}: {granted:?}");
            }
        }
    }
}

/// Runs a shell script bare; it must succeed.
fn bare(place: &Place, script: &str) {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(place.path("")).env("HOME", place.path(""));
    let answer = finish(command, b"");
    assert_eq!(answer.code, 0, "{script}: {answer:?}");
}

#[test]
fn in_a_linked_worktree_the_entry_for_git_is_suggested() {
    if !have("a linked worktree", &["cmd:git"]) {
        return;
    }
    let place = Place::new();
    bare(
        &place,
        "git init -q main && cd main && git config user.name n && git config user.email e@x
         echo 1 > f && git add f && git commit -qm one && git worktree add -q ../tree
         mkdir -p ../hooks && cd ../tree && echo 2 > f",
    );
    let tree = place.text("tree");
    let commit = [
        "--cwd",
        tree.as_str(),
        "--",
        "git",
        "-c",
        "core.hooksPath=/dev/null",
        "commit",
        "-qam",
        "x",
    ];
    let denied = place.run(&[&["run", "-p", "@workspace"], &commit[..]].concat());
    assert_ne!(denied.code, 0, "{denied:?}");
    let traps: Vec<Value> =
        denied.stderr.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert!(!traps.is_empty(), "{denied:?}");
    for trap in &traps {
        assert_eq!(trap["suggested_grant"], json!({"gitDir": true}), "{trap}");
    }
    // `why` knows it as well.
    let index = place.text("main/.git/worktrees/tree/index");
    let said = place.run(&["why", "-p", "@workspace", "--cwd", &tree, &index]).json();
    assert_eq!(said["write"]["suggested_grant"], json!({"gitDir": true}), "{said}");
    let hooks = place.text("main/.git/hooks/pre-commit");
    let said = place.run(&["why", "-p", "@workspace", "--cwd", &tree, &hooks]).json();
    assert_eq!(said["write"]["suggested_grant"], json!({"allowWrite": hooks}), "{said}");
    place.write("git.json", document(&traps[0]["suggested_grant"]).to_string());
    let granted =
        place.run(&[&["run", "-p", "@workspace", "-p", "git.json"], &commit[..]].concat());
    assert_eq!((granted.code, granted.stderr.as_str()), (0, ""));
    bare(&place, "test \"$(git -C main log --format=%s tree)\" = \"$(printf 'x\\none')\"");
    // Outside of a linked worktree there is nothing to suggest it for.
    let main = place.text("main");
    let said = place.run(&["why", "-p", "@workspace", "--cwd", &main, &place.text("x")]).json();
    assert_eq!(said["write"]["suggested_grant"], json!({"allowWrite": place.text("x")}), "{said}");
}

#[test]
fn an_entry_of_the_run_does_not_help_against_the_policy_of_a_program() {
    if !have("the policy of a program", &["xattr"]) {
        return;
    }
    let place = Place::new();
    place.write("tool", "#!/bin/sh\neval \"$1\"\n");
    std::fs::set_permissions(place.path("tool"), PermissionsExt::from_mode(0o755)).unwrap();
    for name in ["sub", "hid"] {
        std::fs::create_dir(place.path(name)).unwrap();
    }
    place.write("hid/f", "x");
    place.write(
        "p.json",
        r#"{"filesystem": {"allowWrite": ["."]}, "network": {"allowNetwork": true}}"#,
    );
    let udp = "bash -c ': > /dev/udp/192.0.2.1/9'";
    for (own, script) in [
        (r#"{"filesystem": {"denyWrite": ["sub"]}}"#, ": > sub/x"),
        (r#"{"filesystem": {"allowWrite": ["sub"]}}"#, ": > x"),
        (r#"{"filesystem": {"denyRead": ["hid"]}}"#, "cat hid/f"),
        (r#"{"network": {"allowNetwork": false}}"#, udp),
    ] {
        attach(&place.path("tool"), own);
        let run = place.run(&["run", "-p", "p.json", "--", "./tool", script]);
        let traps: Vec<Value> =
            run.stderr.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let trap = traps.last().unwrap_or_else(|| panic!("{own} {script}: {run:?}"));
        assert_eq!(trap["suggested_grant"], Value::Null, "{own}: {trap}");
        let message = trap["message"].as_str().unwrap_or_default();
        assert!(message.contains("attached") || script == udp, "{own}: {trap}");
    }
    // Control: where that policy says nothing about it, the entry is suggested, and does.
    attach(&place.path("tool"), r#"{"filesystem": {"denyRead": ["hid"]}}"#);
    place.write("p.json", r#"{"filesystem": {"allowWrite": ["sub"]}}"#);
    let script = ": > x";
    let run = place.run(&["run", "-p", "p.json", "--", "./tool", script]);
    let grant = &run.trap()["suggested_grant"];
    place.write("grant.json", document(grant).to_string());
    let run = place.run(&["run", "-p", "p.json", "-p", "grant.json", "--", "./tool", script]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
}

fn attach(path: &Path, policy: &str) {
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(path, "user.landstrip.policy", policy.as_bytes(), flags).expect("xattr");
}
