//! Results go to standard output, as a table for people or as JSON; everything else goes to
//! standard error.
//!
//! Much of it was written by somebody else: a rule's notes, a model's text, a document's title.
//! What would not show as itself but do something to the terminal is escaped here, whoever wrote
//! it, so that no such text can look like more than one.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use comfy_table::{Cell, CellAlignment, Table, presets};
use corver_core::Decoding;
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use serde::Serialize;

/// Prints a value as JSON on one line.
pub fn json<T: Serialize>(value: &T) -> anyhow::Result<()> {
    line(serde_json::to_string(value)?);
    Ok(())
}

/// Prints a line of text; a line end within it is escaped.
pub fn line(text: impl std::fmt::Display) {
    print(&format!("{}\n", escaped(&text.to_string())));
}

/// Prints lines that this program composed, of parts that hold no line ends.
pub fn lines(text: &str) {
    text.lines().for_each(line);
}

/// Prints running text on one indented line; the parts marked true stand out.
pub fn running_text<'a>(parts: impl IntoIterator<Item = (&'a str, bool)>) {
    let shown = |(text, stands_out): (&str, bool)| {
        let text = escaped(&text.replace(char::is_whitespace, " "));
        if stands_out { emphasised(&text) } else { text }
    };
    let text: String = parts.into_iter().map(shown).collect();
    print(&format!("    {}\n", text.split_whitespace().collect::<Vec<_>>().join(" ")));
}

/// The text with every character escaped that moves the cursor, ends a line, changes the direction
/// of writing or starts a command to the terminal; as in JSON, so that JSON stays the same value.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if c.is_control() => write!(escaped, "\\u{:04x}", u32::from(c)),
            '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => {
                write!(escaped, "\\u{:04x}", u32::from(c))
            }
            c => escaped.write_char(c),
        }
        .expect("a String takes everything");
    }
    escaped
}

/// Standard error for log lines: each arrives whole, and stays one line.
pub struct Log;

impl Write for Log {
    fn write(&mut self, event: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        // Colours are the subscriber's own; it has escaped what others wrote.
        let coloured: Vec<String> =
            text.trim_end_matches('\n').split('\x1b').map(escaped).collect();
        std::io::stderr().write_all(format!("{}\n", coloured.join("\x1b")).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

/// A reader that closes the pipe, as `| head` does, ends the program without an error.
fn print(text: &str) {
    if let Err(error) = std::io::stdout().lock().write_all(text.as_bytes()) {
        let gone = error.kind() == std::io::ErrorKind::BrokenPipe;
        if !gone {
            eprintln!("error: cannot write to standard output: {error}");
        }
        std::process::exit(i32::from(!gone));
    }
}

/// Prints a table; columns after the first are numbers and stand to the right.
pub fn table<'a>(
    header: impl AsRef<[&'a str]>,
    rows: impl IntoIterator<Item = impl AsRef<[String]>>,
) {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    let aligned = |cells: Vec<String>| -> Vec<Cell> {
        let place = |(column, text): (usize, String)| {
            let alignment = if column == 0 { CellAlignment::Left } else { CellAlignment::Right };
            Cell::new(escaped(&text)).set_alignment(alignment)
        };
        cells.into_iter().enumerate().map(place).collect()
    };
    table.set_header(aligned(header.as_ref().iter().map(|&name| name.to_owned()).collect()));
    for row in rows {
        table.add_row(aligned(row.as_ref().to_vec()));
    }
    lines(&table.to_string());
}

/// A share, as a person reads it.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// How a mark is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Good,
    Bad,
    Plain,
}

/// Prints a text behind a mark, which is green or red on a terminal.
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

/// Nobody looks at a terminal, or colours are not wanted.
fn is_plain() -> bool {
    !std::io::stdout().is_terminal()
        || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Text that stands out: bold on a terminal, between asterisks elsewhere and where `NO_COLOR` is
/// set.
fn emphasised(text: &str) -> String {
    if is_plain() { format!("**{text}**") } else { format!("\x1b[1m{text}\x1b[0m") }
}

/// A bar on a terminal, silent elsewhere: logs get lines of their own.
pub fn progress(total: u64, what: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    // Before the first step there is nothing to estimate the time left from.
    let left = |state: &ProgressState, text: &mut dyn std::fmt::Write| {
        if state.pos() > 0 {
            let _ = write!(text, ", {:#} left", HumanDuration(state.eta())); // the caller's buffer takes everything
        }
    };
    let style =
        ProgressStyle::with_template("{msg:>12} [{bar:32}] {human_pos}/{human_len}{left}{prefix}")
            .expect("a constant template that parses")
            .with_key("left", left)
            .progress_chars("=> ");
    ProgressBar::new(total).with_style(style).with_message(what)
}

/// How often a log hears of a long sampling.
const NEWS: Duration = Duration::from_secs(30);

/// Shows how far a sampling is: behind the bar, or, where there is none, in a line from time to
/// time.
pub fn decoding(bar: &ProgressBar) -> impl FnMut(Decoding) + 'static {
    let bar = bar.clone();
    let (mut last, mut before) = (Instant::now(), (None, 0));
    move |Decoding { tokens, limit, ended, rows }| {
        if (tokens, ended) < before {
            last = Instant::now(); // another sampling
        }
        before = (tokens, ended);
        let token = tokens
            .map_or_else(String::new, |tokens| format!("token {tokens} of at most {limit}, "));
        let text = format!("{token}{ended} of {rows} ended");
        if !bar.is_hidden() {
            bar.set_prefix(format!(" ({text})"));
        } else if last.elapsed() >= NEWS {
            last = Instant::now();
            note(&bar, &format!("decoding: {text}"));
        }
    }
}

/// Says something on standard error without tearing a progress bar.
pub fn note(bar: &ProgressBar, text: &str) {
    let text = escaped(text);
    if bar.is_hidden() { eprintln!("{text}") } else { bar.println(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

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
