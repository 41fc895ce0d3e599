//! A terminal's screen as it looks: rows of text with their styles, to be printed once more or drawn.
//!
//! The same screen gives the same picture, byte by byte. It looks at nothing but the screen it is given.

use std::fmt::Write as _;
use std::num::NonZeroU16;

use vt100::{Color, Parser, Screen};

use crate::Size;

/// Cells side by side that look alike.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    text: String,
    /// How many columns it takes.
    cells: usize,
    style: Style,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Style {
    bold: bool,
    dim: bool,
    underlined: bool,
    inverse: bool,
    ink: Color,
    ground: Color,
}

/// A screen as it looked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    columns: usize,
    rows: Vec<Vec<Run>>,
}

/// Of a picture: ink, ground, and what stands around them.
const PAPER: &str = "#16181d";
const INK: &str = "#d8dce3";
/// The eight colours of a terminal, and their bright ones.
const COLOURS: [&str; 16] = [
    "#3b4048", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56c2d6", "#d8dce3", "#5c6370", "#ef7a85",
    "#a9d18e", "#f0d08c", "#78bdf5", "#d48ee8", "#6fd3e5", "#ffffff",
];
/// A cell, in the units of the drawing.
const WIDE: f64 = 8.4;
const HIGH: usize = 18;
const MARGIN: usize = 12;

impl Picture {
    /// Of what a terminal shows.
    pub fn of(screen: &Screen) -> Picture {
        let (rows, columns) = screen.size();
        let row = |at| Self::row(screen, at, columns.get());
        Picture { columns: columns.get().into(), rows: (0..rows.get()).map(row).collect() }
    }

    /// Of rows with their escape sequences, as `tmux capture-pane -e` prints them.
    ///
    /// # Panics
    /// When a terminal of that size cannot be.
    pub fn of_rows(rows: &str, size: Size) -> Picture {
        let cells = |n| NonZeroU16::new(n).expect("a terminal has at least one row and column");
        let mut parser = Parser::new(cells(size.rows), cells(size.cols), 0);
        for (at, row) in (1..).zip(rows.lines()) {
            parser.process(format!("\x1b[{at};1H{row}").as_bytes());
        }
        Self::of(parser.screen())
    }

    fn row(screen: &Screen, row: u16, columns: u16) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for cell in (0..columns).filter_map(|column| screen.cell(row, column)) {
            if cell.is_wide_continuation() {
                if let Some(run) = runs.last_mut() {
                    run.cells += 1;
                }
                continue;
            }
            let style = Style {
                bold: cell.bold(),
                dim: cell.dim(),
                underlined: cell.underline(),
                inverse: cell.inverse(),
                ink: cell.fgcolor(),
                ground: cell.bgcolor(),
            };
            let text = if cell.has_contents() { cell.contents() } else { " " };
            match runs.last_mut().filter(|run| run.style == style) {
                Some(run) => {
                    run.text.push_str(text);
                    run.cells += 1;
                }
                None => runs.push(Run { text: text.to_owned(), cells: 1, style }),
            }
        }
        runs
    }

    /// Its rows as text, down to the last one that is not blank; with the sequences that make it look so on
    /// another terminal, if wanted.
    pub fn rows(&self, styled: bool) -> Vec<String> {
        let mut rows: Vec<String> = Vec::new();
        let mut used = 0;
        for row in &self.rows {
            if row.iter().any(|run| !run.text.trim().is_empty()) {
                used = rows.len() + 1;
            }
            rows.push(row.iter().map(|run| if styled { run.styled() } else { run.text.clone() }).collect());
        }
        rows.truncate(used);
        rows
    }

    /// As a drawing (SVG). It holds no script, asks for nothing from elsewhere, and its columns stand where they
    /// stood, whatever the font.
    pub fn svg(&self) -> String {
        let across = |cells: usize| (cells as f64) * WIDE;
        let (wide, high) = (across(self.columns) + 2.0 * MARGIN as f64, self.rows.len() * HIGH + 2 * MARGIN);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {wide:.1} {high}\" width=\"{wide:.1}\" \
             font-family=\"ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace\" font-size=\"14\">\n\
             <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{PAPER}\"/>\n"
        );
        for (at, row) in self.rows.iter().enumerate() {
            let mut column = 0;
            for run in row {
                let (x, y) = (MARGIN as f64 + across(column), MARGIN + at * HIGH);
                column += run.cells;
                let (ink, ground) = run.style.colours();
                let width = across(run.cells);
                // Memory takes every write.
                if ground != PAPER {
                    let _ = writeln!(
                        svg,
                        "<rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{HIGH}\" fill=\"{ground}\"/>"
                    );
                }
                if run.text.trim().is_empty() {
                    continue;
                }
                let (before, after) = (run.text.len() - run.text.trim_start().len(), run.text.trim_end().len());
                let text = &run.text[before..after];
                let cells = run.cells - before - (run.text.len() - after);
                let more = run.style.more();
                let _ = writeln!(
                    svg,
                    "<text x=\"{:.1}\" y=\"{}\" textLength=\"{:.1}\" lengthAdjust=\"spacingAndGlyphs\" \
                     fill=\"{ink}\"{more} xml:space=\"preserve\">{}</text>",
                    x + across(before),
                    y + 13,
                    across(cells),
                    escaped(text)
                );
            }
        }
        svg + "</svg>\n"
    }
}

impl Run {
    fn styled(&self) -> String {
        let mut codes = Vec::new();
        let style = &self.style;
        let flags = [(style.bold, 1), (style.dim, 2), (style.underlined, 4), (style.inverse, 7)];
        codes.extend(flags.into_iter().filter(|(on, _)| *on).map(|(_, code)| code.to_string()));
        for (colour, base) in [(style.ink, 38), (style.ground, 48)] {
            match colour {
                Color::Default => {}
                Color::Idx(n) => codes.push(format!("{base};5;{n}")),
                Color::Rgb(r, g, b) => codes.push(format!("{base};2;{r};{g};{b}")),
            }
        }
        if codes.is_empty() { self.text.clone() } else { format!("\x1b[{}m{}\x1b[0m", codes.join(";"), self.text) }
    }
}

impl Style {
    fn colours(self) -> (String, String) {
        let (ink, ground) = (colour(self.ink, INK), colour(self.ground, PAPER));
        if self.inverse { (ground, ink) } else { (ink, ground) }
    }

    fn more(self) -> String {
        let mut more = String::new();
        for (on, says) in [
            (self.bold, " font-weight=\"bold\""),
            (self.dim, " opacity=\"0.65\""),
            (self.underlined, " text-decoration=\"underline\""),
        ] {
            more.push_str(if on { says } else { "" });
        }
        more
    }
}

fn colour(colour: Color, default: &str) -> String {
    match colour {
        Color::Default => default.to_owned(),
        Color::Idx(n @ 0..16) => COLOURS[usize::from(n)].to_owned(),
        // The cube of six, then the greys, as terminals have them.
        Color::Idx(n @ 16..232) => {
            let level = |step: u8| if step == 0 { 0 } else { 55 + step * 40 };
            let n = n - 16;
            format!("#{:02x}{:02x}{:02x}", level(n / 36), level(n / 6 % 6), level(n % 6))
        }
        Color::Idx(n) => format!("#{0:02x}{0:02x}{0:02x}", 8 + (n - 232) * 10),
        Color::Rgb(r, g, b) => format!("#{r:02x}{g:02x}{b:02x}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_stands_where_it_stood() {
        let size = Size { rows: 3, cols: 12 };
        let picture = Picture::of_rows("a \x1b[1;33mb<c\x1b[0m  d\n\x1b[7m chosen \x1b[0m", size);
        assert_eq!(picture.rows(false), ["a b<c  d    ", " chosen     "]);
        assert_eq!(picture.rows(true)[0], "a \x1b[1;38;5;3mb<c\x1b[0m  d    ");
        let svg = picture.svg();
        let bold = "<text x=\"28.8\" y=\"25\" textLength=\"25.2\" lengthAdjust=\"spacingAndGlyphs\" \
                    fill=\"#e5c07b\" font-weight=\"bold\" xml:space=\"preserve\">b&lt;c</text>";
        assert!(svg.contains(bold), "{svg}");
        let chosen = format!("width=\"67.2\" height=\"18\" fill=\"{INK}\"/>\n<text x=\"20.4\"");
        assert!(svg.contains(&chosen), "{svg}");
        assert_eq!(svg, Picture::of_rows("a \x1b[1;33mb<c\x1b[0m  d\n\x1b[7m chosen \x1b[0m", size).svg());
    }
}
