//! `policy plan`: which mechanism of this host holds each line of the policy.

use super::args::PlanArgs;
use super::error::{Error, Failure};
use crate::policy::ResolvedPolicy;

/// Refuses a policy that this platform cannot enforce.
///
/// # Errors
///
/// The failure that would keep `run` from launching: the first shortfall that `accept` does not name.
#[cfg(target_os = "linux")]
pub fn check(policy: ResolvedPolicy, accept: &[String]) -> Result<(), Failure> {
    crate::linux::launch::refuse_shortfalls(&planned(policy)?.0, accept)
}

/// Refuses a policy that this platform cannot enforce.
///
/// # Errors
///
/// The first shortfall that `accept` does not name.
#[cfg(target_os = "macos")]
pub fn check(policy: ResolvedPolicy, accept: &[String]) -> Result<(), Failure> {
    crate::macos::refuse(&policy, accept)
}

/// Refuses a policy that this platform cannot enforce.
///
/// # Errors
///
/// The first shortfall that `accept` does not name.
#[cfg(windows)]
pub fn check(policy: ResolvedPolicy, accept: &[String]) -> Result<(), Failure> {
    crate::windows::refuse(&crate::windows::plan(&policy), accept)
}

/// Prints the plan; exit code 1 where a shortfall refuses.
///
/// # Errors
///
/// An error when standard output cannot be written.
#[cfg(target_os = "linux")]
pub fn print(policy: ResolvedPolicy, args: &PlanArgs) -> Result<u8, Error> {
    linux::print(policy, args)
}

/// Prints the sandbox profile that would hold the policy; exit code 1 where a shortfall refuses.
///
/// # Errors
///
/// An error when standard output cannot be written.
#[cfg(target_os = "macos")]
pub fn print(policy: ResolvedPolicy, args: &PlanArgs) -> Result<u8, Error> {
    use crate::lower::seatbelt;
    let refused = crate::macos::refuse(&policy, &args.accept).err().map(|failure| failure.message);
    let profile = seatbelt::profile(&policy, seatbelt::Run::default());
    let report = serde_json::json!({
        "runs": refused.is_none(), "shortfall": refused, "profile": profile,
    });
    super::output::document(args.inspect.output.format, &report, || profile.clone())?;
    Ok(u8::from(refused.is_some()))
}

/// Prints what an AppContainer would be granted; exit code 1 where a shortfall refuses.
///
/// # Errors
///
/// An error when standard output cannot be written.
#[cfg(windows)]
pub fn print(policy: ResolvedPolicy, args: &PlanArgs) -> Result<u8, Error> {
    let plan = crate::windows::plan(&policy);
    let refused = crate::windows::refuse(&plan, &args.accept).err().map(|failure| failure.message);
    let report =
        serde_json::json!({ "runs": refused.is_none(), "shortfall": refused, "plan": plan });
    super::output::document(args.inspect.output.format, &report, || format!("{report:#}\n"))?;
    Ok(u8::from(refused.is_some()))
}

#[cfg(target_os = "linux")]
pub use linux::planned;

#[cfg(target_os = "linux")]
mod linux {
    use serde::Serialize;
    use serde_json::{Value, json};

    use super::super::policy::line;
    use super::super::{HostFiles, output};
    use super::{Error, Failure, PlanArgs, ResolvedPolicy};
    use crate::linux::cgroup::Cgroups;
    use crate::linux::{host, launch, namespace};
    use crate::plan::controls::Guarded;
    use crate::plan::{
        self, Holder, HostSupport, Layer, NamespaceSupport, Plan, Shortfall, Writing,
    };
    use crate::policy::Origin;

    /// What a launch on this host would do, but for the run's own temporary directory. To be asked
    /// once in a process: the host cannot tell twice whether it is nested.
    ///
    /// # Errors
    ///
    /// As [`launch::add_mounts`].
    pub fn planned(mut policy: ResolvedPolicy) -> Result<(Plan, HostSupport), Failure> {
        // Made to see whether they can be, and removed on the spot.
        let limits = Cgroups::make(&policy.limits).support();
        // This one too, and before the host is asked.
        let (_, namespace) = namespace::for_policy(&policy.network);
        let support = HostSupport { limits, namespace, ..host::support() };
        launch::add_mounts(&mut policy, support, Guarded::All)?;
        Ok((plan::plan(policy, None, &HostFiles, support), support))
    }

    /// The document of `policy plan`.
    #[derive(Serialize)]
    struct Report<'a> {
        /// Whether `run` would launch under this policy.
        runs: bool,
        host: HostSupport,
        lines: Vec<Held>,
        shortfalls: Vec<Shortcoming<'a>>,
        /// What the kernel holds, as Landlock domains: that of the program, and the wider one around
        /// it and the broker.
        domains: Domains<'a>,
        /// Whether a broker decides about what the kernel does not grant.
        broker: bool,
        /// Whether reading is restricted.
        reads: bool,
        /// Whether the network is fenced.
        network: bool,
        /// Whether Unix sockets are fenced.
        unix_sockets: bool,
        /// Whether the broker holds signals, since Landlock does not.
        signals: bool,
        /// Whether the filter and the broker hold requests on devices, since Landlock does not.
        devices: bool,
    }

    #[derive(Serialize)]
    struct Domains<'a> {
        inner: &'a Layer,
        outer: &'a Layer,
    }

    /// One line of the policy.
    #[derive(Serialize)]
    struct Held {
        origin: Origin,
        text: String,
        /// `None` where nothing holds it here: then there is a shortfall, or it is not meant for here.
        held_by: Option<Holder>,
        #[serde(skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    }

    #[derive(Serialize)]
    struct Shortcoming<'a> {
        #[serde(flatten)]
        what: &'a Shortfall,
        accepted: bool,
    }

    pub fn print(policy: ResolvedPolicy, args: &PlanArgs) -> Result<u8, Error> {
        let (plan, host) = planned(policy)?;
        let accepted = |shortfall: &Shortfall| {
            shortfall.acceptable && args.accept.iter().any(|name| name == shortfall.name)
        };
        let runs = launch::refuse_shortfalls(&plan, &args.accept).is_ok();
        let report = Report {
            runs,
            host,
            lines: lines(&plan),
            shortfalls: (plan.shortfalls.iter())
                .map(|what| Shortcoming { what, accepted: accepted(what) })
                .collect(),
            domains: Domains { inner: &plan.inner, outer: &plan.outer },
            broker: plan.broker,
            reads: plan.reads,
            network: plan.network,
            unix_sockets: plan.unix_sockets,
            signals: plan.signals,
            devices: plan.devices,
        };
        output::document(args.inspect.output.format, &report, || text(&report))?;
        Ok(u8::from(!runs))
    }

    /// Every line of the policy documents; what holds in each run anyway is left out.
    fn lines(plan: &Plan) -> Vec<Held> {
        let mut lines: Vec<Held> = (plan.lines(&super::super::resolve::daemons()).into_iter())
            .filter(|line| !line.origin.is_built_in())
            .map(|line| Held {
                origin: line.origin,
                text: line.text,
                held_by: Some(line.held_by),
                note: line.note.map(str::to_owned),
            })
            .collect();
        // Braces and worktrees make several rules of one line.
        lines.dedup_by(|next, one| {
            (&next.origin, next.held_by, &next.note) == (&one.origin, one.held_by, &one.note)
        });
        let mut values = Vec::new();
        let policy = &plan.policy;
        located(&json!([policy.network, policy.limits, policy.macos, policy.windows]), &mut values);
        for (origin, text) in values {
            if lines.iter().any(|line| line.origin == origin) {
                continue;
            }
            let shortfall = plan.shortfalls.iter().find(|s| s.origin.as_ref() == Some(&origin));
            let (held_by, note) = match shortfall {
                Some(shortfall) => (None, Some(format!("shortfall `{}`", shortfall.name))),
                None if origin.key.starts_with("macos.") => (None, Some("for macOS".to_owned())),
                None if origin.key.starts_with("windows.") => {
                    (None, Some("for Windows".to_owned()))
                }
                // What it says is what holds without it: nothing is opened.
                None => (Some(Holder::Seccomp), None),
            };
            lines.push(Held { origin, text, held_by, note });
        }
        lines
    }

    /// Every value below `value` that stands somewhere in a policy.
    fn located(value: &Value, found: &mut Vec<(Origin, String)>) {
        match value {
            Value::Object(fields) => {
                let origin = fields.get("origin").map(|o| serde_json::from_value(o.clone()));
                match (origin, fields.get("text").or(fields.get("value"))) {
                    (Some(Ok(origin)), Some(Value::String(text))) => {
                        found.push((origin, text.clone()));
                    }
                    (Some(Ok(origin)), Some(value)) => found.push((origin, value.to_string())),
                    _ => fields.values().for_each(|value| located(value, found)),
                }
            }
            Value::Array(items) => items.iter().for_each(|item| located(item, found)),
            _ => {}
        }
    }

    fn text(report: &Report<'_>) -> String {
        let mut text = String::new();
        let HostSupport { landlock_abi, nested, namespace, .. } = report.host;
        let verdict = match (report.runs, report.shortfalls.is_empty()) {
            (true, true) => "runs: this host holds every line of the policy",
            (true, false) => "runs: what this host cannot hold was accepted",
            (false, _) => "refused: this host cannot hold all of the policy",
        };
        let inside = if nested { ", inside another sandbox" } else { "" };
        line(&mut text, format_args!("{verdict} (Landlock ABI {landlock_abi}{inside})"));
        match namespace {
            NamespaceSupport::Unasked => {}
            NamespaceSupport::Available => {
                line(&mut text, format_args!("sockets are in a network namespace of the run"));
            }
            NamespaceSupport::Refused(errno) => line(
                &mut text,
                format_args!("sockets are the host's: a network namespace is refused ({errno})"),
            ),
        }
        for (held, what) in [
            (report.signals, "signals are held by the broker, before Linux 6.12"),
            (
                report.devices,
                "requests on devices are held by the filter and the broker, before Linux 6.10",
            ),
        ] {
            if held {
                line(&mut text, format_args!("{what}"));
            }
        }
        for Shortcoming { what, accepted } in &report.shortfalls {
            let state = if *accepted { "accepted" } else { "refuses the run" };
            let at = what.origin.as_ref().map(|at| format!(" {at}")).unwrap_or_default();
            line(
                &mut text,
                format_args!("shortfall `{}`{at}: {} ({state})", what.name, what.message),
            );
        }
        text.push('\n');
        line(&mut text, format_args!("{:<22} line of the policy", "held by"));
        for held in &report.lines {
            let holder = held.held_by.map_or("nothing", Holder::name);
            let note = held.note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
            line(&mut text, format_args!("{holder:<22} {} {:?}{note}", held.origin, held.text));
        }
        let rest =
            if report.broker { "a broker decides about the rest" } else { "nothing else is" };
        for (what, domain) in [
            (format!("granted to the program by the kernel itself ({rest})"), report.domains.inner),
            ("granted to the launcher and its broker, at most".to_owned(), report.domains.outer),
        ] {
            text.push('\n');
            line(&mut text, format_args!("{what}:"));
            if !domain.reading {
                text.push_str("  everything: read\n");
            }
            for grant in &domain.grants {
                let rights =
                    [(grant.read, "read"), (grant.write != Writing::Nothing, grant.write.as_str())];
                let rights: Vec<_> =
                    rights.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect();
                line(&mut text, format_args!("  {}: {}", grant.path, rights.join(", ")));
            }
        }
        text
    }
}
