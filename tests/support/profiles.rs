//! Seccomp profiles that engines ship, and random calls.

use super::filter::{Call, VALUES};
use landstrip::oci::seccomp::{Abi, number};
use oci_spec::runtime::LinuxSeccomp;
use serde_json::{Value, json};

/// A profile in the engines' format as an engine on x86-64 writes it into `config.json`.
pub fn engine_profile(text: &str, caps: &[&str]) -> LinuxSeccomp {
    let profile: Value = serde_json::from_str(text).expect("JSON");
    let words = |value: &Value| -> Vec<String> {
        let list = value.as_array().into_iter().flatten();
        list.filter_map(|word| word.as_str()).map(str::to_owned).collect()
    };
    let has = |cap: &String| caps.contains(&cap.as_str());
    let applies = |rule: &&Value| {
        let (includes, excludes) = (&rule["includes"], &rule["excludes"]);
        let arches = words(&includes["arches"]);
        (arches.is_empty() || arches.contains(&"amd64".to_owned()))
            && words(&includes["caps"]).iter().all(has)
            && !words(&excludes["caps"]).iter().any(has)
            && !words(&excludes["arches"]).contains(&"amd64".to_owned())
    };
    let rules = profile["syscalls"].as_array().expect("rules").iter().filter(applies);
    let rule = |rule: &Value| {
        let mut out = json!({"names": rule["names"], "action": rule["action"]});
        for key in ["args", "errnoRet"] {
            if !rule[key].is_null() {
                out[key] = rule[key].clone();
            }
        }
        out
    };
    let mut out = json!({
        "defaultAction": profile["defaultAction"],
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "syscalls": rules.map(rule).collect::<Vec<_>>(),
    });
    if !profile["defaultErrnoRet"].is_null() {
        out["defaultErrnoRet"] = profile["defaultErrnoRet"].clone();
    }
    serde_json::from_value(out).expect("a profile")
}

/// Reproducible choices (splitmix64).
pub struct Random {
    state: u64,
    /// What a profile compares with.
    values: Vec<u64>,
}

impl Random {
    /// Choices that suit a profile.
    pub fn new(profile: &LinuxSeccomp) -> Random {
        let args = profile.syscalls().iter().flatten().flat_map(|r| r.args().iter().flatten());
        let values = args.flat_map(|arg| [arg.value(), arg.value_two().unwrap_or(0)]);
        Random { state: 1, values: values.chain(VALUES).collect() }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    fn value(&mut self) -> u64 {
        let values = std::mem::take(&mut self.values);
        let value = self.pick(&values).wrapping_add(self.next() % 3).wrapping_sub(1);
        self.values = values;
        if self.below(8) == 0 { self.next() } else { value }
    }

    /// A call of x86-64, x32 or x86, rarely of something else.
    pub fn call(&mut self) -> Call {
        let arch = match self.below(20) {
            0 => 0xc000_00b7,
            1..7 => 0x4000_0003,
            _ => 0xc000_003e,
        };
        let nr = match self.below(40) {
            0 => self.next() as u32,
            1 => self.pick(&[u32::MAX, u32::MAX - 1, 0x3fff_ffff, 0x4000_0000, 0x4000_0400]),
            2..12 => 0x4000_0000 + self.below(560) as u32,
            // The calls that profiles have conditions for.
            12..20 => {
                let abi = if arch == 0x4000_0003 { Abi::X86 } else { Abi::X86_64 };
                let name = self.pick(&["clone", "personality", "socket", "socketcall", "ipc"]);
                number(name, abi).unwrap_or(0)
            }
            _ => self.below(480) as u32,
        };
        Call { nr, arch, args: std::array::from_fn(|_| self.value()) }
    }
}
