//! Runs the fuzz targets on mutations of their seeds, on a stable compiler: each for a second, or for
//! as long as LANDSTRIP_FUZZ_SECONDS says. `fuzz/README.md` says how to search longer and deeper.
#![cfg(target_os = "linux")]

#[path = "../fuzz/targets.rs"]
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use targets::Target;

/// The longest input that is made.
const LONGEST: usize = 4096;

/// A small generator of numbers: xorshift64*, of which any start but 0 will do.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`, which is not 0.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() >> 33).expect("31 bits") % end
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

fn files(below: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(below).expect("seeds").flatten() {
        match entry.path() {
            path if path.is_dir() => files(&path, found),
            path => found.push(path),
        }
    }
    found.sort();
}

fn seeds(directory: &str) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(directory), &mut found);
    let seeds: Vec<_> = found.iter().map(|path| std::fs::read(path).expect("a seed")).collect();
    assert!(!seeds.is_empty(), "{directory} is empty");
    seeds
}

/// Changes an input a little: what it is made of is of the seeds, of numbers that are limits, or of
/// bytes that mean something.
fn mutate(input: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    const BYTES: &[u8] = b"\0\n\r\t \"#$&'*,-./:?@[\\]{}|~0129aE\x7f\x80\xc3\xef\xff";
    const NUMBERS: &[u64] = &[0, 1, 0x7f, 0x80, 0xffff, 0x7fff_ffff, 0x8000_0000, u64::MAX];
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        match random.below(7) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = *random.of(BYTES),
            2 => input.insert(at, *random.of(BYTES)),
            3 => {
                let end = (at + 1 + random.below(16)).min(input.len());
                input.drain(at.min(end)..end);
            }
            4 => {
                let seed = random.of(seeds);
                let from = random.below(seed.len() + 1);
                let length = random.below(32).min(seed.len() - from);
                input.splice(at..at, seed[from..from + length].iter().copied());
            }
            5 => {
                let number = random.of(NUMBERS).to_ne_bytes();
                let width = 1 << random.below(4);
                for (byte, new) in input[at..].iter_mut().zip(&number[..width]) {
                    *byte = *new;
                }
            }
            _ => {
                let end = (at + random.below(64)).min(input.len());
                let copy = input[at..end].to_vec();
                input.splice(at..at, copy);
            }
        }
    }
    input.truncate(LONGEST);
}

/// Tries a target on each seed, and then on changed ones until the time is up.
fn drive(&(name, target, directory): &Target) {
    let seconds =
        std::env::var("LANDSTRIP_FUZZ_SECONDS").map_or(1, |s| s.parse().expect("seconds"));
    let seeds = seeds(directory);
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let mut random = Random(clock.expect("after 1970").as_nanos() as u64 | 1);
    let try_one = |input: &[u8]| {
        if catch_unwind(AssertUnwindSafe(|| target(input))).is_err() {
            let text = String::from_utf8_lossy(input);
            panic!("{name} fails on {input:?}\n{text}");
        }
    };
    seeds.iter().for_each(|seed| try_one(seed));
    let (end, mut tried) = (Instant::now() + Duration::from_secs(seconds), 0_u64);
    let mut input = Vec::new();
    while Instant::now() < end {
        // A chain of changes leads further away than any single one.
        if input.is_empty() || random.below(8) == 0 {
            input.clone_from(random.of(&seeds));
        }
        mutate(&mut input, &seeds, &mut random);
        try_one(&input);
        tried += 1;
    }
    assert!(tried > 0, "{name} tried nothing");
    eprintln!("{name}: {tried} inputs in {seconds} s");
}

#[test]
fn documents() {
    drive(&targets::ALL[0]);
}

#[test]
fn globs() {
    drive(&targets::ALL[1]);
}

#[test]
fn addresses() {
    drive(&targets::ALL[2]);
}

#[test]
fn open_how() {
    drive(&targets::ALL[3]);
}

#[test]
fn answers() {
    drive(&targets::ALL[4]);
}

#[test]
fn bundles() {
    drive(&targets::ALL[5]);
}

#[test]
fn profiles() {
    drive(&targets::ALL[6]);
}
