//! An input damages a small index, which is then opened, queried and verified. The fuzz target does
//! this, and a test of the crate with the inputs in `seeds/`.
//!
//! An input has the number of the index, flags, the query, and then one change after the other.
//! After its end an input continues with zeros.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use corver_corpus::{
    BuildOptions, Cnf, CnfOptions, Error, Index, MANIFEST, Mode, OpenOptions, TextIndex,
    TokenWidth, Tokenizer, VerifyLevel, build_from_documents, verify,
};
use tempfile::TempDir;

const TOKENIZER: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
    "pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,"model":{"type":"WordLevel",
    "vocab":{"[UNK]":0,"a":1,"b":2,"c":3,"d":4},"unk_token":"[UNK]"}}"#;
const DOCUMENTS: [&str; 6] = [
    "a b c a b a b c d",
    "",
    "d d d d d d d d d d d d d d d d",
    "c b a",
    "b a b a b c c a b",
    "a b c a b a b c e",
];
/// Changes that one input can make, at most.
const MAX_CHANGES: usize = 8;

/// Indexes of every token width, and of one to three shards.
pub struct Indexes {
    _folder: TempDir,
    tokenizer: Tokenizer,
    indexes: Vec<Whole>,
}

/// An undamaged index on disk, with the contents of its files.
struct Whole {
    path: PathBuf,
    width: TokenWidth,
    files: Vec<(String, Vec<u8>)>,
}

impl Indexes {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("there is a folder for temporary files");
        let tokenizer = Tokenizer::from_bytes(TOKENIZER).expect("it is a tokenizer");
        let mut indexes = Vec::new();
        for width in [TokenWidth::U8, TokenWidth::U16, TokenWidth::U32] {
            for shards in 1..=3 {
                let path = folder.path().join(format!("{width}-{shards}"));
                let options =
                    BuildOptions { shards, token_width: Some(width), ..BuildOptions::default() };
                build_from_documents(DOCUMENTS, &tokenizer, &path, &options)
                    .expect("the texts can be indexed");
                let names = fs::read_dir(&path)
                    .expect("it was built")
                    .map(|entry| entry.expect("it is there").file_name());
                let mut files: Vec<_> = names
                    .map(|name| {
                        (name.into_string().expect("the format has plain names"), path.clone())
                    })
                    .map(|(name, path)| {
                        (name.clone(), fs::read(path.join(name)).expect("it is there"))
                    })
                    .collect();
                files.sort();
                indexes.push(Whole { path, width, files });
            }
        }
        Self { _folder: folder, tokenizer, indexes }
    }

    /// Damages one of the indexes, queries it, and restores it.
    pub fn damage(&self, input: &[u8]) {
        let mut input = Input(input);
        let index = &self.indexes[input.below(self.indexes.len())];
        let flags = input.byte();
        let query = IndexQuery::read(&mut input);
        let mut damaged = index.damaged(&mut input);
        if flags & 1 == 0 {
            damaged.insert(MANIFEST.to_owned(), None);
        }
        for (name, bytes) in &damaged {
            let path = index.path.join(name);
            match bytes {
                Some(bytes) => fs::write(path, bytes).expect("the folder is writable"),
                None => fs::remove_file(path).expect("it is there"),
            }
        }
        let width = (flags & 2 == 0).then_some(index.width);
        let options =
            OpenOptions { token_width: width, cache_bytes: 1 << 12, ..OpenOptions::default() };
        query_index(&index.path, options, &query, &self.tokenizer);
        for (name, bytes) in &index.files {
            if damaged.contains_key(name) {
                fs::write(index.path.join(name), bytes).expect("the folder is writable");
            }
        }
    }
}

impl Whole {
    /// Returns the files that the input changes; `None` for those that it removes.
    fn damaged(&self, input: &mut Input<'_>) -> BTreeMap<String, Option<Vec<u8>>> {
        let mut damaged = BTreeMap::new();
        for _ in 0..MAX_CHANGES {
            if input.0.is_empty() {
                break;
            }
            let change = input.byte();
            let (name, whole) = &self.files[input.below(self.files.len())];
            let file = damaged.entry(name.clone()).or_insert_with(|| Some(whole.clone()));
            let Some(bytes) = file else { continue };
            let at = usize::from(input.short()) % (bytes.len() + 1);
            match change % 7 {
                0 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= input.byte()),
                1 => {
                    let count = input.below(17);
                    bytes.iter_mut().skip(at).take(count).for_each(|byte| *byte = input.byte());
                }
                2 => bytes.truncate(at),
                3 => {
                    let count = input.below(33);
                    bytes.extend((0..count).map(|_| input.byte()));
                }
                4 => *bytes = self.files[input.below(self.files.len())].1.clone(),
                5 => bytes.rotate_left(at),
                _ => *file = None,
            }
        }
        damaged
    }
}

/// A query of a damaged index.
struct IndexQuery {
    clauses: Vec<Vec<Vec<u32>>>,
    words: Vec<Vec<String>>,
    options: CnfOptions,
}

impl IndexQuery {
    fn read(input: &mut Input<'_>) -> Self {
        let shape = input.byte();
        let term = |input: &mut Input<'_>, length: u8| {
            (0..length).map(|_| u32::from(input.byte() % 6)).collect()
        };
        let clauses = (0..=shape & 1)
            .map(|_| (0..=shape >> 1 & 1).map(|_| term(input, 1 + (shape >> 2 & 1))).collect())
            .collect();
        let words = [["a b", "d"], ["b", "c"]].map(|clause| clause.map(str::to_owned).to_vec());
        let options = CnfOptions {
            max_clause_freq: 1 + u64::from(input.byte()),
            max_diff_tokens: 1 + u64::from(input.byte()),
            mode: Mode::Compatible,
        };
        Self { clauses, words: words[..1 + usize::from(shape >> 3 & 1)].to_vec(), options }
    }
}

/// Queries an index that may be damaged. It must not panic. If the index was verified, its counts
/// must be right.
fn query_index(path: &Path, options: OpenOptions, query: &IndexQuery, tokenizer: &Tokenizer) {
    let whole = verify(path, options.clone(), VerifyLevel::Full).is_ok();
    let Ok(index) = Index::open_with(path, options) else {
        assert!(!whole, "verified, but not to be opened");
        return;
    };
    for term in query.clauses.iter().flatten() {
        let count = index.count(term);
        if whole {
            assert_eq!(count.expect("the index was verified"), occurrences(&index, term));
        }
    }
    let cnf = Cnf::new(query.clauses.clone()).expect("no part of it is empty");
    for mode in [Mode::Compatible, Mode::Exact, Mode::ExactFirst, Mode::Span] {
        let options = CnfOptions { mode, ..query.options };
        let answers = [None, Some(3)].map(|enough| index.count_cnf(&cnf, &options, enough));
        let found = index.find_cnf(&cnf, &options);
        if whole {
            let [count, early] = answers.map(|answer| answer.expect("the index was verified"));
            assert!(early.count <= count.count.max(3) || mode == Mode::Compatible);
            let found = found.expect("the index was verified").iter().map(Vec::len).sum::<usize>();
            assert!(mode == Mode::Compatible || found as u64 == count.count);
        }
    }
    for shard in 0..index.num_shards() {
        for position in [0, 7, u64::MAX] {
            if let Ok(Some(document)) = index.document_at(shard, position) {
                let _: Result<_, Error> = index.document_metadata(&document);
            }
        }
    }
    if let Ok(corpus) = TextIndex::new(index, tokenizer.clone()) {
        let _: Result<_, Error> = corpus.passages(&query.words, &query.options, 5);
    }
}

fn occurrences(index: &Index, term: &[u32]) -> u64 {
    let of_shard = |shard| {
        let stream = index.tokens(shard, 0..u64::MAX);
        stream.windows(term.len()).filter(|window| *window == term).count() as u64
    };
    (0..index.num_shards()).map(of_shard).sum()
}

/// The rest of an input.
struct Input<'i>(&'i [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound
    }
}
