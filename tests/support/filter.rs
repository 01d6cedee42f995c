//! For tests of compiled profiles: the names they may use, and classic BPF as seccomp runs it, by an
//! interpreter that trusts nothing.

use landstrip::oci::seccomp::Instruction;

/// `struct seccomp_data`, but for the instruction pointer, which no filter of ours looks at.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub nr: u32,
    pub arch: u32,
    pub args: [u64; 6],
}

impl Call {
    fn word(&self, offset: u32) -> u32 {
        match offset {
            0 => self.nr,
            4 => self.arch,
            16..64 if offset.is_multiple_of(4) => {
                let arg = self.args[(offset as usize - 16) / 8];
                if offset.is_multiple_of(8) { arg as u32 } else { (arg >> 32) as u32 }
            }
            _ => panic!("a load from {offset}"),
        }
    }
}

/// What the program returns, and after how many instructions. Panics where the kernel would refuse
/// the program.
pub fn run(program: &[Instruction], call: &Call) -> (u32, usize) {
    let (mut at, mut a, mut x, mut steps) = (0, 0u32, 0u32, 0);
    let mut memory = [0u32; 16];
    loop {
        let i = program.get(at).unwrap_or_else(|| panic!("a jump out of the program to {at}"));
        steps += 1;
        at += 1;
        let jump = |holds: bool| usize::from(if holds { i.jt } else { i.jf });
        match i.code {
            0x20 => a = call.word(i.k),
            0x00 => a = i.k,
            0x60 => a = memory[i.k as usize],
            0x61 => x = memory[i.k as usize],
            0x02 => memory[i.k as usize] = a,
            0x07 => x = a,
            0x87 => a = x,
            0x54 => a &= i.k,
            0x05 => at += i.k as usize,
            0x15 => at += jump(a == i.k),
            0x25 => at += jump(a > i.k),
            0x35 => at += jump(a >= i.k),
            0x45 => at += jump(a & i.k != 0),
            0x06 => return (i.k, steps),
            code => panic!("instruction {code:#x} at {}", at - 1),
        }
    }
}

/// The names in the compiler's table.
pub fn every_name() -> Vec<String> {
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/src/oci/seccomp/calls.rs");
    let text = std::fs::read_to_string(table).expect("the table");
    let rows = text.lines().filter_map(|line| line.trim().strip_prefix("call(b\""));
    let names: Vec<_> = rows.filter_map(|row| row.split('"').next()).map(str::to_owned).collect();
    assert!(names.len() > 400, "the table has {} names", names.len());
    names
}

/// Values near which comparisons change their mind.
pub const VALUES: [u64; 10] = [
    0,
    1,
    2,
    40,
    0x7e02_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x1_0000_0001,
    0x8000_0000_0000_0000,
    u64::MAX,
];
