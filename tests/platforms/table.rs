//! What policies hold on every system: the policy, what a program does under it, and what comes of that.
//!
//! A row is an operation of `child.rs`, or several with `;` between them, in the directory `w` of `place.rs`.

use Expected::{Allowed, Denied};
use System::{Linux, Macos, Windows};

/// The systems that a policy is held on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum System {
    Linux,
    Macos,
    Windows,
}

/// What comes of an operation under the policy; without one, it is done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Refused for want of permission, and nothing has changed.
    Denied,
    /// Done, with the same result as without a policy.
    Allowed,
}

/// Rows with one policy.
pub struct Case {
    pub name: &'static str,
    /// The systems that can hold it; the others refuse the policy.
    pub on: &'static [System],
    /// JSON. `{place}`, `{program}` and ports are filled in; `{closed}` and `{system}` are what it takes to
    /// list what may be read.
    pub policy: &'static str,
    /// What is done before the run, without a policy.
    pub before: &'static str,
    pub rows: &'static [(Expected, &'static str)],
}

const EVERYWHERE: &[System] = &[Linux, Macos, Windows];
const UNIX: &[System] = &[Linux, Macos];

/// Reading is a list as well: an AppContainer knows nothing else.
pub const LISTED: &str = r#"{"filesystem": {
    "denyRead": ["{closed}"], "allowRead": [".", "{program}", "{system}"], "denyReadAlways": ["secret"],
    "allowWrite": ["."], "denyWrite": [".git/hooks"]}}"#;
/// Reading is open but for what is named.
const OPEN: &str = r#"{"filesystem": {
    "denyRead": ["hidden", "later-hidden"], "allowRead": ["hidden/open"], "denyReadAlways": ["secret"],
    "allowWrite": [".", "always/again"], "denyWrite": [".git/hooks", "later"], "denyWriteAlways": ["always"]}}"#;
const GLOBS: &str = r#"{"filesystem": {
    "denyRead": ["**/*.key"], "allowWrite": ["."], "denyWrite": ["**/.env", "generated/**/*.lock"]}}"#;

pub const CASES: &[Case] = &[
    Case {
        name: "only_what_is_opened_is_written",
        on: EVERYWHERE,
        policy: LISTED,
        before: "",
        rows: &[
            (Allowed, "append file"),
            (Allowed, "write sub/new"),
            (Allowed, "truncate file"),
            (Allowed, "make new ; write new/file ; read new/file"),
            (Allowed, "move file sub/moved ; delete sub/moved"),
            (Allowed, "make new ; remove new"),
            (Allowed, "copy file sub/copy"),
            (Allowed, "times file"),
            (Denied, "write ../outside/new"),
            (Denied, "append ../outside/file"),
            (Denied, "truncate ../outside/file"),
            (Denied, "make ../outside/new"),
            (Denied, "delete ../outside/file"),
            (Denied, "remove ../outside/empty"),
            (Denied, "move file ../outside/moved"),
            (Denied, "move ../outside/file moved"),
            (Denied, "move ../outside/file ../outside/moved"),
            (Denied, "link ../outside/file linked"),
            (Denied, "copy file ../outside/copy"),
            (Denied, "times ../outside/file"),
            (Denied, "make ../new"),
            (Denied, "in ../outside write new"),
            (Denied, "write {place}/outside/new"),
            (Denied, "write sub/../../outside/new"),
        ],
    },
    Case {
        name: "what_is_denied_inside_of_what_is_opened_stays",
        on: EVERYWHERE,
        policy: LISTED,
        before: "",
        rows: &[
            (Allowed, "read .git/hooks/hook"),
            (Allowed, "append .git/config"),
            (Denied, "append .git/hooks/hook"),
            (Denied, "truncate .git/hooks/hook"),
            (Denied, "write .git/hooks/new"),
            (Denied, "make .git/hooks/new"),
            (Denied, "delete .git/hooks/hook"),
            (Denied, "move .git/hooks/hook hook"),
            (Denied, "move file .git/hooks/hook"),
            (Denied, "move file .git/hooks/new"),
            (Denied, "link .git/hooks/hook hook"),
            (Denied, "copy file .git/hooks/new"),
            (Denied, "move .git/hooks .git/old"),
            (Denied, "move .git git"),
        ],
    },
    Case {
        name: "only_what_is_opened_is_read",
        on: EVERYWHERE,
        policy: LISTED,
        before: "",
        rows: &[
            (Allowed, "read file"),
            (Allowed, "list ."),
            (Allowed, "read sub/file"),
            (Denied, "read secret"),
            (Denied, "read sub/../secret"),
            (Denied, "copy secret copy"),
            (Denied, "move secret known"),
            (Denied, "link secret known"),
            (Denied, "read ../outside/file"),
            (Denied, "list ../outside"),
            (Denied, "list .."),
            (Denied, "in ../outside read file"),
            (Denied, "start {program} read secret"),
            (Denied, "start {program} append .git/hooks/hook"),
            (Denied, "start {program} start {program} read ../outside/file"),
        ],
    },
    Case {
        name: "a_name_from_before_leads_to_the_same_file",
        // macOS refuses the policy: `hard-links`.
        on: &[Linux, Windows],
        policy: LISTED,
        before: "link secret known",
        rows: &[(Denied, "read known"), (Denied, "copy known copy")],
    },
    Case {
        name: "symbolic_links_open_nothing",
        // Making one takes a right of its own on Windows.
        on: UNIX,
        policy: LISTED,
        before: "symlink ../outside to ; symlink secret soft ; symlink .git/hooks hooks",
        rows: &[
            (Denied, "write to/new"),
            (Denied, "append to/file"),
            (Denied, "delete to/file"),
            (Denied, "read to/file"),
            (Denied, "read soft"),
            (Denied, "append hooks/hook"),
            (Denied, "symlink secret softer ; read softer"),
            (Denied, "symlink ../outside/new new ; write new"),
            (Denied, "symlink x ../outside/link"),
            (Allowed, "symlink file link ; read link ; append link"),
        ],
    },
    Case {
        name: "modes_are_changed_where_writing_is_open",
        // Read-only on Windows is an attribute.
        on: UNIX,
        policy: LISTED,
        before: "",
        rows: &[
            (Allowed, "mode file"),
            (Denied, "mode ../outside/file"),
            (Denied, "mode .git/hooks/hook"),
        ],
    },
    Case {
        name: "reading_is_open_but_for_what_is_named",
        on: UNIX,
        policy: OPEN,
        before: "",
        rows: &[
            (Allowed, "read ../outside/file"),
            (Allowed, "list ../outside"),
            (Allowed, "read hidden/open/file"),
            (Denied, "read hidden/file"),
            (Denied, "list hidden"),
            (Denied, "read hidden/open/../file"),
            (Denied, "copy hidden/file copy"),
            (Denied, "move hidden known"),
            (Denied, "move hidden/file known"),
            (Denied, "start hidden/script"),
        ],
    },
    Case {
        name: "what_is_not_there_yet_is_denied_by_its_name",
        on: UNIX,
        policy: OPEN,
        before: "",
        rows: &[
            (Allowed, "write laterr"),
            (Denied, "write later"),
            (Denied, "make later"),
            (Denied, "move file later"),
            (Denied, "move sub later"),
            (Denied, "write later-hidden ; read later-hidden"),
        ],
    },
    Case {
        name: "nothing_opens_what_is_always_denied",
        on: UNIX,
        policy: OPEN,
        before: "",
        rows: &[
            (Denied, "write always/new"),
            (Denied, "append always/again/file"),
            (Denied, "delete always/again/file"),
            (Denied, "move always never"),
        ],
    },
    Case {
        name: "globs_hold_for_files_of_any_time",
        on: UNIX,
        policy: GLOBS,
        before: "",
        rows: &[
            (Allowed, "append file"),
            (Allowed, "write sub/env"),
            (Denied, "append .env"),
            (Denied, "append sub/.env"),
            (Denied, "delete sub/.env"),
            (Denied, "write .git/.env"),
            (Denied, "make new ; write new/.env"),
            (Denied, "move sub/.env sub/env"),
            (Denied, "move file sub/.env"),
            (Denied, "link sub/.env env"),
            (Denied, "read sub/a.key"),
            (Denied, "copy sub/a.key copy"),
            (Denied, "make generated ; write generated/a.lock"),
            (Denied, "make generated ; make generated/sub ; write generated/sub/a.lock"),
            (Allowed, "write a.lock"),
        ],
    },
    Case {
        name: "the_network_is_closed",
        on: EVERYWHERE,
        policy: LISTED,
        before: "",
        rows: &[(Denied, "connect {port}")],
    },
    Case {
        name: "sockets_are_closed",
        on: UNIX,
        policy: r#"{"filesystem": {"allowWrite": ["."]}}"#,
        before: "",
        rows: &[
            (Denied, "connect {port}"),
            (Denied, "send {port}"),
            (Denied, "listen"),
            (Denied, "unix {place}/outside/socket"),
        ],
    },
    Case {
        name: "one_port_of_the_host_is_open",
        on: UNIX,
        policy: r#"{"filesystem": {"allowWrite": ["."]}, "network": {"hostPorts": ["{port}"]}}"#,
        before: "",
        rows: &[
            (Allowed, "connect {port}"),
            (Denied, "connect {other}"),
            (Denied, "unix {place}/outside/socket"),
        ],
    },
    Case {
        name: "loopback_is_open",
        on: UNIX,
        policy: r#"{"filesystem": {"allowWrite": ["."]}, "network": {"allowLocalBinding": true}}"#,
        before: "",
        rows: &[(Allowed, "listen"), (Denied, "unix {place}/outside/socket")],
    },
    Case {
        name: "the_network_is_open",
        on: UNIX,
        policy: r#"{"filesystem": {"allowWrite": ["."]}, "network": {"allowNetwork": true}}"#,
        before: "",
        rows: &[
            (Allowed, "connect {port}"),
            (Allowed, "send {port}"),
            (Allowed, "listen"),
            (Denied, "unix {place}/outside/socket"),
            (Denied, "append ../outside/file"),
        ],
    },
    Case {
        name: "a_listed_socket_is_open",
        on: UNIX,
        policy: r#"{"filesystem": {"allowWrite": ["."]},
            "network": {"allowUnixSockets": ["{place}/outside/socket"]}}"#,
        before: "",
        rows: &[(Allowed, "unix {place}/outside/socket"), (Denied, "connect {port}")],
    },
    Case {
        name: "processes_outside_are_out_of_reach",
        on: UNIX,
        policy: r#"{"filesystem": {"allowWrite": ["."]}}"#,
        before: "",
        rows: &[(Denied, "signal {process}")],
    },
];
