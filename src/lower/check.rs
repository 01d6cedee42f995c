//! Whether a policy that was resolved earlier, and stored, still means what it meant.

use std::collections::HashMap;

use super::Refusal;
use super::spec::ENFORCEMENT;
use crate::policy::path::{MAX_PATH_BYTES, Walker, is_within};
use crate::policy::resolve::MAX_RULES;
use crate::policy::{Access, Effect, FsView, Kind, Linked, Origin, Pattern, ResolvedPolicy, Rule};

/// Checks what resolving makes true of every policy, and the decision relies on.
///
/// # Errors
///
/// The rule that could not come from resolving a policy.
pub fn well_formed(policy: &ResolvedPolicy) -> Result<(), Refusal> {
    let refuse = |message| Err(Refusal::new(annotation(), message));
    if policy.rules.len() > MAX_RULES {
        return refuse(format!("the policy has more than {MAX_RULES} rules"));
    }
    if !is_normal(&policy.cwd) {
        return refuse(format!("the start directory {:?} is not absolute and normal", policy.cwd));
    }
    for rule in policy.rules.iter().chain(&policy.network.allow_unix_sockets) {
        let path = place(rule);
        if !is_normal(path) {
            let at = &rule.origin;
            return refuse(format!("{at}: the path {path:?} is not absolute and normal"));
        }
        let name = matches!(rule.pattern, Pattern::Name(_));
        let denies = rule.effect == Effect::Deny;
        if (rule.always && !denies) || (name && (!denies || rule.access == Access::Read)) {
            return refuse(format!("{}: no policy resolves to such a rule", rule.origin));
        }
    }
    Ok(())
}

fn annotation() -> String {
    format!("annotations.{ENFORCEMENT}")
}

/// The path that a rule is about, or that its glob is matched below.
fn place(rule: &Rule) -> &str {
    match &rule.pattern {
        Pattern::Subtree(path) | Pattern::Name(path) => path,
        Pattern::Glob(glob) => glob.anchor(),
    }
}

/// Absolute, and without what a resolved path never has.
fn is_normal(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else { return false };
    let name = |name: &str| !matches!(name, "" | "." | "..");
    path.len() <= MAX_PATH_BYTES
        && !path.contains('\0')
        && (rest.is_empty() || rest.split('/').all(name))
}

/// The policy for a launch now: the files with other names are looked for anew, and the links on the
/// way to each rule have to be what they were.
///
/// # Errors
///
/// The line of the policy that means another path by now.
pub fn fresh(mut policy: ResolvedPolicy, view: &dyn FsView) -> Result<ResolvedPolicy, Refusal> {
    let mut kinds: HashMap<String, Kind> = HashMap::new();
    let mut kind = |path: &str| match kinds.get(path) {
        Some(kind) => kind.clone(),
        None => {
            let kind = view.kind(path);
            kinds.insert(path.to_owned(), kind.clone());
            kind
        }
    };
    let mut linked = Vec::new();
    let all = || policy.rules.iter().chain(&policy.network.allow_unix_sockets);
    // The devices are the same in every run, and where `/dev/ptmx` is a link, it is no policy's doing.
    for rule in all().filter(|rule| !rule.origin.is_built_in()) {
        let path = place(rule);
        let above = path.match_indices('/').skip(1).map(|(at, _)| &path[..at]);
        if let Some(link) = above.into_iter().find(|above| is_link(&kind(above))) {
            return Err(moved(&rule.origin, path, &format!("{link} is a symbolic link by now")));
        }
        let at = kind(path);
        let name = |other: &Rule| matches!(&other.pattern, Pattern::Name(name) if name == path);
        match (&rule.pattern, rule.effect) {
            (Pattern::Name(_), _) if !is_link(&at) => {
                return Err(moved(&rule.origin, path, "it is no symbolic link any more"));
            }
            (Pattern::Name(_), _) => leads_on(rule, path, view, all())?,
            // A denial of a link, which its own line denies by name as well, is one of the link itself.
            (Pattern::Subtree(_), Effect::Deny) if is_link(&at) && all().any(name) => {}
            _ if is_link(&at) => {
                return Err(moved(&rule.origin, path, "it is a symbolic link by now"));
            }
            (Pattern::Subtree(_), Effect::Deny) if matches!(at, Kind::File { links: 2.., .. }) => {
                let (path, origin) = (path.to_owned(), rule.origin.clone());
                linked.push(Linked { access: rule.access, path, origin });
            }
            _ => {}
        }
    }
    policy.linked = linked;
    Ok(policy)
}

fn is_link(kind: &Kind) -> bool {
    matches!(kind, Kind::Symlink(_) | Kind::SymlinkNotUtf8)
}

/// The link still leads to, or on the way to, a path that the line it belongs to denies.
fn leads_on<'a>(
    rule: &Rule,
    link: &str,
    view: &dyn FsView,
    mut rules: impl Iterator<Item = &'a Rule>,
) -> Result<(), Refusal> {
    let target = Walker::new(view, None).follow(link, "/", &rule.origin);
    let target = target.map_err(|error| moved(&rule.origin, link, &error.message))?.path;
    let belongs = |other: &Rule| {
        other.origin == rule.origin
            && !matches!(other.pattern, Pattern::Name(_))
            && is_within(place(other).as_bytes(), target.as_bytes())
    };
    if rules.any(belongs) {
        return Ok(());
    }
    Err(moved(&rule.origin, link, &format!("it leads to {target} by now")))
}

fn moved(origin: &Origin, path: &str, what: &str) -> Refusal {
    let message = format!(
        "the policy was resolved when {path} was something else: {what} (at {origin}); make the \
         bundle anew"
    );
    Refusal::new(annotation(), message)
}
