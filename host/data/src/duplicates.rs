//! Which questions ask the same? Two do where their normalised texts are equal; nearly, where their
//! sets of words are alike and their golds do not contradict each other.
//!
//! The search is exact. Two sets with a Jaccard similarity of at least t share one of the rarest |A| − ⌈t·|A|⌉ + 1 words of either
//! (Chaudhuri et al. 2006, “prefix filtering”), so an inverted index of those words alone finds every candidate. Hashing (MinHash)
//! would only estimate what takes a second for 100,000 questions.

use std::collections::HashMap;

use corver_core::Question;
use corver_core::response::normalize;

/// What is compared of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Print {
    /// The normalised text.
    pub text: String,
    /// The distinct words, by their rank among all questions: rarest first.
    words: Vec<u32>,
    /// The normalised golds.
    golds: Vec<String>,
}

/// The print of each question, in order. Only prints of one call compare.
#[must_use]
pub fn prints<'a>(questions: impl IntoIterator<Item = &'a Question>) -> Vec<Print> {
    let mut prints: Vec<Print> = questions.into_iter().map(unranked).collect();
    let mut number_of: HashMap<&str, u32> = HashMap::new();
    let mut frequency: Vec<u32> = Vec::new();
    let words: Vec<Vec<u32>> = prints
        .iter()
        .map(|print| {
            let mut numbers: Vec<u32> = print
                .text
                .split(' ')
                .map(|word| {
                    let next = number_of.len() as u32;
                    *number_of.entry(word).or_insert(next)
                })
                .collect();
            numbers.sort_unstable();
            numbers.dedup();
            frequency.resize(number_of.len(), 0);
            numbers.iter().for_each(|&number| frequency[number as usize] += 1);
            numbers
        })
        .collect();
    let mut by_rarity: Vec<u32> = (0..frequency.len() as u32).collect();
    by_rarity.sort_by_key(|&number| frequency[number as usize]);
    let mut rank = vec![0; by_rarity.len()];
    by_rarity.iter().enumerate().for_each(|(place, &number)| rank[number as usize] = place as u32);
    for (print, numbers) in prints.iter_mut().zip(words) {
        print.words = numbers.into_iter().map(|number| rank[number as usize]).collect();
        print.words.sort_unstable();
    }
    prints
}

fn unranked(question: &Question) -> Print {
    let golds =
        question.golds.iter().map(|gold| normalize(gold)).filter(|gold| !gold.is_empty()).collect();
    Print { text: normalize(&question.question), words: Vec::new(), golds }
}

impl Print {
    /// Jaccard: shared words by all words of the two.
    fn similarity(&self, other: &Self) -> f64 {
        let (mut shared, mut theirs) = (0, other.words.as_slice());
        for word in &self.words {
            let at = theirs.partition_point(|known| known < word);
            theirs = &theirs[at..];
            shared += usize::from(theirs.first() == Some(word));
        }
        shared as f64 / (self.words.len() + other.words.len() - shared) as f64
    }

    /// Whether both have golds, and not one in common.
    fn contradicts(&self, other: &Self) -> bool {
        !self.golds.is_empty()
            && !other.golds.is_empty()
            && !self.golds.iter().any(|gold| other.golds.contains(gold))
    }

    /// The rarest words: every set that is similar enough has one of them among its own.
    fn prefix(&self, near: f64) -> &[u32] {
        let needed = (near * self.words.len() as f64 - 1e-9).ceil() as usize;
        &self.words[..self.words.len() - needed.clamp(1, self.words.len()) + 1]
    }
}

/// A question that was seen before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Match {
    /// Its number among those seen, from 0.
    pub number: usize,
    /// Jaccard similarity of the words.
    pub similarity: f64,
    /// Whether the normalised texts are equal.
    pub same_text: bool,
}

/// Questions to compare with.
#[derive(Debug)]
pub struct Seen<'a> {
    near: f64,
    prints: Vec<&'a Print>,
    by_text: HashMap<&'a str, usize>,
    by_word: HashMap<u32, Vec<usize>>,
}

impl<'a> Seen<'a> {
    /// None yet. `near`, above 0 and at most 1, is the least similarity of near duplicates.
    #[must_use]
    pub fn new(near: f64) -> Self {
        Self { near, prints: Vec::new(), by_text: HashMap::new(), by_word: HashMap::new() }
    }

    /// Sees one more; its text holds a word.
    pub fn add(&mut self, print: &'a Print) {
        let number = self.prints.len();
        self.prints.push(print);
        self.by_text.entry(&print.text).or_insert(number);
        for &word in print.prefix(self.near) {
            self.by_word.entry(word).or_default().push(number);
        }
    }

    /// The first question with the same text, or the most similar one.
    #[must_use]
    pub fn find(&self, print: &Print) -> Option<Match> {
        if let Some(&number) = self.by_text.get(print.text.as_str()) {
            return Some(Match { number, similarity: 1.0, same_text: true });
        }
        let mut candidates: Vec<usize> = print
            .prefix(self.near)
            .iter()
            .filter_map(|word| self.by_word.get(word))
            .flatten()
            .copied()
            .collect();
        candidates.sort_unstable();
        candidates.dedup();
        let similar = candidates.into_iter().filter_map(|number| {
            let other = self.prints[number];
            let similarity = print.similarity(other);
            (similarity >= self.near && !print.contradicts(other)).then_some(Match {
                number,
                similarity,
                same_text: false,
            })
        });
        similar.reduce(|best, next| if next.similarity > best.similarity { next } else { best })
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

    fn find(near: f64, first: (&str, &[&str]), second: (&str, &[&str])) -> Option<Match> {
        let prints = prints(&[question(first.0, first.1), question(second.0, second.1)]);
        let mut seen = Seen::new(near);
        seen.add(&prints[0]);
        seen.find(&prints[1])
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
        let (other, year) =
            (one.replace("when did", "when exactly did"), one.replace("2018", "2017"));
        // Nine words in both, ten in all.
        let found = find(0.8, (one, &["February"]), (&other, &["february", "4 February"])).unwrap();
        assert!(!found.same_text && (found.similarity - 0.9).abs() < 1e-12, "{found:?}");
        assert_eq!(find(0.91, (one, &["February"]), (&other, &["February"])), None);
        assert_eq!(find(0.8, (one, &["February"]), (&other, &["March"])), None);
        assert!(
            find(0.8, (one, &[]), (&other, &["March"])).is_some(),
            "nothing is known of the first"
        );
        assert!(
            find(0.75, (one, &["52"]), (&year, &["51"])).is_none(),
            "another year is another question"
        );
    }

    proptest! {
        /// Against every pair compared.
        #[test]
        fn duplicate_index_matches_pairwise_comparison(
            texts in proptest::collection::vec("[a-g]( [a-g]){0,6}", 2..40),
            near in 0.2..1.0f64,
        ) {
            let questions: Vec<Question> = texts.iter().map(|text| question(&text.replace('a', "x"), &[])).collect();
            let prints = prints(&questions);
            let mut seen = Seen::new(near);
            for (number, print) in prints.iter().enumerate() {
                let similar = prints[..number].iter().map(|other| print.similarity(other)).fold(0.0, f64::max);
                let found = seen.find(print).map(|found| found.similarity);
                prop_assert_eq!(found.is_some(), similar >= near, "{:?} {:?}", found, similar);
                prop_assert!(found.is_none_or(|found| (found - similar).abs() < 1e-12));
                seen.add(print);
            }
        }
    }
}
