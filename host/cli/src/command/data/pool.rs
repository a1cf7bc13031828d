//! `corver-host data pool`: builds a pool of valid, distinct questions that the corpus covers.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use corver_data::QuestionRecord;
use corver_data::pool::FileCounts;
use corver_data::{Grounding, PoolSettings, PoolSummary, SourceFile, pool};
use corver_eval::filter::RETAINED;
use corver_reward::config::{self, CorpusConfig, Resolve};
use corver_reward::parts;
use corver_runs::{folder, json_fingerprint};

use crate::args::PoolArgs;
use crate::output;
use crate::questions::read_files;
use crate::resumed;
use crate::settings;

/// File with the reason for every dropped question.
const DROPPED: &str = "dropped.jsonl";

pub fn run(args: &PoolArgs, json: bool) -> Result<()> {
    let mut layers = settings::layers(&args.settings, &[&args.corpus])?;
    layers.add_own_part(); // the questions
    let (resolved, config) =
        config::resolve_with(settings::finish(&layers)?, |settings, problems| {
            match args.no_grounding {
                true => Some(None),
                false => CorpusConfig::resolve(settings, problems).map(Some),
            }
        })?;
    let language = resolved.reward.language;
    let settings = PoolSettings { near: args.near, max_chars: args.max_chars, language };
    let sources = read_sources(&args.files)?;
    let exclude = read_sources(&args.exclude)?;
    let mut corpus = config.as_ref().map(parts::open_corpus).transpose()?;

    let mut manifest = resumed::manifest();
    manifest.set("near", settings.near.to_string());
    manifest.set("max_chars", settings.max_chars.to_string());
    for (what, set) in [("questions", &sources), ("excluded", &exclude)] {
        for SourceFile { file, questions } in set {
            manifest.set(&format!("{what}: {file}"), json_fingerprint(questions)?);
        }
    }
    let index =
        corpus.as_ref().map(|(indexes, _)| corver_counts::fingerprint(indexes)).transpose()?;
    manifest.set("index", index.unwrap_or_else(|| "none".to_owned()));
    let resolved =
        toml::to_string_pretty(&resolved).context("writing the resolved configuration")?;
    let path = args.out.clone().unwrap_or_else(|| folder::next_free(Path::new("runs"), "pool"));
    let run = resumed::create(&path, &manifest, &resolved)?;

    let read: usize = sources.iter().map(|source| source.questions.len()).sum();
    let bar = output::progress(read as u64, "looking up");
    let mut progress = |done: usize| bar.set_position(done as u64);
    let mut grounding = corpus.as_mut().map(|(_, counter)| Grounding {
        counter: counter.as_mut(),
        language,
        progress: &mut progress,
    });
    let pool = pool(&sources, &exclude, &settings, grounding.as_mut())?;
    bar.finish_and_clear();
    let retained: Vec<_> =
        pool.retained.iter().map(|entry| QuestionRecord::from(entry.question)).collect();
    run.write_lines(RETAINED, &retained)?;
    run.write_lines(DROPPED, &pool.dropped)?;
    let summary = pool.summary(&sources);
    run.finish(&summary)?;
    if json {
        output::json(&summary)?;
    } else {
        show(&summary);
    }
    let dropped = path.join(DROPPED);
    ensure!(
        summary.retained > 0,
        "none of {} questions is left for the pool; {} has the reasons",
        summary.read,
        dropped.display()
    );
    if !json {
        output::line(format_args!(
            "{} has the reasons; `corver-host filter --model MODEL --questions {}` filters the pool",
            dropped.display(),
            path.join(RETAINED).display()
        ));
    }
    Ok(())
}

fn read_sources(paths: &[PathBuf]) -> Result<Vec<SourceFile>> {
    let mut sources = Vec::new();
    let mut seen = HashSet::new();
    for path in paths {
        for (file, questions) in read_files(path)? {
            let file = file.display().to_string();
            ensure!(seen.insert(file.clone()), "{file} is given twice");
            sources.push(SourceFile { file, questions });
        }
    }
    Ok(sources)
}

fn show(summary: &PoolSummary) {
    if summary.files.len() > 1 {
        let row = |FileCounts { file, read, retained }: &FileCounts| {
            [file.clone(), read.to_string(), retained.to_string()]
        };
        output::table(["file", "read", "retained"], summary.files.iter().map(row));
    }
    let share = |part: usize| output::percent(part as f64 / summary.read.max(1) as f64);
    let dropped = summary.dropped.iter().map(|(reason, &number)| (reason.describe(), number));
    let rows = std::iter::once(("retained", summary.retained)).chain(dropped);
    output::table(
        [&format!("{} questions", summary.read), "number", "share"],
        rows.map(|(what, number)| [what.to_owned(), number.to_string(), share(number)]),
    );
}
