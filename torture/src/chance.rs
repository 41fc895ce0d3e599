//! Numbers that look random and can be had again by their seed.

use std::time::Duration;

/// A stream of numbers (splitmix64).
#[derive(Clone)]
pub struct Chance(u64);

impl Chance {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed that gives what is still to come.
    pub fn seed(&self) -> u64 {
        self.0
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.below(from.len() as u64)).unwrap_or(0)]
    }

    /// A time below `end`.
    pub fn moment(&mut self, end: Duration) -> Duration {
        Duration::from_nanos(self.below(u64::try_from(end.as_nanos()).unwrap_or(u64::MAX).max(1)))
    }
}
