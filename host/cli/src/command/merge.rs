//! `corver-host merge`: merges an adapter into a model's weights.

use anyhow::{Context, Result};
use corver_reward::config::{self, PolicyConfig};
use corver_reward::parts;
use serde_json::json;

use crate::args::MergeArgs;
use crate::output;
use crate::policy;
use crate::settings;

pub fn run(args: &MergeArgs, json: bool) -> Result<()> {
    let mut layers = settings::layers(&args.settings, &[&args.policy])?;
    layers.add_own_part(); // the adapter
    let (settings, policy) = config::resolve::<PolicyConfig>(settings::finish(&layers)?)?;
    let model = parts::policy_folder(&policy)?;
    let out = std::path::absolute(&args.out)
        .with_context(|| format!("the path {}", args.out.display()))?;
    policy::merge(&settings, &model, &args.adapter, &out)?;
    if json {
        return output::json(&json!({"model": model, "adapter": args.adapter, "merged": out}));
    }
    output::line(format_args!(
        "{} + {} → {}",
        model.display(),
        args.adapter.display(),
        out.display()
    ));
    Ok(())
}
