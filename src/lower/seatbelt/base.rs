//! What every program needs of macOS, whatever the policy: named one by one, so that what is not here is
//! closed.
//!
//! The names of operations and filters are those of Apple's own profiles in `/System/Library/Sandbox/Profiles`;
//! nothing documents them. One that a version of macOS does not know fails the launch there.

use super::text::{quoted, rule};
use crate::policy::Macos;

/// Services that the C library, the loader and the frameworks of command line programs look up.
const SERVICES: &[&str] = &[
    "com.apple.bsd.dirhelper",
    "com.apple.logd",
    "com.apple.system.logger",
    "com.apple.system.notification_center",
    "com.apple.system.opendirectoryd.libinfo",
    "com.apple.system.opendirectoryd.membership",
];

/// Devices whose ioctl(2) is harmless.
const DEVICES: &[&str] =
    &["/dev/dtracehelper", "/dev/null", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero"];

/// Certificates are verified by a service, which fetches what is missing from the network: a way out.
const TRUSTD: &[&str] = &["com.apple.trustd", "com.apple.trustd.agent"];
/// Events to other applications, which act outside of the sandbox.
const APPLE_EVENTS: &[&str] = &[
    "com.apple.CoreServices.coreservicesd",
    "com.apple.coreservices.appleevents",
    "com.apple.coreservices.launchservicesd",
    "com.apple.coreservices.quarantine-resolver",
];

/// The rules that do not speak about files or the network. `terminal` is the one of the run.
pub fn rules(macos: &Macos, terminal: Option<&str>) -> Vec<String> {
    let on = |flag: &Option<crate::policy::Located<bool>>| flag.as_ref().is_some_and(|l| l.value);
    let mut lines = vec![
        rule("allow", "process-fork", &[], None),
        // Of processes, those of the run.
        rule("allow", "process-info* signal mach-priv-task-port", &["(target same-sandbox)"], None),
        rule("allow", "sysctl-read", &[], None),
        rule("allow", "ipc-posix-sem ipc-posix-shm", &[], None),
        rule("allow", "system-socket", &["(socket-domain AF_UNIX)"], None),
    ];
    let mut services: Vec<String> = SERVICES.iter().map(|name| global(name)).collect();
    if on(&macos.allow_trustd) {
        services.extend(TRUSTD.iter().map(|name| global(name)));
    }
    if on(&macos.allow_apple_events) {
        services.extend(APPLE_EVENTS.iter().map(|name| global(name)));
        lines.push(rule("allow", "appleevent-send lsopen", &[], None));
    }
    services.extend(macos.allow_mach_lookup.iter().map(|service| {
        match service.value.strip_suffix('*') {
            Some(start) => format!("(global-name-prefix {})", quoted(start)),
            None => global(&service.value),
        }
    }));
    let services: Vec<&str> = services.iter().map(String::as_str).collect();
    lines.push(rule("allow", "mach-lookup", &services, None));
    let devices = DEVICES.iter().copied().chain(terminal);
    let devices: Vec<String> = devices.map(|path| format!("(literal {})", quoted(path))).collect();
    let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
    lines.push(rule("allow", "file-ioctl", &devices, None));
    if on(&macos.allow_pty) {
        let terminals = ["(literal \"/dev/ptmx\")", "(regex \"^/dev/ttys[0-9]+$\")"];
        lines.push(rule("allow", "pseudo-tty", &[], None));
        lines.push(rule("allow", "file-ioctl file-read* file-write*", &terminals, None));
    }
    lines
}

fn global(name: &str) -> String {
    format!("(global-name {})", quoted(name))
}
