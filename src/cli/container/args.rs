//! The command line of the container runtime as typed. Doc comments here are the help text.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args as ClapArgs, Subcommand, ValueEnum};

/// Options before the command, for the commands on containers.
#[derive(Clone, Debug, Default, ClapArgs)]
#[command(next_help_heading = "Options for containers")]
pub struct GlobalArgs {
    /// Directory that holds the state of containers (default: /run/landstrip, or without root landstrip below
    /// $XDG_RUNTIME_DIR, where that is set)
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,

    /// Append errors and warnings to FILE
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,

    /// Format of the log
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,

    /// Write more to the log
    #[arg(long)]
    pub debug: bool,

    /// Have systemd make the cgroups
    #[arg(long)]
    pub systemd_cgroup: bool,

    /// Who makes the cgroups
    #[arg(long, value_name = "MANAGER")]
    pub cgroup_manager: Option<CgroupManager>,

    /// Policy of the container, as `run --policy` takes it, before that of the host; repeat to merge several in
    /// order. What the document asks for may only tighten them
    #[arg(long, value_name = "FILE", value_parser = crate::cli::args::named())]
    pub policy: Vec<OsString>,

    /// Shortfalls to accept in a container, by the names that `policy plan` prints, separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = crate::plan::ACCEPTABLE)]
    pub accept: Vec<String>,

    /// File or Unix socket that gets the traps of a container; or a directory, in which the document may name one
    /// (default: /var/log/landstrip, or ~/.local/state/landstrip without root)
    #[arg(long, value_name = "PLACE")]
    pub traps: Option<PathBuf>,

    /// Whether to do without root (true, false, or auto)
    #[arg(long, value_name = "BOOL", value_parser = rootless)]
    pub rootless: Option<Rootless>,
}

/// Whether to do without root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rootless {
    /// Found out.
    Auto,
    /// Said.
    Said(bool),
}

fn rootless(text: &str) -> Result<Rootless, String> {
    match text {
        "auto" => Ok(Rootless::Auto),
        "true" | "1" | "yes" => Ok(Rootless::Said(true)),
        "false" | "0" | "no" => Ok(Rootless::Said(false)),
        _ => Err("true, false and auto are known".to_owned()),
    }
}

/// A format of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A line of text a message.
    #[default]
    Text,
    /// A line of JSON a message.
    Json,
}

/// Who makes cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CgroupManager {
    /// The runtime, in the file system.
    Cgroupfs,
    /// systemd.
    Systemd,
    /// Nobody.
    Disabled,
}

/// The commands on containers.
#[derive(Debug, Subcommand)]
pub enum ContainerCommand {
    /// Create a container from a bundle
    Create(CreateArgs),
    /// Start the program of a created container
    Start(IdArgs),
    /// Print the state of a container, as JSON
    State(IdArgs),
    /// Send a signal to a container's program
    Kill(KillArgs),
    /// Delete a container
    Delete(DeleteArgs),
    /// Run one more program in a container
    Exec(ExecArgs),
    /// List the processes of a container
    Ps(PsArgs),
    /// List the containers
    List(ListArgs),
    /// Freeze the processes of a container
    Pause(IdArgs),
    /// Thaw the processes of a container
    Resume(IdArgs),
    /// Change the limits of a container
    Update(Box<UpdateArgs>),
    /// Print what a container uses, and what was denied to it, as JSON lines
    Events(EventsArgs),
    /// Print what this runtime can do, as JSON
    Features,
    /// Not supported. Its help fails like all of it: engines ask for that to find out, podman's crutils
    #[command(hide = true, disable_help_flag = true)]
    Checkpoint(AnyArgs),
    /// Not supported
    #[command(hide = true, disable_help_flag = true)]
    Restore(AnyArgs),
}

/// Whatever is typed.
#[derive(Clone, Debug, ClapArgs)]
pub struct AnyArgs {
    /// Ignored
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<std::ffi::OsString>,
}

/// A command that takes a container's name.
#[derive(Clone, Debug, ClapArgs)]
pub struct IdArgs {
    /// Name of the container
    #[arg(value_name = "ID")]
    pub id: String,
}

/// What `create` and `run` share.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct LaunchArgs {
    /// Read FILE instead of the bundle's config.json
    #[arg(short = 'f', long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Write the process id of the container's program to FILE
    #[arg(long, value_name = "FILE")]
    pub pid_file: Option<PathBuf>,

    /// Unix socket that receives the container's terminal
    #[arg(long, value_name = "SOCKET")]
    pub console_socket: Option<PathBuf>,

    /// Do not pivot into the root: for hosts whose own root is a ramfs
    #[arg(long)]
    pub no_pivot: bool,

    /// Let the container use the session keyring of the caller
    #[arg(long)]
    pub no_new_keyring: bool,

    /// Number of descriptors, from 3 on, that the program keeps
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub preserve_fds: u32,
}

impl LaunchArgs {
    /// Whether anything is said.
    #[must_use]
    pub fn given(&self) -> bool {
        self.config.is_some()
            || self.pid_file.is_some()
            || self.console_socket.is_some()
            || self.no_pivot
            || self.no_new_keyring
            || self.preserve_fds > 0
    }
}

/// `create`.
#[derive(Clone, Debug, ClapArgs)]
pub struct CreateArgs {
    /// Directory of the bundle
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    pub bundle: PathBuf,

    /// What `run` has, too.
    #[command(flatten)]
    pub launch: LaunchArgs,

    /// Name of the container
    #[arg(value_name = "ID")]
    pub id: String,
}

/// `kill`.
#[derive(Clone, Debug, ClapArgs)]
pub struct KillArgs {
    /// Send it to every process of the container
    #[arg(short, long)]
    pub all: bool,

    /// Name of the container
    #[arg(value_name = "ID")]
    pub id: String,

    /// Signal, by name or number
    #[arg(value_name = "SIGNAL", default_value = "TERM")]
    pub signal: String,
}

/// `delete`.
#[derive(Clone, Debug, ClapArgs)]
pub struct DeleteArgs {
    /// Kill it first if it runs; it is no error if it does not exist
    #[arg(short, long)]
    pub force: bool,

    /// Name of the container
    #[arg(value_name = "ID")]
    pub id: String,
}

/// `exec`.
#[derive(Clone, Debug, ClapArgs)]
pub struct ExecArgs {
    /// Document of the process, in the form of `process` in config.json
    #[arg(short, long, value_name = "FILE")]
    pub process: Option<PathBuf>,

    /// Return when the program has started
    #[arg(short, long)]
    pub detach: bool,

    /// Give it a terminal
    #[arg(short, long)]
    pub tty: bool,

    /// Unix socket that receives the terminal
    #[arg(long, value_name = "SOCKET")]
    pub console_socket: Option<PathBuf>,

    /// Write the process id to FILE
    #[arg(long, value_name = "FILE")]
    pub pid_file: Option<PathBuf>,

    /// Directory to start in
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<String>,

    /// Variable to add; repeat for more
    #[arg(short, long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,

    /// User and group, in numbers
    #[arg(short, long, value_name = "UID[:GID]")]
    pub user: Option<String>,

    /// Group to add, in numbers; repeat for more
    #[arg(short = 'g', long, value_name = "GID")]
    pub additional_gids: Vec<u32>,

    /// Capability to add; repeat for more
    #[arg(short, long, value_name = "NAME")]
    pub cap: Vec<String>,

    /// Set no_new_privs
    #[arg(long)]
    pub no_new_privs: bool,

    /// AppArmor profile
    #[arg(long, value_name = "NAME")]
    pub apparmor: Option<String>,

    /// SELinux label
    #[arg(long, value_name = "LABEL")]
    pub process_label: Option<String>,

    /// Number of descriptors, from 3 on, that the program keeps
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub preserve_fds: u32,

    /// Start it in a container that is paused, too
    #[arg(long)]
    pub ignore_paused: bool,

    /// Cgroup below the container's to run it in, in the hierarchies of the controllers or in all; repeat for more
    #[arg(long, value_name = "[CONTROLLER,...:]PATH")]
    pub cgroup: Vec<String>,

    /// Name of the container
    #[arg(value_name = "ID")]
    pub id: String,

    /// Program and its arguments
    #[arg(value_name = "PROGRAM", trailing_var_arg = true, allow_hyphen_values = true)]
    pub args: Vec<String>,
}

/// `ps`.
#[derive(Clone, Debug, ClapArgs)]
pub struct PsArgs {
    /// Format of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub format: TableFormat,

    /// Name of the container
    #[arg(value_name = "ID")]
    pub id: String,

    /// Options of ps(1) (default: -ef)
    #[arg(value_name = "OPTIONS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub options: Vec<String>,
}

/// `list`.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub struct ListArgs {
    /// Format of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub format: TableFormat,

    /// Print names only
    #[arg(short, long)]
    pub quiet: bool,
}

/// A format of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TableFormat {
    /// Lines for a person.
    Table,
    /// One JSON document.
    Json,
}

/// `events`.
#[derive(Clone, Debug, ClapArgs)]
pub struct EventsArgs {
    /// Print what it uses once, and end
    #[arg(long)]
    pub stats: bool,

    /// Print what was denied until now, and end. It is kept until the container is deleted, unless --traps before
    /// the command names another place
    #[arg(long, conflicts_with = "stats")]
    pub traps: bool,

    /// Time between two lines, as 5s or 500ms
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = interval)]
    pub interval: std::time::Duration,

    /// Name of the container
    #[arg(value_name = "ID")]
    pub id: String,
}

fn interval(text: &str) -> Result<std::time::Duration, String> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s').unwrap_or(text), 1000),
    };
    let number: Option<u64> = number.parse().ok().filter(|number| *number > 0);
    let time = number.and_then(|number| number.checked_mul(unit));
    time.map(std::time::Duration::from_millis).ok_or_else(|| "is no time like 5s".to_owned())
}

/// `update`.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct UpdateArgs {
    /// Document of the limits, in the form of `linux.resources` in config.json; `-` is standard input
    #[arg(short = 'r', long, value_name = "FILE")]
    pub resources: Option<PathBuf>,

    /// Weight of block I/O, 10 to 1000
    #[arg(long, value_name = "N")]
    pub blkio_weight: Option<u16>,

    /// Period of the CPU quota, in microseconds
    #[arg(long, value_name = "N")]
    pub cpu_period: Option<u64>,

    /// CPU time in a period, in microseconds
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub cpu_quota: Option<i64>,

    /// CPU time to save up, in microseconds
    #[arg(long, value_name = "N")]
    pub cpu_burst: Option<u64>,

    /// Period of real-time scheduling, in microseconds
    #[arg(long, value_name = "N")]
    pub cpu_rt_period: Option<u64>,

    /// Real-time CPU time in a period, in microseconds
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub cpu_rt_runtime: Option<i64>,

    /// CPU shares
    #[arg(long, visible_alias = "cpu-shares", value_name = "N")]
    pub cpu_share: Option<u64>,

    /// Whether CPUs are given when nobody else wants them only
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub cpu_idle: Option<i64>,

    /// CPUs to run on
    #[arg(long, value_name = "LIST")]
    pub cpuset_cpus: Option<String>,

    /// Memory nodes to use
    #[arg(long, value_name = "LIST")]
    pub cpuset_mems: Option<String>,

    /// Kernel memory (ignored, as by kernels since Linux 5.16)
    #[arg(long, value_name = "SIZE", hide = true)]
    pub kernel_memory: Option<String>,

    /// Kernel memory for TCP (ignored, as by kernels since Linux 5.16)
    #[arg(long, value_name = "SIZE", hide = true)]
    pub kernel_memory_tcp: Option<String>,

    /// Memory, as 64m; -1 is no limit
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub memory: Option<String>,

    /// Memory to leave when the host is short of it
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub memory_reservation: Option<String>,

    /// Memory and swap together
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub memory_swap: Option<String>,

    /// Number of processes; -1 is no limit
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub pids_limit: Option<i64>,

    /// Name of the container
    #[arg(value_name = "ID", action = ArgAction::Set)]
    pub id: String,
}
