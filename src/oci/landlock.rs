//! `process.landlock`: a Landlock domain for the program, in the shape of runtime-spec proposal 1241.
//!
//! Paths are the container's, opened when its mounts are made and before the process becomes its user: a user
//! may be kept out of a directory that a rule is about. The domain is entered last, so that hooks are outside.

use std::os::fd::{AsFd, OwnedFd};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreatedAttr,
};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use serde::Deserialize;
use serde_json::Value;

use super::{Context, Error, Result};

/// The newest ABI whose rights are known here.
pub const NEWEST_ABI: u32 = 9;
/// Where it is in the document of a container, as a JSON pointer.
pub const IN_CONFIG: &str = "/process/landlock";
/// Where it is in the document of a process.
pub const IN_PROCESS: &str = "/landlock";
/// The key in messages.
const KEY: &str = "process.landlock";
/// The rights, by the names that the proposal gives them, and those that are newer by the kernel's.
const RIGHTS: [(&str, AccessFs); 17] = [
    ("execute", AccessFs::Execute),
    ("write_file", AccessFs::WriteFile),
    ("read_file", AccessFs::ReadFile),
    ("read_dir", AccessFs::ReadDir),
    ("remove_dir", AccessFs::RemoveDir),
    ("remove_file", AccessFs::RemoveFile),
    ("make_char", AccessFs::MakeChar),
    ("make_dir", AccessFs::MakeDir),
    ("make_reg", AccessFs::MakeReg),
    ("make_sock", AccessFs::MakeSock),
    ("make_fifo", AccessFs::MakeFifo),
    ("make_block", AccessFs::MakeBlock),
    ("make_sym", AccessFs::MakeSym),
    ("refer", AccessFs::Refer),
    ("truncate", AccessFs::Truncate),
    ("ioctl_dev", AccessFs::IoctlDev),
    ("resolve_unix", AccessFs::ResolveUnix),
];

type Rights = BitFlags<AccessFs>;

/// As it is written. What is not known is refused: to ignore it would be to hold less than was asked for.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    ruleset: Option<Handled>,
    rules: Option<Rules>,
    disable_best_effort: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Handled {
    #[serde(rename = "handledAccessFS")]
    handled: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Rules {
    path_beneath: Vec<Beneath>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Beneath {
    allowed_access: Vec<String>,
    paths: Vec<String>,
}

/// What the program may do to files.
#[derive(Clone, Debug)]
pub struct Landlock {
    handled: Rights,
    rules: Vec<(Rights, Vec<String>)>,
    /// A right that this kernel does not know is left out.
    best_effort: bool,
}

impl Landlock {
    /// Reads it from the text of a document; `pointer` says where it is in there.
    ///
    /// # Errors
    ///
    /// The key with a right that is not known, or not handled; a path that is not absolute.
    pub fn of(text: &[u8], pointer: &str) -> Result<Option<Landlock>> {
        const NAME: &[u8] = b"\"landlock\"";
        if !text.windows(NAME.len()).any(|part| part == NAME) {
            return Ok(None);
        }
        let mut value: Value = serde_json::from_slice(text).context("config")?;
        match value.pointer_mut(pointer).map(Value::take) {
            None | Some(Value::Null) => Ok(None),
            Some(given) if !given.is_object() => Err(Error::new(format!("{KEY}: is no object"))),
            Some(given) => {
                let given = serde_json::from_value(given).context(KEY)?;
                Landlock::read(&given)
            }
        }
    }

    fn read(given: &Document) -> Result<Option<Landlock>> {
        let handled = given.ruleset.as_ref().map_or(&[][..], |ruleset| &ruleset.handled);
        let handled = rights(handled, "ruleset.handledAccessFS")?;
        let mut rules = Vec::new();
        let beneath = given.rules.as_ref().map_or(&[][..], |rules| &rules.path_beneath);
        for (at, rule) in beneath.iter().enumerate() {
            let key = format!("rules.pathBeneath[{at}]");
            let allowed = rights(&rule.allowed_access, &format!("{key}.allowedAccess"))?;
            if let Some((name, _)) = RIGHTS.iter().find(|(_, r)| (allowed & !handled).contains(*r))
            {
                let what =
                    format!("{KEY}.{key}.allowedAccess: {name:?} is not handled by the ruleset");
                return Err(Error::new(what));
            }
            if let Some(path) = rule.paths.iter().find(|path| !path.starts_with('/')) {
                return Err(Error::new(format!("{KEY}.{key}.paths: {path:?} is not absolute")));
            }
            rules.push((allowed, rule.paths.clone()));
        }
        let best_effort = !given.disable_best_effort;
        Ok((!handled.is_empty()).then_some(Landlock { handled, rules, best_effort }))
    }

    /// Makes the ruleset, in the container's root; none where this kernel knows none of the rights and best
    /// effort is enough.
    ///
    /// # Errors
    ///
    /// A path that leads nowhere; a right that this kernel does not know, where it has to.
    pub fn ruleset(&self) -> Result<Option<OwnedFd>> {
        let abi = crate::linux::sys::landlock_abi().unwrap_or(0);
        let known = AccessFs::from_all(ABI::from(i32::try_from(abi).unwrap_or(i32::MAX)));
        let unknown = self.handled & !known;
        if !self.best_effort
            && let Some((name, _)) = RIGHTS.iter().find(|(_, right)| unknown.contains(*right))
        {
            let what = format!("{name:?} is not known to this kernel (Landlock ABI {abi})");
            return Err(Error::new(format!("{KEY}.ruleset.handledAccessFS: {what}")));
        }
        let handled = self.handled & known;
        if handled.is_empty() {
            return Ok(None);
        }
        let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        let mut ruleset = ruleset.handle_access(handled).and_then(Ruleset::create).context(KEY)?;
        for (at, (rights, paths)) in self.rules.iter().enumerate() {
            for path in paths {
                let about = || format!("{KEY}.rules.pathBeneath[{at}].paths: {path:?}");
                let flags = OFlags::PATH | OFlags::CLOEXEC;
                // Magic links lead out of the root, to what this process has open.
                let file = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS)
                    .context(about())?;
                let mode = fstat(&file).context(about())?.st_mode;
                let mut rights = *rights & handled;
                if FileType::from_raw_mode(mode) != FileType::Directory {
                    // The others are about what is in a directory, and the kernel takes them for no file.
                    rights &= AccessFs::from_file(ABI::V10);
                }
                if !rights.is_empty() {
                    ruleset = ruleset.add_rule(PathBeneath::new(file, rights)).context(about())?;
                }
            }
        }
        Ok(ruleset.into())
    }
}

fn rights(names: &[String], key: &str) -> Result<Rights> {
    let right = |name: &String| {
        let found = RIGHTS.iter().find(|(known, _)| known == name);
        let unknown = || Error::new(format!("{KEY}.{key}: {name:?} is not known"));
        found.map(|(_, right)| BitFlags::from(*right)).ok_or_else(unknown)
    };
    names.iter().map(right).try_fold(Rights::empty(), |all, right| Ok(all | right?))
}

/// Enters the domain of a ruleset, landlock_restrict_self(2).
///
/// # Errors
///
/// Where neither no_new_privs is set nor this process has CAP_SYS_ADMIN.
pub fn enter(ruleset: &OwnedFd) -> Result<()> {
    crate::linux::sys::enter_domain(ruleset.as_fd()).map_err(|errno| match errno {
        rustix::io::Errno::PERM => Error::new(format!("{KEY}: needs process.noNewPrivileges")),
        errno => Error::new(format!("{KEY}: {errno}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(landlock: &Value) -> std::result::Result<bool, String> {
        let text = json!({"process": {"landlock": landlock}}).to_string();
        let read = Landlock::of(text.as_bytes(), "/process/landlock");
        read.map(|read| read.is_some()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_wrong_is_named() {
        let handled = json!({"handledAccessFS": ["read_file", "write_file"]});
        let rule = |access: &str, path: &str| {
            json!({"ruleset": handled, "rules": {"pathBeneath": [
                {"allowedAccess": [access], "paths": ["/", path]}]}})
        };
        assert_eq!(read(&Value::Null), Ok(false));
        assert_eq!(read(&json!({})), Ok(false));
        assert_eq!(read(&rule("read_file", "/bin")), Ok(true));
        for (landlock, says) in [
            (
                rule("execute", "/"),
                "rules.pathBeneath[0].allowedAccess: \"execute\" is not handled",
            ),
            (rule("reading", "/"), "rules.pathBeneath[0].allowedAccess: \"reading\" is not known"),
            (rule("read_file", "bin"), "rules.pathBeneath[0].paths: \"bin\" is not absolute"),
            (json!({"ruleset": {"handledAccessFS": ["x"]}}), "ruleset.handledAccessFS: \"x\""),
            (json!({"ruleset": {"handledAccessNet": []}}), "unknown field `handledAccessNet`"),
            (json!({"rules": {"netPort": []}}), "unknown field `netPort`"),
            (json!([]), "is no object"),
        ] {
            let error = read(&landlock).unwrap_err();
            assert!(error.starts_with("process.landlock"), "{error}");
            assert!(error.contains(says), "{says}: {error}");
        }
    }
}
