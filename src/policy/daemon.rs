//! Sockets that are as good as the host: whoever may connect to one can have a process started
//! outside of the sandbox, as another user or as root.
//!
//! Neither a directory of `allowUnixSockets` nor `allowAllUnixSockets` opens them; an entry that names
//! one does.

use super::path::is_within;

/// What the message buses, service managers and container engines have in `/run`.
const IN_RUN: &[&str] = &[
    "buildkit",
    "containerd",
    "crio",
    "dbus",
    "docker",
    "docker.sock",
    "incus",
    "k3s",
    "libvirt",
    "lxd",
    "podman",
    "snapd.socket",
    "systemd",
];

/// What they have in a user's runtime directory.
const IN_RUNTIME_DIRECTORY: &[&str] = &[
    "at-spi",
    "buildkit",
    "bus",
    "containerd",
    "containerd-rootless",
    "dbus-1",
    "docker",
    "docker.sock",
    "libvirt",
    "podman",
    "systemd",
];

/// What they have elsewhere.
const ELSEWHERE: &[&str] = &[
    "/var/lib/incus/unix.socket",
    "/var/lib/lxd/unix.socket",
    "/var/snap/lxd/common/lxd/unix.socket",
];

/// The sockets that are as good as the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Daemons {
    /// The user's runtime directory, where it is not below `/run/user`.
    runtime: Option<String>,
    /// Sockets that the environment names.
    named: Vec<String>,
}

impl Daemons {
    /// The names that container engines give their sockets wherever they put them.
    pub const NAMES: &'static [&'static str] =
        &["buildkitd.sock", "containerd.sock", "crio.sock", "docker.sock", "podman.sock"];

    /// The well-known ones, and those that the variables of an environment name: `XDG_RUNTIME_DIR`,
    /// the bus addresses of D-Bus, and the hosts of container clients. `canonical` gives a path the
    /// form without symbolic links.
    pub fn of<'a>(
        variables: impl Iterator<Item = (&'a str, &'a str)>,
        canonical: impl Fn(&str) -> String,
    ) -> Daemons {
        let mut daemons = Daemons::default();
        // What is known by its place already is not looked up.
        let canonical = |path: &str| match Daemons::default().contains(path.as_bytes()) {
            true => path.to_owned(),
            false => canonical(path),
        };
        for (name, value) in variables {
            match name {
                "XDG_RUNTIME_DIR" if value.starts_with('/') => {
                    daemons.runtime = Some(match value.starts_with("/run/user/") {
                        true => value.to_owned(),
                        false => canonical(value),
                    });
                }
                "DBUS_SESSION_BUS_ADDRESS" | "DBUS_SYSTEM_BUS_ADDRESS" => {
                    // Addresses are separated by `;`, the keys of one by `,`.
                    let keys = value.split(';').filter_map(|one| one.strip_prefix("unix:"));
                    let keys = keys.flat_map(|keys| keys.split(','));
                    let paths = keys.filter_map(|key| key.strip_prefix("path="));
                    daemons.named.extend(paths.map(&canonical));
                }
                "CONTAINERD_ADDRESS" | "CONTAINER_HOST" | "DOCKER_HOST" => {
                    let path = value.strip_prefix("unix://").unwrap_or(value);
                    daemons.named.extend(path.starts_with('/').then(|| canonical(path)));
                }
                _ => {}
            }
        }
        daemons
    }

    /// Whether `path`, which is canonical, is that of a socket as good as the host.
    pub fn contains(&self, path: &[u8]) -> bool {
        let below = |directory: &str, names: &[&str]| {
            let rest = path.strip_prefix(directory.as_bytes()).and_then(|p| p.strip_prefix(b"/"));
            rest.is_some_and(|rest| names.iter().any(|name| is_within(rest, name.as_bytes())))
        };
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        below("/run", IN_RUN)
            || below("/var/run", IN_RUN)
            || runtime_directory(path).is_some_and(|top| below(top, IN_RUNTIME_DIRECTORY))
            || self.runtime.as_ref().is_some_and(|top| below(top, IN_RUNTIME_DIRECTORY))
            || ELSEWHERE.iter().any(|known| known.as_bytes() == path)
            || Self::NAMES.iter().any(|known| known.as_bytes() == name)
            || path.strip_prefix(b"/tmp/").is_some_and(|name| name.starts_with(b"dbus-"))
            || self.named.iter().any(|known| known.as_bytes() == path)
    }

    /// The files and directories that hold those of the host and of `user`, for a container that shows neither.
    pub fn places(&self, user: u32) -> Vec<String> {
        let users = format!("/run/user/{user}");
        let of_users = [Some(&users), self.runtime.as_ref()].into_iter().flatten();
        let mut places: Vec<String> = IN_RUN.iter().map(|name| format!("/run/{name}")).collect();
        for top in of_users {
            places.extend(IN_RUNTIME_DIRECTORY.iter().map(|name| format!("{top}/{name}")));
        }
        places.extend(ELSEWHERE.iter().map(|&path| path.to_owned()));
        places.extend(self.named.iter().cloned());
        places.sort_unstable();
        places.dedup();
        places
    }

    /// The paths that are known in full, to look for the same socket under another name.
    pub fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = ELSEWHERE.iter().map(|&path| path.to_owned()).collect();
        for name in [
            "containerd/containerd.sock",
            "dbus/system_bus_socket",
            "docker.sock",
            "podman/podman.sock",
            "systemd/private",
        ] {
            paths.push(format!("/run/{name}"));
        }
        if let Some(top) = &self.runtime {
            for name in ["bus", "docker.sock", "podman/podman.sock", "systemd/private"] {
                paths.push(format!("{top}/{name}"));
            }
        }
        paths.extend(self.named.iter().cloned());
        paths
    }
}

/// The `/run/user/1000` of a path below it.
fn runtime_directory(path: &[u8]) -> Option<&str> {
    const USERS: &[u8] = b"/run/user/";
    let user = path.strip_prefix(USERS)?.split(|&byte| byte == b'/').next()?;
    std::str::from_utf8(&path[..USERS.len() + user.len()]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_are_known_by_their_sockets() {
        let variables = [
            ("XDG_RUNTIME_DIR", "/tmp/run"),
            ("DBUS_SESSION_BUS_ADDRESS", "unix:abstract=/x,guid=1;unix:guid=2,path=/home/u/bus"),
            ("DOCKER_HOST", "unix:///home/u/engine"),
            ("CONTAINER_HOST", "tcp://host:1"),
            ("OTHER", "/home/u/other"),
        ];
        let daemons = Daemons::of(variables.into_iter(), str::to_owned);
        for (path, expected) in [
            ("/run/dbus/system_bus_socket", true),
            ("/var/run/docker.sock", true),
            ("/run/docker.sock", true),
            ("/run/docker.sock.d", false),
            ("/run/systemd/private", true),
            ("/run/user/1000/bus", true),
            ("/run/user/1000/systemd/private", true),
            ("/run/user/1000/podman/podman.sock", true),
            ("/run/user/1000/gnupg/S.gpg-agent", false),
            ("/run/user/1000/wayland-0", false),
            ("/run/user", false),
            ("/tmp/run/bus", true),
            ("/tmp/run/other", false),
            ("/tmp/dbus-Xy", true),
            ("/tmp/x/dbus-Xy", false),
            ("/home/u/.colima/default/docker.sock", true),
            ("/var/lib/incus/unix.socket", true),
            ("/home/u/bus", true),
            ("/home/u/engine", true),
            ("/home/u/other", false),
            ("/run/postgresql/.s.PGSQL.5432", false),
        ] {
            assert_eq!(daemons.contains(path.as_bytes()), expected, "{path}");
        }
        assert!(daemons.paths().iter().all(|path| daemons.contains(path.as_bytes())));
        assert!(daemons.places(7).iter().all(|path| daemons.contains(path.as_bytes())));
    }
}
