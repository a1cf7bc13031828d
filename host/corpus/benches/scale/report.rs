//! The figures, as a table and as JSON.

use std::path::Path;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::json;

use crate::build::{Built, Checked};
use crate::cold::Cold;
use crate::counts::Counted;
use crate::text::Written;

/// All measurements.
pub struct Report {
    pub memory: u64,
    pub written: Written,
    pub built: Built,
    pub checked: Checked,
    pub counted: Vec<Counted>,
    pub cold: Cold,
}

impl Report {
    pub fn print_and_save(&self, path: &Path) {
        let Self { memory, written, built, checked, counted, cold } = self;
        let mut table = Table::new();
        table.load_preset(presets::ASCII_MARKDOWN).set_header([
            "stage",
            "seconds",
            "million tokens/s",
        ]);
        let rate = |seconds: f64| format!("{:.2}", built.tokens as f64 / 1e6 / seconds);
        let mut row = |stage: &str, seconds: f64, rate: String| {
            table.add_row([stage.to_owned(), format!("{seconds:.1}"), rate]);
        };
        row("writing the text", written.seconds, rate(written.seconds));
        for (stage, seconds) in &built.stages {
            row(stage, *seconds, rate(*seconds));
        }
        row("the complete build", built.seconds, rate(built.seconds));
        row("verify, sampled", checked.seconds, rate(checked.seconds));
        for counted in counted {
            row(
                &format!("{} pairs, {:?}", counted.pairs, counted.mode),
                counted.seconds,
                String::new(),
            );
        }
        for column in 1..3 {
            table
                .column_mut(column)
                .expect("there are three")
                .set_cell_alignment(CellAlignment::Right);
        }
        println!("{table}\n");
        println!(
            "{} tokens in {} documents, {}, {} compressed",
            built.tokens,
            built.documents,
            gigabytes(written.text_bytes),
            gigabytes(written.file_bytes)
        );
        println!("memory: at most {} of {}", gigabytes(built.peak_memory), gigabytes(*memory));
        println!(
            "disk: at most {}, the index {}",
            gigabytes(built.most_disk),
            gigabytes(built.index_bytes)
        );
        if built.is_resumed {
            println!(
                "An earlier run began or made the index: the times are not those of this commit."
            );
        }
        for counted in counted {
            println!("{:?}: {} of {} pairs right", counted.mode, counted.right, counted.pairs);
        }
        print_cold(cold);
        let record = json!({
            "memory": memory, "text": written, "build": built, "verify": checked, "counts": counted, "cold": cold,
        });
        std::fs::create_dir_all(path.parent().expect("the file is in a folder"))
            .expect("target can be written");
        std::fs::write(path, format!("{record:#}\n")).expect("target can be written");
        println!("{}", path.display());
    }
}

fn print_cold(cold: &Cold) {
    let mut table = Table::new();
    let header = [
        "pairs, cold",
        "seconds",
        "pages a pair",
        "pages/s",
        "requests/s",
        "of fio's",
        "warm, µs a pair",
    ];
    table.load_preset(presets::ASCII_MARKDOWN).set_header(header);
    for way in &cold.ways {
        let times = way.median();
        let (pairs, rate) = (cold.pairs as f64, times.requests as f64 / times.seconds);
        table.add_row([
            way.name.clone(),
            format!("{:.2}", times.seconds),
            format!("{:.1}", times.pages as f64 / pairs),
            format!("{:.0}", times.pages as f64 / times.seconds),
            format!("{rate:.0}"),
            format!("{:.0} %", 100.0 * rate / cold.disk()),
            format!("{:.1}", 1e6 * times.warm_seconds / pairs),
        ]);
    }
    for column in 1..7 {
        table.column_mut(column).expect("there are seven").set_cell_alignment(CellAlignment::Right);
    }
    println!(
        "\n{table}\n\nThe median of the rounds. {} pairs; fio: {:.0} reads/s",
        cold.pairs,
        cold.disk()
    );
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.2} GB", bytes as f64 / 1e9)
}
