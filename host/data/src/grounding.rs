//! Grounding: a question is grounded if the corpus has text about its subject (paper, App.
//! datasets: “Wikipedia entity grounding”).
//!
//! The paper removes questions whose entities match no article, and does not say how they are
//! found. Here the index decides. The names of a question are its words with a digit, and those
//! that the corpus mostly writes with a capital: people type questions in lower case. The rarest
//! names, or the rarest content words if there is no name, are searched together with a gold, and
//! then, if that fails, without one. A word that the corpus does not have is searched only if there
//! is no name: it may be misspelt.

use std::collections::HashMap;

use corver_core::language::{is_function_word, without_article};
use corver_core::{BoxError, Counter, Language, Query, Question};
use icu_segmenter::WordSegmenter;
use icu_segmenter::options::WordBreakInvariantOptions;
use serde::Serialize;

/// Questions whose queries are counted together.
const BATCH: usize = 256;
/// Most words of a question that are searched.
const MAX_WORDS: usize = 3;
/// Question words and function words of English, between spaces.
const STOP_WORDS: &str = " a an the of in on at for by with to from and or is was are were be been \
    being has had have do does did not no but if so as its it who whom whose what when where which \
    why how many much long old that this these those there he she they him her them his their you \
    your i me my we our us can could will would shall should may might name ";

/// A failure of the corpus to count.
#[derive(Debug, thiserror::Error)]
#[error("failed to ground the questions from number {number} on")]
pub struct GroundingError {
    /// Number of the batch's first question, counted from 1.
    pub number: usize,
    /// Error of the corpus.
    pub source: BoxError,
}

/// The part of a question that the corpus has no text about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UngroundedPart {
    /// No title of the record occurs.
    Title,
    /// The words of the question do not occur together.
    Words,
    /// The words occur together, but with none of the golds.
    Answer,
}

/// An ungrounded part, with the query that has no match.
type Ungrounded = (UngroundedPart, Query);

/// A search for questions in a corpus.
pub struct Grounding<'a> {
    /// Counter of the corpus.
    pub counter: &'a mut dyn Counter,
    /// Language of the questions and of the corpus.
    pub language: Language,
    /// Called with the number of questions checked so far.
    pub progress: &'a mut dyn FnMut(usize),
}

impl Grounding<'_> {
    /// Returns the ungrounded part of each question, and the query that has no match. `None`: the
    /// question is grounded.
    ///
    /// # Errors
    /// Fails if counting fails.
    pub fn check(
        &mut self,
        questions: &[&Question],
    ) -> Result<Vec<Option<(UngroundedPart, Query)>>, GroundingError> {
        let mut ungrounded = Vec::with_capacity(questions.len());
        for batch in questions.chunks(BATCH) {
            let number = ungrounded.len() + 1;
            let checked = self.check_batch(batch);
            ungrounded.extend(checked.map_err(|source| GroundingError { number, source })?);
            (self.progress)(ungrounded.len());
        }
        Ok(ungrounded)
    }

    fn check_batch(
        &mut self,
        questions: &[&Question],
    ) -> Result<Vec<Option<Ungrounded>>, BoxError> {
        let words = self.search_words(questions)?;
        let mut ungrounded: Vec<Option<Ungrounded>> = vec![None; questions.len()];
        self.record_unmatched(&mut ungrounded, UngroundedPart::Title, |number| {
            let titles = titles(questions[number]);
            (!titles.is_empty()).then(|| Query::new([titles]))
        })?;
        let mut without_answer = vec![None; questions.len()];
        let language = self.language;
        self.record_unmatched(&mut without_answer, UngroundedPart::Answer, |number| {
            let golds = gold_spellings(questions[number], language);
            let has_query = ungrounded[number].is_none() && !golds.is_empty();
            let clauses = std::iter::once(golds).chain(words[number].iter().cloned());
            has_query.then(|| Query::new(clauses))
        })?;
        self.record_unmatched(&mut ungrounded, UngroundedPart::Words, |number| {
            (without_answer[number].is_some() && !words[number].is_empty())
                .then(|| Query::new(&words[number]))
        })?;
        for (part, answer_part) in ungrounded.iter_mut().zip(without_answer) {
            if part.is_none() {
                *part = answer_part;
            }
        }
        Ok(ungrounded)
    }

    /// Counts the query that `query_of` returns for each question, and records those without a match.
    fn record_unmatched(
        &mut self,
        ungrounded: &mut [Option<Ungrounded>],
        part: UngroundedPart,
        query_of: impl Fn(usize) -> Option<Query>,
    ) -> Result<(), BoxError> {
        let mut numbers = Vec::new();
        let mut queries = Vec::new();
        for number in 0..ungrounded.len() {
            if let Some(query) = query_of(number) {
                numbers.push(number);
                queries.push(query.with_limit(Some(1)));
            }
        }
        let counts = self.counter.count(&queries)?;
        for ((number, query), count) in numbers.into_iter().zip(queries).zip(counts) {
            if count.occurrences.unwrap_or(0) == 0 {
                ungrounded[number] = Some((part, query));
            }
        }
        Ok(())
    }

    /// Returns the words to search for each question, each in those of its spellings that the
    /// corpus has.
    fn search_words(&mut self, questions: &[&Question]) -> Result<Vec<Vec<Vec<String>>>, BoxError> {
        let words: Vec<Vec<Vec<String>>> = questions
            .iter()
            .map(|question| {
                content_words(&question.question, self.language)
                    .into_iter()
                    .map(spellings)
                    .collect()
            })
            .collect();
        let mut distinct: Vec<&String> = words.iter().flatten().flatten().collect();
        distinct.sort_unstable();
        distinct.dedup();
        let queries: Vec<Query> = distinct.iter().map(|word| Query::new([[word]])).collect();
        let counts = self.counter.count(&queries)?;
        let mut word_counts = WordCounts::default();
        for (word, count) in distinct.into_iter().zip(counts) {
            word_counts.0.insert(word.as_str(), count.occurrences.unwrap_or(0));
        }
        Ok(words.iter().map(|words| word_counts.rarest(words)).collect())
    }
}

/// Occurrences of single spellings in the corpus.
#[derive(Default)]
struct WordCounts<'a>(HashMap<&'a str, u64>);

impl WordCounts<'_> {
    /// Returns the rarest names among the words, or the rarest words if none is a name. Each is in
    /// the spellings that occur, or in all if none does.
    fn rarest(&self, words: &[Vec<String>]) -> Vec<Vec<String>> {
        let mut rarest: Vec<&Vec<String>> =
            words.iter().filter(|spellings| self.is_name(spellings)).collect();
        if rarest.is_empty() {
            rarest = words.iter().collect();
        }
        rarest.sort_by_key(|spellings| self.total(spellings));
        rarest.truncate(MAX_WORDS);
        rarest.into_iter().map(|spellings| self.occurring(spellings)).collect()
    }

    /// True if a word occurs, and has a digit or is written with a capital at least as often as
    /// without.
    fn is_name(&self, spellings: &[String]) -> bool {
        let total = self.total(spellings);
        let lower = self.occurrences(&spellings[0].to_lowercase());
        let has_digit = spellings[0].contains(|c: char| c.is_ascii_digit());
        total > 0 && (has_digit || 2 * lower <= total)
    }

    fn occurring(&self, spellings: &[String]) -> Vec<String> {
        let mut occurring = spellings.to_vec();
        occurring.retain(|spelling| self.occurrences(spelling) > 0);
        if occurring.is_empty() { spellings.to_vec() } else { occurring }
    }

    fn total(&self, spellings: &[String]) -> u64 {
        spellings.iter().map(|spelling| self.occurrences(spelling)).sum()
    }

    fn occurrences(&self, spelling: &str) -> u64 {
        self.0.get(spelling).copied().unwrap_or(0)
    }
}

/// Returns the distinct words of a question that carry its subject, without the punctuation around
/// them.
fn content_words(question: &str, language: Language) -> Vec<&str> {
    let mut words = Vec::new();
    for word in split_words(question, language) {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        let word = ["'s", "’s"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
        let is_letter = word.chars().count() < 2 && !word.contains(|c: char| c.is_ascii_digit());
        let lower = word.to_lowercase();
        let is_stop_word = match language {
            Language::English => STOP_WORDS.contains(&format!(" {lower} ")),
            _ => is_function_word(&lower, language),
        };
        if !is_letter && !is_stop_word && !words.contains(&word) {
            words.push(word);
        }
    }
    words
}

/// Splits a question into words, with the punctuation around them. A dictionary finds those of Chinese.
fn split_words(question: &str, language: Language) -> Vec<&str> {
    match language {
        Language::Chinese => {}
        Language::French => {
            let is_end = |c: char| c.is_whitespace() || matches!(c, '\'' | '’');
            return question.split(is_end).collect();
        }
        _ => return question.split_whitespace().collect(),
    }
    let mut words = Vec::new();
    let mut start = 0;
    for end in
        WordSegmenter::new_dictionary(WordBreakInvariantOptions::default()).segment_str(question)
    {
        words.push(&question[start..end]);
        start = end;
    }
    words
}

/// Returns the distinct spellings of a word: as written, in lower case, capitalised, in capitals.
/// The index is case-sensitive.
fn spellings(word: &str) -> Vec<String> {
    let lower = word.to_lowercase();
    let mut spellings = vec![word.to_owned()];
    for spelling in [lower.clone(), capitalised(&lower), word.to_uppercase()] {
        if !spellings.contains(&spelling) {
            spellings.push(spelling);
        }
    }
    spellings
}

fn capitalised(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().into_iter().flat_map(char::to_uppercase).chain(chars).collect()
}

/// Returns the titles of a record, which `;` separates, as they are written in running text.
fn titles(question: &Question) -> Vec<String> {
    let mut titles = Vec::new();
    for title in question.title.as_deref().unwrap_or_default().split(';') {
        let title = without_qualifier(title);
        if !title.is_empty() {
            titles.push(title.to_owned());
        }
    }
    titles
}

/// Returns a name without the qualifier that distinguishes it from equal ones: `Mercury (planet)`.
fn without_qualifier(name: &str) -> &str {
    name.split(" (").next().unwrap_or(name).trim()
}

/// Returns the golds as they are written in running text, with and without a leading article.
fn gold_spellings(question: &Question, language: Language) -> Vec<String> {
    let mut golds: Vec<String> = Vec::new();
    for gold in &question.golds {
        let stem = without_qualifier(gold).trim_end_matches(['.', ',', '!', '?']).trim();
        // “(Sic)” and “…” have nothing else.
        let gold = if stem.is_empty() { gold.trim() } else { stem };
        for spelling in [gold, without_article(gold, language)] {
            if !spelling.is_empty() && !golds.iter().any(|known| known == spelling) {
                golds.push(spelling.to_owned());
            }
        }
    }
    golds
}

#[cfg(test)]
mod tests {
    use corver_core::{CorpusInfo, Count};

    use super::*;

    /// A corpus that counts the documents with a word of every clause.
    struct Documents(&'static [&'static str]);

    impl Counter for Documents {
        fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
            let has =
                |text: &str, word: &String| format!(" {text} ").contains(&format!(" {word} "));
            let matches = |query: &Query| {
                let holds = |text: &&&str| {
                    query.all_of.iter().all(|clause| clause.iter().any(|word| has(text, word)))
                };
                self.0.iter().filter(holds).count() as u64
            };
            let count = |query| Count::exact(Some(matches(query)));
            Ok(queries.iter().map(count).collect())
        }

        fn info(&self) -> CorpusInfo {
            CorpusInfo::default()
        }
    }

    const CORPUS: Documents = Documents(&[
        "the tennis player Andy Murray won in 2016",
        "the sports of the year",
        "insects are small and the study of them is entomology",
        "Venus is a planet near the Sun",
    ]);

    fn check(questions: &[(&str, &[&str], Option<&str>)]) -> Vec<Option<(UngroundedPart, String)>> {
        let questions: Vec<Question> = questions
            .iter()
            .map(|(text, golds, title)| Question {
                question: (*text).into(),
                golds: golds.iter().map(|gold| (*gold).to_owned()).collect(),
                title: title.map(str::to_owned),
                ..Question::default()
            })
            .collect();
        let mut reports = Vec::new();
        let mut progress = |done| reports.push(done);
        let mut corpus = CORPUS;
        let mut grounding = Grounding {
            counter: &mut corpus,
            language: Language::English,
            progress: &mut progress,
        };
        let found = grounding.check(&questions.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(reports, [questions.len()]);
        found
            .into_iter()
            .map(|found| found.map(|(part, query)| (part, query.to_string())))
            .collect()
    }

    #[test]
    fn grounding_finds_lowercase_names() {
        let found = check(&[
            ("when did andy murray won sports personality", &["2016"], None),
            ("when did andy murray's won sports personality", &["2017."], None),
            ("what is the study of insects", &["the entomology", "bugs"], None),
            ("who is zzyzx qwghlm", &["Murray"], None),
        ]);
        // “personality” does not occur, and “sports” is no name.
        assert_eq!(found[0], None);
        assert_eq!(found[1], Some((UngroundedPart::Answer, "2017 AND Andy AND Murray".into())));
        assert_eq!(found[2], None);
        let misspelt = "zzyzx OR Zzyzx OR ZZYZX AND qwghlm OR Qwghlm OR QWGHLM";
        assert_eq!(found[3], Some((UngroundedPart::Words, misspelt.into())));
    }

    #[test]
    fn grounding_requires_one_occurring_title() {
        let titled = |title| check(&[("is venus a planet", &["Sun"], Some(title))]).remove(0);
        assert_eq!(titled("Nowhere;Venus (planet)"), None);
        assert_eq!(
            titled("Nowhere;Mars (planet)"),
            Some((UngroundedPart::Title, "Nowhere OR Mars".into()))
        );
        assert_eq!(titled(";"), None);
    }

    #[test]
    fn gold_without_words_is_searched_as_written() {
        let spellings = |golds: &[&str]| {
            let golds = golds.iter().map(|gold| (*gold).to_owned()).collect();
            gold_spellings(&Question { golds, ..Question::default() }, Language::English)
        };
        assert_eq!(
            spellings(&[" (Sic)", "?", "A", "The The"]),
            ["(Sic)", "?", "A", "The The", "The"]
        );
        assert_eq!(spellings(&["", " "]), [""; 0]);
        // A query without a gold would find nothing.
        assert_eq!(check(&[("is venus a planet", &[" "], None)]), [None]);
    }

    #[test]
    fn spellings_begin_as_written_and_differ() {
        assert_eq!(spellings("iPhone"), ["iPhone", "iphone", "Iphone", "IPHONE"]);
        assert_eq!(spellings("1998"), ["1998"]);
        assert_eq!(
            content_words("Who is \"Grey's\" mom, in 7 of 9?", Language::English),
            ["Grey", "mom", "7", "9"]
        );
    }
    #[test]
    fn words_and_golds_follow_the_language() {
        assert_eq!(
            content_words("In welcher Stadt liegt der Kölner Dom?", Language::German),
            ["Stadt", "liegt", "Kölner", "Dom"]
        );
        assert_eq!(content_words("Qu'est-ce que l’Élysée ?", Language::French), ["Élysée"]);
        assert_eq!(content_words("中国的首都是哪里？", Language::Chinese), ["中国", "首都"]);
        let golds = vec!["La Seine".to_owned(), "l'Élysée".to_owned()];
        let question = Question { golds, ..Question::default() };
        assert_eq!(
            gold_spellings(&question, Language::French),
            ["La Seine", "Seine", "l'Élysée", "Élysée"]
        );
    }
}
