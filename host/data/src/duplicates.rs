//! Duplicate questions. Two are duplicates if their normalised texts are equal, and near duplicates
//! if their sets of words are similar and their golds do not contradict each other.
//!
//! The search is exact. Two sets with a Jaccard similarity of at least t share one of the rarest
//! |A| − ⌈t·|A|⌉ + 1 words of either (Chaudhuri et al. 2006, “prefix filtering”), so an inverted
//! index of those words alone finds every candidate. A bitmap of each set bounds its similarity, and
//! excludes nearly all candidates without reading their words (Sandes et al. 2017, “bitmap filter”).
//! MinHash would only approximate a search that takes a second for 100,000 questions.

use std::collections::HashMap;

use corver_core::response::normalize;
use corver_core::{Language, Question};

/// A question in the form in which it is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NormalizedQuestion {
    /// Normalised text.
    pub text: String,
    /// Distinct words by their rank among all questions, ascending: rarest first.
    words: Vec<u32>,
    /// Normalised golds, without empty ones.
    golds: Vec<String>,
}

/// Normalises questions, in order. Only the results of one call can be compared: the ranks of words
/// are relative to its questions.
#[must_use]
pub fn normalize_questions<'a>(
    questions: impl IntoIterator<Item = &'a Question>,
    language: Language,
) -> Vec<NormalizedQuestion> {
    let mut normalized: Vec<NormalizedQuestion> =
        questions.into_iter().map(|question| unranked(question, language)).collect();
    let mut ids: HashMap<&str, u32> = HashMap::new();
    let mut frequency: Vec<u32> = Vec::new();
    let mut words_of: Vec<Vec<u32>> = Vec::with_capacity(normalized.len());
    for question in &normalized {
        let mut words = Vec::new();
        for word in question.text.split(' ') {
            let next = ids.len() as u32;
            words.push(*ids.entry(word).or_insert(next));
        }
        words.sort_unstable();
        words.dedup();
        frequency.resize(ids.len(), 0);
        for &id in &words {
            frequency[id as usize] += 1;
        }
        words_of.push(words);
    }
    let mut by_rarity: Vec<u32> = (0..frequency.len() as u32).collect();
    by_rarity.sort_by_key(|&id| frequency[id as usize]);
    let mut ranks = vec![0; by_rarity.len()];
    for (rank, &id) in by_rarity.iter().enumerate() {
        ranks[id as usize] = rank as u32;
    }
    for (question, words) in normalized.iter_mut().zip(words_of) {
        question.words = words.into_iter().map(|id| ranks[id as usize]).collect();
        question.words.sort_unstable();
    }
    normalized
}

fn unranked(question: &Question, language: Language) -> NormalizedQuestion {
    let mut golds = Vec::new();
    for gold in &question.golds {
        let gold = normalize(gold, language);
        if !gold.is_empty() {
            golds.push(gold);
        }
    }
    NormalizedQuestion { text: normalize(&question.question, language), words: Vec::new(), golds }
}

impl NormalizedQuestion {
    /// Returns the Jaccard similarity of the words: shared words by all words of the two.
    fn similarity(&self, other: &Self) -> f64 {
        let mut shared = 0;
        let mut others = other.words.as_slice();
        for word in &self.words {
            let index = others.partition_point(|known| known < word);
            others = &others[index..];
            shared += usize::from(others.first() == Some(word));
        }
        jaccard(shared, self.words.len() + other.words.len())
    }

    /// True if both have golds, and none in common.
    fn contradicts(&self, other: &Self) -> bool {
        !self.golds.is_empty()
            && !other.golds.is_empty()
            && !self.golds.iter().any(|gold| other.golds.contains(gold))
    }

    /// Returns the rarest words, at least one of which occurs among those of every set that is
    /// similar enough.
    fn prefix(&self, near: f64) -> &[u32] {
        // 0.8 · 5 may exceed 4 by a rounding error, which would lose a word of the prefix.
        let needed = (near * self.words.len() as f64 - 1e-9).ceil() as usize;
        &self.words[..self.words.len() - needed.clamp(1, self.words.len()) + 1]
    }
}

/// Returns the Jaccard similarity of two sets by the number of shared words.
fn jaccard(shared: usize, sum_of_sizes: usize) -> f64 {
    shared as f64 / (sum_of_sizes - shared) as f64
}

/// An indexed question in the list of one of its words.
#[derive(Debug, Clone, Copy)]
struct Posting {
    /// Number of the question, from 0.
    number: u32,
    num_words: u32,
    /// [`bitmap`] of its words.
    bitmap: u64,
}

impl Posting {
    /// Returns an upper bound of the Jaccard similarity to other words. A bit that only one of the
    /// bitmaps has is a word that only one of the sets has.
    fn bound_similarity(&self, words: &[u32], bitmap: u64) -> f64 {
        let sum_of_sizes = self.num_words as usize + words.len();
        let num_unshared = (self.bitmap ^ bitmap).count_ones() as usize;
        jaccard((sum_of_sizes - num_unshared) / 2, sum_of_sizes)
    }
}

/// Returns a bit for each word, by its number modulo 64.
fn bitmap(words: &[u32]) -> u64 {
    words.iter().fold(0, |bits, word| bits | 1 << (word % 64))
}

/// An indexed question that is equal or similar to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DuplicateMatch {
    /// Number of the indexed question, from 0.
    pub number: usize,
    /// Jaccard similarity of the words, 0 to 1.
    pub similarity: f64,
    /// True if the normalised texts are equal.
    pub same_text: bool,
}

/// An index of questions by text and by rare words.
#[derive(Debug)]
pub struct DuplicateIndex<'a> {
    near: f64,
    questions: Vec<&'a NormalizedQuestion>,
    by_text: HashMap<&'a str, usize>,
    by_word: HashMap<u32, Vec<Posting>>,
}

impl<'a> DuplicateIndex<'a> {
    /// Returns an empty index. `near`, above 0 and at most 1, is the least similarity of near
    /// duplicates.
    #[must_use]
    pub fn new(near: f64) -> Self {
        Self { near, questions: Vec::new(), by_text: HashMap::new(), by_word: HashMap::new() }
    }

    /// Adds a question, whose text must have at least one word.
    pub fn add(&mut self, question: &'a NormalizedQuestion) {
        let number = self.questions.len();
        self.questions.push(question);
        self.by_text.entry(&question.text).or_insert(number);
        let posting = Posting {
            number: number as u32,
            num_words: question.words.len() as u32,
            bitmap: bitmap(&question.words),
        };
        for &word in question.prefix(self.near) {
            self.by_word.entry(word).or_default().push(posting);
        }
    }

    /// Returns the first question with the same text, or else the most similar near duplicate.
    #[must_use]
    pub fn find(&self, question: &NormalizedQuestion) -> Option<DuplicateMatch> {
        if let Some(&number) = self.by_text.get(question.text.as_str()) {
            return Some(DuplicateMatch { number, similarity: 1.0, same_text: true });
        }
        let bitmap = bitmap(&question.words);
        let mut candidates = Vec::new();
        for word in question.prefix(self.near) {
            for posting in self.by_word.get(word).into_iter().flatten() {
                if posting.bound_similarity(&question.words, bitmap) >= self.near {
                    candidates.push(posting.number as usize);
                }
            }
        }
        candidates.sort_unstable();
        candidates.dedup();
        let mut best: Option<DuplicateMatch> = None;
        for number in candidates {
            let candidate = self.questions[number];
            let similarity = question.similarity(candidate);
            if similarity < self.near || question.contradicts(candidate) {
                continue;
            }
            if best.is_none_or(|best| similarity > best.similarity) {
                best = Some(DuplicateMatch { number, similarity, same_text: false });
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn question(text: &str, golds: &[&str]) -> Question {
        let golds = golds.iter().map(|gold| (*gold).to_owned()).collect();
        Question { question: text.into(), golds, ..Question::default() }
    }

    fn find(near: f64, first: (&str, &[&str]), second: (&str, &[&str])) -> Option<DuplicateMatch> {
        let questions = [question(first.0, first.1), question(second.0, second.1)];
        let normalized = normalize_questions(&questions, Language::English);
        let mut index = DuplicateIndex::new(near);
        index.add(&normalized[0]);
        index.find(&normalized[1])
    }

    #[test]
    fn equal_text_is_duplicate_regardless_of_golds() {
        let found =
            find(0.8, ("Who wrote the Iliad?", &["Homer"]), ("who wrote Iliad", &["Virgil"]))
                .unwrap();
        assert!(found.same_text);
    }

    #[test]
    fn similar_question_is_duplicate_unless_golds_differ() {
        let one = "when did the philadelphia eagles win the super bowl in 2018";
        let other = one.replace("when did", "when exactly did");
        let year = one.replace("2018", "2017");
        // Nine words in both, ten in all.
        let found = find(0.8, (one, &["February"]), (&other, &["february", "4 February"])).unwrap();
        assert!(!found.same_text && (found.similarity - 0.9).abs() < 1e-12, "{found:?}");
        assert_eq!(find(0.91, (one, &["February"]), (&other, &["February"])), None);
        assert_eq!(find(0.8, (one, &["February"]), (&other, &["March"])), None);
        assert!(
            find(0.8, (one, &[]), (&other, &["March"])).is_some(),
            "the first has no gold to contradict"
        );
        assert!(
            find(0.75, (one, &["52"]), (&year, &["51"])).is_none(),
            "another year is another question"
        );
    }

    proptest! {
        #[test]
        fn duplicate_index_matches_pairwise_comparison(
            texts in proptest::collection::vec("[a-k]{1,2}( [a-k]{1,2}){0,6}", 2..60),
            near in 0.2..1.0f64,
        ) {
            let mut questions = Vec::new();
            for text in texts {
                questions.push(question(&text.replace('a', "x"), &[]));
            }
            let normalized = normalize_questions(&questions, Language::English);
            let mut index = DuplicateIndex::new(near);
            for (number, question) in normalized.iter().enumerate() {
                let mut most_similar = 0.0_f64;
                for other in &normalized[..number] {
                    most_similar = most_similar.max(question.similarity(other));
                }
                let found = index.find(question).map(|found| found.similarity);
                prop_assert_eq!(found.is_some(), most_similar >= near, "{:?} {}", found, most_similar);
                prop_assert!(found.is_none_or(|found| (found - most_similar).abs() < 1e-12));
                index.add(question);
            }
        }
    }
}
