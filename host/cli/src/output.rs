//! Results go to standard output, as a table for people or as JSON; everything else goes to standard error.

use std::io::{IsTerminal, Write};

use comfy_table::{Cell, CellAlignment, Table, presets};
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use serde::Serialize;

/// Prints a value as JSON on one line.
pub fn json<T: Serialize>(value: &T) -> anyhow::Result<()> {
    line(serde_json::to_string(value)?);
    Ok(())
}

/// Prints a line of text.
pub fn line(text: impl std::fmt::Display) {
    print(&format!("{text}\n"));
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
pub fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    let aligned = |cells: Vec<String>| -> Vec<Cell> {
        let place = |(column, text): (usize, String)| {
            let alignment = if column == 0 { CellAlignment::Left } else { CellAlignment::Right };
            Cell::new(text).set_alignment(alignment)
        };
        cells.into_iter().enumerate().map(place).collect()
    };
    table.set_header(aligned(header.map(str::to_owned).to_vec()));
    for row in rows {
        table.add_row(aligned(row.to_vec()));
    }
    line(table);
}

/// Text that stands out: bold on a terminal, between asterisks elsewhere and where `NO_COLOR` is set.
pub fn emphasised(text: &str) -> String {
    let plain = !std::io::stdout().is_terminal() || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if plain { format!("**{text}**") } else { format!("\x1b[1m{text}\x1b[0m") }
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
    let style = ProgressStyle::with_template("{msg:>12} [{bar:32}] {human_pos}/{human_len}{left}")
        .expect("a constant template that parses")
        .with_key("left", left)
        .progress_chars("=> ");
    ProgressBar::new(total).with_style(style).with_message(what)
}

/// Says something on standard error without tearing a progress bar.
pub fn note(bar: &ProgressBar, text: &str) {
    if bar.is_hidden() { eprintln!("{text}") } else { bar.println(text) }
}
