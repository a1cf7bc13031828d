//! The settings of each command: files and `--set`, then its flags.

use anyhow::{Context, Result};
use corver_reward::Settings;

use crate::args::{
    AuditArgs, CheckArgs, ConfigArgs, EvalArgs, FilterArgs, GraderArgs, MergeArgs, PoolArgs, RuleArgs, ScoreArgs,
    ServeArgs, SettingsArgs, SftArgs, TrainArgs,
};

pub fn of_train(args: &TrainArgs) -> Result<Settings> {
    let mut settings = graded(&args.config, &args.graders)?;
    settings.run.steps = args.steps.unwrap_or(settings.run.steps);
    settings.run.seed = args.seed.unwrap_or(settings.run.seed);
    Ok(settings)
}

pub fn of_eval(args: &EvalArgs) -> Result<Settings> {
    let mut settings = flagged(&args.config)?;
    settings.question.eval_limit = args.limit.unwrap_or(settings.question.eval_limit);
    settings.eval.answers.samples = args.samples.unwrap_or(settings.eval.answers.samples);
    Ok(settings)
}

pub fn of_audit(args: &AuditArgs) -> Result<Settings> {
    let mut settings = flagged(&args.config)?;
    settings.question.eval_limit = args.limit.unwrap_or(settings.question.eval_limit);
    Ok(settings)
}

pub fn of_filter(args: &FilterArgs) -> Result<Settings> {
    let mut settings = load(&args.settings)?;
    if let Some(device) = &args.device {
        settings.run.device.clone_from(device);
    }
    if let Some(questions) = &args.questions {
        settings.question.train = questions.to_str().context("--questions is not UTF-8")?.to_owned();
    }
    settings.filter.anchors = args.anchors.unwrap_or(settings.filter.anchors);
    Ok(settings)
}

pub fn of_sft(args: &SftArgs) -> Result<Settings> {
    let mut settings = load(&args.settings)?;
    if let Some(device) = &args.device {
        settings.run.device.clone_from(device);
    }
    Ok(settings)
}

pub fn of_pool(args: &PoolArgs) -> Result<Settings> {
    load(&args.settings)
}

pub fn of_merge(args: &MergeArgs) -> Result<Settings> {
    flagged(&args.config)
}

pub fn of_score(args: &ScoreArgs) -> Result<Settings> {
    graded(&args.config, &args.graders)
}

/// As [`of_score`].
pub fn of_serve(args: &ServeArgs) -> Result<Settings> {
    graded(&args.config, &args.graders)
}

/// As [`of_score`].
pub fn of_explain(config: &ConfigArgs, graders: &GraderArgs) -> Result<Settings> {
    graded(config, graders)
}

pub fn of_check(args: &CheckArgs) -> Result<Settings> {
    let mut settings = flagged(&args.config)?;
    if !args.index.is_empty() {
        settings.corpus.index = args.index.clone().into();
    }
    settings.check.by = args.by.map_or(settings.check.by, Into::into);
    Ok(settings)
}

/// For a command about one rule. Where the settings name several rules, this one's own are the table with its file's
/// name.
pub fn of_rule(args: &RuleArgs) -> Result<Settings> {
    let mut settings = load(&args.settings)?;
    if settings.rule.plugin.texts().count() > 1 {
        let name = args.plugin.file_stem().unwrap_or_default().to_string_lossy();
        let own = settings.rule.settings.remove(name.as_ref());
        settings.rule.settings = own.and_then(|own| own.as_object().cloned()).unwrap_or_default();
    }
    Ok(settings)
}

fn graded(args: &ConfigArgs, graders: &GraderArgs) -> Result<Settings> {
    let mut settings = flagged(args)?;
    for (flag, section) in [(&graders.judge, &mut settings.judge), (&graders.format, &mut settings.format)] {
        if let Some(plugin) = flag {
            section.plugin.clone_from(plugin);
        }
    }
    Ok(settings)
}

fn flagged(args: &ConfigArgs) -> Result<Settings> {
    let mut settings = load(&args.settings)?;
    if !args.plugin.is_empty() {
        settings.rule.plugin = args.plugin.clone().into();
    }
    if let Some(device) = &args.device {
        settings.run.device.clone_from(device);
    }
    Ok(settings)
}

fn load(args: &SettingsArgs) -> Result<Settings> {
    Settings::load(&args.config, &args.set)
}
