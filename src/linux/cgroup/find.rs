//! Where the cgroup hierarchies are, and where in them this process is.

use crate::plan::mounts::unescape;

/// A mounted cgroup hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// Version 2: the controllers are written in its files. Otherwise they are a mount option.
    pub unified: bool,
    /// The controllers of a hierarchy of version 1.
    pub controllers: Vec<String>,
    /// Where it is mounted.
    pub top: String,
    /// The cgroup of this process, from `top`: empty or `/a/b`; `None` where it lies outside of what
    /// is mounted.
    pub own: Option<String>,
}

/// The hierarchies that `mountinfo` shows, see proc_pid_mountinfo(5), with the place that `cgroup`
/// gives this process in each, see cgroups(7).
pub fn hierarchies(mountinfo: &str, cgroup: &str) -> Vec<Hierarchy> {
    mountinfo.lines().filter_map(|line| hierarchy(line, cgroup)).collect()
}

fn hierarchy(line: &str, cgroup: &str) -> Option<Hierarchy> {
    // The optional fields before the dash vary in number.
    let (before, after) = line.split_once(" - ")?;
    let mut after = after.split(' ');
    let unified = match after.next()? {
        "cgroup2" => true,
        "cgroup" => false,
        _ => return None,
    };
    let mut before = before.split(' ').skip(3);
    let (root, top) = (unescape(before.next()?)?, unescape(before.next()?)?);
    let controllers = match unified {
        true => Vec::new(),
        false => after.nth(1)?.split(',').map(str::to_owned).collect(),
    };
    let path = place(cgroup, unified, &controllers)?;
    let own = path.strip_prefix(root.trim_end_matches('/')).unwrap_or("/..");
    let own = own.trim_end_matches('/');
    // A cgroup namespace shows what is outside of it by dots.
    let inside = own.is_empty() || (own.starts_with('/') && !own.starts_with("/.."));
    Some(Hierarchy { unified, controllers, top, own: inside.then(|| own.to_owned()) })
}

/// The path in the line of `cgroup` about this hierarchy.
fn place<'a>(cgroup: &'a str, unified: bool, controllers: &[String]) -> Option<&'a str> {
    cgroup.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (id, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        let mut names = names.split(',');
        let this = match unified {
            true => id == "0",
            false => names.any(|name| controllers.iter().any(|c| c == name)),
        };
        this.then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
22 1 0:21 / /proc rw,relatime - proc proc rw
33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 master:1 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /docker/a /sys/fs/cgroup/mem\\040ory rw - cgroup cgroup rw,memory
36 31 0:33 /other /mnt rw - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
";
    const OWN: &str = "\
9:name=systemd:/a
4:memory:/docker/a/b:c
2:cpu,cpuacct:/
0::/user.slice/x
";

    #[test]
    fn places_are_counted_from_what_is_mounted() {
        let found: Vec<_> =
            hierarchies(HYBRID, OWN).into_iter().map(|h| (h.top, h.own, h.unified)).collect();
        let at = |top: &str, own: Option<&str>| (top.to_owned(), own.map(str::to_owned), false);
        let mut expected = vec![
            at("/sys/fs/cgroup/cpu,cpuacct", Some("")),
            at("/sys/fs/cgroup/mem ory", Some("/b:c")),
            at("/mnt", None),
            at("/sys/fs/cgroup/systemd", Some("/a")),
            at("/sys/fs/cgroup/unified", Some("/user.slice/x")),
        ];
        expected[4].2 = true;
        assert_eq!(found, expected);
        assert_eq!(hierarchies(HYBRID, "0::/../other\n")[0].own, None);
    }

    #[test]
    fn nonsense_is_no_hierarchy() {
        for line in ["", "x", "1 2 3 / /a rw", "1 2 3 / /a rw - cgroup", " - cgroup2 x y"] {
            assert_eq!(hierarchies(line, OWN), [], "{line}");
        }
        assert_eq!(hierarchies(HYBRID, "what"), []);
    }
}
