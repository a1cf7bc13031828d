//! The completions that a component judges, from `score` over every `resume`.

use crate::bindings::{self, Reply, Request};
use crate::{Ask, Completion, CompletionRule, Corpus, CorpusSize, Count, Judgement};

pub(crate) struct Batch {
    size: CorpusSize,
    completions: Vec<Progress>,
    /// The completions to judge next. The others stay: the instance ends with the batch, which frees them at once.
    open: Vec<usize>,
}

/// A completion, and what is known of it.
struct Progress {
    completion: Completion,
    /// Per sentence all counts so far, in the order asked.
    counts: Vec<Vec<Count>>,
    /// Per sentence the number of queries that wait for a reply.
    asked: Vec<usize>,
}

impl Batch {
    pub(crate) fn new(completions: Vec<Completion>, size: CorpusSize) -> Self {
        let progress = |completion: Completion| {
            let sentences = completion.sentences.len();
            Progress { completion, counts: vec![Vec::new(); sentences], asked: vec![0; sentences] }
        };
        let open = (0..completions.len()).collect();
        Self { size, completions: completions.into_iter().map(progress).collect(), open }
    }

    /// Takes the replies to the requests of the last outcomes.
    pub(crate) fn reply(&mut self, replies: Vec<Reply>) {
        let mut counts = replies.into_iter().map(|Reply::Count(count)| count);
        for &open in &self.open {
            let Progress { counts: known, asked, .. } = &mut self.completions[open];
            for (known, asked) in known.iter_mut().zip(asked) {
                known.extend(counts.by_ref().take(std::mem::take(asked)));
            }
        }
    }

    /// One outcome per sentence of each open completion; those in which a sentence asks stay open.
    pub(crate) fn judge(&mut self, rule: &impl CompletionRule) -> Vec<Vec<bindings::Outcome>> {
        let Self { size, completions, open } = self;
        let mut outcomes = Vec::with_capacity(open.len());
        open.retain(|&completion| {
            let judged = completions[completion].judge(rule, *size);
            let asks = judged.iter().any(|outcome| matches!(outcome, bindings::Outcome::Ask(_)));
            outcomes.push(judged);
            asks
        });
        outcomes
    }
}

impl Progress {
    fn judge(&mut self, rule: &impl CompletionRule, size: CorpusSize) -> Vec<bindings::Outcome> {
        let corpora: Vec<Corpus> = self.counts.iter().map(|counts| Corpus::new(size, counts)).collect();
        let outcomes = rule.judge(&self.completion, &corpora);
        assert_eq!(outcomes.len(), corpora.len(), "a rule must give one outcome per sentence");
        let written = |(outcome, asked): (crate::Outcome, &mut usize)| match outcome {
            Ok(Judgement::Score(verdict)) => bindings::Outcome::Score(verdict),
            Ok(Judgement::Abstain(why)) => bindings::Outcome::Abstain(why),
            Err(Ask(queries)) => {
                *asked = queries.len();
                bindings::Outcome::Ask(queries.into_iter().map(Request::Count).collect())
            }
        };
        outcomes.into_iter().zip(&mut self.asked).map(written).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;
    use crate::testing::completion;

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
        occurrences.iter().map(|&n| Reply::Count(Count { occurrences: Some(n), exact: true })).collect()
    }

    /// Rewards, and what is asked, of each completion.
    fn shown(outcomes: Vec<Vec<bindings::Outcome>>) -> Vec<Vec<String>> {
        let shown = |outcome| match outcome {
            bindings::Outcome::Score(verdict) => verdict.reward.to_string(),
            bindings::Outcome::Abstain(_) => "abstains".into(),
            bindings::Outcome::Ask(requests) => {
                let query = |Request::Count(query)| query.to_string();
                requests.into_iter().map(query).collect::<Vec<_>>().join(", ")
            }
        };
        outcomes.into_iter().map(|completion| completion.into_iter().map(shown).collect()).collect()
    }

    #[test]
    fn a_completion_stays_as_long_as_a_sentence_of_it_asks() {
        let settled = completion(&[("Well.", &[])]);
        let open = completion(&[("So.", &[]), ("A is in B.", &[("A", "is in", "B")]), ("Well.", &[])]);
        let mut batch = Batch::new(vec![settled, open], NOWHERE);
        assert_eq!(shown(batch.judge(&Sum {})), [vec!["0"], vec!["0", "A", "0"]]);
        batch.reply(replies(&[3]));
        assert_eq!(shown(batch.judge(&Sum {})), [["0", "B", "0"]]);
        batch.reply(replies(&[4]));
        assert_eq!(shown(batch.judge(&Sum {})), [["0", "7", "0"]]);
    }

    #[test]
    fn replies_go_to_the_sentences_that_asked_in_order() {
        /// Asks everything at once.
        #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
        struct All {}
        impl SentenceRule for All {
            fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Outcome {
                let queries = sentence.triplets.iter().map(|triplet| Query::all_of([triplet.head.as_str()]));
                let counts = corpus.count_all(queries)?;
                verdict(counts.into_iter().flatten().fold(0, |sum, count| 10 * sum + count) as f64)
            }
        }
        let facts = completion(&[("A, B.", &[("A", "", ""), ("B", "", "")]), ("None.", &[]), ("C.", &[("C", "", "")])]);
        let mut batch = Batch::new(vec![facts.clone(), facts], NOWHERE);
        assert_eq!(shown(batch.judge(&All {})), [["A, B", "0", "C"], ["A, B", "0", "C"]]);
        batch.reply(replies(&[1, 2, 3, 4, 5, 6]));
        assert_eq!(shown(batch.judge(&All {})), [["12", "0", "3"], ["45", "0", "6"]]);
    }

    #[test]
    fn the_corpus_tells_its_size() {
        #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
        struct Size {}
        impl SentenceRule for Size {
            fn score(&self, _: &Sentence, corpus: &Corpus) -> Outcome {
                verdict((corpus.tokens().unwrap_or(0) + corpus.documents().unwrap_or(0)) as f64)
            }
        }
        let score = |tokens, documents| {
            let size = CorpusSize { tokens, documents };
            shown(Batch::new(vec![completion(&[("Well.", &[])])], size).judge(&Size {})).concat()
        };
        assert_eq!(
            [score(Some(300), Some(7)), score(Some(300), None), score(None, None)].concat(),
            ["307", "300", "0"]
        );
    }
}
