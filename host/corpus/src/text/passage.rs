//! Matches for people to read: the text around them, with the words of the query marked.

use std::ops::Range;

use serde::Serialize;
use serde_json::Value;

use crate::error::Result;
use crate::index::document::Document;
use crate::query::cnf::{Cnf, CnfOptions, Mode};
use crate::text::corpus::Corpus;
use crate::text::tokenizer::Tokenizer;

/// Tokens shown on each side of a word.
const CONTEXT: u64 = 24;
/// A cut is moved to a word's start over at most this many tokens.
const MAX_WORD_TOKENS: usize = 16;
/// Shown where text of the document is left out.
const CUT: &str = "…";

/// A document's text around one match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Passage {
    /// The shard that holds it.
    pub shard: usize,
    /// The document's number in that shard, from 0.
    pub document: u64,
    /// Where the match begins in that shard, in tokens.
    pub position: u64,
    /// The document's metadata: `path`, `linenum` (from 0), `metadata`. `None` where the index
    /// holds none.
    pub metadata: Option<Value>,
    /// The text, piece by piece; `…` where some is left out. Their `text`s make the passage.
    pub spans: Vec<Span>,
}

/// A piece of a [`Passage`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Span {
    /// The text.
    pub text: String,
    /// Whether these are words of the query.
    pub matched: bool,
}

impl Corpus {
    /// Up to `limit` matches of a query, spread evenly over all of them, in the order of the text;
    /// fewer where one passage shows several. The matches are those that [`Corpus::count_words`]
    /// counts, except that of a single frequent clause only a sample is considered.
    ///
    /// # Errors
    /// As [`Corpus::count_words`].
    pub fn passages(
        &self,
        all_of: &[Vec<String>],
        options: &CnfOptions,
        limit: usize,
    ) -> Result<Vec<Passage>> {
        let Some(clauses) = self.encode_clauses(all_of)? else { return Ok(Vec::new()) };
        // Every occurrence of a lone clause is a match: the cap keeps a list short that would hold,
        // say, every `the`.
        let mode = if clauses.len() == 1 { Mode::Compatible } else { options.mode };
        let cnf = Cnf::new(clauses)?;
        let found = self.index().find_cnf(&cnf, &CnfOptions { mode, ..*options })?;
        let mut places: Vec<(usize, u64)> = Vec::new();
        for (shard, starts) in self.index().shards().zip(found) {
            places.extend(starts.into_iter().map(|start| (shard.number, start)));
        }
        places.sort_unstable();
        places.dedup(); // one place may begin several matches
        let parts = limit.min(places.len());
        let mut passages = Vec::with_capacity(parts);
        let mut shown = (0, Vec::new()); // by the last passage: its shard, and the excerpts of its text
        for part in 0..parts {
            let mut part =
                places[part * places.len() / parts..(part + 1) * places.len() / parts].iter();
            let is_shown = |&(shard, position): &(usize, u64)| {
                let (shown_shard, excerpts): &(usize, Vec<Range<u64>>) = &shown;
                *shown_shard == shard && excerpts.iter().any(|excerpt| excerpt.contains(&position))
            };
            let Some(&(shard, position)) = part.find(|&place| !is_shown(place)) else { continue };
            if let Some(document) = self.index().document_at(shard, position)? {
                let excerpts =
                    self.excerpts(&document, position, cnf.clauses(), options.max_diff_tokens)?;
                passages.push(self.passage(&document, position, cnf.clauses(), &excerpts)?);
                shown = (shard, excerpts);
            }
        }
        Ok(passages)
    }

    /// The parts of a document that show a match: around each of its words, whole words only.
    fn excerpts(
        &self,
        document: &Document,
        position: u64,
        clauses: &[Vec<Vec<u32>>],
        max_diff_tokens: u64,
    ) -> Result<Vec<Range<u64>>> {
        let (tokens, shard) = (&document.tokens, document.shard);
        // A match begins with its leftmost word, and each further clause may begin
        // `max_diff_tokens` later.
        let max_starts_apart = max_diff_tokens.saturating_mul(clauses.len() as u64 - 1);
        let max_term_tokens =
            clauses.iter().flatten().map(Vec::len).max().unwrap_or_default() as u64;
        let end = position
            .saturating_add(max_starts_apart)
            .saturating_add(max_term_tokens)
            .min(tokens.end);
        let text = self.index().tokens(shard, position..end);
        let mut excerpts: Vec<Range<u64>> = clauses
            .iter()
            .filter_map(|terms| first_of(&text, terms))
            .map(|word| {
                let word_start = position + word.start as u64;
                let word_end = position + word.end as u64;
                let (start, until) = (
                    word_start.saturating_sub(CONTEXT),
                    word_end.saturating_add(CONTEXT).min(tokens.end),
                );
                Ok(self.word_start(document, start.max(tokens.start), Step::Back)?
                    ..self.word_start(document, until, Step::Ahead)?)
            })
            .collect::<Result<_>>()?;
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

    /// A place itself, or the nearest one before or after it, where a word starts and none is cut
    /// in two. Text without spaces is cut somewhere all the same.
    fn word_start(&self, document: &Document, place: u64, step: Step) -> Result<u64> {
        let mut moved = place;
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
                Step::Back => moved -= 1,
                Step::Ahead => moved += 1,
            }
        }
        Ok(place)
    }

    fn passage(
        &self,
        document: &Document,
        position: u64,
        clauses: &[Vec<Vec<u32>>],
        excerpts: &[Range<u64>],
    ) -> Result<Passage> {
        let (tokens, shard) = (&document.tokens, document.shard);
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
            mark(self.tokenizer(), &ids, clauses, &mut spans)?;
        }
        if excerpts.last().is_some_and(|excerpt| excerpt.end < tokens.end) {
            spans.push(" ", false);
            spans.push(CUT, false);
        }
        let metadata = self.index().document_metadata(document)?;
        Ok(Passage {
            shard,
            document: document.number,
            position,
            // A line of another program may not be JSON; it is shown as a string.
            metadata: metadata
                .map(|line| serde_json::from_str(&line).unwrap_or(Value::String(line))),
            spans: spans.0,
        })
    }
}

/// Where to look for another place.
#[derive(Clone, Copy)]
enum Step {
    Back,
    Ahead,
}

/// Whether a token follows another with a space between them.
fn starts_word(tokenizer: &Tokenizer, before: u32, token: u32) -> Result<bool> {
    let (alone, both) = (tokenizer.decode(&[before])?, tokenizer.decode(&[before, token])?);
    let added = &both[common_prefix(&both, &alone)..];
    Ok(alone.ends_with(char::is_whitespace) || added.starts_with(char::is_whitespace))
}

/// The first place where one of the terms stands.
fn first_of(text: &[u32], terms: &[Vec<u32>]) -> Option<Range<usize>> {
    let place = |term: &Vec<u32>| {
        let start = text.windows(term.len()).position(|tokens| tokens == term)?;
        Some(start..start + term.len())
    };
    terms.iter().filter_map(place).min_by_key(|place| place.start)
}

/// Decodes some tokens, the query's words apart from the rest.
fn mark(
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
    // A token decoded alone may lose the space before it, so pieces are cut out of the whole, at
    // the length that the tokens before them decode to.
    let whole = tokenizer.decode(ids)?;
    let mut shown = 0;
    let mut end = 0;
    for run in matched.chunk_by(|a, b| a == b) {
        end += run.len();
        let upto = if end == ids.len() {
            whole.len()
        } else {
            common_prefix(&whole, &tokenizer.decode(&ids[..end])?).max(shown)
        };
        let piece = &whole[shown..upto];
        let word = if run[0] { piece.trim_start() } else { piece };
        spans.push(&piece[..piece.len() - word.len()], false);
        spans.push(word, run[0]);
        shown = upto;
    }
    Ok(())
}

/// How many bytes two texts share from the start, whole characters only.
fn common_prefix(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).map(|(c, _)| c.len_utf8()).sum()
}

/// Spans of which neighbours differ and none is empty.
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
