//! `features`: what this runtime can do, whatever the host can (features.md).

use serde_json::json;

use super::look;
use crate::oci::{Result, landlock, rootfs};

/// `features`.
///
/// # Errors
///
/// Where standard output cannot be written.
pub fn features() -> Result<()> {
    let mut capabilities: Vec<String> =
        caps::all().into_iter().map(|capability| capability.to_string()).collect();
    capabilities.sort();
    look::json(&json!({
        "ociVersionMin": "1.0.0",
        "ociVersionMax": "1.3.0",
        "hooks": ["prestart", "createRuntime", "createContainer", "startContainer", "poststart",
            "poststop"],
        "mountOptions": rootfs::MOUNT_OPTIONS,
        "linux": {
            "namespaces": ["cgroup", "ipc", "mount", "network", "pid", "time", "user", "uts"],
            "capabilities": capabilities,
            "cgroup": {"v1": true, "v2": true, "systemd": true, "systemdUser": true, "rdma": true},
            "seccomp": {
                "enabled": true,
                "actions": ["SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO", "SCMP_ACT_KILL",
                    "SCMP_ACT_KILL_PROCESS", "SCMP_ACT_KILL_THREAD", "SCMP_ACT_LOG",
                    "SCMP_ACT_NOTIFY", "SCMP_ACT_TRACE", "SCMP_ACT_TRAP"],
                "operators": ["SCMP_CMP_EQ", "SCMP_CMP_GE", "SCMP_CMP_GT", "SCMP_CMP_LE",
                    "SCMP_CMP_LT", "SCMP_CMP_MASKED_EQ", "SCMP_CMP_NE"],
                "archs": ["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM", "SCMP_ARCH_X32", "SCMP_ARCH_X86",
                    "SCMP_ARCH_X86_64"],
                "knownFlags": ["SECCOMP_FILTER_FLAG_LOG", "SECCOMP_FILTER_FLAG_SPEC_ALLOW",
                    "SECCOMP_FILTER_FLAG_TSYNC", "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV"],
                "supportedFlags": ["SECCOMP_FILTER_FLAG_LOG", "SECCOMP_FILTER_FLAG_SPEC_ALLOW",
                    "SECCOMP_FILTER_FLAG_TSYNC", "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV"],
            },
            "apparmor": {"enabled": true},
            "selinux": {"enabled": true},
            "intelRdt": {"enabled": true, "schemata": true, "monitoring": false},
            "memoryPolicy": {
                "modes": ["MPOL_BIND", "MPOL_DEFAULT", "MPOL_INTERLEAVE", "MPOL_LOCAL",
                    "MPOL_PREFERRED", "MPOL_PREFERRED_MANY", "MPOL_WEIGHTED_INTERLEAVE"],
                "flags": ["MPOL_F_NUMA_BALANCING", "MPOL_F_RELATIVE_NODES", "MPOL_F_STATIC_NODES"],
            },
            "mountExtensions": {"idmap": {"enabled": true}},
            "netDevices": {"enabled": true},
        },
        "annotations": {
            "dev.landstrip.version": env!("CARGO_PKG_VERSION"),
            "dev.landstrip.landlock.abi": landlock::NEWEST_ABI.to_string(),
        },
        "potentiallyUnsafeConfigAnnotations": ["dev.landstrip.", "org.systemd.property.",
            "run.oci.keep_original_groups"],
    }))
}
