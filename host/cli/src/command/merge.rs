//! `corver-host merge`: a model with an adapter in its weights.

use anyhow::{Context, Result};
use serde_json::json;

use crate::args::MergeArgs;
use crate::config::Config;
use crate::output;
use crate::parts;
use crate::settings::Settings;

pub fn run(args: &MergeArgs, json: bool) -> Result<()> {
    let config = Config::resolve(Settings::of_merge(args)?)?;
    let model = parts::model(&config)?;
    let out = std::path::absolute(&args.out).with_context(|| format!("the path {}", args.out.display()))?;
    parts::merge(&config, &model, &args.adapter, &out)?;
    if json {
        return output::json(&json!({"model": model, "adapter": args.adapter, "merged": out}));
    }
    output::line(format_args!("{} + {} → {}", model.display(), args.adapter.display(), out.display()));
    Ok(())
}
