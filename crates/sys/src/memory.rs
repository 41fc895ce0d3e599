//! Memory for a moment: for commands that hold much and end soon.

#![expect(unsafe_code, reason = "the allocator is tuned through C only")]

/// Lets the allocator take memory in large steps. A listing of ten thousand
/// sessions holds tens of megabytes for a tenth of a second; taken a page at a
/// time, as is the default in threads, asking the kernel for it costs more than
/// using it. Not for processes that stay.
pub fn in_large_steps() {
    const STEP: libc::c_int = 4 << 20;
    #[cfg(target_env = "gnu")]
    // SAFETY: these only set numbers of the allocator, and no other thread runs yet.
    unsafe {
        libc::mallopt(libc::M_TOP_PAD, STEP);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 16 * STEP);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 4 * STEP);
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = STEP;
}
