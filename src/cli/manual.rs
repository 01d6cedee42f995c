//! `completions` and `man`: files for packages, made from the command tree.

use clap::Command;

use super::error::Error;
use super::output;

/// Prints the completion script of `command` for `shell`.
///
/// # Errors
///
/// An error when standard output cannot be written.
pub fn completions(mut command: Command, shell: clap_complete::Shell) -> Result<u8, Error> {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    output::bytes(&script)?;
    Ok(0)
}

/// Prints the manual page of `command`, its subcommands included, for man(1).
///
/// # Errors
///
/// An error when standard output cannot be written.
pub fn man(command: Command) -> Result<u8, Error> {
    let mut page = Vec::new();
    // Writing to memory cannot fail.
    let _infallible = render(command, &mut page);
    output::bytes(&page)?;
    Ok(0)
}

fn render(mut command: Command, page: &mut Vec<u8>) -> std::io::Result<()> {
    command.build();
    let man = clap_mangen::Man::new(command.clone());
    man.render_title(page)?;
    man.render_name_section(page)?;
    man.render_synopsis_section(page)?;
    man.render_description_section(page)?;
    man.render_options_section(page)?;
    subcommands(&command, page)?;
    man.render_extra_section(page)?;
    man.render_version_section(page)
}

/// A section for each command that does something, in the order of the help.
fn subcommands(command: &Command, page: &mut Vec<u8>) -> std::io::Result<()> {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        if sub.has_subcommands() {
            subcommands(sub, page)?;
            continue;
        }
        let name = sub.get_bin_name().unwrap_or_else(|| sub.get_name()).to_uppercase();
        page.extend_from_slice(format!(".SH {}\n", name.replace('-', "\\-")).as_bytes());
        let man = clap_mangen::Man::new(sub.clone());
        let mut part = Vec::new();
        man.render_synopsis_section(&mut part)?;
        man.render_description_section(&mut part)?;
        man.render_options_section(&mut part)?;
        // Sections of the part become subsections of the page.
        let part = String::from_utf8_lossy(&part).replace("\n.SH ", "\n.SS ");
        let part = part.strip_prefix(".SH ").map_or(part.clone(), |rest| format!(".SS {rest}"));
        page.extend_from_slice(part.as_bytes());
    }
    Ok(())
}
