//! `corver-host calibrate draw`: samples sentences by count, into a sheet to label.

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
    let number = drawn.rows.len();
    let path = args.out.display();
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
    if drawn.left_out.truncated > 0 {
        output::line(format_args!(
            "skipped: {} sentences whose count is a lower bound below the last bucket, which was \
             enough for the rule. Draw with buckets up to the rule's highest threshold, or score \
             the sentences again with a higher one",
            drawn.left_out.truncated
        ));
    }
}
