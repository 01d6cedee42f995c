//! The pages of our own file that are mapped.

use libc::{c_int, c_void};

/// Gives back what a launch touched of our code and constants. The kernel maps what is used again from its page
/// cache: that is some hundred KiB of the megabytes that reading a policy and starting a program take.
pub fn give_back() {
    /// Called for each object that is mapped, of which a static program is the only one.
    unsafe extern "C" fn each(object: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
        // SAFETY: dl_iterate_phdr(3) passes a valid object, whose table has this many entries.
        let (base, headers) = unsafe {
            let object = &*object;
            let count = usize::from(object.dlpi_phnum);
            (object.dlpi_addr, std::slice::from_raw_parts(object.dlpi_phdr, count))
        };
        for header in headers {
            if header.p_type != libc::PT_LOAD || header.p_flags & libc::PF_W != 0 {
                continue;
            }
            // SAFETY: a private mapping of a file that nobody has written to through it reads the same afterwards
            // (MADV_DONTNEED, madvise(2)). Whole pages of a segment are its own.
            unsafe {
                libc::madvise(
                    (base + header.p_vaddr) as *mut c_void,
                    header.p_memsz as usize,
                    libc::MADV_DONTNEED,
                );
            }
        }
        0
    }
    // SAFETY: the callback takes the arguments that it is called with, and does not unwind.
    unsafe { libc::dl_iterate_phdr(Some(each), std::ptr::null_mut()) };
}
