//! Invented words: they can be pronounced, and frequent ones are short.

use rustc_hash::FxHashSet;

use crate::random::{Draw, Purpose};

const ONSETS: [&str; 30] = [
    "t", "s", "r", "n", "l", "d", "m", "c", "p", "b", "f", "h", "g", "st", "w", "v", "k", "tr",
    "pr", "sh", "th", "ch", "br", "cl", "gr", "pl", "fr", "sp", "j", "z",
];
const VOWELS: [&str; 12] = ["e", "a", "i", "o", "u", "ea", "io", "ou", "ai", "ie", "ee", "oo"];
const FOREIGN_VOWELS: [&str; 6] = ["é", "ö", "á", "ü", "í", "ø"];
const CODAS: [&str; 15] =
    ["", "n", "r", "s", "l", "t", "d", "m", "st", "nt", "ck", "ng", "nd", "rt", "ss"];
const ENDINGS: [&str; 12] =
    ["s", "ed", "ing", "er", "al", "ly", "ion", "ic", "ist", "ment", "ness", "able"];

/// A list of different words.
pub struct Words {
    text: String,
    ends: Vec<u32>,
}

impl Words {
    /// The words of a language, the most frequent one first.
    pub fn common(number: usize) -> Self {
        let mut draw = Draw::new(Purpose::Words, 0);
        Self::different(number, |rank| {
            let syllables = 1.0 + (rank.max(20) as f64 / 20.0).log10() * 0.6 + draw.unit();
            let mut word = String::new();
            for _ in 0..(syllables as usize).min(5) {
                syllable(&mut draw, if rank > 1_000 { 0.004 } else { 0.0 }, &mut word);
            }
            if rank > 100 && draw.chance(0.35) {
                word.push_str(ENDINGS[draw.skewed(ENDINGS.len(), 2)]);
            }
            word
        })
    }

    /// Capitalised words of some syllables.
    pub fn names(list: u64, number: usize, syllables: usize) -> Self {
        let mut draw = Draw::new(Purpose::Names, list);
        Self::different(number, |_| {
            let mut name = String::new();
            for _ in 0..syllables + draw.below(2) {
                syllable(&mut draw, 0.01, &mut name);
            }
            name[..1].make_ascii_uppercase(); // an onset is ASCII
            name
        })
    }

    /// Draws words until there are enough different ones.
    fn different(number: usize, mut draw: impl FnMut(usize) -> String) -> Self {
        let mut words = Self { text: String::new(), ends: Vec::with_capacity(number) };
        let mut seen = FxHashSet::default();
        while words.ends.len() < number {
            let mut word = draw(words.ends.len());
            while seen.contains(&word) {
                word += &draw(words.ends.len()).to_lowercase();
            }
            words.text.push_str(&word);
            words.ends.push(words.text.len() as u32);
            seen.insert(word);
        }
        words
    }

    pub fn word(&self, number: usize) -> &str {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start as usize..self.ends[number] as usize]
    }
}

fn syllable(draw: &mut Draw, foreign: f64, word: &mut String) {
    word.push_str(ONSETS[draw.skewed(ONSETS.len(), 2)]);
    let vowels = if draw.chance(foreign) { &FOREIGN_VOWELS[..] } else { &VOWELS[..] };
    word.push_str(vowels[draw.skewed(vowels.len(), 2)]);
    word.push_str(CODAS[draw.skewed(CODAS.len(), 3)]);
}
