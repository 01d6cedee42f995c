//! The program: `landstrip` and `landstrip-oci` are this one binary.
//!
//! It has no Rust `main`: the runtime around one makes twenty system calls that nothing here needs
//! (it reads `/proc/self/maps` for a guard page), and changes SIGPIPE, which the sandboxed program
//! is to inherit as it was.
#![cfg_attr(target_os = "linux", no_main)]

#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "the C library calls this symbol, and no other crate defines it")]
#[unsafe(no_mangle)]
extern "C" fn main() -> std::ffi::c_int {
    std::ffi::c_int::from(landstrip::cli::main())
}

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    landstrip::cli::main().into()
}
