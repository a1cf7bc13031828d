//! `corver-host compare`: trains several arms with the same seeds, and compares them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use corver_analysis::compare::compare;
use corver_data::QuestionLocation;
use corver_report::comparison::{COST_LEGEND, LEGEND, QuestionSet, Table, Tables, comparison};
use corver_report::run::LoadedRun;
use corver_reward::config;
use corver_runs::folder;
use corver_settings::load::differences;
use corver_settings::{DEMO, Layers, Settings, WeightedPlugin};
use corver_train::RunSummary;
use serde::{Deserialize, Serialize};

use crate::args::{
    CompareArgs, EvalArgs, Flags, LengthArgs, RecordingArgs, RewardArgs, SettingsArgs, TrainArgs,
};
use crate::files;
use crate::interrupt::Interrupt;
use crate::output;
use crate::questions::graded_questions;
use crate::settings;

use super::eval::{self, Evaluated};
use super::train::{self, SweepContext, TrainConfig};

/// File with the [`ComparisonPlan`]; each arm's settings are in its own folder.
const PLAN: &str = "compare.json";
/// File with the results.
const COMPARISON: &str = "comparison.json";
const PAGE: &str = "comparison.html";
/// Folder of a run with its answers to the question sets of --eval.
const SETS: &str = "sets";
/// Folder of a run with the answers of the adapter that its training continues from.
const SETS_BEFORE: &str = "sets-before";

/// Name of the arm with the common settings.
const BASE: &str = "base";

/// Arms, seeds and question sets of a comparison.
#[derive(Debug, Serialize, Deserialize)]
struct ComparisonPlan {
    /// Names of the arms; the others are compared with the first.
    arms: Vec<String>,
    first_seed: u64,
    /// Number of seeds.
    seeds: u64,
    /// Question sets of --eval, which every policy answers after training.
    eval: Vec<PathBuf>,
}

impl ComparisonPlan {
    fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        self.first_seed..self.first_seed.saturating_add(self.seeds)
    }
}

pub fn run(args: &CompareArgs, json: bool) -> Result<()> {
    let out = args.out.clone().unwrap_or_else(|| folder::next_free(Path::new("runs"), "compare"));
    let plan = if args.resume { reopen(&out, args)? } else { create(&out, args)? };
    let interrupt = Interrupt::listen()?;
    let total = plan.arms.len() as u64 * plan.seeds;
    let runs = plan.seeds().flat_map(|seed| plan.arms.iter().map(move |arm| (arm, seed)));
    check_arms(&out, &plan)?;
    let mut finished = 0;
    for (arm, seed) in runs {
        if read_summary(&run_folder(&out, arm, seed))?.is_none() {
            let first = first_run(&out, arm, &plan);
            let context = SweepContext { interrupt: Some(&interrupt), like: first.as_deref() };
            let state = format!(
                "{finished} of {total} runs are finished; \
                 `corver-host compare --out {} --resume` resumes the comparison",
                out.display()
            );
            output::error_line(&format!(
                "run {} of {total}: {}, seed {seed}",
                finished + 1,
                output::escaped(arm)
            ));
            let trained = train::train_once(&train_args(&out, arm, seed), &context)
                .with_context(|| state.clone())?;
            if trained.is_none() {
                output::error_line(&output::escaped(&state));
                break;
            }
        }
        finished += 1;
    }

    // Arms are compared on the seeds that all of them have finished.
    let seeds: Vec<u64> = plan.seeds().take(finished / plan.arms.len()).collect();
    if seeds.is_empty() {
        return Ok(());
    }
    let mut summaries: Vec<Vec<RunSummary>> = Vec::new();
    let mut finished_runs: Vec<Vec<LoadedRun>> = Vec::new();
    for arm in &plan.arms {
        let mut arm_summaries = Vec::new();
        let mut arm_runs = Vec::new();
        for &seed in &seeds {
            arm_summaries.push(summary(&out, arm, seed)?);
            arm_runs.push(LoadedRun::open(&run_folder(&out, arm, seed))?);
        }
        summaries.push(arm_summaries);
        finished_runs.push(arm_runs);
    }
    let arms = compare(&plan.arms, &summaries, find_a1(&out, &plan.arms)?);
    let untrained = &summaries[0][0].before;
    let sets = if plan.eval.is_empty() {
        Vec::new()
    } else {
        evaluate_on_sets(&out, &plan.arms, &seeds, &plan.eval)?
    };
    let result =
        serde_json::json!({ "seeds": seeds, "untrained": untrained, "arms": arms, "sets": sets });
    files::write(&out.join(COMPARISON), &serde_json::to_string_pretty(&result)?)?;
    let page = out.join(PAGE);
    let mut tables = Tables::of(&arms, untrained.as_ref(), seeds.len());
    tables.sets = sets.iter().map(QuestionSet::table).collect();
    corver_report::page::save(&page, &comparison(&arms, &tables, &finished_runs))?;
    if json {
        return output::json(&result);
    }
    show(&tables);
    output::line(format_args!("the page with learning curves is {}", page.display()));
    Ok(())
}

/// Fails if a run cannot start, or cannot match the arm's finished ones, before any of them starts.
fn check_arms(out: &Path, plan: &ComparisonPlan) -> Result<()> {
    for arm in &plan.arms {
        train::check_inputs(&train_args(out, arm, plan.first_seed))?;
        let unfinished =
            plan.seeds().find(|&seed| !run_folder(out, arm, seed).join(folder::SUMMARY).exists());
        if let (Some(first), Some(seed)) = (first_run(out, arm, plan), unfinished) {
            train::check_like(&train_args(out, arm, seed), &first)?;
        }
    }
    Ok(())
}

/// Returns the folder of an arm's first run, if it is finished.
fn first_run(out: &Path, arm: &str, plan: &ComparisonPlan) -> Option<PathBuf> {
    let run = run_folder(out, arm, plan.first_seed);
    run.join(folder::SUMMARY).exists().then_some(run)
}

/// Returns the index of the arm that only the built-in judge and format check reward (the paper's
/// A1). The others' cost is reported in its steps.
fn find_a1(out: &Path, arms: &[String]) -> Result<Option<usize>> {
    for (index, arm) in arms.iter().enumerate() {
        let settings = saved_settings(&out.join(arm))?;
        let is_compared_method =
            settings.judge.plugin.is_some() || settings.format.plugin.is_some();
        let reward = settings.reward;
        if !reward.sentence_rewards_enabled() && reward.lambda_judge > 0.0 && !is_compared_method {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

/// Returns the settings that are saved in the folder of an arm or a run.
fn saved_settings(dir: &Path) -> Result<Settings> {
    Layers::new(&[dir.join(folder::CONFIG)], &[])?.settings()
}

/// Evaluates the trained policy of every run, and the untrained one of the first, on question sets.
/// Finished sets are not answered again.
fn evaluate_on_sets(
    out: &Path,
    arms: &[String],
    seeds: &[u64],
    sets: &[PathBuf],
) -> Result<Vec<QuestionSet>> {
    let mut question_sets: Vec<QuestionSet> = Vec::new();
    for arm in arms {
        for &seed in seeds {
            let run = run_folder(out, arm, seed);
            let steps = summary(out, arm, seed)?.steps;
            let trained = run.join(folder::CHECKPOINTS).join(format!("step-{steps:06}"));
            output::error_line(&format!(
                "{}, seed {seed}: answering {} question sets",
                output::escaped(arm),
                sets.len()
            ));
            if question_sets.is_empty()
                && let Some(start) = saved_settings(&run)?.policy.adapter
            {
                for evaluated in eval::answer(&eval_args(&run, SETS_BEFORE, start, sets))? {
                    let untrained = Evaluated { policy: eval::RAW.to_owned(), ..evaluated };
                    add_evaluation(&mut question_sets, untrained);
                }
            }
            let mut args = eval_args(&run, SETS, trained, sets);
            args.raw = question_sets.is_empty();
            for mut evaluated in eval::answer(&args)? {
                if evaluated.policy != eval::RAW {
                    evaluated.policy.clone_from(arm);
                }
                add_evaluation(&mut question_sets, evaluated);
            }
        }
    }
    Ok(question_sets)
}

/// Returns the arguments that evaluate an adapter with the settings of a run, and write the answers
/// into the run's folder `name`.
fn eval_args(run: &Path, name: &str, adapter: PathBuf, sets: &[PathBuf]) -> EvalArgs {
    let answers = run.join(name);
    EvalArgs {
        settings: SettingsArgs { config: vec![run.join(folder::CONFIG)], set: Vec::new() },
        questions: sets.to_vec(),
        all_questions: true,
        adapter: vec![adapter],
        resume: answers.join(folder::MANIFEST).exists(),
        out: Some(answers),
        ..EvalArgs::default()
    }
}

/// Adds an evaluation to those of its question set.
fn add_evaluation(question_sets: &mut Vec<QuestionSet>, evaluated: Evaluated) {
    let Evaluated { policy, questions, evaluation } = evaluated;
    let known = question_sets.iter().position(|set| set.name == questions);
    let index = known.unwrap_or_else(|| {
        question_sets.push(QuestionSet { name: questions, policies: Vec::new() });
        question_sets.len() - 1
    });
    question_sets[index].add(policy, evaluation);
}

fn show(Tables { figures, differences, costs, cost_differences, verdicts, sets }: &Tables) {
    for Table { header, rows } in sets {
        output::table(header, rows);
    }
    for (tables, legend) in
        [([figures, differences], LEGEND), ([costs, cost_differences], COST_LEGEND)]
    {
        for Table { header, rows } in tables {
            output::table(header, rows);
        }
        output::line(legend);
    }
    verdicts.iter().for_each(output::line);
}

/// Settings of the evaluation, or set by the comparison itself; arms must not change them.
const COMMON: [&str; 6] = [
    "eval.",
    "question.eval",
    "policy.model",
    "reward.compatibility",
    "reward.language",
    "run.seed",
];

/// Resolves every arm's settings, then creates the folder with them.
fn create(out: &Path, args: &CompareArgs) -> Result<ComparisonPlan> {
    let seeds = args.seeds.unwrap_or(3);
    let folder = out.display();
    ensure!(
        !out.join(PLAN).exists(),
        "{folder} holds a comparison; resume it with --resume, or choose another --out"
    );
    ensure!(is_free(out), "{folder} is not empty; choose another --out");
    if layers_of_arm(args, args.plugin.first(), None)?.is_demo_by_default() {
        settings::note_demo();
    }
    let mut others = arms(args)?;
    let first_arm = others.remove(0);
    let mut arms = vec![first_arm];
    for (name, settings) in others {
        let first = &arms[0];
        ensure!(arms.iter().all(|(known, _)| *known != name), "two arms are called {name}");
        ensure!(name != eval::RAW, "an arm cannot be called {name}: that is the untrained policy");
        let different = differing(&first.1, &settings)?;
        if let Some(key) =
            different.iter().find(|key| COMMON.iter().any(|common| key.starts_with(common)))
        {
            bail!(
                "{name} has another `{key}` than {}, but all arms need the same evaluation and the \
                 same seeds",
                first.0
            );
        }
        for (known, same) in &arms {
            ensure!(*same != settings, "{name} changes nothing: it has the settings of {known}");
        }
        arms.push((name, settings));
    }
    ensure!(
        arms.len() > 1,
        "there is nothing to compare {} with: give rules with --plugin, or settings with --arm",
        arms[0].0
    );
    let sets = checked_sets(&args.eval)?;
    for (name, own_settings) in &arms {
        let arm = out.join(name);
        files::create_folder(&arm)?;
        files::write(&arm.join(folder::CONFIG), &toml::to_string_pretty(own_settings)?)?;
    }
    let first_seed = arms[0].1.run.seed;
    let plan = ComparisonPlan {
        arms: arms.into_iter().map(|(name, _)| name).collect(),
        first_seed,
        seeds,
        eval: sets,
    };
    files::write(&out.join(PLAN), &serde_json::to_string(&plan)?)?;
    Ok(plan)
}

/// True if the folder is empty or does not exist.
fn is_free(out: &Path) -> bool {
    std::fs::read_dir(out).map_or(!out.exists(), |mut entries| entries.next().is_none())
}

fn differing(one: &Settings, other: &Settings) -> Result<Vec<String>> {
    differences(&toml::to_string(one)?, &toml::to_string(other)?)
}

/// Returns the question sets as they are found from any folder.
///
/// # Errors
/// Fails if a set cannot be graded, or two have the same name.
fn checked_sets(sets: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut names = Vec::new();
    for set in sets {
        let mut location = QuestionLocation::parse(&set.to_string_lossy());
        // `demo` and the name of a downloaded dataset are no paths.
        if set.as_os_str() != DEMO && location.path.exists() {
            location.path = std::path::absolute(&location.path)
                .with_context(|| format!("cannot resolve the path {}", set.display()))?;
        }
        let place = PathBuf::from(location.to_string());
        names.push(graded_questions(&place)?.0);
        found.push(place);
    }
    eval::check_names("question files", names.iter())?;
    Ok(found)
}

/// Opens a folder's comparison to resume it; the command line may change the number of seeds, and
/// the question sets until they are answered, then only their paths.
fn reopen(out: &Path, args: &CompareArgs) -> Result<ComparisonPlan> {
    let path = out.join(PLAN);
    let text = std::fs::read_to_string(&path).with_context(|| {
        format!("{} holds no comparison to resume: cannot read {PLAN}", out.display())
    })?;
    let mut plan: ComparisonPlan =
        serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))?;
    plan.seeds = args.seeds.unwrap_or(plan.seeds);
    let sets = checked_sets(if args.eval.is_empty() { &plan.eval } else { &args.eval })?;
    let first = run_folder(out, &plan.arms[0], plan.first_seed);
    let is_answered = first.join(SETS).exists() || first.join(SETS_BEFORE).exists();
    // By name: a file may have moved. `eval` compares the questions before it answers them.
    ensure!(
        set_names(&sets) == set_names(&plan.eval) || plan.eval.is_empty() || !is_answered,
        "the runs in {} have answered other question sets; omit --eval to resume with those",
        out.display()
    );
    plan.eval = sets;
    files::write(&path, &serde_json::to_string(&plan)?)?;
    Ok(plan)
}

/// Returns the names under which the runs save the answers to question sets.
fn set_names(sets: &[PathBuf]) -> BTreeSet<String> {
    sets.iter().map(|set| QuestionLocation::parse(&set.to_string_lossy()).name()).collect()
}

/// Returns the name and the resolved settings of every arm: the rules, then the files, with the
/// first of the rules; before them the settings as they are, unless a rule is named.
fn arms(args: &CompareArgs) -> Result<Vec<(String, Settings)>> {
    let mut arms = Vec::new();
    if args.plugin.is_empty() {
        arms.push((BASE.to_owned(), of_arm(args, None, None)?));
    }
    for text in &args.plugin {
        let plugin: WeightedPlugin = text.parse()?;
        let name = if plugin.weight == 1.0 {
            plugin.name()
        } else {
            format!("{}-{}", plugin.name(), plugin.weight)
        };
        arms.push((name, of_arm(args, Some(text), None)?));
    }
    for file in &args.arm {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let settings = of_arm(args, args.plugin.first(), Some(file))
            .with_context(|| format!("the arm {}", file.display()))?;
        arms.push((name, settings));
    }
    Ok(arms)
}

fn layers_of_arm(
    args: &CompareArgs,
    plugin: Option<&String>,
    file: Option<&PathBuf>,
) -> Result<Layers> {
    let reward =
        RewardArgs { plugin: plugin.into_iter().cloned().collect(), parts: args.parts.clone() };
    let flags: [&dyn Flags; 4] = [&args.policy, &args.questions, &reward, &args.length];
    settings::layers_of_arm(&args.settings, &flags, file.map(PathBuf::as_path))
}

/// Returns the settings of one arm: those of the command, with the arm's rule, or with its own file
/// last.
fn of_arm(args: &CompareArgs, plugin: Option<&String>, file: Option<&PathBuf>) -> Result<Settings> {
    let settings = layers_of_arm(args, plugin, file)?.settings()?;
    let (settings, _) = config::resolve_with(settings, |settings, problems| {
        TrainConfig::resolve(&RecordingArgs::default(), settings, problems)
    })?;
    Ok(settings)
}

fn train_args(out: &Path, arm: &str, seed: u64) -> TrainArgs {
    let run = run_folder(out, arm, seed);
    let length = LengthArgs { seed: Some(seed), steps: None };
    let mut args =
        TrainArgs { length, resume: run.join(folder::MANIFEST).exists(), ..TrainArgs::default() };
    // A run to resume has saved settings, with the measured threads and memory.
    if !args.resume {
        args.settings.config.push(out.join(arm).join(folder::CONFIG));
    }
    args.out = Some(run);
    args
}

fn run_folder(out: &Path, arm: &str, seed: u64) -> PathBuf {
    out.join(arm).join(format!("seed-{seed}"))
}

/// Returns a run's summary; `None` if the run is not finished.
fn read_summary(run: &Path) -> Result<Option<RunSummary>> {
    Ok(folder::read_json(&run.join(folder::SUMMARY))?)
}

fn summary(out: &Path, arm: &str, seed: u64) -> Result<RunSummary> {
    let run = run_folder(out, arm, seed);
    read_summary(&run)?.with_context(|| format!("{} is not finished", run.display()))
}
