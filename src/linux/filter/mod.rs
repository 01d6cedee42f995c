//! The seccomp filter of a run, emitted as classic BPF.
//!
//! One program carries every action (kill, errno, notify, allow), which `seccompiler` cannot express:
//! it has one match action per filter, and each filter more costs every filtered system call again.
//! System calls that are not named here are allowed by number alone, so that the kernel answers them
//! from its bitmap without running the program.

mod table;

use super::sys::{nr, seccomp::Instruction};
use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_IMM, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD,
    BPF_LSH, BPF_MISC, BPF_RET, BPF_TAX, BPF_W, BPF_X,
};
pub use table::TYPE;

/// What varies from run to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// There is a broker: path system calls are notified. Without one (inside another sandbox of
    /// ours) they are left to Landlock and to the outer broker.
    pub broker: bool,
    /// Reading opens are notified too, and execve(2).
    pub reads: bool,
    /// The network is fenced.
    pub network: bool,
    /// Internet sockets are made by the broker, in a network namespace.
    pub namespace: bool,
    /// Pathname sockets are fenced.
    pub unix_sockets: bool,
    /// The target may change its user, groups or capabilities, which the broker then must follow.
    pub identity: bool,
    /// What sockets are used for is notified although it is allowed, to be learned from.
    pub learn: bool,
    /// The broker makes the stream sockets: it can take no copy of one later.
    pub makes_sockets: bool,
    /// Signals to other processes are sent by the broker: nothing else keeps them inside.
    pub signals: bool,
    /// Of requests on devices, those are open that control none; the settings of terminals are the broker's.
    pub devices: bool,
}

/// `SECCOMP_RET_*` actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Allow,
    Notify,
    Errno(i32),
    Kill,
}

impl Action {
    fn value(self) -> u32 {
        match self {
            Action::Allow => libc::SECCOMP_RET_ALLOW,
            Action::Notify => libc::SECCOMP_RET_USER_NOTIF,
            Action::Errno(errno) => libc::SECCOMP_RET_ERRNO | errno as u32,
            Action::Kill => libc::SECCOMP_RET_KILL_PROCESS,
        }
    }
}

/// A test on one register argument. The kernel reads `int` arguments from the low half alone, so
/// these tests do too: a comparison of 64 bits could be passed by setting the high half.
#[derive(Clone, Copy, Debug)]
enum Test {
    /// Any of these bits of the low half is set.
    Bits(usize, u32),
    /// None of these bits of the low half is set.
    NoBits(usize, u32),
    /// The low half, masked, has this value.
    Is(usize, u32, u32),
    /// The low half is one of these.
    OneOf(usize, &'static [u32]),
    /// The low halves of two arguments have these values.
    Pair((usize, u32), (usize, u32)),
    /// The low half of one argument has this value, and any of these bits of another one's is set.
    PairBits((usize, u32), (usize, u32)),
    /// The low half, masked, is the number of a bit in this set.
    In(usize, u32, u32),
    /// The opposite of `In`.
    NotIn(usize, u32, u32),
}

impl Test {
    /// Whether it holds of these arguments.
    fn holds(self, args: [u64; 6]) -> bool {
        let low = |arg: usize| args[arg] as u32;
        let is_in = |arg, mask, set: u32| {
            1u32.checked_shl(low(arg) & mask).is_some_and(|bit| set & bit != 0)
        };
        match self {
            Test::Bits(arg, bits) => low(arg) & bits != 0,
            Test::NoBits(arg, bits) => low(arg) & bits == 0,
            Test::Is(arg, mask, value) => low(arg) & mask == value,
            Test::OneOf(arg, values) => values.contains(&low(arg)),
            Test::Pair((one, first), (other, second)) => low(one) == first && low(other) == second,
            Test::PairBits((one, value), (other, bits)) => {
                low(one) == value && low(other) & bits != 0
            }
            Test::In(arg, mask, set) => is_in(arg, mask, set),
            Test::NotIn(arg, mask, set) => !is_in(arg, mask, set),
        }
    }
}

/// Tests in order, the first that holds decides; then the last action.
struct Decision {
    nr: i64,
    cases: Vec<(Test, Action)>,
    otherwise: Action,
}

impl Decision {
    /// What the filter does with these arguments.
    fn action(&self, args: [u64; 6]) -> Action {
        let case = self.cases.iter().find(|(test, _)| test.holds(args));
        case.map_or(self.otherwise, |(_, action)| *action)
    }
}

/// Whether socket(2) with these arguments is allowed, whoever makes the socket.
#[must_use]
pub fn allows_socket(options: Options, args: [u64; 6]) -> bool {
    table::socket(Options { makes_sockets: false, ..options }).action(args) == Action::Allow
}

/// Offsets into `struct seccomp_data`, little-endian halves.
const OFFSET_NR: u32 = 0;
const OFFSET_ARCH: u32 = 4;
const OFFSET_ARGS: u32 = 16;

#[cfg(target_arch = "x86_64")]
const AUDIT_ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const AUDIT_ARCH: u32 = 0xc000_00b7;

/// Numbers from here on are x32's on x86_64, and nothing on other architectures.
const X32_BIT: u32 = 0x4000_0000;

/// Builds the filter.
///
/// The first tests are for the opens, the hot system calls. The others are found by binary search:
/// the kernel runs the program once for every number as it is installed, to learn which are always
/// allowed, and a list would cost it a thousand steps each.
pub fn build(options: Options) -> Vec<Instruction> {
    let mut program = vec![
        statement(BPF_LD | BPF_W | BPF_ABS, OFFSET_ARCH),
        jump(BPF_JEQ, AUDIT_ARCH, 1, 0),
        ret(Action::Kill),
        statement(BPF_LD | BPF_W | BPF_ABS, OFFSET_NR),
    ];
    let mut hot = Vec::new();
    table::opens(options, &mut hot);
    for decision in &hot {
        program.extend(answer(decision));
    }
    program.extend([jump(BPF_JGE, X32_BIT, 0, 1), ret(Action::Kill)]);
    // As an older kernel would answer.
    program.extend([jump(BPF_JGE, nr::LAST as u32 + 1, 0, 1), ret(Action::Errno(libc::ENOSYS))]);
    let mut rest = table::decisions(options);
    rest.sort_by_key(|decision| decision.nr);
    program.extend(search(&rest));
    program
}

/// Numbers that are compared one by one at the end of the search.
const LEAF: usize = 8;

/// Instructions that find the number in the accumulator among `decisions`, which are sorted.
fn search(decisions: &[Decision]) -> Vec<Instruction> {
    if decisions.len() <= LEAF {
        return leaf(decisions);
    }
    let (low, high) = decisions.split_at(decisions.len() / 2);
    let (split, low, high) = (high[0].nr as u32, search(low), search(high));
    let mut out = Vec::with_capacity(low.len() + high.len() + 2);
    match u8::try_from(low.len()) {
        Ok(length) => out.push(jump(BPF_JGE, split, length, 0)),
        // Conditional jumps reach 255 instructions.
        Err(_) => {
            out.push(jump(BPF_JGE, split, 0, 1));
            out.push(statement(BPF_JMP | BPF_JA, low.len() as u32));
        }
    }
    out.extend(low);
    out.extend(high);
    out
}

/// Compares with each number. Those without cases jump to an answer at the end that they share.
fn leaf(decisions: &[Decision]) -> Vec<Instruction> {
    let (simple, tested): (Vec<_>, Vec<_>) = decisions.iter().partition(|d| d.cases.is_empty());
    let mut out = Vec::new();
    for decision in tested {
        out.extend(answer(decision));
    }
    let mut answers: Vec<Action> = Vec::new();
    for (index, decision) in simple.iter().enumerate() {
        let answer = answers.iter().position(|action| *action == decision.otherwise);
        let answer = answer.unwrap_or_else(|| {
            answers.push(decision.otherwise);
            answers.len() - 1
        });
        // Over the comparisons left and the answer "allow".
        let over = simple.len() - index - 1 + 1 + answer;
        out.push(jump(BPF_JEQ, decision.nr as u32, offset(over), 0));
    }
    out.push(ret(Action::Allow));
    out.extend(answers.into_iter().map(ret));
    out
}

fn offset(length: usize) -> u8 {
    u8::try_from(length).expect("a test fits a short jump")
}

/// Decides if the number in the accumulator is that of `decision`, and goes on behind this if not.
fn answer(decision: &Decision) -> Vec<Instruction> {
    let (number, block) = (decision.nr as u32, body(decision));
    let mut out = match u8::try_from(block.len()) {
        Ok(length) => vec![jump(BPF_JEQ, number, 0, length)],
        // Conditional jumps reach 255 instructions.
        Err(_) => {
            vec![jump(BPF_JEQ, number, 1, 0), statement(BPF_JMP | BPF_JA, block.len() as u32)]
        }
    };
    out.extend(block);
    out
}

fn body(decision: &Decision) -> Vec<Instruction> {
    let mut out = Vec::new();
    for &(test, action) in &decision.cases {
        let low = |arg: usize| OFFSET_ARGS + 8 * arg as u32;
        match test {
            Test::Bits(arg, bits) => {
                out.push(statement(BPF_LD | BPF_W | BPF_ABS, low(arg)));
                out.push(jump(BPF_JSET, bits, 0, 1));
            }
            Test::NoBits(arg, bits) => {
                out.push(statement(BPF_LD | BPF_W | BPF_ABS, low(arg)));
                out.push(jump(BPF_JSET, bits, 1, 0));
            }
            Test::Is(arg, mask, value) => {
                out.push(statement(BPF_LD | BPF_W | BPF_ABS, low(arg)));
                if mask != u32::MAX {
                    out.push(statement(BPF_ALU | BPF_AND | BPF_K, mask));
                }
                out.push(jump(BPF_JEQ, value, 0, 1));
            }
            Test::OneOf(arg, values) => {
                out.push(statement(BPF_LD | BPF_W | BPF_ABS, low(arg)));
                let last = values.len() - 1;
                for (index, value) in values.iter().enumerate() {
                    let miss = u8::from(index == last);
                    out.push(jump(BPF_JEQ, *value, offset(last - index), miss));
                }
            }
            Test::Pair((one, first), (other, second))
            | Test::PairBits((one, first), (other, second)) => {
                let how = if matches!(test, Test::Pair(..)) { BPF_JEQ } else { BPF_JSET };
                out.push(statement(BPF_LD | BPF_W | BPF_ABS, low(one)));
                out.push(jump(BPF_JEQ, first, 0, 3));
                out.push(statement(BPF_LD | BPF_W | BPF_ABS, low(other)));
                out.push(jump(how, second, 0, 1));
            }
            Test::In(arg, mask, set) | Test::NotIn(arg, mask, set) => {
                let inside = matches!(test, Test::In(..));
                out.push(statement(BPF_LD | BPF_W | BPF_ABS, low(arg)));
                out.push(statement(BPF_ALU | BPF_AND | BPF_K, mask));
                out.push(jump(BPF_JGE, 32, if inside { 5 } else { 4 }, 0));
                out.push(statement(BPF_MISC | BPF_TAX, 0));
                out.push(statement(BPF_LD | BPF_IMM, 1));
                out.push(statement(BPF_ALU | BPF_LSH | BPF_X, 0));
                out.push(if inside {
                    jump(BPF_JSET, set, 0, 1)
                } else {
                    jump(BPF_JSET, set, 1, 0)
                });
            }
        }
        out.push(ret(action));
    }
    out.push(ret(decision.otherwise));
    out
}

fn statement(code: u32, k: u32) -> Instruction {
    Instruction { code: code as u16, jt: 0, jf: 0, k }
}

fn jump(test: u32, k: u32, jt: u8, jf: u8) -> Instruction {
    Instruction { code: (BPF_JMP | test | BPF_K) as u16, jt, jf, k }
}

fn ret(action: Action) -> Instruction {
    statement(BPF_RET | BPF_K, action.value())
}

#[cfg(test)]
mod tests;
