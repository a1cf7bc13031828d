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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use corver_core::Section;

    use super::*;

    /// Counts a query's clauses, and keeps what each call asked.
    #[derive(Default)]
    struct Clauses(Vec<Vec<String>>);

    impl Counter for Clauses {
        fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
            self.0.push(queries.iter().map(Query::to_string).collect());
            // The index may answer under a query of its own making; the rule must still find its answer.
            let count = |query: &Query| Count {
                query: Query { all_of: Vec::new(), enough: None },
                occurrences: Some(query.all_of.len() as u64),
                exact: true,
            };
            Ok(queries.iter().map(count).collect())
        }
    }

    fn sentence(completion: u32, index: u32) -> RuleSentence {
        RuleSentence { completion, index, text: "Well.".into(), section: Section::Think, triplets: Vec::new() }
    }

    fn query(word: &str) -> Query {
        Query { all_of: vec![vec![word.into()]], enough: None }
    }

    fn score(reward: f32) -> Outcome {
        Outcome::Score { reward, count: None, triplet: None, note: None }
    }

    #[test]
    fn completions_with_open_questions_come_again_whole() {
        let sentences = [sentence(0, 0), sentence(1, 0), sentence(1, 1), sentence(2, 0)];
        let mut calls = Vec::new();
        let mut index = Clauses::default();
        let verdicts = judge(&sentences, &Limits::default(), &mut index, |batch| {
            calls.push(batch.iter().map(|(sentence, counts)| (sentence.completion, counts.len())).collect::<Vec<_>>());
            // Sentence 1 of completion 1 asks twice, all others are content; the last round revises its neighbour.
            let answer = |&(sentence, counts): &(&RuleSentence, &[Count])| match (sentence.completion, sentence.index) {
                (1, 1) if counts.len() < 2 => Outcome::Ask(vec![query(["a", "b"][counts.len()])]),
                _ => score(calls.len() as f32),
            };
            Ok::<_, Infallible>(batch.iter().map(answer).collect())
        })
        .unwrap();
        assert_eq!(calls, [vec![(0, 0), (1, 0), (1, 0), (2, 0)], vec![(1, 0), (1, 1)], vec![(1, 0), (1, 2)]]);
        assert_eq!(
            verdicts.iter().map(|verdict| verdict.reward).collect::<Vec<_>>(),
            [Some(1.0), Some(3.0), Some(3.0), Some(1.0)]
        );
        assert_eq!(verdicts[2].counts.iter().map(|count| count.query.to_string()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(index.0, [["a"], ["b"]]);
    }

    #[test]
    fn each_query_is_looked_up_once_a_batch() {
        let sentences = [sentence(0, 0), sentence(0, 1)];
        let mut index = Clauses::default();
        let verdicts = judge(&sentences, &Limits::default(), &mut index, |batch| {
            let answer = |(_, counts): &(&RuleSentence, &[Count])| match counts.len() {
                0 => Outcome::Ask(vec![query("a"), query("b"), query("a")]),
                2 => Outcome::Ask(vec![query("b"), query("c")]),
                _ => score(counts.iter().filter_map(|count| count.occurrences).sum::<u64>() as f32),
            };
            Ok::<_, Infallible>(batch.iter().map(answer).collect())
        })
        .unwrap();
        assert_eq!(index.0, [vec!["a", "b"], vec!["c"]]);
        assert_eq!(verdicts[1].reward, Some(3.0));
    }

    #[test]
    fn a_verdict_that_turns_into_an_abstention_is_one() {
        let sentences = [sentence(0, 0), sentence(0, 1)];
        let mut round = 0;
        let verdicts = judge(&sentences, &Limits::default(), &mut Clauses::default(), |_| {
            round += 1;
            Ok::<_, Infallible>(match round {
                1 => vec![score(1.0), Outcome::Ask(vec![query("a")])],
                _ => vec![Outcome::Abstain { note: Some("on second thoughts".into()) }, score(2.0)],
            })
        })
        .unwrap();
        assert_eq!((verdicts[0].reward, verdicts[0].note.as_deref()), (None, Some("on second thoughts")));
    }

    #[test]
    fn an_index_that_answers_too_little_is_an_error() {
        struct Silent;
        impl Counter for Silent {
            fn count(&mut self, _: &[Query]) -> Result<Vec<Count>, PartError> {
                Ok(Vec::new())
            }
        }
        let stop = judge(&[sentence(0, 0)], &Limits::default(), &mut Silent, |_| {
            Ok::<_, Infallible>(vec![Outcome::Ask(vec![query("a")])])
        });
        assert!(matches!(stop, Err(Stop::Answers { expected: 1, got: 0 })));
    }
}
