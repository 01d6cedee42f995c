//! Bundles: a directory with a `config.json`, and what of it cannot be.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxNamespaceType as Kind, Process, Spec};
use rustix::fs::OFlags;
use serde_json::Value;

use super::landlock::{IN_CONFIG, Landlock};
use super::policy::ANNOTATIONS;
use super::{Context, Error, Result, locate, netdevices};

/// The name of the document in a bundle, config.md.
const CONFIG: &str = "config.json";
/// The most bytes that a document may have.
const MAX_BYTES: u64 = 64 << 20;

/// A bundle that was read.
pub struct Bundle {
    /// Its directory, as the caller gave it, absolute.
    pub dir: PathBuf,
    /// The root file system, absolute and without links.
    pub rootfs: PathBuf,
    /// The document.
    pub spec: Spec,
    /// The document's text.
    pub text: Vec<u8>,
    /// What its process may do to files.
    pub landlock: Option<Landlock>,
    /// What was left out of it.
    pub warnings: Vec<String>,
}

impl Bundle {
    /// Reads the bundle in `dir`, with the document in `config` or in its usual place.
    ///
    /// # Errors
    ///
    /// The file that cannot be read; the key that is missing, contradicts another or cannot be had here.
    pub fn read(dir: &Path, config: Option<&Path>) -> Result<Bundle> {
        let dir = std::path::absolute(dir).context(format!("bundle {}", dir.display()))?;
        let path = config.map_or_else(|| dir.join(CONFIG), Path::to_owned);
        let text = bytes(&path)?;
        let (spec, warnings) = parse(&text).context(path.display())?;
        check(&spec).context(path.display())?;
        let landlock = Landlock::of(&text, IN_CONFIG).context(path.display())?;
        let rootfs = rootfs(&dir, &spec)?;
        Ok(Bundle { dir, rootfs, spec, text, landlock, warnings })
    }

    /// The process of the document.
    ///
    /// # Errors
    ///
    /// Where it is missing.
    pub fn process(&self) -> Result<&Process> {
        self.spec.process().as_ref().ok_or_else(|| missing("process"))
    }
}

/// Reads to the end, or to one byte past what is allowed: a file may grow, or have no end. A FIFO that nobody
/// writes to is empty.
pub fn bytes(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let about = || format!("open {}", path.display());
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path).context(about())?;
    // Somebody may be writing, whom to wait for.
    rustix::fs::fcntl_setfl(&file, OFlags::empty()).context(about())?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).context(path.display())?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Error::new(format!("{}: larger than {} MiB", path.display(), MAX_BYTES >> 20)));
    }
    Ok(bytes)
}

/// Reads a document. Capabilities that are not known are left out with a warning, as config.md wants it;
/// unknown properties are ignored, as it wants, too.
///
/// # Errors
///
/// The line that is no JSON, or has another shape.
pub fn parse(text: &[u8]) -> Result<(Spec, Vec<String>)> {
    let first = match serde_json::from_slice::<Spec>(text) {
        Ok(spec) => return Ok((spec, Vec::new())),
        Err(error) => error,
    };
    let Ok(mut value) = serde_json::from_slice::<Value>(text) else {
        return Err(Error::new(first.to_string()));
    };
    let mut warnings = Vec::new();
    let amended = value.get_mut("process").is_some_and(|process| amend(process, &mut warnings));
    if !amended {
        return Err(located(text, &first));
    }
    // The line of the text is lost, but not the key.
    serde_json::from_value(value)
        .map(|spec| (spec, warnings))
        .map_err(|error| Error::new(error.to_string()))
}

/// Reads the document of a process, as `exec --process` has it.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_process(text: &[u8]) -> Result<(Process, Vec<String>)> {
    let first = match serde_json::from_slice::<Process>(text) {
        Ok(process) => return Ok((process, Vec::new())),
        Err(error) => error,
    };
    let mut warnings = Vec::new();
    if let Ok(mut value) = serde_json::from_slice::<Value>(text)
        && amend(&mut value, &mut warnings)
        && let Ok(process) = serde_json::from_value(value)
    {
        return Ok((process, warnings));
    }
    Err(located(text, &first))
}

/// The error of a text that is JSON, but not of the right shape, with the key that it is about.
fn located(text: &[u8], error: &serde_json::Error) -> Error {
    match locate::key(text, error.line(), error.column()) {
        key if key.is_empty() => Error::new(error.to_string()),
        key => wrong(key, error),
    }
}

/// Changes what oci-spec does not take of a process as config.md has it. Whether there was something.
fn amend(process: &mut Value, warnings: &mut Vec<String>) -> bool {
    let flags = rename_flags(process);
    drop_unknown_capabilities(process, warnings);
    flags || !warnings.is_empty()
}

/// Gives two flags the names that oci-spec 0.10 has for them.
fn rename_flags(process: &mut Value) -> bool {
    let flags = process.pointer_mut("/scheduler/flags").and_then(Value::as_array_mut);
    let mut renamed = false;
    for flag in flags.into_iter().flatten() {
        *flag = match flag.as_str() {
            Some("SCHED_FLAG_RESET_ON_FORK") => "SCHED_RESET_ON_FORK".into(),
            Some("SCHED_FLAG_DL_OVERRUN") => "SCHED_FLAG_D_L_OVERRUN".into(),
            _ => continue,
        };
        renamed = true;
    }
    renamed
}

fn drop_unknown_capabilities(process: &mut Value, warnings: &mut Vec<String>) {
    use std::str::FromStr;
    let Some(sets) = process.get_mut("capabilities").and_then(Value::as_object_mut) else { return };
    for (set, names) in sets {
        let Some(names) = names.as_array_mut() else { continue };
        let unknown = names.extract_if(.., |name| {
            name.as_str().is_some_and(|name| {
                let short = name.strip_prefix("CAP_").unwrap_or(name);
                oci_spec::runtime::Capability::from_str(short).is_err()
            })
        });
        let mut unknown: Vec<String> =
            unknown.filter_map(|name| name.as_str().map(str::to_owned)).collect();
        if !unknown.is_empty() {
            unknown.sort();
            unknown.dedup();
            let unknown = unknown.join(" ");
            warnings.push(format!(
                "process.capabilities.{set}: ignoring unknown or unavailable capabilities: [{unknown}]"
            ));
        }
    }
}

fn missing(key: &str) -> Error {
    Error::new(format!("{key}: is missing"))
}

fn wrong(key: impl std::fmt::Display, cause: impl std::fmt::Display) -> Error {
    Error::new(format!("{key}: {cause}"))
}

fn rootfs(bundle: &Path, spec: &Spec) -> Result<PathBuf> {
    let root = spec.root().as_ref().ok_or_else(|| missing("root"))?;
    let path = bundle.join(root.path());
    let real = fs::canonicalize(&path).context(format!("root.path: {}", path.display()))?;
    if !real.is_dir() {
        return Err(wrong("root.path", format!("{}: Not a directory", path.display())));
    }
    Ok(real)
}

/// Finds what is missing, contradicts itself, or cannot be had here.
///
/// # Errors
///
/// The key at fault.
pub fn check(spec: &Spec) -> Result<()> {
    let version = spec.version();
    if version.is_empty() {
        return Err(missing("ociVersion"));
    }
    if version != "1" && !version.starts_with("1.") {
        return Err(wrong(
            "ociVersion",
            format!("{version:?} is no version 1 of the specification"),
        ));
    }
    if spec.root().as_ref().is_none_or(|root| root.path().as_os_str().is_empty()) {
        return Err(missing("root.path"));
    }
    let annotation =
        |key: &str| spec.annotations().as_ref().is_some_and(|all| all.contains_key(key));
    if annotation("dev.landstrip.enforcement") {
        let what = "belongs to a bundle that `spec` wrote and `run BUNDLE/` launches on the host; \
            a container has dev.landstrip.policy";
        return Err(wrong("annotations.dev.landstrip.enforcement", what));
    }
    let annotations = spec.annotations().iter().flat_map(|all| all.keys());
    for key in annotations.filter(|key| key.starts_with("dev.landstrip.")) {
        if !ANNOTATIONS.contains(&key.as_str()) {
            // A container without the policy that somebody meant is open.
            let nearest =
                ANNOTATIONS.into_iter().min_by_key(|known| strsim::osa_distance(known, key));
            let what = format!("is not known; did you mean {}?", nearest.unwrap_or_default());
            return Err(wrong(format!("annotations.{key}"), what));
        }
    }
    check_process(spec.process().as_ref().ok_or_else(|| missing("process"))?)?;
    check_namespaces(spec)?;
    let hooks = spec.hooks().as_ref();
    #[allow(deprecated, reason = "engines still use it")]
    let hooks = hooks.map_or([const { &None }; 6], |hooks| {
        [
            hooks.prestart(),
            hooks.create_runtime(),
            hooks.create_container(),
            hooks.start_container(),
            hooks.poststart(),
            hooks.poststop(),
        ]
    });
    for hook in hooks.into_iter().flatten().flatten() {
        if !hook.path().is_absolute() {
            return Err(wrong(
                "hooks",
                format!("{}: the path is not absolute", hook.path().display()),
            ));
        }
        if hook.timeout().is_some_and(|seconds| seconds <= 0) {
            return Err(wrong(
                "hooks",
                format!("{}: the timeout is not positive", hook.path().display()),
            ));
        }
    }
    Ok(())
}

/// Checks the process of a document, or of `exec`.
///
/// # Errors
///
/// The key that is missing or wrong.
pub fn check_process(process: &Process) -> Result<()> {
    let args = process.args().as_deref().unwrap_or_default();
    if args.first().is_none_or(String::is_empty) {
        return Err(missing("process.args"));
    }
    if process.cwd().as_os_str().is_empty() {
        return Err(missing("process.cwd"));
    }
    if !process.cwd().is_absolute() {
        return Err(wrong("process.cwd", format!("{}: is not absolute", process.cwd().display())));
    }
    let strings = [("args", args), ("env", process.env().as_deref().unwrap_or_default())];
    for (key, strings) in strings {
        if let Some(at) = strings.iter().position(|text| text.contains('\0')) {
            return Err(wrong(format!("process.{key}[{at}]"), "holds a NUL byte"));
        }
    }
    let limits = process.rlimits().as_deref().unwrap_or_default();
    for (at, limit) in limits.iter().enumerate() {
        let key = format!("process.rlimits[{at}]");
        if limit.soft() > limit.hard() {
            return Err(wrong(key, format!("{}: soft is above hard", limit.typ())));
        }
        if limits[..at].iter().any(|other| other.typ() == limit.typ()) {
            return Err(wrong(key, format!("{} is given twice", limit.typ())));
        }
    }
    if process.user().umask().is_some_and(|mask| mask > 0o777) {
        return Err(wrong("process.user.umask", "is above 0777"));
    }
    if process.oom_score_adj().is_some_and(|score| !(-1000..=1000).contains(&score)) {
        return Err(wrong("process.oomScoreAdj", "is not between -1000 and 1000"));
    }
    if process.io_priority().as_ref().is_some_and(|io| !(0..8).contains(&io.priority())) {
        return Err(wrong("process.ioPriority.priority", "is not between 0 and 7"));
    }
    Ok(())
}

fn check_namespaces(spec: &Spec) -> Result<()> {
    let linux = spec.linux().as_ref();
    let namespaces = linux.and_then(|l| l.namespaces().as_deref()).unwrap_or_default();
    for (at, namespace) in namespaces.iter().enumerate() {
        let key = format!("linux.namespaces[{at}]");
        if namespaces[..at].iter().any(|other| other.typ() == namespace.typ()) {
            return Err(wrong(key, format!("{} is given twice", namespace.typ())));
        }
        let path = namespace.path().as_ref().filter(|path| !path.as_os_str().is_empty());
        if path.is_some_and(|path| !path.is_absolute()) {
            return Err(wrong(format!("{key}.path"), "is not absolute"));
        }
    }
    let find = |kind| namespaces.iter().find(|namespace| namespace.typ() == kind);
    let new = |kind| {
        find(kind).is_some_and(|n| n.path().as_ref().is_none_or(|path| path.as_os_str().is_empty()))
    };
    if find(Kind::Mount).is_none() {
        return Err(wrong("linux.namespaces", "a container needs a mount namespace"));
    }
    let some = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    for (key, given) in
        [("hostname", some(spec.hostname())), ("domainname", some(spec.domainname()))]
    {
        if given && find(Kind::Uts).is_none() {
            return Err(wrong(key, "needs a uts namespace"));
        }
    }
    let Some(linux) = linux else { return Ok(()) };
    let uids = linux.uid_mappings().as_deref().unwrap_or_default();
    let gids = linux.gid_mappings().as_deref().unwrap_or_default();
    for (key, maps) in [("linux.uidMappings", uids), ("linux.gidMappings", gids)] {
        if new(Kind::User) && maps.is_empty() {
            return Err(wrong(key, "a new user namespace needs them"));
        }
        if !maps.is_empty() && find(Kind::User).is_none() {
            return Err(wrong(key, "need a user namespace"));
        }
        if let Some(at) = maps.iter().position(|map| map.size() == 0) {
            return Err(wrong(format!("{key}[{at}].size"), "is 0"));
        }
    }
    if linux.time_offsets().as_ref().is_some_and(|offsets| !offsets.is_empty()) && !new(Kind::Time)
    {
        return Err(wrong("linux.timeOffsets", "need a new time namespace"));
    }
    netdevices::check(spec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document() -> Value {
        json!({
            "ociVersion": "1.2.0", "root": {"path": "rootfs"},
            "process": {"user": {"uid": 0, "gid": 0}, "args": ["true"], "cwd": "/"},
            "linux": {"namespaces": [{"type": "mount"}, {"type": "uts"}]},
        })
    }

    fn refused(change: impl FnOnce(&mut Value)) -> String {
        let mut value = document();
        change(&mut value);
        let text = serde_json::to_vec(&value).unwrap();
        match parse(&text).and_then(|(spec, _)| check(&spec)) {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn errors_name_the_key() {
        assert_eq!(refused(|_| ()), "");
        assert_eq!(refused(|v| v["ociVersion"] = json!("1.99.0")), "");
        assert_eq!(refused(|v| v["unknown"] = json!({"x": 1})), "");
        type Change = fn(&mut Value);
        let cases: [(&str, Change); 12] = [
            ("ociVersion", |v| v["ociVersion"] = json!("2.0.0")),
            ("root.path", |v| v["root"] = json!({"path": ""})),
            ("process", |v| v["process"] = Value::Null),
            ("process.args", |v| v["process"]["args"] = json!([])),
            ("process.cwd", |v| v["process"]["cwd"] = json!("tmp")),
            ("process.env[0]", |v| v["process"]["env"] = json!(["a\0"])),
            ("linux.namespaces[2]", |v| {
                v["linux"]["namespaces"] =
                    json!([{"type": "mount"}, {"type": "uts"}, {"type": "uts"}]);
            }),
            ("hostname", |v| {
                v["hostname"] = json!("x");
                v["linux"]["namespaces"] = json!([{"type": "mount"}]);
            }),
            ("linux.uidMappings", |v| {
                v["linux"]["namespaces"] = json!([{"type": "mount"}, {"type": "user"}]);
            }),
            ("linux.timeOffsets", |v| {
                v["linux"]["timeOffsets"] = json!({"monotonic": {"secs": 1}});
            }),
            // There is no network namespace.
            ("linux.netDevices", |v| v["linux"]["netDevices"] = json!({"eth0": {}})),
            ("process.rlimits[0]", |v| {
                v["process"]["rlimits"] = json!([{"type": "RLIMIT_NOFILE", "soft": 2, "hard": 1}]);
            }),
        ];
        for (key, change) in cases {
            let error = refused(change);
            assert!(error.starts_with(&format!("{key}: ")), "{key}: {error}");
        }
    }

    #[test]
    fn unknown_capabilities_are_left_out() {
        let mut value = document();
        value["process"]["capabilities"] = json!({"bounding": ["CAP_KILL", "CAP_NEW", "X"]});
        let (spec, warnings) = parse(&serde_json::to_vec(&value).unwrap()).unwrap();
        let process = spec.process().as_ref().unwrap();
        let sets = process.capabilities().as_ref().unwrap();
        assert_eq!(sets.bounding().as_ref().unwrap().len(), 1);
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].ends_with("[CAP_NEW X]"), "{}", warnings[0]);
    }

    /// Whether all that `wanted` holds is in `got`, by key and value.
    fn lost(wanted: &Value, got: &Value, at: &str) -> Vec<String> {
        let each = |key: String, wanted: &Value, got: Option<&Value>| match got {
            None => vec![key],
            Some(got) => lost(wanted, got, &key),
        };
        match wanted {
            Value::Object(map) => {
                map.iter().flat_map(|(k, v)| each(format!("{at}.{k}"), v, got.get(k))).collect()
            }
            Value::Array(list) => (list.iter().enumerate())
                .flat_map(|(n, v)| each(format!("{at}[{n}]"), v, got.get(n)))
                .collect(),
            _ if wanted == got => Vec::new(),
            _ => vec![format!("{at}: {got}")],
        }
    }

    #[test]
    fn no_property_of_the_specification_is_lost() {
        let device = json!({"major": 8, "minor": 0, "weight": 500, "leafWeight": 300});
        let rate = json!([{"major": 8, "minor": 0, "rate": 600}]);
        let mut value = document();
        value["domainname"] = json!("example");
        value["mounts"] = json!([{
            "destination": "/a", "type": "bind", "source": "/b", "options": ["rbind"],
            "uidMappings": [{"containerID": 0, "hostID": 1, "size": 1}],
            "gidMappings": [{"containerID": 0, "hostID": 1, "size": 1}],
        }]);
        let process = json!({
            "terminal": true, "consoleSize": {"height": 1, "width": 2},
            "user": {"uid": 1, "gid": 2, "umask": 18, "additionalGids": [3]},
            "rlimits": [{"type": "RLIMIT_RTTIME", "soft": 1, "hard": 1}],
            "apparmorProfile": "a", "selinuxLabel": "b", "noNewPrivileges": true, "oomScoreAdj": 5,
            "scheduler": {"policy": "SCHED_DEADLINE", "nice": 1, "priority": 2, "runtime": 3,
                "deadline": 4, "period": 5, "flags": ["SCHED_FLAG_RECLAIM"]},
            "ioPriority": {"class": "IOPRIO_CLASS_IDLE", "priority": 4},
            "execCPUAffinity": {"initial": "7", "final": "0-3"},
        });
        for (key, property) in process.as_object().unwrap() {
            value["process"][key] = property.clone();
        }
        let linux = json!({
            "uidMappings": [{"containerID": 0, "hostID": 1, "size": 1}],
            "gidMappings": [{"containerID": 0, "hostID": 1, "size": 1}],
            "timeOffsets": {"monotonic": {"secs": 1, "nanosecs": 2}, "boottime": {"secs": -3}},
            "devices": [{"path": "/dev/a", "type": "c", "major": 1, "minor": 2, "fileMode": 432,
                "uid": 1, "gid": 2}],
            "netDevices": {"eth0": {"name": "eth1"}},
            "cgroupsPath": "/a", "sysctl": {"a": "b"}, "rootfsPropagation": "slave",
            "maskedPaths": ["/a"], "readonlyPaths": ["/b"], "mountLabel": "c",
            "intelRdt": {"closID": "a", "l3CacheSchema": "b", "memBwSchema": "c",
                "schemata": ["d"], "enableMonitoring": true},
            "memoryPolicy": {"mode": "MPOL_BIND", "nodes": "0", "flags": ["MPOL_F_STATIC_NODES"]},
            "personality": {"domain": "LINUX32", "flags": ["x"]},
            "seccomp": {"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1,
                "architectures": ["SCMP_ARCH_X86"], "flags": ["SECCOMP_FILTER_FLAG_LOG"],
                "listenerPath": "/a", "listenerMetadata": "b",
                "syscalls": [{"names": ["a"], "action": "SCMP_ACT_NOTIFY", "errnoRet": 2,
                    "args": [{"index": 1, "value": 2, "valueTwo": 3, "op": "SCMP_CMP_NE"}]}]},
            "resources": {
                "devices": [{"allow": true, "type": "c", "major": 1, "minor": 2, "access": "r"}],
                "memory": {"limit": 1, "reservation": 2, "swap": 3, "kernel": 4, "kernelTCP": 5,
                    "swappiness": 6, "disableOOMKiller": true, "useHierarchy": true,
                    "checkBeforeUpdate": true},
                "cpu": {"shares": 1, "quota": -1, "burst": 3, "period": 4, "realtimeRuntime": 5,
                    "realtimePeriod": 6, "cpus": "0", "mems": "0", "idle": 1},
                "blockIO": {"weight": 10, "leafWeight": 11, "weightDevice": [device],
                    "throttleReadBpsDevice": rate, "throttleWriteBpsDevice": rate,
                    "throttleReadIOPSDevice": rate, "throttleWriteIOPSDevice": rate},
                "hugepageLimits": [{"pageSize": "2MB", "limit": 1}],
                "network": {"classID": 1, "priorities": [{"name": "eth0", "priority": 2}]},
                "pids": {"limit": -1}, "rdma": {"mlx": {"hcaHandles": 1, "hcaObjects": 2}},
                "unified": {"memory.high": "1"},
            },
        });
        for (key, property) in linux.as_object().unwrap() {
            value["linux"][key] = property.clone();
        }
        let (spec, warnings) = parse(&serde_json::to_vec(&value).unwrap()).unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        let lost = lost(&value, &serde_json::to_value(&spec).unwrap(), "");
        assert!(lost.is_empty(), "{lost:#?}");
    }

    #[test]
    fn flags_have_the_names_of_the_specification() {
        for name in [
            "SCHED_FLAG_RESET_ON_FORK",
            "SCHED_FLAG_RECLAIM",
            "SCHED_FLAG_DL_OVERRUN",
            "SCHED_FLAG_KEEP_POLICY",
            "SCHED_FLAG_KEEP_PARAMS",
            "SCHED_FLAG_UTIL_CLAMP_MIN",
            "SCHED_FLAG_UTIL_CLAMP_MAX",
        ] {
            let mut value = document();
            value["process"]["scheduler"] = json!({"policy": "SCHED_OTHER", "flags": [name]});
            let (spec, _) = parse(&serde_json::to_vec(&value).unwrap()).unwrap();
            let scheduler = spec.process().as_ref().unwrap().scheduler().clone();
            assert_eq!(scheduler.unwrap().flags().as_ref().map(Vec::len), Some(1), "{name}");
        }
    }
}
