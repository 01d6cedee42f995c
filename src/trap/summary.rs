//! The report of distinct denials at the end of a run, in bounded memory.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Denial, Style, json, text};

/// Distinct denials with how often each happened.
///
/// Two denials are the same if they differ in the process id, the arguments and the time alone. What exceeds
/// [`Summary::LISTED`] records or [`Summary::BYTES`] of memory is counted and not listed, so memory
/// is bounded whatever the program does.
#[derive(Debug)]
pub struct Summary {
    entries: Vec<Entry>,
    bytes: usize,
    omitted: u64,
    omitted_at: SystemTime,
}

#[derive(Debug)]
struct Entry {
    hash: u64,
    denial: Denial,
    count: u64,
    first: SystemTime,
}

impl Default for Summary {
    fn default() -> Self {
        Summary { entries: Vec::new(), bytes: 0, omitted: 0, omitted_at: UNIX_EPOCH }
    }
}

impl Summary {
    /// The most records that a report lists.
    pub const LISTED: usize = 200;

    /// The most memory that listed records occupy, in bytes.
    pub const BYTES: usize = 512 * 1024;

    /// An empty report.
    #[must_use]
    pub fn new() -> Self {
        Summary::default()
    }

    /// Takes note of one denial that happened at `ts`.
    pub fn record(&mut self, denial: &Denial, ts: SystemTime) {
        self.record_many(denial, ts, 1);
    }

    /// The same of one that happened `count` times.
    pub fn record_many(&mut self, denial: &Denial, ts: SystemTime, count: u64) {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(denial.identity());
        // Two hundred numbers: a scan costs less than hashing the record did.
        let same = |e: &&mut Entry| e.hash == hash && e.denial.identity() == denial.identity();
        if let Some(entry) = self.entries.iter_mut().find(same) {
            entry.count = entry.count.saturating_add(count);
            return;
        }
        let bytes = denial.stored_bytes() + size_of::<Entry>() - size_of::<Denial>();
        if self.entries.len() >= Self::LISTED || self.bytes + bytes > Self::BYTES {
            self.omitted = self.omitted.saturating_add(count);
            self.omitted_at = ts;
            return;
        }
        self.bytes += bytes;
        self.entries.push(Entry { hash, denial: denial.clone(), count, first: ts });
    }

    /// Whether nothing was denied.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.omitted == 0
    }

    /// Writes a line for each distinct denial, the first to happen first, and a last one that
    /// counts what is not listed.
    ///
    /// # Errors
    ///
    /// Returns the first error of `out`.
    pub fn write(&self, out: &mut dyn Write, style: Style) -> io::Result<()> {
        for entry in &self.entries {
            let line = match style {
                Style::Json => json::counted_line(&entry.denial, entry.count, entry.first),
                Style::Text => text::denial_line(&entry.denial, entry.count),
            };
            out.write_all(line.as_bytes())?;
        }
        if self.omitted > 0 {
            let line = match style {
                Style::Json => json::omitted_line(self.omitted, self.omitted_at),
                Style::Text => text::omitted_line(self.omitted),
            };
            out.write_all(line.as_bytes())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trap::tests::filesystem;

    #[test]
    fn the_same_denial_is_counted_whoever_does_it() {
        let mut summary = Summary::new();
        assert!(summary.is_empty());
        let mut denial = filesystem();
        for pid in 1..=3 {
            denial.process.pid = pid;
            summary.record(&denial, UNIX_EPOCH);
        }
        denial.path = Some("/other".to_owned());
        summary.record(&denial, UNIX_EPOCH);
        let mut out = Vec::new();
        summary.write(&mut out, Style::Json).unwrap();
        let text = String::from_utf8(out).unwrap();
        let counts: Vec<_> = text
            .lines()
            .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()["count"].clone())
            .collect();
        assert_eq!(counts, [3, 1]);
    }

    #[test]
    fn at_most_200_records_are_listed_and_the_rest_counted() {
        let mut summary = Summary::new();
        let mut denial = filesystem();
        for n in 0..1_000 {
            denial.path = Some(format!("/{n}"));
            summary.record(&denial, UNIX_EPOCH);
        }
        let mut out = Vec::new();
        summary.write(&mut out, Style::Text).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), Summary::LISTED + 1);
        assert_eq!(text.lines().last(), Some("landstrip: 800 more denials not listed"));
    }

    #[test]
    fn memory_is_bounded_after_60_000_distinct_long_paths() {
        let mut summary = Summary::new();
        let mut denial = filesystem();
        let long = "d".repeat(4_080);
        for n in 0..60_000 {
            denial.path = Some(format!("/{n}/{long}"));
            denial.requested_path = denial.path.clone();
            summary.record(&denial, UNIX_EPOCH);
        }
        let held: usize = summary.entries.iter().map(|e| e.denial.stored_bytes()).sum();
        assert!(held <= Summary::BYTES, "{held}");
        let listed = summary.entries.len() as u64;
        assert!(listed > 20, "{listed}");
        assert_eq!(listed + summary.omitted, 60_000);
    }
}
