//! `corver-host calibrate draw`: sentences into a sheet.

use anyhow::{Result, ensure};
use corver_analysis::calibrate::{CountBuckets, Drawn, SentencePool, write_sheet};

use crate::args::DrawArgs;
use crate::output;

pub fn run(args: &DrawArgs, json: bool) -> Result<()> {
    ensure!(
        !args.out.exists(),
        "{} exists, and may hold labels; choose another name",
        args.out.display()
    );
    let mut pool = SentencePool::new(CountBuckets::new(&args.buckets.buckets)?);
    for run in &args.runs {
        pool.add(run)?;
    }
    let drawn = pool.draw(&args.per_bucket, args.seed)?;
    write_sheet(&args.out, &drawn.rows)?;
    if json {
        return output::json(&drawn);
    }
    show(&drawn);
    let (number, path) = (drawn.rows.len(), args.out.display());
    output::line(format_args!(
        "{number} sentences are in {path}; label them, then: corver-host calibrate read {path}"
    ));
    Ok(())
}

fn show(drawn: &Drawn) {
    output::table(
        ["count", "wanted", "there are", "drawn"],
        drawn.buckets.iter().map(|part| {
            let numbers =
                [part.wanted, part.available, part.drawn].map(|number| number.to_string());
            [&[part.bucket.to_string()][..], &numbers].concat()
        }),
    );
    for part in drawn.buckets.iter().filter(|part| part.drawn < part.wanted) {
        output::line(format_args!(
            "count {}: {} sentences instead of {}; there are no more",
            part.bucket, part.drawn, part.wanted
        ));
    }
    if drawn.left_out.cut_short > 0 {
        output::line(format_args!(
            "left out: {} sentences whose counting was stopped before the last bucket; the rule needed no more. Draw with buckets up to the rule's last threshold, or score them again with a higher one",
            drawn.left_out.cut_short
        ));
    }
}
