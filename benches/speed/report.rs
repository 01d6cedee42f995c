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
        Goal::TimesRival(rival, factor) => format!("{factor:.2} of {}", rival.name()),
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
    let mut out = format!("{}; minimum / median\n", about(lab));
    let mut rival = None;
    for result in results {
        if rival != Some(result.rival) {
            rival = Some(result.rival);
            out += &heading(result.rival);
        }
        let cells = columns(result.rival).map(|contender| match result.stats[contender.index()] {
            Some(stat) => {
                let least = result.unit.number(stat.min);
                format!("{least} / {}", result.unit.text(stat.median))
            }
            None if result.failures[contender.index()].is_some() => "failed".into(),
            None => "-".into(),
        });
        let cells: Vec<String> = cells.collect();
        let rival = result.stats[result.rival.index()].filter(|stat| stat.min > 0.0);
        let (ratio, over) = match (rival, result.stats[Contender::Landstrip.index()]) {
            (Some(rival), Some(ours)) => {
                (format!("{:.2}", ours.min / rival.min), result.unit.text(ours.min - rival.min))
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

/// The contenders of a table in which landstrip is compared with `rival`.
fn columns(rival: Contender) -> impl Iterator<Item = Contender> {
    let runtimes = [Contender::Runc, Contender::Crun];
    let fits = move |contender: &Contender| {
        *contender == Contender::Landstrip
            || runtimes.contains(contender) == runtimes.contains(&rival)
    };
    Contender::ALL.into_iter().filter(fits)
}

fn heading(rival: Contender) -> String {
    let names: Vec<&str> = columns(rival).map(Contender::name).collect();
    let (rival, sides) = (rival.name(), "--:|".repeat(names.len() + 2));
    let names = names.join(" | ");
    format!(
        "\n| row | {names} | of {rival} | over {rival} | must reach | |\n|---|{sides}---|---|\n"
    )
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
