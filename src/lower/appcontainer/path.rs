//! Paths of Windows in the notation of policies, and back.
//!
//! The policy engine knows one root and one separator. `C:\w` is `/C:/w` there, and `\\server\share` is
//! `/UNC/server/share`; the drive's letter is a capital.
//!
//! Windows holds `SECRET`, `secret` and, where there are short names, `SECRET~1` for one name. A view of its
//! files says of a name that is not spelled as the file system keeps it that it is a symbolic link to
//! [`ALIAS`] and the name that is kept. So every path that a policy resolves to is spelled in one way.

use crate::policy::error::PARSE_FAILED;
use crate::policy::{Document, Kind, Paths, PolicyError};

/// How the text of a link starts that is another spelling of a name, and no link of the file system.
pub const ALIAS: &str = "./";

/// Whether `kind` is another spelling of a name.
pub(super) fn is_alias(kind: &Kind) -> bool {
    matches!(kind, Kind::Symlink(target) if target.starts_with(ALIAS))
}

/// The path of Windows `native`, absolute, in the notation of policies; `None` where it is none, or names a
/// stream of a file, a device or the current directory of a drive.
#[must_use]
pub fn internal(native: &str) -> Option<String> {
    let text = native.replace('\\', "/");
    let verbatim = ["//?/", "/??/"].iter().find_map(|prefix| text.strip_prefix(prefix));
    let path = match (verbatim, text.strip_prefix("//")) {
        (Some(path), _)
            if path.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("UNC/")) =>
        {
            format!("UNC/{}", &path[4..])
        }
        (Some(path), _) => path.to_owned(),
        (None, Some(share)) if !share.starts_with('.') => format!("UNC/{share}"),
        (None, Some(_)) => return None,
        (None, None) => text,
    };
    let (top, rest) = path.split_once('/').map_or((&*path, ""), |(top, rest)| (top, rest));
    let top = if top == "UNC" { top.to_owned() } else { drive(top)? };
    if rest.contains(':') {
        return None;
    }
    let rest = rest.trim_end_matches('/');
    Some(if rest.is_empty() { format!("/{top}") } else { format!("/{top}/{rest}") })
}

/// `C:`, of a drive's letter and a colon.
fn drive(text: &str) -> Option<String> {
    match text.as_bytes() {
        [letter, b':'] if letter.is_ascii_alphabetic() => Some(text.to_ascii_uppercase()),
        _ => None,
    }
}

/// The path that Windows takes as it stands, `\\?\C:\w`: it folds no dots and no trailing spaces, and knows
/// no devices such as `NUL`. `None` for the root above all drives, and for what no path of Windows can be.
#[must_use]
pub fn verbatim(path: &str) -> Option<String> {
    Some(match path.strip_prefix("/UNC/") {
        Some(share) if !share.contains(['\\', ':']) => {
            format!(r"\\?\UNC\{}", share.replace('/', r"\"))
        }
        Some(_) => return None,
        None => format!(r"\\?\{}", shown(path)?),
    })
}

/// The path as a person writes it, `C:\w`.
#[must_use]
pub fn shown(path: &str) -> Option<String> {
    let path = path.strip_prefix('/')?;
    let (top, rest) = path.split_once('/').map_or((path, ""), |(top, rest)| (top, rest));
    let top = drive(top)?;
    (!rest.contains(['\\', ':'])).then(|| format!(r"{top}\{}", rest.replace('/', r"\")))
}

/// Whether `path` is a drive as a whole, or above all of them.
pub(super) fn is_volume(path: &str) -> bool {
    path == "/" || (path.starts_with('/') && drive(&path[1..]).is_some())
}

/// Rewrites the paths of a document, which are typed as on Windows or in the notation of policies.
///
/// # Errors
///
/// `POLICY_PARSE_FAILED` with the entry that is no path of Windows.
pub fn rewrite(document: &mut Document) -> Result<(), PolicyError> {
    let files = &mut document.filesystem;
    for list in [
        &mut files.allow_write,
        &mut files.deny_write,
        &mut files.deny_write_always,
        &mut files.allow_read,
        &mut files.deny_read,
        &mut files.deny_read_always,
        &mut document.network.allow_unix_sockets,
    ] {
        rewrite_list(list)?;
    }
    Ok(())
}

fn rewrite_list(list: &mut Paths) -> Result<(), PolicyError> {
    for entry in list {
        let rewritten = typed(&entry.value.text, entry.value.is_glob());
        entry.value.text = rewritten.map_err(|why| {
            let message = format!("{:?}: {why}", entry.value.text);
            PolicyError::at(PARSE_FAILED, &entry.origin, message)
        })?;
    }
    Ok(())
}

/// An entry of a policy in the notation of policies. Before a character of a glob, `\` takes its meaning
/// away; so `/` is the separator of globs.
fn typed(text: &str, glob: bool) -> Result<String, &'static str> {
    if glob && text.contains('\\') {
        return Err("the separator of a glob is `/`");
    }
    let path = text.replace('\\', "/");
    let rooted = path.strip_prefix('/').unwrap_or(&path);
    let (top, _) = rooted.split_once('/').map_or((rooted, ""), |(top, rest)| (top, rest));
    if drive(top).is_some() || path.starts_with("//") {
        return internal(if path.starts_with("//") { &path } else { rooted })
            .ok_or("a path names no stream of a file and no device");
    }
    match path.as_str() {
        "/" => Ok(path),
        _ if path.starts_with('/') && top != "UNC" => {
            Err("an absolute path starts with a drive, `C:/`")
        }
        _ if path.contains(':') => Err("a path names no stream, and no directory of another drive"),
        _ => Ok(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_back_as_they_went() {
        for (native, path) in [
            (r"C:\w\a b", "/C:/w/a b"),
            (r"c:/w/", "/C:/w"),
            (r"C:\", "/C:"),
            (r"\\?\C:\w", "/C:/w"),
            (r"\??\C:\w", "/C:/w"),
        ] {
            assert_eq!(internal(native).as_deref(), Some(path), "{native}");
            let again = verbatim(path).unwrap();
            assert_eq!(internal(&again).as_deref(), Some(path), "{again}");
            assert_eq!(internal(&shown(path).unwrap()).as_deref(), Some(path));
        }
        for share in [r"\\server\share\x", r"\\?\UNC\server\share\x"] {
            assert_eq!(internal(share).as_deref(), Some("/UNC/server/share/x"));
        }
        assert_eq!(verbatim("/UNC/server/share/x").as_deref(), Some(r"\\?\UNC\server\share\x"));
        assert_eq!(verbatim("/C:").as_deref(), Some(r"\\?\C:\"));
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for native in ["", "x", r"\x", "C:x", r"C:\x:stream", r"\\.\C:", r"\\?\Volume{0}\", "1:/x"]
        {
            assert_eq!(internal(native), None, "{native}");
        }
        for path in ["/", "/w", "C:/w", "/C:/a:b", r"/C:/a\b", ""] {
            assert_eq!(verbatim(path), None, "{path}");
        }
    }

    #[test]
    fn entries_are_typed_in_both_notations() {
        for (text, glob, expected) in [
            (r"C:\w\x", false, Some("/C:/w/x")),
            ("/c:/w", false, Some("/C:/w")),
            (r"~\.ssh", false, Some("~/.ssh")),
            (r".\x", false, Some("./x")),
            ("/", false, Some("/")),
            ("**/.env", true, Some("**/.env")),
            ("C:/w/**/*.pem", true, Some("/C:/w/**/*.pem")),
            (r"C:\w\*.pem", true, None),
            ("/etc", false, None),
            (r"\windows", false, None),
            ("C:x", false, None),
            ("file:stream", false, None),
            (r"C:\w\file:stream", false, None),
        ] {
            assert_eq!(typed(text, glob).ok().as_deref(), expected, "{text}");
        }
    }
}
