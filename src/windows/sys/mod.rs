//! Calls of Windows.

pub mod container;
pub mod file;
pub mod job;
pub mod process;

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::windows::ffi::OsStrExt;
use std::ptr;

use windows_sys::Win32::Foundation::FARPROC;
use windows_sys::Win32::System::LibraryLoader::{
    GetProcAddress, LOAD_LIBRARY_SEARCH_SYSTEM32, LoadLibraryExW,
};

/// The text with a NUL behind it.
pub(crate) fn wide(text: impl AsRef<OsStr>) -> Vec<u16> {
    text.as_ref().encode_wide().chain([0]).collect()
}

/// The same bytes where Windows reads words of 32 bits: SIDs and access control lists, whose lengths are whole
/// words.
fn words(bytes: &[u8]) -> Vec<u32> {
    let word = |chunk: &[u8]| {
        let mut bytes = [0; 4];
        bytes[..chunk.len()].copy_from_slice(chunk);
        u32::from_ne_bytes(bytes)
    };
    bytes.chunks(4).map(word).collect()
}

/// What a call that answers with a boolean came to.
fn check(done: i32) -> io::Result<()> {
    if done == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What a call that answers with an error came to.
fn check_code(code: u32) -> io::Result<()> {
    match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code.cast_signed())),
    }
}

/// A function of a library of the system: looked up when it is needed, so that a Windows that lacks it is an
/// error and not a program that does not start.
fn function(library: &str, name: &CStr) -> io::Result<unsafe extern "system" fn() -> isize> {
    let wide = wide(library);
    // SAFETY: both names end in NUL. The library is looked for among the system's own alone, and is never
    // unloaded.
    let found: FARPROC = unsafe {
        let module = LoadLibraryExW(wide.as_ptr(), ptr::null_mut(), LOAD_LIBRARY_SEARCH_SYSTEM32);
        if module.is_null() { None } else { GetProcAddress(module, name.as_ptr().cast()) }
    };
    found.ok_or_else(|| {
        let message = format!("this Windows has no {} in {library}", name.to_string_lossy());
        io::Error::new(io::ErrorKind::Unsupported, message)
    })
}
