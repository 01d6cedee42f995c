//! `spec`: a bundle that `run` launches as it would launch the program, and other runtimes as a container.

#[cfg(target_os = "linux")]
use std::io::Write;

use super::args::SpecArgs;
use super::error::Error;

/// Prints its document, or writes it. What other runtimes do otherwise is said on standard error.
///
/// # Errors
///
/// As `run` up to the launch; a usage error where a file is in the way.
#[cfg(target_os = "linux")]
pub fn spec(args: &SpecArgs) -> Result<u8, Error> {
    use super::{HostFiles, bundle, container, output, resolve, run};
    use crate::linux::launch::add_mounts;
    use crate::lower::container::{Host, lower};
    use crate::plan::HostSupport;
    use crate::plan::controls::Guarded;
    if args.command.is_empty() {
        if !args.policy.is_empty() || !args.accept.is_empty() {
            return Err(Error::Usage(
                "nothing to run: end the line with `-- PROGRAM [ARGS...]`".into(),
            ));
        }
        let rootless = args.rootless || crate::oci::runtime::is_rootless();
        let dir = args.bundle.as_deref().unwrap_or(std::path::Path::new("."));
        bundle::write(dir, &container::template(rootless))?;
        return Ok(0);
    }
    if args.rootless {
        return Err(Error::Usage("--rootless: the program is run where it is".into()));
    }
    let run = run::of_command(&args.policy, &args.accept, &args.command)?;
    let identity = run::identity()?;
    let mut policy = run.policy.clone();
    add_mounts(&mut policy, HostSupport::default(), Guarded::All)?;
    let host = Host { view: &HostFiles, daemons: &resolve::daemons(), rules: policy.rules };
    let lowered = lower(&run, &identity, host).map_err(bundle::refused)?;
    match &args.bundle {
        Some(dir) => {
            bundle::write(dir, &lowered.document)?;
            bundle::make_root(dir, &lowered.links)?;
        }
        None => output::json(&lowered.document)?,
    }
    let notes = lowered.notes.iter().map(|note| format!("spec: other runtimes: {note}\n"));
    let _nowhere_to_report = std::io::stderr().write_all(notes.collect::<String>().as_bytes());
    Ok(0)
}

/// Says that nothing runs on this platform yet.
///
/// # Errors
///
/// `PLATFORM_UNSUPPORTED`, always.
#[cfg(not(target_os = "linux"))]
pub fn spec(_: &SpecArgs) -> Result<u8, Error> {
    let message = "`spec` is not available on this platform";
    Err(super::Failure::new(crate::trap::Code::PlatformUnsupported, message).into())
}
