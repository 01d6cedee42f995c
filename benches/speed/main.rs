//! The speed table: what the sandbox costs, beside no sandbox and beside bubblewrap.
//!
//! `cargo bench` measures and prints; `benches/README.md` says how to read it.
//! The same executable, started with `--inner`, is the load that runs inside a sandbox.

#[cfg(target_os = "linux")]
mod args;
#[cfg(target_os = "linux")]
mod containers;
#[cfg(target_os = "linux")]
mod contender;
#[cfg(target_os = "linux")]
mod inner;
#[cfg(target_os = "linux")]
mod lab;
#[cfg(target_os = "linux")]
mod launch;
#[cfg(target_os = "linux")]
mod least;
#[cfg(target_os = "linux")]
mod loops;
#[cfg(target_os = "linux")]
mod measure;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(target_os = "linux")]
mod network;
#[cfg(target_os = "linux")]
mod queries;
#[cfg(target_os = "linux")]
mod report;
#[cfg(target_os = "linux")]
mod sys;
#[cfg(target_os = "linux")]
mod trees;
#[cfg(target_os = "linux")]
mod workloads;

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("speed: the table compares Linux mechanisms; nothing to measure on this system");
}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    use std::process::ExitCode;

    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "--inner") {
        return inner::main(&words[1..]);
    }
    let args = match args::parse(&words) {
        Ok(args) => args,
        Err(message) => {
            eprintln!("speed: {message}\n{}", args::USAGE);
            return ExitCode::from(2);
        }
    };
    if args.help {
        println!("{}", args::USAGE);
        return ExitCode::SUCCESS;
    }
    if !args.measure && !args.list {
        println!("speed: not measured; `cargo bench` does that");
        return ExitCode::SUCCESS;
    }
    match table(&args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("speed: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures the rows that `args` asks for, prints them, and picks the exit code: failure when a
/// contender could not run a row or the launcher did not work, or, with `--strict`, when a figure was missed.
#[cfg(target_os = "linux")]
fn table(args: &args::Args) -> std::io::Result<std::process::ExitCode> {
    use std::process::ExitCode;

    let [whole, resident] = containers::groups();
    // The containers give this process another mount namespace.
    let groups = [
        launch::group(),
        loops::group(),
        queries::group(),
        network::group(),
        workloads::group(),
        memory::group(),
        whole,
        resident,
    ];
    if args.list {
        for spec in groups.iter().flat_map(|group| &group.specs) {
            println!("{}", spec.name);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let lab = lab::Lab::open()?;
    let mut results = Vec::new();
    for group in &groups {
        let chosen = group.choose(&args.filters);
        let mut rows = Vec::with_capacity(chosen.len());
        for spec in chosen {
            eprintln!("speed: preparing {}", spec.name);
            rows.push((spec.build)(&lab)?);
        }
        let rounds = args.rounds.unwrap_or(group.rounds);
        results.extend(measure::interleaved(rows, rounds, group.rival));
    }
    if results.is_empty() {
        return Err(std::io::Error::other("no row has that in its name; --list prints them"));
    }
    if args.json {
        println!("{}", report::json(&lab, &results));
    } else {
        print!("{}", report::markdown(&lab, &results));
    }
    let failed = lab.tools.landstrip().is_none() || results.iter().any(measure::Measured::failed);
    let missed = results.iter().any(|result| result.missed(&results));
    Ok(if failed || (args.strict && missed) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
