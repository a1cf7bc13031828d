//! `corver-host filter`: selects questions that the policy answers correctly in some samples.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use corver_eval::filter::{ANSWERED, RETAINED};
use corver_eval::{FilterPlan, FilterSummary, filter};
use corver_reward::config::{self, PolicyConfig};
use corver_reward::parts;
use corver_runs::{RunDir, RunManifest, fingerprint, folder, text_fingerprint};
use corver_settings::FilterSettings;

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
    let mut args = args.clone();
    if args.resume {
        resumed::load_saved_config(&mut args.settings, args.out.as_deref());
    }
    let mut layers = settings::layers(&args.settings, &[&args.policy, &args.questions])?;
    if let Some(anchors) = args.anchors {
        layers.set("filter.anchors", anchors);
    }
    let (mut settings, (policy, sets)) =
        config::resolve::<(PolicyConfig, TrainSets)>(settings::finish(&layers)?)?;
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

    let mut manifest = RunManifest::default();
    manifest.set("corver-host", env!("CARGO_PKG_VERSION"));
    manifest.set(
        resumed::CONFIGURATION,
        text_fingerprint(&resumed::fingerprint_settings(&settings, &FREE)?),
    );
    manifest.set("model", fingerprint(&model)?);
    if let Some(adapter) = &policy.adapter {
        manifest.set("adapter", fingerprint(adapter)?);
    }
    manifest.set("questions", text_fingerprint(&serde_json::to_string(&questions)?));
    manifest.set("device", device);

    settings.rollout = plan.sampling;
    settings.question.eval = None;
    let memory = policy::fit(&mut settings, &policy, &model, false)?;
    let interrupt = Interrupt::listen()?;
    let bar = output::progress(questions.len() as u64, "answering");
    let mut show = output::decoding(&bar);
    let stop = interrupt.clone();
    let watch = move |decoding| {
        show(decoding);
        if stop.is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
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
        watch,
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
    memory.iter().for_each(|memory_plan| {
        memory_plan.to_string().lines().for_each(|line| output::note(&bar, line))
    });
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
    ensure!(
        filtered.retained > 0,
        "none of {} questions has between {} and {} correct answers of {}: nothing is left to \
         train on. {} has the answers; only text in <answer> is graded, so the system prompt must \
         request that format (`policy.system_prompt`)",
        filtered.questions,
        plan.settings.min_correct,
        plan.settings.most_correct(),
        plan.settings.num_generations,
        path.join(ANSWERED).display()
    );
    if filtered.anchors < plan.settings.anchors {
        let (anchors, wanted) = (filtered.anchors, plan.settings.anchors);
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
    show_table(&filtered, &plan.settings);
    output::line(format_args!(
        "{} of {} questions ({}) are selected; train --questions {} trains on them",
        filtered.retained,
        filtered.questions,
        share(filtered.retained, &filtered),
        path.join(RETAINED).display()
    ));
    Ok(())
}

fn show_table(filtered: &FilterSummary, settings: &FilterSettings) {
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
}

fn share(part: usize, of: &FilterSummary) -> String {
    output::percent(part as f64 / of.questions.max(1) as f64)
}
