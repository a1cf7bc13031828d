use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};

use corver_core::{Count, Counter, Query, Section, Sentence, SentenceVerdict};

use super::*;
use crate::bindings::types;

/// Counts a query's clauses, and records the queries of each request.
#[derive(Default)]
struct Clauses(Vec<Vec<String>>);

impl Counter for Clauses {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        self.0.push(queries.iter().map(Query::to_string).collect());
        let count = |query: &Query| Count::exact(Some(query.all_of.len() as u64));
        Ok(queries.iter().map(count).collect())
    }

    fn info(&self) -> CorpusInfo {
        CorpusInfo { tokens: Some(1_000), documents: None, window: Some(1_000), mode: None }
    }
}

/// A sentence by its completion and its index there; each completion's text is its number.
type Name = (usize, usize);

/// Arguments of a call: each sentence, and its number of counts.
type Seen = Vec<(Name, usize)>;

/// A rule that stores its sentences as the SDK does. `answer` returns the outcome of a sentence
/// with these counts.
struct Script<'a, F> {
    answer: F,
    /// Completions that are scored next: name, number of pending queries, and counts of each
    /// sentence.
    open: Vec<Vec<(Name, usize, Vec<u64>)>>,
    log: &'a Log,
}

#[derive(Default)]
struct Log {
    seen: Mutex<Vec<Seen>>,
    alive: AtomicUsize,
    max_alive: AtomicUsize,
}

impl<F> Drop for Script<'_, F> {
    fn drop(&mut self) {
        self.log.alive.fetch_sub(1, Relaxed);
    }
}

impl<F: Fn(Name, &[u64]) -> Outcome<SentenceVerdict>> Script<'_, F> {
    fn outcomes(&mut self) -> Vec<Vec<Outcome<SentenceVerdict>>> {
        let seen =
            self.open.iter().flatten().map(|(name, _, counts)| (*name, counts.len())).collect();
        self.log.seen.lock().unwrap().push(seen);
        let mut outcomes = Vec::new();
        self.open.retain_mut(|sentences| {
            let scored = sentences.iter_mut().map(|(name, num_pending, counts)| {
                let outcome = (self.answer)(*name, counts);
                *num_pending =
                    if let Outcome::Pending(requests) = &outcome { requests.len() } else { 0 };
                outcome
            });
            outcomes.push(scored.collect());
            sentences.iter().any(|(_, num_pending, _)| *num_pending > 0)
        });
        outcomes
    }
}

impl<F: Fn(Name, &[u64]) -> Outcome<SentenceVerdict> + Send> Session for Script<'_, F> {
    type Decision = SentenceVerdict;

    fn start(
        &mut self,
        completions: &[Completion<'_>],
        info: CorpusInfo,
    ) -> Result<Vec<Vec<Outcome<SentenceVerdict>>>, Failure> {
        assert_eq!(info.tokens, Some(1_000));
        let open = |completion: &Completion<'_>| {
            let number = completion.text.parse().unwrap();
            (0..completion.sentences.len()).map(|index| ((number, index), 0, Vec::new())).collect()
        };
        self.open = completions.iter().map(open).collect();
        Ok(self.outcomes())
    }

    fn resume(
        &mut self,
        answered: &[AnsweredRequest],
    ) -> Result<Vec<Vec<Outcome<SentenceVerdict>>>, Failure> {
        let mut counts = answered.iter().map(|answered| match answered {
            AnsweredRequest::Count(lookup) => lookup.count.occurrences.unwrap(),
            other => panic!("{other:?}"),
        });
        for (_, num_pending, known) in self.open.iter_mut().flatten() {
            known.extend(counts.by_ref().take(*num_pending));
        }
        assert_eq!(counts.len(), 0);
        Ok(self.outcomes())
    }

    fn into_reports(self) -> Vec<String> {
        vec!["last words".into()]
    }
}

/// Runs a rule with these outcomes on completions of these lengths, in sentences. Returns its
/// verdicts and the arguments of its calls.
fn run(
    lengths: &[usize],
    counter: &mut dyn Counter,
    answer: impl Fn(Name, &[u64]) -> Outcome<SentenceVerdict> + Send + Sync,
) -> Result<(Vec<Vec<SentenceVerdict>>, Vec<Seen>), BatchError> {
    let sentence = Sentence {
        text: "Well.".into(),
        section: Section::Think,
        span: None,
        triplets: Vec::new(),
    };
    let sentences = vec![sentence; lengths.iter().copied().max().unwrap_or(0)];
    let texts: Vec<String> = (0..lengths.len()).map(|number| number.to_string()).collect();
    let completion = |(text, &length)| Completion {
        text,
        sentences: &sentences[..length],
        ..Completion::default()
    };
    let completions: Vec<Completion<'_>> =
        texts.iter().map(String::as_str).zip(lengths).map(completion).collect();
    let log = Log::default();
    let start = || {
        log.max_alive.fetch_max(log.alive.fetch_add(1, Relaxed) + 1, Relaxed);
        Ok(Script { answer: &answer, open: Vec::new(), log: &log })
    };
    let permissions =
        Permissions { limits: &Limits::default(), requires: &[], credit: CreditKind::AllTokens };
    let verdicts = run_batch(&completions, permissions, &mut Backends::counting(counter), start)?;
    assert!(log.max_alive.into_inner() <= max_waiting());
    assert!(verdicts.iter().map(Vec::len).eq(lengths.iter().copied()));
    Ok((verdicts, log.seen.into_inner().unwrap()))
}

fn pending(words: &[&str]) -> Outcome<SentenceVerdict> {
    let request = |word: &&str| {
        Request::Count(types::Query { all_of: vec![vec![(*word).into()]], limit: None })
    };
    Outcome::Pending(words.iter().map(request).collect())
}

fn done(reward: f32) -> Outcome<SentenceVerdict> {
    Outcome::Done(SentenceVerdict { reward: Some(reward), ..SentenceVerdict::default() })
}

fn rewards(verdicts: &[Vec<SentenceVerdict>]) -> Vec<Option<f32>> {
    verdicts.iter().flatten().map(|verdict| verdict.reward).collect()
}

fn queries(verdict: &SentenceVerdict) -> Vec<String> {
    verdict.lookups.iter().map(|lookup| lookup.query.to_string()).collect()
}

#[test]
fn unsettled_completions_are_rescored_entirely() {
    let mut counter = Clauses::default();
    // Sentence 1 of completion 1 is pending twice; its neighbour's reward changes with every call.
    let calls = AtomicU32::new(0);
    let (verdicts, seen) = run(&[1, 2, 0, 1], &mut counter, |name, counts| match name {
        (1, 1) if counts.len() < 2 => pending(&[["a", "b"][counts.len()]]),
        (1, 0) => done(calls.fetch_add(1, Relaxed) as f32),
        _ => done(counts.len() as f32),
    })
    .unwrap();
    let [first, second, third] = [0, 1, 2].map(|counts| vec![((1, 0), 0), ((1, 1), counts)]);
    assert_eq!(seen, [[vec![((0, 0), 0)], first, vec![((3, 0), 0)]].concat(), second, third]);
    assert_eq!(rewards(&verdicts), [Some(0.0), Some(2.0), Some(2.0), Some(0.0)]);
    assert_eq!(queries(&verdicts[1][1]), ["a", "b"]);
    assert_eq!(counter.0, [["a"], ["b"]]);
}

#[test]
fn verdict_lists_each_lookup_once_in_order() {
    let mut counter = Clauses::default();
    let (verdicts, _) = run(&[2], &mut counter, |_, counts| match counts.len() {
        0 => pending(&["a", "b", "a"]),
        3 => pending(&["b", "c"]),
        _ => done(counts.iter().sum::<u64>() as f32),
    })
    .unwrap();
    assert_eq!(counter.0, [vec!["a", "b", "a", "a", "b", "a"], vec!["b", "c", "b", "c"]]);
    assert_eq!(rewards(&verdicts), [Some(5.0), Some(5.0)], "one count for every query");
    assert_eq!(queries(&verdicts[0][1]), ["a", "b", "c"]);
}

#[test]
fn large_batches_are_split_between_completions() {
    // 100 completions of 5 sentences, then one that is larger than a call.
    let lengths = [vec![5; 100], vec![1_000]].concat();
    let mut counter = Clauses::default();
    let (verdicts, seen) =
        run(&lengths, &mut counter, |(completion, index), counts| match (index, counts.len()) {
            (0, 0) => pending(&[&completion.to_string()]),
            _ => done(index as f32),
        })
        .unwrap();
    let mut calls: Vec<usize> = seen.iter().map(Vec::len).collect();
    calls.sort_unstable();
    assert_eq!(calls, [260, 260, 1240, 1240], "twice, because every completion is pending once");
    let is_its = |verdicts: &Vec<SentenceVerdict>| {
        (0..).zip(verdicts).all(|(i, verdict)| verdict.reward == Some(i as f32))
    };
    assert!(verdicts.iter().all(is_its));
    let queries: Vec<String> = (0..=100).map(|i| i.to_string()).collect();
    assert_eq!(counter.0, [queries], "in one request, in order");
}

#[test]
fn waiting_instances_are_bounded_for_any_batch() {
    let lengths = vec![1; PART_SENTENCES * (max_waiting() + 3)];
    let mut counter = Clauses::default();
    let (verdicts, seen) = run(&lengths, &mut counter, |_, counts| match counts {
        [] => pending(&["a", "b"]),
        counts => done(counts.len() as f32),
    })
    .unwrap();
    assert!(rewards(&verdicts).iter().all(|reward| *reward == Some(2.0)));
    assert_eq!(seen.len(), 2 * (max_waiting() + 3));
    let batch_sizes: Vec<usize> = counter.0.iter().map(Vec::len).collect();
    let first = PART_SENTENCES * max_waiting();
    assert_eq!(batch_sizes, [2 * first, 2 * (lengths.len() - first)]);
}

#[test]
fn rule_faults_name_sentence_and_completion() {
    let fault = |answer: &(dyn Fn(Name, &[u64]) -> Outcome<SentenceVerdict> + Send + Sync)| {
        // The second call begins with completion 256.
        let lengths = [vec![1; 257], vec![4]].concat();
        match run(&lengths, &mut Clauses::default(), answer) {
            Err(BatchError::Rule(Failure { fault, reports })) => (fault, reports.concat()),
            other => panic!("{other:?}"),
        }
    };
    let words: Vec<String> = (0..30).map(|i| i.to_string()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let at = |wrong: Outcome<SentenceVerdict>| {
        move |name: Name, _: &[u64]| if name == (257, 3) { wrong.clone() } else { done(0.0) }
    };
    let too_much = "made 90 requests about sentence 3 of completion 257; at most 64 are allowed \
                    (limits.requests_per_sentence)";
    assert_eq!(
        fault(&at(pending(&words))),
        (Fault::Limit(too_much.into()), "last words".into()),
        "they add up over the rounds"
    );
    let infinite = "gave sentence 3 of completion 257 the reward inf; it must be finite";
    assert_eq!(fault(&at(done(f32::INFINITY))).0, Fault::Contract(infinite.into()));
    let endless = "still has 1 pending outcomes after 4 rounds of replies (limits.rounds)";
    assert_eq!(fault(&at(pending(&["a"]))), (Fault::Limit(endless.into()), String::new()));
}

#[test]
fn later_abstention_replaces_verdict() {
    let again = AtomicBool::new(false);
    let (verdicts, _) =
        run(&[2], &mut Clauses::default(), |(_, index), counts| match (index, counts) {
            (0, _) if again.swap(true, Relaxed) => Outcome::Done(SentenceVerdict {
                note: Some("on second thoughts".into()),
                ..SentenceVerdict::default()
            }),
            (1, []) => pending(&["a"]),
            _ => done(1.0),
        })
        .unwrap();
    let [first, second] = &verdicts[0][..] else { panic!("{verdicts:?}") };
    assert_eq!((first.reward, first.note.as_deref()), (None, Some("on second thoughts")));
    assert_eq!((second.reward, queries(second)), (Some(1.0), vec!["a".into()]));
}
