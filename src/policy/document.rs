//! The typed form of one policy document, and of several merged.

use serde::{Deserialize, Serialize};

use super::rule::{Located, Origin};

/// How a path entry is to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spelling {
    /// A plain string: a glob if it holds one of `* ? [ {`, else a literal.
    #[default]
    Plain,
    /// `{"literal": "..."}`: always a literal.
    Literal,
    /// `{"glob": "..."}`: always a glob.
    Glob,
}

/// One entry of a path list, as typed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Entry {
    /// The text.
    pub text: String,
    /// How to read it.
    pub spelling: Spelling,
}

impl Entry {
    /// The entry as it stands in a policy.
    pub fn typed(&self) -> String {
        let key = match self.spelling {
            Spelling::Plain => return self.text.clone(),
            Spelling::Literal => "literal",
            Spelling::Glob => "glob",
        };
        format!("{{\"{key}\":{}}}", serde_json::Value::String(self.text.clone()))
    }

    /// Whether the entry is a glob.
    pub fn is_glob(&self) -> bool {
        match self.spelling {
            Spelling::Literal => false,
            Spelling::Glob => true,
            Spelling::Plain => self.text.contains(['*', '?', '[', '{']),
        }
    }
}

/// A list of path entries, each with its place.
pub type Paths = Vec<Located<Entry>>;

/// The `filesystem` section.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Filesystem {
    /// Paths that may be written.
    pub allow_write: Paths,
    /// Paths that may not be written.
    pub deny_write: Paths,
    /// Paths that may not be written whatever else is said.
    pub deny_write_always: Paths,
    /// Paths that may be read although a path above is in `deny_read`.
    pub allow_read: Paths,
    /// Paths that may not be read.
    pub deny_read: Paths,
    /// Paths that may not be read whatever else is said.
    pub deny_read_always: Paths,
    /// Whether the git directory of a linked worktree is opened for ordinary use.
    pub git_dir: Option<Located<bool>>,
}

/// The `network` section.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkDocument {
    /// Whether the network is left alone.
    pub allow_network: Option<Located<bool>>,
    /// Hosts that may be reached; `None` when the key is absent, which is not the same as an
    /// empty list.
    pub allowed_domains: Option<Vec<Located<String>>>,
    /// Hosts that may not be reached.
    pub denied_domains: Option<Vec<Located<String>>>,
    /// Whether programs are told of the built-in proxy by variables of the environment.
    pub proxy_environment: Option<Located<bool>>,
    /// The port of an HTTP proxy on the host's loopback.
    pub http_proxy_port: Option<Located<u16>>,
    /// The port of a SOCKS proxy on the host's loopback.
    pub socks_proxy_port: Option<Located<u16>>,
    /// Ports of the host's loopback that may be connected to.
    pub host_ports: Vec<Located<u16>>,
    /// Ports that the program may serve on the host's loopback.
    pub expose: Vec<Located<u16>>,
    /// Whether loopback may be bound and connected to.
    pub allow_local_binding: Option<Located<bool>>,
    /// Unix sockets that may be connected to.
    pub allow_unix_sockets: Paths,
    /// Whether every unix socket may be connected to.
    pub allow_all_unix_sockets: Option<Located<bool>>,
}

/// The `limits` section: ceilings of the whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Memory, in bytes.
    pub memory: Option<Located<u64>>,
    /// Processes and threads.
    pub pids: Option<Located<u64>>,
    /// Processor time per time, in thousandths of one CPU.
    pub cpu: Option<Located<u64>>,
    /// Wall-clock time, in seconds.
    pub time: Option<Located<u64>>,
}

/// The `macos` section.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Macos {
    /// Whether certificates may be verified by the system's service, which reaches the network.
    pub allow_trustd: Option<Located<bool>>,
    /// Whether events may be sent to other applications, which act outside of the sandbox.
    pub allow_apple_events: Option<Located<bool>>,
    /// Whether pseudoterminals may be made.
    pub allow_pty: Option<Located<bool>>,
    /// What the unified log says with each denial.
    pub log_tag: Option<Located<String>>,
    /// Mach services that may be looked up; a trailing `*` matches any ending.
    pub allow_mach_lookup: Vec<Located<String>>,
}

/// The kind of AppContainer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AppContainerMode {
    /// Less privileged: what is open to `ALL APPLICATION PACKAGES` stays closed.
    #[default]
    Lpac,
    /// Standard.
    Standard,
}

/// The `windows` section.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Windows {
    /// Which AppContainer is made; LPAC unless said.
    pub app_container_mode: Option<Located<AppContainerMode>>,
    /// Whether all of loopback is opened to the AppContainer.
    pub allow_loopback: Option<Located<bool>>,
}

/// Something in a policy that was understood and has no effect.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ignored {
    /// Where it stands.
    pub origin: Origin,
    /// Why ignoring it opens nothing.
    pub reason: String,
}

/// A policy document, or the merger of several; see [`merge`](super::merge()).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    /// Rules about paths.
    pub filesystem: Filesystem,
    /// Rules about the network and sockets.
    pub network: NetworkDocument,
    /// Resource ceilings.
    pub limits: Limits,
    /// What only macOS uses.
    pub macos: Macos,
    /// What only Windows uses.
    pub windows: Windows,
    /// Keys that have no effect.
    pub ignored: Vec<Ignored>,
}

/// A merged document, ready to be resolved.
pub type Policy = Document;
