//! What every generated line is made of: random numbers, prose, ids and times.
//!
//! All of it is a function of the seed alone, so one seed is one corpus on every
//! machine of the same kind.

use std::fmt;

/// SplitMix64: small, fast, and good enough for filler.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// An independent stream for one part of the corpus, so that parts can be
    /// made in any order and by any thread.
    pub fn stream(seed: u64, part: u64) -> Self {
        let mut mixed = Self(seed ^ part.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        mixed.next();
        Self(mixed.next())
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0..n`; 0 when `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// A number in `low..=high`.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// A number in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    pub fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        // Box-Muller; 1 - u keeps the logarithm away from zero.
        let (u, v) = (1.0 - self.unit(), self.unit());
        let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        median * (sigma * normal).exp()
    }

    /// A random (version 4) id.
    pub fn uuid(&mut self) -> Uuid {
        let (a, b) = (self.next(), self.next());
        Uuid::new((a & !0xF000) | 0x4000, (b >> 2) | (1 << 63))
    }

    /// A time-ordered (version 7) id.
    pub fn uuid_at(&mut self, at: Millis) -> Uuid {
        let (a, b) = (self.next() & 0xFFF, self.next());
        Uuid::new(((at.0 as u64) << 16) | 0x7000 | a, (b >> 2) | (1 << 63))
    }
}

/// An id in its written form.
#[derive(Clone, Copy)]
pub struct Uuid([u8; 36]);

impl Uuid {
    fn new(high: u64, low: u64) -> Self {
        let mut text = [b'-'; 36];
        let mut nibbles = (0..32).map(|i| {
            let half = if i < 16 { high } else { low };
            (half >> (60 - 4 * (i % 16))) & 15
        });
        for (i, slot) in text.iter_mut().enumerate() {
            if !matches!(i, 8 | 13 | 18 | 23) {
                *slot = b"0123456789abcdef"[nibbles.next().unwrap_or(0) as usize];
            }
        }
        Self(text)
    }

    /// The first `n` characters, as short ids inside messages use them.
    pub fn short(&self, n: usize) -> &str {
        str::from_utf8(&self.0[..n]).unwrap_or("")
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.short(36))
    }
}

/// A moment, in milliseconds since 1970; written as agents write it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub i64);

/// The fields of a moment in UTC: year, month, day, hour, minute, second.
pub type Civil = (i64, i64, i64, i64, i64, i64);

impl Millis {
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// Howard Hinnant's days-to-civil, on the proleptic Gregorian calendar.
    pub fn civil(self) -> Civil {
        let seconds = self.seconds();
        let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let doe = shifted.rem_euclid(146_097);
        let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let day = doy - (153 * mp + 2) / 5 + 1;
        let month = if mp < 10 { mp + 3 } else { mp - 9 };
        let year = yoe + era * 400 + i64::from(month <= 2);
        (year, month, day, rest / 3600, rest / 60 % 60, rest % 60)
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (y, mo, d, h, mi, s) = self.civil();
        let ms = self.0.rem_euclid(1000);
        write!(f, "{y:04}-{mo:02}-{d:02}T{h:02}:{mi:02}:{s:02}.{ms:03}Z")
    }
}

/// A pool of prose from which the bodies of JSON strings are cut.
///
/// It is stored already escaped, and cut only at spaces, so that a cut is
/// always a valid string body and costs one copy.
pub struct Pool(String);

impl Pool {
    const BYTES: usize = 2_000_000;

    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::stream(seed, u64::MAX);
        let mut words: Vec<String> = (0..4000)
            .map(|_| {
                let letters = rng.range(2, 10);
                (0..letters).map(|_| char::from(b'a' + rng.below(26) as u8)).collect()
            })
            .collect();
        let code = [
            "fn",
            "let",
            "return",
            "//",
            "{",
            "}",
            "=>",
            "[1]",
            r"\n",
            r"\n    ",
            r"\t",
            r#"\"key\":"#,
            "src/main.rs",
            r"C:\\dir",
            r"\u001b[32mok\u001b[0m",
            "✓",
            "é",
            "日本",
        ];
        // Code is a small part of the words but a fair part of the text.
        words.extend(code.iter().cycle().take(code.len() * 12).map(|word| (*word).to_owned()));
        let mut pool = String::with_capacity(Self::BYTES + 64);
        while pool.len() < Self::BYTES {
            pool.push_str(&words[rng.below(words.len() as u64) as usize]);
            pool.push(' ');
        }
        Self(pool)
    }

    /// About `n` bytes of text.
    pub fn cut(&self, rng: &mut Rng, n: usize) -> &str {
        const MARGIN: usize = 128;
        let n = n.min(Self::BYTES / 4);
        let from = self.after_space(rng.below((self.0.len() - n - MARGIN) as u64) as usize);
        let to = self.after_space(from + n.max(1) - 1);
        &self.0[from..to - 1]
    }

    fn after_space(&self, from: usize) -> usize {
        let rest = &self.0.as_bytes()[from..];
        from + rest.iter().position(|byte| *byte == b' ').map_or(rest.len(), |at| at + 1)
    }
}

/// How long one body is: most are short, some are tool results of 2 to 60 KB.
pub fn body_len(rng: &mut Rng) -> usize {
    let kind = rng.unit();
    let len = if kind < 0.55 {
        rng.log_normal(500.0, 0.8) + 20.0
    } else if kind < 0.93 {
        (rng.log_normal(2_500.0, 0.9) + 50.0).min(30_000.0)
    } else {
        rng.log_normal(12_000.0, 0.7).min(60_000.0)
    };
    len as usize
}
