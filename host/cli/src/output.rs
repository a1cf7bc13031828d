//! Output: results on standard output, as tables or as JSON; everything else on standard error.
//!
//! Some of the text is untrusted: notes of rules, completions, titles of documents. All text is
//! escaped here, so that none can move the cursor, forge a line or send commands to the terminal.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use comfy_table::{Cell, CellAlignment, Table, TableComponent, presets};
use corver_core::Decoding;
use corver_core::text::escape_controls;
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use serde::Serialize;

use crate::interrupt::Interrupt;

/// Prints a value as JSON on one line.
pub fn json<T: Serialize>(value: &T) -> anyhow::Result<()> {
    line(serde_json::to_string(value)?);
    Ok(())
}

/// Prints a line of text; line breaks in it are escaped.
pub fn line(text: impl Display) {
    print(&format!("{}\n", escaped(&text.to_string())));
}

/// Prints several lines, which this program composed of parts without line breaks.
pub fn lines(text: &str) {
    text.lines().for_each(line);
}

/// Prints running text on one indented line; the parts marked true are emphasised.
pub fn running_text<'a>(parts: impl IntoIterator<Item = (&'a str, bool)>) {
    let mut line = String::new();
    for (part, is_emphasised) in parts {
        let text = escaped(&part.replace(char::is_whitespace, " "));
        line += &if is_emphasised { emphasised(&text) } else { text };
    }
    print(&format!("    {}\n", line.split_whitespace().collect::<Vec<_>>().join(" ")));
}

/// Escapes control characters, line breaks and characters that change the direction of writing.
pub fn escaped(text: &str) -> String {
    escape_controls(text, &[])
}

/// Standard error for log events: each is written with one call, on one line.
pub struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, event: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        // Escape characters are the subscriber's colours; it escapes those of logged values.
        let coloured: Vec<String> =
            text.trim_end_matches('\n').split('\x1b').map(escaped).collect();
        // The subscriber would report an error on standard error, and panic if that fails too.
        error_line(&coloured.join("\x1b"));
        Ok(event.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

/// Prints text, which is escaped already, on standard error. An error is ignored: the reader may have
/// ended, as that of `2>&1 | tee log` after Ctrl-C, and a run must still save its state.
pub fn error_line(text: &str) {
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Writes to standard output. Exits successfully if the reader closed the pipe, as `| head` does.
fn print(text: &str) {
    if let Err(error) = std::io::stdout().lock().write_all(text.as_bytes()) {
        let is_closed = error.kind() == std::io::ErrorKind::BrokenPipe;
        if !is_closed {
            error_line(&format!("error: cannot write to standard output: {error}"));
        }
        std::process::exit(i32::from(!is_closed));
    }
}

/// Columns of the terminal beyond which a table of few rows is transposed.
const MAX_WIDTH: usize = 100;

/// Prints a table whose rows have the header's length. Columns after the first are right-aligned.
pub fn table<T: AsRef<str>>(
    header: impl AsRef<[T]>,
    rows: impl IntoIterator<Item = impl AsRef<[String]>>,
) {
    let mut all = vec![header.as_ref().iter().map(|title| title.as_ref().to_owned()).collect()];
    for row in rows {
        all.push(row.as_ref().to_vec());
    }
    lines(&table_text(all));
}

/// Returns the text of a table whose first row is the header. A wide table that has fewer rows, with
/// the header, than columns is transposed if that makes it narrower.
fn table_text(rows: Vec<Vec<String>>) -> String {
    let text = formatted(&rows);
    if width(&text) <= MAX_WIDTH || rows.len() == 1 || rows.len() >= rows[0].len() {
        return text;
    }
    let mut transposed = vec![Vec::new(); rows[0].len()];
    for row in rows {
        for (column, cell) in transposed.iter_mut().zip(row) {
            column.push(cell);
        }
    }
    let transposed = formatted(&transposed);
    if width(&transposed) < width(&text) { transposed } else { text }
}

fn width(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

/// Returns the text of a table whose first row is the header.
fn formatted(rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table.remove_style(TableComponent::HorizontalLines);
    table.remove_style(TableComponent::MiddleIntersections);
    table.set_header(aligned_cells(&rows[0]));
    for row in &rows[1..] {
        table.add_row(aligned_cells(row));
    }
    table.to_string()
}

fn aligned_cells(texts: &[impl AsRef<str>]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (column, text) in texts.iter().enumerate() {
        let alignment = if column == 0 { CellAlignment::Left } else { CellAlignment::Right };
        cells.push(Cell::new(escaped(text.as_ref())).set_alignment(alignment));
    }
    cells
}

/// Formats a share as a percentage with one decimal.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Colour of a mark: green, red or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Good,
    Bad,
    Plain,
}

/// Prints a text after a mark, which is coloured on a terminal.
pub fn marked(mark: &str, tone: Tone, text: &str) {
    let colour = match tone {
        _ if is_plain() => None,
        Tone::Good => Some(32),
        Tone::Bad => Some(31),
        Tone::Plain => None,
    };
    let mark = format!("{mark:>11}");
    let mark = colour.map_or(mark.clone(), |colour| format!("\x1b[{colour}m{mark}\x1b[0m"));
    print(&format!("{mark}  {}\n", escaped(text)));
}

/// True if standard output is not a terminal, or `NO_COLOR` is set.
fn is_plain() -> bool {
    !has_colours(&std::io::stdout())
}

/// True if a stream is a terminal and `NO_COLOR` is not set.
pub fn has_colours(stream: &impl IsTerminal) -> bool {
    let forbids_colours = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    stream.is_terminal() && !forbids_colours
}

/// Emphasises a text: bold on a terminal, else between asterisks.
fn emphasised(text: &str) -> String {
    if is_plain() { format!("**{text}**") } else { format!("\x1b[1m{text}\x1b[0m") }
}

/// Returns a progress bar, which is hidden if standard error is not a terminal.
pub fn progress(total: u64, what: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    // The first step is needed to estimate the remaining time.
    let left = |state: &ProgressState, text: &mut dyn std::fmt::Write| {
        if state.pos() > 0 {
            // Writing to indicatif's string buffer cannot fail.
            let _ = write!(text, ", {:#} left", HumanDuration(state.eta()));
        }
    };
    let style =
        ProgressStyle::with_template("{msg:>12} [{bar:32}] {human_pos}/{human_len}{left}{prefix}")
            .expect("a constant template that parses")
            .with_key("left", left)
            .progress_chars("=> ");
    ProgressBar::new(total).with_style(style).with_message(what)
}

/// Interval between progress lines in a log.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// Returns a callback that shows decoding progress: after the bar, or in a line every
/// [`LOG_INTERVAL`] if the bar is hidden. It stops decoding once the interrupt is requested.
pub fn decoding(
    bar: &ProgressBar,
    interrupt: Option<&Interrupt>,
) -> impl FnMut(Decoding) -> ControlFlow<()> + 'static {
    let bar = bar.clone();
    let interrupt = interrupt.cloned();
    let mut last_line = Instant::now();
    let mut previous = (None, 0);
    move |Decoding { tokens, limit, ended, rows }| {
        // Progress that decreases belongs to a new batch.
        if (tokens, ended) < previous {
            last_line = Instant::now();
        }
        previous = (tokens, ended);
        let token = tokens
            .map_or_else(String::new, |tokens| format!("token {tokens} of at most {limit}, "));
        let text = format!("{token}{ended} of {rows} finished");
        if !bar.is_hidden() {
            bar.set_prefix(format!(" ({text})"));
        } else if last_line.elapsed() >= LOG_INTERVAL {
            last_line = Instant::now();
            note(&bar, &format!("decoding: {text}"));
        }
        if interrupt.as_ref().is_some_and(Interrupt::is_requested) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// Prints a line on standard error, above the progress bar.
pub fn note(bar: &ProgressBar, text: &str) {
    let text = escaped(text);
    if bar.is_hidden() { error_line(&text) } else { bar.println(text) }
}

/// Prints the lines of texts as [`note`] does.
pub fn notes(bar: &ProgressBar, texts: impl IntoIterator<Item = impl Display>) {
    for text in texts {
        text.to_string().lines().for_each(|line| note(bar, line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_table_of_few_rows_is_transposed() {
        let row = |text: &str, columns: usize| -> Vec<String> {
            (0..columns).map(|n| format!("{text} {n}")).collect()
        };
        let transposed = table_text(vec![row("figure", 12), row("value", 12)]);
        assert!(width(&transposed) < 30, "{transposed}");
        assert_eq!(transposed.lines().count(), 15, "{transposed}");
        let num_lines = |rows| table_text(rows).lines().count();
        assert_eq!(num_lines(vec![row("figure", 3), row("value", 3)]), 5, "narrow");
        assert_eq!(num_lines(vec![row("figure", 12); 12]), 15, "as many rows");
        let mut named = row("value", 12);
        named[0] = "name ".repeat(9);
        let rows = [vec![row("figure", 12)], vec![named; 4]].concat();
        assert_eq!(num_lines(rows), 8, "wider if transposed");
        assert_eq!(num_lines(vec![row("figure", 12)]), 4, "no rows");
    }

    #[test]
    fn terminal_control_characters_are_escaped() {
        assert_eq!(
            escaped("a\nerror: b\r\x1b[2J\u{9b}1m\x07\u{202e}"),
            r"a\u000aerror: b\u000d\u001b[2J\u009b1m\u0007\u202e"
        );
        assert_eq!(escaped("“Größe” 世界 − é"), "“Größe” 世界 − é");
        let text = "tab\t and \x7f and \u{85}";
        let json = escaped(&serde_json::to_string(text).unwrap());
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text, "{json}");
    }
}
