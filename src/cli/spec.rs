//! `spec`: the OCI config.json that `run` would launch.

use super::args::SpecArgs;
use super::error::Error;

/// Prints it, or writes it into a bundle.
///
/// # Errors
///
/// As `run` up to the launch; a usage error where a file is in the way.
#[cfg(target_os = "linux")]
pub fn spec(args: &SpecArgs) -> Result<u8, Error> {
    use super::{bundle, container, output, run};
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
    let document = crate::lower::spec::document(&run, &identity).map_err(bundle::refused)?;
    match &args.bundle {
        Some(dir) => bundle::write(dir, &document)?,
        None => output::json(&document)?,
    }
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
