//! The table, as markdown or as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::contender::Contender;
use crate::lab::Lab;
use crate::measure::{Goal, Measured, Unit};

impl Unit {
    fn scale(self) -> f64 {
        match self {
            Unit::Millis | Unit::Megabytes => 1e6,
            Unit::Micros => 1e3,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Unit::Millis => "ms",
            Unit::Micros => "µs",
            Unit::Megabytes => "MB",
        }
    }

    /// The value in this unit, with about four digits.
    fn number(self, value: f64) -> String {
        let value = value / self.scale();
        let decimals = match value.abs() {
            size if size < 10.0 => 2,
            size if size < 100.0 => 1,
            _ => 0,
        };
        format!("{value:.decimals$}")
    }

    fn text(self, value: f64) -> String {
        format!("{} {}", self.number(value), self.name())
    }
}

/// What the figure is, in words.
fn goal_text(goal: Goal, unit: Unit) -> String {
    match goal {
        Goal::OverBare(extra) => format!("bare + {}", unit.text(extra)),
        Goal::TimesBare(factor) => format!("{factor:.2} of bare"),
        Goal::UnderBubblewrap => "below bubblewrap".into(),
        Goal::OverRow(row, extra) => format!("\"{row}\" + {}", unit.text(extra)),
        Goal::TimesRow(row, factor) => format!("{factor:.0} times \"{row}\""),
        Goal::AtMost(limit) => format!("at most {}", unit.text(limit)),
    }
}

fn verdict(reached: Option<bool>) -> &'static str {
    match reached {
        Some(true) => "pass",
        Some(false) => "MISS",
        None => "not measured",
    }
}

/// The machine and the launcher, in one line.
fn about(lab: &Lab) -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let user = if rustix::process::geteuid().is_root() { "root" } else { "an ordinary user" };
    let launcher = lab.tools.landstrip().map_or_else(
        || "no launcher".into(),
        |path| {
            let size = std::fs::metadata(path).map_or(0, |meta| meta.len());
            format!("launcher of {:.2} MB", size as f64 / 1e6)
        },
    );
    format!(
        "Linux {} {}, {cpus} processors, load {} at the start, as {user}, {launcher}",
        kernel.trim(),
        std::env::consts::ARCH,
        lab.load,
    )
}

/// A markdown table with a line ahead of it about the machine and, below it, what went wrong.
pub fn markdown(lab: &Lab, results: &[Measured]) -> String {
    let mut out = format!("{}; minimum / median\n\n", about(lab));
    out += "| row | bare | bubblewrap | least | landstrip | of bare | over bare | must reach | |\n";
    out += "|---|--:|--:|--:|--:|--:|--:|---|---|\n";
    for result in results {
        let cells = Contender::ALL.map(|contender| match result.stats[contender.index()] {
            Some(stat) => {
                let least = result.unit.number(stat.min);
                format!("{least} / {}", result.unit.text(stat.median))
            }
            None if result.failures[contender.index()].is_some() => "failed".into(),
            None => "-".into(),
        });
        let bare = result.stats[Contender::Bare.index()];
        let (ratio, over) = match (bare, result.stats[Contender::Landstrip.index()]) {
            (Some(bare), Some(ours)) => {
                (format!("{:.2}", ours.min / bare.min), result.unit.text(ours.min - bare.min))
            }
            _ => ("-".into(), "-".into()),
        };
        let goals: Vec<_> = result.goals.iter().map(|&goal| goal_text(goal, result.unit)).collect();
        let verdicts: Vec<_> =
            result.goals.iter().map(|&goal| verdict(result.reached(goal, results))).collect();
        let _ = writeln!(
            out,
            "| {} | {} | {ratio} | {over} | {} | {} |",
            result.name,
            cells.join(" | "),
            goals.join("; "),
            verdicts.join("; "),
        );
    }
    let failures = results.iter().flat_map(|row| {
        Contender::ALL.iter().zip(&row.failures).filter_map(|(contender, failure)| {
            let reason = failure.as_ref()?;
            Some(format!("{}: {}: {reason}", row.name, contender.name()))
        })
    });
    let notes: Vec<_> = lab.tools.left_out.iter().cloned().chain(failures).collect();
    if !notes.is_empty() {
        let _ = writeln!(out, "\nNot measured:");
    }
    for line in notes {
        let _ = writeln!(out, "- {line}");
    }
    out
}

/// One document: the machine, and an object a row. Times are nanoseconds, sizes bytes.
pub fn json(lab: &Lab, results: &[Measured]) -> Value {
    let rows: Vec<_> = results
        .iter()
        .map(|result| {
            let mut row = json!({
                "name": result.name,
                "unit": match result.unit { Unit::Megabytes => "bytes", _ => "ns" },
            });
            for contender in Contender::ALL {
                row[contender.name()] = match result.stats[contender.index()] {
                    Some(stat) => json!({
                        "min": stat.min, "median": stat.median, "samples": stat.samples,
                    }),
                    None => match &result.failures[contender.index()] {
                        Some(reason) => json!({"failed": reason}),
                        None => Value::Null,
                    },
                };
            }
            let goals = result.goals.iter().map(|&goal| {
                json!({
                    "goal": goal_text(goal, result.unit),
                    "reached": result.reached(goal, results),
                })
            });
            row["goals"] = goals.collect();
            row
        })
        .collect();
    json!({"about": about(lab), "left_out": lab.tools.left_out, "rows": rows})
}
