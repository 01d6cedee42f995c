//! `doctor`: what this host can enforce, tried out.

use super::args::DoctorArgs;
use super::error::Error;

/// Prints the report; the exit code is 1 where the host is unhealthy.
///
/// # Errors
///
/// An error when standard output cannot be written.
#[cfg(target_os = "linux")]
pub fn doctor(args: &DoctorArgs) -> Result<u8, Error> {
    let report = crate::linux::doctor::examine();
    super::output::document(args.output.format, &report, || text(&report))?;
    Ok(u8::from(!report.healthy))
}

/// A line for each trial, and what it comes to.
#[cfg(target_os = "linux")]
fn text(report: &crate::linux::doctor::Report) -> String {
    let mut text = String::new();
    let kernel = report.kernel.as_deref().unwrap_or("of unknown release");
    let nested = if report.host.nested { ", inside another sandbox" } else { "" };
    let line = super::policy::line;
    line(&mut text, format_args!("landstrip {}, Linux {kernel}{nested}", report.version));
    for check in &report.checks {
        let outcome = &check.outcome;
        let errno = outcome.errno.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
        let required = if check.required { "required" } else { "optional" };
        let status = outcome.status.as_str();
        let message = &outcome.message;
        line(
            &mut text,
            format_args!("{:<20} {status:<12} {required:<9} {message}{errno}", check.name),
        );
    }
    line(&mut text, format_args!("{}", if report.healthy { "healthy" } else { "unhealthy" }));
    text
}

/// Prints the report; the exit code is 1 where the sandbox does not hold.
///
/// # Errors
///
/// An error when standard output cannot be written.
#[cfg(target_os = "macos")]
pub fn doctor(args: &DoctorArgs) -> Result<u8, Error> {
    let report = crate::macos::doctor::examine();
    super::output::document(args.output.format, &report, || {
        let word = if report.healthy { "healthy" } else { "unhealthy" };
        format!("landstrip {}, macOS\n{}\n{word}\n", report.version, report.message)
    })?;
    Ok(u8::from(!report.healthy))
}

/// Prints the report; the exit code is 1 where the sandbox does not hold.
///
/// # Errors
///
/// An error when standard output cannot be written.
#[cfg(windows)]
pub fn doctor(args: &DoctorArgs) -> Result<u8, Error> {
    let report = crate::windows::doctor::examine();
    super::output::document(args.output.format, &report, || {
        let word = if report.healthy { "healthy" } else { "unhealthy" };
        format!("landstrip {}, Windows\n{}\n{word}\n", report.version, report.message)
    })?;
    Ok(u8::from(!report.healthy))
}
