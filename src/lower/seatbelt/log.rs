//! What the kernel writes to the unified log about a denial, read back.
//!
//! Nothing documents its form: `Sandbox: NAME(PID) deny(1) OPERATION TARGET`, and behind it, on a line of its
//! own, the message of the rule. Of denials that are alike the first is written, and then `N duplicate
//! reports for` them.

use serde::Deserialize;

use super::text::quoted;
use crate::policy::{Access, Decider, FsView, Reason as PolicyReason, ResolvedPolicy, Verdict};
use crate::trap::{Adviser, Denial, Denied, Kind, Operation, Process, Reason, RuleRef};

/// One line of the log about denials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The process.
    pub pid: i32,
    /// Its name, of which the kernel keeps the first few letters.
    pub name: String,
    /// What was denied, as profiles call it.
    pub operation: String,
    /// The path, the address or the name; none where an operation has none.
    pub target: Option<String>,
    /// How many denials the line is about.
    pub count: u64,
}

/// The arguments of log(1) that have it write what the rules with the message `tag` deny, a JSON object a
/// line.
#[must_use]
pub fn arguments(tag: &str) -> [String; 5] {
    // What else is written to the log can end in the same words; the kernel says who writes.
    let predicate = format!(
        "processID == 0 AND senderImagePath ENDSWITH \"/Sandbox\" AND eventMessage ENDSWITH {}",
        quoted(tag)
    );
    ["stream", "--style", "ndjson", "--predicate", &predicate].map(str::to_owned)
}

/// The profile of a process that is denied reading `path` and nothing else, with the message `tag`: what it
/// is denied appears in the log when the log is read.
#[must_use]
pub fn mark(path: &str, tag: &str) -> String {
    let rules = [
        "(version 1)".to_owned(),
        super::rule("allow", "default", &[], None),
        super::rule("deny", "file-read-data", &[&format!("(literal {})", quoted(path))], Some(tag)),
    ];
    rules.join("\n") + "\n"
}

/// Reads a line of log(1); `None` where it is about anything else than a denial with the message `tag`.
#[must_use]
pub fn parse(line: &[u8], tag: &str) -> Option<Entry> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Line {
        event_message: String,
    }
    let line: Line = serde_json::from_slice(line).ok()?;
    let said = line.event_message.strip_suffix(tag)?.strip_suffix('\n')?;
    let (count, said) = match said.split_once(" duplicate report") {
        Some((count, rest)) if count.bytes().all(|byte| byte.is_ascii_digit()) => {
            (count.parse().ok()?, rest.strip_prefix('s').unwrap_or(rest).strip_prefix(" for ")?)
        }
        _ => (1, said),
    };
    // A name may hold anything, but is short; a path comes last.
    let (who, what) = said.strip_prefix("Sandbox: ")?.split_once(") deny(")?;
    let (name, pid) = who.rsplit_once('(')?;
    let (_, what) = what.split_once(") ")?;
    let (operation, target) = match what.split_once(' ') {
        Some((operation, target)) => (operation, Some(target.to_owned())),
        None => (what, None),
    };
    Some(Entry {
        pid: pid.parse().ok()?,
        name: name.to_owned(),
        operation: operation.to_owned(),
        target,
        count,
    })
}

/// Turns lines of the log into records.
pub struct Reader {
    decider: Decider,
    adviser: Adviser,
}

impl Reader {
    /// A reader that knows the policy of the run.
    #[must_use]
    pub fn new(policy: &ResolvedPolicy, view: &dyn FsView) -> Reader {
        Reader { decider: Decider::new(policy), adviser: Adviser::new(policy, view) }
    }

    /// The record; `None` where there is no kind for it: what is neither a file nor the network nor another
    /// process's object is left to the log.
    #[must_use]
    pub fn denial(&self, entry: &Entry) -> Option<Denial> {
        let (kind, operation) = kind(&entry.operation)?;
        let target = entry.target.clone();
        let is_path = target.as_ref().is_some_and(|target| target.starts_with('/'));
        let (path, target) = if is_path { (target, None) } else { (None, target) };
        let mut denial = Denial {
            kind,
            operation,
            path,
            requested_path: None,
            old_path: None,
            new_path: None,
            target,
            syscall: None,
            errno: Some("EPERM"),
            flags: Vec::new(),
            arguments: vec![("operation", entry.operation.clone())],
            reason: None,
            suggested_grant: None,
            rule: None,
            process: Process { pid: entry.pid, exe: entry.name.clone(), cwd: String::new() },
            message: None,
        };
        match kind {
            Kind::Filesystem => self.explain(&mut denial)?,
            _ if entry.operation == "mach-lookup" => {
                denial.message = Some("`macos.allowMachLookup` opens services by name".to_owned());
            }
            _ => {}
        }
        Some(denial)
    }

    /// Says which rule denies a path, and which entry would allow it.
    fn explain(&self, denial: &mut Denial) -> Option<()> {
        let path = denial.path.clone()?;
        let access = match denial.operation {
            Operation::Write => Access::Write,
            _ => Access::Read,
        };
        let Verdict::Deny { rule, reason } = self.decider.decide(access, path.as_bytes()) else {
            let message = "the policy allows it, and the sandbox of macOS cannot: see the README";
            denial.message = Some(message.to_owned());
            return Some(());
        };
        denial.reason = Some(match reason {
            PolicyReason::AllowMiss => Reason::AllowMiss,
            PolicyReason::DenyMatch => Reason::DenyMatch,
        });
        denial.rule = rule.map(RuleRef::from);
        let denied = Denied {
            operation: denial.operation,
            path: path.as_bytes(),
            rule,
            others: &[],
            link: false,
        };
        match self.adviser.path(&self.decider, &denied) {
            Ok(grant) => denial.suggested_grant = Some(grant),
            Err(obstacle) => denial.message = Some(obstacle.why().into_owned()),
        }
        Some(())
    }
}

/// The kind of record for an operation of profiles.
fn kind(operation: &str) -> Option<(Kind, Operation)> {
    let starts = |prefix: &str| operation.starts_with(prefix);
    Some(match operation {
        _ if starts("file-read") || starts("file-test") => (Kind::Filesystem, Operation::Read),
        "file-map-executable" => (Kind::Filesystem, Operation::Execute),
        _ if starts("process-exec") => (Kind::Filesystem, Operation::Execute),
        _ if starts("file-") => (Kind::Filesystem, Operation::Write),
        "network-outbound" => (Kind::Network, Operation::Connect),
        "network-bind" => (Kind::Network, Operation::Bind),
        "network-inbound" => (Kind::Network, Operation::Listen),
        "system-socket" => (Kind::Network, Operation::Socket),
        "mach-lookup" => (Kind::Ipc, Operation::Connect),
        _ if starts("ipc-") && operation.contains("-read") => (Kind::Ipc, Operation::Read),
        _ if starts("ipc-") => (Kind::Ipc, Operation::Write),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Format, MemoryTree, Place, merge, parse as parse_policy, resolve};
    use serde_json::{Value, json};
    use std::time::UNIX_EPOCH;

    const TAG: &str = "work.0123456789abcdef";

    /// A line as log(1) writes it.
    fn line(message: &str) -> Vec<u8> {
        let text = format!("{message}\n{TAG}");
        json!({"traceID": 1, "eventMessage": text, "processID": 0, "senderImagePath":
            "/System/Library/Extensions/Sandbox.kext/Contents/MacOS/Sandbox", "messageType": "Error"})
        .to_string()
        .into_bytes()
    }

    fn entry(pid: i32, name: &str, operation: &str, target: Option<&str>, count: u64) -> Entry {
        let (name, operation) = (name.to_owned(), operation.to_owned());
        Entry { pid, name, operation, target: target.map(str::to_owned), count }
    }

    #[test]
    fn a_denial_is_read_as_the_kernel_writes_it() {
        for (message, expected) in [
            (
                "Sandbox: cat(41462) deny(1) file-read-data /Users/u/.zshrc",
                entry(41462, "cat", "file-read-data", Some("/Users/u/.zshrc"), 1),
            ),
            (
                "Sandbox: curl(13590) deny(1) network-outbound remote:*:443",
                entry(13590, "curl", "network-outbound", Some("remote:*:443"), 1),
            ),
            ("Sandbox: a b(10) deny(1) signal", entry(10, "a b", "signal", None, 1)),
            (
                "Sandbox: x (y)(7) deny(1) file-write-create /a (1)/b) deny(2) c\nd",
                entry(7, "x (y)", "file-write-create", Some("/a (1)/b) deny(2) c\nd"), 1),
            ),
            (
                "1 duplicate report for Sandbox: ls(3) deny(1) file-read-data /w",
                entry(3, "ls", "file-read-data", Some("/w"), 1),
            ),
            (
                "12 duplicate reports for Sandbox: go(9) deny(1) file-write-data /w/x",
                entry(9, "go", "file-write-data", Some("/w/x"), 12),
            ),
        ] {
            assert_eq!(parse(&line(message), TAG), Some(expected), "{message}");
        }
    }

    #[test]
    fn anything_else_is_none() {
        let other = |message: &str| json!({ "eventMessage": message }).to_string().into_bytes();
        for bytes in [
            b"Filtering the log data using \"processID == 0\"".to_vec(),
            b"{}".to_vec(),
            b"{\"eventMessage\":1}".to_vec(),
            b"\xff".to_vec(),
            Vec::new(),
            other("Sandbox: cat(1) deny(1) file-read-data /x"),
            other("Sandbox: cat(1) deny(1) file-read-data /x\nwork.0000000000000000"),
            other(&format!("Sandbox: cat(1) deny(1) file-read-data /x {TAG}")),
            line("System Policy: cat(1) deny(1) file-read-data /x"),
            line("Sandbox: cat(1) allow file-read-data /x"),
            line("Sandbox: cat(x) deny(1) file-read-data /x"),
            line("Sandbox: cat deny(1) file-read-data /x"),
            line("-1 duplicate reports for Sandbox: cat(1) deny(1) file-read-data /x"),
            line(""),
        ] {
            assert_eq!(parse(&bytes, TAG), None, "{}", String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn what_is_asked_for_is_one_predicate() {
        let [.., predicate] = arguments(TAG);
        assert!(predicate.ends_with(&format!("eventMessage ENDSWITH \"{TAG}\"")), "{predicate}");
        let profile = mark("/private/etc/hosts", TAG);
        assert!(profile.contains(&format!("(with message \"{TAG}\")")), "{profile}");
    }

    fn record(operation: &str, target: Option<&str>) -> Option<Value> {
        let policy = r#"{"filesystem": {"allowWrite": ["."], "denyRead": ["~/.ssh"], "denyWrite": [".git/hooks"]}}"#;
        let document = parse_policy("p.json", policy.as_bytes(), Format::Json).unwrap();
        let mut tree = MemoryTree::new();
        tree.dir("/w/.git/hooks").dir("/Users/u/.ssh");
        let place = Place { cwd: "/w", home: Some("/Users/u"), view: &tree };
        let policy = resolve(&merge(vec![document]), &place).unwrap();
        let denial = Reader::new(&policy, &tree).denial(&entry(7, "sh", operation, target, 1))?;
        Some(serde_json::from_str(&denial.json_line(UNIX_EPOCH, Default::default(), 0)).unwrap())
    }

    #[test]
    fn a_record_says_which_rule_denies_and_what_would_allow() {
        let hook = record("file-write-create", Some("/w/.git/hooks/pre-commit")).unwrap();
        assert_eq!(
            hook,
            json!({
                "kind": "filesystem", "code": "FILESYSTEM_DENIED", "state": "info", "query_id": "0",
                "operation": "write", "path": "/w/.git/hooks/pre-commit", "errno": "EPERM",
                "arguments": {"operation": "file-write-create"}, "reason": "deny_match",
                "suggested_grant": {"allowWrite": "/w/.git/hooks/pre-commit"},
                "rule": {"file": "p.json", "line": 1, "key": "filesystem.denyWrite[0]", "text": ".git/hooks"},
                "mechanism": "seatbelt", "process": {"pid": 7, "exe": "sh", "cwd": ""}, "ts": 0.0
            })
        );
        let outside = record("file-write-data", Some("/etc/hosts")).unwrap();
        assert_eq!(outside["reason"], "allow_miss");
        assert_eq!(outside["suggested_grant"], json!({"allowWrite": "/etc/hosts"}));
        let key = record("file-read-data", Some("/Users/u/.ssh/id")).unwrap();
        assert_eq!((&key["operation"], &key["reason"]), (&json!("read"), &json!("deny_match")));
        // The sandbox makes no hard links.
        let link = record("file-link", Some("/w/a")).unwrap();
        assert_eq!((link.get("reason"), link["operation"].as_str()), (None, Some("write")));
        assert!(link["message"].is_string(), "{link}");
    }

    #[test]
    fn the_network_and_services_have_records_and_the_rest_has_none() {
        for (operation, target, expected) in [
            (
                "network-outbound",
                Some("1.1.1.1:443"),
                json!(["network", "connect", null, "1.1.1.1:443"]),
            ),
            (
                "network-outbound",
                Some("/var/run/x"),
                json!(["network", "connect", "/var/run/x", null]),
            ),
            ("network-bind", Some("local:*:80"), json!(["network", "bind", null, "local:*:80"])),
            ("network-inbound", None, json!(["network", "listen", null, null])),
            ("system-socket", None, json!(["network", "socket", null, null])),
            (
                "mach-lookup",
                Some("com.apple.trustd"),
                json!(["ipc", "connect", null, "com.apple.trustd"]),
            ),
            ("ipc-posix-shm-read-data", Some("x"), json!(["ipc", "read", null, "x"])),
            (
                "process-exec*",
                Some("/Users/u/.ssh/x"),
                json!(["filesystem", "execute", "/Users/u/.ssh/x", null]),
            ),
        ] {
            let record = record(operation, target).unwrap();
            let told =
                json!([record["kind"], record["operation"], record["path"], record["target"]]);
            assert_eq!(told, expected, "{operation}");
        }
        for (operation, target) in
            [("signal", None), ("sysctl-write", Some("kern.x")), ("file-write-data", None)]
        {
            assert_eq!(record(operation, target), None, "{operation}");
        }
    }
}
