//! Memory for ever: for a process that stays, and holds little between moments in which
//! it holds much.

#![expect(unsafe_code, reason = "the allocator is tuned through C only")]

/// Lets the allocator keep few heaps and give large pieces back as soon as they are
/// freed. By default every thread gets a heap of its own, and the more was freed once,
/// the more is kept. Before the first thread is started.
pub fn sparing() {
    const PIECE: libc::c_int = 64 << 10;
    #[cfg(target_env = "gnu")]
    // SAFETY: these only set numbers of the allocator, and no other thread runs yet.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, PIECE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, PIECE);
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = PIECE;
}
