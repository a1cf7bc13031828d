//! `corver-host train`.

use anyhow::Result;

use crate::args::TrainArgs;

#[cfg(not(feature = "torch"))]
pub fn run(_: &TrainArgs, _: bool) -> Result<()> {
    anyhow::bail!("this corver-host was built without libtorch and cannot train; build it with the feature `torch`")
}

#[cfg(feature = "torch")]
pub use with_torch::run;

#[cfg(feature = "torch")]
mod with_torch {
    use std::path::Path;

    use anyhow::{Context, anyhow};
    use corver_core::{Scorers, StepSettings};
    use corver_study::{
        Evaluation, Manifest, Observer, Plan, RunDir, RunDirError, Summary, SystemPrompts, run_dir, train,
    };
    use indicatif::ProgressBar;
    use serde_json::{Map, Value};

    use super::{Result, TrainArgs};
    use crate::config::Config;
    use crate::interrupt::Interrupt;
    use crate::rules::{self, Loader};
    use crate::{output, parts, source};

    /// The entry of a run's manifest that stands for its configuration.
    const CONFIGURATION: &str = "configuration";

    pub fn run(args: &TrainArgs, json: bool) -> Result<()> {
        let mut config = configuration(args)?;
        config.run.steps = args.steps.unwrap_or(config.run.steps);
        config.run.seed = args.seed.unwrap_or(config.run.seed);
        config.update.total_steps = config.run.steps;
        let resolved = toml::to_string_pretty(&config).context("writing the resolved configuration")?;
        if args.dry_run {
            parts::check(&config)?;
            if json {
                return output::json(&config);
            }
            output::line(resolved.trim_end());
            return Ok(());
        }

        // What cannot be had is said before anything is loaded.
        let device = corver_learn::parse_device(&config.run.device)?;
        parts::check(&config)?;
        let mut manifest = Manifest::default();
        let loader = Loader::new(&config)?;
        let (mut rules, mut graders) = (loader.sentence_rules()?, loader.graders()?);
        let plan = plan(&config)?;
        plan.check()?;
        let (corpus, mut counter) = parts::corpus(&config.corpus)?;
        let (bundle, mut extractor) = parts::extractor(&config)?;
        let model = parts::model(&config)?;
        manifest.set("corver-host", env!("CARGO_PKG_VERSION"));
        manifest.set(CONFIGURATION, run_dir::text_fingerprint(&resolved));
        manifest.set("plugin", &rules.hash);
        manifest.set("judge", rules::grader_fingerprint(&config.judge)?);
        manifest.set("format", rules::grader_fingerprint(&config.format)?);
        manifest.set("index", source::fingerprint(&corpus)?);
        manifest.set("extractor", run_dir::fingerprint(&bundle)?);
        manifest.set("model", run_dir::fingerprint(&model)?);
        manifest.set("questions", run_dir::text_fingerprint(&serde_json::to_string(&(&plan.train, &plan.eval))?));
        manifest.set("seed", config.run.seed.to_string());
        manifest.set("device", format!("{device:?}"));

        let mut policy = parts::policy(&config, &model, None)?;
        let (run, steps_done) = open_run(args, &rules.name, &resolved, &manifest, &mut policy)?;
        let name = rules.name.clone();
        let mut scorers =
            Scorers { extractor: extractor.as_mut(), counter: &mut counter, rules: &mut rules, graders: &mut graders };
        let mut screen = Screen::new(plan.steps, steps_done, Interrupt::listen()?);
        output::note(&screen.bar, &format!("rule {name}, {} steps, into {}", plan.steps, run.path().display()));
        let trained = train(&mut policy, &mut scorers, &plan, &name, &run, steps_done, &mut screen);
        screen.bar.finish_and_clear();
        let summary = trained.with_context(|| {
            format!(
                "the run in {0} has not finished; `corver-host train --out {0} --resume` goes on",
                run.path().display()
            )
        })?;
        if json {
            return output::json(&summary);
        }
        show(&summary, run.path());
        Ok(())
    }

    fn open_run(
        args: &TrainArgs,
        rule: &str,
        resolved: &str,
        manifest: &Manifest,
        policy: &mut corver_learn::Policy,
    ) -> Result<(RunDir, usize)> {
        let path = args.out.clone().unwrap_or_else(|| run_dir::next_free(Path::new("runs"), rule));
        if !args.resume {
            return Ok((RunDir::create(&path, resolved, manifest)?, 0));
        }
        let run = RunDir::resume(&path, manifest).map_err(|error| name_settings(error, &path, resolved))?;
        let newest = corver_learn::latest_checkpoint(&run.checkpoints())?;
        let steps_done = match newest {
            Some(checkpoint) => {
                policy.resume(&checkpoint).with_context(|| format!("resuming from {}", checkpoint.display()))?;
                policy.steps()
            }
            None => 0,
        };
        Ok((run, steps_done))
    }

    /// A run that goes on does so with its own configuration, unless another one is given.
    fn configuration(args: &TrainArgs) -> Result<Config> {
        let mut options = args.config.clone();
        let recorded =
            args.out.as_ref().map(|out| out.join(run_dir::CONFIG)).filter(|path| args.resume && path.is_file());
        if options.settings.config.is_empty() {
            options.settings.config.extend(recorded);
        }
        parts::graded_configuration(&options, &args.graders)?.with_absolute_paths()
    }

    /// Says which settings are not those that the run began with.
    fn name_settings(error: RunDirError, run: &Path, resolved: &str) -> anyhow::Error {
        let is_configuration = matches!(&error, RunDirError::Changed { what, .. } if what == CONFIGURATION);
        let differences = || {
            let recorded = std::fs::read_to_string(run.join(run_dir::CONFIG)).ok()?;
            crate::config::differences(&recorded, resolved).ok()
        };
        match is_configuration.then(differences).flatten() {
            Some(settings) if !settings.is_empty() => {
                anyhow!(
                    "this run began with other values of {}; leave them away to go on with its own",
                    settings.join(", ")
                )
            }
            _ => error.into(),
        }
    }

    fn plan(config: &Config) -> Result<Plan> {
        let mut eval = match config.question.eval.as_str() {
            "" => Vec::new(),
            value => parts::questions(value, "question.eval", || corver_demo::demo_questions().1)?,
        };
        if config.question.eval_limit > 0 {
            eval.truncate(config.question.eval_limit);
        }
        Ok(Plan {
            train: parts::questions(&config.question.train, "question.train", || corver_demo::demo_questions().0)?,
            eval,
            steps: config.run.steps,
            prompts_per_step: config.question.prompts_per_step,
            seed: config.run.seed,
            step: StepSettings { sampling: config.rollout, rewards: config.reward, advantages: config.advantage },
            evaluate: config.eval.answers,
            prompts: SystemPrompts {
                train: config.policy.system_prompt.clone(),
                eval_raw: config.eval.system_prompt.clone(),
                eval_trained: format!("{}{}", config.eval.system_prompt, config.eval.trained_suffix),
            },
            checkpoint_every: config.checkpoint.every,
            checkpoints_kept: config.checkpoint.keep,
        })
    }

    /// A progress bar on a terminal, a line per step elsewhere.
    struct Screen {
        bar: ProgressBar,
        interrupt: Interrupt,
    }

    impl Screen {
        fn new(steps: usize, steps_done: usize, interrupt: Interrupt) -> Self {
            let bar = output::progress(steps as u64, "training");
            bar.set_position(steps_done as u64);
            Self { bar, interrupt }
        }
    }

    impl Observer for Screen {
        fn answering(&mut self, done: usize, total: usize) {
            self.bar.set_message(if done < total { format!("answering {done}/{total}") } else { "training".into() });
        }

        fn evaluated(&mut self, which: &'static str, evaluation: &Evaluation) {
            let (percent, questions) = (100.0 * evaluation.accuracy, evaluation.grades.total());
            output::note(&self.bar, &format!("{which} policy: {percent:.1} % of {questions} questions right"));
        }

        fn stepped(&mut self, metrics: &Map<String, Value>, total: usize) {
            let number = |name: &str| metrics.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN);
            let line = format!(
                "step {:>3}/{total}  reward {:+.3}  supported {:>5.1} %  length {:>5.1}  kl {:.4}  {:.2} s",
                number("step"),
                number("reward"),
                100.0 * number("corver/supported_rate"),
                number("completions/mean_length"),
                metrics.get("kl").and_then(Value::as_f64).unwrap_or(0.0).max(0.0), // rounding can make it −0
                number("step_time"),
            );
            output::note(&self.bar, &line);
            self.bar.inc(1);
        }

        fn wants_to_stop(&self) -> bool {
            let asked = self.interrupt.asked();
            if asked {
                output::note(&self.bar, "interrupted: writing a checkpoint");
            }
            asked
        }
    }

    fn show(summary: &Summary, run: &Path) {
        let percent = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{:.1} %", 100.0 * value));
        let tokens = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.1} tokens"));
        output::table(
            ["held-out questions, greedy", "before", "after"],
            [
                ["accuracy".into(), percent(summary.accuracy_before), percent(summary.accuracy_after)],
                [
                    "supported sentences".into(),
                    percent(summary.supported_rate_before),
                    percent(summary.supported_rate_after),
                ],
                ["refusals".into(), percent(summary.refusal_rate_before), percent(summary.refusal_rate_after)],
                ["mean length".into(), tokens(summary.mean_length_before), tokens(summary.mean_length_after)],
            ],
        );
        output::line(format_args!(
            "rule {}, {} steps of {:.2} s ({:.0} ms of it reward), {:.0} s in all; everything is in {}",
            summary.plugin,
            summary.steps,
            summary.seconds_per_step,
            1000.0 * summary.reward_seconds_per_step,
            summary.seconds_total,
            run.display()
        ));
    }
}
