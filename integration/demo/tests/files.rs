//! The program itself, on a file that the test writes.

use std::process::Command;

#[test]
fn the_program_prints_the_outline_of_a_file() {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("sample.md");
    std::fs::write(&file, "# Title\n\n## Part\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_outline")).arg(&file).output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "- [Title](#title)\n  - [Part](#part)\n");
}
