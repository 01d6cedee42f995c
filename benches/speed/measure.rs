//! Rows, the interleaved measuring of them, and the figures that they must reach.

use std::io;

use crate::contender::Contender;
use crate::lab::Lab;

/// One measurement of one contender: nanoseconds, or bytes in a memory row.
pub type Lane = Box<dyn FnMut() -> io::Result<f64>>;

/// Prepares a row: makes its files and policies, and its commands.
pub type Build = fn(&Lab) -> io::Result<Row>;

/// How a row's values are printed.
#[derive(Clone, Copy)]
pub enum Unit {
    /// Values are nanoseconds, printed as milliseconds.
    Millis,
    /// Values are nanoseconds, printed as microseconds.
    Micros,
    /// Values are bytes, printed as megabytes of 10^6.
    Megabytes,
}

/// A figure that landstrip's minimum must reach. Times are nanoseconds, sizes bytes.
#[derive(Clone, Copy)]
pub enum Goal {
    /// At most so much above bare.
    OverBare(f64),
    /// At most so many times bare.
    TimesBare(f64),
    /// Below bubblewrap.
    UnderBubblewrap,
    /// At most so many times another contender.
    TimesRival(Contender, f64),
    /// At most so much above landstrip's value in another row of the group.
    OverRow(&'static str, f64),
    /// At most so many times landstrip's value in another row of the group.
    TimesRow(&'static str, f64),
    /// At most this value.
    AtMost(f64),
}

/// A row of the table, ready to be measured.
pub struct Row {
    pub name: &'static str,
    pub unit: Unit,
    /// By contender; `None` where the contender has no way to do this.
    pub lanes: [Option<Lane>; Contender::COUNT],
    pub goals: Vec<Goal>,
}

/// A row of the table, not prepared yet.
pub struct Spec {
    pub name: &'static str,
    /// The row that a goal of this one refers to, measured along with it.
    pub beside: Option<&'static str>,
    pub build: Build,
}

/// Rows that are measured in one interleaved run, so that they may be compared.
pub struct Group {
    /// Measurements of each contender in each row.
    pub rounds: usize,
    /// Who landstrip is compared with in the table.
    pub rival: Contender,
    pub specs: Vec<Spec>,
}

impl Group {
    /// The rows whose name contains one of `filters`, or every row when there are none, and the
    /// rows that those are compared with.
    pub fn choose(&self, filters: &[String]) -> Vec<&Spec> {
        let asked = |name: &str| {
            let name = name.to_lowercase();
            filters.is_empty() || filters.iter().any(|filter| name.contains(filter))
        };
        let beside: Vec<_> = self
            .specs
            .iter()
            .filter(|spec| asked(spec.name))
            .filter_map(|spec| spec.beside)
            .collect();
        self.specs.iter().filter(|spec| asked(spec.name) || beside.contains(&spec.name)).collect()
    }
}

/// What the rounds of one contender in one row gave.
#[derive(Clone, Copy)]
pub struct Stat {
    pub min: f64,
    pub median: f64,
    pub samples: usize,
}

impl Stat {
    /// `None` without samples.
    fn of(mut samples: Vec<f64>) -> Option<Stat> {
        samples.sort_by(f64::total_cmp);
        let count = samples.len();
        let (low, high) = (count.checked_sub(1)? / 2, count / 2);
        Some(Stat {
            min: samples[0],
            median: f64::midpoint(samples[low], samples[high]),
            samples: count,
        })
    }
}

/// A measured row.
pub struct Measured {
    pub name: &'static str,
    pub unit: Unit,
    /// Who landstrip is compared with in the table.
    pub rival: Contender,
    /// By contender.
    pub stats: [Option<Stat>; Contender::COUNT],
    pub goals: Vec<Goal>,
    /// By contender: why one that should have run did not.
    pub failures: [Option<String>; Contender::COUNT],
}

impl Measured {
    /// Whether a contender could not run this row.
    pub fn failed(&self) -> bool {
        self.failures.iter().any(Option::is_some)
    }

    /// Whether this row has a figure to reach that landstrip was measured for and missed.
    pub fn missed(&self, all: &[Measured]) -> bool {
        self.goals.iter().any(|&goal| self.reached(goal, all) == Some(false))
    }

    /// Whether landstrip's minimum reached `goal`; `None` when one side was not measured.
    pub fn reached(&self, goal: Goal, all: &[Measured]) -> Option<bool> {
        let least = |contender: Contender| self.stats[contender.index()].map(|stat| stat.min);
        let other = |name: &str| {
            let row = all.iter().find(|row| row.name == name)?;
            row.stats[Contender::Landstrip.index()].map(|stat| stat.min)
        };
        let ours = least(Contender::Landstrip)?;
        Some(match goal {
            Goal::OverBare(extra) => ours <= least(Contender::Bare)? + extra,
            Goal::TimesBare(factor) => ours <= least(Contender::Bare)? * factor,
            Goal::TimesRival(rival, factor) => ours <= least(rival)? * factor,
            Goal::UnderBubblewrap => ours < least(Contender::Bubblewrap)?,
            Goal::OverRow(row, extra) => ours <= other(row)? + extra,
            Goal::TimesRow(row, factor) => ours <= other(row)? * factor,
            Goal::AtMost(limit) => ours <= limit,
        })
    }
}

/// Measures `rows` for so many rounds. A round visits every lane once; every second round goes
/// backwards, so that drift hits all lanes alike and no lane always follows the same one (the
/// kernel takes a namespace or a cgroup apart after its last process has been waited for).
///
/// The first visit of a lane is a warm-up that is not counted. A lane that fails is dropped with
/// its reason.
pub fn interleaved(mut rows: Vec<Row>, rounds: usize, rival: Contender) -> Vec<Measured> {
    let mut samples: Vec<[Vec<f64>; Contender::COUNT]> = Vec::new();
    samples.resize_with(rows.len(), Default::default);
    let mut failures: Vec<[Option<String>; Contender::COUNT]> =
        vec![Default::default(); rows.len()];
    let mut order: Vec<(usize, Contender)> =
        (0..rows.len()).flat_map(|row| Contender::ALL.map(|contender| (row, contender))).collect();
    if !rows.is_empty() {
        eprintln!("speed: measuring {} rows, {rounds} rounds", rows.len());
    }
    for round in 0..=rounds {
        for &(row, contender) in &order {
            let slot = &mut rows[row].lanes[contender.index()];
            let Some(lane) = slot else { continue };
            match lane() {
                Ok(_) if round == 0 => {}
                Ok(value) => samples[row][contender.index()].push(value),
                Err(error) => {
                    *slot = None;
                    samples[row][contender.index()].clear();
                    failures[row][contender.index()] = Some(error.to_string());
                }
            }
        }
        order.reverse();
    }
    rows.into_iter()
        .zip(samples)
        .zip(failures)
        .map(|((row, samples), failures)| Measured {
            name: row.name,
            unit: row.unit,
            rival,
            stats: samples.map(Stat::of),
            goals: row.goals,
            failures,
        })
        .collect()
}
