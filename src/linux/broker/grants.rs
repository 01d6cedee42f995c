//! What answers to queries granted: a small overlay on the policy.
//!
//! It is looked at only after the policy has denied. A grant ranks as an entry of the policy for its
//! path would, but wins at equal depth: whoever answered saw the rule. A denial further down holds, and
//! one that nothing re-opens holds everywhere.
//!
//! The rule that no verdict changes between decision and act holds here as well. A path is *settled*
//! from when it is asked about until its call has ended, or for the run if it is granted: no directory
//! above a settled path moves, so that the object which an answer is about stays where it is.

use crate::policy::{Access, Rule, Use};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most answers that are kept for the run; later ones count once.
const MOST: usize = 4096;

/// What a question is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Access to a path, absolute and canonical.
    Path(Access, Vec<u8>),
    /// The use of an address, or of a Unix socket: as text, and with it which object that is.
    Endpoint(Use, Vec<u8>),
}

/// What was asked of one call, and on what terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pass {
    /// What it is about.
    pub subject: Subject,
    /// See [`super::terms`].
    pub terms: u64,
}

/// The overlay of one run.
#[derive(Default)]
pub struct Grants {
    /// Something was granted.
    any: AtomicBool,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    paths: BTreeMap<Vec<u8>, Entry>,
    /// What was answered for the run about endpoints, for connecting and for binding.
    endpoints: HashMap<Vec<u8>, [Option<bool>; 2]>,
    /// Directories that are being moved, from and to.
    moving: Vec<[Vec<u8>; 2]>,
    kept: usize,
}

#[derive(Default)]
struct Entry {
    /// Calls that are, or were, held for it and have not ended.
    asked: usize,
    /// What was answered for the run, for reading and for writing.
    answers: [Option<bool>; 2],
}

impl Entry {
    fn settles(&self) -> bool {
        self.asked > 0 || self.answers.contains(&Some(true))
    }
}

/// A directory that is being moved. Nothing below either end is asked about until it is dropped.
pub struct Moving<'a>(&'a Grants, [Vec<u8>; 2]);

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        let mut known = self.0.known();
        if let Some(at) = known.moving.iter().position(|ends| *ends == self.1) {
            known.moving.swap_remove(at);
        }
    }
}

impl Grants {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Settles the path of `subject`, if it is one, unless the run already has "no" for an answer, or a
    /// directory on the way is being moved right now.
    pub fn ask(&self, subject: &Subject) -> bool {
        let mut known = self.known();
        let (access, path) = match subject {
            Subject::Path(access, path) => (*access, path),
            Subject::Endpoint(using, endpoint) => {
                let answers = known.endpoints.get(endpoint);
                return answers.is_none_or(|answers| answers[*using as usize] != Some(false));
            }
        };
        let moves = |end: &Vec<u8>| below(end, path);
        if known.moving.iter().flatten().any(moves) {
            return false;
        }
        let entry = known.paths.entry(path.clone()).or_default();
        if entry.answers[access as usize] == Some(false) {
            return false;
        }
        entry.asked += 1;
        true
    }

    /// Ends what [`Grants::ask`] began.
    pub fn release(&self, subject: &Subject) {
        let Subject::Path(_, path) = subject else { return };
        let mut known = self.known();
        if let Some(entry) = known.paths.get_mut(path) {
            entry.asked = entry.asked.saturating_sub(1);
            if entry.asked == 0 && entry.answers == [None; 2] {
                known.paths.remove(path);
            }
        }
    }

    /// Keeps an answer for the run; whether there was room for it.
    pub fn keep(&self, subject: &Subject, allowed: bool) -> bool {
        let mut known = self.known();
        if known.kept >= MOST {
            return false;
        }
        let (answers, at) = match subject {
            Subject::Path(access, path) => {
                (&mut known.paths.entry(path.clone()).or_default().answers, *access as usize)
            }
            Subject::Endpoint(using, endpoint) => {
                (known.endpoints.entry(endpoint.clone()).or_default(), *using as usize)
            }
        };
        if answers[at].replace(allowed).is_none() {
            known.kept += 1;
        }
        if allowed {
            self.any.store(true, Ordering::Release);
        }
        true
    }

    /// Whether a grant opens `path` for `access` although `rule`, or the lack of one, denies it.
    pub fn cover(&self, access: Access, path: &[u8], rule: Option<&Rule>) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let known = self.known();
        let mut end = path.len();
        loop {
            let above = if end == 0 { &b"/"[..] } else { &path[..end] };
            let entry = known.paths.get(above);
            if entry.is_some_and(|entry| entry.answers[access as usize] == Some(true)) {
                // One nearer to the root would rank below this one.
                return rule.is_none_or(|rule| rule.yields_to(above));
            }
            match path[..end].iter().rposition(|&byte| byte == b'/') {
                Some(slash) => end = slash,
                None => return false,
            }
        }
    }

    /// Whether a grant opens `endpoint` for `using`.
    pub fn opens(&self, using: Use, endpoint: &[u8]) -> bool {
        self.any.load(Ordering::Acquire)
            && self
                .known()
                .endpoints
                .get(endpoint)
                .is_some_and(|answers| answers[using as usize] == Some(true))
    }

    /// Begins to move a directory; `None` where something below either name is settled.
    pub fn start_move(&self, from: &[u8], to: &[u8]) -> Option<Moving<'_>> {
        let mut known = self.known();
        for end in [from, to] {
            let first = [end, b"/"].concat();
            let from_there = (Bound::Excluded(first.as_slice()), Bound::Unbounded);
            let mut inside = known
                .paths
                .range::<[u8], _>(from_there)
                .take_while(|(path, _)| path.starts_with(&first));
            if inside.any(|(_, entry)| entry.settles()) {
                return None;
            }
        }
        let ends = [from.to_vec(), to.to_vec()];
        known.moving.push(ends.clone());
        Some(Moving(self, ends))
    }
}

/// Whether `path` lies strictly below `directory`.
fn below(directory: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.first() == Some(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Effect, Origin, Pattern};

    fn pass(access: Access, path: &str) -> Subject {
        Subject::Path(access, path.into())
    }

    #[test]
    fn an_endpoint_is_granted_for_one_use() {
        let grants = Grants::default();
        let of = |using, name: &str| Subject::Endpoint(using, name.into());
        assert!(grants.ask(&of(Use::Connect, "a:1")) && !grants.opens(Use::Connect, b"a:1"));
        assert!(grants.keep(&of(Use::Connect, "a:1"), true));
        assert!(grants.opens(Use::Connect, b"a:1"));
        assert!(!grants.opens(Use::Bind, b"a:1") && !grants.opens(Use::Connect, b"a:11"));
        assert!(grants.keep(&of(Use::Bind, "a:1"), false));
        assert!(!grants.ask(&of(Use::Bind, "a:1")) && grants.ask(&of(Use::Connect, "a:1")));
    }

    fn denial(path: &str, always: bool) -> Rule {
        Rule {
            access: Access::Write,
            effect: Effect::Deny,
            always,
            pattern: Pattern::Subtree(path.to_owned()),
            text: path.to_owned(),
            origin: Origin::built_in("test"),
        }
    }

    #[test]
    fn a_grant_is_about_a_subtree_and_one_access() {
        let grants = Grants::default();
        assert!(!grants.cover(Access::Write, b"/a/b", None));
        assert!(grants.keep(&pass(Access::Write, "/a/b"), true));
        for (access, path, covered) in [
            (Access::Write, "/a/b", true),
            (Access::Write, "/a/b/c/d", true),
            (Access::Write, "/a", false),
            (Access::Write, "/a/bc", false),
            (Access::Read, "/a/b", false),
        ] {
            assert_eq!(grants.cover(access, path.as_bytes(), None), covered, "{access:?} {path}");
        }
    }

    #[test]
    fn a_denial_further_down_holds() {
        let grants = Grants::default();
        grants.keep(&pass(Access::Write, "/a/b"), true);
        for (rule, covered) in [
            (denial("/a", false), true),
            (denial("/a/b", false), true),
            (denial("/a/b/c", false), false),
            (denial("/a", true), false),
        ] {
            assert_eq!(grants.cover(Access::Write, b"/a/b/c", Some(&rule)), covered, "{rule:?}");
        }
    }

    #[test]
    fn a_directory_above_a_settled_path_stays() {
        let grants = Grants::default();
        let asked = pass(Access::Write, "/a/b/c");
        assert!(grants.ask(&asked) && grants.ask(&asked));
        let moves =
            |from: &str, to: &str| grants.start_move(from.as_bytes(), to.as_bytes()).is_some();
        grants.release(&asked);
        assert!(!moves("/a/b", "/x") && !moves("/x", "/a"), "one call still waits");
        assert!(moves("/a/b/c", "/x") && moves("/a/bb", "/x"), "not above it");
        grants.release(&asked);
        assert!(moves("/a/b", "/x"), "nothing waits");
        grants.keep(&pass(Access::Write, "/a/no"), false);
        assert!(moves("/a", "/x"), "a refusal settles nothing");
        grants.keep(&asked, true);
        assert!(!moves("/a", "/x"), "granted for the run");
    }

    #[test]
    fn nothing_below_a_directory_that_moves_is_asked_about() {
        let grants = Grants::default();
        let moving = grants.start_move(b"/a", b"/b").unwrap();
        assert!(
            !grants.ask(&pass(Access::Read, "/a/x")) && !grants.ask(&pass(Access::Read, "/b/x"))
        );
        assert!(grants.ask(&pass(Access::Read, "/a")) && grants.ask(&pass(Access::Read, "/c")));
        drop(moving);
        assert!(grants.ask(&pass(Access::Read, "/a/x")));
    }

    #[test]
    fn no_for_the_run_is_not_asked_again_and_all_is_bounded() {
        let grants = Grants::default();
        assert!(grants.keep(&pass(Access::Read, "/no"), false));
        assert!(!grants.ask(&pass(Access::Read, "/no")));
        assert!(grants.ask(&pass(Access::Write, "/no")), "another access");
        for i in 0..2 * MOST {
            grants.keep(&pass(Access::Read, &format!("/{i}")), true);
        }
        assert_eq!(grants.known().kept, MOST);
    }
}
