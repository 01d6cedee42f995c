//! Options of a mount, as runtime-spec 1.3 (config.md, "Linux mount options") and runc know them.

use rustix::mount::{MountAttrFlags as Attr, MountPropagationFlags as Propagation};

/// The options that are known by name, as `features` lists them: those of mount(8) and of runtimes.
pub const NAMES: &[&str] = &[
    "acl",
    "async",
    "atime",
    "bind",
    "copy-symlink",
    "defaults",
    "dest-nofollow",
    "dev",
    "diratime",
    "dirsync",
    "exec",
    "idmap",
    "iversion",
    "lazytime",
    "loud",
    "mand",
    "noacl",
    "noatime",
    "nodev",
    "nodiratime",
    "noexec",
    "noiversion",
    "nolazytime",
    "nomand",
    "norelatime",
    "nostrictatime",
    "nosuid",
    "nosymfollow",
    "private",
    "ratime",
    "rbind",
    "rdev",
    "rdiratime",
    "relatime",
    "remount",
    "rexec",
    "ridmap",
    "rnoatime",
    "rnodev",
    "rnodiratime",
    "rnoexec",
    "rnorelatime",
    "rnostrictatime",
    "rnosuid",
    "rnosymfollow",
    "ro",
    "rprivate",
    "rrelatime",
    "rro",
    "rrw",
    "rshared",
    "rslave",
    "rstrictatime",
    "rsuid",
    "rsymfollow",
    "runbindable",
    "rw",
    "shared",
    "silent",
    "slave",
    "src-nofollow",
    "strictatime",
    "suid",
    "symfollow",
    "sync",
    "tmpcopyup",
    "unbindable",
];

/// What a mount's options ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `bind` or `rbind`.
    pub bind: bool,
    /// `rbind`: with the mounts below the source.
    pub recursive: bool,
    /// `remount`: changes what is mounted there.
    pub remount: bool,
    /// Of the mount itself.
    pub top: Attributes,
    /// Of the mount and all below: the options that begin with `r`.
    pub all: Attributes,
    /// Propagation, in order, and whether also of all below.
    pub propagation: Vec<(Propagation, bool)>,
    /// `tmpcopyup`: a tmpfs begins with what is in the directory that it covers.
    pub copy_up: bool,
    /// `idmap` or `ridmap`: ids go through mappings; the latter says also in all mounts below.
    pub ids: Option<bool>,
    /// What stands behind `idmap=`: crun's way to give the mount mappings of its own, which podman passes on.
    pub maps: Option<String>,
    /// Which links at the last name of source and target are taken as they are.
    pub links: Links,
    /// Options of any superblock: `sync`, `lazytime`. They mean nothing to a bind mount.
    pub superblock: Vec<String>,
    /// Everything else, for the file system: a key and what stands behind its `=`.
    pub data: Vec<(String, Option<String>)>,
}

/// crun's options about links, crun.1 "Mount options".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// `copy-symlink`: a source that is a link is made at the target, and nothing is mounted.
    pub copy: bool,
    /// `src-nofollow`: a source that is a link is itself mounted.
    pub source: bool,
    /// `dest-nofollow`: a target that is a link is itself mounted on.
    pub target: bool,
}

/// Attributes to set and to clear. What is in neither stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// To set.
    pub set: Attr,
    /// To clear; holds the whole field of access times where that is set.
    pub clear: Attr,
}

impl Default for Attributes {
    fn default() -> Self {
        Attributes { set: Attr::empty(), clear: Attr::empty() }
    }
}

/// What an option does to attributes.
#[derive(Clone, Copy)]
enum Effect {
    Set(Attr),
    Clear(Attr),
    /// How access times are kept, which is one choice of three.
    Times(Attr),
    /// Not this way of keeping them: falls back to the kernel's own, relatime.
    NotTimes(Attr),
}

impl Attributes {
    /// Whether it makes a mount read-only.
    #[must_use]
    pub fn read_only(self) -> bool {
        self.set.contains(Attr::MOUNT_ATTR_RDONLY)
    }

    fn apply(&mut self, effect: Effect) {
        const TIMES: Attr = Attr::MOUNT_ATTR__ATIME;
        match effect {
            Effect::Set(flag) => {
                self.set |= flag;
                self.clear -= flag;
            }
            Effect::Clear(flag) => {
                self.set -= flag;
                self.clear |= flag;
            }
            Effect::Times(times) => {
                self.set = (self.set - TIMES) | times;
                self.clear |= TIMES;
            }
            Effect::NotTimes(times) => {
                let chosen = self.set & TIMES;
                if chosen == times || !self.clear.contains(TIMES) {
                    self.set -= TIMES;
                    self.clear |= TIMES;
                }
            }
        }
    }
}

/// The option's effect on attributes, if it is one of these; without the `r` of the recursive form.
fn effect(option: &str) -> Option<Effect> {
    Some(match option {
        "ro" => Effect::Set(Attr::MOUNT_ATTR_RDONLY),
        "rw" => Effect::Clear(Attr::MOUNT_ATTR_RDONLY),
        "nosuid" => Effect::Set(Attr::MOUNT_ATTR_NOSUID),
        "suid" => Effect::Clear(Attr::MOUNT_ATTR_NOSUID),
        "nodev" => Effect::Set(Attr::MOUNT_ATTR_NODEV),
        "dev" => Effect::Clear(Attr::MOUNT_ATTR_NODEV),
        "noexec" => Effect::Set(Attr::MOUNT_ATTR_NOEXEC),
        "exec" => Effect::Clear(Attr::MOUNT_ATTR_NOEXEC),
        "nodiratime" => Effect::Set(Attr::MOUNT_ATTR_NODIRATIME),
        "diratime" => Effect::Clear(Attr::MOUNT_ATTR_NODIRATIME),
        "nosymfollow" => Effect::Set(Attr::MOUNT_ATTR_NOSYMFOLLOW),
        "symfollow" => Effect::Clear(Attr::MOUNT_ATTR_NOSYMFOLLOW),
        "noatime" => Effect::Times(Attr::MOUNT_ATTR_NOATIME),
        "strictatime" => Effect::Times(Attr::MOUNT_ATTR_STRICTATIME),
        "relatime" => Effect::Times(Attr::MOUNT_ATTR_RELATIME),
        "atime" => Effect::NotTimes(Attr::MOUNT_ATTR_NOATIME),
        "nostrictatime" => Effect::NotTimes(Attr::MOUNT_ATTR_STRICTATIME),
        _ => return None,
    })
}

/// The kind of propagation, without the `r` of the recursive form.
#[must_use]
pub fn propagation(option: &str) -> Option<Propagation> {
    Some(match option {
        "private" => Propagation::PRIVATE,
        "slave" => Propagation::DOWNSTREAM,
        "shared" => Propagation::SHARED,
        "unbindable" => Propagation::UNBINDABLE,
        _ => return None,
    })
}

impl Options {
    /// Reads options in order; later ones win.
    #[must_use]
    pub fn parse(options: &[String]) -> Options {
        let mut parsed = Options {
            bind: false,
            recursive: false,
            remount: false,
            top: Attributes::default(),
            all: Attributes::default(),
            propagation: Vec::new(),
            copy_up: false,
            ids: None,
            maps: None,
            links: Links::default(),
            superblock: Vec::new(),
            data: Vec::new(),
        };
        for option in options {
            parsed.option(option);
        }
        parsed
    }

    fn option(&mut self, option: &str) {
        if let Some(effect) = effect(option) {
            return self.top.apply(effect);
        }
        if let Some(kind) = propagation(option) {
            return self.propagation.push((kind, false));
        }
        if let Some(plain) = option.strip_prefix('r') {
            if let Some(effect) = effect(plain) {
                return self.all.apply(effect);
            }
            if let Some(kind) = propagation(plain) {
                return self.propagation.push((kind, true));
            }
        }
        match option {
            // An option that is no relatime means the kernel's own way, which is relatime. What
            // `silent` keeps quiet is the kernel's log.
            "" | "defaults" | "norelatime" | "rnorelatime" | "silent" | "loud" => {}
            "bind" => self.bind = true,
            "rbind" => (self.bind, self.recursive) = (true, true),
            "remount" => self.remount = true,
            "tmpcopyup" => self.copy_up = true,
            "idmap" => self.ids = Some(self.ids.unwrap_or_default()),
            "ridmap" => self.ids = Some(true),
            "copy-symlink" => self.links.copy = true,
            "src-nofollow" => self.links.source = true,
            "dest-nofollow" => self.links.target = true,
            "sync" | "async" | "dirsync" | "lazytime" | "nolazytime" | "mand" | "nomand"
            | "acl" | "noacl" | "iversion" | "noiversion" => {
                self.superblock.push(option.to_owned())
            }
            _ => self.data.push(match option.split_once('=') {
                Some((key @ ("idmap" | "ridmap"), value)) => {
                    self.option(key);
                    self.maps = Some(value.to_owned());
                    return;
                }
                Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
                None => (option.to_owned(), None),
            }),
        }
    }

    /// The data as mount(2) takes it; what it takes as flags is not in it.
    #[must_use]
    pub fn text(&self) -> String {
        let options = self.data.iter().map(|(key, value)| match value {
            Some(value) => format!("{key}={value}"),
            None => key.clone(),
        });
        options.collect::<Vec<_>>().join(",")
    }

    /// What comes of both where there is only one mount: the recursive forms are applied last.
    #[must_use]
    pub fn merged(&self) -> Attributes {
        let (top, all) = (self.top, self.all);
        Attributes {
            set: (top.set - all.clear) | all.set,
            clear: (top.clear - all.set) | all.clear,
        }
    }

    /// Whether the file system is given this key.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.data.iter().any(|(given, _)| given == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &str) -> Options {
        Options::parse(&options.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn flags_have_two_directions_and_the_last_wins() {
        for (on, off, flag) in [
            ("ro", "rw", Attr::MOUNT_ATTR_RDONLY),
            ("nosuid", "suid", Attr::MOUNT_ATTR_NOSUID),
            ("nodev", "dev", Attr::MOUNT_ATTR_NODEV),
            ("noexec", "exec", Attr::MOUNT_ATTR_NOEXEC),
            ("nodiratime", "diratime", Attr::MOUNT_ATTR_NODIRATIME),
            ("nosymfollow", "symfollow", Attr::MOUNT_ATTR_NOSYMFOLLOW),
        ] {
            let none = Attr::empty();
            let (set, clear) =
                (Attributes { set: flag, clear: none }, Attributes { set: none, clear: flag });
            assert_eq!(parse(on).top, set, "{on}");
            assert_eq!(parse(off).top, clear, "{off}");
            assert_eq!(parse(&format!("{on} {off}")).top, clear);
            assert_eq!(parse(&format!("{off} {on}")).top, set);
            assert_eq!(parse(on).all, Attributes::default());
            let recursive = parse(&format!("r{on}"));
            assert_eq!((recursive.all, recursive.top), (set, Attributes::default()), "r{on}");
            assert_eq!(parse(&format!("r{off}")).all, clear, "r{off}");
        }
    }

    #[test]
    fn access_times_are_one_choice() {
        let times = |options: &str| {
            let top = parse(options).top;
            (top.set, top.clear)
        };
        let whole = Attr::MOUNT_ATTR__ATIME;
        let (no, strict) = (Attr::MOUNT_ATTR_NOATIME, Attr::MOUNT_ATTR_STRICTATIME);
        assert_eq!(times("noatime"), (no, whole));
        assert_eq!(times("strictatime"), (strict, whole));
        assert_eq!(times("relatime"), (Attr::empty(), whole));
        assert_eq!(times("noatime relatime"), (Attr::empty(), whole));
        assert_eq!(times("noatime strictatime"), (strict, whole));
        assert_eq!(times("noatime atime"), (Attr::empty(), whole));
        assert_eq!(times("strictatime atime"), (strict, whole));
        assert_eq!(times("noatime nostrictatime"), (no, whole));
        assert_eq!(times("norelatime"), (Attr::empty(), Attr::empty()));
        assert_eq!(parse("rnoatime").all.set, no);
        assert_eq!(parse("rrelatime").all.clear, whole);
    }

    #[test]
    fn binds_and_propagation() {
        assert!(!parse("ro").bind);
        assert_eq!((parse("bind").bind, parse("bind").recursive), (true, false));
        assert_eq!((parse("rbind").bind, parse("rbind").recursive), (true, true));
        // runc adds up what both say.
        assert!(parse("rbind bind").recursive);
        for (name, kind) in [
            ("private", Propagation::PRIVATE),
            ("slave", Propagation::DOWNSTREAM),
            ("shared", Propagation::SHARED),
            ("unbindable", Propagation::UNBINDABLE),
        ] {
            assert_eq!(parse(name).propagation, [(kind, false)]);
            assert_eq!(parse(&format!("r{name}")).propagation, [(kind, true)]);
        }
        let both = parse("slave shared").propagation;
        assert_eq!(both, [(Propagation::DOWNSTREAM, false), (Propagation::SHARED, false)]);
    }

    #[test]
    fn what_is_not_known_is_the_file_systems() {
        let options = parse("mode=755 size=64k ro noswap lowerdir=/a=b:/c");
        assert_eq!(options.text(), "mode=755,size=64k,noswap,lowerdir=/a=b:/c");
        assert!(options.has("mode") && options.has("noswap") && !options.has("ro"));
        assert_eq!(options.data[3], ("lowerdir".to_owned(), Some("/a=b:/c".to_owned())));
        assert_eq!(parse("defaults silent").data, []);
    }

    #[test]
    fn what_is_listed_is_known() {
        for name in NAMES {
            assert_eq!(parse(name).data, [], "{name}");
            assert_eq!(parse(&name.to_uppercase()).data.len(), 1);
        }
        assert!(NAMES.is_sorted());
    }

    #[test]
    fn the_others() {
        assert_eq!(parse("sync lazytime").superblock, ["sync", "lazytime"]);
        assert!(parse("tmpcopyup").copy_up && parse("remount ro").remount);
        assert_eq!(parse("rw").ids, None);
        assert_eq!(parse("idmap").ids, Some(false));
        assert_eq!(parse("ridmap idmap").ids, Some(true));
        let given = parse("idmap=uids=0-1-2;gids=3-4-5");
        assert_eq!((given.ids, given.data.len()), (Some(false), 0));
        assert_eq!(given.maps.as_deref(), Some("uids=0-1-2;gids=3-4-5"));
        // No recursive form of what is about a superblock.
        assert_eq!(parse("rsync").data, [("rsync".to_owned(), None)]);
    }
}
