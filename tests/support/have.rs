//! What this machine and this user can do.
//!
//! A test that needs something which is missing says so on standard error and ends. A build that
//! is meant to have it lists it in `LANDSTRIP_TEST_HAVE` (comma separated); then a missing one
//! fails instead.

use super::Bed;
use std::io::Write;

/// Whether every named capability is here; prints the ones that are not.
pub fn have(what: &str, names: &[&str]) -> bool {
    let promised = std::env::var("LANDSTRIP_TEST_HAVE").unwrap_or_default();
    let missing: Vec<_> = names.iter().filter(|name| !present(name)).collect();
    for name in &missing {
        let stated = promised.split(',').any(|p| p == **name);
        assert!(!stated, "{what}: LANDSTRIP_TEST_HAVE states {name}, and it is missing");
        // Written directly: the test harness hides what the print macros write.
        let _ = writeln!(std::io::stderr(), "skipped: {what}: needs {name}");
    }
    missing.is_empty()
}

fn present(name: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    let works = |ops: &[&str]| Bed::new(&[]).bare(ops).last().starts_with("ok");
    match name {
        "root" => root,
        "user" => !root,
        "x86_64" => cfg!(target_arch = "x86_64"),
        "i386" => {
            cfg!(target_arch = "x86_64")
                && works(&["child int80 /dev/null 0 0"])
                && !Bed::new(&[]).bare(&["child int80 /dev/null 0 0"]).last().contains("killed")
        }
        // Some kernels never let a socket listen that has been connected.
        "relisten" => {
            let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a server");
            let to = server.local_addr().expect("its address");
            let (socket, connect) =
                ("s=socket AF_INET SOCK_STREAM 0", format!("connect $s in:{to} #"));
            works(&[socket, &connect, "connect $s family:0 16", "listen $s 1"])
        }
        "userns" => works(&["clone CLONE_NEWUSER"]),
        "netns" => {
            works(&["unshare CLONE_NEWNET"]) || works(&["unshare CLONE_NEWUSER|CLONE_NEWNET"])
        }
        "xattr" => works(&["put {in}/x x", "setxattr \"{in}/x \"user.a bytes:v 1 0"]),
        "acl" => works(&[
            "setxattr \"{in} \"system.posix_acl_default i:1970329131941890,1970337721876479,1407392063423698,1970397851418623,1407516617474047,4294967295 44 0",
        ]),
        "flags" => works(&["f=openat AT_FDCWD \"{in}/x O_RDWR|O_CREAT 0644", "nodump $f"]),
        "tmpfile" => works(&["openat AT_FDCWD \"{in} O_TMPFILE|O_RDWR 0600"]),
        "xattrat" => works(&["put {in}/x x", "setxattrat AT_FDCWD \"{in}/x 0 \"user.a xa:v 16"]),
        "file_setattr" => works(&["put {in}/x x", "file_setattr AT_FDCWD \"{in}/x buf:24 24 0"]),
        "fchmodat2" => works(&["put {in}/x x", "fchmodat2 AT_FDCWD \"{in}/x 0600 0"]),
        "open_tree_attr" => {
            Bed::new(&[]).bare(&["open_tree_attr AT_FDCWD \"{in} 0 0 0"]).last() != "ENOSYS"
        }
        "whiteout" => works(&[
            "put {in}/x x",
            "renameat2 AT_FDCWD \"{in}/x AT_FDCWD \"{in}/y RENAME_WHITEOUT",
        ]),
        "leases" => works(&[
            "put {in}/x x",
            "d=openat AT_FDCWD \"{in}/x O_RDONLY 0",
            "fcntl $d F_SETLEASE F_WRLCK",
        ]),
        "io_uring" => works(&["io_uring_setup 4 buf:120"]),
        // Without CAP_DAC_READ_SEARCH since Linux 6.10, for the one who opened it.
        "emptylink" => works(&[
            "put {in}/x x",
            "r=openat AT_FDCWD \"{in}/x O_PATH 0",
            "linkat $r \" AT_FDCWD \"{in}/y AT_EMPTY_PATH",
        ]),
        "pidfd_getfd" => works(&["p=pidfd_open $pid 0", "pidfd_getfd $p 0 0"]),
        "perf" => works(&["perf_event_open i:481036337153,0,0,0,0,0x61,0,0,0,0,0,0,0,0 0 -1 -1 0"]),
        // Since Linux 6.2 only with CAP_SYS_ADMIN, unless this says otherwise.
        "tiocsti" => {
            root || std::fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti")
                .is_ok_and(|t| t.trim() == "1")
        }
        "iopl" => works(&["iopl 0"]),
        "kexec" => Bed::new(&[]).bare(&["kexec_load 0 0 0 0xff"]).last() != "ENOSYS",
        "landlock6" => landlock() >= 6, // scopes for signals and abstract sockets
        "landlock7" => landlock() >= 7,
        "mptcp" => works(&["socket AF_INET SOCK_STREAM IPPROTO_MPTCP"]),
        "udplite" => works(&["socket AF_INET SOCK_DGRAM IPPROTO_UDPLITE"]),
        "ipv6" => std::net::TcpListener::bind("[::1]:0").is_ok(),
        // The one that runs the tests, which may be another user's.
        "cargo" => std::env::var_os("CARGO").is_some_and(|cargo| {
            std::process::Command::new(cargo)
                .arg("--version")
                .output()
                .is_ok_and(|o| o.status.success())
        }),
        "libseccomp" => {
            // Its library, its header and a compiler.
            std::path::Path::new("/usr/include/seccomp.h").exists() && command("cc")
        }
        name if name.starts_with('/') => std::path::Path::new(name).exists(),
        name if name.starts_with("cgroup:") => cgroup(&name[7..]),
        name if name.starts_with("cmd:") => command(&name[4..]),
        _ => panic!("no such capability: {name}"),
    }
}

/// Whether this user may make cgroups with the controller.
pub fn cgroup(controller: &str) -> bool {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let place = own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (names, path) = (fields.next()?, fields.next()?);
        let here = names.split(',').any(|name| name == controller);
        here.then(|| format!("/sys/fs/cgroup/{controller}{path}"))
    });
    let may = |dir: &str| rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok();
    match place {
        Some(place) => may(&place),
        // Version 2. An ordinary user may have a delegated one; that is not looked for.
        None => {
            std::fs::read_to_string("/sys/fs/cgroup/cgroup.controllers")
                .is_ok_and(|names| names.split_ascii_whitespace().any(|name| name == controller))
                && may("/sys/fs/cgroup")
        }
    }
}

fn command(name: &str) -> bool {
    ["/usr/bin", "/bin", "/usr/sbin", "/usr/local/bin"]
        .iter()
        .any(|d| std::path::Path::new(d).join(name).exists())
}

/// The Landlock ABI of this kernel; 0 without Landlock.
pub fn landlock() -> i64 {
    // landlock_create_ruleset(2): NULL, 0 and LANDLOCK_CREATE_RULESET_VERSION give the ABI.
    let bed = Bed::new(&[]);
    let run = bed.bare(&["landlock_create_ruleset 0 0 1"]);
    run.last().strip_prefix("ok ").and_then(|n| n.parse().ok()).unwrap_or(0)
}
