//! The allocator of the program.
//!
//! musl's own maps and unmaps a group for almost every size it sees, 0.2 ms of a launch. dlmalloc's global
//! one is behind a mutex of the C library, which is a third of what an allocation costs here.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dlmalloc::Dlmalloc;

/// dlmalloc behind the standard library's mutex, which allocates nothing itself.
pub struct Allocator(Mutex<Dlmalloc>);

impl Allocator {
    /// An allocator that holds no memory yet.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "for a static, which a default cannot make")]
    pub const fn new() -> Self {
        Self(Mutex::new(Dlmalloc::new()))
    }

    fn lock(&self) -> MutexGuard<'_, Dlmalloc> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: dlmalloc hands out memory of the size and alignment that it is asked for, until it is freed; the
// mutex keeps threads apart, and nothing here unwinds.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size and alignment of a layout may be asked for.
        unsafe { self.lock().malloc(layout.size(), layout.align()) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        unsafe { self.lock().calloc(layout.size(), layout.align()) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller passes what `alloc` returned for this layout.
        unsafe { self.lock().free(at, layout.size(), layout.align()) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as in `dealloc`.
        unsafe { self.lock().realloc(at, layout.size(), layout.align(), size) }
    }
}
