//! The text around matches, with the words of the query marked.

use std::ops::Range;

use serde::Serialize;
use serde_json::Value;

use crate::error::Result;
use crate::index::document::Document;
use crate::query::cnf::{Cnf, CnfOptions, Mode};
use crate::text::corpus::TextIndex;
use crate::text::tokenizer::Tokenizer;

/// Number of tokens shown on each side of a word.
const CONTEXT: u64 = 24;
/// Greatest distance by which a cut is moved to a word's start, tokens.
const MAX_WORD_TOKENS: usize = 16;
/// Mark of omitted text.
const CUT: &str = "…";

/// The text of a document around a match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MatchPassage {
    /// Number of the document's shard, from 0.
    pub shard: usize,
    /// Number of the document in its shard, from 0.
    pub document: u64,
    /// Position of the match in its shard, tokens.
    pub position: u64,
    /// Metadata of the document: `path`, `linenum` (from 0), `metadata`. `None` if the index has no
    /// metadata.
    pub metadata: Option<Value>,
    /// Pieces of the text, in order, with `…` for omitted text.
    pub spans: Vec<Span>,
}

/// A piece of text, with or without words of the query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Span {
    /// Text of the piece; not empty.
    pub text: String,
    /// True if these are words of the query.
    pub matched: bool,
}

impl TextIndex {
    /// Returns passages around up to `limit` matches of a query, evenly spaced over all matches, in
    /// the order of the text. There are fewer if a passage shows several of them. The matches are
    /// those that [`TextIndex::count_words`] counts, but only a sample of a single frequent clause.
    ///
    /// # Errors
    /// Fails as [`TextIndex::count_words`] does.
    pub fn passages(
        &self,
        all_of: &[Vec<String>],
        options: &CnfOptions,
        limit: usize,
    ) -> Result<Vec<MatchPassage>> {
        let Some(clauses) = self.encode_clauses(all_of)? else { return Ok(Vec::new()) };
        // Every occurrence of a single clause is a match: the cap bounds a list of, say, every
        // `the`.
        let mode = if clauses.len() == 1 { Mode::Compatible } else { options.mode };
        let cnf = Cnf::new(clauses)?;
        let mut matches = self.matches(&cnf, &CnfOptions { mode, ..*options })?;
        matches.sort_unstable();
        matches.dedup(); // several matches may begin at one position
        let num_parts = limit.min(matches.len());
        let mut passages = Vec::with_capacity(num_parts);
        // Shard and excerpts of the last passage.
        let mut last_shard = 0;
        let mut last_excerpts: Vec<Range<u64>> = Vec::new();
        for number in 0..num_parts {
            let begin = number * matches.len() / num_parts;
            let end = (number + 1) * matches.len() / num_parts;
            let next = matches[begin..end].iter().find(|(shard, position)| {
                *shard != last_shard
                    || !last_excerpts.iter().any(|excerpt| excerpt.contains(position))
            });
            let Some(&(shard, position)) = next else { continue };
            if let Some(document) = self.index().document_at(shard, position)? {
                let excerpts =
                    self.excerpts(&document, position, cnf.clauses(), options.max_diff_tokens)?;
                passages.push(self.passage(&document, position, cnf.clauses(), &excerpts)?);
                last_shard = shard;
                last_excerpts = excerpts;
            }
        }
        Ok(passages)
    }

    /// Returns the number of matches of a query, and how many of them are in a document; `None` if a
    /// word has no tokens. Frequent clauses of [`Mode::Compatible`] are sampled.
    ///
    /// # Errors
    /// Fails as [`TextIndex::count_words`] does.
    pub fn matches_in(
        &self,
        document: &Document,
        all_of: &[Vec<String>],
        options: &CnfOptions,
    ) -> Result<Option<(u64, u64)>> {
        let Some(clauses) = self.encode_clauses(all_of)? else { return Ok(None) };
        let matches = self.matches(&Cnf::new(clauses)?, options)?;
        let is_in = |&&(shard, start): &&(usize, u64)| {
            shard == document.shard && document.tokens.contains(&start)
        };
        let inside = matches.iter().filter(is_in).count();
        Ok(Some((matches.len() as u64, inside as u64)))
    }

    /// Returns shard and position of each match.
    fn matches(&self, cnf: &Cnf, options: &CnfOptions) -> Result<Vec<(usize, u64)>> {
        let found = self.index().find_cnf(cnf, options)?;
        let mut matches = Vec::new();
        for (shard, starts) in self.index().shards().zip(found) {
            matches.extend(starts.into_iter().map(|start| (shard.number, start)));
        }
        Ok(matches)
    }

    /// Returns the ranges of a document around each word of a match, extended to complete words.
    fn excerpts(
        &self,
        document: &Document,
        position: u64,
        clauses: &[Vec<Vec<u32>>],
        max_diff_tokens: u64,
    ) -> Result<Vec<Range<u64>>> {
        let tokens = &document.tokens;
        // Each further clause may begin `max_diff_tokens` after or, in exact mode, before the one
        // that the match was joined with.
        let max_starts_apart = max_diff_tokens.saturating_mul(clauses.len() as u64 - 1);
        let start = position.saturating_sub(max_starts_apart).max(tokens.start);
        let max_term_tokens =
            clauses.iter().flatten().map(Vec::len).max().unwrap_or_default() as u64;
        let end = position
            .saturating_add(max_starts_apart)
            .saturating_add(max_term_tokens)
            .min(tokens.end);
        let text = self.index().tokens(document.shard, start..end);
        let match_start = position.saturating_sub(start) as usize;
        let mut excerpts: Vec<Range<u64>> = Vec::new();
        for terms in clauses {
            let Some(word) = nearest_occurrence(&text, terms, match_start) else { continue };
            let left = (start + word.start as u64).saturating_sub(CONTEXT).max(tokens.start);
            let right = (start + word.end as u64).saturating_add(CONTEXT).min(tokens.end);
            let excerpt_start = self.nearest_word_start(document, left, CutDirection::Back)?;
            let excerpt_end = self.nearest_word_start(document, right, CutDirection::Ahead)?;
            excerpts.push(excerpt_start..excerpt_end);
        }
        excerpts.sort_unstable_by_key(|excerpt| excerpt.start);
        excerpts.dedup_by(|next, excerpt| {
            let overlap = next.start <= excerpt.end;
            if overlap {
                excerpt.end = excerpt.end.max(next.end);
            }
            overlap
        });
        Ok(excerpts)
    }

    /// Returns the nearest position, from `position` on, where a word starts. If there is none
    /// within [`MAX_WORD_TOKENS`], as in text without spaces, it is `position` itself.
    fn nearest_word_start(
        &self,
        document: &Document,
        position: u64,
        step: CutDirection,
    ) -> Result<u64> {
        let mut moved = position;
        for _ in 0..MAX_WORD_TOKENS {
            let &[before, token] =
                self.index().tokens(document.shard, moved.saturating_sub(1)..moved + 1).as_slice()
            else {
                return Ok(moved);
            };
            if moved == document.tokens.start
                || moved == document.tokens.end
                || starts_word(self.tokenizer(), before, token)?
            {
                return Ok(moved);
            }
            match step {
                CutDirection::Back => moved -= 1,
                CutDirection::Ahead => moved += 1,
            }
        }
        Ok(position)
    }

    fn passage(
        &self,
        document: &Document,
        position: u64,
        clauses: &[Vec<Vec<u32>>],
        excerpts: &[Range<u64>],
    ) -> Result<MatchPassage> {
        let tokens = &document.tokens;
        let shard = document.shard;
        let mut spans = Spans::default();
        for (number, excerpt) in excerpts.iter().enumerate() {
            if number > 0 {
                spans.push(" ", false);
            }
            if excerpt.start > tokens.start {
                spans.push(CUT, false);
                spans.push(" ", false);
            }
            let ids = self.index().tokens(shard, excerpt.clone());
            push_marked(self.tokenizer(), &ids, clauses, &mut spans)?;
        }
        if excerpts.last().is_some_and(|excerpt| excerpt.end < tokens.end) {
            spans.push(" ", false);
            spans.push(CUT, false);
        }
        let metadata = self.index().parsed_metadata(document)?;
        Ok(MatchPassage { shard, document: document.number, position, metadata, spans: spans.0 })
    }
}

/// The direction of a search for a word's start.
#[derive(Clone, Copy)]
enum CutDirection {
    Back,
    Ahead,
}

/// True if there is white space between a token and the one before it.
fn starts_word(tokenizer: &Tokenizer, before: u32, token: u32) -> Result<bool> {
    let alone = tokenizer.decode(&[before])?;
    let both = tokenizer.decode(&[before, token])?;
    let added = &both[common_prefix(&both, &alone)..];
    Ok(alone.ends_with(char::is_whitespace) || added.starts_with(char::is_whitespace))
}

/// Returns the range of the occurrence of one of the terms that begins nearest to `position`.
fn nearest_occurrence(text: &[u32], terms: &[Vec<u32>], position: usize) -> Option<Range<usize>> {
    let mut nearest: Option<Range<usize>> = None;
    for term in terms {
        for (start, tokens) in text.windows(term.len()).enumerate() {
            if tokens == term
                && nearest
                    .as_ref()
                    .is_none_or(|range| start.abs_diff(position) < range.start.abs_diff(position))
            {
                nearest = Some(start..start + term.len());
            }
        }
    }
    nearest
}

/// Decodes tokens and appends them to `spans`, with the query's words marked.
fn push_marked(
    tokenizer: &Tokenizer,
    ids: &[u32],
    clauses: &[Vec<Vec<u32>>],
    spans: &mut Spans,
) -> Result<()> {
    let mut matched = vec![false; ids.len()];
    for term in clauses.iter().flatten() {
        for (start, tokens) in ids.windows(term.len()).enumerate() {
            if tokens == term {
                matched[start..start + term.len()].fill(true);
            }
        }
    }
    // A token decoded alone may lose the space before it. So pieces are cut out of the complete
    // text, at the length of the decoded tokens before them.
    let text = tokenizer.decode(ids)?;
    let mut shown = 0;
    let mut end = 0;
    for run in matched.chunk_by(|a, b| a == b) {
        end += run.len();
        let piece_end = if end == ids.len() {
            text.len()
        } else {
            common_prefix(&text, &tokenizer.decode(&ids[..end])?).max(shown)
        };
        let piece = &text[shown..piece_end];
        let word = if run[0] { piece.trim_start() } else { piece };
        spans.push(&piece[..piece.len() - word.len()], false);
        spans.push(word, run[0]);
        shown = piece_end;
    }
    Ok(())
}

/// Returns the length of the longest common prefix of two texts, bytes.
fn common_prefix(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).map(|(c, _)| c.len_utf8()).sum()
}

/// A list of spans in which neighbours differ and none is empty.
#[derive(Default)]
struct Spans(Vec<Span>);

impl Spans {
    fn push(&mut self, text: &str, matched: bool) {
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(last) if last.matched == matched => last.text.push_str(text),
            _ => self.0.push(Span { text: text.to_owned(), matched }),
        }
    }
}
