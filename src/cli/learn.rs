//! `learn`: runs a program with only secrets denied, and writes the policy that it needs.

use super::args::LearnArgs;
use super::error::{Error, Failure};
use crate::trap::Code;

#[cfg(target_os = "linux")]
pub use linux::learn;

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::{OsStr, OsString};
    use std::fs::{self, File};
    use std::io::{self, Write};
    use std::path::{Path, PathBuf};
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::Duration;

    use rustix::fs::{CWD, RenameFlags, renameat_with};

    use super::super::load::{Source, format_of, load};
    use super::super::resolve::{self, Environment};
    use super::super::{HostFiles, output, run, stderr_style};
    use super::{Code, Error, Failure, LearnArgs};
    use crate::learn::{Learned, Notes, OPEN, Places, print};
    use crate::linux::launch::{self, Job, Learning};
    use crate::policy::{Decider, Format, shipped};

    /// The name of [`OPEN`] in messages.
    const OWN: &str = "learn";

    /// What is said where the network as a whole is granted.
    const WHOLE_NETWORK: &str = "learn: allowNetwork opens every host, since not all was reached by the proxy: to have \
        hosts listed, learn with a policy before it (-p) that has {\"network\": {\"allowedDomains\": []}}\n";

    /// Runs it and returns its exit code; the policy is written whatever that is.
    ///
    /// # Errors
    ///
    /// An error when the program did not run or could not be supervised, or where the policy cannot be
    /// written.
    pub fn learn(args: &LearnArgs) -> Result<u8, Error> {
        launch::refuse_outer_filter()?;
        let target = Target::of(&args.output, args.force)?;
        let shipped = |name| source(name, shipped::find(name).expect("it ships").text);
        let tool = args.command.first().map(OsString::as_os_str);
        let given = load(&args.policy)?;
        let resolved = |sources: Vec<Source>, tool: Option<&OsStr>| {
            resolve::resolved_from(&args.policy, sources, tool, &HostFiles)
        };
        // A policy attached to the program tightens what is open, and not what need not be learned: its
        // grants lie within those of the policy that is learned.
        let base = resolved(given.clone(), None)?;
        let mut open =
            resolved([given, vec![source(OWN, OPEN), shipped("@secrets")]].concat(), tool)?;
        if open.network.allow_network {
            // Nothing is held to the list meanwhile: which hosts are wanting in it is learned.
            open.network.allowed_domains = None;
        }
        let guard = resolved(vec![shipped("@agent"), source(OWN, OPEN)], None)?;
        let places = Places::new(&open.cwd, &home()?, Decider::new(&guard));
        let notes = Notes::new(places, resolve::daemons());
        let notes = notes.beside_hosts(base.network.lists_hosts());
        let notes = Arc::new(Mutex::new(notes));
        let code = launch::run(Job {
            args: args.command.clone(),
            env: run::environment(),
            policy: open,
            accept: args.accept.clone(),
            inherit: Vec::new(),
            traps: None,
            query_timeout: Duration::ZERO,
            style: stderr_style(),
            quiet: false,
            inside: None,
            learn: Some(Learning { base, notes: Arc::clone(&notes) }),
        })?;
        let learned = notes.lock().unwrap_or_else(PoisonError::into_inner).finish(&HostFiles);
        target.write(&text(&learned, args, target.format()))?;
        tell(&learned, args);
        Ok(code)
    }

    /// A policy that comes with the program.
    fn source(name: &str, text: &str) -> Source {
        let (name, bytes) = (name.to_owned(), text.as_bytes().to_vec());
        Source { name, bytes, format: Format::Json }
    }

    /// The home directory, free of links: the policy spells paths by it, and its secrets lie there.
    fn home() -> Result<String, Error> {
        let home = Environment::own().home.and_then(|home| fs::canonicalize(home).ok());
        home.and_then(|home| home.into_os_string().into_string().ok()).ok_or_else(|| {
            let message = "HOME has to name a directory: secrets are told by where they lie in it";
            Failure::new(Code::PolicyHomeUnavailable, message).into()
        })
    }

    fn text(learned: &Learned, args: &LearnArgs, format: Format) -> String {
        let words: Vec<_> = args.command.iter().map(|word| word.to_string_lossy()).collect();
        let frame =
            print::Frame { command: &words.join(" "), alone: args.policy.policies.is_empty() };
        print::document(learned, &frame, format)
    }

    /// Says on standard error what was learned.
    fn tell(learned: &Learned, args: &LearnArgs) {
        let name = match args.output == Path::new("-") {
            true => "to standard output".into(),
            false => print::plain(&args.output.to_string_lossy()),
        };
        let mut text = format!(
            "learn: wrote {name}: {} to write, {} of the network\n",
            learned.writes.len() + usize::from(learned.git_dir.is_some()),
            [learned.switches.len(), learned.ports.len(), learned.hosts.len(), learned.unix.len()]
                .iter()
                .sum::<usize>(),
        );
        if learned.switches.iter().any(|(key, _)| *key == "allowNetwork") {
            text.push_str(WHOLE_NETWORK);
        }
        for line in print::refused(learned) {
            text.push_str(&format!("learn: not granted: {line}\n"));
        }
        let _nowhere_to_report = io::stderr().write_all(text.as_bytes());
    }

    /// Where the policy goes.
    enum Target<'a> {
        Stdout,
        File { path: &'a Path, force: bool },
    }

    impl Target<'_> {
        /// Checks before the run that it can be written after it.
        fn of(path: &Path, force: bool) -> Result<Target<'_>, Error> {
            if path == Path::new("-") {
                return Ok(Target::Stdout);
            }
            let usage = |what: &str| Error::Usage(format!("-o {}: {what}", path.display()));
            match fs::symlink_metadata(path) {
                Ok(found) if found.is_dir() => return Err(usage("this is a directory")),
                Ok(_) if !force => return Err(usage("the file exists; --force replaces it")),
                _ => {}
            }
            if !directory(path).is_dir() {
                return Err(usage("its directory does not exist"));
            }
            Ok(Target::File { path, force })
        }

        fn format(&self) -> Format {
            match self {
                Target::Stdout => Format::Json,
                Target::File { path, .. } => format_of(path),
            }
        }

        /// Writes it whole or not at all.
        fn write(&self, text: &str) -> Result<(), Error> {
            let Target::File { path, force } = self else {
                return output::bytes(text.as_bytes());
            };
            replace(path, text, *force).map_err(|error| {
                let message = format!("cannot write the learned policy: {error}");
                let name = path.to_string_lossy().into_owned();
                Failure::new(Code::PolicyIoFailed, message).in_file(name).into()
            })
        }
    }

    fn directory(path: &Path) -> PathBuf {
        match path.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        }
    }

    /// Puts a new file with `text` in the place of `path`; of another one only with `force`.
    fn replace(path: &Path, text: &str, force: bool) -> io::Result<()> {
        let mut name = OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(format!(".{}", std::process::id()));
        let new = directory(path).join(name);
        let mut file = File::create_new(&new)?;
        // What came to be there during the run is not replaced either.
        let flags = if force { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        let result = file
            .write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .and_then(|()| Ok(renameat_with(CWD, &new, CWD, path, flags)?));
        if result.is_err() {
            let _told_by_the_result = fs::remove_file(&new);
        }
        result
    }
}

/// Says that this platform runs nothing yet.
///
/// # Errors
///
/// `PLATFORM_UNSUPPORTED`, always.
#[cfg(not(target_os = "linux"))]
pub fn learn(_: &LearnArgs) -> Result<u8, Error> {
    Err(Failure::new(Code::PlatformUnsupported, "`learn` is not available on this platform").into())
}
