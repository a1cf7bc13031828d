//! The candidate pool from which a policy's questions are filtered (paper, App. datasets):
//! well-formed questions that are grounded in the corpus, without duplicates and without questions
//! of the evaluation sets. The paper also has a language model rephrase questions; CorVer does not.

use std::collections::BTreeMap;

use corver_core::{Language, Question};
use serde::Serialize;

use super::duplicates::{DuplicateIndex, DuplicateMatch, normalize_questions};
use super::grounding::{Grounding, GroundingError, UngroundedPart};

/// The questions of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Name of the file.
    pub file: String,
    /// Questions in the order of the file.
    pub questions: Vec<Question>,
}

/// The criteria of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PoolSettings {
    /// Least Jaccard similarity of near duplicates, above 0 and at most 1.
    pub near: f64,
    /// Longest text of a question, characters.
    pub max_chars: usize,
    /// Language of the questions.
    pub language: Language,
}

impl Default for PoolSettings {
    /// At 0.85, questions of six words or more are near duplicates if one has one word more. If one
    /// word is replaced by another, such as a name or a year, questions of up to twelve words are
    /// not. The longest question of NQ-Open has about 100 characters.
    fn default() -> Self {
        Self { near: 0.85, max_chars: 300, language: Language::English }
    }
}

/// The reason for dropping a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DropReason {
    /// The text has no word.
    NoText,
    /// The text is longer than the limit.
    TooLong,
    /// The question has no gold, or blank ones.
    NoGold,
    /// An evaluation set has the same question.
    InEvaluation,
    /// An evaluation set has nearly the same question.
    NearEvaluation,
    /// No title of the record occurs in the corpus.
    TitleNotFound,
    /// The words do not occur together in the corpus.
    WordsNotFound,
    /// The words occur together, but not with a gold.
    AnswerNotFound,
    /// The pool has the same question.
    Duplicate,
    /// The pool has nearly the same question.
    NearDuplicate,
}

impl DropReason {
    /// Returns the label of a table's row.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::NoText => "without text",
            Self::TooLong => "too long",
            Self::NoGold => "without a gold",
            Self::InEvaluation => "in an evaluation set",
            Self::NearEvaluation => "nearly the same as one in an evaluation set",
            Self::TitleNotFound => "title not in the corpus",
            Self::WordsNotFound => "words not together in the corpus",
            Self::AnswerNotFound => "words not with a gold in the corpus",
            Self::Duplicate => "the same as an earlier one",
            Self::NearDuplicate => "nearly the same as an earlier one",
        }
    }
}

/// A question with its file and record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PoolEntry<'a> {
    /// Name of the file.
    pub file: &'a str,
    /// Number of the record, counted from 1.
    pub record: usize,
    /// Question; only the text is serialised.
    #[serde(serialize_with = "text")]
    pub question: &'a Question,
}

fn text<S: serde::Serializer>(question: &&Question, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&question.question)
}

/// The reason for dropping a question, with the evidence.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DropFinding<'a> {
    /// Reason for the drop.
    pub reason: DropReason,
    /// Question that this one duplicates, if it is a duplicate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "of")]
    pub duplicate_of: Option<PoolEntry<'a>>,
    /// Jaccard similarity to that question, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub similarity: Option<f64>,
    /// Query without a match, if the question is ungrounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
}

/// A question that is not in the pool, with the reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DroppedQuestion<'a> {
    /// Question with its file and record.
    #[serde(flatten)]
    pub entry: PoolEntry<'a>,
    /// Reason for the drop, with the evidence.
    #[serde(flatten)]
    pub finding: DropFinding<'a>,
}

/// The questions of a pool and the dropped ones, each in the order in which they were read.
#[derive(Debug, Clone, PartialEq)]
pub struct QuestionPool<'a> {
    /// Questions of the pool.
    pub retained: Vec<PoolEntry<'a>>,
    /// Dropped questions with their reasons.
    pub dropped: Vec<DroppedQuestion<'a>>,
}

/// Numbers of questions that a pool retains and drops.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PoolSummary {
    /// Number of questions in all files.
    pub read: usize,
    /// Number of questions in the pool.
    pub retained: usize,
    /// Number of dropped questions by reason.
    pub dropped: BTreeMap<DropReason, usize>,
    /// Numbers of questions by file, in order.
    pub files: Vec<FileCounts>,
}

/// Numbers of questions of a file, serialised as `[file, read, retained]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileCounts {
    /// Name of the file.
    pub file: String,
    /// Number of questions in the file.
    pub read: usize,
    /// Number of those that are in the pool.
    pub retained: usize,
}

impl Serialize for FileCounts {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (&self.file, self.read, self.retained).serialize(serializer)
    }
}

/// Makes a pool of the questions of all sources. Of duplicates, the first in the order of the
/// sources is retained. `exclude` are evaluation sets. Without `grounding`, no corpus is searched.
///
/// # Errors
/// Fails if a count fails.
pub fn pool<'a>(
    sources: &'a [SourceFile],
    exclude: &'a [SourceFile],
    settings: &PoolSettings,
    grounding: Option<&mut Grounding<'_>>,
) -> Result<QuestionPool<'a>, GroundingError> {
    let entries = pool_entries(sources);
    let evaluation = pool_entries(exclude);
    // Words are ranked over all questions: only then can the two sets be compared.
    let all = entries.iter().chain(&evaluation).map(|entry| entry.question);
    let normalized = normalize_questions(all, settings.language);
    let (normalized, normalized_evaluation) = normalized.split_at(entries.len());

    let mut findings: Vec<Option<DropFinding<'_>>> = Vec::with_capacity(entries.len());
    for (entry, question) in entries.iter().zip(normalized) {
        findings.push(malformed(entry.question, &question.text, settings));
    }
    let mut evaluation_index = DuplicateIndex::new(settings.near);
    for question in normalized_evaluation {
        evaluation_index.add(question);
    }
    for number in without_finding(&findings) {
        if let Some(found) = evaluation_index.find(&normalized[number]) {
            let reasons = [DropReason::InEvaluation, DropReason::NearEvaluation];
            findings[number] = Some(duplicate(found, evaluation[found.number], reasons));
        }
    }
    // Grounding comes before the search for duplicates: an ungrounded question must not displace
    // another wording that is grounded.
    if let Some(grounding) = grounding {
        let numbers = without_finding(&findings);
        let questions: Vec<&Question> =
            numbers.iter().map(|&number| entries[number].question).collect();
        for (number, part) in numbers.into_iter().zip(grounding.check(&questions)?) {
            if let Some((part, query)) = part {
                findings[number] = Some(ungrounded(part, query.to_string()));
            }
        }
    }
    let mut retained = Vec::new();
    let mut retained_index = DuplicateIndex::new(settings.near);
    for number in without_finding(&findings) {
        match retained_index.find(&normalized[number]) {
            Some(found) => {
                let reasons = [DropReason::Duplicate, DropReason::NearDuplicate];
                findings[number] = Some(duplicate(found, retained[found.number], reasons));
            }
            None => {
                retained_index.add(&normalized[number]);
                retained.push(entries[number]);
            }
        }
    }
    let mut dropped = Vec::new();
    for (entry, finding) in entries.into_iter().zip(findings) {
        if let Some(finding) = finding {
            dropped.push(DroppedQuestion { entry, finding });
        }
    }
    Ok(QuestionPool { retained, dropped })
}

impl QuestionPool<'_> {
    /// Counts the questions of a pool that was made of `sources`.
    #[must_use]
    pub fn summary(&self, sources: &[SourceFile]) -> PoolSummary {
        let mut dropped = BTreeMap::new();
        for question in &self.dropped {
            *dropped.entry(question.finding.reason).or_default() += 1;
        }
        let mut files = Vec::with_capacity(sources.len());
        for SourceFile { file, questions } in sources {
            let retained = self.retained.iter().filter(|entry| entry.file == file).count();
            files.push(FileCounts { file: file.clone(), read: questions.len(), retained });
        }
        PoolSummary {
            read: self.retained.len() + self.dropped.len(),
            retained: self.retained.len(),
            dropped,
            files,
        }
    }
}

fn pool_entries(sources: &[SourceFile]) -> Vec<PoolEntry<'_>> {
    let mut entries = Vec::new();
    for SourceFile { file, questions } in sources {
        for (index, question) in questions.iter().enumerate() {
            entries.push(PoolEntry { file, record: index + 1, question });
        }
    }
    entries
}

/// Returns the numbers of the questions that no check has dropped so far.
fn without_finding(findings: &[Option<DropFinding<'_>>]) -> Vec<usize> {
    (0..findings.len()).filter(|&number| findings[number].is_none()).collect()
}

fn malformed(
    question: &Question,
    normalized_text: &str,
    settings: &PoolSettings,
) -> Option<DropFinding<'static>> {
    let reason = if normalized_text.is_empty() {
        DropReason::NoText
    } else if question.question.chars().count() > settings.max_chars {
        DropReason::TooLong
    } else if question.golds.iter().all(|gold| gold.trim().is_empty()) {
        DropReason::NoGold
    } else {
        return None;
    };
    Some(DropFinding { reason, duplicate_of: None, similarity: None, query: None })
}

fn duplicate<'a>(
    found: DuplicateMatch,
    original: PoolEntry<'a>,
    [same, near]: [DropReason; 2],
) -> DropFinding<'a> {
    DropFinding {
        reason: if found.same_text { same } else { near },
        duplicate_of: Some(original),
        similarity: Some(found.similarity),
        query: None,
    }
}

fn ungrounded(part: UngroundedPart, query: String) -> DropFinding<'static> {
    let reason = match part {
        UngroundedPart::Title => DropReason::TitleNotFound,
        UngroundedPart::Words => DropReason::WordsNotFound,
        UngroundedPart::Answer => DropReason::AnswerNotFound,
    };
    DropFinding { reason, duplicate_of: None, similarity: None, query: Some(query) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn question(text: &str, gold: &str) -> Question {
        Question { question: text.into(), golds: vec![gold.into()], ..Question::default() }
    }

    fn source(file: &str, questions: impl IntoIterator<Item = Question>) -> SourceFile {
        SourceFile { file: file.into(), questions: questions.into_iter().collect() }
    }

    fn ungrounded_pool<'a>(
        sources: &'a [SourceFile],
        exclude: &'a [SourceFile],
    ) -> QuestionPool<'a> {
        pool(sources, exclude, &PoolSettings::default(), None).unwrap()
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
        let sources = [nq, web];
        let exclude = [eval];
        let pool = ungrounded_pool(&sources, &exclude);
        let reasons: Vec<_> = pool
            .dropped
            .iter()
            .map(|dropped| (dropped.entry.file, dropped.entry.record, dropped.finding.reason))
            .collect();
        let expected = [
            ("nq", 2, DropReason::NoText),
            ("nq", 3, DropReason::TooLong),
            ("nq", 4, DropReason::NoGold),
            ("nq", 5, DropReason::InEvaluation),
            ("webq", 1, DropReason::Duplicate),
        ];
        assert_eq!(reasons, expected);
        let original =
            |n: usize| pool.dropped[n].finding.duplicate_of.map(|entry| (entry.file, entry.record));
        assert_eq!((original(3), original(4)), (Some(("eval", 1)), Some(("nq", 1))));
        let summary = pool.summary(&sources);
        assert_eq!(
            serde_json::to_string(&summary).unwrap(),
            concat!(
                r#"{"read":7,"retained":2,"dropped":{"no_text":1,"too_long":1,"no_gold":1,"#,
                r#""in_evaluation":1,"duplicate":1},"files":[["nq",5,1],["webq",2,1]]}"#
            )
        );
        assert_eq!(
            serde_json::to_string(&pool.dropped[4]).unwrap(),
            concat!(
                r#"{"file":"webq","record":1,"question":"Who wrote Iliad?","reason":"duplicate","#,
                r#""of":{"file":"nq","record":1,"question":"who wrote the iliad"},"#,
                r#""similarity":1.0}"#
            )
        );
    }

    fn any_question() -> impl Strategy<Value = Question> {
        ("[b-f]( [b-f]){0,7}|[.]{0,2}", "[xyz ]").prop_map(|(text, gold)| question(&text, &gold))
    }

    fn any_source(file: &'static str) -> impl Strategy<Value = SourceFile> {
        proptest::collection::vec(any_question(), 0..30)
            .prop_map(move |questions| source(file, questions))
    }

    proptest! {
        #[test]
        fn pooling_loses_no_question_and_is_idempotent(
            first in any_source("first"),
            second in any_source("second"),
            eval in any_source("eval"),
        ) {
            let sources = [first, second];
            let exclude = [eval];
            let pool = ungrounded_pool(&sources, &exclude);
            let mut pooled: Vec<PoolEntry<'_>> = pool.retained.clone();
            pooled.extend(pool.dropped.iter().map(|dropped| dropped.entry));
            pooled.sort_unstable_by_key(|entry| (entry.file, entry.record));
            prop_assert_eq!(pooled, pool_entries(&sources));
            // A pool of a pool drops nothing.
            let retained = pool.retained.iter().map(|entry| entry.question.clone());
            let again = [source("pool", retained)];
            prop_assert!(ungrounded_pool(&again, &exclude).dropped.is_empty());
        }

        #[test]
        fn earlier_pool_file_takes_precedence(
            first in any_source("first"),
            second in any_source("second"),
        ) {
            let alone = [first.clone()];
            let both = [first, second];
            let expected = ungrounded_pool(&alone, &[]).retained;
            let mut retained = ungrounded_pool(&both, &[]).retained;
            retained.retain(|entry| entry.file == "first");
            prop_assert_eq!(retained, expected);
        }
    }
}
