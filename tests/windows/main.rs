//! Windows: what the launch is made of, and the policy that it holds. A program of its own, since it is also what
//! is started: `cargo test --test windows`, there or under wine. What wine lacks is skipped.

#[cfg(windows)]
mod child;
#[cfg(windows)]
mod enforce;
#[cfg(windows)]
mod parts;

#[cfg(not(windows))]
fn main() {
    println!("skipped: this is not Windows");
}

#[cfg(windows)]
fn main() -> std::process::ExitCode {
    let args: Vec<_> = std::env::args_os().collect();
    if let Some(code) = child::main(&args) {
        return code;
    }
    let filter = args.get(1).and_then(|word| word.to_str()).filter(|word| !word.starts_with('-'));
    let mut failed = false;
    for (name, test) in parts::ALL.iter().chain(enforce::ALL) {
        if filter.is_some_and(|filter| !name.contains(filter)) {
            continue;
        }
        // A panic ends the program, with its message, here where panics abort as well.
        match test() {
            Ok(()) => println!("test {name} ... ok"),
            Err(why) if why.starts_with("skipped") => println!("test {name} ... {why}"),
            Err(why) => {
                println!("test {name} ... FAILED: {why}");
                failed = true;
            }
        }
    }
    std::process::ExitCode::from(u8::from(failed))
}

/// A test: why it failed, or was skipped.
#[cfg(windows)]
type Test = fn() -> Result<(), String>;

/// Fails with what was found in place of what was expected.
#[cfg(windows)]
fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?}, and not {expected:?}")) }
}
