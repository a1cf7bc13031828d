//! The candidate pool that a policy's questions are filtered from (paper, App. datasets): sound
//! questions that the corpus speaks of, each once, and none that an evaluation asks. The paper also
//! lets a language model rephrase questions; that is not done here.

use std::collections::BTreeMap;

use corver_core::Question;
use serde::Serialize;

use super::duplicates::{Match, Seen, prints};
use super::grounding::{Grounding, GroundingError, Missing};

/// Questions of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Its name.
    pub file: String,
    /// In order.
    pub questions: Vec<Question>,
}

/// What a pool takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PoolSettings {
    /// The least Jaccard similarity of near duplicates, above 0 and at most 1.
    pub near: f64,
    /// Characters of the longest question.
    pub max_chars: usize,
}

impl Default for PoolSettings {
    /// At 0.85, a question of six words and more may gain or lose one, and one of up to twelve may
    /// not exchange one for another: that would be another name or year. The longest question of
    /// NQ-Open has about 100 characters.
    fn default() -> Self {
        Self { near: 0.85, max_chars: 300 }
    }
}

/// Why a question is not in the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It has no word.
    NoText,
    /// It is absurdly long.
    TooLong,
    /// It has no gold.
    NoGold,
    /// An evaluation set has the same question.
    InEvaluation,
    /// An evaluation set has nearly the same question.
    NearEvaluation,
    /// No title of its record occurs in the corpus.
    TitleNotFound,
    /// Its words do not occur together in the corpus.
    WordsNotFound,
    /// Its words occur together, but not with a gold.
    AnswerNotFound,
    /// The pool has the same question.
    Duplicate,
    /// The pool has nearly the same question.
    NearDuplicate,
}

impl Reason {
    /// For a table.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::NoText => "without text",
            Self::TooLong => "too long",
            Self::NoGold => "without a gold",
            Self::InEvaluation => "asked by an evaluation set",
            Self::NearEvaluation => "nearly asked by an evaluation set",
            Self::TitleNotFound => "title not in the corpus",
            Self::WordsNotFound => "words not together in the corpus",
            Self::AnswerNotFound => "words not with a gold in the corpus",
            Self::Duplicate => "the same as an earlier one",
            Self::NearDuplicate => "nearly the same as an earlier one",
        }
    }
}

/// A question where it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Entry<'a> {
    /// Name of the file.
    pub file: &'a str,
    /// Counted from 1.
    pub record: usize,
    /// The question.
    #[serde(serialize_with = "text")]
    pub question: &'a Question,
}

/// Of a question, a file of findings needs the text.
fn text<S: serde::Serializer>(question: &&Question, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&question.question)
}

/// Why a question was dropped.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding<'a> {
    /// In a word.
    pub reason: Reason,
    /// The question that it duplicates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<Entry<'a>>,
    /// Jaccard similarity of the two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub similarity: Option<f64>,
    /// The query that found nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
}

/// A question that is not in the pool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Dropped<'a> {
    /// The question.
    #[serde(flatten)]
    pub entry: Entry<'a>,
    /// Why.
    #[serde(flatten)]
    pub finding: Finding<'a>,
}

/// Every question that was read, kept or dropped, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool<'a> {
    /// The pool.
    pub kept: Vec<Entry<'a>>,
    /// What is not in it.
    pub dropped: Vec<Dropped<'a>>,
}

/// How many questions of each kind there are.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// In all files.
    pub read: usize,
    /// In the pool.
    pub kept: usize,
    /// Not in it, by reason.
    pub dropped: BTreeMap<Reason, usize>,
    /// By file, in order: how many were read, and how many of them kept.
    pub files: Vec<(String, usize, usize)>,
}

/// Makes a pool of the questions of all sources. Of questions that are the same, the first is kept:
/// the order of the sources decides. `not_in` are evaluation sets. Without `grounding`, no corpus
/// is asked.
///
/// # Errors
/// Where the corpus cannot be asked.
pub fn pool<'a>(
    sources: &'a [Source],
    not_in: &'a [Source],
    settings: &PoolSettings,
    grounding: Option<&mut Grounding<'_>>,
) -> Result<Pool<'a>, GroundingError> {
    let (read, evaluated) = (entries(sources), entries(not_in));
    let prints = prints(read.iter().chain(&evaluated).map(|entry| entry.question));
    let (prints, evaluated_prints) = prints.split_at(read.len());

    let mut findings: Vec<Option<Finding<'_>>> = read
        .iter()
        .zip(prints)
        .map(|(entry, print)| unsound(entry.question, &print.text, settings))
        .collect();
    let mut asked = Seen::new(settings.near);
    evaluated_prints.iter().for_each(|print| asked.add(print));
    for number in left(&findings) {
        let of_evaluation = [Reason::InEvaluation, Reason::NearEvaluation];
        findings[number] = asked
            .find(&prints[number])
            .map(|found| repeated(found, evaluated[found.number], of_evaluation));
    }
    // Grounded first: what the corpus does not know must not stand in the way of another wording
    // that it does.
    if let Some(grounding) = grounding {
        let numbers = left(&findings);
        let questions: Vec<&Question> =
            numbers.iter().map(|&number| read[number].question).collect();
        for (number, missing) in numbers.into_iter().zip(grounding.check(&questions)?) {
            findings[number] =
                missing.map(|(missing, query)| ungrounded(missing, query.to_string()));
        }
    }
    let (mut kept, mut seen) = (Vec::new(), Seen::new(settings.near));
    for number in left(&findings) {
        let of_pool = [Reason::Duplicate, Reason::NearDuplicate];
        match seen.find(&prints[number]) {
            Some(found) => findings[number] = Some(repeated(found, kept[found.number], of_pool)),
            None => {
                seen.add(&prints[number]);
                kept.push(read[number]);
            }
        }
    }
    let dropped = read
        .into_iter()
        .zip(findings)
        .filter_map(|(entry, finding)| Some(Dropped { entry, finding: finding? }));
    Ok(Pool { kept, dropped: dropped.collect() })
}

impl Pool<'_> {
    /// The figures of a pool that was made of these.
    #[must_use]
    pub fn summary(&self, sources: &[Source]) -> Summary {
        let mut dropped = BTreeMap::new();
        self.dropped.iter().for_each(|one| *dropped.entry(one.finding.reason).or_default() += 1);
        let file = |source: &Source| {
            let kept = self.kept.iter().filter(|entry| entry.file == source.file).count();
            (source.file.clone(), source.questions.len(), kept)
        };
        let read = self.kept.len() + self.dropped.len();
        Summary { read, kept: self.kept.len(), dropped, files: sources.iter().map(file).collect() }
    }
}

fn entries(sources: &[Source]) -> Vec<Entry<'_>> {
    sources.iter().flat_map(|Source { file, questions }| numbered(file, questions)).collect()
}

fn numbered<'a>(file: &'a str, questions: &'a [Question]) -> impl Iterator<Item = Entry<'a>> {
    questions.iter().enumerate().map(move |(index, question)| Entry {
        file,
        record: index + 1,
        question,
    })
}

/// The questions that nothing was found against.
fn left(findings: &[Option<Finding<'_>>]) -> Vec<usize> {
    (0..findings.len()).filter(|&number| findings[number].is_none()).collect()
}

fn unsound(
    question: &Question,
    normalised: &str,
    settings: &PoolSettings,
) -> Option<Finding<'static>> {
    let reason = if normalised.is_empty() {
        Reason::NoText
    } else if question.question.chars().count() > settings.max_chars {
        Reason::TooLong
    } else if question.golds.iter().all(|gold| gold.trim().is_empty()) {
        Reason::NoGold
    } else {
        return None;
    };
    Some(Finding { reason, of: None, similarity: None, query: None })
}

fn repeated<'a>(found: Match, of: Entry<'a>, [same, near]: [Reason; 2]) -> Finding<'a> {
    let reason = if found.same_text { same } else { near };
    Finding { reason, of: Some(of), similarity: Some(found.similarity), query: None }
}

fn ungrounded(missing: Missing, query: String) -> Finding<'static> {
    let reason = match missing {
        Missing::Title => Reason::TitleNotFound,
        Missing::Words => Reason::WordsNotFound,
        Missing::Answer => Reason::AnswerNotFound,
    };
    Finding { reason, of: None, similarity: None, query: Some(query) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn question(text: &str, gold: &str) -> Question {
        Question { question: text.into(), golds: vec![gold.into()], ..Question::default() }
    }

    fn source(file: &str, questions: impl IntoIterator<Item = Question>) -> Source {
        Source { file: file.into(), questions: questions.into_iter().collect() }
    }

    fn ungrounded_pool<'a>(sources: &'a [Source], not_in: &'a [Source]) -> Pool<'a> {
        pool(sources, not_in, &PoolSettings::default(), None).unwrap()
    }

    #[test]
    fn pool_reports_reason_and_evidence_for_drops() {
        let long = "how long ".repeat(40);
        let nq = source(
            "nq",
            [
                question("who wrote the iliad", "Homer"),
                question("?!", "x"),
                question(&long, "x"),
                question("who wrote the aeneid", " "),
                question("what is the capital of peru", "Lima"),
            ],
        );
        let web = source(
            "webq",
            [question("Who wrote Iliad?", "Homer"), question("who painted guernica", "Picasso")],
        );
        let eval = source("eval", [question("What is the capital of Peru?", "Lima")]);
        let (sources, not_in) = ([nq, web], [eval]);
        let pool = ungrounded_pool(&sources, &not_in);
        let reasons: Vec<_> = pool
            .dropped
            .iter()
            .map(|one| (one.entry.file, one.entry.record, one.finding.reason))
            .collect();
        let expected = [
            ("nq", 2, Reason::NoText),
            ("nq", 3, Reason::TooLong),
            ("nq", 4, Reason::NoGold),
            ("nq", 5, Reason::InEvaluation),
            ("webq", 1, Reason::Duplicate),
        ];
        assert_eq!(reasons, expected);
        let of = |n: usize| pool.dropped[n].finding.of.map(|entry| (entry.file, entry.record));
        assert_eq!((of(3), of(4)), (Some(("eval", 1)), Some(("nq", 1))));
        let summary = pool.summary(&sources);
        assert_eq!(
            (summary.read, summary.kept, summary.files[1].clone()),
            (7, 2, ("webq".into(), 2, 1))
        );
        assert_eq!(
            serde_json::to_string(&pool.dropped[4]).unwrap(),
            r#"{"file":"webq","record":1,"question":"Who wrote Iliad?","reason":"duplicate","of":{"file":"nq","record":1,"question":"who wrote the iliad"},"similarity":1.0}"#
        );
    }

    fn any_question() -> impl Strategy<Value = Question> {
        ("[b-f]( [b-f]){0,7}|[.]{0,2}", "[xyz ]").prop_map(|(text, gold)| question(&text, &gold))
    }

    fn any_source(file: &'static str) -> impl Strategy<Value = Source> {
        proptest::collection::vec(any_question(), 0..30)
            .prop_map(move |questions| source(file, questions))
    }

    proptest! {
        #[test]
        fn pooling_loses_no_question_and_is_idempotent(one in any_source("one"), two in any_source("two"), eval in any_source("eval")) {
            let (sources, not_in) = ([one, two], [eval]);
            let first = ungrounded_pool(&sources, &not_in);
            let mut all: Vec<_> = first.kept.iter().chain(first.dropped.iter().map(|one| &one.entry))
                .map(|entry| (entry.file, entry.record)).collect();
            all.sort_unstable();
            let read: Vec<_> = entries(&sources).iter().map(|entry| (entry.file, entry.record)).collect();
            prop_assert_eq!(all, read);
            // A pool of a pool drops nothing.
            let again = [source("pool", first.kept.iter().map(|entry| entry.question.clone()))];
            prop_assert!(ungrounded_pool(&again, &not_in).dropped.is_empty());
        }

        /// What comes later changes nothing about what is kept of an earlier file.
        #[test]
        fn earlier_pool_file_takes_precedence(one in any_source("one"), two in any_source("two")) {
            let alone = [one.clone()];
            let both = [one, two];
            let kept_alone: Vec<_> = ungrounded_pool(&alone, &[]).kept.iter().map(|entry| entry.record).collect();
            let pool = ungrounded_pool(&both, &[]);
            let kept: Vec<_> = pool.kept.iter().filter(|entry| entry.file == "one").map(|entry| entry.record).collect();
            prop_assert_eq!(kept, kept_alone);
        }
    }
}
