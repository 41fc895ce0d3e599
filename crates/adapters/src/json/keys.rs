//! A set of keys, made when the program is built.
//!
//! A line of a transcript has some fifty keys, and most of them nobody wants: to tell so by comparing each with all
//! that are wanted took longer than anything else about reading a line. Here it takes one look, or hardly more.

/// One for each tag. Few of them are taken: a key that is not wanted mostly meets an empty one.
const SLOTS: usize = 256;

/// Keys that are wanted.
#[derive(Debug)]
pub struct Keys([&'static [u8]; SLOTS]);

impl Keys {
    /// These keys, none of which may be empty.
    pub const fn new(keys: &[&'static [u8]]) -> Keys {
        assert!(keys.len() <= SLOTS / 4, "more keys want more slots");
        let mut slots: [&'static [u8]; SLOTS] = [b""; SLOTS];
        let mut i = 0;
        while i < keys.len() {
            assert!(!keys[i].is_empty(), "an empty slot is an empty key");
            let mut at = tag(keys[i]) as usize;
            while !slots[at].is_empty() {
                at = (at + 1) % SLOTS;
            }
            slots[at] = keys[i];
            i += 1;
        }
        Keys(slots)
    }

    /// Whether this one is wanted.
    #[inline]
    pub fn has(&self, key: &[u8]) -> bool {
        let mut at = tag(key) as usize;
        loop {
            match self.0[at] {
                b"" => return false,
                wanted if wanted == key => return true,
                _ => at = (at + 1) % SLOTS,
            }
        }
    }
}

/// A number that most keys have for themselves: who looks for one compares that first.
#[inline]
pub(super) const fn tag(key: &[u8]) -> u8 {
    let Some(last) = key.len().checked_sub(1) else { return 0 };
    (key[0] as usize * 3 + key[last] as usize * 11 + key[last / 2] as usize * 23 + last * 29) as u8
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WANTED: [&[u8]; 6] = [b"id", b"di", b"type", b"types", b"a", b"usage"];
    static KEYS: Keys = Keys::new(&WANTED);

    #[test]
    fn has_what_it_was_given() {
        assert!(WANTED.iter().all(|key| KEYS.has(key)));
    }

    proptest! {
        #[test]
        fn has_nothing_else(key in "[aditypesug]{0,6}") {
            prop_assert_eq!(KEYS.has(key.as_bytes()), WANTED.contains(&key.as_bytes()));
        }
    }
}
