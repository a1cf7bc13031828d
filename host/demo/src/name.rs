//! Invented names: two capitalised words each, built from syllables.
//!
//! A word is shared by a few entities of one kind, so that a single word tells little and only the
//! words of a pair together tell much, as in a real encyclopaedia. No word begins another word: an
//! index that looks words up by their tokens would count the longer word as an occurrence of the
//! shorter one.

use std::collections::{BTreeSet, HashSet};

use rand::Rng;
use rand::seq::IndexedRandom;

use crate::relation::Kind;

const ONSETS: [&str; 24] = [
    "b", "br", "c", "d", "dr", "f", "g", "gr", "h", "j", "k", "l", "m", "n", "p", "r", "s", "st",
    "t", "tr", "th", "v", "w", "z",
];
const VOWELS: [&str; 6] = ["a", "e", "i", "o", "u", "ia"];
const CODAS: [&str; 12] = ["n", "r", "l", "s", "th", "m", "nd", "rk", "x", "ck", "va", "lo"];

const FILM_WORDS: [&str; 8] =
    ["Silent", "Crimson", "Broken", "Golden", "Distant", "Winter", "Hidden", "Burning"];
const BOOK_WORDS: [&str; 6] = ["Letters", "Garden", "Diaries", "Songs", "Mirror", "Lanterns"];
const CITY_WORDS: [&str; 6] = ["Port", "Mount", "Fort", "Lake", "Upper", "Old"];
const COUNTRY_WORDS: [&str; 4] = ["Republic", "Islands", "Kingdom", "Union"];
const COMPANY_WORDS: [&str; 5] = ["Press", "Works", "Studios", "Foundry", "Brothers"];

/// Entities of one kind that share an invented word, on average.
const SHARED_BY: usize = 3;

/// Hands out names; no two are equal.
pub(crate) struct Namer {
    words: BTreeSet<String>,
}

impl Namer {
    pub(crate) fn new() -> Self {
        let fixed = [&FILM_WORDS[..], &BOOK_WORDS, &CITY_WORDS, &COUNTRY_WORDS, &COMPANY_WORDS];
        Self { words: fixed.into_iter().flatten().map(|&word| word.to_owned()).collect() }
    }

    /// `count` different names for entities of one kind.
    pub(crate) fn names(&mut self, kind: Kind, count: usize, rng: &mut impl Rng) -> Vec<String> {
        // A person takes both words from such pools, everything else one; a pool is large enough
        // that the pairs last, and the fixed words are few, so their pools must not shrink below
        // `count / fixed`.
        let fixed = fixed_words(kind);
        let share = if fixed.is_empty() { SHARED_BY } else { SHARED_BY.min(fixed.len() / 2) };
        let pool_size = (count / share).max(4) + 2;
        let firsts = self.invent(pool_size, rng);
        let lasts = if fixed.is_empty() { self.invent(pool_size, rng) } else { Vec::new() };
        let mut taken = HashSet::with_capacity(count);
        let mut names = Vec::with_capacity(count);
        while names.len() < count {
            let invented = pick(&firsts, rng);
            let name = match kind {
                Kind::Person => format!("{invented} {}", pick(&lasts, rng)),
                Kind::Film | Kind::City => format!("{} {invented}", pick(fixed, rng)),
                Kind::Book | Kind::Country | Kind::Company => {
                    format!("{invented} {}", pick(fixed, rng))
                }
            };
            if taken.insert(name.clone()) {
                names.push(name);
            }
        }
        names
    }

    fn invent(&mut self, count: usize, rng: &mut impl Rng) -> Vec<String> {
        let mut pool = Vec::with_capacity(count);
        while pool.len() < count {
            let word = word(rng);
            if self.is_prefix_free(&word) {
                self.words.insert(word.clone());
                pool.push(word);
            }
        }
        pool
    }

    fn is_prefix_free(&self, word: &str) -> bool {
        let begins_another =
            self.words.range(word.to_owned()..).next().is_some_and(|next| next.starts_with(word));
        // Words are ASCII, so every byte position is a character boundary.
        let another_begins_it = (1..word.len()).any(|end| self.words.contains(&word[..end]));
        !begins_another && !another_begins_it
    }
}

fn fixed_words(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Person => &[],
        Kind::Film => &FILM_WORDS,
        Kind::Book => &BOOK_WORDS,
        Kind::City => &CITY_WORDS,
        Kind::Country => &COUNTRY_WORDS,
        Kind::Company => &COMPANY_WORDS,
    }
}

/// Two syllables mostly, three at times, and a closing sound; capitalised.
fn word(rng: &mut impl Rng) -> String {
    let mut word = String::new();
    let num_syllables = if rng.random_bool(0.85) { 2 } else { 3 };
    for _ in 0..num_syllables {
        word.push_str(pick::<&str>(&ONSETS, rng));
        word.push_str(pick::<&str>(&VOWELS, rng));
    }
    word.push_str(pick::<&str>(&CODAS, rng));
    word[..1].make_ascii_uppercase();
    word
}

/// One item of a list, each as likely.
///
/// # Panics
/// Where the list is empty.
pub fn pick<'a, T>(items: &'a [T], rng: &mut impl Rng) -> &'a T {
    items.choose(rng).expect("a list to draw from has at least one item")
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn names_are_two_capitalised_words_and_differ() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut namer = Namer::new();
        for kind in Kind::ALL {
            let names = namer.names(kind, 60, &mut rng);
            assert_eq!(names.iter().collect::<HashSet<_>>().len(), 60);
            for name in &names {
                let words: Vec<&str> = name.split(' ').collect();
                assert_eq!(words.len(), 2, "{name}");
                assert!(
                    words.iter().all(|word| word.starts_with(|c: char| c.is_ascii_uppercase())),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn no_name_word_is_prefix_of_another() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let mut namer = Namer::new();
        namer.invent(3000, &mut rng);
        let words: Vec<&String> = namer.words.iter().collect();
        // Sorted: a word that begins others stands directly before one of them.
        assert!(words.windows(2).all(|pair| !pair[1].starts_with(pair[0].as_str())));
    }
}
