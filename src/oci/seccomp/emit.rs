//! Classic BPF, written from its end.
//!
//! All jumps of classic BPF go forward. Written backwards, an instruction knows where its targets
//! are, so that there is nothing to patch; and what answers the same can be shared by all that come
//! before it.

use super::rule::{Comparison, Condition};

/// One classic BPF instruction, laid out as `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    /// What it does.
    pub code: u16,
    /// How many instructions a jump skips when its comparison holds.
    pub jt: u8,
    /// And when it does not.
    pub jf: u8,
    /// The operand.
    pub k: u32,
}

const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
pub(super) const IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const IF_GREATER: u16 = 0x25; // BPF_JMP | BPF_JGT | BPF_K
pub(super) const IF_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K

/// Offsets into `struct seccomp_data`; both machines are little-endian.
pub(super) const NUMBER: u32 = 0;
pub(super) const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

/// How far a conditional jump reaches.
const REACH: usize = 255;
/// A `RETURN` that is farther away is written again, before the jumps to it get long.
const NEAR: usize = 200;

/// A place in the program, counted from its end.
pub(super) type Place = usize;

/// A program that grows towards its start.
#[derive(Default)]
pub(super) struct Emitter {
    reversed: Vec<Instruction>,
    /// The last places that return each action.
    returns: Vec<(u32, Place)>,
}

impl Emitter {
    /// Starts a program; `capacity` is a guess at its length.
    pub(super) fn with_capacity(capacity: usize) -> Emitter {
        Emitter { reversed: Vec::with_capacity(capacity), returns: Vec::new() }
    }

    /// The program, in the order in which it runs.
    pub(super) fn finish(mut self) -> Vec<Instruction> {
        self.reversed.reverse();
        self.reversed
    }

    fn push(&mut self, code: u16, jt: u8, jf: u8, k: u32) -> Place {
        self.reversed.push(Instruction { code, jt, jf, k });
        self.reversed.len() - 1
    }

    /// Loads a word of `seccomp_data`; goes on to what was written last.
    pub(super) fn load(&mut self, offset: u32) -> Place {
        self.push(LOAD, 0, 0, offset)
    }

    /// A place that returns `action`.
    pub(super) fn answer(&mut self, action: u32) -> Place {
        let known = self.returns.iter().position(|(value, _)| *value == action);
        if let Some(at) = known
            && self.reversed.len() - self.returns[at].1 <= NEAR
        {
            return self.returns[at].1;
        }
        let place = self.push(RETURN, 0, 0, action);
        match known {
            Some(at) => self.returns[at].1 = place,
            None => self.returns.push((action, place)),
        }
        place
    }

    /// Instructions to skip from the one that is written next.
    fn distance(&self, to: Place) -> usize {
        self.reversed.len() - to - 1
    }

    /// Makes `place` what is written last, for what goes on there without a jump.
    pub(super) fn reach(&mut self, place: Place) {
        if self.distance(place) > 0 {
            let distance = self.distance(place) as u32;
            self.push(JUMP, 0, 0, distance);
        }
    }

    /// Compares what is loaded with `k` and goes to one of two places.
    pub(super) fn branch(&mut self, test: u16, k: u32, mut then: Place, mut or: Place) -> Place {
        // A long jump for one of them moves the other by one.
        loop {
            let far = if self.distance(then) > REACH {
                &mut then
            } else if self.distance(or) > REACH {
                &mut or
            } else {
                break;
            };
            let distance = (self.reversed.len() - *far - 1) as u32;
            self.reversed.push(Instruction { code: JUMP, jt: 0, jf: 0, k: distance });
            *far = self.reversed.len() - 1;
        }
        let (jt, jf) = (self.distance(then) as u8, self.distance(or) as u8);
        self.push(test, jt, jf, k)
    }

    /// Goes to `then` if the condition holds, to `or` if it does not. With `wide`, on all 64 bits.
    pub(super) fn condition(
        &mut self,
        condition: &Condition,
        wide: bool,
        then: Place,
        or: Place,
    ) -> Place {
        match condition.comparison {
            Comparison::Equal => self.equal(condition, wide, then, or),
            Comparison::NotEqual => self.equal(condition, wide, or, then),
            Comparison::Greater => self.ordered(condition, IF_GREATER, wide, then, or),
            Comparison::GreaterOrEqual => self.ordered(condition, IF_AT_LEAST, wide, then, or),
            Comparison::LessOrEqual => self.ordered(condition, IF_GREATER, wide, or, then),
            Comparison::Less => self.ordered(condition, IF_AT_LEAST, wide, or, then),
        }
    }

    fn equal(&mut self, condition: &Condition, wide: bool, then: Place, or: Place) -> Place {
        let Condition { argument, mask, value, .. } = *condition;
        let low = self.equal_half(offset(argument), mask as u32, value as u32, then, or);
        if wide {
            self.equal_half(offset(argument) + 4, high(mask), high(value), low, or)
        } else {
            low
        }
    }

    fn equal_half(&mut self, at: u32, mask: u32, value: u32, then: Place, or: Place) -> Place {
        if mask == 0 {
            return then;
        }
        self.branch(IF_EQUAL, value, then, or);
        if mask != u32::MAX {
            self.push(AND, 0, 0, mask);
        }
        self.load(at)
    }

    fn ordered(
        &mut self,
        condition: &Condition,
        test: u16,
        wide: bool,
        then: Place,
        or: Place,
    ) -> Place {
        let Condition { argument, value, .. } = *condition;
        self.branch(test, value as u32, then, or);
        let low = self.load(offset(argument));
        if !wide {
            return low;
        }
        let same = self.branch(IF_EQUAL, high(value), low, or);
        self.branch(IF_GREATER, high(value), then, same);
        self.load(offset(argument) + 4)
    }
}

fn offset(argument: u32) -> u32 {
    ARGUMENTS + 8 * argument
}

fn high(value: u64) -> u32 {
    (value >> 32) as u32
}
