//! Where the table is gone through: `w`, in which a run starts, `outside` beside it, and the two ways to do
//! something there, under a policy and without one.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::child::CHILD;

const DIRECTORIES: &[&str] =
    &["w/.git/hooks", "w/sub", "w/hidden/open", "w/always/again", "outside/empty"];
const FILES: &[&str] = &[
    "w/file",
    "w/secret",
    "w/.env",
    "w/.git/config",
    "w/.git/hooks/hook",
    "w/sub/file",
    "w/sub/.env",
    "w/sub/a.key",
    "w/hidden/file",
    "w/hidden/open/file",
    "w/always/again/file",
    "outside/file",
];

/// A fresh tree, and what there is outside of a run.
pub struct Place {
    directory: TempDir,
    ports: [TcpListener; 2],
    process: Option<Child>,
    #[cfg(unix)]
    _socket: std::os::unix::net::UnixListener,
}

/// This program where every run may execute it, and the policy.
pub struct Tools(TempDir);

impl Tools {
    pub fn new() -> io::Result<Tools> {
        let tools = Tools(temporary()?);
        fs::copy(std::env::current_exe()?, tools.program())?;
        Ok(tools)
    }

    pub fn program(&self) -> PathBuf {
        self.0.path().join(format!("program{}", std::env::consts::EXE_SUFFIX))
    }
}

/// By the name that the system has for it: `/var` is a link on macOS.
fn temporary() -> io::Result<TempDir> {
    let parent = std::env::temp_dir();
    TempDir::new_in(if cfg!(unix) { parent.canonicalize()? } else { parent })
}

impl Place {
    pub fn new() -> io::Result<Place> {
        let directory = temporary()?;
        let at = |name: &str| directory.path().join(name);
        for name in DIRECTORIES {
            fs::create_dir_all(at(name))?;
        }
        for name in FILES {
            fs::write(at(name), "text")?;
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            fs::write(at("w/hidden/script"), "#!/bin/sh\n")?;
            fs::set_permissions(at("w/hidden/script"), fs::Permissions::from_mode(0o755))?;
        }
        Ok(Place {
            #[cfg(unix)]
            _socket: std::os::unix::net::UnixListener::bind(at("outside/socket"))?,
            ports: [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?],
            process: None,
            directory,
        })
    }

    /// The directory that runs start in.
    pub fn start(&self) -> PathBuf {
        self.directory.path().join("w")
    }

    /// A process outside, which is there as long as the place.
    fn process(&mut self, tools: &Tools) -> io::Result<u32> {
        if self.process.is_none() {
            let mut command = Command::new(tools.program());
            self.process = Some(command.args([CHILD, "echo"]).stdin(Stdio::piped()).spawn()?);
        }
        Ok(self.process.as_ref().map_or(0, Child::id))
    }

    /// A word of the table, filled in.
    fn word(&mut self, word: &str, tools: &Tools) -> io::Result<String> {
        let mut word = word.to_owned();
        if word.contains("{process}") {
            word = word.replace("{process}", &self.process(tools)?.to_string());
        }
        for (name, server) in ["{port}", "{other}"].iter().zip(&self.ports) {
            if word.contains(name) {
                word = word.replace(name, &server.local_addr()?.port().to_string());
            }
        }
        let text = |path: &Path| path.to_str().map(str::to_owned).ok_or(io::ErrorKind::InvalidData);
        let word = word.replace("{place}", &text(self.directory.path())?);
        Ok(word.replace("{program}", &text(&tools.program())?))
    }

    fn words(&mut self, operation: &str, tools: &Tools) -> io::Result<Vec<String>> {
        operation.split_whitespace().map(|word| self.word(word, tools)).collect()
    }

    /// The policy with everything filled in.
    fn policy(&mut self, policy: &str, tools: &Tools) -> io::Result<Value> {
        let mut value: Value = serde_json::from_str(policy)?;
        for list in value.as_object_mut().into_iter().flat_map(|object| object.values_mut()) {
            for (_, entries) in list.as_object_mut().into_iter().flatten() {
                let Some(entries) = entries.as_array_mut() else { continue };
                let texts: Vec<String> =
                    entries.iter().filter_map(|entry| entry.as_str().map(str::to_owned)).collect();
                if texts.is_empty() {
                    continue;
                }
                entries.clear();
                for text in texts {
                    match text.as_str() {
                        "{closed}" => entries.push(self.closed().into()),
                        "{system}" => entries.extend(SYSTEM.iter().map(|path| (*path).into())),
                        "{port}" => entries.push(self.ports[0].local_addr()?.port().into()),
                        other => entries.push(self.word(other, tools)?.into()),
                    }
                }
            }
        }
        Ok(value)
    }

    /// What a list of what may be read closes. On macOS programs need more of the system than is written down
    /// anywhere.
    fn closed(&self) -> String {
        let path = if cfg!(target_os = "macos") { self.directory.path() } else { Path::new("/") };
        path.to_string_lossy().into_owned()
    }

    /// The program's command line under a policy.
    pub fn under(&mut self, policy: &str, operation: &str, tools: &Tools) -> io::Result<Command> {
        let file = tools.0.path().join("policy.json");
        fs::write(&file, self.policy(policy, tools)?.to_string())?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_landstrip"));
        command.args(["run", "-p"]).arg(file).arg("--cwd").arg(self.start()).arg("--");
        command.arg(tools.program()).arg(CHILD).args(self.words(operation, tools)?);
        command.current_dir(self.start());
        Ok(command)
    }

    /// The same without one.
    pub fn bare(&mut self, operation: &str, tools: &Tools) -> io::Result<Command> {
        let mut command = Command::new(tools.program());
        command.arg(CHILD).args(self.words(operation, tools)?).current_dir(self.start());
        Ok(command)
    }

    /// Everything there is, with what is in it.
    pub fn tree(&self) -> io::Result<BTreeMap<PathBuf, String>> {
        let root = self.directory.path();
        let mut found = BTreeMap::new();
        let mut todo = vec![root.to_owned()];
        while let Some(directory) = todo.pop() {
            for entry in fs::read_dir(directory)? {
                let entry = entry?;
                let (path, kind) = (entry.path(), entry.file_type()?);
                let what = match () {
                    () if kind.is_dir() => "a directory".to_owned(),
                    () if kind.is_symlink() => format!("a link to {:?}", fs::read_link(&path)?),
                    () if kind.is_file() => format!("{:?}", fs::read(&path)?),
                    () => "something else".to_owned(),
                };
                let mode = if kind.is_symlink() { 0 } else { mode(&entry.metadata()?) };
                if kind.is_dir() {
                    todo.push(path.clone());
                }
                let name = path.strip_prefix(root).unwrap_or(&path).to_owned();
                found.insert(name, format!("{what}, {mode:o}"));
            }
        }
        Ok(found)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // Its standard input ends with this.
            drop(process.stdin.take());
            let _ = process.wait();
        }
    }
}

#[cfg(unix)]
fn mode(metadata: &fs::Metadata) -> u32 {
    std::os::unix::fs::MetadataExt::mode(metadata)
}

#[cfg(windows)]
fn mode(_: &fs::Metadata) -> u32 {
    0
}

/// What this program needs to start where reading is a list.
const SYSTEM: &[&str] =
    if cfg!(target_os = "linux") { &["/lib", "/lib64", "/usr/lib"] } else { &[] };
