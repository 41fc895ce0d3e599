//! Signals: as they were at the beginning, and as a file.
//!
//! A program that was started by `nohup`, by a shell in the background or by a
//! daemon inherits what those ignore. [`restore`] takes that back, so that what we
//! start finds the world as a login shell would give it. [`ChildEnds`] makes the
//! end of any child something to poll for, without a handler; [`Caught`] does so for
//! the signals that a program wants to hear instead of being ended by them; [`Heeded`] does it for a while, whatever
//! threads there are.
#![expect(unsafe_code, reason = "signal dispositions and masks have no safe interface")]

use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::{io, mem, ptr};

use rustix::process::Signal;

/// Gives every signal its default meaning again, but for those that Rust's own
/// runtime has set (a broken pipe stays an error, a stack overflow is told).
pub fn restore() {
    // The kernel's own structure, all zero: `SIG_DFL`, no flags, an empty mask. The C library
    // hides the two signals it uses itself, and those can be inherited as ignored too.
    let default = [0u64; 8];
    for signal in 1..=64 {
        if matches!(signal, libc::SIGPIPE | libc::SIGSEGV | libc::SIGBUS) {
            continue;
        }
        // SAFETY: `SIG_DFL` runs no code of ours; the kernel reads no more than the structure's
        // size (at most 32 bytes) from a buffer of 64. What may not be set is refused.
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), ptr::null_mut::<u64>(), 8usize);
        }
    }
}

/// Ends this process by a signal, as if nobody heeded that: whoever waits for it sees what ended it. Nothing is dumped. Returns
/// only if the signal ends nobody.
pub fn end_by(signal: i32) {
    let _ = rustix::process::setrlimit(
        rustix::process::Resource::Core,
        rustix::process::Rlimit { current: Some(0), maximum: Some(0) },
    );
    let _ = unblock();
    // SAFETY: `SIG_DFL` runs no code of ours; a signal to ourselves, which does what it does by default.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// Makes a file that may not grow an error like any other, not the end of this process.
pub fn outlive_limits() {
    // SAFETY: `SIG_IGN` runs no code of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// The last signal that came while somebody heeds them; zero for none.
static CAME: AtomicI32 = AtomicI32::new(0);

extern "C" fn came(signal: libc::c_int) {
    if signal != libc::SIGHUP {
        CAME.store(signal, Ordering::Relaxed);
    }
}

/// While this lives, an interrupt or a termination ends nobody, but can be asked for. One that nobody took up does its
/// work afterwards. A hang-up is nothing at all: a terminal that is closed takes nothing back. What is ignored, or heard
/// by somebody else, stays so.
pub struct Heeded(Vec<libc::c_int>);

impl Heeded {
    /// From now on.
    pub fn begin() -> Heeded {
        let ours = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM].into_iter().filter(|&signal| {
            // SAFETY: both structures live through the calls, and zeros are valid; the handler only stores a number.
            unsafe {
                let mut now: libc::sigaction = mem::zeroed();
                let known = libc::sigaction(signal, ptr::null(), &mut now) == 0;
                let mut heed: libc::sigaction = mem::zeroed();
                heed.sa_sigaction = came as *const () as usize;
                heed.sa_flags = libc::SA_RESTART;
                known && now.sa_sigaction == libc::SIG_DFL && libc::sigaction(signal, &heed, ptr::null_mut()) == 0
            }
        });
        Heeded(ours.collect())
    }

    /// Whether one has come; who asks takes it up.
    pub fn take(&self) -> bool {
        CAME.swap(0, Ordering::Relaxed) != 0
    }
}

impl Drop for Heeded {
    fn drop(&mut self) {
        for signal in &self.0 {
            // SAFETY: `SIG_DFL`, as it was, runs no code of ours.
            unsafe { libc::signal(*signal, libc::SIG_DFL) };
        }
        let left = CAME.swap(0, Ordering::Relaxed);
        if left != 0 {
            // SAFETY: a signal to ourselves, which does what it would have done.
            unsafe { libc::raise(left) };
        }
    }
}

/// Leaves all signals to the other threads, but for those that tell of a fault of this one: a thread that only helps, and may
/// outlive what it helps with, would take what another waits for.
pub fn leave_to_others() {
    const FAULTS: [libc::c_int; 7] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT, libc::SIGTRAP, libc::SIGSYS];
    // SAFETY: the set is initialised by `sigfillset` before it is read and lives through the call.
    unsafe {
        let mut set: libc::sigset_t = mem::zeroed();
        libc::sigfillset(&mut set);
        for fault in FAULTS {
            libc::sigdelset(&mut set, fault);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut());
    }
}

/// Blocks no signal any more: for a copy of ours that is about to become another program,
/// which would wait in vain for what we block.
pub fn unblock() -> io::Result<()> {
    // SAFETY: the set is initialised by `sigemptyset` before it is read and lives through the
    // call, which allocates nothing.
    let done = unsafe {
        let mut set: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &set, ptr::null_mut())
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Readable whenever a child, or an orphan given to us, has ended, or somebody tells us to end, which does nothing else.
pub struct ChildEnds(OwnedFd);

impl ChildEnds {
    /// From now on. The mask this sets is inherited by whatever is started: [`unblock`]
    /// takes it back there.
    pub fn watch() -> io::Result<ChildEnds> {
        descriptor(&[libc::SIGCHLD, libc::SIGTERM, libc::SIGHUP], libc::SFD_NONBLOCK).map(ChildEnds)
    }

    /// Forgets what was told so far; reap after this, not before. Whether we were told to end.
    pub fn clear(&self) -> bool {
        const EACH: usize = size_of::<libc::signalfd_siginfo>();
        let (mut told, mut end) = ([0u8; 4 * EACH], false);
        while let Ok(n @ 1..) = rustix::io::read(&self.0, &mut told) {
            // `ssi_signo` stands first.
            let number = |one: &[u8]| one.first_chunk().map(|number| i32::from_ne_bytes(*number));
            end |= told[..n].chunks(EACH).any(|one| number(one).is_some_and(|number| number != libc::SIGCHLD));
        }
        end
    }
}

impl AsFd for ChildEnds {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Signals that are read, and do nothing else.
pub struct Caught(OwnedFd);

impl Caught {
    /// From now on, in this thread and in those it starts: before any other, that is.
    /// What [`std::process::Command`] starts begins with an empty mask.
    pub fn watch(signals: &[Signal]) -> io::Result<Caught> {
        let numbers: Vec<libc::c_int> = signals.iter().map(|s| s.as_raw()).collect();
        descriptor(&numbers, libc::SFD_NONBLOCK).map(Caught)
    }

    /// The next one that has arrived, if any.
    pub fn next(&self) -> Option<Signal> {
        let mut told = [0u8; size_of::<libc::signalfd_siginfo>()];
        let whole = matches!(rustix::io::read(&self.0, &mut told), Ok(n) if n == told.len());
        let number = i32::from_ne_bytes(*told.first_chunk()?); // `ssi_signo` stands first
        Signal::from_named_raw(number).filter(|_| whole)
    }
}

impl AsFd for Caught {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A descriptor that is readable when one of these has come, which then does nothing else.
fn descriptor(signals: &[libc::c_int], flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by `sigemptyset` before it is read, lives
    // through the calls, and the descriptor is a new one that nobody else owns.
    unsafe {
        let mut set: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        if libc::sigprocmask(libc::SIG_BLOCK, &set, ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        match libc::signalfd(-1, &set, libc::SFD_CLOEXEC | flags) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// The wish of others that this process ends (a hang-up, an interrupt, a termination), as something to
/// wait for.
pub struct Asked(OwnedFd);

impl Asked {
    /// From now on, for this thread and those it starts. A program that is started later inherits the
    /// mask; start it before.
    pub fn watch() -> io::Result<Asked> {
        descriptor(&[libc::SIGHUP, libc::SIGINT, libc::SIGTERM], 0).map(Asked)
    }

    /// Sleeps until it is asked; by which signal.
    pub fn wait(&self) -> io::Result<i32> {
        let mut told = [0u8; size_of::<libc::signalfd_siginfo>()];
        rustix::io::retry_on_intr(|| rustix::io::read(&self.0, &mut told))?;
        // `ssi_signo` stands first.
        told.first_chunk().map(|number| i32::from_ne_bytes(*number)).ok_or(io::ErrorKind::InvalidData.into())
    }
}
