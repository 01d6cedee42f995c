//! Paths and globs as regular expressions of a sandbox profile.
//!
//! The dialect is what Apple's own profiles use of POSIX extended expressions. It matches bytes, and knows
//! nothing of characters or case. So an expression says, of what cannot be said exactly, more where it
//! denies and less where it allows:
//!
//! - a file system of macOS holds `.GIT` and `.git` for one name, unless told otherwise, and the
//!   composed and the decomposed form of a letter as well. A denial matches both cases of an ASCII
//!   letter, and any other letters in place of letters beyond ASCII; a grant only what was typed.
//! - `?` and a class take one character, which is up to four bytes. A denial takes up to three bytes
//!   that are no printable ASCII behind the first; a grant takes printable ASCII alone.

use crate::policy::component::{Part, Token};
use crate::policy::glob::Glob;

/// Whether an expression denies, and may match more than was meant, or allows, and may match less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bias {
    /// May match less.
    Allows,
    /// May match more.
    Denies,
}

/// The most characters of a class beyond ASCII that are written one by one.
const MAX_LISTED: u32 = 64;
/// Letters beyond ASCII, each composed or as a letter with accents behind it.
const ACCENTED: &str = "([A-Za-z]?[^ -~]+)+";
/// The bytes behind the first one of a character, where it has any.
const CONTINUED: &str = "[^ -~]?[^ -~]?[^ -~]?";

/// What matches `path`, and everything below it too where `below`. The path is absolute and normalized.
pub fn path(path: &str, below: bool, bias: Bias) -> String {
    let mut out = String::from("^");
    literal(&mut out, path.trim_end_matches('/'), bias);
    out.push_str(if below { "(/|$)" } else { "$" });
    out
}

/// What matches whatever `glob` matches, and everything below that; `None` where nothing would be left of
/// a grant.
pub fn glob(glob: &Glob, bias: Bias) -> Option<String> {
    Some(components(glob, glob.parts(), bias)? + "(/|$)")
}

/// For each name within `glob` that something is denied below, what matches exactly that name. A name
/// that may be any one, at any depth, is left out: with another it would match all the same.
pub fn inner_names(glob: &Glob) -> Vec<String> {
    let parts = glob.parts();
    let loose = |parts: &[Part]| {
        parts.first() == Some(&Part::Cross)
            && parts.iter().all(|part| matches!(part, Part::Cross | Part::Any))
    };
    (1..parts.len())
        .map(|end| &parts[..end])
        .filter(|prefix| prefix.last() != Some(&Part::Cross) && !loose(prefix))
        .filter_map(|prefix| Some(components(glob, prefix, Bias::Denies)? + "$"))
        .collect()
}

fn components(glob: &Glob, parts: &[Part], bias: Bias) -> Option<String> {
    let mut out = String::from("^");
    literal(&mut out, glob.anchor().trim_end_matches('/'), bias);
    for part in parts {
        match part {
            Part::Cross => out.push_str("(/[^/]+)*"),
            Part::Any => out.push_str("/[^/]+"),
            Part::Name(name) => {
                out.push('/');
                // A name in a policy is text.
                literal(&mut out, &String::from_utf8_lossy(name), bias);
            }
            Part::Wild(tokens) => {
                out.push('/');
                for one in tokens {
                    token(&mut out, one, bias)?;
                }
            }
        }
    }
    Some(out)
}

/// Text that stands for itself.
fn literal(out: &mut String, text: &str, bias: Bias) {
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        // An accent may follow its letter as a character of its own, or be part of it.
        let accented = chars.peek().is_some_and(|next| !next.is_ascii()) && c != '/';
        match bias {
            Bias::Denies if !c.is_ascii() || accented => {
                while chars.next_if(|next| !next.is_ascii()).is_some() {}
                if c.is_ascii_alphabetic() {
                    out.push_str("[A-Za-z]?");
                } else if c.is_ascii() {
                    escaped(out, c);
                }
                out.push_str(ACCENTED);
            }
            Bias::Denies if c.is_ascii_alphabetic() => {
                out.extend(['[', c.to_ascii_lowercase(), c.to_ascii_uppercase(), ']']);
            }
            _ => escaped(out, c),
        }
    }
}

fn escaped(out: &mut String, c: char) {
    if "^$.[]*+?(){}|\\".contains(c) {
        out.push('\\');
    }
    out.push(c);
}

fn token(out: &mut String, token: &Token, bias: Bias) -> Option<()> {
    match (token, bias) {
        (Token::Star, _) => out.push_str("[^/]*"),
        (Token::Char(c), _) => literal(out, c.encode_utf8(&mut [0; 4]), bias),
        (Token::One, Bias::Denies) => {
            out.push_str("[^/]");
            out.push_str(CONTINUED);
        }
        (Token::One, Bias::Allows) => out.push_str("[ -.0-~]"),
        (Token::Class { negated, ranges }, _) => class(out, *negated, ranges, bias)?,
    }
    Some(())
}

fn class(out: &mut String, negated: bool, ranges: &[(char, char)], bias: Bias) -> Option<()> {
    let within = |c: char| ranges.iter().any(|&(from, to)| (from..=to).contains(&c));
    let folded = |c: char| within(c.to_ascii_lowercase()) || within(c.to_ascii_uppercase());
    let ascii = |c: char| match (bias, negated) {
        (Bias::Allows, _) => within(c) != negated,
        (Bias::Denies, false) => folded(c),
        // Both cases have to be out of it before the other one is.
        (Bias::Denies, true) => !(within(c.to_ascii_lowercase()) && within(c.to_ascii_uppercase())),
    };
    let set = set(ascii);
    let beyond = ranges.iter().any(|&(_, to)| !to.is_ascii());
    let listed: u32 = ranges
        .iter()
        .filter(|&&(_, to)| !to.is_ascii())
        .map(|&(from, to)| u32::from(to).saturating_sub(u32::from(from).max(0x80)) + 1)
        .sum();
    match bias {
        // Whatever is not in it, or has an accent.
        Bias::Denies if negated || beyond => {
            out.push_str(if negated && set.is_empty() { "[^ -~]" } else { "[^/]" });
            out.push_str(CONTINUED);
        }
        Bias::Allows if !negated && beyond && listed <= MAX_LISTED => {
            let mut choices: Vec<String> = (!set.is_empty()).then_some(set).into_iter().collect();
            let wide = ranges.iter().flat_map(|&(from, to)| from..=to).filter(|c| !c.is_ascii());
            choices.extend(wide.map(String::from));
            out.push('(');
            out.push_str(&choices.join("|"));
            out.push(')');
        }
        _ if set.is_empty() => return None,
        _ => out.push_str(&set),
    }
    Some(())
}

/// A class of the printable ASCII characters, without `/`, that `holds`; empty where it holds none.
fn set(holds: impl Fn(char) -> bool) -> String {
    let mut chars: Vec<char> = (' '..='~').filter(|&c| c != '/' && holds(c)).collect();
    if chars.is_empty() {
        return String::new();
    }
    // `]` means itself in front, `^` and `-` behind.
    let (front, mut back) = (chars.contains(&']'), String::new());
    for last in ['^', '-'] {
        if chars.contains(&last) {
            back.push(last);
        }
    }
    chars.retain(|c| !"]^-".contains(*c));
    let mut out = String::from(if front { "[]" } else { "[" });
    // A class of nothing but `^` would be a negated one.
    if !front && chars.is_empty() && back.starts_with('^') {
        back = if back.len() > 1 { "-^".to_owned() } else { return "\\^".to_owned() };
    }
    let mut at = 0;
    while at < chars.len() {
        let run = chars[at..].windows(2).take_while(|two| two[0] as u32 + 1 == two[1] as u32);
        let length = run.count() + 1;
        let (from, to) = (chars[at], chars[at + length - 1]);
        out.push(from);
        if length > 2 {
            out.push('-');
        }
        if length > 1 {
            out.push(to);
        }
        at += length;
    }
    out.push_str(&back);
    out.push(']');
    out
}
