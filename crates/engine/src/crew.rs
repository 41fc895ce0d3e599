//! Threads that share a few jobs: two if the jobs are quick, one for each if they are not.
//!
//! Most jobs of a look have next to nothing to do, and to start a thread takes longer than that. But one that hangs
//! must keep nobody else waiting: whoever has waited a moment for a job asks for [`Crew::help`].
//!
//! It never waits for a job, and never ends one.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;

use lariat_sys::signals;

/// How many threads begin.
const FIRST: usize = 2;

/// Something to do. One that panics is dropped, and its thread takes the next.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Threads, and the jobs that none of them has begun.
pub(crate) struct Crew {
    jobs: Arc<Mutex<VecDeque<Job>>>,
}

impl Crew {
    /// Begins the jobs, in their order. Where there is no thread to be had, they are dropped.
    pub fn begin(jobs: impl IntoIterator<Item = Job>) -> Crew {
        let crew = Crew { jobs: Arc::new(Mutex::new(jobs.into_iter().collect())) };
        let begun = (0..FIRST).filter(|_| crew.help()).count();
        if begun == 0 {
            crew.jobs.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        crew
    }

    /// Adds a thread, if there is a job that none has begun; whether one was added.
    pub fn help(&self) -> bool {
        let jobs = Arc::clone(&self.jobs);
        let next = move || jobs.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let left = !self.jobs.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        let work = move || {
            signals::leave_to_others();
            while let Some(job) = next() {
                let _ = catch_unwind(AssertUnwindSafe(job)); // whoever waits for it is hung up on
            }
        };
        left && Builder::new().name("look".into()).spawn(work).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn one_that_hangs_keeps_nobody_waiting_who_asks_for_help() {
        let (free, hung) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let hung = Arc::new(Mutex::new(hung));
        let hang = || -> Job {
            let hung = Arc::clone(&hung);
            Box::new(move || drop(hung.lock().map(|hung| hung.recv())))
        };
        let job = |n: usize| -> Job {
            let tell = tell.clone();
            Box::new(move || tell.send(n).unwrap())
        };
        let crew = Crew::begin([hang(), hang(), hang(), job(1), job(2)]);
        assert!(crew.help() && crew.help(), "two are not begun, for the third hangs too");
        let mut done = [told.recv().unwrap(), told.recv().unwrap()];
        done.sort_unstable();
        assert_eq!(done, [1, 2]);
        assert!(!crew.help(), "nothing is left to begin");
        drop(free);
    }

    #[test]
    fn one_that_panics_hangs_up_and_its_thread_goes_on() {
        let (tell, told) = mpsc::channel::<()>();
        let (last, done) = mpsc::channel();
        let broken = || -> Job {
            let tell = tell.clone();
            Box::new(move || assert!(tell.send(()).is_err(), "a job that panics, as it should"))
        };
        let jobs = [broken(), broken(), Box::new(move || last.send(7).unwrap())];
        drop(tell);
        let _crew = Crew::begin(jobs);
        assert_eq!(done.recv().unwrap(), 7);
        assert_eq!(told.iter().count(), 2, "both began, and hung up");
    }
}
