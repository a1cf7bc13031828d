//! Question sets of the configuration and of the command line.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use corver_core::Question;
use corver_data::{Curriculum, FileShare, QuestionLocation};
use corver_demo::demo_world;
use corver_eval::FactChecker;
use corver_reward::config::{DemoOr, DemoOrPath, Problems, Resolve};
use corver_settings::{DEMO, Settings, TrainQuestions};

/// Resolved question sets of a training run or of the filter.
#[derive(Debug)]
pub enum TrainSets {
    /// One question set for the whole run.
    Set(DemoOrPath),
    /// Phases of a curriculum: question sets, with the number of questions that each phase takes.
    Phases(Vec<Vec<(DemoOrPath, usize)>>),
}

impl Resolve for TrainSets {
    fn resolve(settings: &mut Settings, problems: &mut Problems) -> Option<Self> {
        const KEY: &str = "question.train";
        match problems.required(KEY, settings.question.train.as_mut(), "--questions FILE")? {
            TrainQuestions::Set(text) => resolve_set(KEY, text, problems).map(Self::Set),
            TrainQuestions::Phases(phases) => {
                if phases.is_empty() || phases.iter().any(Vec::is_empty) {
                    problems.add(
                        KEY,
                        "a list of phases, each a list of { file, take }, with at least one of \
                         each",
                    );
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
    /// Reads the questions and draws those of each phase.
    ///
    /// # Errors
    /// Fails if a file is malformed or too short.
    pub fn read(&self, seed: u64) -> Result<Curriculum> {
        let of_demo = || corver_demo::demo_questions().0;
        let phases = match self {
            Self::Set(place) => return Ok(Curriculum::single_phase(questions(place, of_demo)?)),
            Self::Phases(phases) => phases,
        };
        let mut places: Vec<&DemoOrPath> = Vec::new();
        let mut all: Vec<Vec<FileShare>> = Vec::new();
        for phase in phases {
            let mut shares = Vec::new();
            for (place, take) in phase {
                let file = places.iter().position(|known| *known == place).unwrap_or_else(|| {
                    places.push(place);
                    places.len() - 1
                });
                shares.push(FileShare { file, take: *take });
            }
            all.push(shares);
        }
        let mut files = Vec::new();
        for place in places {
            files.push((
                place.to_setting(|path| path.display().to_string()),
                questions(place, of_demo)?,
            ));
        }
        Curriculum::draw(files, &all, seed).context("`question.train`")
    }
}

/// Resolved question set of the evaluation; without one, nothing is evaluated.
#[derive(Debug)]
pub struct EvalSet {
    place: Option<DemoOrPath>,
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
    /// Fails if a file is malformed, or a question has no gold.
    pub fn read(&self) -> Result<Vec<Question>> {
        let Some(place) = &self.place else { return Ok(Vec::new()) };
        let mut questions = questions(place, || corver_demo::demo_questions().1)?;
        check_golds("question.eval", &questions)?;
        questions.truncate(self.limit.unwrap_or(usize::MAX));
        Ok(questions)
    }

    /// Returns the oracle for sentences about the questions; only the demo has one.
    #[must_use]
    pub fn truth(&self) -> Option<Arc<dyn FactChecker>> {
        (self.place == Some(DemoOr::Demo)).then(demo_truth)
    }
}

fn demo_truth() -> Arc<dyn FactChecker> {
    Arc::new(DemoTruth(corver_demo::WorldTruth::new(&demo_world())))
}

/// An oracle for sentences about the demo's world.
#[derive(Debug)]
struct DemoTruth(corver_demo::WorldTruth);

impl FactChecker for DemoTruth {
    fn is_true(&self, sentence: &str) -> Option<bool> {
        self.0.is_true(sentence)
    }
}

/// Returns the oracle for a question set of a command line; only the demo has one.
pub fn truth_of(path: &Path) -> Option<Arc<dyn FactChecker>> {
    (path.as_os_str() == DEMO).then(demo_truth)
}

/// Resolves the location of a question set, and makes its path absolute. The split stays after the
/// folder: `FOLDER#train`.
fn resolve_set(key: &str, text: &mut String, problems: &mut Problems) -> Option<DemoOrPath> {
    let place = problems.record(key, set_place(text))?;
    *text = place.to_setting(|path| path.display().to_string());
    Some(place)
}

fn set_place(text: &str) -> Result<DemoOrPath> {
    match text {
        DEMO => Ok(DemoOr::Demo),
        text => Ok(DemoOr::Own(QuestionLocation::find(text)?.to_string().into())),
    }
}

/// Reads a question set of a command line, and returns it with its name.
///
/// # Errors
/// Fails if a file is malformed, or a question has no gold.
pub fn graded_questions(path: &Path) -> Result<(String, Vec<Question>)> {
    let questions = named_questions(path)?;
    check_golds(&path.display().to_string(), &questions)?;
    Ok((QuestionLocation::parse(&path.to_string_lossy()).name(), questions))
}

/// Reads a question set of a command line, file by file.
pub fn read_files(path: &Path) -> Result<Vec<(PathBuf, Vec<Question>)>> {
    Ok(QuestionLocation::find(utf8(path)?)?.read()?)
}

/// Reads a question set of a command line; `demo` names the demo's evaluation questions.
pub fn named_questions(path: &Path) -> Result<Vec<Question>> {
    questions(&set_place(utf8(path)?)?, || corver_demo::demo_questions().1)
}

fn utf8(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("the path {} is not UTF-8", path.display()))
}

fn questions(place: &DemoOrPath, of_demo: impl FnOnce() -> Vec<Question>) -> Result<Vec<Question>> {
    let DemoOr::Own(path) = place else { return Ok(of_demo()) };
    let files = QuestionLocation::parse(utf8(path)?).read()?;
    Ok(files.into_iter().flat_map(|(_, questions)| questions).collect())
}

/// Fails if a question has no gold: every answer to it would count as wrong.
fn check_golds(origin: &str, questions: &[Question]) -> Result<()> {
    match questions.iter().position(|question| question.golds.is_empty()) {
        Some(n) => bail!(
            "{origin}: question {} ({:?}) has no gold answer to grade with",
            n + 1,
            questions[n].question
        ),
        None => Ok(()),
    }
}
