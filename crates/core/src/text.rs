//! Text that an agent, a repository or a stranger chose: [`Untrusted`].
//!
//! It may hold escape sequences, direction overrides, a thousand combining
//! marks or a newline where a row should end. There is no way to print it but
//! through [`Untrusted::row`] and [`Untrusted::block`], which show every such
//! character visibly and strip nothing, so what was sent can be seen.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};
use unicode_width::UnicodeWidthChar;

/// Text from outside. It has no `Display`: choose [`row`](Self::row) or
/// [`block`](Self::block). As data (JSON) it stays what it was.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Untrusted(Cow<'static, str>);

impl Untrusted {
    /// Takes the text in, as it is.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Cow::Owned(text.into()))
    }

    /// The raw text, for comparing and searching; never for printing.
    pub fn raw(&self) -> &str {
        &self.0
    }

    /// The text on one row: newlines and tabs are shown as escapes too.
    pub fn row(&self) -> String {
        let mut out = String::with_capacity(self.0.len());
        self.0.chars().for_each(|c| push_shown(&mut out, c));
        out
    }

    /// The text on one row of at most `width` columns, ending in `…` if cut.
    pub fn row_within(&self, width: usize) -> String {
        fit(&self.0, width)
    }

    /// The text over several rows: newlines stay, a tab is four spaces.
    pub fn block(&self) -> String {
        let mut out = String::with_capacity(self.0.len());
        let mut chars = self.0.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '\n' => out.push('\n'),
                '\r' if chars.peek() == Some(&'\n') => {}
                '\t' => out.push_str("    "),
                c => push_shown(&mut out, c),
            }
        }
        out
    }
}

impl From<String> for Untrusted {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text))
    }
}

impl From<&'static str> for Untrusted {
    fn from(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl fmt::Debug for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// Shows any text on one row within `width` columns, escaped, `…` if cut.
/// Zero-width marks are bounded too, so a pile of them cannot grow a cell.
pub fn fit(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut used = 0;
    let mut shown = String::new();
    let mut cut_at = 0; // where to cut if the rest does not fit: leaves room for the ellipsis
    for (n, c) in text.chars().enumerate() {
        shown.clear();
        push_shown(&mut shown, c);
        let wide = columns(&shown);
        if used + wide > width || n > width.saturating_mul(4) {
            out.truncate(cut_at);
            if width > 0 {
                out.push('…');
            }
            return out;
        }
        out.push_str(&shown);
        used += wide;
        if used < width {
            cut_at = out.len();
        }
    }
    out
}

/// How many columns text takes once shown.
pub fn columns(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

fn push_shown(out: &mut String, c: char) {
    match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if is_hidden(c) => {
            let code = c as u32;
            let escape = if code < 0x100 { write!(out, "\\x{code:02x}") } else { write!(out, "\\u{{{code:x}}}") };
            debug_assert!(escape.is_ok(), "a String takes every write");
        }
        c => out.push(c),
    }
}

/// Whether a character acts on a terminal or on its neighbours instead of
/// being seen: C0, DEL, C1, format characters (Cf), line and paragraph
/// separators.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}'
            | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0001}' | '\u{e0020}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shows_what_would_act() {
        let text = Untrusted::new("a\x1b[2Jb\u{202e}c\u{9b}d\ne\tf");
        assert_eq!(text.row(), "a\\x1b[2Jb\\u{202e}c\\x9bd\\ne\\tf");
        assert_eq!(text.block(), "a\\x1b[2Jb\\u{202e}c\\x9bd\ne    f");
    }

    #[test]
    fn cuts_by_columns() {
        assert_eq!(fit("hello", 5), "hello");
        assert_eq!(fit("hello!", 5), "hell…");
        assert_eq!(fit("日本語", 5), "日本…");
        assert_eq!(fit("日本語", 4), "日…");
        assert_eq!(fit("x", 0), "");
    }

    proptest! {
        #[test]
        fn nothing_hidden_gets_out(text in any::<String>(), width in 0usize..40) {
            let text = Untrusted::new(text);
            for shown in [text.row(), text.row_within(width)] {
                prop_assert!(!shown.chars().any(is_hidden), "{:?}", shown);
            }
            prop_assert!(!text.block().chars().any(|c| c != '\n' && is_hidden(c)));
            prop_assert!(columns(&text.row_within(width)) <= width);
        }

        #[test]
        fn escape_soup_stays_on_its_row(text in "[\\x00-\\x1f\\x7f-\\u{9f}\\u{200b}-\\u{206f}a\\]\\[;]{0,64}", width in 0usize..200) {
            let row = Untrusted::new(text).row_within(width);
            prop_assert!(!row.chars().any(is_hidden));
            prop_assert_eq!(row.lines().count(), usize::from(!row.is_empty()));
        }
    }
}
