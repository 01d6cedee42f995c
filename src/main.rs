//! The program: `landstrip` and `landstrip-oci` are this one binary.
//!
//! It has no Rust `main`: the runtime around one makes twenty system calls that nothing here needs
//! (it reads `/proc/self/maps` for a guard page), and changes SIGPIPE, which the sandboxed program
//! is to inherit as it was.
#![cfg_attr(target_os = "linux", no_main)]

#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: landstrip::linux::sys::allocator::Allocator =
    landstrip::linux::sys::allocator::Allocator::new();

#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "the C library calls this symbol, and no other crate defines it")]
#[unsafe(no_mangle)]
extern "C" fn main(
    count: std::ffi::c_int,
    arguments: *const *const std::ffi::c_char,
) -> std::ffi::c_int {
    use std::ffi::{CStr, OsStr};
    use std::os::unix::ffi::OsStrExt;

    // `std::env::args` is empty here but under glibc, which hands the line to initialisers too.
    let line = (0..usize::try_from(count).unwrap_or(0)).map(|nth| {
        // SAFETY: the C library passes `count` pointers to strings that live as long as we do.
        let argument = unsafe { CStr::from_ptr(*arguments.add(nth)) };
        OsStr::from_bytes(argument.to_bytes()).to_owned()
    });
    std::ffi::c_int::from(landstrip::cli::main(&line.collect::<Vec<_>>()))
}

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    landstrip::cli::main(&std::env::args_os().collect::<Vec<_>>()).into()
}
