//! The program: `landstrip` and `landstrip-oci` are this one binary.
fn main() -> std::process::ExitCode {
    landstrip::cli::main()
}
