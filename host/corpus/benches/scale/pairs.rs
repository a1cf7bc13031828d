//! Pairs of names that are planted in the text, and how often they stand together.
//!
//! A pair is planted in documents whose numbers are `CLASSES` or more apart, so that no other place
//! of the same pair is within the distance that a query asks for.

use std::ops::AddAssign;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::random::{Draw, Purpose};
use crate::shape::Shape;

pub const PAIRS: usize = 1_000;
/// A pair is planted only in documents that have the same remainder by this number.
const CLASSES: usize = 50;
/// Words of the shortest document: those of `CLASSES` are more than 1,000 tokens long.
pub const SHORTEST_DOCUMENT: usize = 25;
/// Documents that one pair is planted in, at most.
const MOST_DOCUMENTS: f64 = 20_000.0;
/// From here on a document has room for two names that are more than 1,000 tokens apart: a word is
/// a token or more.
const LONG_DOCUMENT: usize = 1_200;
const FAR: usize = 1_050;
/// Words between two names that are near: even if each is three tokens long, the distance is much
/// less than 1,000.
const NEAR: usize = 200;

/// A name that occurs nowhere but where it is planted. All are of one length, so that none is the
/// beginning of another, and begin with a letter that no other word has.
pub fn name(number: usize) -> String {
    const CONSONANTS: &[u8; 16] = b"bcdfghklmnprstvz";
    const VOWELS: &[u8; 4] = b"aeio";
    const SYLLABLES: usize = CONSONANTS.len() * VOWELS.len();
    // An odd factor gives each number below 2²⁴ an index of its own.
    let mut rest = (number * 0x9E_3779 + 0x5A_5A5A) % SYLLABLES.pow(4);
    let mut name = String::from("Q");
    for _ in 0..4 {
        let syllable = rest % SYLLABLES;
        rest /= SYLLABLES;
        name.push(char::from(CONSONANTS[syllable / VOWELS.len()]));
        name.push(char::from(VOWELS[syllable % VOWELS.len()]));
    }
    name
}

/// A name, and before which word of the document it is put.
#[derive(Debug, Clone, Copy)]
pub struct Plant {
    pub before: usize,
    pub name: usize,
}

/// The arrangement of the names of a pair in a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Near {
        first_leads: bool,
    },
    /// First, first, second.
    FirstTwice,
    /// First, second, first.
    Around,
    Far,
    /// The first name at the end of the document, the second one at the beginning of the next.
    Across,
}

/// The number of documents with a pair.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    firsts: u64,
    seconds: u64,
    exact: u64,
    span: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.firsts += other.firsts;
        self.seconds += other.seconds;
        self.exact += other.exact;
        self.span += other.span;
    }
}

impl Layout {
    fn tally(self) -> Tally {
        let once = Tally { firsts: 1, seconds: 1, exact: 1, span: 1 };
        match self {
            Self::Near { .. } => once,
            Self::FirstTwice => Tally { firsts: 2, ..once },
            // The second name is the rarer one, so that `exact` counts around it; the two stretches
            // share it.
            Self::Around => Tally { firsts: 2, span: 2, ..once },
            Self::Far | Self::Across => Tally { exact: 0, span: 0, ..once },
        }
    }
}

/// The assignment of pairs to documents.
pub struct Pairs {
    /// By class: the chance of each of its pairs in a document of the class.
    chances: Vec<Vec<f64>>,
}

impl Pairs {
    /// For a text of about this many documents.
    pub fn new(documents: u64) -> Self {
        let documents = documents as f64 / CLASSES as f64;
        let most = MOST_DOCUMENTS.min(documents / 5.0);
        let per_class = PAIRS / CLASSES;
        let chance = |class: usize, member: usize| {
            let evenly = (member * CLASSES + class) as f64 / PAIRS as f64;
            ((most + 1.0).powf(evenly) - 1.0) / documents
        };
        Self {
            chances: (0..CLASSES)
                .map(|class| (0..per_class).map(|member| chance(class, member)).collect())
                .collect(),
        }
    }

    /// Returns the pair that is planted in a document, and its arrangement.
    fn planted(&self, document: u64, shape: Shape) -> Option<(usize, Layout)> {
        let mut draw = Draw::new(Purpose::Pair, document);
        let class = (document % CLASSES as u64) as usize;
        let mut rest = draw.unit();
        let member = self.chances[class].iter().position(|chance| {
            rest -= chance;
            rest < 0.0
        })?;
        let pair = member * CLASSES + class;
        let is_long = shape.words >= LONG_DOCUMENT;
        let is_never_near = (member + class).is_multiple_of(10);
        let layout = match draw.below(100) {
            ..50 if is_long => Layout::Far,
            _ if is_never_near && is_long => Layout::Far,
            _ if is_never_near => Layout::Across,
            50..60 => Layout::Across,
            60..70 => Layout::FirstTwice,
            70..80 => Layout::Around,
            even => Layout::Near { first_leads: even % 2 == 0 },
        };
        Some((pair, layout))
    }

    /// The names of a document, in their order.
    pub fn plants(&self, document: u64, shape: Shape, shape_before: Option<Shape>) -> Vec<Plant> {
        let mut plants = Vec::new();
        if let Some(shape) = shape_before
            && let Some((pair, Layout::Across)) = self.planted(document - 1, shape)
        {
            plants.push(Plant { before: 1, name: 2 * pair + 1 });
        }
        let Some((pair, layout)) = self.planted(document, shape) else { return plants };
        let mut draw = Draw::new(Purpose::Place, document);
        let words = shape.words;
        let gap = 1 + draw.below((words / 3).min(NEAR / 2));
        let start = draw.below(words - 2 * gap);
        let (first, second) = (2 * pair, 2 * pair + 1);
        let own = match layout {
            Layout::Near { first_leads: true } => vec![(start, first), (start + gap, second)],
            Layout::Near { first_leads: false } => vec![(start, second), (start + gap, first)],
            Layout::FirstTwice => {
                vec![(start, first), (start + gap, first), (start + 2 * gap, second)]
            }
            Layout::Around => vec![(start, first), (start + gap, second), (start + 2 * gap, first)],
            Layout::Far => {
                let start = draw.below(words - FAR);
                vec![(start, first), (start + FAR, second)]
            }
            Layout::Across => vec![(words, first)],
        };
        plants.extend(own.into_iter().map(|(before, name)| Plant { before, name }));
        plants.sort_by_key(|plant| plant.before);
        plants
    }

    /// Adds to each pair's tally what is planted in a document.
    pub fn tally(&self, document: u64, shape: Shape, tallies: &mut [Tally]) {
        if let Some((pair, layout)) = self.planted(document, shape) {
            tallies[pair] += layout.tally();
        }
    }
}

/// A pair of names, and what counting it must give.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Expected {
    pub names: [String; 2],
    /// In the modes `exact` and `compatible`.
    pub exact: u64,
    pub span: u64,
}

/// Writes what is known of all pairs, one JSON object a line.
pub fn save(tallies: &[Tally], path: &Path) {
    let mut lines = String::new();
    for (pair, tally) in tallies.iter().enumerate() {
        assert!(
            tally.firsts >= tally.seconds,
            "`exact` is known where the second name is the rarer one"
        );
        let names = [name(2 * pair), name(2 * pair + 1)];
        let expected = Expected { names, exact: tally.exact, span: tally.span };
        lines += &serde_json::to_string(&expected).expect("plain fields");
        lines.push('\n');
    }
    std::fs::write(path, lines).expect("the bench's own folder can be written");
}

pub fn load(path: &Path) -> Vec<Expected> {
    let text = std::fs::read_to_string(path).expect("written with the text");
    text.lines().map(|line| serde_json::from_str(line).expect("the bench wrote it")).collect()
}
