//! Many small things of the same kind, done by two threads.
//!
//! It decides nothing, and keeps nothing: what is to be done is told, and whatever came of it is given in the order of the
//! things. Where no thread is to be had, the one that asks does all.

use std::thread::{self, Builder};

use crate::signals;

/// Does it to all of them, in two parts if there are at least `many`: to begin a thread takes as long as some of them.
pub fn by_two<T: Sync, R: Send>(things: &[T], many: usize, part: impl Fn(&[T]) -> Vec<R> + Sync) -> Vec<R> {
    if things.len() < many {
        return part(things);
    }
    let (some, others) = things.split_at(things.len() / 2);
    thread::scope(|scope| {
        let helping = Builder::new().spawn_scoped(scope, || {
            signals::leave_to_others();
            part(others)
        });
        let mut all = part(some);
        let rest = helping.ok().and_then(|thread| thread.join().ok());
        all.extend(rest.unwrap_or_else(|| part(others)));
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_done_once_and_told_in_order() {
        for n in [0, 1, 2, 9] {
            let things: Vec<usize> = (0..n).collect();
            let parts = std::sync::Mutex::new(0);
            let done = by_two(&things, 2, |part| {
                *parts.lock().unwrap() += 1;
                part.iter().map(|n| n * 2).collect()
            });
            assert_eq!(done, things.iter().map(|n| n * 2).collect::<Vec<_>>());
            assert_eq!(parts.into_inner().unwrap(), if n < 2 { 1 } else { 2 });
        }
    }
}
