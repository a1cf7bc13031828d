//! The rounds: call the rule, look up what it asks, call it again; and the checks on what it answers.

use std::hash::BuildHasher;

use corver_core::{Count, Counter, PartError, Query, RuleSentence, Verdict};
use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};
use rayon::prelude::*;

use crate::{Fault, Limits};

/// A call takes whole completions until it has so many sentences: enough that a fresh instance costs little beside
/// them, few enough that a training step keeps several cores busy. A constant, so that what a rule sees does not
/// depend on the machine.
const CALL_SENTENCES: usize = 256;

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
    /// A call failed, or its answer was not acceptable.
    Call(E),
    /// The calls together asked too much.
    Fault(Fault),
    Counter(PartError),
    /// Counts that came back, of how many.
    Answers {
        expected: usize,
        got: usize,
    },
}

/// One sentence of a call, with the counts it has so far.
#[derive(Clone, Copy)]
pub(crate) struct Posed<'a> {
    pub(crate) sentence: &'a RuleSentence,
    asked: &'a [usize],
    answers: &'a Answers,
}

impl<'a> Posed<'a> {
    /// In the order asked.
    pub(crate) fn counts(self) -> impl ExactSizeIterator<Item = &'a Count> {
        self.asked.iter().map(move |&place| &self.answers.counts[place])
    }
}

/// One verdict per sentence. `call` is the rule: sentences of whole completions, with the counts they have so far, to
/// one outcome each. Calls run side by side.
pub(crate) fn judge<E: Send>(
    sentences: &[RuleSentence],
    limits: &Limits,
    counter: &mut dyn Counter,
    call: impl Fn(&[Posed]) -> Result<Vec<Outcome>, E> + Sync,
) -> Result<Vec<Verdict>, Stop<E>> {
    let mut verdicts = vec![Verdict::default(); sentences.len()];
    let mut answers = Answers::default();
    // For each sentence, which answers it has asked for, in the order asked.
    let mut asked: Vec<Vec<usize>> = vec![Vec::new(); sentences.len()];
    let mut open: Vec<usize> = (0..sentences.len()).collect();
    for round in 0.. {
        let pose = |&i: &usize| Posed { sentence: &sentences[i], asked: &asked[i], answers: &answers };
        let outcomes = call_all(&open.iter().map(pose).collect::<Vec<Posed>>(), &call).map_err(Stop::Call)?;
        let mut asks = vec![false; sentences.len()];
        for (&i, outcome) in open.iter().zip(outcomes) {
            match outcome {
                Outcome::Score { reward, count, triplet, note } => {
                    verdicts[i] = Verdict { reward: Some(reward), count, triplet, note, ..Verdict::default() };
                }
                Outcome::Abstain { note } => verdicts[i] = Verdict { note, ..Verdict::default() },
                Outcome::Ask(queries) => {
                    asks[i] = true;
                    asked[i].extend(queries.into_iter().map(|query| answers.place_of(query)));
                    check_number(&sentences[i], asked[i].len(), limits).map_err(Stop::Fault)?;
                }
            }
        }
        let num_asking = asks.iter().filter(|&&asks| asks).count();
        if num_asking == 0 {
            break;
        }
        if round == limits.rounds {
            return Err(Stop::Fault(Fault::Rounds { limit: limits.rounds, open: num_asking }));
        }
        answers.look_up(limits, counter)?;
        // A rule sees a completion whole or not at all.
        let same_completion = |&a: &usize, &b: &usize| sentences[a].completion == sentences[b].completion;
        let with_asks = open.chunk_by(same_completion).filter(|completion| completion.iter().any(|&i| asks[i]));
        open = with_asks.flatten().copied().collect();
    }
    answers.hand_out(asked, &mut verdicts);
    Ok(verdicts)
}

/// One outcome per sentence, in order, whichever call ends first.
fn call_all<E: Send>(
    posed: &[Posed],
    call: impl Fn(&[Posed]) -> Result<Vec<Outcome>, E> + Sync,
) -> Result<Vec<Outcome>, E> {
    match calls(posed).as_slice() {
        [all] => call(all),
        several => {
            let outcomes: Result<Vec<_>, E> = several.par_iter().map(|posed| call(posed)).collect();
            Ok(outcomes?.into_iter().flatten().collect())
        }
    }
}

/// Cuts sentences where a completion ends, as soon as there are enough for a call.
fn calls<'p, 'a>(mut posed: &'p [Posed<'a>]) -> Vec<&'p [Posed<'a>]> {
    let mut calls = Vec::new();
    while let Some(last) = posed.get(CALL_SENTENCES - 1) {
        let more =
            posed[CALL_SENTENCES..].iter().take_while(|next| next.sentence.completion == last.sentence.completion);
        let (call, rest) = posed.split_at(CALL_SENTENCES + more.count());
        calls.push(call);
        posed = rest;
    }
    if !posed.is_empty() {
        calls.push(posed);
    }
    calls
}

/// What the corpus has answered in this batch. Each query goes there once.
#[derive(Default)]
struct Answers {
    counts: Vec<Count>,
    /// Asked, and not looked up yet: their places follow those of `counts`.
    new: Vec<Query>,
    /// Hash of a query, and its place.
    places: HashTable<(u64, usize)>,
    hasher: DefaultHashBuilder,
}

impl Answers {
    /// Where the answer to `query` is, or will be after [`Self::look_up`].
    fn place_of(&mut self, query: Query) -> usize {
        let Self { counts, new, places, hasher } = self;
        let hash = hasher.hash_one(&query);
        let at = |place: usize| counts.get(place).map_or_else(|| &new[place - counts.len()], |count| &count.query);
        match places.entry(hash, |&(known, place)| known == hash && *at(place) == query, |&(hash, _)| hash) {
            Entry::Occupied(known) => known.get().1,
            Entry::Vacant(vacant) => {
                let place = counts.len() + new.len();
                vacant.insert((hash, place));
                new.push(query);
                place
            }
        }
    }

    fn look_up<E>(&mut self, limits: &Limits, counter: &mut dyn Counter) -> Result<(), Stop<E>> {
        let (limit, got) = (limits.queries_per_batch, self.places.len());
        if got > limit {
            return Err(Stop::Fault(Fault::BatchQueries { limit, got }));
        }
        if self.new.is_empty() {
            return Ok(());
        }
        let counts = counter.count(&self.new).map_err(Stop::Counter)?;
        if counts.len() != self.new.len() {
            return Err(Stop::Answers { expected: self.new.len(), got: counts.len() });
        }
        // Under the query as the rule put it: that is what traces show.
        self.counts.extend(self.new.drain(..).zip(counts).map(|(query, count)| Count { query, ..count }));
        Ok(())
    }

    /// Gives each verdict the counts that its sentence asked for, each once.
    fn hand_out(self, mut asked: Vec<Vec<usize>>, verdicts: &mut [Verdict]) {
        asked.iter_mut().for_each(drop_repetitions);
        let mut askers = vec![0; self.counts.len()];
        asked.iter().flatten().for_each(|&place| askers[place] += 1);
        let mut counts: Vec<Option<Count>> = self.counts.into_iter().map(Some).collect();
        for (verdict, asked) in verdicts.iter_mut().zip(asked) {
            let hand = |place: usize| {
                askers[place] -= 1;
                let count = &mut counts[place];
                // Most have one asker, who gets it without a copy.
                if askers[place] == 0 { count.take() } else { count.clone() }
            };
            verdict.counts = asked.into_iter().filter_map(hand).collect();
        }
    }
}

/// Keeps the first of what is the same.
fn drop_repetitions(places: &mut Vec<usize>) {
    let mut kept = 0;
    for i in 0..places.len() {
        if !places[..kept].contains(&places[i]) {
            places[kept] = places[i];
            kept += 1;
        }
    }
    places.truncate(kept);
}

/// Whether `outcomes` are acceptable answers to `posed`.
pub(crate) fn check(posed: &[Posed], outcomes: &[Outcome], limits: &Limits) -> Result<(), Fault> {
    if outcomes.len() != posed.len() {
        return Err(Fault::Outcomes { expected: posed.len(), got: outcomes.len() });
    }
    posed.iter().zip(outcomes).try_for_each(|(posed, outcome)| check_one(posed.sentence, outcome, limits))
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
    use std::sync::Mutex;

    use corver_core::Section;

    use super::*;

    /// Counts a query's clauses, and keeps what each call asked.
    #[derive(Default)]
    struct Clauses(Vec<Vec<String>>);

    impl Counter for Clauses {
        fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, PartError> {
            self.0.push(queries.iter().map(Query::to_string).collect());
            // The index may answer under a query of its own making; the trace still shows the rule's.
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
        let calls = Mutex::new(Vec::new());
        let mut index = Clauses::default();
        let verdicts = judge(&sentences, &Limits::default(), &mut index, |batch| {
            let mut calls = calls.lock().unwrap();
            calls.push(batch.iter().map(|p| (p.sentence.completion, p.counts().len())).collect::<Vec<_>>());
            // Sentence 1 of completion 1 asks twice, all others are content; the last round revises its neighbour.
            let answer = |posed: &Posed| match (posed.sentence.completion, posed.sentence.index) {
                (1, 1) if posed.counts().len() < 2 => Outcome::Ask(vec![query(["a", "b"][posed.counts().len()])]),
                _ => score(calls.len() as f32),
            };
            Ok::<_, Infallible>(batch.iter().map(answer).collect())
        })
        .unwrap();
        assert_eq!(
            calls.into_inner().unwrap(),
            [vec![(0, 0), (1, 0), (1, 0), (2, 0)], vec![(1, 0), (1, 1)], vec![(1, 0), (1, 2)]]
        );
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
            let answer = |posed: &Posed| match posed.counts().len() {
                0 => Outcome::Ask(vec![query("a"), query("b"), query("a")]),
                3 => Outcome::Ask(vec![query("b"), query("c")]),
                _ => score(posed.counts().filter_map(|count| count.occurrences).sum::<u64>() as f32),
            };
            Ok::<_, Infallible>(batch.iter().map(answer).collect())
        })
        .unwrap();
        assert_eq!(index.0, [vec!["a", "b"], vec!["c"]]);
        assert_eq!(verdicts[1].reward, Some(5.0), "one count for every query");
        assert_eq!(verdicts[1].counts.iter().map(|count| count.query.to_string()).collect::<Vec<_>>(), ["a", "b", "c"]);
    }

    #[test]
    fn large_batches_take_several_calls_of_whole_completions() {
        // 100 completions of 5 sentences, then one that is larger than a call.
        let sentences: Vec<RuleSentence> =
            (0..500).map(|i| sentence(i / 5, i % 5)).chain((0..1000).map(|i| sentence(100, i))).collect();
        let calls = Mutex::new(Vec::new());
        let mut index = Clauses::default();
        let verdicts = judge(&sentences, &Limits::default(), &mut index, |batch| {
            calls.lock().unwrap().push(batch.len());
            let answer = |posed: &Posed| match (posed.sentence.index, posed.counts().next()) {
                (0, None) => Outcome::Ask(vec![query(&posed.sentence.completion.to_string())]),
                (index, _) => score(index as f32),
            };
            Ok::<_, Infallible>(batch.iter().map(answer).collect())
        })
        .unwrap();
        let mut calls = calls.into_inner().unwrap();
        calls.sort_unstable();
        assert_eq!(calls, [260, 260, 1240, 1240], "twice, because every completion asks");
        assert!(verdicts.iter().zip(&sentences).all(|(verdict, s)| verdict.reward == Some(s.index as f32)));
        let queries: Vec<String> = (0..=100).map(|i| i.to_string()).collect();
        assert_eq!(index.0, [queries], "asked in one go, in order");
    }

    #[test]
    fn a_verdict_that_turns_into_an_abstention_is_one() {
        let sentences = [sentence(0, 0), sentence(0, 1)];
        let verdicts = judge(&sentences, &Limits::default(), &mut Clauses::default(), |batch| {
            Ok::<_, Infallible>(match batch[1].counts().len() {
                0 => vec![score(1.0), Outcome::Ask(vec![query("a")])],
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
