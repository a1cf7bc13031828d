//! `corver-host index adopt`: checks an index of another program, and writes its manifest.

use anyhow::{Context, Result};
use corver_corpus::{Adoption, BuildProgress, Tokenizer, adopt};
use serde_json::json;

use crate::args::AdoptArgs;
use crate::command::index::build::default_memory;
use crate::command::index::stage_bar::StageBar;
use crate::output;

pub fn run(args: &AdoptArgs, json: bool) -> Result<()> {
    let AdoptArgs { index, tokenizer, memory } = args;
    let tokenizer = Tokenizer::open(tokenizer)?;
    let bar = StageBar::new();
    let report = |progress: BuildProgress| bar.show(progress);
    let memory = memory.or_else(default_memory);
    let Adoption { manifest, sampled, different } = adopt(index, &tokenizer, memory, Some(&report))
        .with_context(|| format!("adopting {}", index.display()))?;
    bar.finish();
    if json {
        return output::json(&json!({
            "index": index, "manifest": manifest, "sampled": sampled, "different": different,
        }));
    }
    output::line(format_args!(
        "{}: {} documents, {} tokens of {}; {different} of {sampled} documents get other tokens",
        index.display(),
        manifest.documents,
        manifest.tokens,
        manifest.token_width,
    ));
    Ok(())
}
