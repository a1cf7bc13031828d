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

/// One sentence of a call, with the counts it has so far.
pub(crate) type Posed<'a> = (&'a RuleSentence, Vec<&'a Count>);

/// One verdict per sentence. `call` is the rule: sentences with the counts they have so far, to one outcome each.
pub(crate) fn judge<E>(
    sentences: &[RuleSentence],
    limits: &Limits,
    counter: &mut dyn Counter,
    mut call: impl FnMut(&[Posed]) -> Result<Vec<Outcome>, E>,
) -> Result<Vec<Verdict>, Stop<E>> {
    let mut verdicts = vec![Verdict::default(); sentences.len()];
    let mut answers = Answers::default();
    // For each sentence, which answers it has asked for, in the order asked.
    let mut asked: Vec<Vec<usize>> = vec![Vec::new(); sentences.len()];
    let mut open: Vec<usize> = (0..sentences.len()).collect();
    for round in 0.. {
        let pose = |&i: &usize| (&sentences[i], asked[i].iter().map(|&answer| &answers.counts[answer]).collect());
        let outcomes = call(&open.iter().map(pose).collect::<Vec<Posed>>()).map_err(Stop::Call)?;
        if outcomes.len() != open.len() {
            return Err(Stop::Fault(Fault::Outcomes { expected: open.len(), got: outcomes.len() }));
        }
        let mut new = Vec::new();
        let mut asking = BTreeSet::new();
        let mut num_asking = 0;
        for (&i, outcome) in open.iter().zip(outcomes) {
            check(&sentences[i], &outcome, limits).map_err(Stop::Fault)?;
            match outcome {
                Outcome::Score { reward, count, triplet, note } => {
                    verdicts[i] = Verdict { reward: Some(reward), count, triplet, note, counts: Vec::new() };
                }
                Outcome::Abstain { note } => verdicts[i] = Verdict { note, ..Verdict::default() },
                Outcome::Ask(queries) => {
                    num_asking += 1;
                    asking.insert(sentences[i].completion);
                    for query in queries {
                        let answer = answers.place_of(query, &mut new);
                        if !asked[i].contains(&answer) {
                            asked[i].push(answer);
                        }
                    }
                    check_number(&sentences[i], asked[i].len(), limits).map_err(Stop::Fault)?;
                }
            }
        }
        if num_asking == 0 {
            break;
        }
        if round == limits.rounds {
            return Err(Stop::Fault(Fault::Rounds { limit: limits.rounds, open: num_asking }));
        }
        answers.look_up(new, limits, counter)?;
        // A rule sees a completion whole or not at all.
        open.retain(|&i| asking.contains(&sentences[i].completion));
    }
    for (verdict, asked) in verdicts.iter_mut().zip(asked) {
        verdict.counts = asked.into_iter().map(|answer| answers.counts[answer].clone()).collect();
    }
    Ok(verdicts)
}

/// What the corpus has answered in this batch. Each query goes there once.
#[derive(Default)]
struct Answers {
    counts: Vec<Count>,
    places: HashMap<Query, usize>,
}

impl Answers {
    /// Where the answer to `query` is, or will be once `new` has been looked up.
    fn place_of(&mut self, query: Query, new: &mut Vec<Query>) -> usize {
        if let Some(&place) = self.places.get(&query) {
            return place;
        }
        let place = self.places.len();
        new.push(query.clone());
        self.places.insert(query, place);
        place
    }

    fn look_up<E>(&mut self, new: Vec<Query>, limits: &Limits, counter: &mut dyn Counter) -> Result<(), Stop<E>> {
        let (limit, got) = (limits.queries_per_batch, self.places.len());
        if got > limit {
            return Err(Stop::Fault(Fault::BatchQueries { limit, got }));
        }
        if new.is_empty() {
            return Ok(());
        }
        let counts = counter.count(&new).map_err(Stop::Counter)?;
        if counts.len() != new.len() {
            return Err(Stop::Answers { expected: new.len(), got: counts.len() });
        }
        // Under the query as the rule put it: that is how the rule finds its answer.
        self.counts.extend(new.into_iter().zip(counts).map(|(query, count)| Count { query, ..count }));
        Ok(())
    }
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
            check_number(sentence, queries.len(), limits)?;
            queries.iter().try_for_each(|query| check_query(query, limits))
        }
    }
}

fn check_number(sentence: &RuleSentence, got: usize, limits: &Limits) -> Result<(), Fault> {
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
            let answer = |(sentence, counts): &Posed| match (sentence.completion, sentence.index) {
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
            let answer = |(_, counts): &Posed| match counts.len() {
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
