//! Device rules, and the two shapes that the kernel takes them in. Pure.

use std::collections::BTreeMap;

use oci_spec::runtime::{LinuxDeviceCgroup, LinuxDeviceType};

/// mknod(2), as `BPF_DEVCG_ACC_MKNOD` counts it.
pub const MKNOD: u32 = 1;
/// Opening for reading.
pub const READ: u32 = 2;
/// Opening for writing.
pub const WRITE: u32 = 4;
const ALL: u32 = MKNOD | READ | WRITE;

/// Block or character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `b`.
    Block,
    /// `c`.
    Character,
}

/// Devices of one kind; `None` is any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Devices {
    /// Block or character.
    pub kind: Kind,
    /// Major number.
    pub major: Option<u32>,
    /// Minor number.
    pub minor: Option<u32>,
}

impl Devices {
    /// Whether each of `other` is one of these.
    fn hold(&self, other: &Devices) -> bool {
        let holds = |own: Option<u32>, theirs| own.is_none() || own == theirs;
        self.kind == other.kind && holds(self.major, other.major) && holds(self.minor, other.minor)
    }

    /// Whether some device is in both.
    fn meet(&self, other: &Devices) -> bool {
        let meets = |a: Option<u32>, b: Option<u32>| a.is_none() || b.is_none() || a == b;
        self.kind == other.kind && meets(self.major, other.major) && meets(self.minor, other.minor)
    }
}

impl std::fmt::Display for Devices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let number = |n: Option<u32>| n.map_or_else(|| "*".to_owned(), |n| n.to_string());
        let kind = if self.kind == Kind::Block { 'b' } else { 'c' };
        write!(f, "{kind} {}:{}", number(self.major), number(self.minor))
    }
}

/// One rule: of two about the same access to the same device, the later one counts. Nothing is allowed
/// before the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Allows, or denies.
    pub allow: bool,
    /// Which devices.
    pub devices: Devices,
    /// [`MKNOD`], [`READ`], [`WRITE`].
    pub access: u32,
}

/// The rules of a document; one about every type becomes two.
///
/// # Errors
///
/// What is wrong with which rule.
pub fn parse(rules: &[LinuxDeviceCgroup]) -> Result<Vec<Rule>, String> {
    let mut parsed = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        let wrong = |what: &str| format!("rule {at} (`{rule}`): {what}");
        let kinds: &[Kind] = match rule.typ().unwrap_or_default() {
            LinuxDeviceType::A => &[Kind::Block, Kind::Character],
            LinuxDeviceType::B => &[Kind::Block],
            LinuxDeviceType::C | LinuxDeviceType::U => &[Kind::Character],
            LinuxDeviceType::P => return Err(wrong("a FIFO is no device")),
        };
        let number = |number: Option<i64>| match number {
            None | Some(-1) => Ok(None),
            Some(number) => u32::try_from(number).map(Some).map_err(|_| wrong("no device number")),
        };
        let (major, minor) = (number(rule.major())?, number(rule.minor())?);
        let mut access = 0;
        for letter in rule.access().iter().flat_map(|access| access.chars()) {
            access |= match letter {
                'm' => MKNOD,
                'r' => READ,
                'w' => WRITE,
                _ => return Err(wrong("access is made of `r`, `w` and `m`")),
            };
        }
        if access == 0 {
            return Err(wrong("access is missing"));
        }
        parsed.extend(kinds.iter().map(|&kind| Rule {
            allow: rule.allow(),
            devices: Devices { kind, major, minor },
            access,
        }));
    }
    Ok(parsed)
}

/// What every container may use besides: to make any node, the devices that runtime-spec has in each
/// container ("Default Devices"), terminals, and as other runtimes, `/dev/net/tun`.
pub fn defaults() -> Vec<Rule> {
    let rule = |kind, major, minor, access| Rule {
        allow: true,
        devices: Devices { kind, major, minor },
        access,
    };
    let mut rules =
        vec![rule(Kind::Character, None, None, MKNOD), rule(Kind::Block, None, None, MKNOD)];
    let known = [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2), (10, 200)]
        .map(|(a, b)| (a, Some(b)));
    for (major, minor) in known.into_iter().chain([(136, None)]) {
        rules.push(rule(Kind::Character, Some(major), minor, ALL));
    }
    rules
}

/// What the kernel's controller of version 1 holds: one verdict, and devices that are excepted from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// What is no exception is allowed.
    pub allow: bool,
    /// The access to devices that the other verdict is for.
    pub exceptions: BTreeMap<Devices, u32>,
}

impl Table {
    /// The table that means what the rules mean.
    ///
    /// # Errors
    ///
    /// Rules that no table can hold: an exception of an exception.
    pub fn of(rules: &[Rule]) -> Result<Table, String> {
        let whole = |rule: &Rule| {
            rule.access == ALL && rule.devices.major.is_none() && rule.devices.minor.is_none()
        };
        // The last verdict on everything makes what is before it meaningless.
        let last = rules.windows(2).rposition(|pair| {
            pair.iter().all(whole)
                && pair[0].allow == pair[1].allow
                && pair[0].devices.kind != pair[1].devices.kind
        });
        let (allow, rest) = match last {
            Some(at) => (rules[at].allow, &rules[at + 2..]),
            None => (false, rules),
        };
        let mut table = Table { allow, exceptions: BTreeMap::new() };
        for rule in rest {
            match rule.allow == allow {
                false => *table.exceptions.entry(rule.devices).or_default() |= rule.access,
                true => table.take_back(rule)?,
            }
        }
        table.exceptions.retain(|_, access| *access != 0);
        Ok(table)
    }

    fn take_back(&mut self, rule: &Rule) -> Result<(), String> {
        for (devices, access) in &mut self.exceptions {
            if rule.devices.hold(devices) {
                *access &= !rule.access;
            } else if rule.devices.meet(devices) && *access & rule.access != 0 {
                return Err(format!(
                    "cgroup version 1 cannot hold a rule for `{}` after the other one for `{devices}`",
                    rule.devices
                ));
            }
        }
        Ok(())
    }
}

/// An access as the files of version 1 have it.
pub fn letters(access: u32) -> String {
    [(READ, 'r'), (WRITE, 'w'), (MKNOD, 'm')]
        .iter()
        .filter(|(bit, _)| access & bit != 0)
        .map(|(_, letter)| letter)
        .collect()
}

/// A line of `devices.list`; `None` for the one that says that everything is allowed.
pub fn listed(line: &str) -> Option<(Devices, u32)> {
    let mut words = line.split([' ', ':']);
    let kind = match words.next()? {
        "b" => Kind::Block,
        "c" => Kind::Character,
        _ => return None,
    };
    let mut number = || match words.next()? {
        "*" => Some(None),
        number => number.parse().ok().map(Some),
    };
    let (major, minor) = (number()?, number()?);
    let access = words.next()?.chars().fold(0, |access, letter| match letter {
        'r' => access | READ,
        'w' => access | WRITE,
        _ => access | MKNOD,
    });
    Some((Devices { kind, major, minor }, access))
}

/// Whether the rules only deny everything, as the first one of each document does: nothing is lost then
/// where no device can be made.
pub fn is_usual(rules: &[Rule]) -> bool {
    rules
        .iter()
        .all(|rule| !rule.allow && rule.devices.major.is_none() && rule.devices.minor.is_none())
}

/// How systemd names devices: by the links in `/dev/char` and `/dev/block`, or by the name that the text of
/// `/proc/devices` has for a major number.
pub fn systemd(devices: &Devices, known: &str) -> Option<String> {
    let (kind, title) = match devices.kind {
        Kind::Block => ("block", "Block devices:"),
        Kind::Character => ("char", "Character devices:"),
    };
    match (devices.major, devices.minor) {
        (None, None) => Some(format!("{kind}-*")),
        (Some(major), Some(minor)) => Some(format!("/dev/{kind}/{major}:{minor}")),
        (None, Some(_)) => None,
        (Some(major), None) => {
            let lines = known.lines().skip_while(|line| *line != title).skip(1);
            let lines = lines.take_while(|line| !line.is_empty());
            let mut pairs = lines.filter_map(|line| line.trim_start().split_once(' '));
            let (_, name) = pairs.find(|(number, _)| number.parse() == Ok(major))?;
            Some(format!("{kind}-{name}"))
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A rule as `+c 1:3 rwm` or `-a *:* rwm`.
    pub fn rules(text: &[&str]) -> Vec<Rule> {
        let documents: Vec<LinuxDeviceCgroup> = text
            .iter()
            .map(|text| {
                let words: Vec<&str> = text[1..].split([' ', ':']).collect();
                let number = |word: &str| word.parse::<i64>().ok();
                let mut rule = LinuxDeviceCgroup::default();
                rule.set_allow(text.starts_with('+'));
                rule.set_typ(words[0].parse().ok());
                rule.set_major(number(words[1]));
                rule.set_minor(number(words[2]));
                rule.set_access(Some(words[3].to_owned()));
                rule
            })
            .collect();
        parse(&documents).expect("rules")
    }

    fn table(text: &[&str]) -> Result<(bool, Vec<String>), String> {
        let table = Table::of(&rules(text))?;
        let line = |(devices, access): (&Devices, &u32)| format!("{devices} {}", letters(*access));
        Ok((table.allow, table.exceptions.iter().map(line).collect()))
    }

    #[test]
    fn tables_mean_what_rules_mean() {
        let denied = |lines: &[&str]| {
            Ok((false, lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>()))
        };
        assert_eq!(table(&[]), denied(&[]));
        assert_eq!(
            table(&["+c 9:9 rwm", "-a *:* rwm", "+c 1:3 rw", "+c 1:3 m", "+b 8:* r"]),
            denied(&["b 8:* r", "c 1:3 rwm"])
        );
        assert_eq!(
            table(&["+c 1:3 rwm", "+c 1:5 rwm", "-c 1:* w", "-c 1:5 rm"]),
            denied(&["c 1:3 rm"])
        );
        assert_eq!(
            table(&["-a *:* rwm", "+a *:* rwm", "-b 8:0 w", "+b 8:0 w"]),
            Ok((true, Vec::new()))
        );
        assert_eq!(table(&["+a *:* rwm", "-b 8:0 w"]), Ok((true, vec!["b 8:0 w".to_owned()])));
        assert!(table(&["+c 1:* rwm", "-c 1:3 w"]).is_err());
        assert!(table(&["+c 1:* r", "-c 1:3 w"]).is_ok());
    }

    #[test]
    fn what_the_kernel_lists_is_understood() {
        assert_eq!(listed("a *:* rwm"), None);
        for line in ["c 1:3 rwm", "b *:* m", "c 136:* rw"] {
            let (devices, access) = listed(line).expect("a line");
            assert_eq!(format!("{devices} {}", letters(access)), line);
        }
    }

    #[test]
    fn systemd_has_names_for_them() {
        let known = "Character devices:\n  1 mem\n136 pts\n\nBlock devices:\n  1 ram\n";
        let names: Vec<Option<String>> =
            rules(&["+c *:* m", "+c 1:3 r", "+c 136:* r", "+b 1:* r", "+b 8:* r", "+c *:3 r"])
                .iter()
                .map(|rule| systemd(&rule.devices, known))
                .collect();
        let expected = [Some("char-*"), Some("/dev/char/1:3"), Some("char-pts"), Some("block-ram")];
        let expected: Vec<Option<String>> =
            expected.into_iter().chain([None, None]).map(|name| name.map(str::to_owned)).collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn bad_rules_are_named() {
        let mut rule = LinuxDeviceCgroup::default();
        rule.set_access(Some("rx".to_owned()));
        assert!(parse(&[rule.clone()]).is_err_and(|e| e.contains("rule 0")));
        rule.set_access(None);
        assert!(parse(&[rule.clone()]).is_err());
        rule.set_access(Some("r".to_owned())).set_major(Some(-2));
        assert!(parse(&[rule]).is_err());
    }
}
