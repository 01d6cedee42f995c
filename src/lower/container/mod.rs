//! The same run as a container: what other runtimes hold of a policy.
//!
//! No other runtime takes the host's `/` for a root (pivot_root(2) needs another mount), so its directories are
//! bound one by one into an empty root: read-only, and once more, deeper, what may be written. What is denied
//! in there are read-only and masked paths where nothing below is open again, and mounts where something is. Of
//! the network a run has either the host's or none. OCI has no word for the rest (globs, hosts, sockets, links),
//! which the annotation holds and [`Lowered::notes`] tells.
//!
//! A reader of ours goes by the annotation, and the host itself. That nobody changed the container after it was
//! written, to something that a run on the host would not do, checksums in the annotation say.

mod files;

use std::collections::{BTreeMap, BTreeSet};

use oci_spec::runtime::{Mount, Spec};
use serde_json::{Map, Value, json};

use files::Files;

use super::spec::{Enforcement, host_root, internal, texts, to_value, user, with_enforcement};
use super::{Identity, Refusal, Run};
use crate::policy::path::is_within;
use crate::policy::{Access, Daemons, Decider, Effect, FsView, Kind, ResolvedPolicy, Rule};

/// The name of the root directory in a bundle.
pub const ROOTFS: &str = "rootfs";
/// What is made anew in a container, and not the host's.
const MADE: [&str; 2] = ["/dev", "/proc"];
/// What says that it is a container, and which: JSON pointers.
const FIELDS: [&str; 8] = [
    "/root",
    "/mounts",
    "/linux/namespaces",
    "/linux/uidMappings",
    "/linux/gidMappings",
    "/linux/maskedPaths",
    "/linux/readonlyPaths",
    "/linux/resources/devices",
];
/// The user, which is another one in a user namespace.
const USER: &str = "/process/user";

/// A document that every runtime runs.
#[derive(Debug)]
pub struct Lowered {
    /// The document.
    pub document: Value,
    /// The links that its root directory has to hold: names, and where they lead.
    pub links: Vec<(String, String)>,
    /// What runtimes that do not know the annotation do otherwise than this one.
    pub notes: Vec<String>,
}

/// The host, as far as a container shows it.
pub struct Host<'a> {
    /// Its files.
    pub view: &'a dyn FsView,
    /// The sockets on it that are as good as itself.
    pub daemons: &'a Daemons,
    /// The rules of the policy, with those that this host adds: its controls, and other names of what is denied.
    pub rules: Vec<Rule>,
}

/// The `config.json` of a run, for every runtime.
///
/// # Errors
///
/// The argument or variable that is not UTF-8.
pub fn lower(run: &Run, identity: &Identity, host: Host<'_>) -> Result<Lowered, Refusal> {
    let Host { view, daemons, rules } = host;
    let rootless = identity.uid != 0;
    let mut files = Files::new(view, Decider::of_rules(rules));
    let links = files.top(rootless);
    let mut masked = Vec::from(MASKED.map(str::to_owned));
    masked.extend(sockets(&run.policy, daemons, identity.uid));
    files.places();
    files.note(&run.policy, rootless);
    // A glob with alternatives is several rules of one line.
    let mut told = BTreeSet::new();
    files.notes.retain(|note| told.insert(note.clone()));
    let mut mounts = files.mounts;
    if let Some(place) = temporary(run, view) {
        // Before what is granted below it.
        let at = mounts.iter().position(|mount| below(mount, &place)).unwrap_or(mounts.len());
        mounts.insert(at, tmpfs(&place, &["nosuid", "nodev", "mode=1777"]));
    }
    let made = [
        json!({"destination": "/proc", "type": "proc", "source": "proc"}),
        tmpfs("/dev", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        json!({"destination": "/dev/pts", "type": "devpts", "source": "devpts",
            "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]}),
        tmpfs("/dev/shm", &["nosuid", "nodev", "mode=1777"]),
    ];
    mounts.extend(made);
    masked.extend(files.masked);
    let mut readonly = Vec::from(READ_ONLY.map(str::to_owned));
    readonly.extend(files.readonly);
    let mut namespaces = vec!["mount", "pid", "ipc"];
    if !run.policy.network.allow_network {
        namespaces.push("network");
    }

    let mut value = to_value(&host_root(run, identity)?)?;
    if rootless {
        namespaces.push("user");
        let map = |own: u32| json!([{"containerID": 0, "hostID": own, "size": 1}]);
        put(&mut value, "/linux/uidMappings", map(identity.uid));
        put(&mut value, "/linux/gidMappings", map(identity.gid));
        // Root of nothing but itself, which runc wants to find.
        put(&mut value, USER, json!({"uid": 0, "gid": 0}));
    } else {
        put(&mut value, "/linux/resources/devices", json!([{"allow": false, "access": "rwm"}]));
    }
    let namespaces: Vec<Value> = namespaces.into_iter().map(|kind| json!({"type": kind})).collect();
    put(&mut value, "/root", json!({"path": ROOTFS, "readonly": true}));
    put(&mut value, "/mounts", json!(mounts));
    put(&mut value, "/linux/namespaces", json!(namespaces));
    put(&mut value, "/linux/maskedPaths", json!(masked));
    put(&mut value, "/linux/readonlyPaths", json!(readonly));
    // As a reader has it, so that both have the same sums.
    let mut spec: Spec = serde_json::from_value(value).map_err(internal)?;
    let sums = checksums(&take(&mut to_value(&spec)?, rootless))?;
    let mut enforcement = Enforcement::of(run);
    enforcement.container = Some(sums);
    with_enforcement(&mut spec, &enforcement)?;
    Ok(Lowered { document: to_value(&spec)?, links, notes: files.notes })
}

/// The host-root document that a container's stands for: without what makes it a container, which is as it was
/// written.
///
/// # Errors
///
/// The field that is not; where it is another user's.
pub fn raise(given: &Spec, sums: &Sums, identity: &Identity) -> Result<Spec, Refusal> {
    if !shows_the_host(given.mounts().as_deref().unwrap_or_default()) {
        let annotation = super::spec::ENFORCEMENT;
        let message = format!(
            "are not those of a bundle that `spec` wrote, as the annotation {annotation} says"
        );
        return Err(Refusal::new("mounts", message));
    }
    let mut value = to_value(given)?;
    let rootless = sums.contains_key(USER);
    let taken = take(&mut value, rootless);
    let owner = taken.get("/linux/uidMappings").and_then(|maps| maps.pointer("/0/hostID"));
    if owner != rootless.then_some(&json!(identity.uid)) || rootless == (identity.uid == 0) {
        let message = format!("the bundle was made for another user than {}", identity.uid);
        return Err(Refusal::new("linux.uidMappings", message));
    }
    let found = checksums(&taken)?;
    let changed = |key: &&String| found.get(*key) != sums.get(*key);
    if let Some(key) = sums.keys().chain(found.keys()).find(changed) {
        let key = key.trim_start_matches('/').replace('/', ".");
        let annotation = super::spec::ENFORCEMENT;
        let message = format!("can only be what `spec` wrote, beside the annotation {annotation}");
        return Err(Refusal::new(key, message));
    }
    if rootless {
        // In the namespace it was root; here it is who runs this.
        put(&mut value, USER, to_value(&user(identity)?)?);
    }
    serde_json::from_value(value).map_err(internal)
}

/// Whether a container has the mounts of [`lower`]: directories of the host at their own places, those with its
/// programs among them, and what is made anew. No engine mounts that over an image. So nobody who only chose the
/// annotations, as an image does, makes a run on the host of a container.
#[must_use]
pub fn shows_the_host(mounts: &[Mount]) -> bool {
    const PROGRAMS: [&str; 3] = ["/usr", "/bin", "/nix"];
    let own = |mount: &Mount| {
        mount.typ().as_deref() == Some("bind")
            && mount.source().as_ref() == Some(mount.destination())
    };
    let made = |mount: &Mount| matches!(mount.typ().as_deref(), Some("proc" | "tmpfs" | "devpts"));
    let programs = |mount: &Mount| {
        own(mount) && PROGRAMS.iter().any(|place| mount.destination().as_os_str() == *place)
    };
    mounts.iter().all(|mount| own(mount) || made(mount)) && mounts.iter().any(programs)
}

/// Takes out the fields that make a container of it.
fn take(value: &mut Value, rootless: bool) -> Map<String, Value> {
    let mut taken = Map::new();
    for pointer in FIELDS.into_iter().chain(rootless.then_some(USER)) {
        let Some((parent, name)) = pointer.rsplit_once('/') else { continue };
        let parent = value.pointer_mut(parent).and_then(Value::as_object_mut);
        if let Some(field) = parent.and_then(|parent| parent.remove(name)) {
            taken.insert(pointer.to_owned(), field);
        }
    }
    taken
}

fn put(value: &mut Value, pointer: &str, field: Value) {
    let mut at = value;
    for name in pointer.split('/').skip(1) {
        if at.is_null() {
            *at = json!({});
        }
        at = &mut at[name];
    }
    *at = field;
}

/// A checksum of each field that makes a container, by its JSON pointer.
pub(super) type Sums = BTreeMap<String, String>;

/// FNV-1a of 64 bits. It finds what was changed by mistake: who may write the bundle may write the sums.
fn checksums(taken: &Map<String, Value>) -> Result<Sums, Refusal> {
    const START: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let mut sums = Sums::new();
    for (pointer, field) in taken {
        let text = serde_json::to_vec(field).map_err(internal)?;
        let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(PRIME);
        sums.insert(pointer.clone(), format!("{:016x}", text.iter().fold(START, step)));
    }
    Ok(sums)
}

/// What engines hide and close of procfs and sysfs.
const MASKED: [&str; 10] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
];
const READ_ONLY: [&str; 5] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

fn tmpfs(place: &str, options: &[&str]) -> Value {
    json!({"destination": place, "type": "tmpfs", "source": "tmpfs", "options": options})
}

fn bind(place: &str, writable: bool) -> Value {
    // Without a word about writing, so that nothing is remounted: flags of the host's mount stay.
    let options: &[&str] = if writable { &["rbind"] } else { &["rbind", "rro"] };
    json!({"destination": place, "type": "bind", "source": place, "options": options})
}

fn below(mount: &Value, place: &str) -> bool {
    mount["destination"]
        .as_str()
        .is_some_and(|path| path != place && is_within(path.as_bytes(), place.as_bytes()))
}

/// Where the run has its temporary files: a place of its own, unless something of the run lies in there.
fn temporary(run: &Run, view: &dyn FsView) -> Option<String> {
    let variable = run.env.iter().rev().find_map(|entry| entry.to_str()?.strip_prefix("TMPDIR="));
    let place = variable.filter(|path| path.starts_with('/')).unwrap_or("/tmp");
    let place = place.trim_end_matches('/');
    let program = texts("process.args", &run.args[..1]).unwrap_or_default();
    let needed = |path: &str| is_within(path.as_bytes(), place.as_bytes());
    let rules = run.policy.rules.iter().filter(|rule| rule.effect == Effect::Allow);
    let free = !place.is_empty()
        && !place.split('/').any(|name| matches!(name, "." | ".."))
        && !MADE.iter().any(|made| is_within(place.as_bytes(), made.as_bytes()))
        && view.kind(place) == Kind::Dir
        && !needed(&run.policy.cwd)
        && !program.iter().any(|program| needed(program))
        && !rules.into_iter().any(|rule| needed(rule.place()) || within_grant(rule, place));
    free.then(|| place.to_owned())
}

fn within_grant(rule: &Rule, place: &str) -> bool {
    rule.access == Access::Write && is_within(place.as_bytes(), rule.place().as_bytes())
}

/// The sockets that are as good as the host, but for those that the policy lists.
fn sockets(policy: &ResolvedPolicy, daemons: &Daemons, user: u32) -> Vec<String> {
    let listed = |place: &str| {
        let rules = policy.network.allow_unix_sockets.iter();
        rules.into_iter().any(|rule| is_within(rule.place().as_bytes(), place.as_bytes()))
    };
    let mut places = daemons.places(user);
    places.retain(|place| !listed(place));
    if policy.network.allow_network {
        // The names of hosts are looked up there.
        for place in &mut places {
            if place == "/run/systemd" {
                place.push_str("/private");
            }
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::tests::{identity, run_of, tree};

    fn lowered(json: &str, uid: u32) -> Lowered {
        let mut view = tree();
        view.dir("/proc").dir("/dev").dir("/usr").link("/bin", "usr/bin").dir("/repo/a/b");
        let run = run_of(json);
        let host =
            Host { view: &view, daemons: &Daemons::default(), rules: run.policy.rules.clone() };
        lower(&run, &Identity { uid, gid: uid, ..identity() }, host).unwrap()
    }

    /// The mounts of host directories, as `path` or, where it may be written, `path+`.
    fn shown(lowered: &Lowered) -> Vec<String> {
        let mounts = lowered.document["mounts"].as_array().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let shown = mounts.filter_map(|mount| match mount["type"].as_str() {
            Some("bind") if mount["options"] == json!(["rbind"]) => {
                Some(text(&mount["destination"]) + "+")
            }
            Some("bind") => Some(text(&mount["destination"])),
            Some("tmpfs") => Some(text(&mount["destination"]) + "-"),
            _ => None,
        });
        shown.filter(|path| !path.starts_with("/dev")).collect()
    }

    fn added(lowered: &Lowered, key: &str, usual: usize) -> Vec<Value> {
        lowered.document["linux"][key].as_array().unwrap()[usual..].to_vec()
    }

    #[test]
    fn the_deepest_rule_is_mounted_last() {
        let policy = r#"{"filesystem": {
            "allowWrite": [".", "/repo/a/b", "/nowhere"], "denyWrite": ["/repo/a", "/repo/file", "/repo/later"],
            "denyRead": ["/data/u", "/home"], "allowRead": ["/data/u/.ssh"]}}"#;
        let lowered = lowered(policy, 0);
        assert_eq!(
            shown(&lowered),
            ["/data", "/repo+", "/usr", "/data/u-", "/data/u/.ssh", "/repo/a", "/repo/a/b+"]
        );
        let masked = added(&lowered, "maskedPaths", MASKED.len());
        assert!(masked.contains(&json!("/run/docker.sock")), "{masked:?}");
        assert!(!masked.contains(&json!("/home")), "nothing shows it: {masked:?}");
        let readonly = added(&lowered, "readonlyPaths", READ_ONLY.len());
        assert_eq!(readonly, [json!("/repo/file"), json!("/repo/later")]);
        assert_eq!(lowered.links, [("bin".to_owned(), "usr/bin".to_owned())]);
        let notes = lowered.notes.join("\n");
        assert!(notes.contains("\"/nowhere\": not given: it does not exist"), "{notes}");
        assert!(notes.contains("allowUnixSockets: not held"), "{notes}");
    }

    #[test]
    fn a_line_of_the_policy_is_told_of_once() {
        let notes = lowered(r#"{"filesystem": {"denyWrite": ["**/{a,b}", "**/c"]}}"#, 0).notes;
        let globs: Vec<_> = notes.iter().filter(|note| note.ends_with(": a glob")).collect();
        assert_eq!(globs.len(), 2, "{notes:?}");
        assert!(globs[0].contains("{a,b}") && globs[1].contains("**/c"), "{notes:?}");
    }

    #[test]
    fn only_such_a_container_shows_the_host() {
        let mounts =
            lowered(r#"{"filesystem": {"denyRead": ["/home"]}}"#, 0).document["mounts"].clone();
        let shows = |mounts: &Value| {
            let mounts: Vec<Mount> = serde_json::from_value(mounts.clone()).unwrap();
            shows_the_host(&mounts)
        };
        assert!(shows(&mounts));
        let mut more = mounts.clone();
        more.as_array_mut()
            .unwrap()
            .push(json!({"destination": "/sys", "type": "sysfs", "source": "sysfs"}));
        assert!(!shows(&more));
        let mut other = mounts.clone();
        for mount in other.as_array_mut().unwrap() {
            if mount["destination"] == "/usr" {
                mount["source"] = json!("/images/usr");
            }
        }
        assert!(!shows(&other));
        let volume = json!([{"destination": "/data", "type": "bind", "source": "/data"}]);
        assert!(!shows(&volume));
        assert!(!shows(&json!([])));
    }

    #[test]
    fn namespaces_follow_the_network_and_the_user() {
        let kinds = |json: &str, uid: u32| {
            let document = lowered(json, uid).document;
            let kinds = document["linux"]["namespaces"].as_array().unwrap().iter();
            let kinds: Vec<_> = kinds.map(|kind| kind["type"].as_str().unwrap()).collect();
            (kinds.join(" "), document["process"]["user"].clone())
        };
        let (root, user) = kinds("{}", 0);
        assert_eq!((&*root, &user["additionalGids"]), ("mount pid ipc network", &json!([2, 10])));
        let (open, _) = kinds(r#"{"network": {"allowNetwork": true}}"#, 0);
        assert_eq!(open, "mount pid ipc");
        let (user, ids) = kinds("{}", 7);
        assert_eq!((&*user, &ids["uid"]), ("mount pid ipc network user", &json!(0)));
    }
}
