//! `policy`: look into policies without running anything.

use std::borrow::Cow;
use std::fmt::{self, Write};

use serde::Serialize;
use serde_json::{Value, json};

use super::args::{InspectArgs, ListArgs, PlanArgs, PolicyCommand, SchemaArgs, SchemaName};
use super::error::{Error, Failure};
use super::output;
use super::{HostFiles, plan, resolve, why};
use crate::plan::AS_GOOD_AS_THE_HOST;
use crate::policy::{Access, Daemons, Decider, Effect, Origin, Pattern, ResolvedPolicy, shipped};
use crate::trap::{self, Code, printable};

/// Does what `command` says.
///
/// # Errors
///
/// An error when a policy cannot be read, or standard output cannot be written.
pub fn policy(command: &PolicyCommand) -> Result<u8, Error> {
    match command {
        PolicyCommand::Validate(args) => validate(args),
        PolicyCommand::Resolve(args) => print_resolved(args),
        PolicyCommand::Plan(args) => plan::print(resolved(&args.inspect)?, args),
        PolicyCommand::Schema(args) => schema(*args),
        PolicyCommand::List(args) => list(*args),
    }
}

/// The policy to look into. Nothing is launched here: a tool that is not found is a policy that
/// cannot be read.
pub(super) fn resolved(args: &InspectArgs) -> Result<ResolvedPolicy, Error> {
    match resolve::resolved(&args.policy, args.tool.as_deref(), &HostFiles) {
        Err(Error::Launch { program, message, .. }) => {
            Err(Failure::new(Code::PolicyIoFailed, message).in_file(program).into())
        }
        other => other,
    }
}

/// The document of `policy validate`.
#[derive(Serialize)]
struct Verdict<'a> {
    valid: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Refusal<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ignored: Option<Vec<Note<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warnings: Option<Vec<Note<'a>>>,
}

/// Why a policy is not valid.
#[derive(Serialize)]
struct Refusal<'a> {
    code: Code,
    message: &'a str,
    file: Option<&'a str>,
    line: Option<u32>,
    key: Option<&'a str>,
}

/// Something to know about a valid policy.
#[derive(Serialize)]
struct Note<'a> {
    file: &'a str,
    line: u32,
    key: &'a str,
    message: Cow<'a, str>,
}

impl<'a> Note<'a> {
    fn new(origin: &'a Origin, message: impl Into<Cow<'a, str>>) -> Note<'a> {
        let message = message.into();
        Note { file: &origin.file, line: origin.line, key: &origin.key, message }
    }
}

const LINKED: &str = "the denied file has other names (hard links)";
/// Less memory than any program starts with, in bytes.
const LEAST_MEMORY: u64 = 1 << 20;
const TOO_LITTLE: &str = "no program starts in so little memory; without a unit, these are bytes";

/// What to know about a valid policy.
fn warnings<'a>(policy: &'a ResolvedPolicy, daemons: &Daemons) -> Vec<Note<'a>> {
    let linked = policy.linked.iter().map(|l| Note::new(&l.origin, LINKED));
    let sockets = policy.network.allow_unix_sockets.iter().filter(
        |rule| matches!(&rule.pattern, Pattern::Subtree(path) if daemons.contains(path.as_bytes())),
    );
    let sockets = sockets.map(|rule| Note::new(&rule.origin, AS_GOOD_AS_THE_HOST));
    let decider = Decider::new(policy);
    let writes = policy.rules.iter().filter(|rule| {
        rule.access == Access::Write && rule.effect == Effect::Allow && !rule.origin.is_built_in()
    });
    let nowhere = writes.filter_map(|rule| {
        let path = match &rule.pattern {
            Pattern::Subtree(path) => Cow::Borrowed(path),
            Pattern::Glob(glob) => Cow::Owned(format!("{}/name", glob.anchor())),
            Pattern::Name(_) => return None,
        };
        let missing = decider.missing_directory(&HostFiles, &path)?;
        Some(Note::new(&rule.origin, why::nowhere(missing)))
    });
    // gitDir states several paths in one line, and a brace as well.
    let mut nowhere: Vec<_> = nowhere.collect();
    nowhere.dedup_by(|next, one| (next.file, next.line, next.key) == (one.file, one.line, one.key));
    let memory = policy.limits.memory.as_ref().filter(|memory| memory.value < LEAST_MEMORY);
    let memory = memory.map(|memory| Note::new(&memory.origin, TOO_LITTLE));
    linked.chain(sockets).chain(nowhere).chain(memory).collect()
}

/// Prints whether the policies are valid together and this platform can enforce them; exit code 1
/// where not.
fn validate(args: &PlanArgs) -> Result<u8, Error> {
    let format = args.inspect.output.format;
    let checked = resolved(&args.inspect).and_then(|policy| {
        plan::check(policy.clone(), &args.accept).map_err(Error::Policy)?;
        Ok(policy)
    });
    match checked {
        Ok(policy) => {
            let ignored: Vec<_> =
                policy.ignored.iter().map(|i| Note::new(&i.origin, i.reason.as_str())).collect();
            let warnings = warnings(&policy, &resolve::daemons());
            let mut text = "valid\n".to_owned();
            for (what, notes) in [("ignored", &ignored), ("warning", &warnings)] {
                for note in notes {
                    let origin = format!("{}:{} {}", note.file, note.line, note.key);
                    line(&mut text, format_args!("{what}: {origin}: {}", note.message));
                }
            }
            let verdict = Verdict {
                valid: true,
                error: None,
                ignored: Some(ignored),
                warnings: Some(warnings),
            };
            output::document(format, &verdict, || text)?;
            Ok(0)
        }
        Err(Error::Policy(failure)) => {
            let error = Refusal {
                code: failure.code,
                message: &failure.message,
                file: failure.file.as_deref(),
                line: failure.line,
                key: failure.key.as_deref(),
            };
            let verdict =
                Verdict { valid: false, error: Some(error), ignored: None, warnings: None };
            output::document(format, &verdict, || {
                let text = Error::Policy(failure.clone()).into_trap().text();
                text.replacen("landstrip", "invalid", 1)
            })?;
            Ok(1)
        }
        Err(error) => Err(error),
    }
}

/// Adds a line that is safe for a terminal.
pub(super) fn line(text: &mut String, what: fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _infallible = writeln!(text, "{}", printable(&what.to_string()));
}

/// Prints the merged policy with its paths resolved and the origin of every rule.
fn print_resolved(args: &InspectArgs) -> Result<u8, Error> {
    let policy = resolved(args)?;
    output::document(args.output.format, &policy, || resolved_text(&policy))?;
    Ok(0)
}

/// One line for each rule and for each value that is set.
fn resolved_text(policy: &ResolvedPolicy) -> String {
    let mut text = String::new();
    line(&mut text, format_args!("start in {}", policy.cwd));
    for rule in policy.rules.iter().chain(&policy.network.allow_unix_sockets) {
        let effect = match (rule.effect, rule.always) {
            (Effect::Allow, _) => "allow",
            (Effect::Deny, false) => "deny",
            (Effect::Deny, true) => "always deny",
        };
        let access = match rule.access {
            Access::Read => "read",
            Access::Write => "write",
        };
        let (path, note) = match &rule.pattern {
            Pattern::Subtree(path) => (path.clone(), ""),
            Pattern::Name(path) => (path.clone(), " (a link: the name alone)"),
            Pattern::Glob(glob) => {
                let anchor = glob.anchor().trim_end_matches('/');
                (format!("{anchor}/{}", glob.pattern()), " (glob)")
            }
        };
        line(&mut text, format_args!("{effect} {access} {path}{note}: {}", rule.origin));
    }
    let network = &policy.network;
    match &network.allow_network_origin {
        Some(at) => {
            line(&mut text, format_args!("allowNetwork = {}: {at}", network.allow_network));
        }
        None => line(&mut text, format_args!("allowNetwork = {}", network.allow_network)),
    }
    // The rest is a value each, at the place that set it.
    let rest = json!({ "network": policy.network, "limits": policy.limits,
        "macos": policy.macos, "windows": policy.windows });
    values(&mut text, "", &rest);
    text
}

/// Prints every value of a policy that has an origin.
fn values(text: &mut String, name: &str, value: &Value) {
    match value {
        Value::Object(fields) => match (fields.get("value"), fields.get("origin")) {
            (Some(value), Some(origin)) => {
                let file = origin["file"].as_str().unwrap_or_default();
                let number = &origin["line"];
                let key = origin["key"].as_str().unwrap_or(name);
                line(text, format_args!("{key} = {value}: {file}:{number}"));
            }
            _ => fields.iter().for_each(|(name, value)| values(text, name, value)),
        },
        Value::Array(items) => items.iter().for_each(|item| values(text, name, item)),
        _ => {}
    }
}

/// Prints a schema, as it stands in `config/`.
fn schema(args: SchemaArgs) -> Result<u8, Error> {
    let text = match args.name {
        SchemaName::Policy => shipped::SCHEMA,
        SchemaName::Trap => trap::SCHEMA,
    };
    output::bytes(text.as_bytes())?;
    Ok(0)
}

/// One entry of `policy list`.
#[derive(Serialize)]
struct Entry {
    name: &'static str,
    summary: &'static str,
    policy: Value,
}

/// Prints the policies that ship with the program.
fn list(args: ListArgs) -> Result<u8, Error> {
    let documents = shipped::ALL.iter().map(|shipped| Entry {
        name: shipped.name,
        summary: shipped.summary,
        policy: serde_json::from_str(shipped.text).unwrap_or_default(),
    });
    let text = || {
        let lines = shipped::ALL.iter();
        lines.map(|shipped| format!("{:<12} {}\n", shipped.name, shipped.summary)).collect()
    };
    output::document(args.output.format, &documents.collect::<Vec<_>>(), text)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use crate::policy::{Access, Decider, Format, MemoryTree, Place};
    use crate::policy::{Verdict, merge, parse, resolve};
    use crate::trap::{Adviser, Denied, Operation};

    #[test]
    fn the_policy_of_the_readme_is_valid() {
        let readme = include_str!("../../README.md");
        let (_, text) = readme.split_once("```json\n").unwrap();
        let (text, _) = text.split_once("```").unwrap();
        let policy = merge(vec![parse("README.md", text.as_bytes(), Format::Json).unwrap()]);
        assert_eq!(policy.filesystem.allow_write.len(), 2);
        assert_eq!(policy.ignored, []);
    }

    /// What a trap suggests, taken as a policy, allows what was denied: also for names that the
    /// policy language would read otherwise.
    #[test]
    fn suggested_grants_allow_what_they_say() {
        let place = Place { cwd: "/start", home: Some("/home/u"), view: &MemoryTree::new() };
        for name in ["a", "*.[x]?", "{a,b}", "$HOME", "~", "~u", "-", " a ", "a\\b", "a\nb", "é"] {
            let path = format!("/start/{name}");
            for (access, operation) in
                [(Access::Write, Operation::Write), (Access::Read, Operation::Read)]
            {
                let denied = r#"{"filesystem": {"denyRead": ["/start"], "denyWrite": ["/start"]}}"#;
                let resolved = |texts: &[&str]| {
                    let parsed = |text: &&str| parse("p", text.as_bytes(), Format::Json).unwrap();
                    resolve(&merge(texts.iter().map(parsed).collect()), &place).unwrap()
                };
                let policy = resolved(&[denied]);
                let decider = Decider::new(&policy);
                let denied_path = Denied {
                    operation,
                    path: path.as_bytes(),
                    rule: decider.decide(access, path.as_bytes()).rule(),
                    others: &[],
                    link: false,
                };
                let adviser = Adviser::new(&policy, &MemoryTree::new());
                let grant = adviser.path(&decider, &denied_path).unwrap().document();
                let decider = Decider::new(&resolved(&[denied, &grant]));
                let allowed = |path: &str| {
                    matches!(decider.decide(access, path.as_bytes()), Verdict::Allow(_))
                };
                assert!(allowed(&path) && !allowed("/start/b"), "{grant}");
            }
        }
    }
}
