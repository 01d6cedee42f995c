//! Merges documents: lists append without duplicates, a later scalar replaces an earlier one.
//!
//! The merger is associative, and merging a document with itself changes nothing. No later
//! document can shorten a list, so none can take back a denial.

use std::collections::HashSet;
use std::hash::Hash;

use super::document::{Document, Ignored, Policy};
use super::rule::Located;

/// Merges documents in order; none gives the empty policy, which denies every write and opens no
/// network. Of two equal entries the first keeps its place and its origin.
pub fn merge(docs: Vec<Document>) -> Policy {
    let mut policy = Document::default();
    for doc in docs {
        append(&mut policy, doc);
    }
    deduplicate(&mut policy);
    policy
}

fn append(into: &mut Document, doc: Document) {
    let (a, b) = (&mut into.filesystem, doc.filesystem);
    a.allow_write.extend(b.allow_write);
    a.deny_write.extend(b.deny_write);
    a.deny_write_always.extend(b.deny_write_always);
    a.allow_read.extend(b.allow_read);
    a.deny_read.extend(b.deny_read);
    a.deny_read_always.extend(b.deny_read_always);
    replace(&mut a.git_dir, b.git_dir);

    let (a, b) = (&mut into.network, doc.network);
    replace(&mut a.allow_network, b.allow_network);
    extend(&mut a.allowed_domains, b.allowed_domains);
    extend(&mut a.denied_domains, b.denied_domains);
    replace(&mut a.proxy_environment, b.proxy_environment);
    replace(&mut a.http_proxy_port, b.http_proxy_port);
    replace(&mut a.socks_proxy_port, b.socks_proxy_port);
    a.host_ports.extend(b.host_ports);
    a.expose.extend(b.expose);
    replace(&mut a.allow_local_binding, b.allow_local_binding);
    a.allow_unix_sockets.extend(b.allow_unix_sockets);
    replace(&mut a.allow_all_unix_sockets, b.allow_all_unix_sockets);

    let (a, b) = (&mut into.limits, doc.limits);
    replace(&mut a.memory, b.memory);
    replace(&mut a.pids, b.pids);
    replace(&mut a.cpu, b.cpu);
    replace(&mut a.time, b.time);

    let (a, b) = (&mut into.macos, doc.macos);
    a.allow_mach_lookup.extend(b.allow_mach_lookup);
    replace(&mut a.allow_trustd, b.allow_trustd);
    replace(&mut a.allow_apple_events, b.allow_apple_events);
    replace(&mut a.allow_pty, b.allow_pty);
    replace(&mut a.log_tag, b.log_tag);

    let (a, b) = (&mut into.windows, doc.windows);
    replace(&mut a.app_container_mode, b.app_container_mode);
    replace(&mut a.allow_loopback, b.allow_loopback);

    into.ignored.extend(doc.ignored);
}

fn deduplicate(policy: &mut Document) {
    let lists = &mut policy.filesystem;
    for list in [
        &mut lists.allow_write,
        &mut lists.deny_write,
        &mut lists.deny_write_always,
        &mut lists.allow_read,
        &mut lists.deny_read,
        &mut lists.deny_read_always,
        &mut policy.network.allow_unix_sockets,
    ] {
        unique(list);
    }
    for list in [&mut policy.network.allowed_domains, &mut policy.network.denied_domains] {
        unique(list.as_mut().unwrap_or(&mut Vec::new()));
    }
    unique(&mut policy.network.host_ports);
    unique(&mut policy.network.expose);
    unique(&mut policy.macos.allow_mach_lookup);
    let mut seen: HashSet<Ignored> = HashSet::new();
    policy.ignored.retain(|ignored| seen.insert(ignored.clone()));
}

/// A later value replaces an earlier one, an absent one leaves it.
fn replace<T>(a: &mut Option<T>, b: Option<T>) {
    if b.is_some() {
        *a = b;
    }
}

/// Appends lists whose presence means something.
fn extend<T>(a: &mut Option<Vec<T>>, b: Option<Vec<T>>) {
    match (a.as_mut(), b) {
        (Some(a), Some(b)) => a.extend(b),
        (None, b) => *a = b,
        (Some(_), None) => {}
    }
}

/// Keeps the first of equal values.
fn unique<T: Eq + Hash>(list: &mut Vec<Located<T>>) {
    if list.len() > 1 {
        let mut seen = HashSet::with_capacity(list.len());
        let first: Vec<bool> = list.iter().map(|entry| seen.insert(&entry.value)).collect();
        let mut first = first.into_iter();
        list.retain(|_| first.next().unwrap_or(true));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Format, parse};
    use super::*;

    fn merged(texts: &[&str]) -> Policy {
        let parsed = texts.iter().zip(["a", "b", "c"]);
        let docs = parsed.map(|(text, name)| parse(name, text.as_bytes(), Format::Json).unwrap());
        merge(docs.collect())
    }

    #[test]
    fn lists_append_and_scalars_replace() {
        let policy = merged(&[
            r#"{"filesystem": {"denyRead": ["/a", "/b"]}, "network": {"allowNetwork": true}}"#,
            r#"{"filesystem": {"denyRead": ["/c", "/a", {"literal": "/a"}]},
                "network": {"allowNetwork": false}}"#,
            r#"{"network": {"allowedDomains": []}}"#,
        ]);
        let list: Vec<String> = policy
            .filesystem
            .deny_read
            .iter()
            .map(|entry| format!("{} {}", entry.value.text, entry.origin))
            .collect();
        let expected = [
            "/a a:1 filesystem.denyRead[0]",
            "/b a:1 filesystem.denyRead[1]",
            "/c b:1 filesystem.denyRead[0]",
            "/a b:1 filesystem.denyRead[2]",
        ];
        assert_eq!(list, expected);
        let network = policy.network.allow_network.unwrap();
        assert_eq!((network.value, network.origin.file.as_str()), (false, "b"));
        assert_eq!(policy.network.allowed_domains, Some(vec![]));
        assert_eq!(policy.network.denied_domains, None);
    }

    #[test]
    fn nothing_merged_is_the_empty_policy() {
        assert_eq!(merge(vec![]), Policy::default());
    }
}
