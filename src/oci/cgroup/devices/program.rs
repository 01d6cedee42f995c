//! Device rules as a BPF program for a cgroup of version 2, see `BPF_PROG_TYPE_CGROUP_DEVICE` in the
//! kernel's headers. Pure.
//!
//! The program gets `struct bpf_cgroup_dev_ctx`: the access and the type in one word, major, minor. It keeps
//! what is asked for in a register, goes through the rules from the last to the first, and takes out of
//! it what a rule allows. A rule that denies something which is still there ends it.

use super::rule::{Kind, Rule};

/// One instruction, as `struct bpf_insn` has it.
pub type Instruction = u64;

/// `BPF_DEVCG_DEV_BLOCK` and `BPF_DEVCG_DEV_CHAR`.
const fn number(kind: Kind) -> i32 {
    match kind {
        Kind::Block => 1,
        Kind::Character => 2,
    }
}

// Operations, see bpf(2) and the kernel's "BPF Instruction Set".
const LOAD_WORD: u8 = 0x61;
const MOVE: u8 = 0xb7;
const MOVE_REGISTER: u8 = 0xbf;
const AND: u8 = 0x57;
const SHIFT_RIGHT: u8 = 0x77;
const JUMP: u8 = 0x05;
const JUMP_NOT_EQUAL: u8 = 0x55;
const JUMP_SET: u8 = 0x45;
const EXIT: u8 = 0x95;

// Registers. The first argument is in 1, the answer in 0.
const ANSWER: u8 = 0;
const CONTEXT: u8 = 1;
const ACCESS: u8 = 2;
const TYPE: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;

fn instruction(code: u8, to: u8, from: u8, offset: i16, value: i32) -> Instruction {
    let [low, high] = offset.to_le_bytes();
    let [a, b, c, d] = value.to_le_bytes();
    // Two registers in one byte: which half is the first depends on the machine.
    let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
    if cfg!(target_endian = "little") {
        u64::from_le_bytes([code, registers, low, high, a, b, c, d])
    } else {
        u64::from_be_bytes([code, registers, high, low, d, c, b, a])
    }
}

/// The program for the rules, of which later ones win, and which end in `deny everything`.
pub fn compile(rules: &[Rule]) -> Vec<Instruction> {
    let mut program = vec![
        instruction(LOAD_WORD, ACCESS, CONTEXT, 0, 0),
        instruction(MOVE_REGISTER, TYPE, ACCESS, 0, 0),
        instruction(AND, TYPE, 0, 0, 0xffff),
        instruction(SHIFT_RIGHT, ACCESS, 0, 0, 16),
        instruction(LOAD_WORD, MAJOR, CONTEXT, 4, 0),
        instruction(LOAD_WORD, MINOR, CONTEXT, 8, 0),
    ];
    for rule in rules.iter().rev() {
        program.extend(step(rule));
    }
    program.extend(answer(0));
    program
}

fn answer(value: i32) -> [Instruction; 2] {
    [instruction(MOVE, ANSWER, 0, 0, value), instruction(EXIT, 0, 0, 0, 0)]
}

fn step(rule: &Rule) -> Vec<Instruction> {
    let access = rule.access.cast_signed();
    let act = match rule.allow {
        true => {
            let [yes, exit] = answer(1);
            vec![
                instruction(AND, ACCESS, 0, 0, !access),
                instruction(JUMP_NOT_EQUAL, ACCESS, 0, 2, 0),
                yes,
                exit,
            ]
        }
        false => {
            let [no, exit] = answer(0);
            vec![
                // Over the jump to what is next.
                instruction(JUMP_SET, ACCESS, 0, 1, access),
                instruction(JUMP, 0, 0, 2, 0),
                no,
                exit,
            ]
        }
    };
    let numbers = [
        (TYPE, Some(number(rule.devices.kind))),
        (MAJOR, rule.devices.major.map(u32::cast_signed)),
        (MINOR, rule.devices.minor.map(u32::cast_signed)),
    ];
    let tests: Vec<(u8, i32)> =
        numbers.into_iter().filter_map(|(register, number)| Some((register, number?))).collect();
    let mut step = Vec::new();
    for (at, (register, number)) in tests.iter().enumerate() {
        let over = tests.len() - 1 - at + act.len();
        let over = i16::try_from(over).expect("a step is short");
        step.push(instruction(JUMP_NOT_EQUAL, *register, 0, over, *number));
    }
    step.extend(act);
    step
}

#[cfg(test)]
mod tests {
    use super::super::rule::tests::rules;
    use super::super::rule::{Devices, MKNOD, READ, Table, WRITE, defaults};
    use super::*;

    /// Runs the program as the kernel would; `None` is what its verifier refuses.
    fn run(program: &[Instruction], context: [u32; 3]) -> Option<bool> {
        let mut registers = [None::<u64>; 11];
        let mut at = 0usize;
        for _ in 0..=program.len() {
            let bytes = program.get(at)?.to_ne_bytes();
            let (code, to, from) = (bytes[0], bytes[1] & 15, bytes[1] >> 4);
            let offset = i64::from(i16::from_ne_bytes([bytes[2], bytes[3]]));
            let value = i32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
            let wide = i64::from(value).cast_unsigned();
            let own = registers[usize::from(to)];
            let mut jump = false;
            match code {
                LOAD_WORD if from == CONTEXT => {
                    registers[usize::from(to)] =
                        Some(u64::from(*context.get(usize::try_from(offset).ok()? / 4)?));
                }
                MOVE => registers[usize::from(to)] = Some(wide),
                MOVE_REGISTER => registers[usize::from(to)] = Some(registers[usize::from(from)]?),
                AND => registers[usize::from(to)] = Some(own? & wide),
                SHIFT_RIGHT => registers[usize::from(to)] = Some(own? >> value),
                JUMP => jump = true,
                JUMP_NOT_EQUAL => jump = own? != wide,
                JUMP_SET => jump = own? & wide != 0,
                EXIT => return Some(registers[0]? != 0),
                _ => return None,
            }
            // Only forwards: the kernel had no loops before 5.3.
            at += 1 + if jump { usize::try_from(offset).ok()? } else { 0 };
        }
        None
    }

    /// What the rules mean, said another way: each access by itself, by the last rule about it.
    fn meant(rules: &[Rule], kind: Kind, major: u32, minor: u32, access: u32) -> bool {
        [MKNOD, READ, WRITE].iter().filter(|bit| access & **bit != 0).all(|bit| {
            let about = |rule: &&Rule| {
                rule.access & bit != 0
                    && rule.devices.kind == kind
                    && rule.devices.major.is_none_or(|number| number == major)
                    && rule.devices.minor.is_none_or(|number| number == minor)
            };
            rules.iter().rev().find(about).is_some_and(|rule| rule.allow)
        })
    }

    fn holds(rules: &[Rule]) {
        let program = compile(rules);
        for kind in [Kind::Block, Kind::Character] {
            for (major, minor) in [(1, 3), (1, 5), (1, 6), (8, 0), (8, 1), (136, 7), (5, 2), (9, 9)]
            {
                for access in 1..8u32 {
                    let word = access << 16 | number(kind).cast_unsigned();
                    assert_eq!(
                        run(&program, [word, major, minor]),
                        Some(meant(rules, kind, major, minor, access)),
                        "{rules:?} {kind:?} {major}:{minor} {access}"
                    );
                }
            }
        }
    }

    #[test]
    fn programs_mean_what_rules_mean() {
        holds(&[]);
        holds(&defaults());
        for text in [
            &["-a *:* rwm", "+c 1:3 rw", "+b 8:* r", "-b 8:1 r"][..],
            &["+a *:* rwm"],
            &["+a *:* rwm", "-c 1:3 w", "-b *:* m"],
            &["+c 1:* rwm", "-c 1:5 w", "+c *:5 w", "-a *:* m"],
            &["+c 1:3 r", "+c 1:3 w", "-c 1:3 m"],
        ] {
            holds(&rules(text));
        }
    }

    /// What version 1 allows by the table, as its documentation has it.
    fn tabled(table: &Table, kind: Kind, major: u32, minor: u32, access: u32) -> bool {
        let hit = |(devices, own): (&Devices, &u32)| {
            let same = devices.kind == kind
                && devices.major.is_none_or(|number| number == major)
                && devices.minor.is_none_or(|number| number == minor);
            // What is excepted from allowing everything is refused even in part.
            same && if table.allow { own & access != 0 } else { own & access == access }
        };
        table.exceptions.iter().any(hit) != table.allow
    }

    /// Version 1 never allows what the rules do not mean, and one access at a time it allows all of it.
    #[test]
    fn tables_allow_no_more_than_programs() {
        let some = rules(&[
            "+a *:* rwm",
            "-a *:* rwm",
            "+c 1:3 rw",
            "-c 1:* w",
            "+c *:3 wm",
            "+b 8:0 rwm",
            "-b 8:* m",
        ]);
        let mut seen = 0;
        for a in some.chunks(2) {
            for b in some.chunks(2) {
                let all = [&some[..4], a, b].concat();
                let Ok(table) = Table::of(&all) else { continue };
                seen += 1;
                for (kind, major, minor) in [
                    (Kind::Character, 1, 3),
                    (Kind::Character, 1, 5),
                    (Kind::Character, 2, 3),
                    (Kind::Block, 8, 0),
                    (Kind::Block, 8, 1),
                ] {
                    for access in 1..8u32 {
                        let meant = meant(&all, kind, major, minor, access);
                        let tabled = tabled(&table, kind, major, minor, access);
                        assert!(meant || !tabled, "{all:?} {kind:?} {major}:{minor} {access}");
                        let one = access.count_ones() == 1;
                        assert!(
                            !one || meant == tabled,
                            "{all:?} {kind:?} {major}:{minor} {access}"
                        );
                    }
                }
            }
        }
        assert!(seen > 5, "{seen}");
    }

    #[test]
    fn any_rules_at_all() {
        // Every triple of a few rules that meet each other.
        let some =
            rules(&["+c 1:3 rw", "-c 1:* w", "+c *:3 wm", "-c *:* r", "+b 8:0 rwm", "-b 8:* m"]);
        for a in &some {
            for b in &some {
                for c in &some {
                    holds(&[*a, *b, *c]);
                }
            }
        }
    }
}
