//! The rounds: call the rule, look up what it asks, call it again; and the checks on what it answers.

use std::collections::{BTreeSet, HashMap};

use corver_core::{Count, Counter, PartError, Query, RuleSentence, Verdict};

use crate::{Fault, Limits};

/// A rule's answer for one sentence, in no version's own types.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    Score { reward: f32, count: Option<u64>, triplet: Option<u32>, note: Option<String> },
    Abstain { note: Option<String> },
    Ask(Vec<Query>),
}

/// Why there are no verdicts.
#[derive(Debug)]
pub(crate) enum Stop<E> {
    /// The call itself failed.
    Call(E),
    /// The answer is not acceptable.
    Fault(Fault),
    Counter(PartError),
    /// Counts that came back, of how many.
    Answers {
        expected: usize,
        got: usize,
    },
}

/// One verdict per sentence. `call` is the rule: sentences with the counts they have so far, to one outcome each.
pub(crate) fn judge<E>(
    sentences: &[RuleSentence],
    limits: &Limits,
    counter: &mut dyn Counter,
    mut call: impl FnMut(&[(&RuleSentence, &[Count])]) -> Result<Vec<Outcome>, E>,
) -> Result<Vec<Verdict>, Stop<E>> {
    let mut verdicts = vec![Verdict::default(); sentences.len()];
    let mut known: HashMap<Query, Count> = HashMap::new();
    let mut open: Vec<usize> = (0..sentences.len()).collect();
    for round in 0.. {
        if open.is_empty() {
            break;
        }
        let batch: Vec<_> = open.iter().map(|&i| (&sentences[i], verdicts[i].counts.as_slice())).collect();
        let outcomes = call(&batch).map_err(Stop::Call)?;
        if outcomes.len() != open.len() {
            return Err(Stop::Fault(Fault::Outcomes { expected: open.len(), got: outcomes.len() }));
        }
        let mut asked = Vec::new();
        for (&i, outcome) in open.iter().zip(outcomes) {
            check(&sentences[i], &outcome, limits).map_err(Stop::Fault)?;
            match outcome {
                Outcome::Score { reward, count, triplet, note } => {
                    let counts = std::mem::take(&mut verdicts[i].counts);
                    verdicts[i] = Verdict { reward: Some(reward), count, triplet, note, counts };
                }
                Outcome::Abstain { note } => {
                    let counts = std::mem::take(&mut verdicts[i].counts);
                    verdicts[i] = Verdict { note, counts, ..Verdict::default() };
                }
                Outcome::Ask(queries) => asked.push((i, queries)),
            }
        }
        if !asked.is_empty() && round == limits.rounds {
            return Err(Stop::Fault(Fault::Rounds { limit: limits.rounds, open: asked.len() }));
        }
        look_up(&asked, limits, &mut known, counter)?;
        for (i, queries) in &asked {
            note_counts(&sentences[*i], &mut verdicts[*i].counts, queries, &known, limits).map_err(Stop::Fault)?;
        }
        // A rule sees a completion whole or not at all.
        let asking: BTreeSet<u32> = asked.iter().map(|&(i, _)| sentences[i].completion).collect();
        open.retain(|&i| asking.contains(&sentences[i].completion));
    }
    Ok(verdicts)
}

/// Adds to `known` what is asked and not in it yet; each query goes to the corpus once per batch.
fn look_up<E>(
    asked: &[(usize, Vec<Query>)],
    limits: &Limits,
    known: &mut HashMap<Query, Count>,
    counter: &mut dyn Counter,
) -> Result<(), Stop<E>> {
    let mut seen = BTreeSet::new();
    let queries = asked.iter().flat_map(|(_, queries)| queries);
    let new: Vec<Query> = queries.filter(|query| !known.contains_key(query) && seen.insert(*query)).cloned().collect();
    if new.is_empty() {
        return Ok(());
    }
    let got = known.len() + new.len();
    if got > limits.queries_per_batch {
        return Err(Stop::Fault(Fault::BatchQueries { limit: limits.queries_per_batch, got }));
    }
    let counts = counter.count(&new).map_err(Stop::Counter)?;
    if counts.len() != new.len() {
        return Err(Stop::Answers { expected: new.len(), got: counts.len() });
    }
    // Under the query as the rule put it: that is how the rule finds its answer.
    known.extend(new.into_iter().zip(counts).map(|(query, count)| (query.clone(), Count { query, ..count })));
    Ok(())
}

/// Records the answers for one sentence, in the order asked, each query once.
fn note_counts(
    sentence: &RuleSentence,
    counts: &mut Vec<Count>,
    queries: &[Query],
    known: &HashMap<Query, Count>,
    limits: &Limits,
) -> Result<(), Fault> {
    for query in queries {
        if !counts.iter().any(|count| count.query == *query) {
            counts.push(known[query].clone());
        }
    }
    let RuleSentence { completion, index, .. } = *sentence;
    let (limit, got) = (limits.queries_per_sentence, counts.len());
    if got > limit { Err(Fault::SentenceQueries { completion, index, limit, got }) } else { Ok(()) }
}

fn check(sentence: &RuleSentence, outcome: &Outcome, limits: &Limits) -> Result<(), Fault> {
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
            let (limit, got) = (limits.queries_per_sentence, queries.len());
            if got > limit {
                return Err(Fault::SentenceQueries { completion, index, limit, got });
            }
            queries.iter().try_for_each(|query| check_query(query, limits))
        }
    }
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
