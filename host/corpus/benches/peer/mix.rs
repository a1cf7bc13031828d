//! The queries for both engines: the golden ones, or queries drawn from an index.

use std::path::Path;

use corver_corpus::{Cnf, CnfOptions, Index};
use rand_mt::Mt;
use serde::Deserialize;
use serde_json::json;

/// A query with the name of its kind.
#[derive(Debug, Clone)]
pub struct Query {
    pub kind: String,
    pub ask: Ask,
}

#[derive(Debug, Clone)]
pub enum Ask {
    Ngram(Vec<u32>),
    Cnf { cnf: Cnf, max_clause_freq: u64, max_diff_tokens: u64 },
}

impl Query {
    fn cnf(kind: &str, clauses: Vec<Vec<Vec<u32>>>, max_clause_freq: u64) -> Self {
        let cnf = Cnf::new(clauses).expect("no part of the query is empty");
        Self {
            kind: kind.to_owned(),
            ask: Ask::Cnf { cnf, max_clause_freq, max_diff_tokens: PAPER.max_diff_tokens },
        }
    }

    pub fn is_ngram(&self) -> bool {
        matches!(self.ask, Ask::Ngram(_))
    }

    /// Two entities at the reward's settings: nearly all queries of training.
    pub fn is_pair(&self) -> bool {
        self.kind.starts_with("pair-") && self.has_the_papers_settings()
    }

    /// True for two frequent words, neither sampled.
    pub fn is_frequent_pair(&self) -> bool {
        self.kind.starts_with("freq-x-freq") && self.has_the_papers_settings()
    }

    fn has_the_papers_settings(&self) -> bool {
        match &self.ask {
            Ask::Ngram(_) => false,
            Ask::Cnf { max_clause_freq, max_diff_tokens, .. } => {
                (*max_clause_freq, *max_diff_tokens)
                    == (PAPER.max_clause_freq, PAPER.max_diff_tokens)
            }
        }
    }

    /// The query in the words of `query.py`.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.ask {
            Ask::Ngram(ids) => json!({"ids": ids}),
            Ask::Cnf { cnf, max_clause_freq, max_diff_tokens } => json!({
                "cnf": cnf.clauses(), "max_clause_freq": max_clause_freq, "max_diff_tokens": max_diff_tokens,
            }),
        }
    }

    /// Positions that the official engine reads and sorts for this query on one shard: those of
    /// every clause but the rarest.
    pub fn positions_sorted(&self, index: &Index) -> u64 {
        let Ask::Cnf { cnf, max_clause_freq, .. } = &self.ask else { return 0 };
        let count = |term: &Vec<u32>| index.count(term).expect("the ids fit the index");
        let mut counts: Vec<u64> = cnf
            .clauses()
            .iter()
            .map(|clause| clause.iter().map(count).sum::<u64>().min(*max_clause_freq))
            .collect();
        counts.sort_unstable();
        if counts[0] == 0 { 0 } else { counts[1..].iter().sum() }
    }
}

const PAPER: CnfOptions = CnfOptions {
    max_clause_freq: 500_000,
    max_diff_tokens: 1_000,
    mode: corver_corpus::Mode::Compatible,
};

/// The queries of `golden/corpus`, entity pairs first among the CNF ones.
pub fn golden(shared: &Path) -> Vec<Query> {
    #[derive(Deserialize)]
    struct Line {
        kind: String,
        ids: Option<Vec<u32>>,
        cnf: Option<Vec<Vec<Vec<u32>>>>,
        max_clause_freq: Option<u64>,
        max_diff_tokens: Option<u64>,
    }

    let mut queries = Vec::new();
    for file in ["count.jsonl", "cnf.jsonl"] {
        let path = shared.join("golden/corpus").join(file);
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        for line in text.lines() {
            let line: Line =
                serde_json::from_str(line).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let ask = match line.cnf {
                None => Ask::Ngram(line.ids.expect("an n-gram has ids")),
                Some(clauses) => Ask::Cnf {
                    cnf: Cnf::new(clauses).expect("the golden queries are complete"),
                    max_clause_freq: line.max_clause_freq.expect("a CNF query has a cap"),
                    max_diff_tokens: line.max_diff_tokens.expect("a CNF query has a distance"),
                },
            };
            queries.push(Query { kind: line.kind, ask });
        }
    }
    queries
}

/// Queries of the golden ones' kinds, drawn from the first shard of an index: the same ones in
/// every run.
pub fn drawn(index: &Index) -> Vec<Query> {
    let text = Text::new(index);
    let mut draw = Mt::new(1);
    let mut queries = Vec::new();
    for _ in 0..500 {
        let ids = text.ngram(&mut draw);
        queries.push(Query { kind: "single".to_owned(), ask: Ask::Ngram(ids) });
    }
    for _ in 0..450 {
        let [a, b] = text.neighbours(&mut draw);
        queries.push(Query::cnf("pair-same-doc", vec![vec![a], vec![b]], PAPER.max_clause_freq));
    }
    for _ in 0..80 {
        let clauses = vec![vec![text.ngram(&mut draw)], vec![text.ngram(&mut draw)]];
        queries.push(Query::cnf("pair-random", clauses, PAPER.max_clause_freq));
    }
    for number in 0..160 {
        let clauses = vec![vec![text.ngram(&mut draw)], vec![text.frequent(&mut draw)]];
        let cap = [PAPER.max_clause_freq, 5_000, 500, 50][number % 4];
        queries.push(Query::cnf("rare-x-freq", clauses, cap));
    }
    for number in 0..100 {
        let clauses = vec![vec![text.frequent(&mut draw)], vec![text.frequent(&mut draw)]];
        let cap =
            if number < 60 { PAPER.max_clause_freq } else { [50_000, 5_000, 500, 50][number % 4] };
        queries.push(Query::cnf("freq-x-freq", clauses, cap));
    }
    for _ in 0..150 {
        let [a, b] = text.neighbours(&mut draw);
        let clauses = vec![vec![a, text.ngram(&mut draw)], vec![b, text.ngram(&mut draw)]];
        queries.push(Query::cnf("or-clause", clauses, PAPER.max_clause_freq));
    }
    for number in 0..150 {
        let clauses = (0..3 + number % 4).map(|_| vec![text.ngram(&mut draw)]).collect();
        queries.push(Query::cnf("many-clauses", clauses, PAPER.max_clause_freq));
    }
    queries
}

/// A shard's tokens, for drawing from.
struct Text {
    tokens: Vec<u32>,
    separator: u32,
    frequent: Vec<u32>,
}

impl Text {
    fn new(index: &Index) -> Self {
        let tokens = index.tokens(0, 0..u64::MAX);
        let separator = index.token_width().separator();
        let mut counts = std::collections::BTreeMap::<u32, u64>::new();
        for &token in tokens.iter().filter(|&&token| token != separator) {
            *counts.entry(token).or_default() += 1;
        }
        let mut frequent: Vec<u32> = counts.keys().copied().collect();
        frequent.sort_by_key(|token| std::cmp::Reverse(counts[token]));
        frequent.truncate(50);
        Self { tokens, separator, frequent }
    }

    fn position(&self, draw: &mut Mt) -> usize {
        draw.next_u32() as usize % self.tokens.len()
    }

    /// One to four tokens of one document that begin at a position, or after it where a document
    /// begins there.
    fn ngram_at(&self, position: usize, draw: &mut Mt) -> Vec<u32> {
        let length = 1 + draw.next_u32() as usize % 4;
        let rest = self.tokens[position..].iter().skip_while(|&&token| token == self.separator);
        let ids: Vec<u32> =
            rest.copied().take_while(|&token| token != self.separator).take(length).collect();
        if ids.is_empty() { vec![self.frequent[0]] } else { ids }
    }

    fn ngram(&self, draw: &mut Mt) -> Vec<u32> {
        self.ngram_at(self.position(draw), draw)
    }

    /// Two n-grams at most two hundred tokens apart.
    fn neighbours(&self, draw: &mut Mt) -> [Vec<u32>; 2] {
        let position = self.position(draw);
        let other = (position + draw.next_u32() as usize % 200).min(self.tokens.len() - 1);
        [self.ngram_at(position, draw), self.ngram_at(other, draw)]
    }

    fn frequent(&self, draw: &mut Mt) -> Vec<u32> {
        vec![self.frequent[draw.next_u32() as usize % self.frequent.len()]]
    }
}
