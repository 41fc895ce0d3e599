//! Numbers that look random and are the same in every run: a failure can be had again.
//!
//! `LARIAT_SEED=N` chooses others.

/// A stream of numbers (splitmix64).
pub struct Chance(u64);

impl Chance {
    /// The stream of this run.
    pub fn new() -> Self {
        let seed = std::env::var("LARIAT_SEED").ok().and_then(|s| s.parse().ok());
        let seed = seed.unwrap_or(20_261_115);
        println!("LARIAT_SEED={seed}"); // shown when the test fails
        Self(seed)
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("below a usize")
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
