//! Invented names: two capitalised words each, built from syllables.
//!
//! A few entities of a kind share each word, so that a single word identifies none and the two words
//! of a name together do, as in a real encyclopaedia. No word is a prefix of another: an index, which
//! searches token by token, would count the longer word as an occurrence of the shorter one.

use std::collections::{BTreeSet, HashSet};

use rand::Rng;
use rand::seq::IndexedRandom;

use crate::relation::EntityKind;

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

/// Mean number of entities of a kind that share an invented word.
const SHARED_BY: usize = 3;

/// A generator of names, all of whose words are prefix-free.
pub(crate) struct Namer {
    words: BTreeSet<String>,
}

impl Namer {
    pub(crate) fn new() -> Self {
        let fixed = [&FILM_WORDS[..], &BOOK_WORDS, &CITY_WORDS, &COUNTRY_WORDS, &COMPANY_WORDS];
        Self { words: fixed.into_iter().flatten().map(|&word| word.to_owned()).collect() }
    }

    /// Returns `count` distinct names for entities of a kind.
    pub(crate) fn names(
        &mut self,
        kind: EntityKind,
        count: usize,
        rng: &mut impl Rng,
    ) -> Vec<String> {
        // A person's words both come from invented pools, and of other names one word does. Pools
        // must be large enough for `count` distinct pairs: with few fixed words, words are shared
        // by fewer entities.
        let fixed = fixed_words(kind);
        let share = if fixed.is_empty() { SHARED_BY } else { SHARED_BY.min(fixed.len() / 2) };
        let pool_size = (count / share).max(4) + 2;
        let firsts = self.invent(pool_size, rng);
        let lasts = if fixed.is_empty() { self.invent(pool_size, rng) } else { Vec::new() };
        let mut used = HashSet::with_capacity(count);
        let mut names = Vec::with_capacity(count);
        while names.len() < count {
            let invented = pick(&firsts, rng);
            let name = match kind {
                EntityKind::Person => format!("{invented} {}", pick(&lasts, rng)),
                EntityKind::Film | EntityKind::City => format!("{} {invented}", pick(fixed, rng)),
                EntityKind::Book | EntityKind::Country | EntityKind::Company => {
                    format!("{invented} {}", pick(fixed, rng))
                }
            };
            if used.insert(name.clone()) {
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

fn fixed_words(kind: EntityKind) -> &'static [&'static str] {
    match kind {
        EntityKind::Person => &[],
        EntityKind::Film => &FILM_WORDS,
        EntityKind::Book => &BOOK_WORDS,
        EntityKind::City => &CITY_WORDS,
        EntityKind::Country => &COUNTRY_WORDS,
        EntityKind::Company => &COMPANY_WORDS,
    }
}

/// Returns a capitalised word of two syllables, or sometimes three, and a coda.
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

/// Returns an item of a list, each with the same probability.
///
/// # Panics
/// Panics if the list is empty.
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
        for kind in EntityKind::ALL {
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
        // In sorted order, a prefix of other words directly precedes one of them.
        assert!(words.windows(2).all(|pair| !pair[1].starts_with(pair[0].as_str())));
    }
}
