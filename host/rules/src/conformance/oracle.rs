//! Backends whose replies are pseudo-random, and depend on the request alone.

use corver_core::{
    Backends, BoxError, ChatModel, ChatPrompt, ChatReply, CorpusInfo, Count, CountMode,
    CountPrecision, Counter, Entailment, NliModel, NliPair, Passage, Query, Retriever, Search,
    Usage,
};

/// Counts: unknown for some queries, huge for others.
const COUNTS: [Option<u64>; 9] =
    [None, Some(0), Some(1), Some(4), Some(5), Some(19), Some(20), Some(1_000_000), Some(u64::MAX)];
const PROBABILITIES: [f32; 6] = [0.0, 0.25, 0.3, 0.5, 0.75, 1.0];
const REPLIES: [&str; 16] = [
    "",
    " \t",
    "A",
    "CORRECT",
    "Wrong",
    "Yes.",
    "No.",
    "5",
    "[]",
    "NONE",
    "- Rome is in Italy.\n- It is old.",
    "- Paris is in Peru.",
    "- 東京は日本の首都です。",
    "* Lima is in Peru.\n* Lima is in Chile.\n* Lima is in Peru.",
    "1. Rome is in Italy.\n2. It is old. (5)",
    "\u{202e}東京 {\"\0\": [",
];
const PASSAGES: [&str; 3] = ["", "Rome is in Italy.", "Dvořák naît à Nelahozeves 🎻."];

/// A backend for every capability.
#[derive(Clone, Copy)]
pub(super) enum Oracle {
    /// Counts all matches.
    Exact,
    /// Stops counting at the query's limit.
    Stopping,
    /// Does not report the size of its corpus.
    OfUnknownSize,
}

impl Oracle {
    pub(super) fn backends(self) -> Backends<'static> {
        Backends::counting(self).with_nli(self).with_chat(self).with_passages(self)
    }
}

impl Counter for Oracle {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        let count = |query: &Query| {
            let occurrences = COUNTS[draw(&query.to_string(), COUNTS.len())];
            let limit = query.limit.filter(|_| matches!(self, Self::Stopping)).unwrap_or(u64::MAX);
            let precision = match occurrences {
                Some(found) if found > limit => CountPrecision::AtLeast,
                _ => CountPrecision::Exact,
            };
            Count { occurrences: occurrences.map(|found| found.min(limit)), precision }
        };
        Ok(queries.iter().map(count).collect())
    }

    fn info(&self) -> CorpusInfo {
        match self {
            Self::OfUnknownSize => CorpusInfo::default(),
            Self::Exact | Self::Stopping => CorpusInfo {
                tokens: Some(1_000_000_000),
                documents: Some(1_000_000),
                window: Some(1_000),
                mode: Some(CountMode::Exact),
            },
        }
    }
}

impl NliModel for Oracle {
    fn entail(&mut self, pairs: &[NliPair]) -> Result<Vec<Entailment>, BoxError> {
        let entailment = |NliPair { premise, hypothesis }: &NliPair| {
            let drawn = draw(&format!("{premise}\n{hypothesis}"), 2 * PROBABILITIES.len());
            let entail = PROBABILITIES[drawn / 2];
            let rest = drawn.is_multiple_of(2).then_some((1.0 - entail) / 2.0);
            Entailment { entail, neutral: rest, contradict: rest }
        };
        Ok(pairs.iter().map(entailment).collect())
    }
}

impl ChatModel for Oracle {
    fn reply(&mut self, prompts: &[ChatPrompt]) -> Result<Vec<ChatReply>, BoxError> {
        let reply = |prompt: &ChatPrompt| {
            let content = REPLIES[draw(&format!("{prompt:?}"), REPLIES.len())].to_owned();
            ChatReply { content, usage: Usage::default() }
        };
        Ok(prompts.iter().map(reply).collect())
    }
}

impl Retriever for Oracle {
    fn passages(&mut self, searches: &[Search]) -> Result<Vec<Vec<Passage>>, BoxError> {
        let found = |search: &Search| {
            let drawn = draw(&format!("{search:?}"), 4);
            let passage = |index: usize| {
                let text = PASSAGES[(index + drawn) % PASSAGES.len()].to_owned();
                Passage { title: search.title.clone().unwrap_or_default(), text }
            };
            (0..drawn.min(search.k as usize)).map(passage).collect()
        };
        Ok(searches.iter().map(found).collect())
    }
}

/// Returns a number below `end` that depends on `seed` alone.
pub(super) fn draw(seed: &str, end: usize) -> usize {
    let hash = blake3::hash(seed.as_bytes());
    let bytes = hash.as_bytes().first_chunk().expect("a hash has 32 bytes");
    (u64::from_le_bytes(*bytes) % end as u64) as usize
}
