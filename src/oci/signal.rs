//! Signals by name.

/// Names of signals 1 to 31, signal(7) for x86 and ARM.
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// The first of the real-time signals, as C libraries count them, and the last.
const REALTIME: (i32, i32) = (34, 64);

/// The number of a signal, by name (with or without `SIG`, in any case) or number.
#[must_use]
pub fn number(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse::<i32>() {
        return (0..=REALTIME.1).contains(&number).then_some(number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let other = match name {
        "IOT" => "ABRT",
        "POLL" => "IO",
        "CLD" => "CHLD",
        name => name,
    };
    if let Some(at) = NAMES.iter().position(|known| *known == other) {
        return i32::try_from(at + 1).ok();
    }
    let (from, sign, rest) = match (other.strip_prefix("RTMIN"), other.strip_prefix("RTMAX")) {
        (Some(rest), _) => (REALTIME.0, '+', rest),
        (_, Some(rest)) => (REALTIME.1, '-', rest),
        _ => return None,
    };
    let offset = match rest.strip_prefix(sign) {
        None if rest.is_empty() => 0,
        None => return None,
        Some(digits) => digits.parse::<i32>().ok().filter(|offset| (0..=30).contains(offset))?,
    };
    let number = if sign == '+' { from + offset } else { from - offset };
    (REALTIME.0..=REALTIME.1).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn names_and_numbers() {
        for (text, expected) in [
            ("9", Some(9)),
            ("KILL", Some(9)),
            ("SIGTERM", Some(15)),
            ("sigwinch", Some(28)),
            ("SYS", Some(31)),
            ("RTMIN", Some(34)),
            ("SIGRTMIN+3", Some(37)),
            ("RTMAX-1", Some(63)),
            ("RTMIN+31", None),
            ("65", None),
            ("-1", None),
            ("FOO", None),
            ("", None),
        ] {
            assert_eq!(number(text), expected, "{text}");
        }
    }
}
