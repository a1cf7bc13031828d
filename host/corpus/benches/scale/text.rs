//! Writing the text, its tokenizer and what is known of its pairs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use corver_corpus::Tokenizer;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::document::World;
use crate::pairs::{self, PAIRS, Pairs, Tally};
use crate::shape::Shape;
use crate::vocabulary;

/// Changes with what is written, so that text of an older generator is not taken for this one's.
const GENERATOR: u32 = 1;
const DOCUMENTS_PER_FILE: u64 = 50_000;
/// The tokenizer is trained on the first bytes, and the sizes are estimated from them.
const SAMPLE_BYTES: usize = 30_000_000;
/// The pairs are dealt to about this many tokens a document, before anything is measured.
const TOKENS_PER_DOCUMENT: u64 = 550;

/// Totals of the written text.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Written {
    generator: u32,
    /// Requested number of tokens.
    pub tokens: u64,
    pub documents: u64,
    pub text_bytes: u64,
    pub file_bytes: u64,
    pub seconds: f64,
    pub sample: Sample,
}

/// Averages over the first documents.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sample {
    pub documents: usize,
    pub tokens_per_word: f64,
    pub mean_tokens: f64,
    pub median_tokens: usize,
    pub longest_tokens: usize,
    pub distinct_tokens: usize,
    pub most_frequent: Vec<(String, u64)>,
    /// Tokens for every word of a document's plan.
    tokens_per_planned_word: f64,
}

/// The folder of the text and the index.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(path: PathBuf) -> Self {
        std::fs::create_dir_all(&path).expect("the bench's own folder can be written");
        Self(path)
    }

    pub fn text(&self) -> PathBuf {
        self.0.join("text")
    }

    pub fn tokenizer(&self) -> PathBuf {
        self.0.join("tokenizer.json")
    }

    pub fn pairs(&self) -> PathBuf {
        self.0.join("pairs.jsonl")
    }

    pub fn index(&self) -> PathBuf {
        self.0.join("index")
    }

    /// The index while it is being built.
    pub fn unfinished_index(&self) -> PathBuf {
        self.0.join("index.unfinished")
    }

    /// Removes the text and the index; the record of the text goes first.
    fn clear(&self) {
        let _ = std::fs::remove_file(self.0.join(RECORD));
        for folder in [self.text(), self.index(), self.unfinished_index()] {
            if folder.exists() {
                std::fs::remove_dir_all(folder).expect("the bench's own folder can be written");
            }
        }
        std::fs::create_dir_all(self.text()).expect("the bench's own folder can be written");
    }

    /// A record of a finished stage.
    pub fn load<T: serde::de::DeserializeOwned>(&self, record: &str) -> Option<T> {
        serde_json::from_slice(&std::fs::read(self.0.join(record)).ok()?).ok()
    }

    pub fn save<T: Serialize>(&self, record: &str, value: &T) {
        let json = serde_json::to_vec_pretty(value).expect("plain fields");
        std::fs::write(self.0.join(record), json).expect("the bench's own folder can be written");
    }
}

const RECORD: &str = "text.json";

/// Writes text of at least this many tokens, unless it is there.
pub fn write(folder: &Folder, tokens: u64) -> Written {
    if let Some(written) = folder.load::<Written>(RECORD)
        && (written.generator, written.tokens) == (GENERATOR, tokens)
    {
        eprintln!("text: {} documents are there", written.documents);
        return written;
    }
    folder.clear();
    let start = Instant::now();
    let author = Author { world: World::new(), pairs: Pairs::new(tokens / TOKENS_PER_DOCUMENT) };
    let sample = author.sample(&folder.tokenizer());
    eprintln!("text: tokenizer trained, {:.1} s", start.elapsed().as_secs_f64());
    let documents = author.documents_for(tokens, sample.tokens_per_planned_word);
    let files = documents.div_ceil(DOCUMENTS_PER_FILE);
    let done = AtomicU64::new(0);
    let written: Vec<(u64, Vec<Tally>)> = (0..files)
        .into_par_iter()
        .map(|file| {
            let numbers = file * DOCUMENTS_PER_FILE..documents.min((file + 1) * DOCUMENTS_PER_FILE);
            let written = author
                .write_file(&folder.text().join(format!("part-{file:04}.jsonl.zst")), numbers);
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            eprintln!("text: {done} of {files} files, {:.1} s", start.elapsed().as_secs_f64());
            written
        })
        .collect();
    let mut tallies = vec![Tally::default(); PAIRS];
    for (_, of_file) in &written {
        tallies.iter_mut().zip(of_file).for_each(|(tally, &more)| *tally += more);
    }
    pairs::save(&tallies, &folder.pairs());
    let text_bytes = written.iter().map(|(bytes, _)| bytes).sum();
    let seconds = start.elapsed().as_secs_f64();
    let file_bytes = size(&folder.text());
    let written = Written {
        generator: GENERATOR,
        tokens,
        documents,
        text_bytes,
        file_bytes,
        seconds,
        sample,
    };
    folder.save(RECORD, &written);
    written
}

/// Bytes of the files in a folder; 0 where there is no such folder.
pub fn size(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

struct Author {
    world: World,
    pairs: Pairs,
}

impl Author {
    fn document(&self, number: u64) -> (String, Shape) {
        let shape = self.world.shape(number);
        let before = number.checked_sub(1).map(|before| self.world.shape(before));
        let text = self.world.text(number, shape, &self.pairs.plants(number, shape, before));
        (text, shape)
    }

    /// Trains the tokenizer on the first documents, and looks at what it makes of them.
    fn sample(&self, tokenizer: &Path) -> Sample {
        let (mut texts, mut bytes, mut planned) = (Vec::new(), 0, 0);
        while bytes < SAMPLE_BYTES {
            let (text, shape) = self.document(texts.len() as u64);
            bytes += text.len();
            planned += shape.words;
            texts.push(text);
        }
        let json = vocabulary::train(&texts);
        std::fs::write(tokenizer, &json).expect("the bench's own folder can be written");
        let tokenizer = Tokenizer::from_bytes(json).expect("it was just trained");
        let mut lengths = Vec::new();
        let mut counts = BTreeMap::<u32, u64>::new();
        for text in &texts {
            let ids = tokenizer.encode_document(text).expect("every byte has a token");
            lengths.push(ids.len());
            ids.into_iter().for_each(|id| *counts.entry(id).or_default() += 1);
        }
        let (tokens, words): (usize, usize) =
            (lengths.iter().sum(), texts.iter().map(|text| text.split_whitespace().count()).sum());
        lengths.sort_unstable();
        let mut frequent: Vec<(u32, u64)> =
            counts.iter().map(|(&id, &count)| (id, count)).collect();
        frequent.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        let spelt = |&(id, count): &(u32, u64)| (tokenizer.piece(id).unwrap_or_default(), count);
        Sample {
            documents: texts.len(),
            tokens_per_word: tokens as f64 / words as f64,
            mean_tokens: tokens as f64 / texts.len() as f64,
            median_tokens: lengths[lengths.len() / 2],
            longest_tokens: lengths[lengths.len() - 1],
            distinct_tokens: counts.len(),
            most_frequent: frequent.iter().take(10).map(spelt).collect(),
            tokens_per_planned_word: tokens as f64 / planned as f64,
        }
    }

    /// Returns the number of documents that hold this many tokens, with a margin.
    fn documents_for(&self, tokens: u64, tokens_per_planned_word: f64) -> u64 {
        let words = (tokens as f64 * 1.01 / tokens_per_planned_word) as usize;
        let mut planned = 0;
        let enough = (0..).take_while(|&number| {
            planned += self.world.shape(number).words;
            planned < words
        });
        enough.count() as u64 + 1
    }

    /// Writes some documents into a file; their bytes, and what they hold of each pair.
    fn write_file(&self, path: &Path, numbers: std::ops::Range<u64>) -> (u64, Vec<Tally>) {
        let mut tallies = vec![Tally::default(); PAIRS];
        let mut bytes = 0;
        let file =
            BufWriter::new(File::create(path).expect("the bench's own folder can be written"));
        let mut file = zstd::Encoder::new(file, 1).expect("the level exists");
        for number in numbers {
            let (text, shape) = self.document(number);
            bytes += text.len() as u64;
            let line = json!({"id": number, "title": self.world.title(number), "text": text});
            writeln!(file, "{line}").expect("the disk has room");
            self.pairs.tally(number, shape, &mut tallies);
        }
        let mut file = file.finish().expect("the disk has room");
        file.flush().expect("the disk has room");
        (bytes, tallies)
    }
}
