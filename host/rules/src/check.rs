//! Whether what a rule answered is acceptable.

use corver_core::{Query, RuleSentence};

use crate::judge::Outcome;
use crate::{Fault, Limits};

/// One acceptable outcome per sentence, in order.
pub(crate) fn check<'a>(
    sentences: impl ExactSizeIterator<Item = &'a RuleSentence>,
    outcomes: &[Outcome],
    limits: &Limits,
) -> Result<(), Fault> {
    if outcomes.len() != sentences.len() {
        return Err(Fault::Outcomes { expected: sentences.len(), got: outcomes.len() });
    }
    sentences.zip(outcomes).try_for_each(|(sentence, outcome)| check_one(sentence, outcome, limits))
}

fn check_one(sentence: &RuleSentence, outcome: &Outcome, limits: &Limits) -> Result<(), Fault> {
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
            check_number(sentence, queries.len(), limits)?;
            queries.iter().try_for_each(|query| check_query(query, limits))
        }
    }
}

pub(crate) fn check_number(sentence: &RuleSentence, got: usize, limits: &Limits) -> Result<(), Fault> {
    let RuleSentence { completion, index, .. } = *sentence;
    let limit = limits.queries_per_sentence;
    if got > limit { Err(Fault::SentenceQueries { completion, index, limit, got }) } else { Ok(()) }
}

fn check_query(query: &Query, limits: &Limits) -> Result<(), Fault> {
    let (limit, got) = (limits.words_per_query, query.all_of.iter().map(Vec::len).sum());
    if got == 0 || got > limit || query.all_of.iter().any(Vec::is_empty) {
        return Err(Fault::Words { limit, got });
    }
    query.all_of.iter().flatten().try_for_each(|word| check_text("query word", word, limits.text_bytes))
}

pub(crate) fn check_text(what: &'static str, text: &str, limit: usize) -> Result<(), Fault> {
    if text.len() > limit { Err(Fault::Text { what, limit, got: text.len() }) } else { Ok(()) }
}
