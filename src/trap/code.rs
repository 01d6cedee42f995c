//! The closed lists: event codes and mechanisms.

use serde::{Serialize, Serializer};

/// Declares the list of codes once: variants, spellings and [`Code::ALL`] cannot drift apart.
macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident => $text:literal,)*) => {
        /// What happened, as a stable word for programs.
        ///
        /// A code names the stage that failed, never the operating system that reported it. This
        /// list is closed: a consumer may match on every entry.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[$doc])* $variant,)* }

        impl Code {
            /// Every code, in the order of the documentation.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)*];

            /// The code as records spell it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $text,)* }
            }
        }
    };
}

codes! {
    /// A path operation was denied.
    FilesystemDenied => "FILESYSTEM_DENIED",
    /// A socket operation was denied.
    NetworkDenied => "NETWORK_DENIED",
    /// An IPC object (System V or POSIX) of a process outside the sandbox was denied.
    IpcDenied => "IPC_DENIED",
    /// The kernel killed for want of memory: `limits.memory`.
    MemoryLimitReached => "MEMORY_LIMIT_REACHED",
    /// A process or thread could not be started: `limits.pids`.
    PidsLimitReached => "PIDS_LIMIT_REACHED",
    /// The run took too long and was ended: `limits.time`.
    TimeLimitReached => "TIME_LIMIT_REACHED",
    /// A line on the trap descriptor is no answer to a query.
    ControlIgnored => "CONTROL_IGNORED",
    /// Closes a report: some denials are only counted, not listed.
    DenialsOmitted => "DENIALS_OMITTED",
    /// The sandbox was in place, but the program did not start.
    LaunchFailed => "LAUNCH_FAILED",
    /// The command line was rejected.
    UsageError => "USAGE_ERROR",
    /// A policy is not well-formed, or says something that it may not.
    PolicyParseFailed => "POLICY_PARSE_FAILED",
    /// A policy could not be read.
    PolicyIoFailed => "POLICY_IO_FAILED",
    /// The sandbox could not be set up; `mechanism` says which part.
    SandboxSetupFailed => "SANDBOX_SETUP_FAILED",
    /// The running sandbox could not be supervised.
    SuperviseFailed => "SUPERVISE_FAILED",
    /// This platform or build has no such feature.
    PlatformUnsupported => "PLATFORM_UNSUPPORTED",
    /// A number does not fit where the platform needs it.
    IntegerTooLarge => "INTEGER_TOO_LARGE",
    /// The host's Windows job object rules out a job of our own.
    HostJobIncompatible => "HOST_JOB_INCOMPATIBLE",
    /// The platform needs a read allowlist and the policy leaves reading open.
    PolicyUnrestrictedRead => "POLICY_UNRESTRICTED_READ",
    /// The platform cannot restrict TCP bind as the policy asks.
    PolicyTcpBindUnsupported => "POLICY_TCP_BIND_UNSUPPORTED",
    /// The platform cannot restrict Unix sockets as the policy asks.
    PolicyUnixSocketUnsupported => "POLICY_UNIX_SOCKET_UNSUPPORTED",
    /// A Unix socket path cannot be used.
    PolicyUnixSocketPath => "POLICY_UNIX_SOCKET_PATH",
    /// A write denial lies below a symbolic link that could be replaced.
    PolicyDenyWriteSymlinkAncestor => "POLICY_DENY_WRITE_SYMLINK_ANCESTOR",
    /// A port is out of range.
    PolicyInvalidPort => "POLICY_INVALID_PORT",
    /// A path is empty.
    PolicyEmptyPath => "POLICY_EMPTY_PATH",
    /// A path starts with `~`, and there is no home directory.
    PolicyHomeUnavailable => "POLICY_HOME_UNAVAILABLE",
    /// A path has more components or links than can be followed.
    PolicyTraversalDepth => "POLICY_TRAVERSAL_DEPTH",
    /// The policy attached to a program would loosen what the run grants.
    PolicyNotTighter => "POLICY_NOT_TIGHTER",
    /// This host cannot enforce a line of the policy, and nobody accepted that.
    ShortfallRefused => "POLICY_SHORTFALL",
    /// A failure that no other code names.
    InternalError => "INTERNAL_ERROR",
}

impl Code {
    /// The code spelled `text`, or `None` where there is no such code.
    #[must_use]
    pub fn from_name(text: &str) -> Option<Code> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The layer of the operating system that an event is attributed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mechanism {
    /// The Landlock Linux security module.
    Landlock,
    /// Seccomp filters and the broker that answers their notifications.
    Seccomp,
    /// The domain proxy, which holds lists of hosts.
    Proxy,
    /// Control groups, which hold ceilings.
    Cgroup,
    /// The macOS sandbox.
    Seatbelt,
    /// A Windows AppContainer.
    Appcontainer,
    /// A restricted local Windows user.
    Windowsuser,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_and_screaming() {
        for (at, code) in Code::ALL.iter().enumerate() {
            let text = code.as_str();
            assert!(text.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'), "{text}");
            assert!(Code::ALL[at + 1..].iter().all(|other| other.as_str() != text), "{text}");
            assert_eq!(Code::from_name(text), Some(*code));
        }
        assert_eq!(Code::from_name("filesystem_denied"), None);
    }
}
