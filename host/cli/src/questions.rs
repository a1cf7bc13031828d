//! Questions of a command: question sets of the configuration and of the command line, from files
//! of every kind.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use corver_core::{Question, question};
use corver_demo::demo_world;
use corver_reward::config::{DemoOr, Place, Problems, Resolve, absolute};
use corver_reward::hub;
use corver_settings::{DEMO, Settings, TrainQuestions};
use corver_study::data::{Curriculum, QuestionPlace, Share};
use corver_study::eval::Truth;
use serde_json::Value;

/// How a Parquet file begins.
const PARQUET: &[u8] = b"PAR1";

/// Questions of a training run or of the filter, resolved.
#[derive(Debug)]
pub enum TrainSets {
    /// One question set for the whole run.
    Set(Place),
    /// Phases of a curriculum: question sets, with the number of questions that each phase takes.
    Phases(Vec<Vec<(Place, usize)>>),
}

impl Resolve for TrainSets {
    fn resolve(settings: &mut Settings, problems: &mut Problems) -> Option<Self> {
        const KEY: &str = "question.train";
        match problems.required(KEY, settings.question.train.as_mut(), "--questions FILE")? {
            TrainQuestions::Set(text) => resolve_set(KEY, text, problems).map(Self::Set),
            TrainQuestions::Phases(phases) => {
                if phases.is_empty() || phases.iter().any(Vec::is_empty) {
                    problems.add(KEY, "a list of phases, each a list of { file, take }, with at least one of each");
                }
                let mut all = Vec::new();
                for phase in phases {
                    let mut shares = Vec::new();
                    for share in phase {
                        if share.take == 0 {
                            problems.add(KEY, format!("takes 0 questions of {}", share.file));
                        }
                        if let Some(place) = resolve_set(KEY, &mut share.file, problems) {
                            shares.push((place, share.take));
                        }
                    }
                    all.push(shares);
                }
                Some(Self::Phases(all))
            }
        }
    }
}

impl TrainSets {
    /// Reads the questions, in their phases.
    ///
    /// # Errors
    /// If a file is malformed or too short.
    pub fn read(&self, seed: u64) -> Result<Curriculum> {
        let of_demo = || corver_demo::demo_questions().0;
        let phases = match self {
            Self::Set(place) => return Ok(Curriculum::of_one(questions(place, of_demo)?)),
            Self::Phases(phases) => phases,
        };
        let mut places: Vec<&Place> = Vec::new();
        let mut all: Vec<Vec<Share>> = Vec::new();
        for phase in phases {
            let mut shares = Vec::new();
            for (place, take) in phase {
                let file = places.iter().position(|known| *known == place).unwrap_or_else(|| {
                    places.push(place);
                    places.len() - 1
                });
                shares.push(Share { file, take: *take });
            }
            all.push(shares);
        }
        let mut files = Vec::new();
        for place in places {
            files.push((
                place.written(|path| path.display().to_string()),
                questions(place, of_demo)?,
            ));
        }
        Curriculum::draw(files, &all, seed).context("`question.train`")
    }
}

/// Questions of an evaluation, resolved. Without a place there is no evaluation.
#[derive(Debug)]
pub struct EvalSet {
    place: Option<Place>,
    limit: Option<usize>,
}

impl Resolve for EvalSet {
    fn resolve(settings: &mut Settings, problems: &mut Problems) -> Option<Self> {
        let limit = settings.question.eval_limit;
        let place = match &mut settings.question.eval {
            None => None,
            Some(text) => Some(resolve_set("question.eval", text, problems)?),
        };
        Some(Self { place, limit })
    }
}

impl EvalSet {
    /// Reads the questions; none if no set is named.
    ///
    /// # Errors
    /// If a file is malformed, or a question has no gold answer.
    pub fn read(&self) -> Result<Vec<Question>> {
        let Some(place) = &self.place else { return Ok(Vec::new()) };
        let mut questions = questions(place, || corver_demo::demo_questions().1)?;
        check_golds("question.eval", &questions)?;
        questions.truncate(self.limit.unwrap_or(usize::MAX));
        Ok(questions)
    }

    /// Returns the truth about the world of the questions, if it is known: the demo's.
    #[must_use]
    pub fn truth(&self) -> Option<Arc<dyn Truth>> {
        (self.place == Some(DemoOr::Demo)).then(demo_truth)
    }
}

fn demo_truth() -> Arc<dyn Truth> {
    Arc::new(DemoTruth(corver_demo::Truth::of(&demo_world())))
}

/// The truth about sentences of the demo's world.
#[derive(Debug)]
struct DemoTruth(corver_demo::Truth);

impl Truth for DemoTruth {
    fn is_true(&self, sentence: &str) -> Option<bool> {
        self.0.is_true(sentence)
    }
}

/// Returns what is true of the questions that a command line names: known of the demo's alone.
pub fn truth_of(path: &Path) -> Option<Arc<dyn Truth>> {
    (path.as_os_str() == DEMO).then(demo_truth)
}

/// Makes the name of a question set absolute, and returns its place. A split stays behind its
/// folder: `FOLDER#train`.
fn resolve_set(key: &str, text: &mut String, problems: &mut Problems) -> Option<Place> {
    let place = problems.record(key, set_place(text))?;
    *text = place.written(|path| path.display().to_string());
    Some(place)
}

fn set_place(text: &str) -> Result<Place> {
    if text == DEMO {
        return Ok(DemoOr::Demo);
    }
    let QuestionPlace { path, split } = QuestionPlace::parse(text);
    let snapshot = path.to_str().and_then(|name| hub::snapshot(hub::Kind::Dataset, name));
    let path = match snapshot {
        Some(snapshot) if !path.exists() => absolute(&snapshot)?,
        _ => absolute(&path)?,
    };
    ensure!(path.exists(), hub::missing(hub::Kind::Dataset, &path));
    Ok(DemoOr::Own(QuestionPlace { path, split }.to_string().into()))
}

/// Questions that each have a gold, and the name of the place that a command line names.
pub fn graded_questions(path: &Path) -> Result<(String, Vec<Question>)> {
    let questions = named_questions(path)?;
    check_golds(&path.display().to_string(), &questions)?;
    Ok((QuestionPlace::parse(&path.to_string_lossy()).name(), questions))
}

/// The questions of every file of the place that a command line names, file by file.
pub fn read_files(path: &Path) -> Result<Vec<(PathBuf, Vec<Question>)>> {
    let place = match set_place(utf8(path)?)? {
        DemoOr::Own(place) => place,
        DemoOr::Demo => path.to_owned(),
    };
    files(&place)?.into_iter().map(|file| read(&file).map(|questions| (file, questions))).collect()
}

/// All questions of the place that a command line names; `demo` stands for those that the demo is
/// measured with.
pub fn named_questions(path: &Path) -> Result<Vec<Question>> {
    questions(&set_place(utf8(path)?)?, || corver_demo::demo_questions().1)
}

fn utf8(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("the path {} is not UTF-8", path.display()))
}

fn questions(place: &Place, of_demo: impl FnOnce() -> Vec<Question>) -> Result<Vec<Question>> {
    match place {
        DemoOr::Demo => Ok(of_demo()),
        DemoOr::Own(path) => {
            let parts: Vec<_> =
                files(path)?.iter().map(|file| read(file)).collect::<Result<_>>()?;
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
    let mut begins = || {
        File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok()
            && start == PARQUET
    };
    path.extension().is_some_and(|extension| extension == "parquet") || begins()
}

/// Without a gold, every answer would count as wrong.
fn check_golds(whence: &str, questions: &[Question]) -> Result<()> {
    match questions.iter().position(|question| question.golds.is_empty()) {
        Some(n) => bail!(
            "{whence}: question {} ({:?}) has no gold answer to grade with",
            n + 1,
            questions[n].question
        ),
        None => Ok(()),
    }
}
