//! The table of known keys. The parser reads by it, hints come from it, and a test holds the JSON
//! Schema to it.

use super::document::{AppContainerMode, Document, Paths};
use super::rule::Located;

/// The sections of a document.
pub(crate) const SECTIONS: &[&str] = &["filesystem", "network", "limits", "macos", "windows"];

/// Where the value of a key goes, which also says of what type it is.
pub(crate) enum Slot<'a> {
    Paths(&'a mut Paths),
    Hosts(&'a mut Option<Vec<Located<String>>>),
    Services(&'a mut Vec<Located<String>>),
    Flag(&'a mut Option<Located<bool>>),
    Port(&'a mut Option<Located<u16>>),
    Ports(&'a mut Vec<Located<u16>>),
    Amount(&'a mut Option<Located<u64>>, Unit),
    Tag(&'a mut Option<Located<String>>),
    Container(&'a mut Option<Located<AppContainerMode>>),
}

/// What an amount counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Bytes; a text ends in K, M, G or T, which are powers of 1024.
    Bytes,
    /// Whole things.
    Count,
    /// CPUs, kept as thousandths.
    Cpus,
    /// Seconds.
    Seconds,
}

/// What happens to a key.
pub(crate) enum Target {
    /// Its value is kept.
    Kept(for<'a> fn(&'a mut Document) -> Slot<'a>),
    /// It is known and has no effect, which opens nothing: why.
    Ignored(&'static str),
    /// It is known and refused, since ignoring it would open something: why.
    Refused(&'static str),
}

/// A known key.
pub(crate) struct Key {
    /// One of [`SECTIONS`], or empty for the top level.
    pub section: &'static str,
    pub name: &'static str,
    pub target: Target,
}

impl Key {
    /// The key path.
    pub(crate) fn path(&self) -> String {
        join(self.section, self.name)
    }
}

/// The key path of a name in a section, or at the top level.
pub(crate) fn join(section: &str, name: &str) -> String {
    if section.is_empty() { name.to_owned() } else { format!("{section}.{name}") }
}

const fn kept(
    section: &'static str,
    name: &'static str,
    slot: for<'a> fn(&'a mut Document) -> Slot<'a>,
) -> Key {
    Key { section, name, target: Target::Kept(slot) }
}

const fn ignored(section: &'static str, name: &'static str, reason: &'static str) -> Key {
    Key { section, name, target: Target::Ignored(reason) }
}

const fn refused(section: &'static str, name: &'static str, reason: &'static str) -> Key {
    Key { section, name, target: Target::Refused(reason) }
}

const FS: &str = "filesystem";
const NET: &str = "network";
const OPENS: &str = "it would open something that stays closed here";
const MACOS_OPENS: &str = "it would open something on macOS that stays closed here";
const OTHER_TOOL: &str = "it configures a program that is not used here";
const SEES: &str = "requests are not inspected here, so its rules would not hold";

/// Every known key. Those that are ignored or refused come from the Anthropic Sandbox Runtime,
/// but for `windows.backend`.
pub(crate) const KEYS: &[Key] = &[
    kept(FS, "allowWrite", |d| Slot::Paths(&mut d.filesystem.allow_write)),
    kept(FS, "denyWrite", |d| Slot::Paths(&mut d.filesystem.deny_write)),
    kept(FS, "denyWriteAlways", |d| Slot::Paths(&mut d.filesystem.deny_write_always)),
    kept(FS, "allowRead", |d| Slot::Paths(&mut d.filesystem.allow_read)),
    kept(FS, "denyRead", |d| Slot::Paths(&mut d.filesystem.deny_read)),
    kept(FS, "denyReadAlways", |d| Slot::Paths(&mut d.filesystem.deny_read_always)),
    kept(FS, "gitDir", |d| Slot::Flag(&mut d.filesystem.git_dir)),
    ignored(FS, "allowGitConfig", OPENS),
    ignored(FS, "disabled", OPENS),
    ignored(
        FS,
        "protectNonexistentFiles",
        "paths that do not exist are always held, without placeholders",
    ),
    kept(NET, "allowNetwork", |d| Slot::Flag(&mut d.network.allow_network)),
    kept(NET, "allowedDomains", |d| Slot::Hosts(&mut d.network.allowed_domains)),
    kept(NET, "deniedDomains", |d| Slot::Hosts(&mut d.network.denied_domains)),
    kept(NET, "proxyEnvironment", |d| Slot::Flag(&mut d.network.proxy_environment)),
    kept(NET, "httpProxyPort", |d| Slot::Port(&mut d.network.http_proxy_port)),
    kept(NET, "socksProxyPort", |d| Slot::Port(&mut d.network.socks_proxy_port)),
    kept(NET, "hostPorts", |d| Slot::Ports(&mut d.network.host_ports)),
    kept(NET, "expose", |d| Slot::Ports(&mut d.network.expose)),
    kept(NET, "allowLocalBinding", |d| Slot::Flag(&mut d.network.allow_local_binding)),
    kept(NET, "allowUnixSockets", |d| Slot::Paths(&mut d.network.allow_unix_sockets)),
    kept(NET, "allowAllUnixSockets", |d| Slot::Flag(&mut d.network.allow_all_unix_sockets)),
    ignored(NET, "allowMachLookup", "`macos.allowMachLookup` is the key for it here"),
    ignored(NET, "allowUnauthenticatedSocksProxy", OPENS),
    refused(NET, "mitmProxy", "no such proxy is used here, so its rules would not hold"),
    refused(NET, "parentProxy", "no such proxy is used here, so connections would go around it"),
    refused(NET, "filterRequest", SEES),
    refused(NET, "tlsTerminate", SEES),
    kept("limits", "memory", |d| Slot::Amount(&mut d.limits.memory, Unit::Bytes)),
    kept("limits", "pids", |d| Slot::Amount(&mut d.limits.pids, Unit::Count)),
    kept("limits", "cpu", |d| Slot::Amount(&mut d.limits.cpu, Unit::Cpus)),
    kept("limits", "time", |d| Slot::Amount(&mut d.limits.time, Unit::Seconds)),
    kept("macos", "allowMachLookup", |d| Slot::Services(&mut d.macos.allow_mach_lookup)),
    kept("macos", "allowTrustd", |d| Slot::Flag(&mut d.macos.allow_trustd)),
    kept("macos", "allowAppleEvents", |d| Slot::Flag(&mut d.macos.allow_apple_events)),
    kept("macos", "allowPty", |d| Slot::Flag(&mut d.macos.allow_pty)),
    kept("macos", "logTag", |d| Slot::Tag(&mut d.macos.log_tag)),
    kept("windows", "appContainerMode", |d| Slot::Container(&mut d.windows.app_container_mode)),
    kept("windows", "allowLoopback", |d| Slot::Flag(&mut d.windows.allow_loopback)),
    refused(
        "windows",
        "backend",
        "the implementation is chosen with `windows install` and `windows uninstall`",
    ),
    ignored("windows", "sandboxUser", OTHER_TOOL),
    ignored("windows", "groupName", OTHER_TOOL),
    ignored("windows", "groupSid", OTHER_TOOL),
    ignored("windows", "sublayerGuid", OTHER_TOOL),
    ignored("windows", "wfpSublayerGuid", OTHER_TOOL),
    ignored("windows", "proxyPortRange", OTHER_TOOL),
    ignored("windows", "srtWin", OTHER_TOOL),
    ignored("", "$schema", "it names the schema for editors"),
    refused("", "credentials", "credentials are not masked or removed here; use denyRead"),
    ignored("", "ignoreViolations", "it silences reports, and every denial is reported here"),
    ignored("", "enableWeakerNestedSandbox", OPENS),
    ignored("", "enableWeakerNetworkIsolation", "`macos.allowTrustd` is the key for it here"),
    ignored("", "allowAppleEvents", "`macos.allowAppleEvents` is the key for it here"),
    ignored("", "allowPty", "`macos.allowPty` is the key for it here"),
    ignored("", "allowBrowserProcess", MACOS_OPENS),
    ignored("", "ripgrep", OTHER_TOOL),
    ignored("", "mandatoryDenySearchDepth", "globs are matched at access time, at any depth"),
    ignored("", "seccomp", OTHER_TOOL),
    ignored("", "bwrapPath", OTHER_TOOL),
    ignored("", "socatPath", OTHER_TOOL),
];

/// The key of this name in a section.
pub(crate) fn find(section: &str, name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.section == section && key.name == name)
}

/// The known key path, a section's name among them, that an unknown key was probably meant to be.
pub(crate) fn nearest(section: &str, name: &str) -> Option<String> {
    const LONGEST: usize = 64;
    if name.len() > LONGEST {
        return None;
    }
    let asked = name.to_lowercase();
    let tolerance = (name.chars().count() / 3).clamp(1, 4);
    let sections = SECTIONS.iter().map(|name| ("", *name));
    let keys = KEYS.iter().map(|key| (key.section, key.name));
    sections
        .chain(keys)
        .map(|(known_section, known)| {
            let distance = strsim::osa_distance(&asked, &known.to_lowercase());
            (distance, known_section != section, join(known_section, known))
        })
        .filter(|(distance, ..)| *distance <= tolerance)
        .min()
        .map(|(.., path)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_name_the_nearest_key() {
        let cases = [
            ("filesystem", "denyWrit", Some("filesystem.denyWrite")),
            ("filesystem", "denywrite", Some("filesystem.denyWrite")),
            ("filesystem", "allowNetwork", Some("network.allowNetwork")),
            ("", "filesystm", Some("filesystem")),
            ("", "denyRead", Some("filesystem.denyRead")),
            ("network", "allowLocalbind", Some("network.allowLocalBinding")),
            ("network", "xyz", None),
        ];
        for (section, name, expected) in cases {
            assert_eq!(nearest(section, name).as_deref(), expected, "{section}.{name}");
        }
    }

    #[test]
    fn the_table_holds_each_key_once() {
        let mut paths: Vec<String> = KEYS.iter().map(Key::path).collect();
        let count = paths.len();
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), count);
        assert!(KEYS.iter().all(|k| k.section.is_empty() || SECTIONS.contains(&k.section)));
    }
}
