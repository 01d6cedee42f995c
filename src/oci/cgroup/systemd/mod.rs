//! The scope of a container, made by systemd: its transient unit interface, see
//! org.freedesktop.systemd1(5).
//!
//! A small client of our own: one call and one signal. A D-Bus crate would be the largest dependency of
//! the runtime, and bring an async runtime; libcgroups' client, itself written by hand, is private to it
//! and knows neither annotations nor version 1.

mod bus;
mod property;
mod text;
mod wire;

use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxResources, Spec};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::Request;
use crate::oci::{Error, Result};
use bus::{Bus, Refusal};
pub use property::Property;
use wire::{Call, Value};

/// The property with the first processes of a scope.
const PROCESSES: &str = "PIDs";
/// What annotations with properties start with: `org.systemd.property.TimeoutStopUSec`.
const ANNOTATION: &str = "org.systemd.property.";

/// A container's scope.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Unit {
    name: String,
    slice: String,
    /// Of the user's systemd.
    session: bool,
    /// Properties to start with; only known while the container is created.
    #[serde(skip)]
    start: Vec<Property>,
}

impl Unit {
    /// The unit that a request asks for, not made yet.
    ///
    /// # Errors
    ///
    /// Where `linux.cgroupsPath` or an annotation cannot be understood.
    pub fn of(request: &Request<'_>, unified: bool) -> Result<Unit> {
        let linux = request.spec.linux().as_ref();
        let path = linux.and_then(|linux| linux.cgroups_path().as_deref());
        let (slice, name) = parse(path.unwrap_or(Path::new("")), request.id)?;
        let usual = if request.rootless { "user.slice" } else { "system.slice" };
        let slice = if slice.is_empty() { usual.to_owned() } else { slice };
        let mut start = vec![
            Property::new("Description", Value::text(format!("container {}", request.id))),
            Property::new("Slice", Value::text(slice.as_str())),
            // The files in it are written by us, and the cgroups below by the container.
            Property::new("Delegate", Value::Bool(true)),
            Property::new("DefaultDependencies", Value::Bool(false)),
        ];
        for kind in ["MemoryAccounting", "CPUAccounting", "IOAccounting", "TasksAccounting"] {
            start.push(Property::new(kind, Value::Bool(true)));
        }
        let resources = linux.and_then(|linux| linux.resources().as_ref());
        let usual = LinuxResources::default();
        start.extend(property::of(resources.unwrap_or(&usual), unified)?);
        let annotated = annotated(request.spec, &start)?;
        start.extend(annotated);
        Ok(Unit { name, slice, session: request.rootless, start })
    }

    /// Its cgroup, from the top of each hierarchy.
    ///
    /// # Errors
    ///
    /// Where the slice has no good name, or the user's systemd does not say where it is.
    pub fn cgroup(&self) -> Result<PathBuf> {
        let mut path = PathBuf::from("/");
        if self.session {
            let top = Systemd::connect(true)?.control_group()?;
            path.push(top.trim_start_matches('/'));
        }
        path.push(expand(&self.slice)?);
        path.push(&self.name);
        Ok(path)
    }

    /// Whether it is to be made with its first process.
    pub fn is_new(&self) -> bool {
        !self.start.is_empty()
    }

    /// Makes the scope with a process in it, and waits until it is there.
    ///
    /// # Errors
    ///
    /// As systemd has it.
    pub fn start(&self, pid: Pid) -> Result<()> {
        let pid = Value::U32(pid.as_raw_nonzero().get().cast_unsigned());
        let mut properties = self.start.clone();
        properties.push(Property::new(PROCESSES, Value::Array("u".to_owned(), vec![pid])));
        let mut systemd = Systemd::connect(self.session)?;
        systemd.listen()?;
        let arguments = [
            Value::text(self.name.as_str()),
            Value::text("replace"),
            property::array(properties),
            Value::Array("(sa(sv))".to_owned(), Vec::new()),
        ];
        let mut started = systemd.call("StartTransientUnit", &arguments);
        if started.as_ref().is_err_and(|refusal| refusal.name.ends_with(".UnitExists")) {
            // One that has failed keeps its name until it is told to forget that.
            let _ = systemd.call("ResetFailedUnit", &arguments[..1]);
            started = systemd.call("StartTransientUnit", &arguments);
        }
        systemd.wait(&self.name, started)
    }

    /// Tells systemd of new limits, which it would take back otherwise when it is reloaded.
    ///
    /// # Errors
    ///
    /// As systemd has it.
    pub fn update(&self, resources: &LinuxResources, unified: bool) -> Result<()> {
        let properties = property::of(resources, unified)?;
        if properties.is_empty() {
            return Ok(());
        }
        let arguments =
            [Value::text(self.name.as_str()), Value::Bool(true), property::array(properties)];
        let mut systemd = Systemd::connect(self.session)?;
        systemd.call("SetUnitProperties", &arguments).map(|_| ()).map_err(|refusal| refusal.error)
    }

    /// Ends the scope. One that is gone is fine: it ends with its last process.
    ///
    /// # Errors
    ///
    /// As systemd has it.
    pub fn stop(&self) -> Result<()> {
        let mut systemd = Systemd::connect(self.session)?;
        systemd.listen()?;
        let name = Value::text(self.name.as_str());
        match systemd.call("StopUnit", &[name.clone(), Value::text("replace")]) {
            Err(refusal) if refusal.name.ends_with(".NoSuchUnit") => return Ok(()),
            stopped => systemd.wait(&self.name, stopped)?,
        }
        let _ = systemd.call("ResetFailedUnit", &[name]);
        Ok(())
    }
}

/// The slice and the unit's name in `slice:prefix:name`.
fn parse(path: &Path, id: &str) -> Result<(String, String)> {
    let text = path.to_string_lossy();
    let parts: Vec<&str> = text.split(':').collect();
    let (slice, prefix, name) = match parts[..] {
        [""] => ("", "landstrip", id),
        [slice, prefix, name] => (slice, prefix, name),
        _ => {
            return Err(Error::new(format!(
                "linux.cgroupsPath: expected slice:prefix:name for systemd, got `{text}`"
            )));
        }
    };
    if name.ends_with(".slice") {
        return Err(Error::new(format!(
            "linux.cgroupsPath: a slice cannot hold processes: `{name}`"
        )));
    }
    let dash = if prefix.is_empty() { "" } else { "-" };
    let unit = format!("{prefix}{dash}{name}.scope");
    if name.is_empty() || unit.contains('/') {
        return Err(Error::new(format!("linux.cgroupsPath: `{unit}` is no name of a unit")));
    }
    Ok((slice.to_owned(), unit))
}

/// Where a slice's cgroup is: `a-b.slice` is in `a.slice`, see systemd.slice(5).
fn expand(slice: &str) -> Result<PathBuf> {
    let wrong = || Error::new(format!("linux.cgroupsPath: `{slice}` is no name of a slice"));
    let stem = slice.strip_suffix(".slice").filter(|s| !s.contains('/')).ok_or_else(wrong)?;
    let mut path = PathBuf::new();
    if stem == "-" {
        return Ok(path);
    }
    let mut end = 0;
    for part in stem.split('-') {
        if part.is_empty() {
            return Err(wrong());
        }
        end += part.len();
        path.push(format!("{}.slice", &stem[..end]));
        end += 1;
    }
    Ok(path)
}

/// Properties that the document gives as annotations, as text in GVariant's form. An annotation may be an image's:
/// what the document itself decides, as `own` does, cannot be said again.
fn annotated(spec: &Spec, own: &[Property]) -> Result<Vec<Property>> {
    let mut found = Vec::new();
    let annotations = spec.annotations().as_ref();
    let mut sorted: Vec<_> = annotations.into_iter().flatten().collect();
    sorted.sort();
    for (key, text) in sorted {
        let Some(name) = key.strip_prefix(ANNOTATION) else { continue };
        let wrong = |why: &str| Error::new(format!("annotation {key}: {why}"));
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return Err(wrong("no name of a property"));
        }
        if name == PROCESSES || own.iter().any(|own| own.name == name) {
            return Err(wrong("the document decides this"));
        }
        let value = text::parse(text).map_err(|why| wrong(&why))?;
        // What systemd's files have in seconds has another name, and unit, on the bus.
        found.push(match name.strip_suffix("Sec").filter(|rest| !rest.ends_with('U')) {
            Some(rest) => {
                let micros = text::microseconds(&value)
                    .ok_or_else(|| wrong("a time is a number of seconds"))?;
                Property::new(&format!("{rest}USec"), Value::U64(micros))
            }
            None => Property::new(name, value),
        });
    }
    Ok(found)
}

/// systemd on a bus.
struct Systemd(Bus);

const NAME: &str = "org.freedesktop.systemd1";
const PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";

impl Systemd {
    fn connect(session: bool) -> Result<Systemd> {
        Bus::connect(session).map(Systemd)
    }

    fn call(
        &mut self,
        member: &str,
        arguments: &[Value],
    ) -> std::result::Result<wire::Message, Refusal> {
        self.0.call(&Call { destination: NAME, path: PATH, interface: MANAGER, member, arguments })
    }

    fn control_group(&mut self) -> Result<String> {
        let arguments = [Value::text(MANAGER), Value::text("ControlGroup")];
        let answer = self.0.call(&Call {
            destination: NAME,
            path: PATH,
            interface: "org.freedesktop.DBus.Properties",
            member: "Get",
            arguments: &arguments,
        });
        let texts = answer.map_err(|refusal| refusal.error)?.texts().unwrap_or_default();
        texts
            .into_iter()
            .next()
            .ok_or_else(|| Error::new("systemd does not say where its cgroup is"))
    }

    /// Asks to be told of jobs that end.
    fn listen(&mut self) -> Result<()> {
        self.0.listen(&format!(
            "type='signal',sender='{NAME}',path='{PATH}',interface='{MANAGER}',member='JobRemoved'"
        ))?;
        // Without a subscriber systemd keeps them to itself.
        self.call("Subscribe", &[]).map(|_| ()).map_err(|refusal| refusal.error)
    }

    /// Waits for the end of the job that a call has begun.
    fn wait(
        &mut self,
        unit: &str,
        begun: std::result::Result<wire::Message, Refusal>,
    ) -> Result<()> {
        let begun = begun.map_err(|refusal| refusal.error)?;
        let job = begun.texts().and_then(|texts| texts.into_iter().next()).unwrap_or_default();
        loop {
            let signal = self.0.signal()?;
            let texts = signal.texts().unwrap_or_default();
            let (true, [path, _, result]) = (signal.member == "JobRemoved", &texts[..]) else {
                continue;
            };
            if *path != job {
                continue;
            }
            return match result.as_str() {
                "done" => Ok(()),
                other => {
                    Err(Error::new(format!("systemd unit {unit}: the job ended with `{other}`")))
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_in_their_slices() {
        let at = |slice: &str| expand(slice).ok();
        assert_eq!(at("a-bc-d.slice"), Some("a.slice/a-bc.slice/a-bc-d.slice".into()));
        assert_eq!(at("-.slice"), Some("".into()));
        for bad in ["", ".slice", "a", "a--b.slice", "-a.slice", "a/b.slice"] {
            assert_eq!(at(bad), None, "{bad}");
        }
    }

    #[test]
    fn paths_name_units() {
        let of = |path: &str| parse(Path::new(path), "id").ok();
        let unit = |slice: &str, name: &str| Some((slice.to_owned(), name.to_owned()));
        assert_eq!(of("machine.slice:libpod:c1"), unit("machine.slice", "libpod-c1.scope"));
        assert_eq!(of(""), unit("", "landstrip-id.scope"));
        assert_eq!(of("::x"), unit("", "x.scope"));
        for bad in ["/a/b", "a:b", "a:b:c:d", "a:b:", "a:b:../c", "a:b:c.slice"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
