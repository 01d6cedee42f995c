//! The command line as typed. Doc comments here are the help text.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

use super::container::args::{ContainerCommand, GlobalArgs, LaunchArgs};

/// Run a command, or an OCI container, under a sandbox policy.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = false, after_help = EXIT_CODES)]
#[command(disable_help_subcommand = true)]
pub struct Args {
    /// Options of the commands on containers.
    #[command(flatten)]
    pub global: GlobalArgs,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: the program's own; 128+N when signal N ended it; 127 when it was not found and 126
when it could not be executed; 1 for any other failure; 2 for a command line that is wrong.";

/// The help of `-p` where a policy is learned.
const LEARN_FROM: &str = "\
Policy to start from; repeat to merge several, in order. What it allows is not learned again, and \
what it denies stays denied: run with it and then the learned one. FILE is found from the current \
directory; `-` is standard input, which needs --policy-format; @NAME is a policy that ships with the \
program, see `policy list`";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program under a policy
    Run(RunArgs),
    /// Run a program with only secrets denied, and write the policy that it needs
    Learn(LearnArgs),
    /// Look into policies
    #[command(subcommand, arg_required_else_help = false)]
    Policy(PolicyCommand),
    /// Print the OCI config.json that `run` would launch, or write one to start from
    Spec(SpecArgs),
    /// Commands on containers.
    #[command(flatten)]
    Container(ContainerCommand),
    /// Say whether a policy allows a path or a host, and which rule decides
    Why(WhyArgs),
    /// Try out what this host can enforce
    Doctor(DoctorArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print the manual page
    #[command(hide = true)]
    Man,
    /// Manage restricted-user execution (Windows only)
    #[command(subcommand, arg_required_else_help = false, hide = cfg!(not(windows)))]
    Windows(WindowsCommand),
}

/// Commands that look into policies.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Check that policies are well-formed and mean something on this platform
    Validate(PlanArgs),
    /// Print the merged policy with its paths resolved, and where each rule comes from
    Resolve(InspectArgs),
    /// Print which mechanism of this host holds each line of the policy
    Plan(PlanArgs),
    /// Print the JSON Schema of policies, or of traps
    Schema(SchemaArgs),
    /// List the policies that ship with the program
    List(ListArgs),
}

/// Management of restricted-user execution.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum WindowsCommand {
    /// Provision and activate restricted-user execution
    Install,
    /// Report the active implementation and its health
    Status,
    /// Return to AppContainer
    Uninstall,
}

/// Which policies, and where their relative paths start.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct PolicyArgs {
    /// Policy to apply; repeat to merge several, in order: lists append, of single values the last
    /// counts. FILE is found from the current directory; `-` is standard input, which needs
    /// --policy-format; @NAME is a policy that ships with the program, see `policy list`. Without
    /// any, nothing may be written and there is no network
    #[arg(short = 'p', long = "policy", value_name = "FILE", value_parser = named())]
    pub policies: Vec<OsString>,

    /// Format of all policies given as files (default: yaml where the name ends in `.yaml` or `.yml`,
    /// else json)
    #[arg(long, value_name = "FORMAT")]
    pub policy_format: Option<PolicyFormat>,

    /// Directory to start in; relative paths within policies start here too (default: the current one)
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
}

/// `run`.
#[derive(Clone, Debug, ClapArgs)]
pub struct RunArgs {
    /// The policies.
    #[command(flatten)]
    pub policy: PolicyArgs,

    /// Open file descriptor that receives traps as they happen, as JSON lines. On a connected stream
    /// socket denials are asked about: {"query_id":"1","action":"allow"} allows the operation
    #[cfg(unix)]
    #[arg(long, value_name = "FD", value_parser = descriptor, allow_negative_numbers = true)]
    pub trap_fd: Option<i32>,

    /// Open file descriptors, besides 0 to 2, that the program keeps, separated by commas
    #[cfg(unix)]
    #[arg(long, value_name = "FD", value_delimiter = ',', value_parser = descriptor)]
    #[arg(allow_negative_numbers = true)]
    pub inherit: Vec<i32>,

    /// Shortfalls to accept: what this host cannot enforce, by the names that `policy plan` prints,
    /// separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = crate::plan::ACCEPTABLE)]
    pub accept: Vec<String>,

    /// Seconds that a query waits for its answer before the operation is denied; 0 asks nothing
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = seconds)]
    #[arg(allow_negative_numbers = true)]
    pub query_timeout: u32,

    /// Do not write the denials to standard error when the program has ended
    #[arg(short, long)]
    pub quiet: bool,

    /// OCI bundle to run, in the form that container engines use: ID is then the name of the container
    #[arg(short = 'b', long = "bundle", value_name = "DIR", requires = "bundle")]
    pub bundle_dir: Option<PathBuf>,

    /// What `create` has, too.
    #[command(flatten)]
    pub launch: LaunchArgs,

    /// Return when the container's program has started
    #[arg(short, long)]
    pub detach: bool,

    /// Keep the container when its program has ended
    #[arg(long)]
    pub keep: bool,

    /// Accepted for other runtimes' sake: orphans of a container never become the caller's
    #[arg(long, hide = true)]
    pub no_subreaper: bool,

    /// OCI bundle to run: a directory that holds a config.json, such as `spec --bundle` makes
    #[arg(value_name = "BUNDLE|ID")]
    pub bundle: Option<PathBuf>,

    /// Program to run, and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// `learn`.
#[derive(Clone, Debug, ClapArgs)]
#[command(mut_arg("policies", |arg| arg.help(LEARN_FROM)))]
pub struct LearnArgs {
    /// The policies to start from.
    #[command(flatten)]
    pub policy: PolicyArgs,

    /// Where to write the policy: YAML with a comment for each entry where the name ends in `.yaml` or
    /// `.yml`, else JSON; `-` is standard output
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: PathBuf,

    /// Replace FILE if it exists
    #[arg(long)]
    pub force: bool,

    /// Shortfalls to accept: what this host cannot enforce, by the names that `policy plan` prints,
    /// separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = crate::plan::ACCEPTABLE)]
    pub accept: Vec<String>,

    /// Program to run, and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// `policy resolve`, and what the other commands that look into policies share.
#[derive(Clone, Debug, ClapArgs)]
pub struct InspectArgs {
    /// The policies.
    #[command(flatten)]
    pub policy: PolicyArgs,

    /// Include the policy attached to this program's file
    #[arg(long, value_name = "PROGRAM", value_parser = named())]
    pub tool: Option<OsString>,

    /// How to print.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `policy validate` and `policy plan`.
#[derive(Clone, Debug, ClapArgs)]
pub struct PlanArgs {
    /// The policies and how to print.
    #[command(flatten)]
    pub inspect: InspectArgs,

    /// Shortfalls to accept: what this host cannot enforce, by the names that `policy plan` prints,
    /// separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = crate::plan::ACCEPTABLE)]
    pub accept: Vec<String>,
}

/// `policy schema`.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub struct SchemaArgs {
    /// Which schema
    #[arg(value_enum, default_value_t = SchemaName::Policy)]
    pub name: SchemaName,

    /// Format of the output, which has one
    #[arg(long, value_name = "FORMAT", value_parser = json_alone())]
    pub format: Option<OutputFormat>,
}

/// `policy list`.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub struct ListArgs {
    /// How to print.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `spec`.
#[derive(Clone, Debug, ClapArgs)]
pub struct SpecArgs {
    /// The policies.
    #[command(flatten)]
    pub policy: PolicyArgs,

    /// Shortfalls to accept: what this host cannot enforce, by the names that `policy plan` prints,
    /// separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = crate::plan::ACCEPTABLE)]
    pub accept: Vec<String>,

    /// Write DIR/config.json instead, which must not exist; DIR is made where it does not
    #[arg(short = 'b', long, value_name = "DIR")]
    pub bundle: Option<PathBuf>,

    /// Without a program: write a document for a container without root
    #[arg(long)]
    pub rootless: bool,

    /// Program to run, and its arguments. Without one, a container's document to start from is written
    /// into the bundle, which is the current directory if none is named
    #[arg(last = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// `why`.
#[derive(Clone, Debug, ClapArgs)]
pub struct WhyArgs {
    /// The policies and how to print.
    #[command(flatten)]
    pub inspect: InspectArgs,

    /// What is asked about (default: a path if it holds a `/`, starts with `.` or `~`, or exists, else a
    /// host)
    #[arg(long = "as", value_name = "KIND")]
    pub kind: Option<TargetKind>,

    /// Path to be read or written, or host to connect to, HOST or HOST:PORT. The exit code is 0
    /// whatever the answer, which has several parts
    #[arg(value_name = "PATH|HOST")]
    pub target: OsString,
}

/// `doctor`.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub struct DoctorArgs {
    /// How to print.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `completions`.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub struct CompletionsArgs {
    /// Shell that will read the script
    pub shell: clap_complete::Shell,
}

/// How a command prints its document.
#[derive(Clone, Copy, Debug, Default, ClapArgs)]
pub struct OutputArgs {
    /// Format of the output (default: text on a terminal, else json)
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<OutputFormat>,
}

/// A format of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// One JSON document.
    Json,
    /// Text for a person.
    Text,
}

/// A format of policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyFormat {
    /// JSON, RFC 8259.
    Json,
    /// YAML 1.2.
    Yaml,
}

/// A schema that ships with the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SchemaName {
    /// Of policies.
    Policy,
    /// Of traps.
    Trap,
}

/// What the argument of `why` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TargetKind {
    /// A path.
    Path,
    /// A host, or host:port.
    Host,
}

impl RunArgs {
    /// What to run: exactly one of a bundle and a program.
    ///
    /// # Errors
    ///
    /// Returns the message of a usage error when neither or both are given, or a bundle and options
    /// that say what the bundle says.
    pub fn what(&self) -> Result<What<'_>, String> {
        match (&self.bundle, self.command.split_first()) {
            (None, Some(_)) if self.for_container() => {
                Err("a program is run where it is: options of containers cannot be used with it"
                    .into())
            }
            (None, Some((program, args))) => Ok(What::Program { program, args }),
            (Some(_), None) if !self.policy.is_empty() && self.bundle_dir.is_some() => {
                Err(BRINGS.into())
            }
            (Some(id), None) if self.bundle_dir.is_some() => {
                let dir = self.bundle_dir.as_ref().unwrap_or(id);
                Ok(What::Bundle { dir, id: Some(check_id(id)?) })
            }
            (Some(bundle), None) if bundle.is_dir() => {
                if !self.policy.is_empty() {
                    return Err(BRINGS.into());
                }
                Ok(What::Bundle { dir: bundle, id: None })
            }
            // As other runtimes have it: the bundle is the current directory.
            (Some(id), None)
                if self.launch.config.is_some() || Path::new("config.json").exists() =>
            {
                Ok(What::Bundle { dir: Path::new("."), id: Some(check_id(id)?) })
            }
            (Some(bundle), None) => Err(not_a_bundle(bundle)),
            (None, None) => Err("nothing to run: end the line with `-- PROGRAM [ARGS...]`".into()),
            (Some(bundle), Some(_)) => Err(format!(
                "unexpected argument '{}': a bundle and a program exclude each other; a policy is \
                    named with -p",
                bundle.display()
            )),
        }
    }

    /// Whether options are given that mean something for a container alone.
    #[must_use]
    pub fn for_container(&self) -> bool {
        self.detach || self.keep || self.launch.given()
    }
}

const BRINGS: &str = "a bundle brings its policy: --policy, --policy-format and --cwd cannot be used with it; a container \
        can have another by --policy before the command";

impl PolicyArgs {
    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.policies.is_empty() && self.policy_format.is_none() && self.cwd.is_none()
    }
}

fn not_a_bundle(path: &Path) -> String {
    let shown = path.display();
    let directory = path.as_os_str().as_encoded_bytes().ends_with(b"/");
    match path.exists() {
        false if directory => format!(
            "there is no directory '{shown}'; a bundle is a directory with a config.json, and \
                `spec --bundle {shown} -- PROGRAM` makes one"
        ),
        _ => format!(
            "'{shown}' is not a bundle; to run a program, put `--` before it: run -- {shown}"
        ),
    }
}

/// Reads the number of a descriptor that is not one of the standard streams.
#[cfg(unix)]
fn descriptor(text: &str) -> Result<i32, String> {
    match text.parse() {
        Ok(fd) if fd > 2 => Ok(fd),
        _ => Err("must be the number of an open descriptor, 3 or above".to_owned()),
    }
}

/// Reads a name that is not empty, as clap has it of paths.
pub(super) fn named() -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new().try_map(|name| match name.is_empty() {
        true => Err("is empty"),
        false => Ok(name),
    })
}

/// Reads the format of what is JSON in any case.
fn json_alone() -> impl TypedValueParser<Value = OutputFormat> {
    PossibleValuesParser::new(["json"]).map(|_| OutputFormat::Json)
}

/// Reads a whole number of seconds.
fn seconds(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "must be a whole number of seconds, 0 or above".to_owned())
}

/// Checks the name of a run: what container engines accept of each other.
fn check_id(id: &Path) -> Result<&str, String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '-' | '.');
    match id.to_str() {
        Some(text)
            if !text.is_empty() && text.chars().all(allowed) && !matches!(text, "." | "..") =>
        {
            Ok(text)
        }
        _ => Err(format!(
            "container ID {:?} is empty or has an invalid character: letters, digits, and any of _ + - . can be used",
            id.display().to_string()
        )),
    }
}

/// What `run` runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// A program and its arguments, as looked up in `PATH`.
    Program {
        /// The program as typed.
        program: &'a OsString,
        /// Its arguments, without the program itself.
        args: &'a [OsString],
    },
    /// A directory that holds a config.json, and the name of the container.
    Bundle {
        /// The directory.
        dir: &'a Path,
        /// The name, where one is given.
        id: Option<&'a str>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn run(line: &[&str]) -> RunArgs {
        match Args::try_parse_from([&["landstrip"], line].concat()).unwrap().command {
            Command::Run(run) => run,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_tree_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn run_takes_a_program_after_the_dashes() {
        let args = run(&["run", "-p", "a", "-p", "-", "--", "ls", "-p", "--", "x"]);
        assert_eq!(args.policy.policies, ["a", "-"]);
        let rest = ["-p".into(), "--".into(), "x".into()];
        assert_eq!(args.what(), Ok(What::Program { program: &"ls".into(), args: &rest }));
    }

    #[test]
    fn run_takes_a_bundle_or_a_program() {
        let dir = Path::new("src/");
        assert_eq!(run(&["run", "src/"]).what(), Ok(What::Bundle { dir, id: None }));
        assert!(run(&["run"]).what().is_err());
        assert!(run(&["run", "dir/", "--", "ls"]).what().is_err());
        assert!(run(&["run", "-p", "x", "src/"]).what().is_err());
        assert!(run(&["run", "--detach", "--", "ls"]).what().is_err());
    }

    #[test]
    fn run_takes_a_bundle_as_container_engines_give_it() {
        let dir = Path::new("dir");
        let args = run(&["run", "--bundle", "dir", "id-1"]);
        assert_eq!(args.what(), Ok(What::Bundle { dir, id: Some("id-1") }));
        let args = run(&["run", "a_b+c.d", "-d", "-b", "dir"]);
        assert_eq!(args.what(), Ok(What::Bundle { dir, id: Some("a_b+c.d") }));
        for id in ["a/b", "..", "é"] {
            assert!(run(&["run", "-b", "dir", id]).what().is_err(), "{id}");
        }
        assert!(Args::try_parse_from(["landstrip", "run", "-b", "dir"]).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn lists_split_at_commas_and_descriptors_start_at_3() {
        let args = run(&["run", "--inherit", "3,4", "--accept", "limits,domains", "--", "ls"]);
        assert_eq!(
            (args.inherit, args.accept),
            (vec![3, 4], vec!["limits".into(), "domains".into()])
        );
        for line in [["--trap-fd", "2"], ["--trap-fd", "-1"], ["--inherit", "0"]] {
            let line = [&["landstrip", "run"], &line[..], &["--", "ls"]].concat();
            assert!(Args::try_parse_from(&line).is_err(), "{line:?}");
        }
    }
}
