//! What the unit tests of this module share.

use super::{
    Decider, Format, MemoryTree, Place, PolicyError, ResolvedPolicy, merge, parse, resolve,
};

/// Resolves a JSON policy in `/w` with the home directory `/home/u`.
pub(crate) fn try_resolve(json: &str, tree: &MemoryTree) -> Result<ResolvedPolicy, PolicyError> {
    let doc = parse("p.json", json.as_bytes(), Format::Json)?;
    let place = Place { cwd: "/w", home: Some("/home/u"), view: tree };
    resolve(&merge(vec![doc]), &place)
}

/// As [`try_resolve`], for policies that resolve.
pub(crate) fn resolved(json: &str, tree: &MemoryTree) -> ResolvedPolicy {
    try_resolve(json, tree).unwrap()
}

/// A decider for a policy about `filesystem`, given as the inside of that section.
pub(crate) fn decider(filesystem: &str, tree: &MemoryTree) -> Decider {
    let json = format!("{{\"filesystem\":{{{filesystem}}}}}");
    Decider::new(&resolved(&json, tree))
}
