//! The record of one denial.

use std::hash::Hash;
use std::time::SystemTime;

use serde::Serialize;

use super::{Code, Grant, State, json, text};
use crate::policy::{Origin, Rule};

/// What was denied access to; it decides the shape of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A path.
    Filesystem,
    /// A socket or an address.
    Network,
    /// A System V or POSIX IPC object.
    Ipc,
}

impl Kind {
    /// The code of a denial of this kind.
    #[must_use]
    pub const fn code(self) -> Code {
        match self {
            Kind::Filesystem => Code::FilesystemDenied,
            Kind::Network => Code::NetworkDenied,
            Kind::Ipc => Code::IpcDenied,
        }
    }
}

/// What the program tried to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Read a file, list a directory, or look into an IPC object.
    Read,
    /// Change a file, a name, or an object's state.
    Write,
    /// Look up the name of a host.
    Resolve,
    /// Connect or send to an address.
    Connect,
    /// Bind to an address.
    Bind,
    /// Listen for connections.
    Listen,
    /// Make a socket.
    Socket,
    /// Execute a file.
    Execute,
}

impl Operation {
    /// The operation as records spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Resolve => "resolve",
            Operation::Connect => "connect",
            Operation::Bind => "bind",
            Operation::Listen => "listen",
            Operation::Socket => "socket",
            Operation::Execute => "execute",
        }
    }
}

/// Why the policy denied a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// No rule allows it, and the default is to deny.
    AllowMiss,
    /// A deny rule matches it.
    DenyMatch,
}

/// The line of a policy that decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct RuleRef {
    /// The policy, as named on the command line.
    pub file: String,
    /// The line in it, from 1; 0 for a rule that is built in.
    pub line: u32,
    /// The key path in it, for example `filesystem.denyWrite[0]`.
    pub key: String,
    /// The rule as it was typed.
    pub text: String,
}

impl From<&Rule> for RuleRef {
    fn from(rule: &Rule) -> RuleRef {
        let Origin { file, line, key } = rule.origin.clone();
        RuleRef { file, line, key, text: rule.text.clone() }
    }
}

/// The process that was denied, as it was at that moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Process {
    /// Its process id, as seen from outside the sandbox.
    pub pid: i32,
    /// Its executable; empty where that could not be read.
    pub exe: String,
    /// Its working directory; empty where that could not be read.
    pub cwd: String,
}

/// One operation that the policy denied.
///
/// Strings hold what the program asked for. They need not be printable: a path that is not UTF-8
/// comes in with replacement characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// What was denied access to.
    pub kind: Kind,
    /// What the program tried to do.
    pub operation: Operation,
    /// The resolved path, for a path or a pathname socket.
    pub path: Option<String>,
    /// The path that the program passed, where it differs or is known.
    pub requested_path: Option<String>,
    /// The resolved paths of a call that has two: what is moved or linked, and its new name.
    pub old_path: Option<String>,
    /// See `old_path`.
    pub new_path: Option<String>,
    /// The address, `host:port`, or the name of the object, where `path` is not the target.
    pub target: Option<String>,
    /// The system call; none where the domain proxy refuses what is said in a connection, and where the sandbox of
    /// macOS writes to the log.
    pub syscall: Option<&'static str>,
    /// The symbolic error that the call gave, for example `EACCES`; see [`super::errno::name`]. None from the proxy.
    pub errno: Option<&'static str>,
    /// The flags of the call; see [`super::errno::open_flags`].
    pub flags: Vec<&'static str>,
    /// What else the call asks for, by name: the mode, the size, the owner.
    pub arguments: Vec<(&'static str, String)>,
    /// Why a path was denied.
    pub reason: Option<Reason>,
    /// What would have allowed it; see [`super::Adviser`].
    pub suggested_grant: Option<Grant>,
    /// The line of the policy that decided.
    pub rule: Option<RuleRef>,
    /// Who was denied.
    pub process: Process,
    /// Anything a reader needs that no other field says.
    pub message: Option<String>,
}

impl Denial {
    /// The record as one line of JSON; see [`super::Trap::json_line`].
    #[must_use]
    pub fn json_line(&self, ts: SystemTime, state: State, query_id: u64) -> String {
        json::denial_line(self, ts, state, query_id)
    }

    /// The record as one line of text; see [`super::Trap::text`].
    #[must_use]
    pub fn text(&self) -> String {
        text::denial_line(self, 1)
    }

    /// What makes this denial a different one: everything but the process id and the arguments.
    pub(super) fn identity(&self) -> impl PartialEq + Hash + '_ {
        (
            (self.kind, self.operation, &self.path, &self.requested_path, &self.target),
            (&self.old_path, &self.new_path),
            (self.syscall, self.errno, &self.flags, self.reason),
            (&self.suggested_grant, &self.rule, &self.message),
            (&self.process.exe, &self.process.cwd),
        )
    }

    /// The bytes that a stored copy occupies, roughly.
    pub(super) fn stored_bytes(&self) -> usize {
        let texts = [
            &self.path,
            &self.requested_path,
            &self.old_path,
            &self.new_path,
            &self.target,
            &self.message,
        ];
        let arguments = self.arguments.iter().map(|(name, value)| name.len() + value.len());
        let rule = self.rule.as_ref().map_or(0, |r| r.file.len() + r.key.len() + r.text.len());
        size_of::<Self>()
            + texts.into_iter().flatten().map(String::len).sum::<usize>()
            + self.flags.len() * size_of::<&str>()
            + arguments.sum::<usize>()
            + self.suggested_grant.as_ref().map_or(0, Grant::stored_bytes)
            + rule
            + self.process.exe.len()
            + self.process.cwd.len()
    }
}
