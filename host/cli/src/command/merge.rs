//! `corver-host merge`: a model with an adapter in its weights.

use anyhow::{Context, Result};
use corver_reward::Config;
use corver_reward::parts;
use serde_json::json;

use crate::args::MergeArgs;
use crate::output;
use crate::policy;
use crate::settings;

pub fn run(args: &MergeArgs, json: bool) -> Result<()> {
    let config = Config::resolve(settings::of_merge(args)?)?;
    let model = parts::model(&config)?;
    let out = std::path::absolute(&args.out).with_context(|| format!("the path {}", args.out.display()))?;
    policy::merge(&config, &model, &args.adapter, &out)?;
    if json {
        return output::json(&json!({"model": model, "adapter": args.adapter, "merged": out}));
    }
    output::line(format_args!("{} + {} → {}", model.display(), args.adapter.display(), out.display()));
    Ok(())
}
