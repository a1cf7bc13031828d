//! One document: an article about something that has a name, or a stub made from a template. It can
//! be written again from its number alone.

use crate::lexicon::Words;
use crate::pairs::{Plant, SHORTEST_DOCUMENT};
use crate::random::{Alias, Draw, Purpose};
use crate::shape::Shape;

const COMMON_WORDS: usize = 500_000;
const GIVEN_NAMES: usize = 3_000;
const FAMILY_NAMES: usize = 50_000;
const ENTITIES: usize = 1_000_000;
const RELATED: usize = 12;
const PHRASES: usize = 200_000;
const TOPICS: usize = 5_000;
const TOPIC_WORDS: usize = 300;
/// The most frequent words belong to no topic.
const FUNCTION_WORDS: usize = 100;
const TEMPLATES: usize = 60;
const LONGEST_DOCUMENT: f64 = 60_000.0;
/// Standard deviation of the logarithm of a document's length in words. As on Wikipedia, the mean is
/// more than twice the median.
const MEDIAN_WORDS: f64 = 215.0;
const SPREAD: f64 = 1.2;
const STUBS: f64 = 0.1;
const REPEATING: f64 = 0.001;

/// All that documents are made of.
pub struct World {
    words: Words,
    frequency: Alias,
    given: Words,
    family: Words,
    popularity: Alias,
    phrases: Vec<Vec<u32>>,
    phrase_frequency: Alias,
    templates: Vec<Vec<Slot>>,
}

/// A part of a template.
#[derive(Debug, Clone, Copy)]
enum Slot {
    Word(u32),
    Subject,
    Related(usize),
    Number,
    Stop,
}

/// Somebody or something: two or three words.
type Name = [Option<(NameList, usize)>; 3];

#[derive(Debug, Clone, Copy)]
enum NameList {
    Given,
    Family,
}

impl World {
    pub fn new() -> Self {
        let words = Words::common(COMMON_WORDS);
        let frequency = Alias::words(COMMON_WORDS, 1.5, 8_000.0);
        let mut draw = Draw::new(Purpose::Phrases, 0);
        let phrases = (0..PHRASES)
            .map(|_| (0..2 + draw.below(4)).map(|_| frequency.draw(&mut draw) as u32).collect())
            .collect();
        let templates = (0..TEMPLATES as u64).map(|number| template(number, &frequency)).collect();
        Self {
            given: Words::names(0, GIVEN_NAMES, 1),
            family: Words::names(1, FAMILY_NAMES, 2),
            popularity: Alias::zipf(ENTITIES, 30.0, 0.9),
            phrase_frequency: Alias::zipf(PHRASES, 5.0, 1.0),
            words,
            frequency,
            phrases,
            templates,
        }
    }

    pub fn shape(&self, document: u64) -> Shape {
        let mut draw = Draw::new(Purpose::Shape, document);
        let length = MEDIAN_WORDS * (SPREAD * draw.normal()).exp();
        let template = draw.chance(STUBS).then(|| draw.skewed(TEMPLATES, 2));
        let repeats = (document > 0 && draw.chance(REPEATING))
            .then(|| (draw.unit() * document as f64) as u64);
        let words = match template {
            Some(template) => {
                self.templates[template].iter().filter(|slot| !matches!(slot, Slot::Stop)).count()
            }
            None => length.clamp(SHORTEST_DOCUMENT as f64, LONGEST_DOCUMENT) as usize,
        };
        Shape { words, template, repeats }
    }

    /// A document's text, with names planted in it.
    pub fn text(&self, document: u64, shape: Shape, plants: &[Plant]) -> String {
        let mut text = self.body(document, shape, plants);
        if let Some(earlier) = shape.repeats {
            let source = self.body(earlier, self.shape(earlier), &[]);
            text.push('\n');
            text.push_str(passage(&source, &mut Draw::new(Purpose::Passage, document)));
        }
        text
    }

    /// The name that a document is about.
    pub fn title(&self, document: u64) -> String {
        self.spell(&self.name(self.subject(&mut Draw::new(Purpose::Body, document))))
    }

    /// The name that a document is about, and one that it mentions.
    pub fn names(&self, document: u64) -> [String; 2] {
        let subject = self.subject(&mut Draw::new(Purpose::Body, document));
        let related = self.related(subject);
        let which = Draw::new(Purpose::Question, document).skewed(RELATED, 2);
        [self.name(subject), self.name(related[which])].map(|name| self.spell(&name))
    }

    /// The same words whatever is planted.
    fn body(&self, document: u64, shape: Shape, plants: &[Plant]) -> String {
        let mut draw = Draw::new(Purpose::Body, document);
        let subject = self.subject(&mut draw);
        let related = self.related(subject).map(|entity| self.name(entity));
        let names = About { subject: self.name(subject), related };
        let mut page = Page::new(shape.words, plants);
        match shape.template {
            Some(template) => self.fill_in(&self.templates[template], &names, &mut draw, &mut page),
            None => self.write_facts(&names, &mut draw, &mut page, shape.words),
        }
        page.plant_rest();
        page.word(self.words.word(self.frequency.draw(&mut draw)));
        page.stop();
        page.text
    }

    fn subject(&self, draw: &mut Draw) -> usize {
        if draw.chance(0.3) { self.popularity.draw(draw) } else { draw.below(ENTITIES) }
    }

    /// Returns names that are often mentioned together with another.
    fn related(&self, subject: usize) -> [usize; RELATED] {
        let mut draw = Draw::new(Purpose::Entity, (ENTITIES + subject) as u64);
        std::array::from_fn(|_| self.popularity.draw(&mut draw))
    }

    fn fill_in(&self, template: &[Slot], names: &About, draw: &mut Draw, page: &mut Page<'_>) {
        for slot in template {
            match *slot {
                Slot::Word(word) => page.word(self.words.word(word as usize)),
                Slot::Subject => self.mention(&names.subject, page),
                Slot::Related(which) => self.mention(&names.related[which], page),
                Slot::Number => page.word(&number(draw)),
                Slot::Stop => page.stop(),
            }
        }
    }

    /// Running text of this many words.
    fn write_facts(&self, names: &About, draw: &mut Draw, page: &mut Page<'_>, words: usize) {
        let topic = draw.below(TOPICS) as u64;
        let topic: Vec<usize> = {
            let mut of_topic = Draw::new(Purpose::Topic, topic);
            std::iter::repeat_with(|| self.frequency.draw(&mut of_topic))
                .filter(|&word| word >= FUNCTION_WORDS)
                .take(TOPIC_WORDS)
                .collect()
        };
        self.mention(&names.subject, page);
        let mut sentence = 8 + draw.below(25);
        while page.words < words {
            match draw.below(1000) {
                ..12 => self.mention(&names.subject, page),
                12..28 => self.mention_shortly(&names.subject, page),
                28..55 => self.mention(&names.related[draw.skewed(RELATED, 2)], page),
                55..80 => page.word(&number(draw)),
                80..130 => {
                    for &word in &self.phrases[self.phrase_frequency.draw(draw)] {
                        page.word(self.words.word(word as usize));
                    }
                }
                130..290 => page.word(self.words.word(topic[draw.skewed(TOPIC_WORDS, 2)])),
                290..296 => page.in_marks(['(', ')'], self.words.word(self.frequency.draw(draw))),
                296..302 => page.in_marks(['"', '"'], self.words.word(self.frequency.draw(draw))),
                _ => page.word(self.words.word(self.frequency.draw(draw))),
            }
            sentence -= 1;
            if sentence == 0 {
                sentence = 8 + draw.below(25);
                page.stop();
                if draw.chance(0.17) {
                    page.paragraph();
                }
            } else if draw.chance(0.04) {
                page.text.push(',');
            }
        }
    }

    fn name(&self, entity: usize) -> Name {
        let mut draw = Draw::new(Purpose::Entity, entity as u64);
        let given = (NameList::Given, draw.skewed(GIVEN_NAMES, 3));
        let family = (NameList::Family, draw.skewed(FAMILY_NAMES, 3));
        let middle = draw.chance(0.2).then(|| (NameList::Family, draw.skewed(FAMILY_NAMES, 3)));
        [Some(given), middle, Some(family)]
    }

    fn spell(&self, name: &Name) -> String {
        let words: Vec<&str> = name.iter().flatten().map(|&word| self.name_word(word)).collect();
        words.join(" ")
    }

    fn name_word(&self, (list, word): (NameList, usize)) -> &str {
        match list {
            NameList::Given => self.given.word(word),
            NameList::Family => self.family.word(word),
        }
    }

    fn mention(&self, name: &Name, page: &mut Page<'_>) {
        name.iter().flatten().for_each(|&word| page.word(self.name_word(word)));
    }

    /// By the last word alone.
    fn mention_shortly(&self, name: &Name, page: &mut Page<'_>) {
        name.iter()
            .flatten()
            .next_back()
            .into_iter()
            .for_each(|&word| page.word(self.name_word(word)));
    }
}

/// The names that a document mentions.
struct About {
    subject: Name,
    related: [Name; RELATED],
}

fn template(number: u64, frequency: &Alias) -> Vec<Slot> {
    let mut draw = Draw::new(Purpose::Templates, number);
    let mut slots = vec![Slot::Subject];
    for at in 1..35 + draw.below(50) {
        slots.push(match draw.below(20) {
            0 => Slot::Subject,
            1 | 2 => Slot::Related(draw.below(RELATED)),
            3 => Slot::Number,
            _ => Slot::Word(frequency.draw(&mut draw) as u32),
        });
        if at % 14 == 0 {
            slots.push(Slot::Stop);
        }
    }
    slots
}

/// Mostly years.
fn number(draw: &mut Draw) -> String {
    match draw.below(10) {
        ..5 => (2025 - draw.skewed(400, 2)).to_string(),
        5..8 => (1 + draw.skewed(100, 2)).to_string(),
        8 => format!("{},{:03}", 1 + draw.skewed(900, 2), draw.below(1000)),
        _ => format!("{}.{}", draw.below(100), draw.below(10)),
    }
}

/// Some hundred words of a text.
fn passage<'t>(text: &'t str, draw: &mut Draw) -> &'t str {
    let bytes = 1_200 + draw.below(3_000);
    let start = text.ceil_char_boundary(draw.below(text.len().saturating_sub(bytes).max(1)));
    &text[start..text.floor_char_boundary((start + bytes).min(text.len()))]
}

/// A document that is being written.
struct Page<'p> {
    text: String,
    words: usize,
    /// No word stands yet in this paragraph.
    is_fresh: bool,
    is_sentence_start: bool,
    plants: &'p [Plant],
}

impl<'p> Page<'p> {
    fn new(words: usize, plants: &'p [Plant]) -> Self {
        let text = String::with_capacity(8 * words);
        Self { text, words: 0, is_fresh: true, is_sentence_start: true, plants }
    }

    fn word(&mut self, word: &str) {
        self.space();
        self.words += 1;
        let mut rest = word.chars();
        match rest.next() {
            Some(initial) if self.is_sentence_start => {
                self.text.extend(initial.to_uppercase());
                self.text.push_str(rest.as_str());
            }
            _ => self.text.push_str(word),
        }
        self.is_sentence_start = false;
    }

    fn in_marks(&mut self, [open, close]: [char; 2], word: &str) {
        self.space();
        self.words += 1;
        self.text.push(open);
        self.text.push_str(word);
        self.text.push(close);
        self.is_sentence_start = false;
    }

    /// The space before a word, and the names that are planted before it. They stand between
    /// spaces, not at the start of a paragraph.
    fn space(&mut self) {
        if std::mem::take(&mut self.is_fresh) {
            return;
        }
        while let Some((plant, rest)) = self.plants.split_first()
            && plant.before <= self.words
        {
            self.plant(*plant);
            self.plants = rest;
        }
        self.text.push(' ');
    }

    fn plant(&mut self, plant: Plant) {
        self.text.push(' ');
        self.text.push_str(&crate::pairs::name(plant.name));
    }

    /// Plants the names that are not yet planted; a word must follow.
    fn plant_rest(&mut self) {
        self.is_fresh &= self.plants.is_empty();
        for plant in std::mem::take(&mut self.plants) {
            self.plant(*plant);
        }
    }

    fn stop(&mut self) {
        self.text.push('.');
        self.is_sentence_start = true;
    }

    fn paragraph(&mut self) {
        self.text.push('\n');
        self.is_fresh = true;
    }
}
