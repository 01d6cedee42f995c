//! A bundle whose root holds busybox, and the commands of the runtime on it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use super::have::have;

/// The shell and its tools, static.
pub const BUSYBOX: &str = "/bin/busybox";

/// A bundle whose root holds busybox, and a directory of states.
pub struct Place {
    pub dir: tempfile::TempDir,
    pub spec: Value,
    pub options: Vec<String>,
}

#[derive(Debug)]
pub struct Answer {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Answer {
    pub fn good(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    pub fn bad(self, says: &str) {
        assert!(!matches!(self.code, Some(0) | None), "{self:?}");
        assert!(self.err.contains(says), "{says}: {self:?}");
    }
}

/// A name that no other test has.
pub fn id() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-life-{}-{:04}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Place {
    pub fn new() -> Place {
        let dir = tempfile::Builder::new().prefix("life").tempdir().expect("a directory");
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).expect("chmod");
        let root = dir.path().join("rootfs");
        for name in ["bin", "proc", "dev", "sys", "tmp", "etc"] {
            std::fs::create_dir_all(root.join(name)).expect("a directory");
        }
        std::fs::copy(BUSYBOX, root.join("bin/busybox")).expect("busybox");
        for name in ["sh", "cat", "id", "sleep", "grep", "echo", "readlink", "stat", "tty", "stty"]
        {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(name)).expect("a link");
        }
        let kinds = ["pid", "mount", "ipc", "uts", "network"].map(|kind| json!({"type": kind}));
        let caps = json!(["CAP_KILL", "CAP_CHOWN"]);
        let spec = json!({
            "ociVersion": "1.0.2",
            "root": {"path": "rootfs"},
            "process": {
                "cwd": "/", "user": {"uid": 0, "gid": 0}, "env": ["PATH=/bin"],
                "capabilities": {"bounding": caps, "effective": caps, "permitted": caps},
            },
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
                {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
                    "options": ["newinstance", "ptmxmode=0666", "mode=0620"]},
            ],
            "annotations": {"org.example.key": "value"},
            "linux": {"namespaces": kinds},
        });
        Place { dir, spec, options: Vec::new() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes the document, with the program's arguments.
    pub fn program(&self, args: &[&str]) -> &Place {
        let mut spec = self.spec.clone();
        spec["process"]["args"] = json!(args);
        std::fs::write(self.path("config.json"), spec.to_string()).expect("a document");
        self
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=2", "120", super::LANDSTRIP]);
        command.arg("--root").arg(self.path("state")).args(&self.options).args(args);
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    pub fn call(&self, args: &[&str]) -> Answer {
        // Files, since a container that is left running would hold a pipe open.
        let files = ["out", "err"].map(|name| self.path(&format!("{name}-{}", id())));
        let mut command = self.command(args);
        let open = |path: &Path| std::fs::File::create(path).expect("a file");
        command.stdout(open(&files[0])).stderr(open(&files[1]));
        let code = command.status().expect("timeout(1)").code();
        let [out, err] = files.map(|path| std::fs::read_to_string(path).expect("text"));
        Answer { code, out, err }
    }

    pub fn state(&self, id: &str) -> Value {
        serde_json::from_str(&self.call(&["state", id]).good()).expect("JSON")
    }

    /// Runs a program to its end.
    pub fn run(&self, args: &[&str]) -> Answer {
        self.program(args).call(&["run", "--bundle", ".", &id()])
    }

    /// Runs a shell script to its end, and gives what it wrote.
    pub fn sh(&self, script: &str) -> String {
        self.run(&["sh", "-c", script]).good()
    }

    /// A container whose program waits.
    pub fn waiting(&self) -> Waiting<'_> {
        let id = id();
        self.program(&["sleep", "1000"]).call(&["run", "--detach", "-b", ".", &id]).good();
        Waiting { place: self, id }
    }
}

/// A container that is taken away with this.
pub struct Waiting<'a> {
    pub place: &'a Place,
    pub id: String,
}

impl Waiting<'_> {
    pub fn exec(&self, args: &[&str]) -> Answer {
        self.place.call(&[&["exec"], args].concat())
    }

    pub fn sh(&self, script: &str) -> String {
        self.exec(&[&self.id, "sh", "-c", script]).good()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let _gone = self.place.call(&["delete", "--force", &self.id]);
    }
}

pub fn ready(what: &str) -> bool {
    have(what, &["root", BUSYBOX])
}

/// Waits until a container has ended, by the pid that its state had.
pub fn gone(pid: &Value) {
    let pid = u32::try_from(pid.as_u64().expect("a pid")).expect("a pid");
    assert!(super::ends(pid, super::PATIENCE), "{pid} still runs");
}

pub fn status(place: &Place, id: &str) -> String {
    place.state(id)["status"].as_str().expect("a status").to_owned()
}
