//! `corver-host data evidence`: attaches corpus passages to questions.

use anyhow::{Result, bail};
use corver_backends::passages::PassageLocation;
use corver_core::{Question, Search};
use corver_counts::CorpusSource;
use corver_data::QuestionRecord;
use corver_reward::config::{self, CorpusConfig, DemoOr};
use corver_reward::parts;
use corver_settings::DEMO;
use serde_json::json;

use crate::args::EvidenceArgs;
use crate::files;
use crate::output;
use crate::questions::named_questions;
use crate::settings;

pub fn run(args: &EvidenceArgs, json: bool) -> Result<()> {
    files::ensure_new(&args.out)?;
    let mut layers = settings::layers(&args.settings, &[&args.corpus])?;
    if args.files.iter().any(|file| file.as_os_str() != DEMO) {
        layers.add_own_part();
    }
    let (_, corpus) = config::resolve::<CorpusConfig>(settings::finish(&layers)?)?;
    let mut questions = Vec::new();
    for file in &args.files {
        questions.extend(named_questions(file)?);
    }
    let passages = parts::open_passages(&places(&corpus, args)?)?;
    let bar = output::progress(questions.len() as u64, "searching");
    let mut attached = 0;
    let mut own = 0;
    let mut without = 0;
    let mut lines = String::new();
    for mut question in questions {
        if question.evidence.is_empty() {
            let found = passages.search(&search(&question, args.k))?;
            question.evidence = found.into_iter().map(|(_, passage)| passage.text).collect();
            if question.evidence.is_empty() { without += 1 } else { attached += 1 }
        } else {
            own += 1;
        }
        files::push_line(&mut lines, &QuestionRecord::from(&question))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    files::write(&args.out, &lines)?;
    if json {
        return output::json(
            &json!({"attached": attached, "own": own, "without": without, "out": args.out}),
        );
    }
    output::line(format_args!(
        "{}: {attached} questions with passages, {own} with evidence of their own, {without} \
         without any",
        args.out.display()
    ));
    Ok(())
}

/// Returns the places of the corpus's passages.
fn places(corpus: &CorpusConfig, args: &EvidenceArgs) -> Result<Vec<DemoOr<PassageLocation>>> {
    let mut places = Vec::new();
    for source in &corpus.sources {
        places.push(match source {
            DemoOr::Demo => DemoOr::Demo,
            DemoOr::Own(CorpusSource::Folder(folder)) => {
                DemoOr::Own(PassageLocation::new(folder, args.dir.as_deref())?)
            }
            DemoOr::Own(server @ CorpusSource::Remote { .. }) => {
                bail!("{server} only counts; passages need an index folder")
            }
        });
    }
    Ok(places)
}

/// Returns the search for a question: its words, and those of its first gold.
fn search(question: &Question, k: u32) -> Search {
    let gold = question.golds.first().map_or("", String::as_str);
    Search { title: None, query: format!("{} {gold}", question.question), k }
}
