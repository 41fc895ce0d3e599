//! Memory for a moment: for commands that hold much and end soon.
//!
//! A listing of ten thousand sessions is some two hundred thousand small texts,
//! made by several threads and held until the answer is out. The C library's
//! allocator asks the kernel for it page by page, in each thread and under one
//! lock: that took longer than filling it. So a command that answers once and
//! ends takes its small pieces from one [`Pool`] of address space.
//!
//! A thread cuts pieces off a block of its own, and reuses what it gave back
//! itself. What a thread that ended had left is lost, so a process that stays
//! must not do this: it does not unless it calls [`for_a_moment`].

#![expect(unsafe_code, reason = "an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

/// Address space, not memory. When it is used up, the rest comes from the system.
const POOL: usize = 1 << 30;
/// What a thread takes at once.
const BLOCK: usize = 64 << 10;
/// Pieces are multiples of this.
const STEP: usize = 16;
/// Pieces up to this size are used again once they were given back.
const AGAIN: usize = 4096;
const SIZES: usize = AGAIN / STEP;
/// Those above this are few, and come from the system,
const LARGEST: usize = BLOCK / 4;
/// but for those that hold zeros and are as large as this: a file is read into one at once.
const WHOLE: usize = 256 << 10;
/// From here on the pool is taken in huge pages, where there are any: a small
/// answer does not reach it, and one that is large needs few steps instead of thousands.
const HUGE_FROM: usize = 2 << 20;

/// Where the pool starts; 0 while there is none. It is set before there are threads.
static START: AtomicUsize = AtomicUsize::new(0);
/// How much of it was given to threads.
static GIVEN: AtomicUsize = AtomicUsize::new(0);

/// The allocator of the program: the system's, but for small pieces after
/// [`for_a_moment`].
#[derive(Debug)]
pub struct Pool;

/// Takes small pieces from the pool from now on; `much` is whether the answer is known to be
/// large. Where the kernel gives no pool, everything stays as it was.
pub fn for_a_moment(much: bool) {
    if START.load(Ordering::Relaxed) != 0 {
        return;
    }
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a fresh mapping that nobody else knows.
    let Ok(start) = (unsafe { mmap_anonymous(null_mut(), POOL, ProtFlags::READ | ProtFlags::WRITE, flags) }) else {
        return;
    };
    let from = if much { 0 } else { HUGE_FROM };
    // SAFETY: within the mapping; it changes only how the kernel backs it, or nothing.
    let _ = unsafe { madvise(start.byte_add(from), POOL - from, Advice::LinuxHugepage) };
    START.store(start.addr(), Ordering::Relaxed);
    few_steps();
}

/// Lets larger pieces come from one heap that grows in large steps: a heap for each
/// thread grows page by page, which stops all threads of the process each time, and
/// keeps what its thread has freed from the others.
fn few_steps() {
    #[cfg(target_env = "gnu")]
    // SAFETY: these only set numbers of the allocator, and no other thread runs yet.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TOP_PAD, 4 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 64 << 20);
    }
}

/// What one thread has of the pool: addresses, 0 for none. A free piece holds
/// the address of the next free one of its size.
struct Own {
    next: Cell<usize>,
    end: Cell<usize>,
    free: [Cell<usize>; SIZES],
}

thread_local! {
    static OWN: Own =
        const { Own { next: Cell::new(0), end: Cell::new(0), free: [const { Cell::new(0) }; SIZES] } };
}

impl Own {
    /// A piece, and whether it is fresh: then it holds zeros.
    fn take(&self, start: usize, size: usize) -> Option<(*mut u8, bool)> {
        if let Some(free) = self.free.get(size / STEP - 1) {
            let piece = free.get() as *mut usize;
            if !piece.is_null() {
                // SAFETY: a free piece is at least a step long, aligned, and nobody else's.
                free.set(unsafe { *piece });
                return Some((piece.cast(), false));
            }
        }
        if size > LARGEST {
            return give(start, size).map(|piece| (piece as *mut u8, true));
        }
        if self.end.get() - self.next.get() < size {
            let block = give(start, BLOCK)?;
            self.next.set(block);
            self.end.set(block + BLOCK);
        }
        let piece = self.next.get();
        self.next.set(piece + size);
        Some((piece as *mut u8, true))
    }

    /// # Safety
    /// The piece is of the pool, of this size, and used by nobody any more.
    unsafe fn give_back(&self, piece: *mut u8, size: usize) {
        let Some(free) = self.free.get(size / STEP - 1) else { return };
        // SAFETY: a piece is at least a step long and aligned to one.
        unsafe { *piece.cast() = free.get() };
        free.set(piece.addr());
    }
}

/// Gives so much of the pool, while there is as much.
fn give(start: usize, size: usize) -> Option<usize> {
    let given = GIVEN.fetch_add(size, Ordering::Relaxed);
    if given.checked_add(size)? > POOL {
        GIVEN.fetch_sub(size, Ordering::Relaxed); // smaller ones may fit
        return None;
    }
    Some(start + given)
}

/// The size of the piece that holds this, if it is one for the pool.
fn piece(layout: Layout) -> Option<usize> {
    let small = layout.size() <= LARGEST && layout.size() > 0 && layout.align() <= STEP;
    small.then(|| layout.size().next_multiple_of(STEP))
}

/// The same of one that is to hold zeros.
fn zeroed_piece(layout: Layout) -> Option<usize> {
    let large = (WHOLE..=POOL).contains(&layout.size()) && layout.align() <= STEP;
    if large { Some(layout.size().next_multiple_of(BLOCK)) } else { piece(layout) }
}

fn is_ours(memory: *mut u8) -> bool {
    let start = START.load(Ordering::Relaxed);
    start != 0 && memory.addr().wrapping_sub(start) < POOL
}

// SAFETY: pieces of the pool are cut from fresh memory without overlap, aligned to
// a step, and reused only after they were given back, by the thread that got them
// back. What is not of the pool is the system's, told apart by its address.
unsafe impl GlobalAlloc for Pool {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let start = START.load(Ordering::Relaxed);
        if start != 0
            && let Some(size) = piece(layout)
            && let Some((memory, _)) = OWN.with(|own| own.take(start, size))
        {
            return memory;
        }
        // SAFETY: as promised to us.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let start = START.load(Ordering::Relaxed);
        if start != 0
            && let Some(size) = zeroed_piece(layout)
            && let Some((memory, fresh)) = OWN.with(|own| own.take(start, size))
        {
            if !fresh {
                // SAFETY: the piece is as long, and nobody else's.
                unsafe { memory.write_bytes(0, layout.size()) };
            }
            return memory;
        }
        // SAFETY: as promised to us.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        match piece(layout) {
            // SAFETY: it came from the pool with this layout.
            Some(size) if is_ours(memory) => OWN.with(|own| unsafe { own.give_back(memory, size) }),
            None if is_ours(memory) => {} // its memory is left as it is
            // SAFETY: it came from the system with this layout.
            _ => unsafe { System.dealloc(memory, layout) },
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if !is_ours(memory) {
            // SAFETY: it came from the system with this layout.
            return unsafe { System.realloc(memory, layout, new_size) };
        }
        // SAFETY: the caller promises a size that makes a layout.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        if piece(layout) == piece(new) {
            return memory; // there is room left in the piece
        }
        // SAFETY: the old piece is given back after its content was copied.
        unsafe {
            let moved = self.alloc(new);
            if !moved.is_null() {
                memory.copy_to_nonoverlapping(moved, layout.size().min(new_size));
                self.dealloc(memory, layout);
            }
            moved
        }
    }
}
