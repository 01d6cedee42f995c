//! The bench's own command line.

/// Printed by `--help` and after a wrong argument.
pub const USAGE: &str = "\
usage: cargo bench -- [FILTER]... [--json] [--rounds N] [--strict] [--list]
  FILTER      measure the rows whose name contains it (any of them)
  --json      one JSON document instead of a markdown table
  --rounds N  runs of each contender, instead of each group's own number
  --strict    exit 1 when a figure is missed
  --list      print the names of the rows
The launcher under test is $LANDSTRIP, or the one that cargo built for this run.";

/// What to measure and how to print it.
#[derive(Default)]
pub struct Args {
    /// Lower-case parts of row names; empty means every row.
    pub filters: Vec<String>,
    /// Cargo passes `--bench` under `cargo bench` and not under `cargo test --benches`.
    pub measure: bool,
    pub json: bool,
    pub strict: bool,
    pub list: bool,
    pub help: bool,
    /// Rounds for every group, in place of the group's own number.
    pub rounds: Option<usize>,
}

/// Reads the arguments after the program's name.
///
/// # Errors
///
/// Names the first argument that is not understood.
pub fn parse(words: &[String]) -> Result<Args, String> {
    let mut args = Args::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--bench" => args.measure = true,
            "--json" => args.json = true,
            "--strict" => args.strict = true,
            "--list" => args.list = true,
            "--help" | "-h" => args.help = true,
            "--rounds" => {
                let number = words.next().and_then(|word| word.parse().ok());
                args.rounds = Some(
                    number.filter(|&number| number > 0).ok_or("--rounds takes a number above 0")?,
                );
            }
            option if option.starts_with('-') => return Err(format!("unknown option {option}")),
            filter => args.filters.push(filter.to_lowercase()),
        }
    }
    Ok(args)
}
