//! Scripts that must give the same lines, and leave the same tree, bare and sandboxed.

/// One script.
pub struct Script {
    /// Named in a failure.
    pub name: &'static str,
    /// Capabilities that it needs.
    pub needs: &'static [&'static str],
    /// Operations outside, before the run.
    pub setup: &'static [&'static str],
    /// The script.
    pub ops: &'static [&'static str],
}

const fn script(
    name: &'static str,
    setup: &'static [&'static str],
    ops: &'static [&'static str],
) -> Script {
    Script { name, needs: &[], setup, ops }
}

impl Script {
    const fn needs(mut self, needs: &'static [&'static str]) -> Script {
        self.needs = needs;
        self
    }
}

/// A default ACL: `u::rwx,u:1234:rwx,g::r-x,m::rwx,o::r-x`, as posix_acl_xattr(7) lays it out.
const ACL: &str = "setxattr \"{in}/acl \"system.posix_acl_default i:1970329131941890,1970337721876479,1407392063423698,1970397851418623,1407516617474047,4294967295 44 0";

/// The scripts.
pub const SCRIPTS: &[Script] = &[
    script("umask", &[], &[
        "umask 0027", "put {in}/a x", "mkdirat AT_FDCWD \"{in}/b 0777", "mknodat AT_FDCWD \"{in}/c S_IFIFO|0666 0",
        "umask 0", "openat AT_FDCWD \"{in}/d O_CREAT|O_WRONLY 0666", "mkdirat AT_FDCWD \"{in}/e 0777",
        "openat AT_FDCWD \"{in}/e1 O_CREAT|O_WRONLY 0777", "mkdirat AT_FDCWD \"{in}/e2 01777",
        "child do umask 0077 ; openat AT_FDCWD \"{in}/f O_CREAT|O_WRONLY 0666", "openat AT_FDCWD \"{in}/g O_CREAT|O_WRONLY 0666",
        "thread umask 0077", "openat AT_FDCWD \"{in}/h O_CREAT|O_WRONLY 0666", "umask 0022",
        "sh umask 077; mkdir i; echo x > j; cp j k; mkfifo l", "openat2 AT_FDCWD \"{in}/m how:O_CREAT|O_RDWR,0666,0 24",
    ]),
    script("creating", &["put {in}/f text", "mkdirat AT_FDCWD \"{in}/d 0755", "symlinkat \"none AT_FDCWD \"{in}/l"], &[
        "openat AT_FDCWD \"{in}/f O_CREAT|O_EXCL|O_RDWR 0644", "openat AT_FDCWD \"{in}/n O_CREAT|O_EXCL|O_RDWR 0640",
        "openat AT_FDCWD \"{in}/n O_CREAT|O_EXCL|O_RDWR 0640", "openat AT_FDCWD \"{in}/l O_CREAT|O_EXCL|O_RDWR 0644",
        "openat AT_FDCWD \"{in}/d O_CREAT|O_RDWR 0644", "openat AT_FDCWD \"{in}/d O_CREAT|O_RDONLY 0644",
        "openat AT_FDCWD \"{in}/d O_CREAT|O_EXCL|O_RDONLY 0644", "openat AT_FDCWD \"{in}/x O_CREAT|O_DIRECTORY|O_RDONLY 0644",
        "openat AT_FDCWD \"{in}/ro O_CREAT|O_RDWR 0444", "openat AT_FDCWD \"{in}/none O_CREAT|O_RDWR 0000",
        "openat AT_FDCWD \"{in}/f O_CREAT|O_RDWR 0600", "openat AT_FDCWD \"{in}/f O_CREAT|O_TRUNC|O_WRONLY 0600",
        "openat AT_FDCWD \"{in}/l O_CREAT|O_WRONLY 0644", "creat \"{in}/c 0644", "creat \"{in}/d 0644",
    ]).needs(&["x86_64"]),
    script("permissions of what was just created", &[], &[
        "f=openat AT_FDCWD \"{in}/a O_CREAT|O_RDWR 0", "write $f bytes:x 1", "f=openat AT_FDCWD \"{in}/b O_CREAT|O_EXCL|O_WRONLY 0400",
        "write $f bytes:x 1", "openat AT_FDCWD \"{in}/b O_WRONLY 0", "openat AT_FDCWD \"{in}/a O_RDONLY 0",
    ]),
    script("unnamed files", &[], &[
        "u=openat AT_FDCWD \"{in} O_TMPFILE|O_RDWR 0640", "write $u bytes:text 4", "linkat AT_FDCWD \"/proc/self/fd/{u} AT_FDCWD \"{in}/u AT_SYMLINK_FOLLOW",
        "openat AT_FDCWD \"{in} O_TMPFILE|O_RDONLY 0600", "openat AT_FDCWD \"{in}/none O_TMPFILE|O_RDWR 0600", "openat AT_FDCWD \"{in}/u O_TMPFILE|O_RDWR 0600",
        "v=openat AT_FDCWD \"{in} O_TMPFILE|O_EXCL|O_RDWR 0600", "linkat AT_FDCWD \"/proc/self/fd/{v} AT_FDCWD \"{in}/v AT_SYMLINK_FOLLOW",
        "openat AT_FDCWD \"{in} O_TMPFILE|O_WRONLY|O_CREAT 0600", "umask 0077", "w=openat AT_FDCWD \"{in} O_TMPFILE|O_RDWR 0666",
        "linkat AT_FDCWD \"/proc/self/fd/{w} AT_FDCWD \"{in}/w AT_SYMLINK_FOLLOW", "x=openat2 AT_FDCWD \"{in} how:O_TMPFILE|O_RDWR,0666,0 24",
        "openat AT_FDCWD \"/proc/self/fd/{x} O_RDWR 0",
    ]).needs(&["tmpfile"]),
    script("links at the end", &["put {in}/f text", "symlinkat \"f AT_FDCWD \"{in}/l", "mkdirat AT_FDCWD \"{in}/d 0755", "symlinkat \"d AT_FDCWD \"{in}/ld"], &[
        "openat AT_FDCWD \"{in}/l O_RDWR|O_NOFOLLOW 0", "openat AT_FDCWD \"{in}/l O_RDONLY|O_NOFOLLOW 0", "openat AT_FDCWD \"{in}/l O_PATH|O_NOFOLLOW 0",
        "openat AT_FDCWD \"{in}/l O_RDWR 0", "openat AT_FDCWD \"{in}/f O_RDWR|O_DIRECTORY 0", "openat AT_FDCWD \"{in}/l O_RDONLY|O_DIRECTORY 0",
        "openat AT_FDCWD \"{in}/ld O_RDONLY|O_DIRECTORY 0", "openat AT_FDCWD \"{in}/ld O_RDONLY|O_DIRECTORY|O_NOFOLLOW 0", "openat AT_FDCWD \"{in}/ld/ O_RDONLY|O_NOFOLLOW 0",
        "openat AT_FDCWD \"{in}/l O_CREAT|O_NOFOLLOW|O_WRONLY 0644", "openat AT_FDCWD \"{in}/d O_WRONLY 0", "openat AT_FDCWD \"{in}/d O_RDWR 0",
        "truncate \"{in}/l 2", "fchmodat AT_FDCWD \"{in}/l 0600 0", "unlinkat AT_FDCWD \"{in}/l 0", "lstat {in}/l",
    ]),
    script("dangling links", &[
        "mkdirat AT_FDCWD \"{in}/d 0755", "symlinkat \"none AT_FDCWD \"{in}/one", "symlinkat \"../made AT_FDCWD \"{in}/d/two",
        "symlinkat \"d/two AT_FDCWD \"{in}/three", "symlinkat \"{in}/abs AT_FDCWD \"{in}/four", "symlinkat \"none/none AT_FDCWD \"{in}/five", "symlinkat \"six/ AT_FDCWD \"{in}/lsix",
    ], &[
        "openat AT_FDCWD \"{in}/one O_CREAT|O_WRONLY 0640", "openat AT_FDCWD \"{in}/three O_CREAT|O_WRONLY 0640", "openat AT_FDCWD \"{in}/four O_CREAT|O_WRONLY 0640",
        "openat AT_FDCWD \"{in}/five O_CREAT|O_WRONLY 0640", "openat AT_FDCWD \"{in}/lsix O_CREAT|O_WRONLY 0640", "openat AT_FDCWD \"{in}/d/two O_CREAT|O_WRONLY 0640",
        "mkdirat AT_FDCWD \"{in}/one 0755", "symlinkat \"m AT_FDCWD \"{in}/lm", "mkdirat AT_FDCWD \"{in}/lm 0755", "mkdirat AT_FDCWD \"{in}/lm/ 0755",
        "linkat AT_FDCWD \"{in}/one AT_FDCWD \"{in}/hard 0", "linkat AT_FDCWD \"{in}/five AT_FDCWD \"{in}/hard2 0", "linkat AT_FDCWD \"{in}/five AT_FDCWD \"{in}/hard3 AT_SYMLINK_FOLLOW",
    ]),
    script("slashes and dots", &["put {in}/f text", "mkdirat AT_FDCWD \"{in}/d 0755", "mkdirat AT_FDCWD \"{in}/e 0755", "put {in}/d/c x", "symlinkat \"d AT_FDCWD \"{in}/l"], &[
        "openat AT_FDCWD \"{in}/f/ O_RDWR 0", "openat AT_FDCWD \"{in}/n/ O_CREAT|O_RDWR 0644", "openat AT_FDCWD \"{in}/f/ O_CREAT|O_RDWR 0644", "openat AT_FDCWD \"{in}/d/ O_CREAT|O_RDONLY 0",
        "mkdirat AT_FDCWD \"{in}/new/ 0755", "mkdirat AT_FDCWD \"{in}/new2// 0755", "unlinkat AT_FDCWD \"{in}/d/ 0", "unlinkat AT_FDCWD \"{in}/f/ 0", "unlinkat AT_FDCWD \"{in}/l/ 0",
        "unlinkat AT_FDCWD \"{in}/l/ AT_REMOVEDIR", "unlinkat AT_FDCWD \"{in}/new/ AT_REMOVEDIR", "renameat AT_FDCWD \"{in}/e/ AT_FDCWD \"{in}/e2/",
        "renameat AT_FDCWD \"{in}/f AT_FDCWD \"{in}/g/", "renameat AT_FDCWD \"{in}/f/ AT_FDCWD \"{in}/g", "renameat AT_FDCWD \"{in}/l/ AT_FDCWD \"{in}/l2", "symlinkat \"x AT_FDCWD \"{in}/s/", "linkat AT_FDCWD \"{in}/f AT_FDCWD \"{in}/h/ 0",
        "linkat AT_FDCWD \"{in}/f/ AT_FDCWD \"{in}/h 0", "mknodat AT_FDCWD \"{in}/k/ S_IFREG|0644 0",
        "unlinkat AT_FDCWD \"{in}/d/. AT_REMOVEDIR", "unlinkat AT_FDCWD \"{in}/d/.. AT_REMOVEDIR", "unlinkat AT_FDCWD \". 0", "unlinkat AT_FDCWD \"/ AT_REMOVEDIR", "unlinkat AT_FDCWD \"/ 0",
        "mkdirat AT_FDCWD \". 0755", "mkdirat AT_FDCWD \".. 0755", "mkdirat AT_FDCWD \"/ 0755", "mkdirat AT_FDCWD \"{in}/d/. 0755", "mkdirat AT_FDCWD \"{in}/none/. 0755", "renameat AT_FDCWD \". AT_FDCWD \"x", "renameat AT_FDCWD \"{in}/d/.. AT_FDCWD \"x",
        "renameat AT_FDCWD \"/ AT_FDCWD \"x", "renameat AT_FDCWD \"f AT_FDCWD \".", "openat AT_FDCWD \"{in}/d/. O_WRONLY 0", "put {in}//d///c y", "put {in}/d/../f z", "put {in}/f/../f z", "put {in}/none/../f z",
        "symlinkat \"x AT_FDCWD \".", "truncate \"{in}/f/ 0", "fchmodat AT_FDCWD \"{in}/f/ 0600 0", "fchmodat AT_FDCWD \"{in}/d/ 0700 0", "utimensat AT_FDCWD \"{in}/l/ ts:5,5 AT_SYMLINK_NOFOLLOW",
    ]),
    // Without O_PATH, which openat2 does not give in a sandbox: see `a_place_is_had_by_openat`.
    script("openat2", &[
        "mkdirat AT_FDCWD \"{in}/d 0755", "put {in}/d/f text", "put {in}/f text", "symlinkat \"f AT_FDCWD \"{in}/d/l", "symlinkat \"../f AT_FDCWD \"{in}/d/up", "symlinkat \"{in}/f AT_FDCWD \"{in}/d/abs", "symlinkat \"none AT_FDCWD \"{in}/d/dangling",
        "symlinkat \"/f AT_FDCWD \"{in}/d/rooted",
    ], &[
        "d=openat AT_FDCWD \"{in}/d O_PATH 0",
        "openat2 $d \"f how:O_RDWR,0,RESOLVE_BENEATH 24", "openat2 $d \"../f how:O_RDWR,0,RESOLVE_BENEATH 24", "openat2 $d \"l how:O_RDWR,0,RESOLVE_BENEATH 24", "openat2 $d \"up how:O_RDWR,0,RESOLVE_BENEATH 24",
        "openat2 $d \"abs how:O_RDWR,0,RESOLVE_BENEATH 24", "openat2 $d \"{in}/f how:O_RDWR,0,RESOLVE_BENEATH 24", "openat2 $d \"new how:O_RDWR|O_CREAT,0644,RESOLVE_BENEATH 24", "openat2 $d \"dangling how:O_RDWR|O_CREAT,0644,RESOLVE_BENEATH 24",
        "openat2 $d \"../new how:O_RDWR|O_CREAT,0644,RESOLVE_BENEATH 24", "openat2 $d \"x/../f how:O_RDWR,0,RESOLVE_BENEATH 24", "openat2 $d \". how:O_RDONLY|O_DIRECTORY,0,RESOLVE_BENEATH 24",
        "openat2 $d \"/f how:O_RDWR,0,RESOLVE_IN_ROOT 24", "openat2 $d \"../../../f how:O_RDWR,0,RESOLVE_IN_ROOT 24", "openat2 $d \"up how:O_RDWR,0,RESOLVE_IN_ROOT 24", "openat2 $d \"rooted how:O_RDWR,0,RESOLVE_IN_ROOT 24", "openat2 $d \"abs how:O_RDWR,0,RESOLVE_IN_ROOT 24",
        "openat2 $d \"/new2 how:O_RDWR|O_CREAT,0644,RESOLVE_IN_ROOT 24", "openat2 AT_FDCWD \"{in}/d/f how:O_RDWR,0,RESOLVE_IN_ROOT 24",
        "openat2 $d \"l how:O_RDWR,0,RESOLVE_NO_SYMLINKS 24", "openat2 $d \"f how:O_RDWR,0,RESOLVE_NO_SYMLINKS 24", "openat2 $d \"dangling how:O_RDWR|O_CREAT,0644,RESOLVE_NO_SYMLINKS 24",
        "openat2 AT_FDCWD \"/proc/self/fd/{d}/f how:O_RDWR,0,RESOLVE_NO_MAGICLINKS 24", "openat2 AT_FDCWD \"/proc/self/fd/{d}/f how:O_RDWR,0,0 24", "openat2 $d \"l how:O_RDWR,0,RESOLVE_NO_MAGICLINKS 24",
        "openat2 $d \"f how:O_RDWR,0,RESOLVE_NO_XDEV 24", "openat2 $d \"/proc/version how:O_RDONLY,0,RESOLVE_NO_XDEV 24", "openat2 AT_FDCWD \"{in}/f how:O_RDWR,0,RESOLVE_NO_XDEV 24",
        "openat2 $d \"f how:O_RDWR,0,RESOLVE_BENEATH|RESOLVE_IN_ROOT 24", "openat2 $d \"f how:O_RDWR,0,0x1000 24", "openat2 $d \"f how:O_RDWR,0644,0 24", "openat2 $d \"f how:0x10000000000,0,0 24",
        "openat2 $d \"f how:O_RDWR,0,0 8", "openat2 $d \"f how:O_RDWR,0,0,0 32", "openat2 $d \"f how:O_RDWR,0,0,1 32", "openat2 $d \"f how:O_PATH|O_RDWR,0,0 24", "openat2 $d \"f how:O_PATH|O_CREAT,0644,0 24", "openat2 $d \"f 0 24", "openat2 $d \"f 0x1 24",
        "openat2 $d \"n how:O_RDWR|O_CREAT,0200000,0 24", "openat2 $d \"n3 how:O_RDWR|O_CREAT|O_EXCL,0600,RESOLVE_BENEATH|RESOLVE_NO_SYMLINKS 24", "openat2 $d \"f how:O_RDWR|O_DIRECTORY,0,RESOLVE_BENEATH 24", "openat2 99 \"f how:O_RDWR,0,0 24",
    ]),
    script("errors", &[
        "put {in}/f text", "mkdirat AT_FDCWD \"{in}/d 0755", "put {in}/d/c x", "mkdirat AT_FDCWD \"{in}/e 0755", "symlinkat \"loop AT_FDCWD \"{in}/loop", "put {out}/f text", "mkdirat AT_FDCWD \"{out}/d 0755",
        "setxattr \"{in}/f \"user.k bytes:v 1 0", "sh cp /bin/sleep {in}/prog",
    ], &[
        // What exists is said to exist, also where nothing may be made.
        "mkdirat AT_FDCWD \"{out} 0755", "mkdirat AT_FDCWD \"{root} 0755", "mkdirat AT_FDCWD \"{out}/d 0755", "mkdirat AT_FDCWD \"{out}/f 0755", "mkdirat AT_FDCWD \"/usr 0755", "sh mkdir -p {in}/p/q/r", "openat AT_FDCWD \"{out}/f O_CREAT|O_EXCL|O_RDWR 0644",
        "symlinkat \"x AT_FDCWD \"{out}/f", "linkat AT_FDCWD \"{in}/f AT_FDCWD \"{out}/f 0", "mknodat AT_FDCWD \"{out}/f S_IFREG|0644 0",
        // What is missing is missing.
        "mkdirat AT_FDCWD \"{in}/no/x 0755", "openat AT_FDCWD \"{in}/no/x O_CREAT|O_RDWR 0644", "openat AT_FDCWD \"{out}/no/x O_CREAT|O_RDWR 0644", "mkdirat AT_FDCWD \"{out}/no/x 0755", "openat AT_FDCWD \"{out}/no O_WRONLY 0", "unlinkat AT_FDCWD \"{out}/no 0",
        "truncate \"{out}/no 0", "fchmodat AT_FDCWD \"{out}/no 0600 0", "renameat AT_FDCWD \"{out}/no AT_FDCWD \"{in}/x", "renameat AT_FDCWD \"{in}/no AT_FDCWD \"{in}/x", "linkat AT_FDCWD \"{out}/no AT_FDCWD \"{in}/x 0", "unlinkat AT_FDCWD \"{out}/no AT_REMOVEDIR",
        "utimensat AT_FDCWD \"{out}/no 0 0", "setxattr \"{out}/no \"user.k bytes:v 1 0", "openat AT_FDCWD \" O_RDWR 0", "mkdirat AT_FDCWD \" 0755", "openat AT_FDCWD \"{out}/f/x O_WRONLY 0", "mkdirat AT_FDCWD \"{out}/f/x 0755",
        "openat AT_FDCWD \"{in}/f/x O_CREAT|O_RDWR 0644", "mkdirat AT_FDCWD \"{in}/f/x 0755", "openat AT_FDCWD \"{in}/loop O_RDWR 0", "openat AT_FDCWD \"{in}/loop/x O_CREAT|O_RDWR 0644", "truncate \"{in}/loop 0", "mkdirat AT_FDCWD \"{in}/loop 0755",
        "openat AT_FDCWD long:300:{in}/ O_CREAT|O_RDWR 0644", "openat AT_FDCWD long:5000:{in}/ O_RDWR 0", "mkdirat AT_FDCWD long:300:{in}/ 0755", "mkdirat AT_FDCWD long:300:{out}/ 0755", "symlinkat long:5000: AT_FDCWD \"{in}/s", "openat AT_FDCWD 0x1 O_RDWR 0", "openat AT_FDCWD 0 O_RDWR|O_CREAT 0", "mkdirat AT_FDCWD 0x1 0755", "renameat AT_FDCWD 0x1 AT_FDCWD \"x",
        "renameat AT_FDCWD \"{in}/f AT_FDCWD 0x1", "setxattr \"{in}/f \"user.x 0x1 4 0", "setxattr \"{in}/f 0x1 bytes:v 1 0", "utimensat AT_FDCWD \"{in}/f 0x1 0", "symlinkat 0x1 AT_FDCWD \"{in}/s",
        "openat AT_FDCWD \"{in}/d O_WRONLY 0", "unlinkat AT_FDCWD \"{in}/d 0", "unlinkat AT_FDCWD \"{in}/d AT_REMOVEDIR", "unlinkat AT_FDCWD \"{in}/f AT_REMOVEDIR", "renameat AT_FDCWD \"{in}/e AT_FDCWD \"{in}/d", "renameat AT_FDCWD \"{in}/e AT_FDCWD \"{in}/f", "renameat AT_FDCWD \"{in}/f AT_FDCWD \"{in}/e",
        "renameat AT_FDCWD \"{in}/d AT_FDCWD \"{in}/d/x", "renameat2 AT_FDCWD \"{in}/f AT_FDCWD \"{in}/d/c RENAME_NOREPLACE", "renameat2 AT_FDCWD \"{in}/f AT_FDCWD \"{in}/no RENAME_EXCHANGE", "renameat2 AT_FDCWD \"{in}/d AT_FDCWD \"{in}/d/c RENAME_EXCHANGE", "renameat2 AT_FDCWD \"{in}/f AT_FDCWD \"{in}/x 0x80",
        "renameat2 AT_FDCWD \"{in}/f AT_FDCWD \"{in}/d/c RENAME_EXCHANGE|RENAME_NOREPLACE", "unlinkat AT_FDCWD \"{in}/f 0x1", "linkat AT_FDCWD \"{in}/f AT_FDCWD \"{in}/x 0x1", "linkat AT_FDCWD \"{in}/d AT_FDCWD \"{in}/x 0", "linkat AT_FDCWD \"{in}/f AT_FDCWD \"{in}/d/c 0",
        "fchownat AT_FDCWD \"{in}/f -1 -1 0x1", "fchmodat2 AT_FDCWD \"{in}/f 0600 0x1", "utimensat AT_FDCWD \"{in}/f ts:1,1 0x1", "utimensat AT_FDCWD \"{in}/f i:0,2000000000,0,0 0", "symlinkat \" AT_FDCWD \"{in}/s", "symlinkat \"x AT_FDCWD \"{in}/f", "mknodat AT_FDCWD \"{in}/f S_IFREG|0644 0", "mknodat AT_FDCWD \"{in}/x S_IFDIR|0755 0",
        "mknodat AT_FDCWD \"{in}/x 0170000 0", "truncate \"{in}/f -1", "truncate \"{in}/d 0", "openat AT_FDCWD \"{in}/x O_CREAT|O_PATH 0", "setxattr \"{in}/f \"bad.k bytes:v 1 0", "setxattr \"{in}/f \"user.k bytes:v 1 XATTR_CREATE", "setxattr \"{in}/f \"user.n bytes:v 1 XATTR_REPLACE", "setxattr \"{in}/f \"user.k bytes:v 1 8",
        "removexattr \"{in}/f \"user.none", "setxattr \"{in}/f \" bytes:v 1 0", "setxattr \"{in}/f long:300:user. bytes:v 1 0", "lsetxattr \"{in}/loop \"user.k bytes:v 1 0", "setxattr \"{in}/f \"user.big buf:100000 100000 0", "setxattrat AT_FDCWD \"{in}/f 0x1 \"user.k xa:v 16",
        "openat 99 \"x O_RDWR|O_CREAT 0644", "mkdirat 99 \"x 0755", "mkdirat 0 \"x 0755", "fchmod 99 0600", "fchown 99 -1 -1", "fsetxattr 99 \"user.k bytes:v 1 0", "utimensat 99 0 0 0", "p=openat AT_FDCWD \"{in}/f O_PATH 0", "fchmod $p 0600", "fsetxattr $p \"user.k bytes:v 1 0", "openat $p \"x O_RDWR|O_CREAT 0644",
        "fchown $p -1 -1", "utimensat $p 0 ts:1,1 0", "bg s run {in}/prog 0.5", "join s", "stat {in}/f",
    ]).needs(&["xattr", "xattrat", "fchmodat2"]),
    script("a running program", &["sh cp /bin/sleep {in}/prog"], &[
        "sh {in}/prog 30 & p=$!; while [ \"$(readlink /proc/$p/exe)\" != {in}/prog ]; do :; done; (echo x > {in}/prog) 2>/dev/null; echo $?; kill $p",
    ]),
    script("modes and owners that are inherited", &["mkdirat AT_FDCWD \"{in}/d 0755", "mkdirat AT_FDCWD \"{in}/s 0755", "fchmodat AT_FDCWD \"{in}/s 02775 0", "fchmodat AT_FDCWD \"{in}/d 01777 0"], &[
        "mkdirat AT_FDCWD \"{in}/s/d 0755", "put {in}/s/f x", "mknodat AT_FDCWD \"{in}/s/p S_IFIFO|0644 0", "symlinkat \"x AT_FDCWD \"{in}/s/l", "openat AT_FDCWD \"{in}/s/g O_CREAT|O_RDWR 0666", "put {in}/d/f x", "unlinkat AT_FDCWD \"{in}/d/f 0",
        "mkdirat AT_FDCWD \"{in}/s/d/e 0700",
    ]),
    script("set-group-ID directories", &["mkdirat AT_FDCWD \"{in}/d 0755"], &[
        "fchmodat AT_FDCWD \"{in}/d 02775 0", "mkdirat AT_FDCWD \"{in}/d/e 0755", "lstat {in}/d/e", "put {in}/d/f x", "f=openat AT_FDCWD \"{in}/d O_RDONLY 0", "fchmod $f 0755", "fchmod $f 03775",
    ]),
    script("a default ACL", &["mkdirat AT_FDCWD \"{in}/acl 0755", ACL], &[
        "umask 0077", "put {in}/acl/f x", "openat AT_FDCWD \"{in}/acl/g O_CREAT|O_RDWR 0600", "mkdirat AT_FDCWD \"{in}/acl/d 0700", "mkdirat AT_FDCWD \"{in}/acl/e 0777", "mknodat AT_FDCWD \"{in}/acl/p S_IFIFO|0666 0", "put {in}/acl/e/f x",
    ]).needs(&["acl"]),
    script("times", &["put {in}/f x", "put {in}/g x", "symlinkat \"f AT_FDCWD \"{in}/l"], &[
        "utimensat AT_FDCWD \"{in}/f ts:1000,2000 0", "utimensat AT_FDCWD \"{in}/g ts:omit,3000 0", "utimensat AT_FDCWD \"{in}/g ts:omit,omit 0", "utimensat AT_FDCWD \"{in}/l ts:5,6 AT_SYMLINK_NOFOLLOW", "f=openat AT_FDCWD \"{in}/f O_RDONLY 0", "utimensat $f 0 ts:7,8 0",
        "sh touch -d @99 {in}/g; stat -c '%X %Y' {in}/f {in}/g {in}/l", "utimensat AT_FDCWD \"{in}/f 0 0", "sh cp -p {in}/g {in}/h; stat -c %Y {in}/h", "utimensat AT_FDCWD \"{in}/g ts:now,omit 0", "sh stat -c %Y {in}/g", "sh touch -h -d @50 {in}/l; stat -c %Y {in}/l",
    ]),
    script("names and links", &["put {in}/a x", "put {in}/b y", "mkdirat AT_FDCWD \"{in}/d 0755"], &[
        "linkat AT_FDCWD \"{in}/a AT_FDCWD \"{in}/a2 0", "renameat AT_FDCWD \"{in}/a AT_FDCWD \"{in}/a2", "stat {in}/a", "renameat AT_FDCWD \"{in}/a AT_FDCWD \"{in}/d/a", "renameat2 AT_FDCWD \"{in}/d AT_FDCWD \"{in}/b RENAME_EXCHANGE", "cat {in}/d", "ls {in}/b",
        "renameat AT_FDCWD \"{in}/b/a AT_FDCWD \"{in}/d", "cat {in}/d", "unlinkat AT_FDCWD \"{in}/a2 0", "stat {in}/d", "unlinkat AT_FDCWD \"{in}/b AT_REMOVEDIR", "lstat {in}/b", "linkat AT_FDCWD \"{in}/d AT_FDCWD \"{in}/d 0", "renameat AT_FDCWD \"{in}/d AT_FDCWD \"{in}/d",
    ]),
    script("relative paths", &["mkdirat AT_FDCWD \"{in}/d 0755", "mkdirat AT_FDCWD \"{in}/d/e 0755", "put {in}/f x", "symlinkat \"d AT_FDCWD \"{in}/l"], &[
        "chdir \"{in}/d", "openat AT_FDCWD \"a O_CREAT|O_RDWR 0644", "mkdirat AT_FDCWD \"b 0755", "put ../g x", "put ./c x", "renameat AT_FDCWD \"a AT_FDCWD \"../a", "e=openat AT_FDCWD \"e O_RDONLY|O_DIRECTORY 0", "fchdir $e", "openat AT_FDCWD \"x O_CREAT|O_RDWR 0644",
        "mkdirat $e \"y 0755", "openat $e \"../z O_CREAT|O_RDWR 0644", "symlinkat \"x $e \"sx", "linkat $e \"x $e \"hx 0", "unlinkat $e \"hx 0", "renameat $e \"y $e \"w", "openat $e \"/proc/self/cwd/p O_CREAT|O_RDWR 0644", "getcwd",
        "chdir \"{in}/l", "openat AT_FDCWD \"through O_CREAT|O_RDWR 0644", "openat AT_FDCWD \"../up O_CREAT|O_RDWR 0644", "renameat AT_FDCWD \"{in}/d AT_FDCWD \"{in}/moved", "openat AT_FDCWD \"after O_CREAT|O_RDWR 0644", "mkdirat $e \"late 0755", "getcwd", "sh pwd; echo x > rel",
        "thread do chdir \"{in} ; openat AT_FDCWD \"fromthread O_CREAT|O_RDWR 0644", "child do chdir \"{in}/moved/e ; openat AT_FDCWD \"fromchild O_CREAT|O_RDWR 0644", "thread do unshare CLONE_FS ; chdir \"{in}/moved ; openat AT_FDCWD \"own O_CREAT|O_RDWR 0644", "openat AT_FDCWD \"still O_CREAT|O_RDWR 0644",
    ]),
    script("a working directory that is gone", &["mkdirat AT_FDCWD \"{in}/d 0755", "put {in}/f x"], &[
        "chdir \"{in}/d", "t=openat AT_FDCWD \". O_RDONLY 0", "unlinkat AT_FDCWD \"{in}/d AT_REMOVEDIR", "openat AT_FDCWD \"x O_CREAT|O_RDWR 0644", "mkdirat AT_FDCWD \"x 0755", "openat AT_FDCWD \"../f O_RDWR 0", "openat AT_FDCWD \". O_RDONLY 0", "getcwd", "openat $t \"x O_CREAT|O_RDWR 0644",
        "openat AT_FDCWD \"{in}/f O_RDWR 0", "symlinkat \"x AT_FDCWD \"y", "fchmodat AT_FDCWD \". 0700 0", "fchmod $t 0700", "utimensat AT_FDCWD \". 0 0", "linkat AT_FDCWD \"{in}/f AT_FDCWD \"y 0", "renameat AT_FDCWD \"{in}/f AT_FDCWD \"y",
    ]),
    script("empty paths", &["put {in}/f x", "symlinkat \"f AT_FDCWD \"{in}/l"], &[
        "f=openat AT_FDCWD \"{in}/f O_PATH 0", "l=openat AT_FDCWD \"{in}/l O_PATH|O_NOFOLLOW 0", "fchownat $f \" -1 -1 AT_EMPTY_PATH", "fchownat $l \" -1 -1 AT_EMPTY_PATH", "utimensat $f \" ts:1,2 AT_EMPTY_PATH", "utimensat $l \" ts:3,4 AT_EMPTY_PATH", "fchmodat2 $f \" 0640 AT_EMPTY_PATH", "fchmodat2 $l \" 0640 AT_EMPTY_PATH",
        "fchownat $f \" -1 -1 0", "fchownat AT_FDCWD \" -1 -1 AT_EMPTY_PATH", "fchmodat2 AT_FDCWD \" 0755 AT_EMPTY_PATH", "openat $f \" O_RDWR 0", "sh stat -c '%a %X %Y' {in}/f; stat -c '%X %Y' {in}/l",
    ]).needs(&["fchmodat2"]),
    script("descriptors", &["put {in}/f text", "close_range 3 1000 0"], &[
        "close_range 3 1000 0", "f=openat AT_FDCWD \"{in}/f O_RDWR|O_APPEND|O_CLOEXEC 0", "fcntl $f F_GETFL 0", "fcntl $f F_GETFD 0", "fcntl $f F_DUPFD 0", "g=openat AT_FDCWD \"{in}/g O_CREAT|O_RDWR|O_NONBLOCK|O_SYNC 0644", "fcntl $g F_GETFL 0", "fcntl $g F_GETFD 0", "fds",
        "h=openat AT_FDCWD \"{in}/g O_WRONLY|O_DSYNC|O_NOATIME 0", "fcntl $h F_GETFL 0", "i=creat \"{in}/i 0644", "fcntl $i F_GETFL 0", "j=openat2 AT_FDCWD \"{in}/f how:O_RDWR|O_CLOEXEC|O_TRUNC,0,0 24", "fcntl $j F_GETFL 0", "fcntl $j F_GETFD 0", "p=openat AT_FDCWD \"{in}/f O_PATH|O_CLOEXEC 0", "fcntl $p F_GETFL 0",
        "write $f bytes:abc 3", "lseek $f 0 SEEK_SET", "write $f bytes:def 3", "text $f", "k=openat AT_FDCWD \"{in}/f O_RDWR 0", "write $k bytes:X 1", "lseek $k 0 SEEK_END", "text $k", "fds", "openat AT_FDCWD \"{in}/f O_RDWR|0x1000000 0", "q=openat AT_FDCWD \"{in}/f 3 0", "write $q bytes:x 1", "read $q buf:1 1",
        "fcntl $k F_SETFL O_APPEND", "fcntl $k F_GETFL 0", "flock $k 6", "flock $f 6",
    ]).needs(&["x86_64"]),
    script("limits", &["put {in}/f text"], &[
        "close_range 3 1000 0", "rlimit RLIMIT_NOFILE:8", "loop 20 openat AT_FDCWD \"{in}/f O_RDWR 0", "close_range 3 1000 0", "loop 20 openat AT_FDCWD \"{in}/n{i} O_RDWR|O_CREAT 0644", "close_range 3 1000 0", "ls {in}", "rlimit RLIMIT_NOFILE:64",
        "rlimit RLIMIT_FSIZE:100", "child truncate \"{in}/f 50", "child truncate \"{in}/f 200", "child do f=openat AT_FDCWD \"{in}/f O_RDWR 0 ; ftruncate $f 200", "stat {in}/f", "sh trap '' XFSZ; head -c 200 /dev/zero > {in}/z; echo $?", "stat {in}/z", "child creat \"{in}/y 0644",
    ]).needs(&["x86_64"]),
    script("fifos", &["mknodat AT_FDCWD \"{in}/p S_IFIFO|0644 0"], &[
        "bg r r=openat AT_FDCWD \"{in}/p O_RDONLY 0", "w=openat AT_FDCWD \"{in}/p O_WRONLY 0", "join r", "write $w bytes:hello 5", "read $r buf:5 5", "close $r", "close $w", "openat AT_FDCWD \"{in}/p O_WRONLY|O_NONBLOCK 0", "r=openat AT_FDCWD \"{in}/p O_RDONLY|O_NONBLOCK 0", "w=openat AT_FDCWD \"{in}/p O_WRONLY|O_NONBLOCK 0",
        "close $r", "close $w", "w=openat AT_FDCWD \"{in}/p O_RDWR 0", "close $w", "bg w w=openat AT_FDCWD \"{in}/p O_WRONLY 0", "r=openat AT_FDCWD \"{in}/p O_RDONLY 0", "join w", "close $w", "close $r", "sh (echo a > {in}/p) & cat {in}/p; wait", "sh cat {in}/p > {in}/got & echo b > {in}/p; wait; cat {in}/got",
        "sh mkfifo {in}/q; (cat {in}/q; echo end) & exec 3>{in}/q; echo one >&3; exec 3>&-; wait",
    ]),
    script("a fifo that a signal handler interrupts", &["mknodat AT_FDCWD \"{in}/p S_IFIFO|0644 0"], &[
        "timer 20000 norestart", "openat AT_FDCWD \"{in}/p O_WRONLY 0", "openat2 AT_FDCWD \"{in}/p how:O_WRONLY,0,0 24", "timer 0", "ticked",
    ]),
    script("reading a fifo that a signal handler interrupts", &["mknodat AT_FDCWD \"{in}/p S_IFIFO|0644 0"], &[
        "timer 20000 norestart", "openat AT_FDCWD \"{in}/p O_RDONLY 0", "timer 0", "ticked",
    ]),
    script("files without names", &["put {in}/f text"], &[
        "m=memfd_create \"x 0", "write $m bytes:hello 5", "r=openat AT_FDCWD \"/proc/self/fd/{m} O_RDWR 0", "text $r", "openat AT_FDCWD \"/dev/fd/{m} O_RDONLY 0", "openat AT_FDCWD \"/proc/self/fd/{m} O_RDWR|O_TRUNC 0", "text $r", "fchmod $m 0600", "f=openat AT_FDCWD \"{in}/f O_RDWR 0",
        "unlinkat AT_FDCWD \"{in}/f 0", "g=openat AT_FDCWD \"/proc/self/fd/{f} O_RDWR 0", "write $g bytes:T 1", "text $f", "fchmod $f 0600", "pipe a b", "w=openat AT_FDCWD \"/proc/self/fd/{b} O_WRONLY 0", "write $w bytes:x 1", "read $a buf:1 1", "truncate \"/proc/self/fd/{m} 3", "fsetxattr $m \"user.k bytes:v 1 0",
    ]),
    script("shells", &["put {in}/f text"], &[
        "bash cat <(echo hi) <(echo there)", "bash echo x > >(cat > {in}/sub); wait $!; cat {in}/sub", "bash cat <<< here", "sh cat <<E\nin E", "sh echo hi | cat /dev/stdin", "sh echo out > /dev/stdout", "sh (echo err > /dev/stderr) 2>&1", "sh exec 3> {in}/three; echo x > /dev/fd/3; echo y >&3; cat {in}/three",
        "bash exec {n}<>{in}/f; echo x >&$n; cat {in}/f", "sh echo a | tee {in}/t1 {in}/t2 | cat; cat {in}/t1 {in}/t2", "sh set -C; echo x > {in}/f; echo $?", "sh cp -a {in}/f {in}/copy; mv {in}/copy {in}/moved; rm {in}/moved; ls {in}", "sh d=$(mktemp -d {in}/tmp.XXXXXX); touch $d/x; ls $d; rm -r $d", "sh tar cf {in}/a.tar f t1; mkdir x; tar xf a.tar -C x; rm a.tar; ls x",
        "sh seq 3 | xargs -n1 -P3 touch; ls ? | wc -l", "sh find . -name 't?' -newermt @0 | sort", "sh sed -i s/x/y/ {in}/f; cat {in}/f; ls", "bash coproc C { cat; }; echo co >&${C[1]}; read l <&${C[0]}; echo $l", "sh dd if=/dev/zero of={in}/z bs=1k count=3 2>/dev/null; wc -c < z",
    ]).needs(&["cmd:bash"]),
    script("many threads", &[], &[
        "threads 8 200 do f=openat AT_FDCWD \"{in}/t{t}.{i} O_CREAT|O_EXCL|O_RDWR 0644 ; write $f bytes:x 1 ; close $f", "threads 8 1 openat AT_FDCWD \"{in}/same O_CREAT|O_EXCL|O_RDWR 0644", "threads 8 1 mkdirat AT_FDCWD \"{in}/dir 0755", "threads 4 100 do renameat AT_FDCWD \"{in}/t{t}.{i} AT_FDCWD \"{in}/r{t}.{i} ; unlinkat AT_FDCWD \"{in}/r{t}.{i} 0",
        "threads 4 100 child openat AT_FDCWD \"{in}/t4.1 O_RDWR 0",
    ]),
    script("children", &[], &[
        "child put {in}/a x", "vchild put {in}/b x", "vchild openat AT_FDCWD \"{in}/b O_RDWR|O_TRUNC 0", "child child mkdirat AT_FDCWD \"{in}/c 0755", "thread child mkdirat AT_FDCWD \"{in}/d 0755", "child thread mkdirat AT_FDCWD \"{in}/e 0755", "vchild vchild mkdirat AT_FDCWD \"{in}/f 0755", "run /bin/mkdir {in}/g", "loop 50 child put {in}/n{i} x",
    ]),
    script("signals", &[], &[
        "timer 300", "loop 5000 do mkdirat AT_FDCWD \"{in}/s{i} 0755 ; unlinkat AT_FDCWD \"{in}/s{i} AT_REMOVEDIR ; f=openat AT_FDCWD \"{in}/s{i} O_CREAT|O_EXCL|O_RDWR 0644 ; close $f ; unlinkat AT_FDCWD \"{in}/s{i} 0", "timer 0", "ticked",
    ]),
    // A call may come back with EINTR before the broker has received it; then it was not done.
    script("signals that restart nothing", &[], &[
        "timer 300 norestart", "loop 2000 do retry mkdirat AT_FDCWD \"{in}/s{i} 0755 ; retry renameat AT_FDCWD \"{in}/s{i} AT_FDCWD \"{in}/r{i} ; retry unlinkat AT_FDCWD \"{in}/r{i} AT_REMOVEDIR ; f=retry openat AT_FDCWD \"{in}/s{i} O_CREAT|O_EXCL|O_RDWR 0644 ; close $f", "timer 0", "ticked",
    ]),
    script("owners", &["put {in}/f x", "put {in}/g x", "mkdirat AT_FDCWD \"{in}/d 0755", "symlinkat \"f AT_FDCWD \"{in}/l"], &[
        "fchownat AT_FDCWD \"{in}/f 1234 4321 0", "fchownat AT_FDCWD \"{in}/l 11 12 AT_SYMLINK_NOFOLLOW", "f=openat AT_FDCWD \"{in}/g O_RDWR 0", "fchown $f 7 8", "fchownat AT_FDCWD \"{in}/d -1 9 0", "put {in}/d/x y", "openat AT_FDCWD \"{in}/f O_RDWR 0", "fchmodat AT_FDCWD \"{in}/f 0 0", "cat {in}/f", "put {in}/f y",
    ]).needs(&["root"]),
    script("another user", &[
        "put {in}/root x", "fchmodat AT_FDCWD \"{in}/root 0600 0", "mkdirat AT_FDCWD \"{in}/open 0755", "fchmodat AT_FDCWD \"{in}/open 0777 0", "mkdirat AT_FDCWD \"{in}/sticky 0755", "fchmodat AT_FDCWD \"{in}/sticky 01777 0", "put {in}/sticky/f x", "put {in}/open/f x", "put {in}/open/w x", "fchmodat AT_FDCWD \"{in}/open/w 0666 0",
        "mkdirat AT_FDCWD \"{in}/closed 0700", "put {in}/closed/f x", "put {in}/closed/w x", "fchmodat AT_FDCWD \"{in}/closed/w 0666 0", "symlinkat \"../open/w AT_FDCWD \"{in}/sticky/l", "put {in}/group x", "fchownat AT_FDCWD \"{in}/group 0 77 0", "fchmodat AT_FDCWD \"{in}/group 0660 0",
    ], &[
        "setgroups 0 0", "setresgid 1500 1500 1500", "setresuid 1500 1500 1500", "openat AT_FDCWD \"{in}/root O_RDWR 0", "openat AT_FDCWD \"{in}/root O_RDONLY 0", "openat AT_FDCWD \"{in}/new O_CREAT|O_RDWR 0644", "put {in}/open/new x", "mkdirat AT_FDCWD \"{in}/open/d 0755", "symlinkat \"x AT_FDCWD \"{in}/open/s", "lstat {in}/open/new", "lstat {in}/open/d", "lstat {in}/open/s", "openat AT_FDCWD \"{in}/closed/f O_RDWR 0",
        "mkdirat AT_FDCWD \"{in}/closed/d 0755", "fchmodat AT_FDCWD \"{in}/open/f 0666 0", "fchownat AT_FDCWD \"{in}/open/new 0 0 0", "fchownat AT_FDCWD \"{in}/open/f 1500 1500 0", "unlinkat AT_FDCWD \"{in}/sticky/f 0", "renameat AT_FDCWD \"{in}/sticky/f AT_FDCWD \"{in}/sticky/g", "unlinkat AT_FDCWD \"{in}/open/f 0", "put {in}/open/w y", "utimensat AT_FDCWD \"{in}/open/w 0 0", "utimensat AT_FDCWD \"{in}/open/w ts:1,2 0",
        "truncate \"{in}/open/w 0", "truncate \"{in}/root 0", "setxattr \"{in}/open/w \"user.k bytes:v 1 0", "setxattr \"{in}/root \"user.k bytes:v 1 0", "linkat AT_FDCWD \"{in}/root AT_FDCWD \"{in}/open/hard 0", "put {in}/sticky/l z", "openat AT_FDCWD \"{in}/group O_RDWR 0", "openat AT_FDCWD \"{in}/closed/w O_RDWR 0", "openat AT_FDCWD \"{in}/closed/w O_RDONLY 0", "truncate \"{in}/closed/w 0", "linkat AT_FDCWD \"{in}/closed/w AT_FDCWD \"{in}/open/hard2 0", "utimensat AT_FDCWD \"{in}/closed/w 0 0", "openat AT_FDCWD \"{in}/closed/none O_RDWR 0", "mkdirat AT_FDCWD \"{in}/closed/none/none 0755", "stat {in}/open/new", "setresuid 0 0 0",
    ]).needs(&["root", "xattr"]),
    script("another user for files only", &["put {in}/root x", "fchmodat AT_FDCWD \"{in}/root 0600 0", "mkdirat AT_FDCWD \"{in}/open 0755", "fchmodat AT_FDCWD \"{in}/open 0777 0", "put {in}/group x", "fchownat AT_FDCWD \"{in}/group 0 77 0", "fchmodat AT_FDCWD \"{in}/group 0660 0"], &[
        "child do setfsgid 1500 ; setfsuid 1500 ; openat AT_FDCWD \"{in}/root O_RDWR 0", "child do setfsgid 1500 ; setfsuid 1500 ; put {in}/open/f x", "lstat {in}/open/f", "thread do setresuid -1 1500 -1 ; openat AT_FDCWD \"{in}/root O_RDWR 0", "openat AT_FDCWD \"{in}/root O_RDWR 0", "child do setresgid 77 77 77 ; setresuid 1500 1500 1500 ; openat AT_FDCWD \"{in}/group O_RDWR 0", "child do setgroups 1 i:77 ; setresuid 1500 1500 1500 ; openat AT_FDCWD \"{in}/group O_RDWR 0",
        "child do setresuid 1500 0 0 ; put {in}/open/g x", "lstat {in}/open/g",
    ]).needs(&["root"]),
];
