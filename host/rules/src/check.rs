//! Whether what a rule answered is acceptable.

use corver_core::Sentence;

use crate::bindings::types::{Outcome, Query, Request, Verdict};
use crate::{Fault, Limits};

/// Where a sentence is, both counted from 0.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// Which completion of the batch.
    pub(crate) completion: usize,
    /// Which sentence of it.
    pub(crate) index: usize,
}

/// `asked` is the number of queries that the sentence has asked before.
pub(crate) fn check(
    outcome: &Outcome,
    place: Place,
    sentence: &Sentence,
    asked: usize,
    limits: &Limits,
) -> Result<(), Fault> {
    let Place { completion, index } = place;
    let triplets = sentence.triplets.len();
    let note = match outcome {
        Outcome::Score(Verdict { reward, triplet, note, .. }) => {
            if !reward.is_finite() {
                return Err(Fault::NotFinite { completion, index, reward: *reward });
            }
            if let Some(got) = triplet.filter(|&triplet| triplet as usize >= triplets) {
                return Err(Fault::Triplet { completion, index, triplets, got });
            }
            note
        }
        Outcome::Abstain(note) => note,
        Outcome::Ask(requests) => {
            let (limit, got) = (limits.queries_per_sentence, asked + requests.len());
            if got > limit {
                return Err(Fault::SentenceQueries { completion, index, limit, got });
            }
            return requests.iter().try_for_each(|Request::Count(query)| check_query(query, limits));
        }
    };
    note.as_ref().map_or(Ok(()), |note| check_text("note", note, limits.text_bytes))
}

fn check_query(query: &Query, limits: &Limits) -> Result<(), Fault> {
    let &Limits { words_per_query: limit, words_per_clause, text_bytes, .. } = limits;
    // An empty clause takes as much room as a word.
    let got = match query.all_of.iter().all(Vec::is_empty) {
        true => 0,
        false => query.all_of.iter().map(|words| words.len().max(1)).sum(),
    };
    if !(1..=limit).contains(&got) {
        return Err(Fault::Words { limit, got });
    }
    let (limit, got) = (words_per_clause, query.all_of.iter().map(Vec::len).max().unwrap_or(0));
    if got > limit {
        return Err(Fault::ClauseWords { limit, got });
    }
    query.all_of.iter().flatten().try_for_each(|word| check_text("query word", word, text_bytes))
}

pub(crate) fn check_text(what: &'static str, text: &str, limit: usize) -> Result<(), Fault> {
    if text.len() > limit { Err(Fault::Text { what, limit, got: text.len() }) } else { Ok(()) }
}
