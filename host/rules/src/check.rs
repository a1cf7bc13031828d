//! Whether what a rule answered is acceptable.

use corver_core::{Query, RuleSentence};

use crate::judge::Outcome;
use crate::{Fault, Limits};

/// Whether these are one outcome per sentence, each acceptable. `judged` are the sentences, with the number of queries that each
/// has asked before.
pub(crate) fn check<'a>(
    judged: impl Iterator<Item = (&'a RuleSentence, usize)> + Clone,
    outcomes: &[Outcome],
    limits: &Limits,
) -> Result<(), Fault> {
    let expected = judged.clone().count();
    if outcomes.len() != expected {
        return Err(Fault::Outcomes { expected, got: outcomes.len() });
    }
    judged.zip(outcomes).try_for_each(|((sentence, asked), outcome)| check_one(sentence, asked, outcome, limits))
}

fn check_one(sentence: &RuleSentence, asked: usize, outcome: &Outcome, limits: &Limits) -> Result<(), Fault> {
    let RuleSentence { completion, index, .. } = *sentence;
    let triplets = sentence.triplets.len();
    match outcome {
        Outcome::Score { reward, triplet, note, .. } => {
            if !reward.is_finite() {
                return Err(Fault::NotFinite { completion, index, reward: *reward });
            }
            if let Some(got) = triplet.filter(|&triplet| triplet as usize >= triplets) {
                return Err(Fault::Triplet { completion, index, triplets, got });
            }
            note.as_ref().map_or(Ok(()), |note| check_text("note", note, limits.text_bytes))
        }
        Outcome::Abstain { note } => note.as_ref().map_or(Ok(()), |note| check_text("note", note, limits.text_bytes)),
        Outcome::Ask(queries) => {
            let (limit, got) = (limits.queries_per_sentence, asked + queries.len());
            if got > limit {
                return Err(Fault::SentenceQueries { completion, index, limit, got });
            }
            queries.iter().try_for_each(|query| check_query(query, limits))
        }
    }
}

fn check_query(query: &Query, limits: &Limits) -> Result<(), Fault> {
    let limit = limits.words_per_query;
    if query.words().all(str::is_empty) {
        return Err(Fault::Words { limit, got: 0 });
    }
    // Nearly all are so short that they cannot break a limit.
    if query.num_bytes() < limit.min(limits.text_bytes) {
        return Ok(());
    }
    let got = query.words().count();
    if got > limit {
        return Err(Fault::Words { limit, got });
    }
    query.words().try_for_each(|word| check_text("query word", word, limits.text_bytes))
}

pub(crate) fn check_text(what: &'static str, text: &str, limit: usize) -> Result<(), Fault> {
    if text.len() > limit { Err(Fault::Text { what, limit, got: text.len() }) } else { Ok(()) }
}
