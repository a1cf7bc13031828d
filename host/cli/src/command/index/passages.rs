//! `corver-host index passages`: splits an index's documents into passages.

use std::time::Instant;

use anyhow::Result;
use corver_backends::passages::{PassageLocation, PassageOptions, build};
use serde_json::json;

use crate::args::PassagesArgs;
use crate::index_folder::folder;
use crate::output;

pub fn run(args: &PassagesArgs, json: bool) -> Result<()> {
    let location = PassageLocation::new(&folder(args.index.as_deref())?, args.dir.as_deref())?;
    let start = Instant::now();
    let bar = output::progress(0, "reading");
    let report = |read, documents| {
        bar.set_length(documents);
        bar.set_position(read);
    };
    let manifest =
        build(&location, &PassageOptions { words: args.words, progress: Some(&report) })?;
    bar.finish_and_clear();
    let seconds = start.elapsed().as_secs_f64();
    if json {
        return output::json(
            &json!({"folder": location.folder(), "passages": manifest, "seconds": seconds}),
        );
    }
    output::line(format_args!(
        "{}: {} passages of at most {} words from {} documents, {} of them with a title, \
         {:.1} MB in {seconds:.1} s",
        location.folder().display(),
        manifest.passages,
        manifest.words,
        manifest.documents,
        manifest.titled,
        manifest.files.values().sum::<u64>() as f64 / 1e6,
    ));
    Ok(())
}
