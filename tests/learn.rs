//! What `learn` writes, on the real binary: each policy is learned from a program and then holds the
//! same program, which must find nothing denied.
#![cfg(target_os = "linux")]

mod cli_support;
mod support;

use cli_support::{Answer, LANDSTRIP, finish, repository};
use serde_json::{Value, json};
use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use support::have::have;
use support::net::{answering, outside_addresses};

/// A directory that holds a home, a start directory, and what lies outside of both.
struct Lab {
    dir: tempfile::TempDir,
}

impl Lab {
    fn new() -> Lab {
        let lab = Lab { dir: tempfile::tempdir().expect("a temporary directory") };
        for name in ["home/.ssh", "home/.cargo/bin", "home/.cache", "w", "data"] {
            std::fs::create_dir_all(lab.path(name)).expect("mkdir");
        }
        std::fs::write(lab.path("home/.ssh/id_rsa"), "private\n").expect("a key");
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().expect("canonical name").join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).into_os_string().into_string().expect("UTF-8")
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.path("w")).env("HOME", self.path("home"));
        command
    }

    fn bare(&self, program: &[&str]) -> Answer {
        finish(self.command(program[0], &program[1..]), b"")
    }

    /// Learns from `program` into the file `policy` of the laboratory.
    fn learn(&self, policy: &str, options: &[&str], program: &[&str]) -> Answer {
        let policy = self.text(policy);
        let args = [&["learn", "-o", &policy], options, &["--"], program].concat();
        finish(self.command(LANDSTRIP, &args), b"")
    }

    /// Runs `program` under the policy that was learned.
    fn run(&self, policy: &str, program: &[&str]) -> Answer {
        let policy = self.text(policy);
        finish(self.command(LANDSTRIP, &[&["run", "-p", &policy, "--"], program].concat()), b"")
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("a file")
    }

    fn policy(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name))
            .unwrap_or_else(|e| panic!("{e}: {}", self.read(name)))
    }

    fn writes(&self, name: &str) -> Vec<String> {
        let policy = self.policy(name);
        let list = policy["filesystem"]["allowWrite"].as_array().expect("a list");
        list.iter().map(|entry| entry.as_str().expect("a string").to_owned()).collect()
    }
}

fn sh(script: &str) -> [&str; 3] {
    ["sh", "-c", script]
}

/// What no denial leaves on standard error.
#[track_caller]
fn untroubled(answer: &Answer) {
    assert_eq!((answer.code, answer.stderr.contains("_DENIED")), (0, false), "{answer:#?}");
}

const SCATTERED: &str = r#"
    mkdir -p out/sub && echo a > out/sub/a && mv out/sub/a out/sub/b && chmod 600 out/sub/b
    mkdir -p ~/.cache/tool/x && echo b > ~/.cache/tool/x/b && rm ~/.cache/tool/x/b
    mkdir -p ~/.cargo/registry/index && echo c > ~/.cargo/registry/index/c
    : > ~/.cargo/.package-cache
    for i in 1 2 3 4 5; do echo $i > ../log.$i; done
    echo d >> ../data/existing
    ln -s "$HOME/.cache/tool" to; echo e > to/e; ln -s ../data/existing file; echo f >> file; rm to file
    t=$(mktemp) && echo t > "$t" && rm "$t"
    echo quiet > /dev/null
"#;

#[test]
fn scattered_writes_are_learned_and_allowed() {
    let lab = Lab::new();
    std::fs::write(lab.path("data/existing"), "").expect("a file");
    untroubled(&lab.learn("p.json", &[], &sh(SCATTERED)));
    let root = lab.text("").trim_end_matches('/').to_owned();
    let expected = [
        ".".to_owned(),
        format!("{root}/data/existing"),
        format!("{root}/log.[0-9]*"),
        "~/.cache/tool".to_owned(),
        "~/.cargo/.package-cache".to_owned(),
        "~/.cargo/registry".to_owned(),
    ];
    assert_eq!(lab.writes("p.json"), expected);
    untroubled(&lab.run("p.json", &sh(SCATTERED)));
    // And what was not learned is not allowed.
    let other = lab.run("p.json", &sh("echo x > ~/.cache/other"));
    assert!(other.code != 0 && other.stderr.contains("FILESYSTEM_DENIED"), "{other:#?}");

    // The same from the policy itself, which then has nothing to add, and from a warm cache.
    let base = lab.text("p.json");
    untroubled(&lab.learn("again.json", &["-p", &base], &sh(SCATTERED)));
    assert_eq!(lab.writes("again.json"), [""; 0]);
    untroubled(&lab.learn("warm.json", &[], &sh(SCATTERED)));
    assert_eq!(lab.writes("warm.json"), expected);
}

#[test]
fn the_document_is_as_written_here() {
    let lab = Lab::new();
    let script = "cat ~/.ssh/id_rsa; echo x >> ~/.bashrc; mkdir ~/.cache/t; : > a; : > a; : > b";
    let answer = lab.learn("p.yaml", &[], &sh(script));
    assert_eq!(answer.code, 0, "{answer:#?}");
    let text = lab.read("p.yaml");
    let (head, rest) = text.split_once("  denyWrite: [\n").expect("denyWrite");
    let expected = "\
# Learned from: sh -c cat ~/.ssh/id_rsa; echo x >> ~/.bashrc; mkdir ~/.cache/t; : > a; : > a; : …
filesystem:
  allowWrite:
    - \".\" # 3 times by SH, such as a
    - \"~/.cache/t\" # once by mkdir, such as ~/.cache/t
";
    let shell = std::fs::canonicalize("/bin/sh").expect("a shell");
    let shell = shell.file_name().expect("a name").to_str().expect("UTF-8");
    assert_eq!(head, expected.replace("SH", shell));
    let (_, rest) =
        rest.split_once("  denyRead: [\n      \"~/.ssh\", \"~/.gnupg\"").expect("denyRead");
    let (_, rest) = rest.split_once("    ]\n").expect("the end of denyRead");
    let expected = "\
network:
  allowNetwork: false
# Not granted:
#   ~/.bashrc (by SH): read or run outside of the sandbox later
#   ~/.ssh/id_rsa (by cat): a secret
";
    assert_eq!(rest, expected.replace("SH", shell));
    for line in ["not granted: ~/.bashrc", "not granted: ~/.ssh/id_rsa"] {
        assert!(answer.stderr.contains(line), "{answer:#?}");
    }
    untroubled(&lab.run("p.yaml", &sh("rm -r ~/.cache/t; mkdir ~/.cache/t; : > a; : > b")));
}

#[test]
fn secrets_stay_closed_and_are_not_granted() {
    let lab = Lab::new();
    let read = sh("cat ~/.ssh/id_rsa");
    assert_eq!(lab.bare(&read).stdout, "private\n");
    // By its own name, by another one made first, and by the directory's.
    for script in [
        "cat ~/.ssh/id_rsa",
        "ln ~/.ssh/id_rsa key && cat key",
        "mv ~/.ssh/id_rsa key && cat key",
        "mv ~/.ssh ssh && cat ssh/id_rsa",
        "ln -s ~/.ssh l; cat l/id_rsa",
        "cp ~/.ssh/id_rsa key && cat key",
    ] {
        let answer = lab.learn("p.json", &["--force"], &sh(script));
        assert!(answer.code != 0 && !answer.stdout.contains("private"), "{script}: {answer:#?}");
        assert!(answer.stderr.contains("FILESYSTEM_DENIED"), "{script}: {answer:#?}");
        assert_eq!(lab.read("home/.ssh/id_rsa"), "private\n", "{script}");
        let answer = lab.run("p.json", &read);
        assert!(answer.code != 0 && answer.stdout.is_empty(), "{script}: {answer:#?}");
    }
    let written = lab.learn("p.json", &["--force"], &sh("echo x > ~/.ssh/known_hosts"));
    assert_eq!(written.code, 0, "{written:#?}");
    assert_eq!(lab.writes("p.json"), [""; 0]);
    assert!(written.stderr.contains("~/.ssh/known_hosts (by "), "{written:#?}");
}

#[test]
fn what_the_host_runs_later_is_not_granted() {
    let lab = Lab::new();
    let script = "mkdir -p .git/hooks && echo x > .git/hooks/pre-commit && echo x > ~/.bashrc &&
        echo x > ~/.cargo/bin/tool && echo x > .envrc && echo x > fine";
    assert_eq!(lab.learn("p.json", &[], &sh(script)).code, 0);
    assert_eq!(lab.writes("p.json"), ["."]);
    for path in [".git/hooks/pre-commit", "~/.bashrc", "~/.cargo/bin/tool", ".envrc"] {
        let answer = lab.run("p.json", &sh(&format!("echo y > {path}")));
        assert!(answer.code != 0 && answer.stderr.contains("FILESYSTEM_DENIED"), "{answer:#?}");
    }
    untroubled(&lab.run("p.json", &sh("echo y > fine")));
}

#[test]
fn a_commit_is_learned() {
    if !have("a commit is learned", &["cmd:git"]) {
        return;
    }
    let lab = Lab::new();
    let git = "git -c user.name=n -c user.email=e@x";
    let commit = format!("echo $$ >> file && git add . && {git} commit -qm message");
    let setup = lab.bare(&sh(&format!("git init -q . && {commit}")));
    assert_eq!(setup.code, 0, "{setup:#?}");
    untroubled(&lab.learn("p.json", &[], &sh(&commit)));
    assert_eq!(lab.writes("p.json"), ["."]);
    untroubled(&lab.run("p.json", &sh(&commit)));
    assert_eq!(lab.bare(&sh("git log --format=%s")).stdout, "message\n".repeat(3));
}

#[test]
fn a_build_is_learned() {
    if !have("a build is learned", &["cargo"]) {
        return;
    }
    let lab = Lab::new();
    let demo = repository("integration/demo");
    let copy = Command::new("cp").arg("-r").arg(&demo).arg(lab.path("w/demo")).status();
    assert!(copy.expect("cp").success());
    let cargo = PathBuf::from(std::env::var_os("CARGO").expect("cargo sets it"));
    let path = format!("{}:/usr/bin:/bin", cargo.parent().expect("a directory").display());
    let build = format!("cd demo && PATH={path} CARGO_TARGET_DIR=target cargo build --offline");
    untroubled(&lab.learn("p.json", &[], &sh(&build)));
    assert!(lab.writes("p.json").contains(&".".to_owned()), "{:?}", lab.writes("p.json"));
    std::fs::remove_dir_all(lab.path("w/demo/target")).expect("a target directory");
    untroubled(&lab.run("p.json", &sh(&build)));
}

/// The files of a crate that tests what crates test: itself, its program, files, loopback, its documentation.
const CRATE: [(&str, &str); 4] = [
    ("Cargo.toml", "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n"),
    (
        "src/lib.rs",
        "/// Adds.\n/// ```\n/// assert_eq!(small::add(1, 2), 3);\n/// ```\n\
        pub fn add(a: u32, b: u32) -> u32 { a + b }\n\
        #[test]\nfn adds() { assert_eq!(add(1, 2), 3); }\n",
    ),
    ("src/main.rs", "fn main() { println!(\"{}\", small::add(1, 2)); }\n"),
    (
        "tests/all.rs",
        r#"
        use std::io::{Read, Write};
        #[test]
        fn temporary() {
            let path = std::env::temp_dir().join(format!("small-{}", std::process::id()));
            std::fs::write(&path, "x").unwrap();
            std::fs::remove_file(&path).unwrap();
        }
        #[test]
        fn golden() { std::fs::write("tests/golden", "3\n").unwrap(); }
        #[test]
        fn program() {
            let said = std::process::Command::new(env!("CARGO_BIN_EXE_small")).output().unwrap();
            assert_eq!(said.stdout, b"3\n");
        }
        #[test]
        fn loopback() {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let to = listener.local_addr().unwrap();
            let mut client = std::net::TcpStream::connect(to).unwrap();
            listener.accept().unwrap().0.write_all(b"x").unwrap();
            client.read_exact(&mut [0]).unwrap();
        }
        "#,
    ),
];

#[test]
fn the_tests_of_a_crate_are_learned() {
    if !have("the tests of a crate are learned", &["cargo"]) {
        return;
    }
    let lab = Lab::new();
    for (name, text) in CRATE {
        let path = lab.path("w").join(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("mkdir");
        std::fs::write(path, text).expect("a file");
    }
    std::fs::write(lab.path("home/.cargo/credentials.toml"), "private\n").expect("a token");
    let cargo = PathBuf::from(std::env::var_os("CARGO").expect("cargo sets it"));
    let path = format!("{}:/usr/bin:/bin", cargo.parent().expect("a directory").display());
    let unset = "unset CARGO_HOME CARGO_BUILD_TARGET RUSTC_WRAPPER RUSTFLAGS";
    let tests = format!("{unset}; PATH={path} CARGO_TARGET_DIR=target cargo test --offline -q");
    untroubled(&lab.learn("p.yaml", &[], &sh(&tests)));
    untroubled(&lab.learn("p.json", &[], &sh(&tests)));
    // A few entries, each a directory or a file of cargo's own, and no secret among them.
    let writes = lab.writes("p.json");
    let few = writes.len() <= 6 && writes.contains(&".".to_owned());
    assert!(few && writes.iter().all(|w| w == "." || w.starts_with("~/.cargo/")), "{writes:?}");
    let network = serde_json::json!({"allowNetwork": false, "allowLocalBinding": true});
    assert_eq!(lab.policy("p.json")["network"], network);
    let text = lab.read("p.yaml");
    let closed = ["~/.ssh", "~/.cargo/credentials.toml"].map(|path| text.contains(path));
    assert!(text.len() < 4096 && closed == [true; 2] && !text.contains("private"), "{text}");
    // As it was left, and from the beginning.
    for policy in ["p.json", "p.yaml"] {
        untroubled(&lab.run(policy, &sh(&tests)));
        std::fs::remove_dir_all(lab.path("w/target")).expect("a target directory");
    }
    untroubled(&lab.run("p.yaml", &sh(&tests)));
    let secret = lab.run("p.yaml", &sh("cat ~/.cargo/credentials.toml"));
    assert!(secret.code != 0 && secret.stdout.is_empty(), "{secret:#?}");
    let outside = lab.run("p.yaml", &sh("echo x > ../data/x"));
    assert!(outside.code != 0 && !lab.path("data/x").exists(), "{outside:#?}");
}

#[test]
fn many_files_become_their_directory() {
    let lab = Lab::new();
    let script = "i=0; while [ $i -lt 20000 ]; do : > ../data/f$i; i=$((i+1)); done";
    untroubled(&lab.learn("p.json", &[], &sh(script)));
    assert_eq!(lab.writes("p.json"), [lab.text("data")]);
    untroubled(&lab.run("p.json", &sh(": > ../data/f20000")));
}

/// A Unix socket and a port of somebody else.
#[test]
fn sockets_are_learned() {
    let lab = Lab::new();
    let socket = lab.text("data/s");
    let _unix = UnixListener::bind(&socket).expect("a socket");
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = tcp.local_addr().expect("its number").port();
    let probe = support::probe().display().to_string();
    let learn = |name: &str, operations: &[&str]| {
        let program = [&[probe.as_str()], operations].concat();
        let answer = lab.learn(name, &[], &program);
        let failed = answer.stdout.lines().any(|line| !line.starts_with("ok"));
        assert!(answer.code == 0 && !failed, "{answer:#?}");
        lab.policy(name)["network"].clone()
    };
    let unix = format!("connect $s un:{socket} #");
    let network = learn("unix.json", &["s=socket AF_UNIX SOCK_STREAM 0", &unix]);
    assert_eq!(network, serde_json::json!({"allowNetwork": false, "allowUnixSockets": [socket]}));
    let local = format!("connect $s in:127.0.0.1:{port} #");
    let network = learn("local.json", &["s=socket AF_INET SOCK_STREAM 0", &local]);
    assert_eq!(network, serde_json::json!({"allowNetwork": false, "hostPorts": [port]}));
    // A datagram socket is connected without a packet; 192.0.2.0/24 is nobody's (RFC 5737).
    let far = ["s=socket AF_INET SOCK_DGRAM 0", "sendto $s bytes:x 1 0 in:192.0.2.1:9 #"];
    let answer = lab.learn("far.json", &[], &[&[probe.as_str()], &far[..]].concat());
    assert_eq!(answer.code, 0, "{answer:#?}");
    assert_eq!(lab.policy("far.json")["network"], serde_json::json!({"allowNetwork": true}));
    // No policy opens datagrams for loopback alone: what is learned says so and grants nothing for it.
    let near = format!("sendto $s bytes:x 1 0 in:127.0.0.1:{port} #");
    let near = ["s=socket AF_INET SOCK_DGRAM 0", "bind $s in:0.0.0.0:0 #", near.as_str()];
    let answer = lab.learn("near.json", &[], &[&[probe.as_str()], &near[..]].concat());
    assert_eq!(answer.code, 0, "{answer:#?}");
    assert_eq!(lab.policy("near.json")["network"], serde_json::json!({"allowNetwork": false}));
    assert!(answer.stderr.contains(&format!("UDP 127.0.0.1:{port}")), "{answer:#?}");
    assert!(answer.stderr.contains("no datagram socket can be kept on loopback"), "{answer:#?}");
    // What the run bound itself needs no rule but for the file.
    let own = [
        "s=socket AF_UNIX SOCK_STREAM 0",
        "bind $s un:own #",
        "listen $s 1",
        "c=socket AF_UNIX SOCK_STREAM 0",
        "connect $c un:own #",
    ];
    assert_eq!(learn("own.json", &own), serde_json::json!({"allowNetwork": false}));
    assert_eq!(lab.writes("own.json"), ["."]);
}

/// A server that greets who connects, until the test ends.
fn greeting(ip: IpAddr) -> SocketAddr {
    let listener = TcpListener::bind((ip, 0)).expect("bind");
    let at = listener.local_addr().expect("its address");
    thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let _gone = client.write_all(b"hello");
        }
    });
    at
}

fn greeted(to: SocketAddr) -> [String; 3] {
    let family = if to.is_ipv4() { "AF_INET" } else { "AF_INET6" };
    [
        format!("s=socket {family} SOCK_STREAM 0"),
        format!("connect $s in:{to} #"),
        "read $s buf:9 9".to_owned(),
    ]
}

/// What the run did not serve itself is the host's, and reached again with what was learned: a server on
/// loopback, and with a list of hosts before it one of another host by its address.
#[test]
fn servers_of_others_are_learned_one_by_one() {
    let lab = Lab::new();
    let probe = support::probe().display().to_string();
    let [some, none] = [json!(["192.0.2.7"]), json!([])];
    let mut all = vec![
        (greeting([127, 0, 0, 1].into()), None, "hostPorts"),
        (greeting([127, 0, 77, 5].into()), None, "allowedDomains"),
        (greeting([127, 0, 0, 1].into()), Some(&none), "hostPorts"),
    ];
    for ip in outside_addresses() {
        all.extend([&some, &none].map(|list| (greeting(ip), Some(list), "allowedDomains")));
    }
    for (to, list, key) in all {
        let what = format!("{to} {list:?}");
        let program = greeted(to);
        let program: Vec<&str> = [&probe].into_iter().chain(&program).map(String::as_str).collect();
        let bare = lab.bare(&program);
        assert!(bare.stdout.lines().all(|line| line.starts_with("ok")), "control: {bare:#?}");
        let network = list.map_or(json!({}), |list| json!({ "allowedDomains": list }));
        std::fs::write(lab.path("base.json"), json!({ "network": network }).to_string()).unwrap();
        let base = lab.text("base.json");
        let answer = lab.learn("p.json", &["--force", "-p", &base], &program);
        assert_eq!(answer.stdout, bare.stdout, "{what}: {answer:#?}");
        let entry = match key {
            "hostPorts" => json!([to.port()]),
            _ => json!([to.to_string()]),
        };
        assert_eq!(lab.policy("p.json")["network"], json!({ key: entry }), "{what}");
        let learned = lab.text("p.json");
        let run = |policies: &[&str]| {
            finish(lab.command(LANDSTRIP, &[&["run"], policies, &["--"], &program].concat()), b"")
        };
        let again = run(&["-p", &base, "-p", &learned]);
        assert_eq!((&again.stdout, again.stderr.as_str()), (&bare.stdout, ""), "{what}");
        assert!(!run(&["-p", &base]).stderr.is_empty(), "{what}: it was learned for nothing");
    }
}

/// Programs that heed a proxy say which hosts they reach, whether or not those can be looked up.
#[test]
fn names_are_learned() {
    if !have("names that are learned", &["cmd:curl", "cmd:bash"]) {
        return;
    }
    let lab = Lab::new();
    // The proxy of this host, which answers for every other one.
    let proxy = format!("http://127.0.0.1:{}", answering("far away"));
    let local = answering("at home");
    let call = |args: &[&str]| {
        let mut command = lab.command(args[0], &args[1..]);
        command.env("http_proxy", &proxy).env("https_proxy", &proxy);
        finish(command, b"")
    };
    let far = "curl -sS http://a.far.example/ http://b.far.example:8080/";
    let home = format!(
        "[ $http_proxy != {proxy} ] || unset http_proxy
        curl -sS --noproxy '' http://localhost:{local}/ http://127.0.0.1:{local}/"
    );
    let learned = lab.text("p.json");
    for (script, network) in [
        (
            far,
            json!({"allowNetwork": false, "allowedDomains": ["a.far.example:80", "b.far.example:8080"]}),
        ),
        (&home, json!({"allowNetwork": false, "hostPorts": [local]})),
        // What goes there without one has no name.
        (
            &format!("{far}; timeout 1 bash -c ': < /dev/tcp/192.0.2.1/9'; :"),
            json!({"allowNetwork": true}),
        ),
    ] {
        let program = ["bash", "-c", script];
        let bare = call(&program);
        assert!(bare.stdout.contains("far away") || bare.stdout.contains("at home"), "{bare:#?}");
        let answer =
            call(&[&[LANDSTRIP, "learn", "--force", "-o", &learned, "--"], &program[..]].concat());
        assert_eq!(answer.stdout, bare.stdout, "{script}: {answer:#?}");
        assert_eq!(lab.policy("p.json")["network"], network, "{script}: {answer:#?}");
        let run = call(&[&[LANDSTRIP, "run", "-p", &learned, "--"], &program[..]].concat());
        assert_eq!(run.stdout, bare.stdout, "{script}: {run:#?}");
    }
    // The control: it was not learned for nothing.
    std::fs::write(lab.path("none.json"), r#"{"network": {"allowedDomains": []}}"#).unwrap();
    let none = lab.text("none.json");
    let run = call(&[LANDSTRIP, "run", "-p", &none, "--", "bash", "-c", far]);
    assert!(
        !run.stdout.contains("far away") && run.stderr.contains("a.far.example:80"),
        "{run:#?}"
    );
    // What a policy before it lists is not learned again.
    std::fs::write(lab.path("base.json"), r#"{"network": {"allowedDomains": ["a.far.example"]}}"#)
        .unwrap();
    let base = lab.text("base.json");
    let learn =
        [LANDSTRIP, "learn", "--force", "-p", &base, "-o", &learned, "--", "bash", "-c", far];
    let answer = call(&learn);
    let network = json!({"allowedDomains": ["b.far.example:8080"]});
    assert_eq!(lab.policy("p.json")["network"], network, "{answer:#?}");
}

/// What a policy attached to the program closes stays closed, whoever asks the proxy for it.
#[test]
fn an_attached_list_of_hosts_holds_while_learning() {
    if !have("the policy of a program", &["xattr", "cmd:curl"]) {
        return;
    }
    let lab = Lab::new();
    let proxy = format!("http://127.0.0.1:{}", answering("far away"));
    let tool = lab.text("w/tool");
    let script = "#!/bin/sh\ncurl -sS http://a.far.example/; curl -sS http://b.far.example/\n";
    std::fs::write(&tool, script).expect("a script");
    std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("chmod");
    let learn = || {
        let policy = lab.text("p.json");
        let args = ["learn", "--force", "-o", &policy, "--", &tool];
        let mut command = lab.command(LANDSTRIP, &args);
        command.env("http_proxy", &proxy).env("https_proxy", &proxy);
        finish(command, b"").stdout
    };
    assert_eq!(learn(), "far awayfar away", "control");
    let own = br#"{"network": {"allowedDomains": ["a.far.example"]}}"#;
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&tool, "user.landstrip.policy", own, flags).expect("setxattr");
    let held = learn();
    assert!(held.starts_with("far away") && held.matches("far away").count() == 1, "{held}");
}

/// A port is the run's own also where its client came first.
#[test]
fn a_client_may_come_before_its_server() {
    let lab = Lab::new();
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port");
    let probe = support::probe().display().to_string();
    let connect = format!("do s=socket AF_INET SOCK_STREAM 0 ; connect $s in:{free} #");
    let program = [
        probe.as_str(),
        &connect,
        "s=socket AF_INET SOCK_STREAM 0",
        &format!("bind $s in:{free} #"),
        "listen $s 1",
        &connect,
    ];
    let answer = lab.learn("p.json", &[], &program);
    let lines: Vec<&str> = answer.stdout.lines().collect();
    assert_eq!(lines, ["ECONNREFUSED", "ok", "ok", "ok", "ok"], "{answer:#?}");
    let network = json!({"allowNetwork": false, "allowLocalBinding": true});
    assert_eq!(lab.policy("p.json")["network"], network);
    assert_eq!(lab.run("p.json", &program).stdout, answer.stdout);
}

/// Whatever is done, a policy that lists hosts is not extended by one that opens the network.
#[test]
fn beside_a_list_of_hosts_the_network_stays_closed() {
    let lab = Lab::new();
    std::fs::write(lab.path("base.json"), r#"{"network": {"allowedDomains": []}}"#).unwrap();
    let base = lab.text("base.json");
    let probe = support::probe().display().to_string();
    let far = "do s=socket AF_INET SOCK_STREAM|SOCK_NONBLOCK 0 ; connect $s in:192.0.2.1:9 #";
    let names = "do s=socket AF_INET SOCK_DGRAM 0 ; sendto $s bytes:x 1 0 in:192.0.2.53:53 #";
    let datagram = "do s=socket AF_INET SOCK_DGRAM 0 ; connect $s in:192.0.2.2:9 #";
    let way = "do s=socket AF_INET SOCK_DGRAM 0 ; connect $s in:192.0.2.1:9 #";
    for (operations, network, said) in [
        (&[far][..], json!({"allowedDomains": ["192.0.2.1:9"]}), ""),
        // As getaddrinfo(3) does before.
        (&[way, far], json!({"allowedDomains": ["192.0.2.1:9"]}), ""),
        (&[names, way, far], Value::Null, "192.0.2.1:9 (by probe): its name is not known"),
        (&[names], Value::Null, "a name that was looked up (by probe): its name is not known"),
        (&[datagram], Value::Null, "UDP 192.0.2.2:9 (by probe): only allowNetwork would"),
    ] {
        let program = [&[probe.as_str()], operations].concat();
        let answer = lab.learn("p.json", &["--force", "-p", &base], &program);
        assert_eq!(lab.policy("p.json")["network"], network, "{operations:?}: {answer:#?}");
        let told = answer.stderr.contains("not granted");
        assert!(answer.stderr.contains(said) && told != said.is_empty(), "{answer:#?}");
    }
    // The control: without the list there is nothing else to grant.
    let answer = lab.learn("p.json", &["--force"], &[&probe, far]);
    assert_eq!(lab.policy("p.json")["network"], json!({"allowNetwork": true}), "{answer:#?}");
    assert!(answer.stderr.contains("opens every host"), "{answer:#?}");
}

#[test]
fn the_program_ends_as_it_ends_and_nothing_is_lost() {
    let lab = Lab::new();
    let answer = lab.learn("p.json", &[], &sh("echo out; echo x > f; exit 7"));
    assert_eq!((answer.code, answer.stdout.as_str()), (7, "out\n"), "{answer:#?}");
    assert_eq!(lab.writes("p.json"), ["."]);
    // An existing file is kept, and nothing is run.
    let before = lab.read("p.json");
    let answer = lab.learn("p.json", &[], &sh("echo ran > ran"));
    assert_eq!((answer.code, lab.read("p.json")), (2, before.clone()), "{answer:#?}");
    assert!(answer.stderr.contains("--force") && !lab.path("w/ran").exists(), "{answer:#?}");
    // One that appears during the run, too.
    let answer = lab.learn("new.json", &[], &sh("echo mine > ../new.json"));
    assert_eq!((answer.code, lab.read("new.json").as_str()), (1, "mine\n"), "{answer:#?}");
    assert!(answer.stderr.contains("POLICY_IO_FAILED"), "{answer:#?}");
    let answer = lab.learn("p.json", &["--force"], &sh("true"));
    assert_eq!((answer.code, lab.writes("p.json")), (0, vec![]), "{answer:#?}");
    // A program that does not start leaves no policy.
    let answer = lab.learn("none.json", &[], &["/nonexistent"]);
    assert_eq!((answer.code, lab.path("none.json").exists()), (127, false), "{answer:#?}");
    let answer = lab.learn("no/such/p.json", &[], &sh("echo ran > ran"));
    assert_eq!((answer.code, lab.path("w/ran").exists()), (2, false), "{answer:#?}");
    // Nothing is left beside them.
    let names: Vec<_> = std::fs::read_dir(lab.path("")).expect("a list").flatten().collect();
    let hidden = names.iter().filter(|entry| entry.file_name().as_encoded_bytes()[0] == b'.');
    assert_eq!(hidden.count(), 0, "{names:?}");
}

#[test]
fn standard_output_takes_the_policy_after_the_program() {
    let lab = Lab::new();
    let args = ["learn", "-o", "-", "--", "sh", "-c", ": > f"];
    let answer = finish(lab.command(LANDSTRIP, &args), b"");
    assert_eq!(answer.json()["filesystem"]["allowWrite"], serde_json::json!(["."]), "{answer:#?}");
    assert!(answer.stderr.contains("learn: wrote to standard output: 1 to write"), "{answer:#?}");
}

#[test]
fn a_base_on_standard_input_is_read() {
    let lab = Lab::new();
    let output = lab.text("p.json");
    let args = ["learn", "-o", &output, "-p", "-", "--policy-format", "json", "--", "sh", "-c"];
    let script = "echo x > open; echo x > closed";
    let command = lab.command(LANDSTRIP, &[&args[..], &[script]].concat());
    let answer = finish(command, br#"{"filesystem": {"denyWrite": ["closed"]}}"#);
    assert!(answer.code != 0 && answer.stderr.contains("FILESYSTEM_DENIED"), "{answer:#?}");
    assert_eq!(lab.writes("p.json"), ["."]);
}

#[test]
fn what_a_base_denies_stays_denied() {
    let lab = Lab::new();
    std::fs::write(lab.path("base.json"), r#"{"filesystem": {"denyWrite": ["closed"]}}"#)
        .expect("a policy");
    let base = lab.text("base.json");
    let answer = lab.learn("p.json", &["-p", &base], &sh("echo x > open; echo x > closed"));
    assert!(answer.code != 0 && answer.stderr.contains("FILESYSTEM_DENIED"), "{answer:#?}");
    assert!(!lab.path("w/closed").exists() && Path::new(&lab.path("w/open")).exists());
    assert_eq!(lab.writes("p.json"), ["."]);
    assert_eq!(lab.policy("p.json")["network"], Value::Null);
}

/// What is not granted says who denied it: the policy that is extended, that of the program, or none.
#[test]
fn what_is_not_granted_says_who_denied_it() {
    if !have("the policy of a program", &["xattr"]) {
        return;
    }
    let lab = Lab::new();
    let base = lab.text("base.json");
    std::fs::write(&base, r#"{"filesystem": {"denyWrite": ["closed"]}}"#).expect("a policy");
    let tool = lab.path("w/tool");
    let udp = "bash -c ': > /dev/udp/192.0.2.1/9'";
    let script =
        format!("echo x > closed; echo x > held; echo x > fine; chmod u+s fine; {udp}; exit 0");
    std::fs::write(&tool, format!("#!/bin/sh\n{script}\n")).expect("a script");
    std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("chmod");
    let attach = |policy: &str| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&tool, "user.landstrip.policy", policy.as_bytes(), flags)
            .expect("setxattr");
    };
    let attached = "denied by the policy that is attached to the program";
    let extended = "denied by the policy that this one extends";
    let impossible = "not possible inside";
    for (own, expected) in [
        (
            r#"{"filesystem": {"denyWrite": ["held"]}, "network": {"allowNetwork": false}}"#,
            [
                ("closed", extended),
                ("held", attached),
                ("fine", impossible),
                ("datagram", attached),
            ],
        ),
        (
            r#"{"filesystem": {"allowWrite": ["fine"]}, "network": {"allowNetwork": false}}"#,
            [
                ("closed", attached),
                ("held", attached),
                ("fine", impossible),
                ("datagram", attached),
            ],
        ),
    ] {
        attach(own);
        let answer = lab.learn("p.json", &["--force", "-p", &base], &["./tool"]);
        assert_eq!(answer.code, 0, "{own}: {answer:#?}");
        for (what, why) in expected {
            let mut lines = answer.stderr.lines().filter(|l| l.starts_with("learn: not granted"));
            let said = lines.find(|line| line.contains(what));
            assert!(said.is_some_and(|line| line.contains(why)), "{own} {what}: {answer:#?}");
        }
        assert_eq!(lab.policy("p.json")["network"], Value::Null, "{own}");
    }
}
