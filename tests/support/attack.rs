//! Attacks: an operation that works bare, must fail in the sandbox, and must leave no trace.

use super::tree::{Detail, Tree, difference, tree};
use super::{Bed, have::have};
use serde_json::Value;

/// One attack.
#[derive(Clone, Copy)]
pub struct Attack {
    /// Named in a failure.
    pub name: &'static str,
    /// Capabilities that the attack itself needs (see [`have`]).
    pub needs: &'static [&'static str],
    /// Operations before the run, outside the sandbox.
    pub before: &'static [&'static str],
    /// Operations in the run that must succeed.
    pub prepare: &'static [&'static str],
    /// Operations before the control only: a namespace of its own, say.
    pub control: &'static [&'static str],
    /// How the line of the control starts.
    pub works: &'static str,
    /// The operation that must fail.
    pub op: &'static str,
    /// How it must fail; alternatives are separated by `|`.
    pub error: &'static str,
    /// Whether the tree shows that it worked.
    pub shows: bool,
}

impl Attack {
    /// An attack with one operation, to be refused with EACCES.
    pub const fn new(name: &'static str, op: &'static str) -> Attack {
        Attack {
            name,
            needs: &[],
            before: &[],
            prepare: &[],
            control: &[],
            works: "ok",
            op,
            error: "EACCES",
            shows: true,
        }
    }
    /// With capabilities.
    pub const fn needs(mut self, needs: &'static [&'static str]) -> Attack {
        self.needs = needs;
        self
    }
    /// With operations outside, before the run.
    pub const fn before(mut self, before: &'static [&'static str]) -> Attack {
        self.before = before;
        self
    }
    /// With operations in the run, before the attack.
    pub const fn prepare(mut self, prepare: &'static [&'static str]) -> Attack {
        self.prepare = prepare;
        self
    }
    /// With operations that only the control needs.
    pub const fn control(mut self, control: &'static [&'static str]) -> Attack {
        self.control = control;
        self
    }
    /// Whose control fails in a way that shows that it was let through.
    pub const fn works(mut self, line: &'static str) -> Attack {
        self.works = line;
        self
    }
    /// With another error.
    pub const fn error(mut self, error: &'static str) -> Attack {
        self.error = error;
        self
    }
    /// By a call that is closed wherever it points.
    pub const fn closed(mut self) -> Attack {
        self.error = "EPERM|EACCES";
        self
    }
    /// Whether the call is closed everywhere.
    pub fn is_closed(&self) -> bool {
        self.error != "EACCES"
    }
    /// Whose success does not show in the tree.
    pub const fn quiet(mut self) -> Attack {
        self.shows = false;
        self
    }
}

/// What the attacks of one table share.
pub struct Stage<'a> {
    /// The policy of the sandbox.
    pub policy: Value,
    /// Operations before every run.
    pub setup: &'a [&'a str],
    /// Directories and files that must stay exactly as they were.
    pub guarded: &'a [&'a str],
    /// What `{T}` stands for in the operations.
    pub target: &'a str,
    /// More placeholders, with their text.
    pub words: &'a [(&'a str, String)],
}

/// Runs every attack bare (it must work) and in the sandbox (it must fail and change nothing).
///
/// # Panics
///
/// With one line a failure.
pub fn attacks(stage: &Stage, table: &[Attack]) {
    let mut failures = Vec::new();
    for attack in table.iter().filter(|a| have(a.name, a.needs)) {
        if let Err(why) = one(stage, attack) {
            failures.push(format!("{}: {why}", attack.name));
        }
    }
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), table.len(), failures.join("\n"));
}

/// The names that differ, of each guarded tree, but the expected ones.
fn changes(old: &[Tree], new: &[Tree], expected: &[String]) -> Vec<String> {
    let name = |line: &String| line.split(": ").next().unwrap_or_default().to_owned();
    let expected: Vec<String> = expected.iter().map(name).collect();
    let all = old.iter().zip(new).flat_map(|(old, new)| difference(old, new));
    all.filter(|line| !expected.contains(&name(line))).collect()
}

fn one(stage: &Stage, attack: &Attack) -> Result<(), String> {
    let put = |op: &&str| {
        let op = op.replace("{T}", stage.target);
        stage.words.iter().fold(op, |op, (word, text)| op.replace(word, text))
    };
    let all = |lists: &[&[&str]]| -> Vec<String> { lists.concat().iter().map(put).collect() };
    let before = all(&[stage.setup, attack.before]);
    let ops = all(&[attack.prepare, &[attack.op]]);
    let control = all(&[attack.control, attack.prepare, &[attack.op]]);
    let [before, ops, control] =
        [&before, &ops, &control].map(|ops| ops.iter().map(String::as_str).collect::<Vec<_>>());
    let guarded = |bed: &Bed| -> Vec<Tree> {
        let paths = stage.guarded.iter().map(|path| bed.fill(path));
        paths.map(|path| tree(path.as_ref(), Detail::All)).collect()
    };
    // All but the last line, which is the attack's.
    let prepared = |lines: &[String], ops: &[&str]| {
        lines.len() == ops.len() && lines[..ops.len() - 1].iter().all(|l| l.starts_with("ok"))
    };

    // What the preparations change is no trace of the attack.
    let mut expected = Vec::new();
    if !attack.prepare.is_empty() {
        let bed = Bed::new(&before);
        let old = guarded(&bed);
        bed.bare(&ops[..ops.len() - 1]);
        expected = changes(&old, &guarded(&bed), &[]);
    }

    let bed = Bed::new(&before);
    let old = guarded(&bed);
    let bare = bed.bare(&control);
    if !prepared(&bare.lines, &control) || !bare.last().starts_with(attack.works) {
        let (lines, stderr) = (bare.lines, bare.stderr);
        return Err(format!("the control failed: {control:?} gave {lines:?} {stderr}"));
    }
    if attack.shows && changes(&old, &guarded(&bed), &expected).is_empty() {
        return Err("the control changed nothing".into());
    }

    let bed = Bed::new(&before);
    let old = guarded(&bed);
    let run = bed.boxed(&stage.policy, &ops);
    if !prepared(&run.lines, &ops) {
        let (lines, stderr) = (run.lines, run.stderr);
        return Err(format!("did not get as far as the attack: {lines:?} {stderr}"));
    }
    let (got, op) = (run.last(), attack.op);
    if !attack.error.split('|').any(|error| error == got) {
        return Err(format!("{got} instead of {}: {op}", attack.error));
    }
    let changed = changes(&old, &guarded(&bed), &expected);
    if changed.is_empty() {
        return Ok(());
    }
    Err(format!("refused, and changed all the same: {}", changed.join("; ")))
}
