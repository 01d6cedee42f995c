//! What each system call number gets, and the binary search for it.

use super::abi::{ARM_PRIVATE, Abi, X32_BIT};
use super::emit::{Emitter, IF_AT_LEAST, Place};
use super::rule::{Condition, ENOSYS, OTHER_ARCHITECTURE, Rule, severity};

/// A rule as it applies to one number.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) number: u32,
    pub(super) action: u32,
    /// Whether all 64 bits of arguments are compared.
    wide: bool,
    /// Which operation of a multiplexer is meant.
    operation: Option<Condition>,
    /// What else must hold.
    conditions: &'a [Condition],
}

impl Entry<'_> {
    fn always_holds(&self) -> bool {
        self.operation.is_none() && self.conditions.iter().all(|c| c.always_holds(self.wide))
    }
}

/// What a profile says of one ABI.
pub(super) struct Numbers<'a> {
    pub(super) abi: Abi,
    pub(super) entries: Vec<Entry<'a>>,
    /// The largest number that the profile names.
    pub(super) last: Option<u32>,
}

impl<'a> Numbers<'a> {
    pub(super) fn new(abi: Abi) -> Self {
        Numbers { abi, entries: Vec::with_capacity(512), last: None }
    }

    /// Notes that the profile names this number.
    pub(super) fn name(&mut self, number: u32) {
        if self.abi != Abi::Arm || number < ARM_PRIVATE {
            self.last = self.last.max(Some(number));
        }
    }

    /// Adds a rule for a number.
    pub(super) fn add(&mut self, number: u32, rule: &'a Rule) {
        for conditions in &rule.alternatives {
            self.push(number, rule.action, None, conditions);
        }
    }

    /// Adds an action for an operation of the multiplexer with this number.
    pub(super) fn add_operation(&mut self, number: u32, action: u32, operation: Condition) {
        self.push(number, action, Some(operation), &[]);
    }

    fn push(
        &mut self,
        number: u32,
        action: u32,
        operation: Option<Condition>,
        conditions: &'a [Condition],
    ) {
        let wide = self.abi.is_wide();
        self.entries.push(Entry { number, action, wide, operation, conditions });
    }
}

/// What a number gets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Action(u32),
    /// The first of the entries from one index to before another that holds; else an action.
    Entries(usize, usize, u32),
}

/// From which number on which answer is given.
struct Steps(Vec<(u32, Answer)>);

impl Steps {
    /// From `start` on, `answer`. Starts never go down; the last word on a number counts.
    fn set(&mut self, start: u32, answer: Answer) {
        if self.0.last().is_some_and(|(last, _)| *last == start) {
            self.0.pop();
        }
        if self.0.last().is_none_or(|(_, last)| *last != answer) {
            self.0.push((start, answer));
        }
    }
}

/// Writes the search among the numbers of `abis`, which share an `AUDIT_ARCH`.
///
/// Runs of numbers with one answer are found as one. `newer`: numbers behind the last that is named
/// get [`ENOSYS`], and not the default.
pub(super) fn write(
    out: &mut Emitter,
    abis: &mut [Numbers<'_>],
    default: u32,
    newer: bool,
) -> Place {
    let mut chosen = Vec::new();
    let mut steps = Steps(Vec::with_capacity(256));
    for numbers in &mut *abis {
        numbers.choose();
        let first = chosen.len();
        chosen.append(&mut numbers.entries);
        let behind = numbers.last.filter(|_| newer);
        let otherwise = |number| {
            let unknown = behind.is_some_and(|last| number > last);
            if unknown { ENOSYS } else { default }
        };
        let base = if numbers.abi == Abi::X32 { X32_BIT } else { 0 };
        steps.set(base, Answer::Action(otherwise(base)));
        let mut at = first;
        let mut open = behind;
        for group in chosen[first..].chunk_by(|a, b| a.number == b.number) {
            let number = group[0].number;
            // The last name may stand for nothing but where the newer ones begin.
            if let Some(last) = open.take_if(|last| *last < number) {
                steps.set(last + 1, Answer::Action(otherwise(last + 1)));
            }
            let always = group[0].always_holds();
            let entries = Answer::Entries(at, at + group.len(), otherwise(number));
            steps.set(number, if always { Answer::Action(group[0].action) } else { entries });
            steps.set(number + 1, Answer::Action(otherwise(number + 1)));
            at += group.len();
        }
        if let Some(last) = open {
            steps.set(last + 1, Answer::Action(otherwise(last + 1)));
        }
    }
    if abis[0].abi == Abi::X86_64 {
        if abis.len() == 1 {
            steps.set(X32_BIT, Answer::Action(OTHER_ARCHITECTURE));
        }
        // What a tracer makes of a call that is to be left out; no call of x32.
        steps.set(u32::MAX, Answer::Action(default));
    }
    Search { entries: &chosen }.write(out, &steps.0)
}

impl Numbers<'_> {
    /// Sorts by number and leaves, for each, what counts, in the order in which it is to be tried.
    fn choose(&mut self) {
        // Stable: rules for one number stay in the order of the profile.
        self.entries.sort_by_key(|entry| entry.number);
        let mut kept = Vec::with_capacity(self.entries.len());
        for group in self.entries.chunk_by_mut(|a, b| a.number == b.number) {
            match group.iter().find(|entry| entry.always_holds()) {
                Some(always) => kept.push(*always),
                None => {
                    group.sort_by_key(|entry| severity(entry.action));
                    kept.extend_from_slice(group);
                }
            }
        }
        self.entries = kept;
    }
}

struct Search<'a> {
    entries: &'a [Entry<'a>],
}

impl Search<'_> {
    fn write(&self, out: &mut Emitter, steps: &[(u32, Answer)]) -> Place {
        if let [(_, answer)] = steps {
            return self.answer(out, *answer);
        }
        let (low, high) = steps.split_at(steps.len() / 2);
        let split = high[0].0;
        let high = self.write(out, high);
        let low = self.write(out, low);
        out.branch(IF_AT_LEAST, split, high, low)
    }

    fn answer(&self, out: &mut Emitter, answer: Answer) -> Place {
        let (first, end, otherwise) = match answer {
            Answer::Action(action) => return out.answer(action),
            Answer::Entries(first, end, otherwise) => (first, end, otherwise),
        };
        let mut otherwise = out.answer(otherwise);
        for entry in self.entries[first..end].iter().rev() {
            let mut then = out.answer(entry.action);
            for condition in entry.conditions.iter().rev() {
                then = out.condition(condition, entry.wide, then, otherwise);
            }
            if let Some(operation) = &entry.operation {
                then = out.condition(operation, entry.wide, then, otherwise);
            }
            otherwise = then;
        }
        otherwise
    }
}
