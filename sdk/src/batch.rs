//! The completions that a component judges, from the first call over every `resume`.

use crate::bindings::{Reply, Request};
use crate::{Ask, Completion, Corpus, CorpusSize};

pub(crate) struct Batch {
    size: CorpusSize,
    completions: Vec<Progress>,
    /// The completions to judge next. The others stay: the instance ends with the batch, which
    /// frees them at once.
    open: Vec<usize>,
}

/// A completion, and what is known of it.
struct Progress {
    completion: Completion,
    /// Per subject (a sentence, or the completion itself) all replies so far, in the order asked.
    replies: Vec<Vec<Reply>>,
    /// Per subject the number of requests that wait for a reply.
    asked: Vec<usize>,
}

/// What a rule says of one subject, or what it asks.
pub(crate) type Said<J> = Result<J, Vec<Request>>;

impl Batch {
    /// `subjects` says how many a completion has.
    pub(crate) fn new(
        completions: Vec<Completion>,
        size: CorpusSize,
        subjects: fn(&Completion) -> usize,
    ) -> Self {
        let progress = |completion: Completion| {
            let subjects = subjects(&completion);
            Progress { completion, replies: vec![Vec::new(); subjects], asked: vec![0; subjects] }
        };
        let open = (0..completions.len()).collect();
        Self { size, completions: completions.into_iter().map(progress).collect(), open }
    }

    /// Takes the replies to the requests of the last judgements.
    pub(crate) fn reply(&mut self, replies: Vec<Reply>) {
        let mut replies = replies.into_iter();
        for &open in &self.open {
            let Progress { replies: known, asked, .. } = &mut self.completions[open];
            for (subject, num_asked) in known.iter_mut().zip(asked) {
                subject.extend(replies.by_ref().take(std::mem::take(num_asked)));
            }
        }
    }

    /// What the rule says of each subject of each open completion; those in which a subject asks
    /// stay open.
    pub(crate) fn judge<J>(
        &mut self,
        rule: impl Fn(&Completion, &[Corpus]) -> Vec<Result<J, Ask>>,
    ) -> Vec<Vec<Said<J>>> {
        let Self { size, completions, open } = self;
        let mut said = Vec::with_capacity(open.len());
        open.retain(|&completion| {
            let judged = completions[completion].judge(&rule, *size);
            let asks = judged.iter().any(Result::is_err);
            said.push(judged);
            asks
        });
        said
    }
}

impl Progress {
    fn judge<J>(
        &mut self,
        rule: impl Fn(&Completion, &[Corpus]) -> Vec<Result<J, Ask>>,
        size: CorpusSize,
    ) -> Vec<Said<J>> {
        let corpora: Vec<Corpus> =
            self.replies.iter().map(|replies| Corpus::new(size, replies)).collect();
        let said = rule(&self.completion, &corpora);
        assert_eq!(said.len(), corpora.len(), "a rule must give one outcome per sentence");
        let noted = |(outcome, asked): (Result<J, Ask>, &mut usize)| {
            outcome.map_err(|Ask(requests)| {
                *asked = requests.len();
                requests
            })
        };
        said.into_iter().zip(&mut self.asked).map(noted).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;
    use crate::testing::completion;
    use crate::{Count, Judgement, Query};

    const NOWHERE: CorpusSize = CorpusSize { tokens: None, documents: None };

    /// Asks two questions one after the other for each triplet, and pays their sum.
    #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
    struct Sum {}

    impl SentenceRule for Sum {
        fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Outcome {
            let mut sum = 0;
            for Triplet { head, tail, .. } in &sentence.triplets {
                for word in [head, tail] {
                    sum += corpus.count(Query::all_of([word.as_str()]))?.unwrap_or(0);
                }
            }
            verdict(sum as f64)
        }
    }

    fn replies(occurrences: &[u64]) -> Vec<Reply> {
        occurrences
            .iter()
            .map(|&n| Reply::Count(Count { occurrences: Some(n), exact: true }))
            .collect()
    }

    fn of(completions: Vec<Completion>) -> Batch {
        Batch::new(completions, NOWHERE, |completion| completion.sentences.len())
    }

    /// Rewards, and what is asked, of each completion.
    fn shown(outcomes: Vec<Vec<Said<Judgement>>>) -> Vec<Vec<String>> {
        let query = |request| match request {
            Request::Count(query) => query.to_string(),
            other => panic!("{other:?}"),
        };
        let shown = |outcome: Said<Judgement>| match outcome {
            Ok(Judgement::Score(verdict)) => verdict.reward.to_string(),
            Ok(Judgement::Abstain(_)) => "abstains".into(),
            Err(requests) => requests.into_iter().map(query).collect::<Vec<_>>().join(", "),
        };
        outcomes.into_iter().map(|completion| completion.into_iter().map(shown).collect()).collect()
    }

    #[test]
    fn completion_stays_in_batch_until_settled() {
        let settled = completion(&[("Well.", &[])]);
        let open =
            completion(&[("So.", &[]), ("A is in B.", &[("A", "is in", "B")]), ("Well.", &[])]);
        let mut batch = of(vec![settled, open]);
        assert_eq!(
            shown(batch.judge(|one, corpora| Sum {}.judge(one, corpora))),
            [vec!["0"], vec!["0", "A", "0"]]
        );
        batch.reply(replies(&[3]));
        assert_eq!(
            shown(batch.judge(|one, corpora| Sum {}.judge(one, corpora))),
            [["0", "B", "0"]]
        );
        batch.reply(replies(&[4]));
        assert_eq!(
            shown(batch.judge(|one, corpora| Sum {}.judge(one, corpora))),
            [["0", "7", "0"]]
        );
    }

    #[test]
    fn replies_reach_asking_sentences_in_order() {
        /// Asks everything at once.
        #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
        struct All {}
        impl SentenceRule for All {
            fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Outcome {
                let queries =
                    sentence.triplets.iter().map(|triplet| Query::all_of([triplet.head.as_str()]));
                let counts = corpus.count_all(queries)?;
                verdict(counts.into_iter().flatten().fold(0, |sum, count| 10 * sum + count) as f64)
            }
        }
        let facts = completion(&[
            ("A, B.", &[("A", "", ""), ("B", "", "")]),
            ("None.", &[]),
            ("C.", &[("C", "", "")]),
        ]);
        let mut batch = of(vec![facts.clone(), facts]);
        assert_eq!(
            shown(batch.judge(|one, corpora| All {}.judge(one, corpora))),
            [["A, B", "0", "C"], ["A, B", "0", "C"]]
        );
        batch.reply(replies(&[1, 2, 3, 4, 5, 6]));
        assert_eq!(
            shown(batch.judge(|one, corpora| All {}.judge(one, corpora))),
            [["12", "0", "3"], ["45", "0", "6"]]
        );
    }

    #[test]
    fn corpus_exposes_its_size() {
        #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
        struct Size {}
        impl SentenceRule for Size {
            fn score(&self, _: &Sentence, corpus: &Corpus) -> Outcome {
                verdict((corpus.tokens().unwrap_or(0) + corpus.documents().unwrap_or(0)) as f64)
            }
        }
        let score = |tokens, documents| {
            let size = CorpusSize { tokens, documents };
            let mut batch =
                Batch::new(vec![completion(&[("Well.", &[])])], size, |one| one.sentences.len());
            shown(batch.judge(|one, corpora| Size {}.judge(one, corpora))).concat()
        };
        assert_eq!(
            [score(Some(300), Some(7)), score(Some(300), None), score(None, None)].concat(),
            ["307", "300", "0"]
        );
    }
}
