//! Other names that mounts give to what a policy denies.
//!
//! A path says which name is meant, a denial is about the object. Where the same directory is mounted
//! twice (a bind mount, a subvolume, a container's volume), the denial is repeated for each name.

use crate::policy::{Effect, Pattern, Rule};

/// One line of `/proc/self/mountinfo`, see proc_pid_mountinfo(5).
#[derive(Debug)]
pub struct Mount {
    /// Device number, `major:minor`.
    device: String,
    /// The directory of the file system that is mounted.
    root: String,
    /// Where; the nearest directory above whose path is UTF-8, if this one's is not.
    pub point: String,
    /// The type of the file system.
    pub kind: String,
    /// The path is that of the mount, and not of a directory above.
    exact: bool,
}

impl Mount {
    /// Whether all of the file system is mounted, at exactly this path.
    pub fn whole(&self) -> bool {
        self.exact && self.root == "/"
    }
}

/// The mounts that the text of `/proc/self/mountinfo` shows, in its order.
pub fn parse(mountinfo: &[u8]) -> Vec<Mount> {
    mountinfo.split(|&byte| byte == b'\n').filter_map(mount).collect()
}

fn mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ').skip(2);
    let device = String::from_utf8_lossy(fields.next()?).into_owned();
    let (root, whole_root) = utf8(fields.next()?);
    let (point, whole_point) = utf8(fields.next()?);
    // The optional fields before the dash vary in number.
    let kind = fields.skip_while(|&field| field != b"-").nth(1)?;
    let kind = String::from_utf8_lossy(kind).into_owned();
    Some(Mount { device, root, point, kind, exact: whole_root && whole_point })
}

/// A path of mountinfo, and whether it is all of it: what is not UTF-8 ends at the directory before.
fn utf8(field: &[u8]) -> (String, bool) {
    let bytes = unescaped(field);
    match String::from_utf8(bytes) {
        Ok(path) => (path, true),
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let bytes = &error.as_bytes()[..valid];
            let end = bytes.iter().rposition(|&byte| byte == b'/').unwrap_or(0).max(1);
            (String::from_utf8_lossy(&bytes[..end.min(bytes.len())]).into_owned(), false)
        }
    }
}

/// Undoes `\040` and the like in a path of mountinfo; `None` for what is not UTF-8.
pub fn unescape(text: &str) -> Option<String> {
    String::from_utf8(unescaped(text.as_bytes())).ok()
}

fn unescaped(mut rest: &[u8]) -> Vec<u8> {
    if !rest.contains(&b'\\') {
        return rest.to_vec();
    }
    let mut out = Vec::with_capacity(rest.len());
    while let Some((&byte, after)) = rest.split_first() {
        let code = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(code) if byte == b'\\' => {
                out.push(code);
                rest = &after[3..];
            }
            _ => {
                out.push(byte);
                rest = after;
            }
        }
    }
    out
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

/// The denials of literal paths in `rules`, for the other names that `mounts` give to those paths. Globs
/// are not repeated: they are about names.
pub fn aliases(rules: &[Rule], mounts: &[Mount]) -> Vec<Rule> {
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
                (Some(rest), _) if other.exact => join(&other.point, rest),
                // Its own name cannot be told.
                (Some(_), _) => other.point.clone(),
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
        let found = aliases(&[rule], &parse(MOUNTS.as_bytes())).into_iter();
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
