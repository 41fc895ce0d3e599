//! Adding up what messages used: `input, output, cache_read, cache_write`.

use lariat_core::Tokens;

/// Takes the larger of each: of one message the numbers only grow.
pub fn grow(kept: &mut [u64; 4], seen: &[u64; 4]) {
    for (kept, seen) in kept.iter_mut().zip(seen) {
        *kept = (*kept).max(*seen);
    }
}

/// All messages' together.
pub fn sum<'a>(messages: impl Iterator<Item = &'a [u64; 4]>) -> Tokens {
    let mut total = [0u64; 4];
    for usage in messages {
        for (total, used) in total.iter_mut().zip(usage) {
            *total = total.saturating_add(*used);
        }
    }
    to_tokens(total)
}

/// As a session tells it.
pub fn to_tokens([input, output, cache_read, cache_write]: [u64; 4]) -> Tokens {
    Tokens { input, output, cache_read, cache_write }
}
