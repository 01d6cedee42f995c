//! The place that the measuring happens in, and the ways of measuring a job there.

use std::cell::OnceCell;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use tempfile::TempDir;

use crate::contender::{Contender, Job, Tools, unsuccessful};
use crate::measure::Lane;
use crate::trees;

/// A directory under the target directory, removed at the end, and the contenders.
pub struct Lab {
    pub tools: Tools,
    /// This executable, the load of the `--inner` rows.
    pub speed: PathBuf,
    /// The load average of the last minute before the start, of proc_loadavg(5).
    pub load: String,
    dir: TempDir,
    siblings: OnceCell<PathBuf>,
    below: OnceCell<PathBuf>,
}

impl Lab {
    /// Makes the directory and tries the contenders in it.
    ///
    /// # Errors
    ///
    /// When the directory cannot be made.
    pub fn open() -> io::Result<Lab> {
        // Cargo makes this directory for benches: on the file system that builds happen on.
        let dir =
            tempfile::Builder::new().prefix("speed-").tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let load = fs::read_to_string("/proc/loadavg")?;
        let load = load.split(' ').next().unwrap_or_default().to_owned();
        let workspace = dir.path().join("trial");
        let outside = dir.path().join("outside");
        fs::create_dir(&workspace)?;
        fs::create_dir(&outside)?;
        let tools = Tools::find(&workspace, &outside);
        for line in &tools.left_out {
            eprintln!("speed: left out: {line}");
        }
        Ok(Lab {
            tools,
            speed: std::env::current_exe()?,
            load,
            dir,
            siblings: OnceCell::new(),
            below: OnceCell::new(),
        })
    }

    /// A directory that no workspace contains.
    pub fn outside(&self) -> PathBuf {
        self.dir.path().join("outside")
    }

    /// A new empty directory.
    ///
    /// # Errors
    ///
    /// When it cannot be made, or the name is taken.
    pub fn workspace(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.dir.path().join(name);
        fs::create_dir(&path)?;
        Ok(path)
    }

    /// A policy file with this text.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn policy(&self, name: &str, value: &serde_json::Value) -> io::Result<PathBuf> {
        let path = self.dir.path().join(format!("{name}.json"));
        fs::write(&path, value.to_string())?;
        Ok(path)
    }

    /// A directory with 100,000 files, made on first use.
    ///
    /// # Errors
    ///
    /// When a file cannot be made.
    pub fn siblings(&self) -> io::Result<&Path> {
        once(&self.siblings, || {
            let dir = self.workspace("siblings")?;
            trees::files(&dir, 100_000)?;
            Ok(dir)
        })
    }

    /// A directory with 300,000 files in 3,000 directories, made on first use.
    ///
    /// # Errors
    ///
    /// When a file cannot be made.
    pub fn below(&self) -> io::Result<&Path> {
        once(&self.below, || {
            let dir = self.workspace("below")?;
            trees::nested(&dir, 30, 100, 100)?;
            Ok(dir)
        })
    }

    /// A job that is this executable's `--inner` load.
    pub fn inner<I: IntoIterator<Item = T>, T: Into<OsString>>(&self, cwd: &Path, words: I) -> Job {
        let own = [self.speed.clone().into(), "--inner".into()];
        Job::new(cwd, own.into_iter().chain(words.into_iter().map(Into::into)))
    }

    /// Lanes that time the whole of `job`, from before the spawn until it has been waited for.
    /// `before` runs untimed ahead of each.
    pub fn wall(
        &self,
        job: &Job,
        before: impl Fn() -> io::Result<()> + Clone + 'static,
    ) -> [Option<Lane>; Contender::COUNT] {
        Contender::ALL.map(|contender| {
            let mut command = self.tools.command(contender, job)?;
            let before = before.clone();
            Some(Box::new(move || {
                before()?;
                // `status` is posix_spawn and waitpid: it does not copy this process.
                let start = Instant::now();
                let status = command.status()?;
                let time = start.elapsed();
                if !status.success() {
                    return Err(unsuccessful(status));
                }
                Ok(time.as_nanos() as f64)
            }) as Lane)
        })
    }

    /// Lanes that take the figure which the load itself measured and printed.
    pub fn reported(&self, job: &Job) -> [Option<Lane>; Contender::COUNT] {
        Contender::ALL.map(|contender| {
            let mut command = self.tools.command(contender, job)?;
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            Some(Box::new(move || {
                let output = command.output()?;
                let text = String::from_utf8_lossy(&output.stdout);
                text.trim().parse().map_err(|_| {
                    let errors = String::from_utf8_lossy(&output.stderr);
                    let reason = errors.lines().next().unwrap_or("no message");
                    io::Error::other(format!("ended with {}: {reason}", output.status))
                })
            }) as Lane)
        })
    }
}

/// The value of `cell`, made by `make` on first use.
fn once(cell: &OnceCell<PathBuf>, make: impl FnOnce() -> io::Result<PathBuf>) -> io::Result<&Path> {
    if cell.get().is_none() {
        let made = make()?;
        return Ok(cell.get_or_init(|| made));
    }
    Ok(cell.get().map_or(Path::new(""), PathBuf::as_path))
}
