//! Questions, from files of every kind.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use corver_core::{Question, question};
use corver_study::data::{Curriculum, QuestionPlace, Share};
use corver_study::eval::Truth;
use serde_json::Value;

use super::{demo, named};
use crate::config::{self, Config, DemoOr, Place};
use crate::hub;

/// How a Parquet file begins.
const PARQUET: &[u8] = b"PAR1";

/// The configuration's questions to learn from, in its phases.
///
/// # Errors
/// Where none are set, or a file is missing, malformed or too short.
pub fn train_questions(config: &Config) -> Result<Curriculum> {
    let read = |place: &Place| questions(place, || corver_demo::demo_questions().0);
    if config.train_phases.is_empty() {
        return Ok(Curriculum::of_one(read(named("question.train", config.train_questions.as_ref())?)?));
    }
    let mut places: Vec<&Place> = Vec::new();
    let mut phases: Vec<Vec<Share>> = Vec::new();
    for phase in &config.train_phases {
        let mut shares = Vec::new();
        for (place, take) in phase {
            let file = places.iter().position(|known| *known == place).unwrap_or_else(|| {
                places.push(place);
                places.len() - 1
            });
            shares.push(Share { file, take: *take });
        }
        phases.push(shares);
    }
    let file = |place: &Place| Ok((place.written(|path| path.display().to_string()), read(place)?));
    let files = places.into_iter().map(file).collect::<Result<_>>()?;
    Curriculum::draw(files, &phases, config.seed).context("`question.phases`")
}

/// None where none are set.
pub fn eval_questions(config: &Config) -> Result<Vec<Question>> {
    let Some(place) = &config.eval_questions else { return Ok(Vec::new()) };
    let mut questions = questions(place, || corver_demo::demo_questions().1)?;
    check_golds("question.eval", &questions)?;
    if config.eval_limit > 0 {
        questions.truncate(config.eval_limit);
    }
    Ok(questions)
}

/// Questions that each have a gold, and the name of the place that a command line names.
pub fn graded_questions(path: &Path) -> Result<(String, Vec<Question>)> {
    let questions = named_questions(path)?;
    check_golds(&path.display().to_string(), &questions)?;
    Ok((QuestionPlace::parse(&path.to_string_lossy()).name(), questions))
}

/// What is true of the world that the evaluation questions are about, where that is known: of the demo's.
pub fn truth(config: &Config) -> Option<Arc<dyn Truth>> {
    (config.eval_questions == Some(DemoOr::Demo)).then(|| Arc::new(demo::DemoTruth::default()) as _)
}

/// The questions of every file of the place that a command line names, file by file.
pub fn read_files(path: &Path) -> Result<Vec<(PathBuf, Vec<Question>)>> {
    let place = match config::questions(utf8(path)?)? {
        Some(DemoOr::Own(place)) => place,
        _ => path.to_owned(),
    };
    files(&place)?.into_iter().map(|file| read(&file).map(|questions| (file, questions))).collect()
}

/// All questions of the place that a command line names; `demo` stands for those that the demo is measured with.
pub fn named_questions(path: &Path) -> Result<Vec<Question>> {
    let place = config::questions(utf8(path)?)?.unwrap_or_else(|| DemoOr::Own(path.to_owned()));
    questions(&place, || corver_demo::demo_questions().1)
}

fn utf8(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("the path {} is not UTF-8", path.display()))
}

fn questions(place: &Place, of_demo: impl FnOnce() -> Vec<Question>) -> Result<Vec<Question>> {
    match place {
        DemoOr::Demo => Ok(of_demo()),
        DemoOr::Own(path) => {
            let parts: Vec<_> = files(path)?.iter().map(|file| read(file)).collect::<Result<_>>()?;
            Ok(parts.concat())
        }
    }
}

fn files(path: &Path) -> Result<Vec<PathBuf>> {
    let place = QuestionPlace::parse(&path.to_string_lossy());
    ensure!(place.path.exists(), hub::missing(hub::Kind::Dataset, &place.path));
    Ok(place.files()?)
}

fn read(path: &Path) -> Result<Vec<Question>> {
    if !is_parquet(path) {
        return Ok(question::read_questions(path)?);
    }
    let records: Vec<Value> = corver_corpus::parquet_records(path)?.collect::<Result<_, _>>()?;
    Ok(question::questions(path, records)?)
}

/// By its name, or by how it begins.
fn is_parquet(path: &Path) -> bool {
    let mut start = [0; PARQUET.len()];
    let mut begins = || File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == PARQUET;
    path.extension().is_some_and(|extension| extension == "parquet") || begins()
}

/// Without a gold, every answer would count as wrong.
fn check_golds(whence: &str, questions: &[Question]) -> Result<()> {
    match questions.iter().position(|question| question.golds.is_empty()) {
        Some(n) => bail!("{whence}: question {} ({:?}) has no gold answer to grade with", n + 1, questions[n].question),
        None => Ok(()),
    }
}
