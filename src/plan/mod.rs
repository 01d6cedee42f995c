//! From a resolved policy to what each mechanism of this host has to do.
//!
//! Pure: the filesystem comes in as an [`FsView`], the kernel's abilities as [`HostSupport`]. The
//! plan also says, for every line of the policy, which mechanism holds it, and what none can hold: a
//! [`Shortfall`], which refuses the run unless it is accepted by name.

pub mod controls;
pub mod limits;
mod lines;
pub mod mounts;

use crate::policy::carve::Carved;
use crate::policy::{
    Access, Daemons, Decider, Effect, FsView, Kind, Origin, Pattern, ResolvedPolicy, Rule,
};
pub use limits::{Ceiling, LimitSupport};
pub use lines::{ACCEPTABLE, AS_GOOD_AS_THE_HOST, FOUND, Holder, Line, NOT_FOUND, Shortfall};
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;

/// What the running kernel can do, as far as a plan depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HostSupport {
    /// Landlock ABI, 0 without Landlock.
    pub landlock_abi: u32,
    /// This process runs inside another run of ours, which keeps the only listener there can be.
    pub nested: bool,
    /// Descriptors of other processes can be copied, pidfd_getfd(2).
    pub copies_descriptors: bool,
    /// What holds ceilings on the run.
    pub limits: LimitSupport,
    /// Whether the run's sockets can be in a network namespace of their own.
    pub namespace: NamespaceSupport,
}

/// Whether a network namespace can be had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NamespaceSupport {
    /// Nothing depends on it: the network is open, or closed as a whole.
    #[default]
    Unasked,
    /// It can.
    Available,
    /// It cannot; the error's name.
    Refused(&'static str),
}

/// The oldest Landlock that a run needs: ABI 2 moves files between directories.
pub const OLDEST_ABI: u32 = 2;
/// Landlock that keeps signals and abstract sockets inside: ABI 6, Linux 6.12.
pub const SCOPED_ABI: u32 = 6;
/// Landlock that holds the requests of ioctl(2) on devices, those on terminals among them: ABI 5, Linux 6.10.
pub const IOCTL_ABI: u32 = 5;
/// Landlock that holds TCP: ABI 4, Linux 6.7.
pub const TCP_ABI: u32 = 4;
/// Landlock that holds truncation: ABI 3, Linux 6.2.
pub const TRUNCATE_ABI: u32 = 3;
/// The key of the built-in rules about the run's temporary directory.
pub const TEMPORARY: &str = "TMPDIR";
/// Where pseudoterminals are.
pub const TERMINALS: &str = "/dev/pts";
/// The terminal of whoever opens it.
pub const TERMINAL: &str = "/dev/tty";
/// Names listed in all while carving around denials.
const CARVE_BUDGET: usize = 2048;

/// What may be written in a granted subtree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Writing {
    /// Nothing.
    Nothing,
    /// Nothing, and ioctl(2) on what is open for reading.
    Control,
    /// What files and devices hold.
    Content,
    /// Directories may be made, removed and moved right in it.
    Directories,
    /// Everything: content, and every kind of name but device nodes.
    All,
}

impl Writing {
    /// In words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Writing::Nothing => "nothing",
            Writing::Control => "control",
            Writing::Content => "write content",
            Writing::Directories => "make and remove directories in it",
            Writing::All => "write",
        }
    }
}

/// Rights to one subtree or file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Grant {
    /// Absolute canonical path.
    pub path: String,
    /// Reading, listing, executing.
    pub read: bool,
    /// Writing.
    pub write: Writing,
}

/// One Landlock domain: which kinds of access it restricts, and what it grants of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Layer {
    /// Writing is restricted.
    pub writing: bool,
    /// Truncation is restricted.
    pub truncating: bool,
    /// Reading and executing are restricted.
    pub reading: bool,
    /// TCP bind and connect are refused, but for connections to `ports`.
    pub network: bool,
    /// Ports that may be connected to, from a port that the kernel picks.
    pub ports: Vec<u16>,
    /// Ports that may be bound.
    pub bound: Vec<u16>,
    /// Signals stay inside.
    pub signals: bool,
    /// Abstract sockets of processes outside cannot be reached.
    pub abstract_sockets: bool,
    /// What is granted.
    pub grants: Vec<Grant>,
}

/// What a launch does.
#[derive(Debug)]
pub struct Plan {
    /// The policy, with the rules of this run added.
    pub policy: ResolvedPolicy,
    /// The policy's meaning; the broker shares it.
    pub decider: Arc<Decider>,
    /// The domain of launcher and broker, around the target's: the roots that may be written at all.
    pub outer: Layer,
    /// The target's own domain: what the kernel may grant whole.
    pub inner: Layer,
    /// There is a broker.
    pub broker: bool,
    /// Reads are restricted.
    pub reads: bool,
    /// The network is fenced.
    pub network: bool,
    /// Internet sockets are made in a network namespace of the run's own.
    pub namespace: bool,
    /// Unix sockets are fenced: which may be connected to, a list says.
    pub unix_sockets: bool,
    /// Signals to other processes are the broker's.
    pub signals: bool,
    /// Requests on devices are the filter's, and the broker's.
    pub devices: bool,
    /// Subtrees that the kernel lets the target write.
    pub kernel_write: Vec<String>,
    /// Subtrees that the kernel lets the target read.
    pub kernel_read: Vec<String>,
    /// What no mechanism of this host holds.
    pub shortfalls: Vec<Shortfall>,
    /// What the plan was made for.
    pub host: HostSupport,
}

/// Makes the plan. `temporary` is the run's private temporary directory.
pub fn plan(
    mut policy: ResolvedPolicy,
    temporary: Option<&str>,
    view: &dyn FsView,
    host: HostSupport,
) -> Plan {
    if let Some(path) = temporary {
        policy = with_temporary(policy, path);
    }
    let decider = Arc::new(Decider::new(&policy));
    let reads = policy.restricts_reading();
    let network = !policy.network.allow_network;
    let unix_sockets = !policy.network.allow_all_unix_sockets.as_ref().is_some_and(|l| l.value);
    let mut budget = CARVE_BUDGET;
    let mut carve = |access| {
        // A denied file with a second name may stand anywhere: the broker knows it by its inode.
        if policy.linked.iter().any(|linked| linked.access == access) {
            return Carved::default();
        }
        decider.carve(view, access, &mut budget)
    };
    let mut kernel_write = carve(Access::Write).granted;
    if built_in(&decider, TERMINALS) {
        // Which terminals are the run's own, only the broker can tell.
        kernel_write.retain(|path| path != TERMINALS);
        kernel_write.push(format!("{TERMINALS}/ptmx"));
    }
    let broker = !host.nested;
    // Which terminal that is, too: a process takes one for its own by opening it for reading.
    let terminal = broker && built_in(&decider, TERMINAL);
    if terminal {
        kernel_write.retain(|path| path != TERMINAL);
    }
    let carved = if reads {
        carve(Access::Read)
    } else {
        Carved { granted: vec!["/".to_owned()], ..Carved::default() }
    };
    let opened = if reads { opened(&policy, &decider, &carved) } else { Vec::new() };
    let mut readable = carved.granted.clone();
    // Without a broker nothing would hold the denials in there.
    if broker {
        readable.extend(opened.iter().cloned());
    }
    // What the kernel grants beyond the policy, it must not be relied upon for.
    let kernel_read = if opened.is_empty() { carved.granted } else { Vec::new() };
    let mut granted = grants(reads, &readable, &kernel_write);
    if terminal {
        // Who has it open for reading sets how it is read.
        match granted.iter_mut().find(|grant| grant.path == TERMINAL) {
            Some(grant) => grant.write = Writing::Control,
            None => granted.push(grant(TERMINAL, Writing::Control)),
        }
    }
    let inner = Layer {
        writing: true,
        // The broker cuts files itself. Where there is none, Landlock has to see to it.
        truncating: !broker && host.landlock_abi >= TRUNCATE_ABI,
        reading: reads,
        network,
        signals: true,
        abstract_sockets: true,
        grants: granted,
        ..Layer::default()
    };
    let local = policy.network.allow_local_binding.as_ref().is_some_and(|local| local.value);
    let outer = Layer {
        writing: true,
        signals: true,
        abstract_sockets: true,
        // Landlock knows ports and no addresses: where all of loopback is open, it can only stand aside.
        network: network && !local,
        ports: if local { Vec::new() } else { connectable(&policy) },
        bound: if local { Vec::new() } else { exposed(&policy) },
        grants: roots(&policy, temporary, view),
        ..Layer::default()
    };
    let mut shortfalls = lines::shortfalls(&policy, host);
    if !broker {
        shortfalls.extend(lines::not_granted(&policy, &kernel_write));
    }
    Plan {
        policy,
        decider,
        outer,
        inner,
        broker,
        reads,
        network,
        namespace: broker && network && host.namespace == NamespaceSupport::Available,
        unix_sockets,
        signals: broker && host.landlock_abi < SCOPED_ABI,
        devices: host.landlock_abi < IOCTL_ABI
            && !shortfalls.iter().any(|shortfall| shortfall.name == lines::DEVICES),
        kernel_write,
        kernel_read,
        shortfalls,
        host,
    }
}

/// Adds that the run may use its private temporary directory, `path`.
pub fn with_temporary(mut policy: ResolvedPolicy, path: &str) -> ResolvedPolicy {
    let rule = |access| Rule {
        access,
        effect: Effect::Allow,
        always: false,
        pattern: Pattern::Subtree(path.to_owned()),
        text: "the run's temporary directory".to_owned(),
        origin: Origin::built_in(TEMPORARY),
    };
    policy.rules.extend([rule(Access::Write), rule(Access::Read)]);
    policy
}

impl Plan {
    /// Lets the broker do what an answer to a query allows, and the launcher write what was learned: their
    /// domain, which otherwise ends at the roots of the policy and its ports, then bounds no more than
    /// device nodes and scopes.
    pub fn answerable(&mut self) {
        self.outer.grants = vec![grant("/", Writing::All)];
        self.outer.network = false;
        self.outer.ports = Vec::new();
        self.outer.bound = Vec::new();
    }

    /// For a container with a pid namespace of its own, which keeps signals inside, on any kernel: programs that
    /// are executed beside the first one are in domains of their own, and reach each other. What they may connect
    /// to, the broker decides.
    pub fn in_own_pids(&mut self) {
        self.shortfalls.retain(|shortfall| shortfall.name != lines::SIGNALS);
        self.signals = false;
        self.outer.signals = false;
        self.outer.abstract_sockets = false;
        self.inner.signals = false;
    }

    /// For a run that is learned from: it may control every device, and send to every socket.
    pub fn learnable(&mut self) {
        self.devices = false;
        self.shortfalls
            .retain(|shortfall| ![lines::DEVICES, lines::SOCKETS].contains(&shortfall.name));
    }

    /// For every line of the policy, who holds it; `daemons` are the sockets as good as the host.
    pub fn lines(&self, daemons: &Daemons) -> Vec<Line> {
        lines::lines(self, daemons)
    }
}

/// Ports of loopback that may be served.
fn exposed(policy: &ResolvedPolicy) -> Vec<u16> {
    policy.network.expose.iter().map(|port| port.value).collect()
}

/// Ports of loopback that may be connected to.
fn connectable(policy: &ResolvedPolicy) -> Vec<u16> {
    policy.network.host_ports().map(|port| port.value).chain(exposed(policy)).collect()
}

/// Whether writing `path` is allowed by a built-in rule alone.
fn built_in(decider: &Decider, path: &str) -> bool {
    let verdict = decider.decide(Access::Write, path.as_bytes());
    verdict.is_allowed() && verdict.rule().is_some_and(|rule| rule.origin.is_built_in())
}

fn grants(reads: bool, read: &[String], write: &[String]) -> Vec<Grant> {
    let mut grants: Vec<Grant> = write.iter().map(|path| grant(path, Writing::All)).collect();
    if reads {
        let written: HashMap<&String, usize> = write.iter().zip(0..).collect();
        for path in read {
            match written.get(path) {
                Some(&at) => grants[at].read = true,
                None => grants.push(Grant { read: true, ..grant(path, Writing::Nothing) }),
            }
        }
    }
    grants
}

fn grant(path: &str, write: Writing) -> Grant {
    Grant { path: path.to_owned(), read: false, write }
}

/// Directories that Landlock has to open for reading although something in them is denied.
///
/// execve(2) is the kernel's alone, and Landlock lets it run only what it lets read. Where the run can
/// put new programs beside what is denied (in a directory that it may write, or one too large to list,
/// or anywhere below a glob), a carve would shut them out. Landlock then opens the directory whole, and
/// the broker opens every file for reading itself, here and everywhere, so that no read is ever
/// continued. What is left is execve(2), which is decided by name.
fn opened(policy: &ResolvedPolicy, decider: &Decider, carved: &Carved) -> Vec<String> {
    if policy.linked.iter().any(|linked| linked.access == Access::Read) {
        return vec!["/".to_owned()];
    }
    let readable = |path: &str| decider.decide(Access::Read, path.as_bytes()).is_allowed();
    let mut opened = carved.unlisted.clone();
    for rule in decider.rules() {
        if rule.access != Access::Read || rule.effect != Effect::Deny {
            continue;
        }
        match &rule.pattern {
            Pattern::Glob(glob) if within(glob.anchor(), "/proc") => {}
            Pattern::Glob(glob) => opened.push(glob.anchor().to_owned()),
            Pattern::Subtree(path) | Pattern::Name(path) => {
                let shut_out = |directory: &&str| {
                    // Most directories may not be written, and most grants are not looked at.
                    decider.decide(Access::Write, directory.as_bytes()).is_allowed()
                        && readable(directory)
                        && !carved.granted.iter().any(|grant| within(directory, grant))
                };
                opened.extend(ancestors(path).filter(shut_out).map(str::to_owned));
            }
        }
    }
    opened.retain(|path| readable(path));
    opened.sort_unstable();
    opened.dedup();
    opened
}

/// The proper ancestors of `path`, nearest first, `/` last.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.rmatch_indices('/')
        .map(|(at, _)| if at == 0 { "/" } else { &path[..at] })
        .filter(move |ancestor| *ancestor != path)
}

fn within(path: &str, top: &str) -> bool {
    top == "/"
        || path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Where the broker may have to write for the target: each root of the policy, and around those that
/// are a name in somebody else's directory, that directory.
///
/// This bounds what a mistake of the broker could do, no more: what is allowed within, the broker
/// decides and [`Layer`] `inner` holds.
fn roots(policy: &ResolvedPolicy, temporary: Option<&str>, view: &dyn FsView) -> Vec<Grant> {
    let mut roots: Vec<Grant> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut add = |path: &str, write| match known.get(path) {
        Some(&at) if write == Writing::All => roots[at].write = write,
        Some(_) => {}
        None => {
            known.insert(path.to_owned(), roots.len());
            roots.push(grant(path, write));
        }
    };
    // Many paths share their ancestors.
    let mut directories: HashMap<String, bool> = HashMap::new();
    let mut is_directory = |path: &str| match directories.get(path) {
        Some(&known) => known,
        None => {
            let found = view.kind(path) == Kind::Dir;
            directories.insert(path.to_owned(), found);
            found
        }
    };
    for rule in &policy.rules {
        if rule.access != Access::Write || rule.effect != Effect::Allow {
            continue;
        }
        let path = match &rule.pattern {
            Pattern::Subtree(path) | Pattern::Name(path) => path.as_str(),
            Pattern::Glob(glob) => glob.anchor(),
        };
        // The built-in rules are about devices and /dev/shm, all below /dev.
        if rule.origin.is_built_in() && temporary != Some(path) {
            continue;
        }
        match view.kind(path) {
            Kind::Dir => {
                add(path, Writing::All);
                if let Some(parent) = ancestors(path).next() {
                    add(parent, Writing::Directories);
                }
            }
            // A file is replaced by renaming another one over it, and what is missing is made.
            _ => {
                let home = ancestors(path).find(|ancestor| is_directory(ancestor));
                add(home.unwrap_or("/"), Writing::All);
            }
        }
    }
    add("/dev", Writing::Content);
    add("/dev/shm", Writing::All);
    roots
}

#[cfg(test)]
mod tests;
