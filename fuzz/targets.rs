//! What is fuzzed: each function takes any bytes, and panics where a promise is broken. cargo-fuzz
//! drives them, and so does `tests/fuzz.rs`.

#[path = "../tests/support/filter.rs"]
#[allow(dead_code)] // every_name
mod filter;
#[path = "../tests/support/naive.rs"]
mod naive;

use landstrip::learn::{Endpoint, Socket};
use landstrip::linux::how;
use landstrip::lower::{Identity, spec};
use landstrip::oci::bundle;
use landstrip::oci::seccomp::{Abi, compile};
use landstrip::policy::{
    Access, Daemons, Decider, Format, Glob, MemoryTree, Place, glob, merge, parse, resolve, shipped,
};
use landstrip::trap::{Action, Lines, parse_answer};
use naive::naive_path;
use oci_spec::runtime::LinuxSeccomp;
use std::net::SocketAddr;
use std::sync::OnceLock;

/// A target by name, and where in the repository its seeds are.
pub type Target = (&'static str, fn(&[u8]), &'static str);

/// Every target.
pub const ALL: &[Target] = &[
    ("documents", documents, "tests/fixtures/policy"),
    ("globs", globs, "fuzz/corpus/globs"),
    ("addresses", addresses, "fuzz/corpus/addresses"),
    ("open_how", open_how, "fuzz/corpus/open_how"),
    ("answers", answers, "fuzz/corpus/answers"),
    ("bundles", bundles, "fuzz/corpus/bundles"),
    ("profiles", profiles, "fuzz/corpus/profiles"),
];

/// A policy: it is refused with its place, or means something; and what the parser accepts, the schema
/// accepts.
pub fn documents(data: &[u8]) {
    static SCHEMA: OnceLock<jsonschema::Validator> = OnceLock::new();
    for format in [Format::Json, Format::Yaml] {
        let document = match parse("policy", data, format) {
            Err(error) => {
                let lines = data.iter().filter(|&&byte| byte == b'\n' || byte == b'\r').count() + 1;
                assert!(!error.message.is_empty() && error.message.len() < 20_000, "{error}");
                assert!(
                    error.line.is_none_or(|line| (1..=lines as u32).contains(&line)),
                    "{error}"
                );
                continue;
            }
            Ok(document) => document,
        };
        if format == Format::Json {
            let text = data.strip_prefix(b"\xef\xbb\xbf").unwrap_or(data);
            let value = serde_json::from_slice(text).expect("what we take for JSON is JSON");
            let schema = SCHEMA.get_or_init(|| {
                let schema = serde_json::from_str(shipped::SCHEMA).expect("JSON");
                jsonschema::validator_for(&schema).expect("a schema")
            });
            assert!(schema.is_valid(&value), "the schema refuses what the parser accepts");
        }
        let tree = MemoryTree::new();
        let place = Place { cwd: "/w", home: Some("/home/u"), view: &tree };
        if let Ok(policy) = resolve(&merge(vec![document]), &place) {
            let decider = Decider::new(&policy);
            for path in [&b"/"[..], b"/w/a/b", b"/home/u/.ssh", b"/\xff", b"relative", b""] {
                for access in [Access::Read, Access::Write] {
                    decider.decide(access, path);
                }
                decider.directory_move(path, b"/w/b");
            }
        }
    }
}

/// A pattern, a line feed, a path: what matches covers what is below it, and without classes and braces
/// the matcher agrees with a naive one.
pub fn globs(data: &[u8]) {
    let mut parts = data.splitn(2, |&byte| byte == b'\n');
    let (Some(pattern), Some(path)) = (parts.next(), parts.next()) else { return };
    let (Ok(pattern), Ok(path)) = (std::str::from_utf8(pattern), std::str::from_utf8(path)) else {
        return;
    };
    let Ok(patterns) = glob::expand(pattern) else { return };
    let names: Vec<&str> =
        path.split('/').filter(|name| !matches!(*name, "" | "." | "..")).collect();
    let path = format!("/top/{}", names.join("/"));
    for pattern in patterns {
        let Ok(glob) = Glob::new("/top", &pattern) else { continue };
        let matched = glob.matches(path.as_bytes());
        if matched && !names.is_empty() {
            assert!(glob.matches(format!("{path}/below").as_bytes()), "{pattern:?} {path:?}");
        }
        let plain = !pattern.contains(['[', ']', '{', '}', '\\']) && !path.contains('\0');
        if plain && pattern.len() < 24 && path.len() < 40 && !names.is_empty() {
            let parts: Vec<&str> =
                pattern.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
            let naive = (1..=names.len()).any(|end| naive_path(&parts, &names[..end]));
            assert_eq!(matched, naive, "{pattern:?} {path:?}");
        }
    }
}

/// A socket address: an internet address is what std makes of the same bytes, and only loopback and
/// the address that stands for all count as this host's.
pub fn addresses(data: &[u8]) {
    let endpoint = Endpoint::decode(data);
    let text = endpoint.to_string();
    if let Endpoint::Internet(address) = &endpoint {
        assert_eq!(text.parse::<SocketAddr>().ok(), Some(*address), "{data:?}");
        let (port, octets) = match address {
            SocketAddr::V4(four) => (four.port(), four.ip().octets().to_vec()),
            SocketAddr::V6(six) => (six.port(), six.ip().octets().to_vec()),
        };
        let start = if octets.len() == 4 { 4 } else { 8 };
        assert_eq!(&data[2..4], port.to_be_bytes());
        assert_eq!(&data[start..start + octets.len()], octets);
    }
    for socket in [Socket::Connect(endpoint.clone()), Socket::Bind(endpoint)] {
        let _ = (socket.need(&Daemons::default()), socket.to_string());
    }
}

/// The structure of openat2(2): judged as this kernel judges it.
pub fn open_how(data: &[u8]) {
    let Some(bytes) = data.first_chunk::<{ how::SIZE }>() else { return };
    let ours = how::decode(bytes).err().map_or(libc::ENOENT, |errno| errno.raw_os_error());
    assert_eq!(ours, kernel(bytes), "{bytes:?}");
}

/// What openat2(2) answers for the empty path, which nothing can be opened by: `ENOENT` where it finds
/// nothing wrong with the structure.
fn kernel(how: &[u8; how::SIZE]) -> i32 {
    let path = c"";
    // SAFETY: the kernel reads a string and as many bytes as it is told, and writes nothing.
    let result = unsafe {
        libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, path.as_ptr(), how.as_ptr(), how.len())
    };
    assert_eq!(result, -1, "an empty path was opened");
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// What comes back on the trap descriptor: lines are cut in the same way however they arrive, and only
/// an object that says so allows anything.
pub fn answers(data: &[u8]) {
    let cut = |size: usize| {
        let (mut lines, mut seen) = (Lines::default(), Vec::new());
        for chunk in data.chunks(size) {
            lines.push(chunk, |line| seen.push(line.map(<[u8]>::to_vec)));
        }
        seen
    };
    let seen = cut(data.len().max(1));
    let size = usize::from(data.first().copied().unwrap_or(0)) % 64 + 1;
    assert_eq!(seen, cut(size), "in parts of {size}");
    let fits = |line: &&[u8]| line.len() <= Lines::LONGEST;
    let whole =
        data.iter().rposition(|&byte| byte == b'\n').map_or(&data[..0], |end| &data[..=end]);
    let expected: Vec<&[u8]> = whole.split_inclusive(|&byte| byte == b'\n').collect();
    let expected = expected.iter().map(|line| Some(&line[..line.len() - 1]).filter(fits));
    assert!(seen.iter().map(Option::as_deref).eq(expected), "another cut");
    for line in seen.iter().flatten() {
        let Ok((id, action, _)) = parse_answer(line) else { continue };
        assert_ne!(id, 0);
        let value: serde_json::Value = serde_json::from_slice(line).expect("JSON");
        assert_eq!(value["query_id"], id.to_string());
        assert!(action != Action::Allow || value["action"] == "allow", "{value}");
    }
}

/// A `config.json`: it is refused, or has what a container is made of, and means the same when it is
/// written and read again. One whose root is the host's, and the document of `exec --process`, too.
pub fn bundles(data: &[u8]) {
    if let Ok((container, _)) = bundle::parse(data)
        && bundle::check(&container).is_ok()
    {
        let process = container.process().as_ref().expect("a process");
        assert!(process.cwd().is_absolute());
        assert!(process.args().iter().flatten().next().is_some_and(|program| !program.is_empty()));
        let text = serde_json::to_vec(&container).expect("JSON");
        let (again, warnings) = bundle::parse(&text).expect("what was accepted");
        assert!(again == container && warnings.is_empty(), "{container:?}\n{again:?}");
        if let Some(profile) = container.linux().as_ref().and_then(|linux| linux.seccomp().as_ref())
        {
            compiles(profile);
        }
    }
    if let Ok((process, _)) = bundle::parse_process(data) {
        let _ = bundle::check_process(&process);
    }
    let (tree, identity) = (MemoryTree::new(), Identity::default());
    if let Ok(run) = spec::read(data, &identity, &tree) {
        let document = spec::document(&run, &identity).expect("what was read");
        let text = serde_json::to_vec(&document).expect("JSON");
        assert_eq!(spec::read(&text, &identity, &tree), Ok(run));
    }
}

/// The `linux.seccomp` of a `config.json`.
pub fn profiles(data: &[u8]) {
    if let Ok(profile) = serde_json::from_slice(data) {
        compiles(&profile);
    }
}

/// A profile is refused, or becomes a program that the kernel takes, and that answers as the profile
/// could mean it.
fn compiles(profile: &LinuxSeccomp) {
    for native in [Abi::X86_64, Abi::Aarch64] {
        let filter = match compile(profile, native) {
            Err(error) => {
                assert!(!error.cause.is_empty(), "{error}");
                continue;
            }
            Ok(filter) => filter,
        };
        assert!((1..=4096).contains(&filter.program.len()));
        let values =
            profile.syscalls().iter().flatten().flat_map(|rule| rule.args().iter().flatten());
        let values: Vec<u64> =
            values.map(|arg| arg.value()).take(4).chain(filter::VALUES).collect();
        for arch in [native, Abi::X86].map(Abi::audit) {
            for nr in (0..480).step_by(7).chain([0x4000_0000, 0x4000_0001, u32::MAX]) {
                let value = values[nr as usize % values.len()];
                let (answer, _) =
                    filter::run(&filter.program, &filter::Call { nr, arch, args: [value; 6] });
                let action = answer & 0xffff_0000;
                assert!(ACTIONS.contains(&action), "{answer:#x} to {nr} of {arch:#x}");
                let notifies = action == libc::SECCOMP_RET_USER_NOTIF;
                assert!(!notifies || profile.listener_path().is_some(), "nobody listens");
            }
        }
    }
}

/// What a filter can answer, seccomp(2).
const ACTIONS: [u32; 8] = [
    libc::SECCOMP_RET_KILL_PROCESS,
    libc::SECCOMP_RET_KILL_THREAD,
    libc::SECCOMP_RET_TRAP,
    libc::SECCOMP_RET_ERRNO,
    libc::SECCOMP_RET_USER_NOTIF,
    libc::SECCOMP_RET_TRACE,
    libc::SECCOMP_RET_LOG,
    libc::SECCOMP_RET_ALLOW,
];
