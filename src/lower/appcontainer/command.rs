//! A command line of Windows: one text, which each program splits by itself.
//!
//! Nearly all split as the C library of Microsoft does ("Parsing C command-line arguments"). What does not is the
//! interpreter of batch files, for which no quoting is safe: they are not started.

const QUOTE: u16 = b'"' as u16;
const BACKSLASH: u16 = b'\\' as u16;
const SPACE: u16 = b' ' as u16;

/// The command line that a program called `name` splits into `arguments`; `None` where there is none: a NUL ends
/// the line, and a quote in the name cannot be told from its end.
#[must_use]
pub fn line(name: &[u16], arguments: &[Vec<u16>]) -> Option<Vec<u16>> {
    if name.contains(&QUOTE) || name.contains(&0) {
        return None;
    }
    let mut line = [&[QUOTE], name, &[QUOTE]].concat();
    for argument in arguments {
        if argument.contains(&0) {
            return None;
        }
        line.push(SPACE);
        push(&mut line, argument);
    }
    Some(line)
}

/// Backslashes stand for themselves, but for those before a quote. There are quotes only where they are needed,
/// for the sake of programs that split a line by themselves.
fn push(line: &mut Vec<u16>, argument: &[u16]) {
    let divides = |unit: &u16| matches!(u8::try_from(*unit), Ok(b' ' | b'\t' | b'\n' | 11 | b'"'));
    if !argument.is_empty() && !argument.iter().any(divides) {
        line.extend(argument);
        return;
    }
    line.push(QUOTE);
    let mut backslashes = 0;
    for &unit in argument {
        match unit {
            BACKSLASH => backslashes += 1,
            QUOTE => {
                line.extend(std::iter::repeat_n(BACKSLASH, backslashes + 1));
                backslashes = 0;
            }
            _ => backslashes = 0,
        }
        line.push(unit);
    }
    line.extend(std::iter::repeat_n(BACKSLASH, backslashes));
    line.push(QUOTE);
}

/// Whether the file is a batch file, by its name: that is how Windows tells.
#[must_use]
pub fn is_batch(file: &str) -> bool {
    // Dots and spaces at the end are no part of a name.
    let name = file.trim_end_matches(['.', ' ']);
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    ["bat", "cmd"].iter().any(|batch| extension.eq_ignore_ascii_case(batch))
}
