//! Usage: outline FILE

use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: outline FILE");
        return ExitCode::from(2);
    };
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            print!("{}", outline::outline(&text));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("outline: {}: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}
