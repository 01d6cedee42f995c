//! `why`: whether a policy allows a path or a host, and which rule decides.

use std::fs;

use serde::Serialize;

use super::args::{TargetKind, WhyArgs};
use super::error::{Error, Failure};
use super::policy::{line, resolved};
use super::{HostFiles, output, resolve};
use crate::plan::Holder;
use crate::plan::controls::CLOSED;
use crate::policy::endpoint::{Line, Reach, reach};
use crate::policy::path::Walker;
use crate::policy::{
    Access, Closed, Decider, Endpoints, FsView, Host, Kind, Linked, Origin, Passage,
    ResolvedPolicy, Rule, Use, Verdict, host,
};
use crate::trap::{Adviser, Denied, Grant, Operation, Reason, RuleRef};

/// Prints the verdict, whatever it is, with exit code 0.
///
/// # Errors
///
/// An error when the policy cannot be resolved, the target is neither a path nor a host, or standard
/// output cannot be written.
pub fn why(args: &WhyArgs) -> Result<u8, Error> {
    let Some(target) = args.target.to_str() else {
        return Err(Error::Usage("the target is not UTF-8".to_owned()));
    };
    if target.is_empty() {
        return Err(Error::Usage("the target is empty".to_owned()));
    }
    let policy = resolved(&args.inspect)?;
    let (kind, read_as) = match args.kind {
        Some(kind) => (kind, None),
        None => guess(target, &policy.cwd),
    };
    let format = args.inspect.output.format;
    match kind {
        TargetKind::Path => {
            let report = PathReport { note: read_as, ..path(target, policy)? };
            output::document(format, &report, || path_text(&report))?;
        }
        TargetKind::Host => {
            let report = HostReport { note: read_as, ..host_report(target, &policy)? };
            output::document(format, &report, || host_text(&report))?;
        }
    }
    Ok(0)
}

/// What the target is taken for, and how to say otherwise where it could as well be the other.
fn guess(target: &str, cwd: &str) -> (TargetKind, Option<&'static str>) {
    let exists = || fs::symlink_metadata(format!("{cwd}/{target}")).is_ok();
    let port = target.rsplit_once(':').is_some();
    if target.contains("://") {
        (TargetKind::Host, None)
    } else if target.contains('/') || target.starts_with(['.', '~']) {
        (TargetKind::Path, None)
    } else if exists() {
        let note = "read as a path, since there is such a file; as a host: --as host";
        (TargetKind::Path, Some(note))
    } else if port || host::check(target).is_ok_and(|checked| host::address(&checked).0.is_some()) {
        (TargetKind::Host, None)
    } else {
        let note = "read as a host, since there is no such file; as a path: --as path, or with ./";
        (TargetKind::Host, Some(note))
    }
}

/// The document about a path.
#[derive(Serialize)]
struct PathReport<'a> {
    /// What the target was taken for: `path`.
    kind: &'static str,
    target: &'a str,
    /// Why it was taken for a path, where that was a guess.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    /// The path that rules are compared with: absolute, free of symbolic links.
    path: String,
    /// Whether there is something.
    exists: bool,
    /// The symbolic links on the way.
    links: Vec<String>,
    read: Answer,
    write: Answer,
    /// Connecting, where it is a socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    connect: Option<Answer>,
}

/// What is said about one access.
#[derive(Serialize)]
struct Answer {
    allowed: bool,
    /// The rule that decides; `None` where the default does.
    rule: Option<RuleRef>,
    /// Why it is denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    /// The entry that would allow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    suggested_grant: Option<Grant>,
    /// The mechanism of this host that holds the answer; `None` where nothing restricts the access.
    held_by: Option<Holder>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

fn path(target: &str, policy: ResolvedPolicy) -> Result<PathReport<'_>, Error> {
    let home = resolve::Environment::own().home;
    let mut walker = Walker::new(&HostFiles, home.as_deref());
    let origin = Origin { key: "the path asked about".to_owned(), ..Origin::default() };
    let found = walker.follow(target, &policy.cwd, &origin).map_err(|error| {
        Error::Failure(Failure { file: None, key: None, line: None, ..error.into() })
    })?;
    let alias = alias(&policy, &Decider::new(&policy), &found.path, &found.kind);
    let endpoints = Endpoints::new(&policy.network, resolve::daemons());
    let passage = endpoints.socket(found.path.as_bytes());
    let adviser = Adviser::new(&policy, &HostFiles);
    let connect = Some(endpoint_answer(&adviser, passage, &found.path, Some(Holder::Broker)));
    let restricts = [policy.restricts_reading(), true];
    let holders = Holders::new(policy)?;
    let decider = holders.decider();
    let [read, write] =
        [(Access::Read, Operation::Read), (Access::Write, Operation::Write)].map(|(access, op)| {
            let verdict = match alias.iter().find(|(denied, _)| *denied == access) {
                Some((_, name)) => decider.decide(access, name.as_bytes()),
                None => decider.decide(access, found.path.as_bytes()),
            };
            let mut answer = answer(&verdict);
            if restricts[access as usize] {
                (answer.held_by, answer.note) = holders.of(access, &found.path, answer.allowed);
            }
            if let Verdict::Deny { rule, .. } = verdict {
                let path = found.path.as_bytes();
                let denied = Denied { operation: op, path, rule, others: &[], link: false };
                let parent = found.path.rfind('/').map_or("/", |end| &found.path[..end.max(1)]);
                let missing = HostFiles.kind(parent) == Kind::Absent;
                match adviser.path(decider, &denied) {
                    Ok(_) if access == Access::Write && missing => {
                        answer.note = Some(nowhere(parent));
                    }
                    Ok(grant) => answer.suggested_grant = Some(grant),
                    Err(obstacle) => answer.note = Some(obstacle.why().into_owned()),
                }
                if rule.is_some_and(Rule::guards_controls) {
                    answer.note = Some(CLOSED.to_owned());
                }
            } else if access == Access::Write
                && let Some(missing) = decider.missing_directory(&HostFiles, &found.path)
            {
                answer.note = Some(nowhere(missing));
            }
            if let Some((_, name)) = alias.iter().find(|(denied, _)| *denied == access) {
                answer.note = Some(format!("this is another name (a hard link) of {name}"));
                answer.suggested_grant = None;
            }
            answer
        });
    let exists = found.kind != Kind::Absent;
    let connect = connect.filter(|_| is_socket(&found.path));
    let (path, links) = (found.path, found.links);
    let kind = "path";
    Ok(PathReport { kind, target, note: None, path, exists, links, read, write, connect })
}

/// What there is to know about a path that may be written and lies in a directory that is `missing`, see
/// [`Decider::missing_directory`].
pub(super) fn nowhere(missing: &str) -> String {
    format!("it cannot be made: the directory {missing} does not exist, and may not be made")
}

/// The denied files that `path` is another name of: a denial is held by the file.
fn alias(
    policy: &ResolvedPolicy,
    decider: &Decider,
    path: &str,
    kind: &Kind,
) -> Vec<(Access, String)> {
    if !matches!(kind, Kind::File { links: 2.., .. }) {
        return Vec::new();
    }
    let denied =
        |linked: &&Linked| !decider.decide(linked.access, linked.path.as_bytes()).is_allowed();
    let others = policy.linked.iter().filter(|linked| linked.path != path).filter(denied);
    others
        .filter(|linked| same_file(path, &linked.path))
        .map(|l| (l.access, l.path.clone()))
        .collect()
}

#[cfg(unix)]
fn is_socket(path: &str) -> bool {
    use std::os::unix::fs::FileTypeExt;
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

#[cfg(not(unix))]
fn is_socket(_: &str) -> bool {
    false
}

#[cfg(unix)]
fn same_file(one: &str, other: &str) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |path| fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()));
    matches!((id(one), id(other)), (Ok(one), Ok(other)) if one == other)
}

#[cfg(not(unix))]
fn same_file(_: &str, _: &str) -> bool {
    false
}

fn answer(verdict: &Verdict<'_>) -> Answer {
    let reason = match verdict {
        Verdict::Allow(_) => None,
        Verdict::Deny { rule: Some(_), .. } => Some(Reason::DenyMatch),
        Verdict::Deny { rule: None, .. } => Some(Reason::AllowMiss),
    };
    Answer {
        allowed: verdict.is_allowed(),
        rule: verdict.rule().map(RuleRef::from),
        reason,
        suggested_grant: None,
        held_by: None,
        note: None,
    }
}

/// Who holds the answers on this host.
#[cfg(target_os = "linux")]
struct Holders(crate::plan::Plan);

#[cfg(target_os = "linux")]
impl Holders {
    fn new(policy: ResolvedPolicy) -> Result<Holders, Failure> {
        super::plan::planned(policy).map(|(plan, _)| Holders(plan))
    }

    /// What the policy means on this host.
    fn decider(&self) -> &Decider {
        &self.0.decider
    }

    /// Who holds this verdict, and what else is to be known.
    fn of(&self, access: Access, path: &str, allowed: bool) -> (Option<Holder>, Option<String>) {
        let Holders(plan) = self;
        let granted = match access {
            Access::Read => &plan.kernel_read,
            Access::Write => &plan.kernel_write,
        };
        let whole = granted
            .iter()
            .any(|top| crate::policy::path::is_within(path.as_bytes(), top.as_bytes()));
        match (allowed, plan.broker) {
            (true, _) if whole => (Some(Holder::Landlock), None),
            (true, true) => (Some(Holder::Broker), None),
            (true, false) => {
                let note = "inside another sandbox this is refused all the same: the kernel can \
                    grant whole subtrees only";
                (Some(Holder::Landlock), Some(note.to_owned()))
            }
            (false, true) => (Some(Holder::LandlockAndBroker), None),
            (false, false) => (Some(Holder::Landlock), None),
        }
    }
}

/// Nothing is enforced on this platform yet.
#[cfg(not(target_os = "linux"))]
struct Holders(Decider);

#[cfg(not(target_os = "linux"))]
impl Holders {
    fn new(policy: ResolvedPolicy) -> Result<Holders, Failure> {
        Ok(Holders(Decider::new(&policy)))
    }

    fn decider(&self) -> &Decider {
        &self.0
    }

    fn of(&self, _: Access, _: &str, _: bool) -> (Option<Holder>, Option<String>) {
        (None, None)
    }
}

fn path_text(report: &PathReport<'_>) -> String {
    let mut text = String::new();
    let absent = if report.exists { "" } else { " (does not exist)" };
    line(&mut text, format_args!("{}{absent}", report.path));
    if let Some(note) = report.note {
        line(&mut text, format_args!("  {note}"));
    }
    for link in &report.links {
        line(&mut text, format_args!("  through the symbolic link {link}"));
    }
    answer_text(&mut text, "read", &report.read, "reading is open by default");
    answer_text(&mut text, "write", &report.write, "writing is denied by default");
    if let Some(connect) = &report.connect {
        answer_text(&mut text, "connect", connect, "sockets outside are closed by default");
    }
    text
}

fn answer_text(text: &mut String, what: &str, answer: &Answer, default: &str) {
    let verdict = if answer.allowed { "allowed" } else { "denied" };
    let rule = match &answer.rule {
        None => default.to_owned(),
        Some(RuleRef { file, line, key, text }) => {
            let at = if *line > 0 { format!(":{line}") } else { String::new() };
            format!("{file}{at} {key} {text:?}")
        }
    };
    line(text, format_args!("{what}: {verdict}: {rule}"));
    if let Some(holder) = answer.held_by {
        line(text, format_args!("  held by {}", holder.name()));
    }
    if let Some(note) = &answer.note {
        line(text, format_args!("  {note}"));
    }
    if let Some(grant) = &answer.suggested_grant {
        line(text, format_args!("  allow it with {}", grant.document()));
    }
}

/// The document about a host.
#[derive(Serialize)]
struct HostReport<'a> {
    /// What the target was taken for: `host`.
    kind: &'static str,
    target: &'a str,
    /// Why it was taken for a host, where that was a guess.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    connect: Answer,
    /// What decides where no rule does, for a reader.
    #[serde(skip)]
    default: &'static str,
}

/// What the broker would answer to a connection there.
fn host_report<'a>(target: &'a str, policy: &ResolvedPolicy) -> Result<HostReport<'a>, Error> {
    let refused = |why| Error::Usage(format!("{why} (for a path: --as path)"));
    let checked = host::check(target).map_err(refused)?;
    if target.starts_with('*') {
        return Err(Error::Usage(format!("{target:?} is a pattern; ask about one host")));
    }
    let network = &policy.network;
    let endpoints = Endpoints::new(network, resolve::daemons());
    let (bare, port) = host::split(&checked);
    let named = Host::parse(bare).map_err(refused)?;
    let (address, _) = host::address(&checked);
    let passage = match (endpoints.name(&named, port), address) {
        (listed @ Passage::Open(_), _) => listed,
        (listed @ Passage::Closed(Closed::Host, Some(line)), _) if line.is_entry() => listed,
        // No proxy is at port 0, so without a port the answer is about loopback as a whole.
        (_, Some(address)) => endpoints.internet(Use::Connect, address, port.unwrap_or(0)),
        (closed, None) => closed,
    };
    let fence = fence(policy);
    let own = fence == Holder::NamespaceAndBroker;
    let local = address.is_some_and(|address| reach(address) != Reach::Outside);
    let note = match passage {
        _ if network.allow_network => None,
        Passage::Closed(Closed::Loopback, _) if port.is_none() => at(endpoints.ports()),
        Passage::Open(_) if port.is_none() && !endpoints.ports_of(&named).is_empty() => {
            at(endpoints.ports_of(&named).into_iter())
        }
        Passage::Open(Some(line)) if own && local && !line.is_entry() && endpoints.is_local() => {
            Some(OWN_LOOPBACK.to_owned())
        }
        _ => None,
    };
    let held_by = match passage {
        _ if endpoints.lists_hosts() && !network.allow_network => Some(Holder::Proxy),
        Passage::Open(_) if network.allow_network => None,
        Passage::Open(_) | Passage::Closed(Closed::Loopback, _) => Some(fence),
        Passage::Closed(..) => Some(Holder::Seccomp),
    };
    let adviser = Adviser::new(policy, &HostFiles);
    let answer = endpoint_answer(&adviser, passage, &checked, held_by);
    let by_name = matches!(named, Host::Name(_)) && held_by == Some(Holder::Proxy);
    let note = note.or(answer.note.clone());
    let note = note.or_else(|| found(policy).filter(|_| by_name && answer.allowed));
    let connect = Answer { note, ..answer };
    let default = match passage {
        Passage::Closed(Closed::Host, _) => "no entry allows it",
        _ => "there is no network by default",
    };
    Ok(HostReport { kind: "host", target, note: None, connect, default })
}

/// What is to be known of loopback in a run that has one of its own.
const OWN_LOOPBACK: &str = "loopback is the run's own: what the host serves on its loopback is reached at \
    the ports of `hostPorts`, and at no other";

/// That an answer is about `ports` alone, if there are any.
fn at(ports: impl Iterator<Item = u16>) -> Option<String> {
    let ports: Vec<_> = ports.map(|port| port.to_string()).collect();
    match ports.as_slice() {
        [] => None,
        [port] => Some(format!("open at port {port} alone")),
        ports => Some(format!("open at the ports {} alone", ports.join(", "))),
    }
}

/// Who holds what is said about loopback, as `policy plan` has it.
#[cfg(target_os = "linux")]
fn fence(policy: &ResolvedPolicy) -> Holder {
    match crate::linux::namespace::for_policy(&policy.network).1 {
        crate::plan::NamespaceSupport::Available => Holder::NamespaceAndBroker,
        _ => Holder::LandlockAndBroker,
    }
}

#[cfg(not(target_os = "linux"))]
fn fence(_: &ResolvedPolicy) -> Holder {
    Holder::LandlockAndBroker
}

/// How a name is found on this host.
#[cfg(target_os = "linux")]
fn found(policy: &ResolvedPolicy) -> Option<String> {
    use crate::plan::{FOUND, NOT_FOUND, NamespaceSupport};
    match crate::linux::namespace::for_policy(&policy.network).1 {
        NamespaceSupport::Available => Some(FOUND.to_owned()),
        NamespaceSupport::Refused(why) => Some(format!("{NOT_FOUND} ({why})")),
        NamespaceSupport::Unasked => None,
    }
}

#[cfg(not(target_os = "linux"))]
fn found(_: &ResolvedPolicy) -> Option<String> {
    None
}

/// What is said about an endpoint; `path` is that of a Unix socket.
fn endpoint_answer(
    adviser: &Adviser,
    passage: Passage<'_>,
    path: &str,
    held_by: Option<Holder>,
) -> Answer {
    let rule = passage.line().map(|Line { origin, value }| {
        let Origin { file, line, key } = origin.clone();
        RuleRef { file, line, key, text: value.to_string() }
    });
    let (mut reason, mut suggested_grant, mut note) = (None, None, None);
    if let Passage::Closed(closed, line) = passage {
        reason = Some(if rule.is_some() { Reason::DenyMatch } else { Reason::AllowMiss });
        match adviser.endpoint((Use::Connect, closed), line, path) {
            Ok(grant) => suggested_grant = Some(grant),
            Err(obstacle) => note = Some(obstacle.why().into_owned()),
        }
    }
    Answer {
        allowed: passage.is_open(),
        rule,
        reason,
        suggested_grant,
        held_by: held_by.filter(|_| cfg!(target_os = "linux")),
        note,
    }
}

fn host_text(report: &HostReport<'_>) -> String {
    let mut text = String::new();
    line(&mut text, format_args!("{}", report.target));
    if let Some(note) = report.note {
        line(&mut text, format_args!("  {note}"));
    }
    answer_text(&mut text, "connect", &report.connect, report.default);
    text
}
