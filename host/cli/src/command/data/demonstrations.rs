//! `corver-host data demonstrations`: writes completions for `sft` from questions and golds.

use anyhow::{Context, Result, bail, ensure};
use corver_data::demonstration::{DEMONSTRATION_TEMPLATE, demonstrate};
use serde_json::json;

use crate::args::DemonstrationsArgs;
use crate::files;
use crate::output;
use crate::questions::named_questions;

pub fn run(args: &DemonstrationsArgs, json: bool) -> Result<()> {
    let out = args.out.display();
    files::ensure_new(&args.out)?;
    let template = match &args.template {
        None => DEMONSTRATION_TEMPLATE.to_owned(),
        Some(path) => corver_files::read_settings_text(path)
            .with_context(|| format!("cannot read the template {}", path.display()))?,
    };
    let mut written = 0;
    let mut without = 0;
    let mut lines = String::new();
    for file in &args.files {
        for (index, question) in named_questions(file)?.iter().enumerate() {
            match demonstrate(question, template.trim_end()) {
                Ok(Some(demonstration)) => {
                    files::push_line(&mut lines, &demonstration)?;
                    written += 1;
                }
                Ok(None) => without += 1,
                Err(problem) => bail!("{}, question {}: {problem}", file.display(), index + 1),
            }
        }
    }
    ensure!(written > 0, "none of {without} questions has a gold to demonstrate");
    corver_files::create(&args.out, lines.as_bytes())
        .with_context(|| format!("cannot write {out}"))?;
    if json {
        return output::json(
            &json!({"demonstrations": written, "without": without, "out": args.out}),
        );
    }
    output::line(format_args!(
        "{out}: {written} demonstrations; {without} questions have no gold; `corver-host sft {out}` \
         trains on them"
    ));
    Ok(())
}
