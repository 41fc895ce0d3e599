//! Lines that fit: folding and placing text. All of it is ours or escaped already.

use lariat_core::text::columns;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use crate::output::{Ink, Spans};

/// Marks without a width that one place may carry.
const MARKS: usize = 4;

/// How an ink looks: a colour never says what no word or shape says.
pub fn style(ink: Ink) -> Style {
    let style = Style::new();
    match ink {
        Ink::Plain => style,
        Ink::Dim => style.add_modifier(Modifier::DIM),
        Ink::Bold => style.add_modifier(Modifier::BOLD),
        Ink::Urgent => style.fg(Color::Yellow).add_modifier(Modifier::BOLD),
        Ink::Active => style.fg(Color::Cyan),
        Ink::Odd => style.fg(Color::Magenta),
    }
}

/// A line of one ink.
pub fn line(ink: Ink, text: impl Into<String>) -> Spans {
    vec![(ink, text.into())]
}

/// A line of at most so many columns, ending in `…` if cut.
pub fn cut(spans: &Spans, width: usize) -> Spans {
    if spans.iter().map(|(_, text)| columns(text)).sum::<usize>() <= width {
        return spans.clone();
    }
    let mut left = width.saturating_sub(1);
    let mut kept = Spans::new();
    for (ink, text) in spans {
        let mut short = String::new();
        for c in text.chars() {
            let wide = columns(c.encode_utf8(&mut [0; 4]));
            if wide > left {
                kept.push((*ink, short + "…"));
                return kept;
            }
            left -= wide;
            short.push(c);
        }
        kept.push((*ink, short));
    }
    kept
}

/// Folds a line to so many columns, between words where there are some.
pub fn fold(spans: &Spans, width: usize) -> Vec<Spans> {
    let width = width.max(1);
    let mut rows: Vec<Vec<(Ink, char)>> = vec![Vec::new()];
    let (mut used, mut marks) = (0, 0);
    for (ink, c) in spans.iter().flat_map(|(ink, text)| text.chars().map(|c| (*ink, c))) {
        let wide = columns(c.encode_utf8(&mut [0; 4]));
        // What has no width is bounded, and what only asks for another picture is left out.
        marks = if wide == 0 { marks + 1 } else { 0 };
        if marks > MARKS || matches!(c, '\u{fe00}'..='\u{fe0f}') {
            continue;
        }
        if used + wide > width {
            let row = rows.last_mut().map(std::mem::take).unwrap_or_default();
            let space = row.iter().rposition(|(_, c)| *c == ' ').filter(|at| c != ' ' && *at * 2 > row.len());
            let (kept, over) = row.split_at(space.map_or(row.len(), |at| at + 1));
            let over = over.to_vec();
            if let Some(last) = rows.last_mut() {
                *last = kept.to_vec();
            }
            used = over.iter().map(|(_, c)| columns(c.encode_utf8(&mut [0; 4]))).sum();
            rows.push(over);
            if c == ' ' {
                continue;
            }
        }
        if let Some(row) = rows.last_mut() {
            row.push((ink, c));
            used += wide;
        }
    }
    rows.into_iter().map(|row| together(&row)).collect()
}

fn together(row: &[(Ink, char)]) -> Spans {
    let mut spans: Spans = Vec::new();
    for (ink, c) in row {
        match spans.last_mut().filter(|(last, _)| last == ink) {
            Some((_, text)) => text.push(*c),
            None => spans.push((*ink, c.to_string())),
        }
    }
    spans
}

/// Folds all lines.
pub fn fold_all(lines: &[Spans], width: usize) -> Vec<Spans> {
    lines.iter().flat_map(|line| fold(line, width)).collect()
}

/// Puts a line on a row; what does not fit is cut.
pub fn put(buffer: &mut Buffer, x: u16, y: u16, width: u16, spans: &Spans) {
    put_styled(buffer, x, y, width, spans, style);
}

/// The same, with another look.
pub fn put_styled(buffer: &mut Buffer, x: u16, y: u16, width: u16, spans: &Spans, look: impl Fn(Ink) -> Style) {
    let area = *buffer.area();
    if y >= area.bottom() || x >= area.right() {
        return;
    }
    let end = x.saturating_add(width).min(area.right());
    let mut at = x;
    for (ink, text) in spans {
        if at >= end {
            return;
        }
        at = buffer.set_stringn(at, y, text, usize::from(end - at), look(*ink)).0;
    }
}

/// Puts lines below each other.
pub fn put_all<'a>(buffer: &mut Buffer, area: Rect, lines: impl IntoIterator<Item = &'a Spans>) {
    for (spans, y) in lines.into_iter().zip(area.top()..area.bottom()) {
        put(buffer, area.x, y, area.width, spans);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(text: &str, width: usize) -> Vec<String> {
        let rows = fold(&line(Ink::Plain, text), width);
        rows.iter().map(|row| row.iter().map(|(_, t)| t.as_str()).collect()).collect()
    }

    #[test]
    fn what_is_cut_says_so() {
        let spans = vec![(Ink::Bold, "lariat".to_owned()), (Ink::Plain, "  1 日本".to_owned())];
        let shown = |width| cut(&spans, width).into_iter().map(|(_, text)| text).collect::<String>();
        assert_eq!(
            [14, 13, 12, 7, 6, 1].map(shown),
            ["lariat  1 日本", "lariat  1 日…", "lariat  1 …", "lariat…", "laria…", "…"]
        );
    }

    #[test]
    fn lines_are_folded_between_words_and_nothing_is_lost() {
        assert_eq!(folded("one two three", 8), ["one two ", "three"]);
        assert_eq!(folded("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(folded("日本語", 5), ["日本", "語"]);
        assert_eq!(folded("", 5), [""]);
        assert_eq!(folded("a b", 1), ["a", "b"]);
        let pile = format!("x{}", "\u{301}".repeat(1000));
        assert_eq!(folded(&pile, 4)[0].chars().count(), 1 + MARKS);
        for width in 1..20 {
            for row in folded("the quick brown fox 日本語 jumps over the lazy dog", width) {
                assert!(columns(&row) <= width.max(2), "{width}: {row:?}");
            }
        }
    }
}
