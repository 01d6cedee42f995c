//! File systems whose files are controls of the kernel and its devices.
//!
//! Who lets all of `/` be written means files. What the files of procfs, sysfs and their like do when
//! they are written is another matter, and so is a disk: they are written only where a rule names a path
//! in the file system that they are on. A rule about something above opens nothing in there.

use super::mounts::Mount;
use crate::policy::path::{is_below, is_within};
use crate::policy::rule::CONTROLS;
use crate::policy::{Access, Decider, Effect, Origin, Pattern, Rule};
use std::collections::BTreeMap;

/// Why something in there is refused.
pub const CLOSED: &str = "a control of the kernel, or a device: only a rule with a path in this file \
    system opens it, and none from above";

/// The types, as in proc_pid_mountinfo(5).
const TYPES: [&str; 36] = [
    "binder",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "cpuset",
    "cxl",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "functionfs",
    "fusectl",
    "gadgetfs",
    "ibmasmfs",
    "mqueue",
    "nfsd",
    "ocfs2_dlmfs",
    "openpromfs",
    "oprofilefs",
    "proc",
    "pstore",
    "resctrl",
    "rpc_pipefs",
    "s390_hypfs",
    "secretmem",
    "securityfs",
    "selinuxfs",
    "smackfs",
    "spufs",
    "sysfs",
    "tracefs",
    "usbdevfs",
    "usbfs",
    "xenfs",
];
/// Where devices are, on whatever file system: in a container it is often one of the ordinary kind.
const DEVICES: &str = "/dev";
/// Where shared memory is: files, whether on a file system of its own or not.
const SHARED_MEMORY: &str = "/dev/shm";
/// Where cgroups are by convention: what names this names them, whatever the version.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Which controls are guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarded {
    /// All of them.
    All,
    /// Cgroups alone: the files of those kill, freeze and move processes outside.
    Cgroups,
}

/// Adds a denial for each file system of controls, by every path that `mounts` give it, that a rule about
/// something above would open. `mounts` are those of [`mounts::parse`](super::mounts::parse).
///
/// Other file systems that are mounted within `/dev` (`/dev/shm`) hold files, and stay as they were.
pub fn guard(rules: &mut Vec<Rule>, mounts: &[Mount], which: Guarded) {
    let open: Vec<&Rule> =
        (rules.iter().filter(|r| r.access == Access::Write && r.effect == Effect::Allow)).collect();
    // A mount hides the one before it at the same place.
    let mut tops: BTreeMap<&str, &Mount> = BTreeMap::new();
    for mount in mounts {
        tops.insert(&mount.point, mount);
    }
    let is_cgroup = |mount: &Mount| mount.kind == "cgroup" || mount.kind == "cgroup2";
    let mut places: Vec<&str> = tops
        .values()
        .filter(|mount| match which {
            Guarded::All => TYPES.contains(&mount.kind.as_str()),
            Guarded::Cgroups => is_cgroup(mount),
        })
        .map(|mount| match is_cgroup(mount) && within(&mount.point, CGROUPS) {
            true => CGROUPS,
            false => mount.point.as_str(),
        })
        .collect();
    if which == Guarded::All {
        places.push(DEVICES);
    }
    places.sort_unstable();
    places.dedup();
    // Most policies open nothing that holds one.
    places.retain(|place| {
        open.iter().any(|rule| below(place, rule.place()))
            && !open.iter().any(|rule| names(rule, place))
    });
    if places.is_empty() {
        return;
    }
    let before = Decider::of_rules(rules.clone());
    let by_glob = |place: &str| {
        let mut open = open.iter();
        open.any(|r| matches!(r.pattern, Pattern::Glob(_)) && below(place, r.place()))
    };
    places.retain(|place| {
        by_glob(place) || before.decide(Access::Write, place.as_bytes()).is_allowed()
    });
    let mut files: Vec<&str> = tops
        .values()
        .filter(|mount| mount.whole() && !TYPES.contains(&mount.kind.as_str()))
        .map(|mount| mount.point.as_str())
        .chain([SHARED_MEMORY])
        .filter(|point| places.contains(&DEVICES) && below(point, DEVICES))
        .collect();
    files.sort_unstable();
    files.dedup();
    let files = files.into_iter().filter_map(|point| {
        let verdict = before.decide(Access::Write, point.as_bytes());
        let rule = verdict.rule().filter(|_| verdict.is_allowed())?;
        let literal = matches!(rule.pattern, Pattern::Subtree(_));
        let above = literal && below(DEVICES, rule.place());
        let at = before.rules().iter().position(|known| std::ptr::eq(known, rule))?;
        above.then(|| (point.to_owned(), at))
    });
    let mut files: Vec<(String, usize)> = files.collect();
    let denied = places.iter().map(|place| Rule {
        access: Access::Write,
        effect: Effect::Deny,
        always: false,
        pattern: Pattern::Subtree((*place).to_owned()),
        text: (*place).to_owned(),
        origin: Origin::built_in(CONTROLS),
    });
    let denied: Vec<Rule> = denied.collect();
    // Beside the rule that they are of, and from the end, so that places before stay.
    files.sort_by_key(|(_, at)| std::cmp::Reverse(*at));
    for (point, at) in files {
        let again = Rule { pattern: Pattern::Subtree(point), ..rules[at].clone() };
        rules.insert(at + 1, again);
    }
    rules.extend(denied);
}

/// Whether the rule is about exactly this path.
fn names(rule: &Rule, path: &str) -> bool {
    matches!(&rule.pattern, Pattern::Subtree(own) if own == path)
}

fn within(path: &str, top: &str) -> bool {
    is_within(path.as_bytes(), top.as_bytes())
}

fn below(path: &str, top: &str) -> bool {
    is_below(path.as_bytes(), top.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::mounts::parse;
    use super::*;
    use crate::policy::MemoryTree;
    use crate::policy::testing::resolved;

    const MOUNTS: &[u8] = b"\
1 0 8:1 / / rw - ext4 /dev/sda1 rw
2 1 0:20 / /proc rw - proc proc rw
3 2 0:30 / /proc/sys/fs/binfmt_misc rw - binfmt_misc b rw
4 1 0:21 / /sys rw - sysfs sysfs rw
5 4 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw
6 5 0:23 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
7 1 0:6 / /dev rw - devtmpfs devtmpfs rw
8 7 0:24 / /dev/pts rw - devpts devpts rw
9 7 0:25 / /dev/shm rw - tmpfs tmpfs rw
10 7 0:6 /null /dev/part rw - tmpfs tmpfs rw
11 1 0:20 /sys /srv/root/proc/sys rw - proc proc rw
12 1 0:40 / /mnt/\xff rw - sysfs sysfs rw
";

    /// The verdict on writing each path, under a policy in `/w` with these `allowWrite` and others.
    fn verdicts(filesystem: &str, which: Guarded, paths: &[&str]) -> String {
        let json = format!("{{\"filesystem\":{{{filesystem}}}}}");
        let mut rules = resolved(&json, &MemoryTree::new()).rules;
        guard(&mut rules, &parse(MOUNTS), which);
        let decider = Decider::of_rules(rules);
        let mark = |path: &&str| match decider.decide(Access::Write, path.as_bytes()) {
            verdict if verdict.is_allowed() => '+',
            verdict if verdict.rule().is_some_and(Rule::guards_controls) => '!',
            _ => '-',
        };
        paths.iter().map(mark).collect()
    }

    #[test]
    fn a_rule_above_opens_files_and_no_controls() {
        let paths = [
            "/home/u/f",
            "/proc",
            "/proc/sys/kernel/x",
            "/proc/sys/fs/binfmt_misc/register",
            "/sys/kernel/x",
            "/sys/fs/cgroup/pids/tasks",
            "/dev/sda",
            "/dev/null",
            "/dev/pts/3",
            "/dev/shm/f",
            "/dev/part",
            "/srv/root/proc/sys/kernel",
            "/srv/root/f",
            "/mnt/f",
        ];
        for (filesystem, expected) in [
            (r#""allowWrite": ["/"]"#, "+!!!!!!+++!!+!"),
            (r#""allowWrite": ["/**"]"#, "+!!!!!!++!!!+!"),
            (r#""allowWrite": ["/", "/proc"]"#, "+++!!!!+++!!+!"),
            (r#""allowWrite": ["/", "/proc/sys/kernel"]"#, "+!+!!!!+++!!+!"),
            (r#""allowWrite": ["/", "/proc/*/kernel"]"#, "+!+!!!!+++!!+!"),
            (r#""allowWrite": ["/", "/sys"]"#, "+!!!+!!+++!!+!"),
            (r#""allowWrite": ["/", "/sys/fs/cgroup"]"#, "+!!!!+!+++!!+!"),
            (r#""allowWrite": ["/", "/dev/sda"]"#, "+!!!!!++++!!+!"),
            (r#""allowWrite": ["/", "/dev"]"#, "+!!!!!+++++!+!"),
            (r#""allowWrite": ["/"], "denyWrite": ["/dev"]"#, "+!!!!!-++--!+!"),
            (r#""allowWrite": ["/"], "denyWrite": ["/dev/shm"]"#, "+!!!!!!++-!!+!"),
            (r#""allowWrite": ["/srv"]"#, "-------++--!+-"),
            (r#""allowWrite": ["."]"#, "-------++-----"),
        ] {
            assert_eq!(verdicts(filesystem, Guarded::All, &paths), expected, "{filesystem}");
        }
        let all = verdicts(r#""allowWrite": ["/"]"#, Guarded::Cgroups, &paths);
        assert_eq!(all, "+++++!++++++++");
    }
}
