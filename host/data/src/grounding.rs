//! Does the corpus speak of what a question asks? (paper, App. datasets: “Wikipedia entity
//! grounding”)
//!
//! The paper removes questions whose entities match no article, and does not say how they are
//! found. Here the index answers: a question names the words that the corpus writes with a capital
//! more often than without, or with a digit; people type questions in lower case. Of these words,
//! or of all content words where there is none, the rarest are looked for, first beside a gold, and
//! where that fails, by themselves. A word that the corpus does not have counts only where there is
//! no name: people misspell.

use std::collections::HashMap;

use corver_core::{BoxError, Counter, Query, Question};
use serde::Serialize;

/// Questions whose queries are counted together.
const BATCH: usize = 256;
/// Words of a question that are looked for.
const MAX_WORDS: usize = 3;
/// What asks, and what only holds a sentence together.
const EMPTY_WORDS: &str = " a an the of in at on for by with to from and or is was are were be been being has had have do does did \
    not no but if so as its it who whom whose what when where which why how many much long old that this these those there he she \
    they him her them his their you your i me my we our us can could will would shall should may might name ";

/// The corpus could not be asked.
#[derive(Debug, thiserror::Error)]
#[error("grounding the questions from number {number} on")]
pub struct GroundingError {
    /// Of the first that was not asked for, counted from 1.
    pub number: usize,
    /// Why.
    pub source: BoxError,
}

/// What the corpus does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// No title of the record occurs.
    Title,
    /// The words of the question do not occur together.
    Words,
    /// They do, but with none of the golds.
    Answer,
}

/// Looks questions up in a corpus.
pub struct Grounding<'a> {
    /// The corpus.
    pub counter: &'a mut dyn Counter,
    /// Is given the number of questions looked up so far.
    pub progress: &'a mut dyn FnMut(usize),
}

impl Grounding<'_> {
    /// What the corpus does not say of each question, and the query that found nothing; `None`
    /// where it says all.
    ///
    /// # Errors
    /// Where counting fails.
    pub fn check(
        &mut self,
        questions: &[&Question],
    ) -> Result<Vec<Option<(Missing, Query)>>, GroundingError> {
        let mut found = Vec::with_capacity(questions.len());
        for batch in questions.chunks(BATCH) {
            let number = found.len() + 1;
            found.extend(
                self.check_batch(batch).map_err(|source| GroundingError { number, source })?,
            );
            (self.progress)(found.len());
        }
        Ok(found)
    }

    fn check_batch(
        &mut self,
        questions: &[&Question],
    ) -> Result<Vec<Option<(Missing, Query)>>, BoxError> {
        let words = self.looked_for(questions)?;
        let mut missing: Vec<Option<(Missing, Query)>> = vec![None; questions.len()];
        self.keep_missing(&mut missing, Missing::Title, |number| {
            let titles = titles(questions[number]);
            (!titles.is_empty()).then(|| Query::new([titles]))
        })?;
        let mut with_gold = vec![None; questions.len()];
        self.keep_missing(&mut with_gold, Missing::Answer, |number| {
            let golds = golds(questions[number]);
            let clauses = std::iter::once(golds).chain(words[number].iter().cloned());
            missing[number].is_none().then(|| Query::new(clauses))
        })?;
        self.keep_missing(&mut missing, Missing::Words, |number| {
            (with_gold[number].is_some() && !words[number].is_empty())
                .then(|| Query::new(&words[number]))
        })?;
        Ok(missing
            .into_iter()
            .zip(with_gold)
            .map(|(missing, with_gold)| missing.or(with_gold))
            .collect())
    }

    /// Asks each question's query, where there is one, and notes those that match nothing.
    fn keep_missing(
        &mut self,
        into: &mut [Option<(Missing, Query)>],
        what: Missing,
        query: impl Fn(usize) -> Option<Query>,
    ) -> Result<(), BoxError> {
        let (numbers, queries): (Vec<usize>, Vec<Query>) = (0..into.len())
            .filter_map(|number| query(number).map(|query| (number, query.with_limit(Some(1)))))
            .unzip();
        for ((number, counted), count) in
            numbers.into_iter().zip(&queries).zip(self.counter.count(&queries)?)
        {
            if count.occurrences.unwrap_or(0) == 0 {
                into[number] = Some((what, counted.clone()));
            }
        }
        Ok(())
    }

    /// For each question the words to look for, each in all its spellings that the corpus has.
    fn looked_for(&mut self, questions: &[&Question]) -> Result<Vec<Vec<Vec<String>>>, BoxError> {
        let words: Vec<Vec<Vec<String>>> = questions
            .iter()
            .map(|question| content_words(&question.question).map(spellings).collect())
            .collect();
        let mut all: Vec<&String> = words.iter().flatten().flatten().collect();
        all.sort_unstable();
        all.dedup();
        let queries: Vec<Query> = all.iter().map(|word| Query::new([[word]])).collect();
        let counts = self.counter.count(&queries)?;
        let count: HashMap<&String, u64> = all
            .into_iter()
            .zip(counts)
            .map(|(word, count)| (word, count.occurrences.unwrap_or(0)))
            .collect();
        Ok(words.iter().map(|words| rarest(words, &count)).collect())
    }
}

/// The rarest names among the words; among all words where none is a name. Each in the spellings
/// that occur, or in all.
fn rarest(words: &[Vec<String>], count: &HashMap<&String, u64>) -> Vec<Vec<String>> {
    let of = |spelling: &String| count.get(spelling).copied().unwrap_or(0);
    let total = |spellings: &&Vec<String>| spellings.iter().map(of).sum::<u64>();
    let is_name = |spellings: &&Vec<String>| {
        let small = of(&spellings[0].to_lowercase());
        let has_digit = spellings[0].contains(|c: char| c.is_ascii_digit());
        total(spellings) > 0 && (has_digit || 2 * small <= total(spellings))
    };
    let mut chosen: Vec<&Vec<String>> = words.iter().filter(is_name).collect();
    if chosen.is_empty() {
        chosen = words.iter().collect();
    }
    chosen.sort_by_key(total);
    chosen.truncate(MAX_WORDS);
    let occurring = |spellings: &Vec<String>| {
        let occurring: Vec<String> =
            spellings.iter().filter(|spelling| of(spelling) > 0).cloned().collect();
        if occurring.is_empty() { spellings.clone() } else { occurring }
    };
    chosen.into_iter().map(occurring).collect()
}

/// The words of a question that say what it is about, without punctuation around them, each once.
fn content_words(question: &str) -> impl Iterator<Item = &str> {
    let mut seen: Vec<&str> = Vec::new();
    question.split_whitespace().filter_map(move |word| {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        let word = ["'s", "’s"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
        let is_empty =
            word.chars().nth(1).is_none() && !word.contains(|c: char| c.is_ascii_digit());
        if is_empty
            || EMPTY_WORDS.contains(&format!(" {} ", word.to_lowercase()))
            || seen.contains(&word)
        {
            return None;
        }
        seen.push(word);
        Some(word)
    })
}

/// As it is written, in small letters, with a capital, in capitals. The index tells them apart.
fn spellings(word: &str) -> Vec<String> {
    let lower = word.to_lowercase();
    let mut spellings =
        vec![word.to_owned(), lower.clone(), capitalised(&lower), word.to_uppercase()];
    spellings.sort_by_key(|spelling| spelling != word);
    let mut seen = Vec::new();
    spellings.retain(|spelling| {
        let is_new = !seen.contains(spelling);
        seen.push(spelling.clone());
        is_new
    });
    spellings
}

fn capitalised(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().into_iter().flat_map(char::to_uppercase).chain(chars).collect()
}

/// The titles of a record, separated by `;`, as running text has them.
fn titles(question: &Question) -> Vec<String> {
    let titles = question.title.as_deref().unwrap_or_default().split(';');
    titles.map(without_brackets).filter(|title| !title.is_empty()).map(str::to_owned).collect()
}

/// Without what tells two of the same name apart: `Mercury (planet)`.
fn without_brackets(name: &str) -> &str {
    name.split(" (").next().unwrap_or(name).trim()
}

/// The golds as running text has them: with and without the article in front.
fn golds(question: &Question) -> Vec<String> {
    let mut golds: Vec<String> = Vec::new();
    for gold in &question.golds {
        let gold = without_brackets(gold).trim_end_matches(['.', ',', '!', '?']);
        let bare = ["the ", "The ", "a ", "A ", "an ", "An "]
            .iter()
            .find_map(|article| gold.strip_prefix(article));
        for spelling in std::iter::once(gold).chain(bare) {
            if !spelling.is_empty() && !golds.iter().any(|known| known == spelling) {
                golds.push(spelling.to_owned());
            }
        }
    }
    golds
}

#[cfg(test)]
mod tests {
    use corver_core::{CorpusSize, Count};

    use super::*;

    /// Counts the documents that hold a word of every clause.
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

        fn size(&self) -> CorpusSize {
            CorpusSize::default()
        }
    }

    const CORPUS: Documents = Documents(&[
        "the tennis player Andy Murray won in 2016",
        "the sports of the year",
        "insects are small and the study of them is entomology",
        "Venus is a planet near the Sun",
    ]);

    fn check(questions: &[(&str, &[&str], Option<&str>)]) -> Vec<Option<(Missing, String)>> {
        let questions: Vec<Question> = questions
            .iter()
            .map(|(text, golds, title)| Question {
                question: (*text).into(),
                golds: golds.iter().map(|gold| (*gold).to_owned()).collect(),
                title: title.map(str::to_owned),
                ..Question::default()
            })
            .collect();
        let mut seen = Vec::new();
        let mut progress = |done| seen.push(done);
        let mut corpus = CORPUS;
        let mut grounding = Grounding { counter: &mut corpus, progress: &mut progress };
        let found = grounding.check(&questions.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(seen, [questions.len()]);
        found
            .into_iter()
            .map(|found| found.map(|(missing, query)| (missing, query.to_string())))
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
        // “personality” is nowhere, and “sports” is no name.
        assert_eq!(found[0], None);
        assert_eq!(found[1], Some((Missing::Answer, "2017 AND Andy AND Murray".into())));
        assert_eq!(found[2], None);
        let nobody = "zzyzx OR Zzyzx OR ZZYZX AND qwghlm OR Qwghlm OR QWGHLM";
        assert_eq!(found[3], Some((Missing::Words, nobody.into())));
    }

    #[test]
    fn grounding_requires_one_occurring_title() {
        let titled = |title| check(&[("is venus a planet", &["Sun"], Some(title))]).remove(0);
        assert_eq!(titled("Nowhere;Venus (planet)"), None);
        assert_eq!(
            titled("Nowhere;Mars (planet)"),
            Some((Missing::Title, "Nowhere OR Mars".into()))
        );
        assert_eq!(titled(";"), None);
    }

    #[test]
    fn spellings_begin_as_written_and_differ() {
        assert_eq!(spellings("iPhone"), ["iPhone", "iphone", "Iphone", "IPHONE"]);
        assert_eq!(spellings("1998"), ["1998"]);
        assert_eq!(
            content_words("Who is \"Grey's\" mom, in 7 of 9?").collect::<Vec<_>>(),
            ["Grey", "mom", "7", "9"]
        );
    }
}
