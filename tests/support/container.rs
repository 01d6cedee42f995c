//! A bundle in a temporary directory, and the container that it becomes.
//!
//! The root holds nothing but `/probe`, which is bound from the host. Beside the root is `outside`, which
//! nothing in a container may reach.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use super::{LANDSTRIP, probe};

/// A bundle.
pub struct Bundle {
    dir: tempfile::TempDir,
    /// The document, without the program's arguments.
    pub spec: Value,
    /// Options of `run`.
    pub options: Vec<&'static str>,
    /// The user that the runtime runs as, if it is not the one that runs the tests.
    pub user: Option<u32>,
    /// A shell command that is run before, in a mount namespace that the runtime then has.
    pub before: Option<String>,
    /// A program that the user runs the runtime by.
    pub wrapper: Vec<&'static str>,
}

/// What a container left.
#[derive(Debug)]
pub struct Ended {
    /// Exit status of the runtime, which is that of the program.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error of both.
    pub stderr: String,
}

impl Ended {
    /// The last line of the probe, which must have come to its end.
    pub fn last(&self) -> &str {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout.lines().last().expect("a line")
    }
}

impl Bundle {
    /// A container of root with every capability, and namespaces of all kinds but for users.
    pub fn new() -> Bundle {
        let dir = tempfile::Builder::new().prefix("bundle").tempdir().expect("a bundle");
        for name in ["rootfs", "outside", "state"] {
            std::fs::create_dir(dir.path().join(name)).expect("a directory");
        }
        let all = ["CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE", "CAP_MKNOD", "CAP_CHOWN", "CAP_FOWNER"];
        let namespaces = ["pid", "mount", "ipc", "uts", "network"].map(|n| json!({ "type": n }));
        let spec = json!({
            "ociVersion": "1.2.0",
            "root": { "path": "rootfs" },
            "process": {
                "cwd": "/",
                "user": { "uid": 0, "gid": 0 },
                "capabilities": { "bounding": all, "effective": all, "permitted": all },
            },
            "mounts": [
                { "destination": "/proc", "type": "proc", "source": "proc" },
                {
                    "destination": "/dev", "type": "tmpfs", "source": "tmpfs",
                    "options": ["nosuid", "strictatime", "mode=755", "size=65536k"],
                },
                { "destination": "/probe", "source": probe(), "options": ["bind", "ro"] },
            ],
            "linux": { "namespaces": namespaces },
        });
        Bundle { dir, spec, options: Vec::new(), user: None, before: None, wrapper: Vec::new() }
    }

    /// Gives it a user namespace of `size` users, whose root is `first` outside and owns the root directory.
    pub fn in_user_namespace(&mut self, first: u32, size: u32) {
        let map = json!([{ "containerID": 0, "hostID": first, "size": size }]);
        let linux = &mut self.spec["linux"];
        linux["namespaces"].as_array_mut().expect("namespaces").push(json!({ "type": "user" }));
        linux["uidMappings"] = map.clone();
        linux["gidMappings"] = map;
        std::os::unix::fs::chown(self.path("rootfs"), Some(first), Some(first)).expect("an owner");
    }

    /// Has an ordinary user run it, to whom everything in it belongs. False where that user cannot reach
    /// the program.
    pub fn owned_by(&mut self, user: u32) -> bool {
        for name in ["", "rootfs", "outside", "state"] {
            std::os::unix::fs::chown(self.path(name), Some(user), Some(user)).expect("an owner");
        }
        self.user = Some(user);
        let id = user.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "test", "-x", LANDSTRIP]);
        command.status().is_ok_and(|status| status.success())
    }

    /// A place in the bundle.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A place in the container's root, as the host sees it.
    pub fn inside(&self, name: &str) -> PathBuf {
        self.path("rootfs").join(name.trim_start_matches('/'))
    }

    /// Adds a mount.
    pub fn mount(&mut self, mount: Value) -> &mut Bundle {
        self.spec["mounts"].as_array_mut().expect("mounts").push(mount);
        self
    }

    /// Adds a bind mount of a place in the bundle.
    pub fn bind(&mut self, source: &str, destination: &str, options: &[&str]) -> &mut Bundle {
        let source = self.path(source);
        self.mount(json!({ "destination": destination, "source": source, "options": options }))
    }

    /// Runs the probe in it.
    pub fn probe(&self, ops: &[&str]) -> Ended {
        let mut words = vec!["/probe"];
        words.extend(ops);
        self.run(&words)
    }

    /// Runs a program in it, and waits for the end.
    pub fn run(&self, words: &[&str]) -> Ended {
        self.write(words);
        let id = self.id();
        let bundle = self.dir.path().to_str().expect("a path");
        self.runtime(&[&["run"], &self.options[..], &["--bundle", bundle, &id]].concat())
    }

    /// Writes the document, for a program.
    pub fn write(&self, words: &[&str]) {
        let mut spec = self.spec.clone();
        spec["process"]["args"] = json!(words);
        std::fs::write(self.path("config.json"), spec.to_string()).expect("a document");
    }

    /// A name for a container.
    pub fn id(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        format!("test-{}-{:04}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Calls the runtime, and waits for its end.
    pub fn runtime(&self, words: &[&str]) -> Ended {
        let output = self.command(words).output().expect("timeout(1)");
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Ended {
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }

    /// The runtime, with these words.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = self.caller();
        command.arg("--root").arg(self.path("state")).args(["--cgroup-manager", "disabled"]);
        command.args(words);
        command
    }

    /// The runtime, with no word yet.
    pub fn caller(&self) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=2", "30"]);
        if let Some(before) = &self.before {
            let script = format!("{before} && exec \"$@\"");
            command.args(["unshare", "--mount", "--propagation", "private"]);
            command.args(["sh", "-c", &script, "sh"]);
        }
        if let Some(user) = self.user {
            let id = user.to_string();
            command.args(["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups"]);
        }
        command.args(&self.wrapper).arg(runtime());
        command
    }

    /// The names in `outside`.
    pub fn outside(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.path("outside")).expect("outside");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    }
}

/// The program by its name as a runtime, which is a link.
fn runtime() -> PathBuf {
    let path = Path::new(LANDSTRIP).with_file_name("landstrip-oci");
    match std::os::unix::fs::symlink("landstrip", &path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => panic!("{error}"),
        _ => path,
    }
}
