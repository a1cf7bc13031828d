//! The completions of a component's batch, from the first call through every `resume`.

use crate::bindings::{Reply, Request};
use crate::{Completion, Corpus, CorpusInfo, Pending};

pub(crate) struct Batch {
    info: CorpusInfo,
    completions: Vec<OpenCompletion>,
    /// Indices of the completions to score next. The others stay in memory: the instance ends with
    /// the batch, which frees them together.
    open: Vec<usize>,
}

/// A completion with the replies of its subjects so far.
struct OpenCompletion {
    completion: Completion,
    /// One per sentence for a sentence rule; a single one for a response rule.
    subjects: Vec<Subject>,
}

#[derive(Default)]
struct Subject {
    /// All replies so far, in the order of the requests.
    replies: Vec<Reply>,
    /// Number of requests without a reply.
    num_pending: usize,
}

impl Batch {
    /// `num_subjects` returns the number of outcomes that a rule gives for a completion.
    pub(crate) fn new(
        completions: Vec<Completion>,
        info: CorpusInfo,
        num_subjects: fn(&Completion) -> usize,
    ) -> Self {
        let open = (0..completions.len()).collect();
        let completions = completions.into_iter().map(|completion| {
            let mut subjects = Vec::new();
            subjects.resize_with(num_subjects(&completion), Subject::default);
            OpenCompletion { completion, subjects }
        });
        Self { info, completions: completions.collect(), open }
    }

    /// Adds the replies to the pending requests, in their order.
    pub(crate) fn reply(&mut self, replies: Vec<Reply>) {
        let mut replies = replies.into_iter();
        for &index in &self.open {
            for subject in &mut self.completions[index].subjects {
                subject.replies.extend(replies.by_ref().take(subject.num_pending));
                subject.num_pending = 0;
            }
        }
    }

    /// Returns the rule's outcome for each subject of each open completion. A completion with a
    /// pending subject stays open.
    pub(crate) fn run<T>(
        &mut self,
        rule: impl for<'a> Fn(&'a Completion, Vec<Corpus<'a>>) -> Vec<Result<T, Pending>>,
    ) -> Vec<Vec<Result<T, Vec<Request>>>> {
        let mut outcomes = Vec::with_capacity(self.open.len());
        for index in std::mem::take(&mut self.open) {
            let completion_outcomes = self.completions[index].run(&rule, self.info);
            if completion_outcomes.iter().any(Result::is_err) {
                self.open.push(index);
            }
            outcomes.push(completion_outcomes);
        }
        outcomes
    }
}

impl OpenCompletion {
    fn run<T>(
        &mut self,
        rule: impl for<'a> Fn(&'a Completion, Vec<Corpus<'a>>) -> Vec<Result<T, Pending>>,
        info: CorpusInfo,
    ) -> Vec<Result<T, Vec<Request>>> {
        let corpora: Vec<Corpus> =
            self.subjects.iter().map(|subject| Corpus::new(info, &subject.replies)).collect();
        let outcomes = rule(&self.completion, corpora);
        assert_eq!(
            outcomes.len(),
            self.subjects.len(),
            "a rule must return one outcome per sentence"
        );
        let mut results = Vec::with_capacity(outcomes.len());
        for (outcome, subject) in outcomes.into_iter().zip(&mut self.subjects) {
            results.push(outcome.map_err(|Pending(requests)| {
                subject.num_pending = requests.len();
                requests
            }));
        }
        results
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;
    use crate::rule::score_completion;
    use crate::testing::completion;
    use crate::{Count, CountMode, Precision, Query};

    const NOWHERE: CorpusInfo =
        CorpusInfo { tokens: None, documents: None, window: None, mode: None };

    /// Sends two requests one after the other for each triplet; the reward is the sum.
    #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
    struct Sum {}

    impl SentenceRule for Sum {
        fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Result<Verdict, Pending> {
            let mut sum = 0;
            for Triplet { head, tail, .. } in &sentence.triplets {
                for word in [head, tail] {
                    sum += corpus.count(Query::all_of([word.as_str()]))?.unwrap_or(0);
                }
            }
            Ok(Verdict::new(sum as f64))
        }
    }

    fn replies(occurrences: &[u64]) -> Vec<Reply> {
        occurrences
            .iter()
            .map(|&n| Reply::Count(Count { occurrences: Some(n), precision: Precision::Exact }))
            .collect()
    }

    fn batch_of(completions: Vec<Completion>) -> Batch {
        Batch::new(completions, NOWHERE, |completion| completion.sentences.len())
    }

    /// Returns the reward or the pending queries of each sentence.
    fn shown(outcomes: Vec<Vec<Result<Verdict, Vec<Request>>>>) -> Vec<Vec<String>> {
        let query = |request| match request {
            Request::Count(query) => query.to_string(),
            other => panic!("{other:?}"),
        };
        let shown = |outcome: Result<Verdict, Vec<Request>>| match outcome {
            Ok(verdict) => verdict.reward.map_or("abstains".into(), |reward| reward.to_string()),
            Err(requests) => requests.into_iter().map(query).collect::<Vec<_>>().join(", "),
        };
        outcomes.into_iter().map(|completion| completion.into_iter().map(shown).collect()).collect()
    }

    #[test]
    fn completion_stays_in_batch_until_settled() {
        let settled = completion(&[("Well.", &[])]);
        let open =
            completion(&[("So.", &[]), ("A is in B.", &[("A", "is in", "B")]), ("Well.", &[])]);
        let mut batch = batch_of(vec![settled, open]);
        assert_eq!(
            shown(batch.run(|one, corpora| score_completion(&Sum {}, one, corpora))),
            [vec!["0"], vec!["0", "A", "0"]]
        );
        batch.reply(replies(&[3]));
        assert_eq!(
            shown(batch.run(|one, corpora| score_completion(&Sum {}, one, corpora))),
            [["0", "B", "0"]]
        );
        batch.reply(replies(&[4]));
        assert_eq!(
            shown(batch.run(|one, corpora| score_completion(&Sum {}, one, corpora))),
            [["0", "7", "0"]]
        );
    }

    #[test]
    fn replies_reach_pending_sentences_in_order() {
        /// Sends all requests together.
        #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
        struct All {}
        impl SentenceRule for All {
            fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Result<Verdict, Pending> {
                let queries =
                    sentence.triplets.iter().map(|triplet| Query::all_of([triplet.head.as_str()]));
                let counts = corpus.count_all(queries)?;
                Ok(Verdict::new(
                    counts.into_iter().flatten().fold(0, |sum, count| 10 * sum + count) as f64,
                ))
            }
        }
        let facts = completion(&[
            ("A, B.", &[("A", "", ""), ("B", "", "")]),
            ("None.", &[]),
            ("C.", &[("C", "", "")]),
        ]);
        let mut batch = batch_of(vec![facts.clone(), facts]);
        assert_eq!(
            shown(batch.run(|one, corpora| score_completion(&All {}, one, corpora))),
            [["A, B", "0", "C"], ["A, B", "0", "C"]]
        );
        batch.reply(replies(&[1, 2, 3, 4, 5, 6]));
        assert_eq!(
            shown(batch.run(|one, corpora| score_completion(&All {}, one, corpora))),
            [["12", "0", "3"], ["45", "0", "6"]]
        );
    }

    #[test]
    fn corpus_is_described_to_the_rule() {
        #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
        struct Described {}
        impl SentenceRule for Described {
            fn score(&self, _: &Sentence, corpus: &Corpus) -> Result<Verdict, Pending> {
                assert_eq!(corpus.mode(), Some(CountMode::Span));
                let known = [corpus.tokens(), corpus.documents(), corpus.window()];
                Ok(Verdict::new(known.into_iter().flatten().sum::<u64>() as f64))
            }
        }
        let score = |tokens, documents, window| {
            let info = CorpusInfo { tokens, documents, window, mode: Some(CountMode::Span) };
            let mut batch =
                Batch::new(vec![completion(&[("Well.", &[])])], info, |one| one.sentences.len());
            shown(batch.run(|one, corpora| score_completion(&Described {}, one, corpora))).concat()
        };
        assert_eq!(
            [
                score(Some(300), Some(7), Some(20)),
                score(Some(300), None, Some(20)),
                score(None, None, None),
            ]
            .concat(),
            ["327", "320", "0"]
        );
    }
}
