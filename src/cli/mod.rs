//! The command line: the only place that prints errors and picks exit codes.
//!
//! [`args`] is what was typed, [`load`] reads the policies it names, and each command has a file of
//! its own that returns an exit code or an [`Error`].

pub mod args;
#[cfg(target_os = "linux")]
mod bundle;
pub mod container;
mod doctor;
pub(crate) mod error;
mod learn;
mod load;
mod manual;
pub mod output;
mod plan;
mod policy;
pub mod resolve;
mod run;
mod spec;
#[cfg(target_os = "linux")]
mod sys;
pub mod tool;
#[cfg(target_os = "linux")]
mod trapfd;
#[cfg(any(not(target_os = "linux"), test))]
mod view;
mod why;
mod windows;

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::SystemTime;

use clap::{CommandFactory, FromArgMatches};

use crate::trap::{Code, State, Style, Trap};
use args::{Args, Command, RunArgs};
use container::args::{
    ContainerCommand, CreateArgs, DeleteArgs, ExecArgs, GlobalArgs, IdArgs, KillArgs,
};

#[cfg(target_os = "linux")]
use crate::linux::host::HostView as HostFiles;
pub use error::{Error, Failure};
pub use load::{MAX_BYTES, Source, format_of, load, with_hint};
#[cfg(any(target_os = "linux", windows))]
pub(crate) use run::environment;
#[cfg(target_os = "linux")]
pub use trapfd::TrapFd;
#[cfg(target_os = "linux")]
use {crate::trap::Sink, args::What};

/// There is no trap descriptor on this platform.
#[cfg(not(target_os = "linux"))]
pub type TrapFd = std::convert::Infallible;

#[cfg(not(target_os = "linux"))]
pub(crate) use view::HostFiles;

/// The name that the program goes by where its own cannot be told.
const NAME: &str = "landstrip";

/// Runs the program with its command line, its own name first, and returns its exit code. It needs
/// no Rust runtime around it, see `main.rs`.
#[must_use]
pub fn main(line: &[OsString]) -> u8 {
    #[cfg(target_os = "linux")]
    crate::linux::sys::identity::fill_stdio();
    std::panic::set_hook(Box::new(|panic| {
        let message = panic.to_string();
        report(&Error::from(Failure::new(Code::InternalError, message)).into_trap());
        std::process::exit(1);
    }));
    #[cfg(target_os = "linux")]
    if let Some(verb) = verb(line).and_then(|at| line[at].to_str()) {
        container::go_on_early(verb, line);
    }
    match parse(line) {
        Ok(args) => dispatch(args, line),
        Err(error) => finish_parse(error, line),
    }
}

/// What the program was called.
fn name(line: &[OsString]) -> &'static str {
    let called = line.first().map(Path::new).and_then(Path::file_name).and_then(OsStr::to_str);
    if called == Some("landstrip-oci") { "landstrip-oci" } else { NAME }
}

/// The command tree, under the name that the program was called by.
fn tree(line: &[OsString]) -> clap::Command {
    let tree = Args::command().name(name(line)).bin_name(name(line));
    if name(line) == NAME {
        return tree;
    }
    tree.version(container::VERSION)
}

fn parse(line: &[OsString]) -> Result<Args, clap::Error> {
    // Building the whole tree costs more than the parsing. A line that one command alone accepts needs no
    // more than its own branch; for help and for errors the tree is asked again.
    if let Some(args) = parse_branch(line) {
        return Ok(args);
    }
    let mut matches = tree(line).try_get_matches_from(line)?;
    Args::from_arg_matches_mut(&mut matches)
}

/// Parses a line with the branch of its command; `None` where the whole tree has to look at it.
fn parse_branch(line: &[OsString]) -> Option<Args> {
    let verb = verb(line)?;
    let (before, rest) = (&line[..verb], &line[verb..]);
    let global = if verb > 1 { branch::<GlobalArgs>(before)? } else { GlobalArgs::default() };
    let command = match rest.first()?.to_str()? {
        "run" => Command::Run(branch::<RunArgs>(rest)?),
        "create" => Command::Container(ContainerCommand::Create(branch::<CreateArgs>(rest)?)),
        "start" => Command::Container(ContainerCommand::Start(branch::<IdArgs>(rest)?)),
        "state" => Command::Container(ContainerCommand::State(branch::<IdArgs>(rest)?)),
        "kill" => Command::Container(ContainerCommand::Kill(branch::<KillArgs>(rest)?)),
        "delete" => Command::Container(ContainerCommand::Delete(branch::<DeleteArgs>(rest)?)),
        "exec" => Command::Container(ContainerCommand::Exec(branch::<ExecArgs>(rest)?)),
        _ => return None,
    };
    Some(Args { global, command })
}

fn branch<T: clap::Args>(line: &[OsString]) -> Option<T> {
    // The first word is the command's name, whatever it is.
    let command = T::augment_args(clap::Command::new("run"));
    T::from_arg_matches_mut(&mut command.try_get_matches_from(line).ok()?).ok()
}

/// Where the command stands: behind the options for all of them.
fn verb(line: &[OsString]) -> Option<usize> {
    const VALUED: [&str; 5] = ["--root", "--log", "--log-format", "--cgroup-manager", "--rootless"];
    let mut at = 1;
    while let Some(word) = line.get(at)?.to_str() {
        if !word.starts_with('-') {
            return Some(at);
        }
        at += if VALUED.contains(&word) { 2 } else { 1 };
    }
    None
}

/// Help and version go to standard output with exit code 0; anything else is a usage error.
fn finish_parse(mut error: clap::Error, line: &[OsString]) -> u8 {
    correct(&mut error, line);
    let text = error.render().to_string();
    if !error.use_stderr() {
        return finish(output::bytes(text.as_bytes()).map(|()| 0));
    }
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let text = text.split("\n\nFor more information").next().unwrap_or(text).trim();
    let mut text = text.to_owned();
    if let Some(hint) = hint(&error, line) {
        text.push_str("\n\n");
        text.push_str(&hint);
    }
    finish(Err(Error::Usage(text)))
}

/// Makes clap's advice fit: it offers commands that the help hides, knows no near name of three letters, and takes
/// an option that it does not know for a value, which here would be a program to run or the name of a schema.
fn correct(error: &mut clap::Error, line: &[OsString]) {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    if let Some(ContextValue::StyledStrs(mut tips)) = error.remove(ContextKind::Suggested) {
        tips.retain(|tip| !tip.to_string().starts_with("to pass "));
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
    if !matches!(error.kind(), ErrorKind::MissingSubcommand | ErrorKind::InvalidSubcommand) {
        return;
    }
    let tree = tree(line);
    let shown: Vec<&str> = tree
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .map(clap::Command::get_name)
        .collect();
    let hidden = |name: &str| tree.find_subcommand(name).is_some_and(clap::Command::is_hide_set);
    for kind in [ContextKind::ValidSubcommand, ContextKind::SuggestedSubcommand] {
        if let Some(ContextValue::Strings(mut names)) = error.remove(kind) {
            names.retain(|name| !hidden(name));
            if !names.is_empty() {
                error.insert(kind, ContextValue::Strings(names));
            }
        }
    }
    if error.kind() == ErrorKind::InvalidSubcommand
        && error.get(ContextKind::SuggestedSubcommand).is_none()
        && let Some(typed) = verb(line).and_then(|at| line[at].to_str())
        && typed.len() <= 16
        && let Some(near) = shown.iter().find(|name| strsim::osa_distance(typed, name) == 1)
    {
        let near = ContextValue::Strings(vec![(*near).to_owned()]);
        error.insert(ContextKind::SuggestedSubcommand, near);
    }
}

/// What was probably meant by an argument that is one too many.
fn hint(error: &clap::Error, line: &[OsString]) -> Option<String> {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let argument = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => argument,
        _ => return None,
    };
    let words: Vec<_> = line.iter().skip(1).take(2).map(|word| word.to_string_lossy()).collect();
    let dashes = line.iter().any(|word| word == "--");
    match words.iter().map(AsRef::as_ref).collect::<Vec<&str>>().as_slice() {
        [verb @ ("run" | "learn" | "spec"), ..] if !dashes => {
            Some(format!("Put `--` before the program: {verb} [OPTIONS] -- PROGRAM [ARGS...]"))
        }
        _ if argument.starts_with('-') => None,
        ["policy", verb @ ("validate" | "resolve" | "plan")] => {
            Some(format!("Policies are named with -p: policy {verb} -p {argument}"))
        }
        ["why", ..] => Some("One target at a time; policies are named with -p".to_owned()),
        _ => None,
    }
}

fn dispatch(args: Args, line: &[OsString]) -> u8 {
    let Args { global, command } = args;
    if !matches!(command, Command::Run(_) | Command::Container(_))
        && let Err(error) = nothing_before(&global)
    {
        return finish(Err(error));
    }
    finish(match command {
        Command::Run(args) => return run(&global, &args, line),
        #[cfg(target_os = "linux")]
        Command::Container(command) => return container::command(&global, command, line),
        #[cfg(not(target_os = "linux"))]
        Command::Container(command) => container::command(&global, command, line),
        Command::Learn(args) => learn::learn(&args),
        Command::Policy(command) => policy::policy(&command),
        Command::Spec(args) => spec::spec(&args),
        Command::Why(args) => why::why(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Completions(args) => manual::completions(tree(line), args.shell),
        Command::Man => manual::man(tree(line)),
        Command::Windows(command) => windows::windows(command),
    })
}

/// Reports an error on standard error, and returns the exit code.
fn finish(result: Result<u8, Error>) -> u8 {
    result.unwrap_or_else(|error| {
        let code = error.exit_code();
        report(&error.into_trap());
        code
    })
}

/// `run` alone has a trap descriptor: its errors go there too, but those of usage.
#[cfg(target_os = "linux")]
fn run(global: &GlobalArgs, args: &RunArgs, line: &[OsString]) -> u8 {
    if let Ok(What::Bundle { dir, id }) = args.what()
        && !container::is_host_root(dir, args.launch.config.as_deref())
    {
        if args.trap_fd.is_some() || !args.inherit.is_empty() || !args.accept.is_empty() {
            let message = "--trap-fd, --inherit and --accept are for programs on the host: a container has \
                --preserve-fds, and --traps and --accept before the command";
            return finish(Err(Error::Usage(message.to_owned())));
        }
        let RunArgs { launch, detach, keep, .. } = args;
        let id = id.map(str::to_owned);
        let launch = container::Launch { bundle: dir, id, launch, detach: *detach, keep: *keep };
        return container::run(global, launch, line);
    }
    if let Err(error) = nothing_before(global) {
        return finish(Err(error));
    }
    let possible = crate::linux::launch::refuse_outer_filter().map_err(Error::from);
    let traps = match args.trap_fd.map(TrapFd::inherit).transpose() {
        Ok(traps) => traps,
        Err(error) => return finish(possible.and(Err(error))),
    };
    let result = possible
        .and_then(|()| check_inherit(args))
        .and_then(|()| args.what().map_err(Error::Usage))
        .and_then(|what| run::run(args, what, traps.as_ref()));
    if let (Err(error), Some(traps)) = (&result, &traps)
        && !matches!(error, Error::Usage(_))
    {
        let line = error.clone().into_trap().json_line(SystemTime::now(), State::Info, 0);
        Sink::new(traps).send(&line);
    }
    finish(result)
}

#[cfg(not(target_os = "linux"))]
fn run(global: &GlobalArgs, args: &RunArgs, _: &[OsString]) -> u8 {
    if let Err(error) = nothing_before(global) {
        return finish(Err(error));
    }
    #[cfg(unix)]
    if args.trap_fd.is_some() || !args.inherit.is_empty() {
        let message = "--trap-fd and --inherit are not available on this platform";
        return finish(Err(Failure::new(Code::PlatformUnsupported, message).into()));
    }
    finish(args.what().map_err(Error::Usage).and_then(|what| run::run(args, what, None)))
}

/// What stands before the command is for containers: elsewhere a policy there would be ignored.
fn nothing_before(global: &GlobalArgs) -> Result<(), Error> {
    let given = [
        ("--policy", !global.policy.is_empty(), "put it after the command"),
        ("--accept", !global.accept.is_empty(), "put it after the command"),
        ("--traps", global.traps.is_some(), "a program has --trap-fd"),
    ];
    match given.iter().find(|(_, given, _)| *given) {
        Some((name, _, instead)) => {
            Err(Error::Usage(format!("{name} before the command is for containers: {instead}")))
        }
        None => Ok(()),
    }
}

/// Every descriptor of `--inherit` is open, and none is the trap descriptor: a program that holds
/// that one could forge traps.
#[cfg(target_os = "linux")]
fn check_inherit(args: &RunArgs) -> Result<(), Error> {
    for &fd in &args.inherit {
        if Some(fd) == args.trap_fd {
            return Err(Error::Usage(format!("--inherit {fd}: this is the trap descriptor")));
        }
        if let Err(error) = sys::duplicate(fd) {
            return Err(trapfd::not_open("--inherit", fd, &error));
        }
    }
    Ok(())
}

/// Writes one trap to standard error, as its reader likes it. Nothing is left to do if that fails.
fn report(trap: &Trap) {
    let line = match stderr_style() {
        Style::Text => trap.text(),
        Style::Json => trap.json_line(SystemTime::now(), State::Info, 0),
    };
    let _nowhere_to_report = io::stderr().write_all(line.as_bytes());
}

/// Tells of something that went wrong beside the run.
#[cfg(not(target_os = "linux"))]
pub(crate) fn warn(failure: Failure) {
    report(&Error::from(failure).into_trap());
}

/// Tells of what was denied, at the end of a run.
#[cfg(target_os = "macos")]
pub(crate) fn denials(summary: &crate::trap::Summary) {
    let _nowhere_to_report = summary.write(&mut io::stderr(), stderr_style());
}

/// Tells of a ceiling that the run has reached.
#[cfg(windows)]
pub(crate) fn limit(reached: &crate::trap::LimitReached) {
    report(&Trap::Limit(reached.clone()));
}

/// How to write on standard error: text where a person reads, else JSON.
#[must_use]
pub fn stderr_style() -> Style {
    if io::stderr().is_terminal() { Style::Text } else { Style::Json }
}
