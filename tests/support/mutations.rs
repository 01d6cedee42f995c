//! Every system call that changes a file system through a name or a descriptor, once in each of
//! its forms, on the prepared directory `{T}`.

use super::attack::Attack;

const X86: &[&str] = &["x86_64"];

/// Makes the files that [`MUTATIONS`] works on; `{T}` itself must exist.
pub const SETUP: &[&str] = &[
    "put {T}/f text",
    "mkdirat AT_FDCWD \"{T}/d 0755",
    "put {T}/d/c child",
    "mkdirat AT_FDCWD \"{T}/e 0755",
    "symlinkat \"f AT_FDCWD \"{T}/l",
    "symlinkat \"none AT_FDCWD \"{T}/dangling",
    "mknodat AT_FDCWD \"{T}/p S_IFIFO|0644 0",
    "setxattr \"{T}/f \"user.k bytes:v 1 0",
    "put {in}/mine mine",
    "mkdirat AT_FDCWD \"{in}/dir 0755",
    "put {in}/dir/c child",
];

const fn at(name: &'static str, op: &'static str) -> Attack {
    Attack::new(name, op)
}

const fn old(name: &'static str, op: &'static str) -> Attack {
    Attack::new(name, op).needs(X86)
}

/// A descriptor of `{T}/f` for reading.
const READ: &[&str] = &["r=openat AT_FDCWD \"{T}/f O_RDONLY 0"];
/// A descriptor of `{T}/f` as a place.
const PLACE: &[&str] = &["r=openat AT_FDCWD \"{T}/f O_PATH 0"];
/// A descriptor of the directory.
const DIR: &[&str] = &["t=openat AT_FDCWD \"{T} O_RDONLY|O_DIRECTORY 0"];

/// The table. Each works bare for an ordinary user unless it names what it needs.
pub const MUTATIONS: &[Attack] = &[
    // Opens.
    old("open write", "open \"{T}/f O_WRONLY 0").quiet(),
    old("open read and write", "open \"{T}/f O_RDWR 0").quiet(),
    old("open read, truncating", "open \"{T}/f O_RDONLY|O_TRUNC 0"),
    old("open append", "open \"{T}/f O_WRONLY|O_APPEND 0").quiet(),
    old("open creating", "open \"{T}/new O_WRONLY|O_CREAT 0644"),
    old("open creating for reading", "open \"{T}/new O_RDONLY|O_CREAT 0644"),
    old("open creating exclusively", "open \"{T}/new O_RDWR|O_CREAT|O_EXCL 0600"),
    old("open mode 3", "open \"{T}/f 3 0").quiet(),
    old("open mode 3, truncating", "open \"{T}/f 3|O_TRUNC 0"),
    old("creat", "creat \"{T}/new 0644"),
    old("creat over", "creat \"{T}/f 0644"),
    at("openat write", "openat AT_FDCWD \"{T}/f O_WRONLY 0").quiet(),
    at("openat truncating", "openat AT_FDCWD \"{T}/f O_RDONLY|O_TRUNC 0"),
    at("openat creating", "openat AT_FDCWD \"{T}/new O_WRONLY|O_CREAT 0644"),
    at("openat by descriptor", "openat $t \"new O_WRONLY|O_CREAT 0644").prepare(DIR),
    at("openat through a dangling link", "openat AT_FDCWD \"{T}/dangling O_WRONLY|O_CREAT 0644"),
    at("openat fifo", "openat AT_FDCWD \"{T}/p O_RDWR|O_NONBLOCK 0").quiet(),
    at("openat unnamed", "openat AT_FDCWD \"{T} O_TMPFILE|O_RDWR 0600").needs(&["tmpfile"]).quiet(),
    at("openat2 write", "openat2 AT_FDCWD \"{T}/f how:O_WRONLY,0,0 24").quiet(),
    at("openat2 truncating", "openat2 AT_FDCWD \"{T}/f how:O_WRONLY|O_TRUNC,0,0 24"),
    at("openat2 creating", "openat2 AT_FDCWD \"{T}/new how:O_RDWR|O_CREAT,0644,0 24"),
    at("openat2 beneath", "openat2 $t \"new how:O_RDWR|O_CREAT,0644,RESOLVE_BENEATH 24")
        .prepare(DIR),
    at("openat2 in root", "openat2 $t \"/new how:O_RDWR|O_CREAT,0644,RESOLVE_IN_ROOT 24")
        .prepare(DIR),
    // New names.
    old("mkdir", "mkdir \"{T}/new 0755"),
    at("mkdirat", "mkdirat AT_FDCWD \"{T}/new 0755"),
    at("mkdirat by descriptor", "mkdirat $t \"new 0755").prepare(DIR),
    old("mknod", "mknod \"{T}/new S_IFREG|0644 0"),
    old("mknod fifo", "mknod \"{T}/new S_IFIFO|0644 0"),
    at("mknodat", "mknodat AT_FDCWD \"{T}/new S_IFREG|0644 0"),
    at("mknodat fifo", "mknodat AT_FDCWD \"{T}/new S_IFIFO|0644 0"),
    at("mknodat socket", "mknodat AT_FDCWD \"{T}/new S_IFSOCK|0644 0"),
    old("symlink", "symlink \"x \"{T}/new"),
    at("symlinkat", "symlinkat \"x AT_FDCWD \"{T}/new"),
    at("symlinkat by descriptor", "symlinkat \"x $t \"new").prepare(DIR),
    old("link into", "link \"{in}/mine \"{T}/new"),
    old("link out of", "link \"{T}/f \"{in}/new"),
    at("linkat into", "linkat AT_FDCWD \"{in}/mine AT_FDCWD \"{T}/new 0"),
    at("linkat out of", "linkat AT_FDCWD \"{T}/f AT_FDCWD \"{in}/new 0"),
    at("linkat within", "linkat AT_FDCWD \"{T}/f AT_FDCWD \"{T}/new 0"),
    at(
        "linkat of a link's target",
        "linkat AT_FDCWD \"{T}/l AT_FDCWD \"{in}/new AT_SYMLINK_FOLLOW",
    ),
    at("linkat of a link", "linkat AT_FDCWD \"{T}/l AT_FDCWD \"{in}/new 0"),
    at(
        "linkat by /proc",
        "linkat AT_FDCWD \"/proc/self/fd/{r} AT_FDCWD \"{in}/new AT_SYMLINK_FOLLOW",
    )
    .prepare(PLACE),
    at("linkat of a descriptor", "linkat $r \" AT_FDCWD \"{in}/new AT_EMPTY_PATH")
        .prepare(PLACE)
        .needs(&["emptylink"]),
    at(
        "linkat of an unnamed file",
        "linkat AT_FDCWD \"/proc/self/fd/{u} AT_FDCWD \"{T}/new AT_SYMLINK_FOLLOW",
    )
    .prepare(&["u=openat AT_FDCWD \"{in} O_TMPFILE|O_RDWR 0600"])
    .needs(&["tmpfile"]),
    // Names that go.
    old("unlink", "unlink \"{T}/f"),
    old("unlink a link", "unlink \"{T}/l"),
    at("unlinkat", "unlinkat AT_FDCWD \"{T}/f 0"),
    at("unlinkat by descriptor", "unlinkat $t \"f 0").prepare(DIR),
    at("unlinkat a directory", "unlinkat AT_FDCWD \"{T}/e AT_REMOVEDIR"),
    old("rmdir", "rmdir \"{T}/e"),
    // Names that change.
    old("rename within", "rename \"{T}/f \"{T}/new"),
    old("rename into", "rename \"{in}/mine \"{T}/new"),
    old("rename over", "rename \"{in}/mine \"{T}/f"),
    old("rename out of", "rename \"{T}/f \"{in}/new"),
    at("renameat into", "renameat AT_FDCWD \"{in}/mine AT_FDCWD \"{T}/new"),
    at("renameat out of", "renameat AT_FDCWD \"{T}/f AT_FDCWD \"{in}/new"),
    at("renameat by descriptor", "renameat $t \"f $t \"new").prepare(DIR),
    at("renameat2 into", "renameat2 AT_FDCWD \"{in}/mine AT_FDCWD \"{T}/new RENAME_NOREPLACE"),
    at("renameat2 out of", "renameat2 AT_FDCWD \"{T}/f AT_FDCWD \"{in}/new RENAME_NOREPLACE"),
    at("renameat2 exchanging", "renameat2 AT_FDCWD \"{in}/mine AT_FDCWD \"{T}/f RENAME_EXCHANGE"),
    at(
        "renameat2 exchanging back",
        "renameat2 AT_FDCWD \"{T}/f AT_FDCWD \"{in}/mine RENAME_EXCHANGE",
    ),
    at(
        "renameat2 exchanging directories",
        "renameat2 AT_FDCWD \"{in}/dir AT_FDCWD \"{T}/d RENAME_EXCHANGE",
    ),
    at("renameat2 whiteout", "renameat2 AT_FDCWD \"{T}/f AT_FDCWD \"{T}/new RENAME_WHITEOUT")
        .closed()
        .needs(&["whiteout"]),
    at("rename a directory into", "renameat AT_FDCWD \"{in}/dir AT_FDCWD \"{T}/new"),
    at("rename a directory out of", "renameat AT_FDCWD \"{T}/d AT_FDCWD \"{in}/new"),
    at("rename a directory over", "renameat AT_FDCWD \"{in}/dir AT_FDCWD \"{T}/e"),
    // Contents and size.
    at("truncate", "truncate \"{T}/f 1"),
    at("truncate longer", "truncate \"{T}/f 100"),
    at("truncate through a link", "truncate \"{T}/l 0"),
    // Mode.
    old("chmod", "chmod \"{T}/f 0600"),
    old("chmod through a link", "chmod \"{T}/l 0600"),
    at("fchmodat", "fchmodat AT_FDCWD \"{T}/f 0600 0"),
    at("fchmodat a directory", "fchmodat AT_FDCWD \"{T}/d 0700 0"),
    at("fchmodat by descriptor", "fchmodat $t \"f 0600 0").prepare(DIR),
    at("fchmodat2", "fchmodat2 AT_FDCWD \"{T}/f 0600 0").needs(&["fchmodat2"]),
    at("fchmodat2 not following", "fchmodat2 AT_FDCWD \"{T}/f 0600 AT_SYMLINK_NOFOLLOW")
        .needs(&["fchmodat2"]),
    at("fchmodat2 of a descriptor", "fchmodat2 $r \" 0600 AT_EMPTY_PATH")
        .prepare(PLACE)
        .needs(&["fchmodat2"]),
    at("fchmod, opened for reading", "fchmod $r 0600").prepare(READ),
    at("fchmod a directory", "fchmod $t 0700").prepare(DIR),
    at("chmod by /proc", "fchmodat AT_FDCWD \"/proc/self/fd/{r} 0600 0").prepare(PLACE),
    // Owner; the owner's own identity, so that an ordinary user may.
    old("chown", "chown \"{T}/f {uid} {gid}"),
    old("lchown", "lchown \"{T}/l {uid} {gid}"),
    at("fchownat", "fchownat AT_FDCWD \"{T}/f {uid} {gid} 0"),
    at("fchownat of a link", "fchownat AT_FDCWD \"{T}/l {uid} {gid} AT_SYMLINK_NOFOLLOW"),
    at("fchownat of a descriptor", "fchownat $r \" {uid} {gid} AT_EMPTY_PATH").prepare(PLACE),
    at("fchown, opened for reading", "fchown $r {uid} {gid}").prepare(READ),
    // Times.
    old("utime", "utime \"{T}/f ut:1000,2000"),
    old("utime now", "utime \"{T}/f 0"),
    old("utimes", "utimes \"{T}/f tv:1000,2000"),
    old("futimesat", "futimesat AT_FDCWD \"{T}/f tv:1000,2000"),
    old("futimesat of a descriptor", "futimesat $r 0 tv:1000,2000").prepare(READ),
    at("utimensat", "utimensat AT_FDCWD \"{T}/f ts:1000,2000 0"),
    at("utimensat now", "utimensat AT_FDCWD \"{T}/f 0 0"),
    at("utimensat of a link", "utimensat AT_FDCWD \"{T}/l ts:1000,2000 AT_SYMLINK_NOFOLLOW"),
    at("futimens, opened for reading", "utimensat $r 0 ts:1000,2000 0").prepare(READ),
    at("utimensat of a descriptor", "utimensat $r \" ts:1000,2000 AT_EMPTY_PATH").prepare(PLACE),
    at("utimensat by descriptor", "utimensat $t \"f ts:1000,2000 0").prepare(DIR),
    // Attributes.
    at("setxattr", "setxattr \"{T}/f \"user.n bytes:v 1 0").needs(&["xattr"]),
    at("setxattr replacing", "setxattr \"{T}/f \"user.k bytes:w 1 XATTR_REPLACE").needs(&["xattr"]),
    at("setxattr of a policy", "setxattr \"{T}/f \"user.landstrip.policy bytes:{} 2 0")
        .closed()
        .needs(&["xattr"]),
    at("lsetxattr", "lsetxattr \"{T}/f \"user.n bytes:v 1 0").needs(&["xattr"]),
    at("fsetxattr, opened for reading", "fsetxattr $r \"user.n bytes:v 1 0")
        .prepare(READ)
        .needs(&["xattr"]),
    at("setxattrat", "setxattrat AT_FDCWD \"{T}/f 0 \"user.n xa:v 16").needs(&["xattrat"]),
    at("setxattrat of a descriptor", "setxattrat $r \" AT_EMPTY_PATH \"user.n xa:v 16")
        .prepare(READ)
        .needs(&["xattrat"]),
    at("removexattr", "removexattr \"{T}/f \"user.k").needs(&["xattr"]),
    at("lremovexattr", "lremovexattr \"{T}/f \"user.k").needs(&["xattr"]),
    at("fremovexattr, opened for reading", "fremovexattr $r \"user.k")
        .prepare(READ)
        .needs(&["xattr"]),
    at("removexattrat", "removexattrat AT_FDCWD \"{T}/f 0 \"user.k").needs(&["xattrat"]),
    at("removexattrat of a descriptor", "removexattrat $r \" AT_EMPTY_PATH \"user.k")
        .prepare(READ)
        .needs(&["xattrat"]),
    // Flags of the inode.
    at("FS_IOC_SETFLAGS, opened for reading", "nodump $r").prepare(READ).closed().needs(&["flags"]),
    at("FS_IOC_FSSETXATTR, opened for reading", "ioctl $r FS_IOC_FSSETXATTR i:0x80,0,0,0")
        .prepare(READ)
        .closed()
        .needs(&["flags"]),
    at("file_setattr", "file_setattr AT_FDCWD \"{T}/f i:0x80,0,0 24 0")
        .closed()
        .needs(&["file_setattr"]),
];
