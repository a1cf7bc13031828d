//! `corver-host filter`: selects questions that the policy answers correctly in some samples.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use corver_eval::filter::{ANSWERED, RETAINED};
use corver_eval::{FilterPlan, FilterSummary, filter};
use corver_reward::config::{self, PolicyConfig};
use corver_reward::parts;
use corver_runs::{RunDir, fingerprint, folder, json_fingerprint};
use corver_settings::{FilterSettings, Settings};

use crate::args::FilterArgs;
use crate::engine::{self, Answering};
use crate::interrupt::Interrupt;
use crate::output;
use crate::policy;
use crate::questions::TrainSets;
use crate::resumed;
use crate::settings;

/// Settings that may change when a folder is resumed: they select among answered questions.
const FREE: [&str; 3] = ["filter.min_correct", "filter.max_correct", "filter.anchors"];

pub fn run(args: &FilterArgs, json: bool) -> Result<()> {
    let (mut settings, (policy, sets)) = resolve(args)?;
    let plan = FilterPlan {
        settings: settings.filter,
        sampling: settings.filter.sampling(settings.rollout),
        text: settings.reward.text(),
        seed: settings.run.seed,
    };
    let resolved =
        toml::to_string_pretty(&settings).context("writing the resolved configuration")?;
    let device = engine::device(&settings, &policy)?;
    let mut questions = sets.read(settings.run.seed)?.questions;
    let num_read = questions.len();
    questions.retain(|question| !question.golds.is_empty());
    ensure!(!questions.is_empty(), "`question.train`: no question has a gold answer to grade with");
    let model = parts::policy_folder(&policy)?;

    let mut manifest = resumed::manifest_of(&settings, &FREE)?;
    manifest.set("model", fingerprint(&model)?);
    if let Some(adapter) = &policy.adapter {
        manifest.set("adapter", fingerprint(adapter)?);
    }
    manifest.set("questions", json_fingerprint(&questions)?);
    manifest.set("device", device);

    settings.rollout = plan.sampling;
    settings.question.eval = None;
    let memory = policy::fit(&mut settings, &policy, &model, false)?;
    let interrupt = Interrupt::listen()?;
    let bar = output::progress(questions.len() as u64, "answering");
    let scratch = tempfile::tempdir().context("making a folder for adapters")?;
    let system_prompt = &settings.policy.system_prompt;
    let answering =
        Answering { adapter: policy.adapter.as_deref(), system_prompt, scratch: scratch.path() };
    let mut sampler = engine::open_sampler(
        &settings,
        &policy,
        &model,
        answering,
        (&questions, &plan.sampling),
        output::decoding(&bar, Some(&interrupt)),
    )?;
    let path = args.out.clone().unwrap_or_else(|| folder::next_free(Path::new("runs"), "filter"));
    let run = if args.resume {
        let run = resumed::open(&path, &manifest, &resolved, &FREE)?;
        run.reopen(&resolved)?;
        run
    } else {
        RunDir::create(&path, &resolved, &manifest)?
    };

    if questions.len() < num_read {
        let num_skipped = num_read - questions.len();
        output::note(&bar, &format!("{num_skipped} questions without a gold answer are skipped"));
    }
    output::notes(&bar, memory);
    let mut answered = 0;
    let mut progress = |done: usize| {
        answered = done;
        bar.set_position(done as u64);
    };
    let filtered = filter(sampler.as_mut(), &questions, &plan, &run, &mut progress);
    bar.finish_and_clear();
    let resume = format!("`corver-host filter --out {} --resume` resumes", path.display());
    let filtered = match filtered {
        Err(_) if interrupt.is_requested() => {
            let total = questions.len();
            output::note(&bar, &format!("stopped after {answered} of {total} questions; {resume}"));
            return Ok(());
        }
        filtered => filtered.with_context(|| resume)?,
    };
    check_selected(&filtered, &plan.settings, &path)?;
    let anchors = filtered.anchors;
    let wanted = plan.settings.anchors;
    if anchors < wanted {
        output::note(
            &bar,
            &format!(
                "warning: {anchors} anchors instead of {wanted}: no more questions were always \
                 answered correctly"
            ),
        );
    }
    if json {
        return output::json(&filtered);
    }
    show(&filtered, &plan.settings, &path);
    Ok(())
}

/// Returns the settings of a filter, those that it saved if it is resumed, and the parts they name.
fn resolve(args: &FilterArgs) -> Result<(Settings, (PolicyConfig, TrainSets))> {
    let mut settings_args = args.settings.clone();
    if args.resume {
        resumed::load_saved_config(&mut settings_args, args.out.as_deref());
    }
    let mut layers = settings::layers(&settings_args, &[&args.policy, &args.questions])?;
    if let Some(anchors) = args.anchors {
        layers.set("filter.anchors", anchors);
    }
    config::resolve(settings::finish(&layers)?)
}

/// Fails if no question is selected; `path` is the folder of the filter.
fn check_selected(filtered: &FilterSummary, settings: &FilterSettings, path: &Path) -> Result<()> {
    ensure!(
        filtered.retained > 0,
        "none of {} questions has between {} and {} correct answers of {}: nothing is left to \
         train on. {} has the answers; only text in <answer> is graded, so the system prompt must \
         request that format (`policy.system_prompt`)",
        filtered.questions,
        settings.min_correct,
        settings.most_correct(),
        settings.num_generations,
        path.join(ANSWERED).display()
    );
    Ok(())
}

fn show(filtered: &FilterSummary, settings: &FilterSettings, path: &Path) {
    let samples = settings.num_generations;
    output::table(
        [&format!("correct of {samples}"), "questions", "share", "selected"],
        filtered.by_num_correct.iter().enumerate().map(|(num_correct, &questions)| {
            let selected = match (settings.keeps(num_correct), num_correct == samples) {
                (true, _) => questions,
                (false, true) => filtered.anchors,
                (false, false) => 0,
            };
            [
                num_correct.to_string(),
                questions.to_string(),
                share(questions, filtered),
                selected.to_string(),
            ]
        }),
    );
    output::line(format_args!(
        "{} of {} questions ({}) are selected; train --questions {} trains on them",
        filtered.retained,
        filtered.questions,
        share(filtered.retained, filtered),
        path.join(RETAINED).display()
    ));
}

fn share(part: usize, of: &FilterSummary) -> String {
    output::percent(part as f64 / of.questions.max(1) as f64)
}
