//! Other names that mounts give to what a policy denies.
//!
//! A path says which name is meant, a denial is about the object. Where the same directory is mounted
//! twice (a bind mount, a subvolume, a container's volume), the denial is repeated for each name.

use crate::policy::{Effect, Pattern, Rule};

/// One line of `/proc/self/mountinfo`, see proc_pid_mountinfo(5).
struct Mount {
    /// Device number, `major:minor`.
    device: String,
    /// The directory of the file system that is mounted.
    root: String,
    /// Where.
    point: String,
}

fn parse(line: &str) -> Option<Mount> {
    let mut fields = line.split(' ').skip(2);
    let device = fields.next()?.to_owned();
    let mut path = || fields.next().and_then(unescape);
    Some(Mount { device, root: path()?, point: path()? })
}

/// Undoes `\040` and the like in a path of mountinfo; `None` for what is not UTF-8.
pub fn unescape(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        match (byte, after.get(..3)) {
            (b'\\', Some(digits)) => {
                out.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()?);
                rest = &after[3..];
            }
            _ => {
                out.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8(out).ok()
}

/// What follows `top` in `path`: `""` for itself, `"/x"` below, `None` elsewhere.
fn below<'a>(path: &'a str, top: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(top.trim_end_matches('/'))?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

fn join(top: &str, rest: &str) -> String {
    match format!("{}{rest}", top.trim_end_matches('/')) {
        path if path.is_empty() => "/".to_owned(),
        path => path,
    }
}

/// The denials of literal paths in `rules`, for the other names that the mounts in `mountinfo` give to
/// those paths. Globs are not repeated: they are about names.
pub fn aliases(rules: &[Rule], mountinfo: &str) -> Vec<Rule> {
    let mounts: Vec<Mount> = mountinfo.lines().filter_map(parse).collect();
    let mut found = Vec::new();
    for rule in rules.iter().filter(|rule| rule.effect == Effect::Deny) {
        let Pattern::Subtree(path) = &rule.pattern else { continue };
        // The last of the deepest ones is on top.
        let holds = |mount: &&Mount| below(path, &mount.point).is_some();
        let Some(home) = mounts.iter().filter(holds).max_by_key(|m| m.point.len()) else {
            continue;
        };
        let within = join(&home.root, below(path, &home.point).unwrap_or_default());
        for other in mounts.iter().filter(|mount| mount.device == home.device) {
            let alias = match (below(&within, &other.root), below(&other.root, &within)) {
                (Some(rest), _) => join(&other.point, rest),
                // What is mounted lies inside of what is denied.
                (None, Some(_)) => other.point.clone(),
                (None, None) => continue,
            };
            if alias != *path && below(&alias, path).is_none() {
                found.push(Rule { pattern: Pattern::Subtree(alias), ..rule.clone() });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Access, Origin};

    const MOUNTS: &str = "\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
23 22 0:20 / /proc rw - proc proc rw
30 22 8:1 /home/me /srv/me rw - ext4 /dev/sda1 rw
31 22 8:1 /home/me/.ssh/keys /mnt/with\\040blank rw - ext4 /dev/sda1 rw
32 22 8:2 /home/me /other rw - ext4 /dev/sda2 rw
";

    fn aliases_of(path: &str) -> Vec<String> {
        let rule = Rule {
            access: Access::Read,
            effect: Effect::Deny,
            always: false,
            pattern: Pattern::Subtree(path.into()),
            text: path.into(),
            origin: Origin::built_in("test"),
        };
        let found = aliases(&[rule], MOUNTS).into_iter();
        found
            .map(|rule| match rule.pattern {
                Pattern::Subtree(path) => path,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn every_mount_of_the_same_directory_is_denied() {
        for (path, want) in [
            ("/home/me/.ssh", &["/srv/me/.ssh", "/mnt/with blank"][..]),
            ("/srv/me/.ssh", &["/home/me/.ssh", "/mnt/with blank"]),
            ("/mnt/with blank/a", &["/home/me/.ssh/keys/a", "/srv/me/.ssh/keys/a"]),
            ("/home/you", &[]),
            ("/other/x", &[]),
            ("/proc/1", &[]),
        ] {
            assert_eq!(aliases_of(path), want, "{path}");
        }
    }
}
