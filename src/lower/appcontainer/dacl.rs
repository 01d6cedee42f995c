//! Access control lists as bytes, and what a run does to one.
//!
//! The layout is that of MS-DTYP, 2.4.4 (ACE) and 2.4.5 (ACL). Nothing is taken apart that is not needed: an
//! entry keeps its bytes, so what is not ours comes back as it was.
//!
//! A denial is held by *absence*: an object that must not be opened inherits nothing, and has no entry for the
//! run. Entries that deny are not used, since whether one for a package counts is written nowhere.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// `ACCESS_ALLOWED_ACE_TYPE`.
pub const ALLOWED: u8 = 0;
/// `ACCESS_DENIED_ACE_TYPE`.
pub const DENIED: u8 = 1;
/// `OBJECT_INHERIT_ACE`: files below inherit the entry.
pub const OBJECT_INHERIT: u8 = 0x01;
/// `CONTAINER_INHERIT_ACE`: directories below inherit the entry.
pub const CONTAINER_INHERIT: u8 = 0x02;
/// `INHERIT_ONLY_ACE`: it does not count for the object itself.
pub const INHERIT_ONLY: u8 = 0x08;
/// `INHERITED_ACE`: it comes from the directory above.
pub const INHERITED: u8 = 0x10;

const ACL_HEADER: usize = 8;
const ACE_HEADER: usize = 4;
/// `ACL_REVISION`.
const REVISION: u8 = 2;

/// S-1-15-2-1 and S-1-15-2-2: every AppContainer, and every one that opts out of that.
const ALL_PACKAGES: [[u8; 16]; 2] = [
    [1, 2, 0, 0, 0, 0, 0, 15, 2, 0, 0, 0, 1, 0, 0, 0],
    [1, 2, 0, 0, 0, 0, 0, 15, 2, 0, 0, 0, 2, 0, 0, 0],
];

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ace {
    /// Its type.
    pub kind: u8,
    /// How it is inherited.
    pub flags: u8,
    /// What follows the header: of the types that are read here a mask of 32 bits and a SID.
    pub body: Vec<u8>,
}

impl Ace {
    /// An entry that grants `mask` to `sid`.
    #[must_use]
    pub fn allow(mask: u32, flags: u8, sid: &[u8]) -> Ace {
        Ace { kind: ALLOWED, flags, body: [&mask.to_le_bytes()[..], sid].concat() }
    }

    /// Whom it is about, where it is of a type that is read here.
    #[must_use]
    pub fn sid(&self) -> Option<&[u8]> {
        matches!(self.kind, ALLOWED | DENIED).then(|| self.body.get(4..)).flatten()
    }

    /// The rights in it, where it is of a type that is read here.
    #[must_use]
    pub fn mask(&self) -> Option<u32> {
        self.sid()?;
        Some(u32::from_le_bytes(self.body.first_chunk().copied()?))
    }

    /// The same, as if it were stated at the object itself.
    fn stated(&self) -> Ace {
        Ace { flags: self.flags & !INHERITED, ..self.clone() }
    }

    fn is_inherited(&self) -> bool {
        self.flags & INHERITED != 0
    }

    fn is_for_packages(&self) -> bool {
        self.sid().is_some_and(|sid| ALL_PACKAGES.iter().any(|all| all == sid))
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        let size = u16::try_from(ACE_HEADER + self.body.len()).ok()?;
        let [low, high] = size.to_le_bytes();
        Some([&[self.kind, self.flags, low, high][..], &self.body].concat())
    }

    fn parse(bytes: &[u8]) -> Option<(Ace, &[u8])> {
        let &[kind, flags, low, high] = bytes.first_chunk()?;
        let size = usize::from(u16::from_le_bytes([low, high]));
        let body = bytes.get(ACE_HEADER..size)?;
        Some((Ace { kind, flags, body: body.to_vec() }, &bytes[size..]))
    }
}

/// A discretionary access control list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dacl {
    /// It inherits nothing (`SE_DACL_PROTECTED`).
    pub protected: bool,
    /// The revision, which says what types of entries there are.
    pub revision: u8,
    /// The entries, in their order.
    pub aces: Vec<Ace>,
}

/// What has to be known to take back what was done to a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The object inherited, and does not any more.
    pub blocked: bool,
    /// What it inherited.
    pub inherited: Vec<Ace>,
}

impl Dacl {
    /// The list that `bytes` are; `None` where they are none. What follows it is left out.
    #[must_use]
    pub fn parse(bytes: &[u8], protected: bool) -> Option<Dacl> {
        let &[revision, _, low, high, count_low, count_high, _, _] = bytes.first_chunk()?;
        let size = usize::from(u16::from_le_bytes([low, high]));
        let mut rest = bytes.get(ACL_HEADER..size)?;
        let mut aces = Vec::new();
        for _ in 0..u16::from_le_bytes([count_low, count_high]) {
            let (ace, behind) = Ace::parse(rest)?;
            aces.push(ace);
            rest = behind;
        }
        Some(Dacl { protected, revision, aces })
    }

    /// The list as bytes; `None` where it is too long for one.
    #[must_use]
    pub fn bytes(&self) -> Option<Vec<u8>> {
        let aces: Option<Vec<Vec<u8>>> = self.aces.iter().map(Ace::bytes).collect();
        let aces = aces?.concat();
        let size = u16::try_from(ACL_HEADER + aces.len()).ok()?.to_le_bytes();
        let count = u16::try_from(self.aces.len()).ok()?.to_le_bytes();
        let revision = self.revision.max(REVISION);
        let header = [revision, 0, size[0], size[1], count[0], count[1], 0, 0];
        Some([&header[..], &aces].concat())
    }

    /// The entries that are inherited below.
    pub fn handed_on(&self) -> impl Iterator<Item = &Ace> {
        self.aces.iter().filter(|ace| ace.flags & (OBJECT_INHERIT | CONTAINER_INHERIT) != 0)
    }

    /// What taking back will need to know, once the object inherits nothing where `block`.
    #[must_use]
    pub fn change(&self, block: bool) -> Change {
        if !block || self.protected {
            return Change::default();
        }
        let inherited = self.aces.iter().filter(|ace| ace.is_inherited()).cloned().collect();
        Change { blocked: true, inherited }
    }

    /// The list with the run's entries, `own`. Where the change blocks, what was inherited is stated
    /// instead, but for what is granted to every AppContainer.
    #[must_use]
    pub fn granted(&self, change: &Change, own: &[Ace]) -> Dacl {
        let mut aces = self.aces.clone();
        if change.blocked {
            aces.retain(|ace| !ace.is_inherited());
            aces.extend(change.kept());
        }
        // Entries that deny come first, and what is inherited last: the order that Windows keeps.
        let denies = |ace: &Ace| ace.kind == DENIED && !ace.is_inherited();
        let at = aces.iter().position(|ace| !denies(ace)).unwrap_or(aces.len());
        aces.splice(at..at, own.iter().cloned());
        Dacl { protected: self.protected || change.blocked, revision: self.revision, aces }
    }

    /// The list without what `change` did to it for `sid`, whatever else has been done since.
    #[must_use]
    pub fn taken_back(&self, change: &Change, sid: &[u8]) -> Dacl {
        let mut aces = self.aces.clone();
        aces.retain(|ace| ace.is_inherited() || ace.sid() != Some(sid));
        if change.blocked {
            for stated in change.kept() {
                if let Some(at) = aces.iter().rposition(|ace| *ace == stated) {
                    aces.remove(at);
                }
            }
            // Windows works them out anew; these tell the order of what it will find.
            aces.extend(change.inherited.iter().cloned());
        }
        Dacl { protected: self.protected && !change.blocked, revision: self.revision, aces }
    }
}

impl Change {
    fn kept(&self) -> impl Iterator<Item = Ace> + '_ {
        self.inherited.iter().filter(|ace| !ace.is_for_packages()).map(Ace::stated)
    }
}

impl Serialize for Ace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes =
            self.bytes().ok_or_else(|| serde::ser::Error::custom("an entry is too long"))?;
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Ace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Ace, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || serde::de::Error::custom("not an entry of an access control list");
        if !text.is_ascii() || text.len() % 2 != 0 {
            return Err(wrong());
        }
        let bytes: Result<Vec<u8>, _> = (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16))
            .collect();
        match Ace::parse(&bytes.map_err(|_| wrong())?) {
            Some((ace, [])) => Ok(ace),
            _ => Err(wrong()),
        }
    }
}
