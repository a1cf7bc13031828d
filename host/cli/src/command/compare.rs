//! `corver-host compare`: the same training in several arms, each with the same seeds.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use corver_study::compare::{Arm, PairedDifference, Spread, compare};
use corver_study::run::{Summary, folder};
use serde::{Deserialize, Serialize};

use crate::args::{CompareArgs, ConfigArgs, TrainArgs};
use crate::config::Config;
use crate::interrupt::Interrupt;
use crate::output;
use crate::plugin::Plugin;
use crate::settings::{self, Settings};

use super::train;

/// What is compared; the arms' settings lie in their folders.
const PLAN: &str = "compare.json";
/// What came out.
const COMPARISON: &str = "comparison.json";

/// The arm with the settings as they are.
const BASE: &str = "base";

/// What a comparison is made of.
#[derive(Debug, Serialize, Deserialize)]
struct Plan {
    /// The first is what the others are compared with.
    arms: Vec<String>,
    first_seed: u64,
    seeds: u64,
}

impl Plan {
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
    let go_on = format!("`corver-host compare --out {} --resume` goes on", out.display());
    let mut finished = 0;
    for (arm, seed) in runs {
        if read_summary(&run_folder(&out, arm, seed))?.is_none() {
            let state = || format!("{finished} of {total} runs are finished; {go_on}");
            eprintln!("run {} of {total}: {}, seed {seed}", finished + 1, output::escaped(arm));
            let trained = train::train_once(&train_args(&out, arm, seed), Some(&interrupt)).with_context(state)?;
            if trained.is_none() {
                eprintln!("{}", output::escaped(&state()));
                break;
            }
        }
        finished += 1;
    }

    let seeds: Vec<u64> = plan.seeds().take(finished / plan.arms.len()).collect(); // those that every arm has finished
    if seeds.is_empty() {
        return Ok(());
    }
    let summaries = plan.arms.iter().map(|arm| seeds.iter().map(|&seed| summary(&out, arm, seed)).collect());
    let summaries: Vec<Vec<Summary>> = summaries.collect::<Result<_>>()?;
    let arms = compare(&plan.arms, &summaries);
    let comparison = serde_json::json!({ "seeds": seeds, "arms": arms });
    write(&out.join(COMPARISON), &serde_json::to_string_pretty(&comparison)?)?;
    if json {
        return output::json(&comparison);
    }
    show(&arms, seeds.len());
    output::line(format_args!("everything is in {}", out.display()));
    Ok(())
}

/// Settings that decide how runs are measured, or that a comparison sets itself.
const COMMON: [&str; 3] = ["eval.", "question.eval", "run.seed"];

/// Resolves every arm's settings, and only then makes the folder with them. An arm that is the first one again is left out.
fn create(out: &Path, args: &CompareArgs) -> Result<Plan> {
    let seeds = args.seeds.unwrap_or(3);
    ensure!(seeds > 0, "--seeds is 0; without a run there is nothing to compare");
    let mut others = arms(args)?;
    let (first, settings) = others.remove(0);
    let mut arms = vec![(first, settings)];
    for (name, settings) in others {
        let first = &arms[0];
        ensure!(arms.iter().all(|(known, _)| *known != name), "two arms are called {name}");
        let different = differing(&first.1, &settings)?;
        if let Some(key) = different.iter().find(|key| COMMON.iter().any(|common| key.starts_with(common))) {
            bail!("{name} has another `{key}` than {}, but arms are measured alike, with the same seeds", first.0);
        }
        if different.is_empty() {
            let note = format!("{name} has the settings of {} and is not run a second time", first.0);
            eprintln!("{}", output::escaped(&note));
        } else {
            arms.push((name, settings));
        }
    }
    ensure!(
        arms.len() > 1,
        "there is nothing to compare {} with: give rules with --plugin, or settings with --arm",
        arms[0].0
    );
    for (name, settings) in &arms {
        let folder = out.join(name);
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
        write(&folder.join(folder::CONFIG), &toml::to_string_pretty(settings)?)?;
    }
    let first_seed = arms[0].1.run.seed;
    let plan = Plan { arms: arms.into_iter().map(|(name, _)| name).collect(), first_seed, seeds };
    write(&out.join(PLAN), &serde_json::to_string(&plan)?)?;
    Ok(plan)
}

fn differing(one: &Settings, other: &Settings) -> Result<Vec<String>> {
    settings::differences(&toml::to_string(one)?, &toml::to_string(other)?)
}

/// The comparison that a folder holds; more seeds may be asked for than before.
fn reopen(out: &Path, args: &CompareArgs) -> Result<Plan> {
    let path = out.join(PLAN);
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("{} holds no comparison to resume: cannot read {PLAN}", out.display()))?;
    let mut plan: Plan = serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))?;
    plan.seeds = args.seeds.unwrap_or(plan.seeds);
    write(&path, &serde_json::to_string(&plan)?)?;
    Ok(plan)
}

/// Names and resolved settings: the rules, then the files; before them the settings as they are, unless a rule was given.
fn arms(args: &CompareArgs) -> Result<Vec<(String, Settings)>> {
    let resolved = |config: &[PathBuf], plugin: &[String]| {
        let mut settings = args.settings.clone();
        if !config.is_empty() && settings.config.is_empty() {
            settings.config.push(settings::DEMO.into());
        }
        settings.config.extend_from_slice(config);
        let args = TrainArgs {
            config: ConfigArgs { settings, plugin: plugin.to_vec(), device: args.device.clone() },
            steps: args.steps,
            seed: args.seed,
            ..TrainArgs::default()
        };
        Config::resolve_for_training(Settings::of_train(&args)?).map(|config| config.to_settings())
    };
    let mut arms = Vec::new();
    if args.plugin.is_empty() {
        arms.push((BASE.to_owned(), resolved(&[], &[])?));
    }
    for text in &args.plugin {
        let Plugin { path, weight } = text.parse()?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let name = if weight == 1.0 { stem } else { format!("{stem}-{weight}") };
        arms.push((name, resolved(&[], std::slice::from_ref(text))?));
    }
    for file in &args.arm {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let settings =
            resolved(std::slice::from_ref(file), &[]).with_context(|| format!("the arm {}", file.display()))?;
        arms.push((name, settings));
    }
    Ok(arms)
}

fn train_args(out: &Path, arm: &str, seed: u64) -> TrainArgs {
    let run = run_folder(out, arm, seed);
    let mut args = TrainArgs { seed: Some(seed), resume: run.join(folder::MANIFEST).exists(), ..TrainArgs::default() };
    args.config.settings.config.push(out.join(arm).join(folder::CONFIG));
    args.out = Some(run);
    args
}

fn run_folder(out: &Path, arm: &str, seed: u64) -> PathBuf {
    out.join(arm).join(format!("seed-{seed}"))
}

/// `None` where the run is not finished.
fn read_summary(run: &Path) -> Result<Option<Summary>> {
    let path = run.join(folder::SUMMARY);
    match std::fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text).map(Some).with_context(|| format!("{} is damaged", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn summary(out: &Path, arm: &str, seed: u64) -> Result<Summary> {
    let run = run_folder(out, arm, seed);
    read_summary(&run)?.with_context(|| format!("{} is not finished", run.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// How a figure is shown: its heading, a factor and decimals.
const COLUMNS: [(&str, &str, f64, usize); 6] = [
    ("accuracy", "accuracy, %", 100.0, 1),
    ("supported_rate", "supported, %", 100.0, 1),
    ("true_sentences", "true sentences", 1.0, 2),
    ("false_sentences", "false sentences", 1.0, 2),
    ("refusal_rate", "refusals, %", 100.0, 1),
    ("mean_length", "tokens", 1.0, 1),
];

fn show(arms: &[Arm], seeds: usize) {
    let columns: Vec<_> = COLUMNS.iter().filter(|(figure, ..)| arms[0].figure(figure).is_some()).collect();
    let titles = || columns.iter().map(|(_, title, ..)| *title);
    let seeds = format!("{seeds} {}", if seeds == 1 { "seed" } else { "seeds" });
    let cells = |arm: &Arm, cell: &dyn Fn(&Spread, f64, usize) -> String| -> Vec<String> {
        let shown = columns.iter().map(|(figure, _, factor, decimals)| {
            arm.figure(figure).map_or("–".to_owned(), |spread| cell(spread, *factor, *decimals))
        });
        std::iter::once(arm.name.clone()).chain(shown).collect()
    };
    let value = |spread: &Spread, factor: f64, decimals: usize| {
        format!("{:.decimals$} ± {:.decimals$}", factor * spread.mean, factor * spread.deviation)
    };
    let header: Vec<&str> = std::iter::once(seeds.as_str()).chain(titles()).chain(["s/step", "time"]).collect();
    output::table(
        header,
        arms.iter().map(|arm| {
            let mut row = cells(arm, &value);
            let seconds = arm.figure("seconds_per_step").map_or(f64::NAN, |spread| spread.mean);
            row.extend([format!("{seconds:.2}"), format!("{:.2}×", arm.relative_time)]);
            row
        }),
    );

    let against = format!("against {}", arms[0].name);
    let difference = |spread: &Spread, factor: f64, decimals: usize| {
        let Some(PairedDifference { mean, interval }) = spread.difference else { return "–".to_owned() };
        let clear = if spread.difference.is_some_and(|difference| difference.is_clear()) { "*" } else { "" };
        let half =
            interval.map_or(String::new(), |(low, high)| format!(" ± {:.decimals$}", factor * (high - low) / 2.0));
        format!("{:+.decimals$}{half}{clear}", factor * mean)
    };
    let header: Vec<&str> = std::iter::once(against.as_str()).chain(titles()).collect();
    output::table(header, arms[1..].iter().map(|arm| cells(arm, &difference)));
    output::line(
        "means ± standard deviation over the seeds; differences seed by seed ± half of their 95 % interval, * where that leaves out 0",
    );
    for arm in &arms[1..] {
        if let Some(difference) = arm.figure("accuracy").and_then(|spread| spread.difference) {
            output::line(verdict(&arm.name, &arms[0].name, &difference));
        }
    }
}

fn verdict(arm: &str, first: &str, difference: &PairedDifference) -> String {
    match difference {
        PairedDifference { interval: None, .. } => {
            format!("{arm}: one seed cannot say whether it is more accurate than {first}; --resume --seeds 3 adds two")
        }
        difference if !difference.is_clear() => {
            format!("{arm}: no difference in accuracy from {first} that these seeds could show")
        }
        PairedDifference { mean, .. } if *mean > 0.0 => format!("{arm}: more accurate than {first}"),
        _ => format!("{arm}: less accurate than {first}"),
    }
}
