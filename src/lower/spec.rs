//! The OCI `config.json` of a host-root run, and the way back from it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::str::FromStr;

use oci_spec::runtime::{
    Capabilities, Capability, LinuxBuilder, LinuxCapabilitiesBuilder, LinuxCpuBuilder,
    LinuxMemoryBuilder, LinuxPidsBuilder, LinuxResources, LinuxResourcesBuilder, ProcessBuilder,
    RootBuilder, Spec, SpecBuilder, User, UserBuilder,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::strict::difference;
use super::{Identity, Refusal, Run, check, container};
use crate::plan::limits::cpu_quota;
use crate::policy::{FsView, Limits, ResolvedPolicy};

/// The annotation that holds what OCI's own fields cannot say.
pub const ENFORCEMENT: &str = "dev.landstrip.enforcement";
/// The version of that annotation: a reader refuses any other.
pub const ENFORCEMENT_VERSION: u32 = 1;
/// The version of the specification that the documents keep to.
pub const OCI_VERSION: &str = "1.1.0";
/// The most bytes that a `config.json` may have: a policy of the largest size fits.
pub const MAX_BYTES: u64 = 64 << 20;

/// The content of [`ENFORCEMENT`], as JSON text.
#[derive(Serialize, Deserialize)]
pub(super) struct Enforcement {
    version: u32,
    policy: ResolvedPolicy,
    accept: Vec<String>,
    /// The checksums of what makes a container of the document, where it is one for other runtimes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) container: Option<container::Sums>,
}

impl Enforcement {
    pub(super) fn of(run: &Run) -> Enforcement {
        let Run { policy, accept, .. } = run.clone();
        Enforcement { version: ENFORCEMENT_VERSION, policy, accept, container: None }
    }
}

/// The `config.json` of a host-root run, with lists that are sets in order, so that it is always the same.
///
/// # Errors
///
/// The argument or variable that is not UTF-8.
pub fn document(run: &Run, identity: &Identity) -> Result<Value, Refusal> {
    let mut spec = host_root(run, identity)?;
    with_enforcement(&mut spec, &Enforcement::of(run))?;
    to_value(&spec)
}

/// Adds the annotation.
pub(super) fn with_enforcement(spec: &mut Spec, content: &Enforcement) -> Result<(), Refusal> {
    let text = serde_json::to_string(content).map_err(internal)?;
    spec.set_annotations(Some(HashMap::from([(ENFORCEMENT.to_owned(), text)])));
    Ok(())
}

/// Who launches, in OCI's words.
pub(super) fn user(identity: &Identity) -> Result<User, Refusal> {
    let user = UserBuilder::default().uid(identity.uid).gid(identity.gid);
    user.additional_gids(identity.groups.clone()).build().map_err(internal)
}

/// What OCI's own fields say of a host-root run.
pub(super) fn host_root(run: &Run, identity: &Identity) -> Result<Spec, Refusal> {
    let process = ProcessBuilder::default()
        .terminal(identity.terminal)
        .user(user(identity)?)
        .args(texts("process.args", &run.args)?)
        .env(texts("process.env", &run.env)?)
        .cwd(run.policy.cwd.clone())
        .capabilities(capabilities(&identity.capabilities)?)
        .no_new_privileges(true)
        .build()
        .map_err(internal)?;
    let root = RootBuilder::default().path("/").readonly(false).build().map_err(internal)?;
    let mut linux = LinuxBuilder::default().build().map_err(internal)?;
    // The builder starts from what a container usually has.
    linux.set_namespaces(Some(Vec::new()));
    linux.set_resources(resources(&run.policy.limits)?);
    linux.set_masked_paths(None);
    linux.set_readonly_paths(None);
    let mut spec = SpecBuilder::default()
        .version(OCI_VERSION)
        .root(root)
        .mounts(Vec::new())
        .process(process)
        .linux(linux)
        .build()
        .map_err(internal)?;
    spec.set_hostname(None);
    Ok(spec)
}

pub(super) fn texts(key: &str, strings: &[OsString]) -> Result<Vec<String>, Refusal> {
    let text = |(at, string): (usize, &OsString)| {
        string.to_str().map(str::to_owned).ok_or_else(|| {
            let message = format!(
                "{:?} is not UTF-8, which JSON cannot hold; `run -p .. -- PROGRAM` can",
                string.to_string_lossy()
            );
            Refusal::new(format!("{key}[{at}]"), message)
        })
    };
    strings.iter().enumerate().map(text).collect()
}

/// Nothing is inheritable or ambient: an executed file adds nothing. The bounding set limits what one
/// could add; without the same capabilities in it, another runtime's root would lose them at execve(2).
fn capabilities(names: &[String]) -> Result<oci_spec::runtime::LinuxCapabilities, Refusal> {
    let kept = names
        .iter()
        .map(|name| Capability::from_str(name.trim_start_matches("CAP_")))
        .collect::<Result<Capabilities, _>>()
        .map_err(internal)?;
    LinuxCapabilitiesBuilder::default()
        .bounding(kept.clone())
        .effective(kept.clone())
        .permitted(kept)
        .inheritable(Capabilities::new())
        .ambient(Capabilities::new())
        .build()
        .map_err(internal)
}

/// The ceilings that OCI has a field for: all but the time.
fn resources(limits: &Limits) -> Result<Option<LinuxResources>, Refusal> {
    if limits.memory.is_none() && limits.pids.is_none() && limits.cpu.is_none() {
        return Ok(None);
    }
    // The largest amounts that a policy may state fit by far.
    let signed = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
    let mut resources = LinuxResourcesBuilder::default().build().map_err(internal)?;
    resources.set_devices(None);
    if let Some(memory) = &limits.memory {
        let memory = LinuxMemoryBuilder::default().limit(signed(memory.value));
        resources.set_memory(Some(memory.build().map_err(internal)?));
    }
    if let Some(pids) = &limits.pids {
        let pids = LinuxPidsBuilder::default().limit(signed(pids.value));
        resources.set_pids(Some(pids.build().map_err(internal)?));
    }
    if let Some(cpu) = &limits.cpu {
        let (quota, period) = cpu_quota(cpu.value);
        let cpu = LinuxCpuBuilder::default().quota(signed(quota)).period(period);
        resources.set_cpu(Some(cpu.build().map_err(internal)?));
    }
    Ok(Some(resources))
}

pub(super) fn internal(error: impl std::fmt::Display) -> Refusal {
    Refusal { key: None, line: None, message: error.to_string() }
}

pub(super) fn to_value(spec: &impl Serialize) -> Result<Value, Refusal> {
    let mut value = serde_json::to_value(spec).map_err(internal)?;
    let sets = ["bounding", "effective", "permitted", "inheritable", "ambient"];
    let sets = sets.map(|set| format!("/process/capabilities/{set}"));
    for set in sets.iter().map(String::as_str).chain(["/process/user/additionalGids"]) {
        if let Some(Value::Array(items)) = value.pointer_mut(set) {
            items.sort_by_key(|item| (item.as_u64(), item.as_str().map(str::to_owned)));
        }
    }
    Ok(value)
}

/// Reads a `config.json` for a launch by `identity`, with the host's names in `view`.
///
/// What OCI does not know is ignored, as its specification demands (config.md, "Extensibility");
/// what it knows and a host-root run cannot do refuses the launch. What is absent takes the value
/// that a host-root run has.
///
/// # Errors
///
/// The field that is missing, or says what is not done here.
pub fn read(bytes: &[u8], identity: &Identity, view: &dyn FsView) -> Result<Run, Refusal> {
    let spec: Spec = serde_json::from_slice(bytes).map_err(|error| Refusal {
        key: None,
        line: u32::try_from(error.line()).ok().filter(|line| *line > 0),
        message: error.to_string(),
    })?;
    if !spec.version().starts_with("1.") {
        let message = format!("{:?} is no version 1 of the OCI specification", spec.version());
        return Err(Refusal::new("ociVersion", message));
    }
    let missing = |key: &str| Refusal::new(key, "is missing");
    let annotation = spec.annotations().as_ref().and_then(|all| all.get(ENFORCEMENT));
    let key = format!("annotations.{ENFORCEMENT}");
    let enforcement = annotation.map(|text| enforcement(text)).transpose();
    let enforcement = enforcement.map_err(|message| Refusal::new(key.as_str(), message))?;
    let sums = enforcement.as_ref().and_then(|enforcement| enforcement.container.as_ref());
    let is_container = sums.is_some();
    let spec = match sums {
        Some(sums) => container::raise(&spec, sums, identity)?,
        None => spec,
    };
    // A container's root decides what every other field means: it is named first.
    if !is_container
        && spec.root().as_ref().ok_or_else(|| missing("root"))?.path().as_os_str() != "/"
    {
        let message = "only bundles whose root is the host's `/` can be run in this version";
        return Err(Refusal::new("root.path", message));
    }
    let process = spec.process().as_ref().ok_or_else(|| missing("process"))?;
    let args = process.args().as_ref().filter(|args| !args.is_empty());
    let enforcement = enforcement.ok_or_else(|| {
        Refusal::new(key, "is missing: it holds the policy, and `spec` writes it")
    })?;
    let os = |texts: &[String]| texts.iter().map(OsString::from).collect();
    let run = Run {
        args: os(args.ok_or_else(|| missing("process.args"))?),
        env: os(process.env().as_deref().unwrap_or_default()),
        policy: enforcement.policy,
        accept: enforcement.accept,
    };
    check::well_formed(&run.policy)?;
    compare(spec, &run, identity)?;
    let policy = check::fresh(run.policy, view)?;
    Ok(Run { policy, ..run })
}

fn enforcement(text: &str) -> Result<Enforcement, String> {
    let given: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match given.get("version").and_then(Value::as_u64) {
        Some(version) if version == u64::from(ENFORCEMENT_VERSION) => {}
        Some(version) => {
            return Err(format!(
                "version {version} is not known; this program reads version {ENFORCEMENT_VERSION}"
            ));
        }
        None => return Err("has no version".to_owned()),
    }
    let enforcement: Enforcement =
        serde_json::from_value(given.clone()).map_err(|error| error.to_string())?;
    let understood = serde_json::to_value(&enforcement).map_err(|error| error.to_string())?;
    match difference(&given, &understood) {
        None => Ok(enforcement),
        Some((key, _)) => Err(format!("{key} is not understood")),
    }
}

/// Holds everything that the file says to what `run` would make of it.
fn compare(mut given: Spec, run: &Run, identity: &Identity) -> Result<(), Refusal> {
    let mut understood = host_root(run, identity)?;
    understood.set_version(given.version().clone());
    // Other annotations are for others.
    given.set_annotations(None);
    if given.process().as_ref().and_then(|process| process.terminal()) == Some(false)
        && let Some(process) = understood.process_mut()
    {
        // No terminal is made: the program has the three standard streams, whatever they are.
        process.set_terminal(Some(false));
    }
    let (given, understood) = (to_value(&given)?, to_value(&understood)?);
    let Some((key, instead)) = difference(&given, &understood) else { return Ok(()) };
    let message = match instead {
        Some(Value::Array(items)) if items.is_empty() => {
            "cannot be had in a bundle whose root is the host's `/`".to_owned()
        }
        Some(value) => format!("can only be {value} in this launch"),
        None => "cannot be had in a bundle whose root is the host's `/`".to_owned(),
    };
    Err(Refusal::new(key, message))
}
