//! The sentences that a component judges, from `score` over every `resume`.

use std::ops::Range;

use crate::{Ask, CompletionRule, Corpus, Count, Judgement, Sentence, bindings};

pub(crate) struct Batch {
    sentences: Vec<Sentence<'static>>,
    /// Per sentence all answers so far, in the order asked.
    counts: Vec<Vec<Count>>,
    /// Per sentence the queries that wait for an answer.
    asked: Vec<usize>,
    /// The completions to judge next.
    open: Vec<Range<usize>>,
}

impl Batch {
    pub(crate) fn new(sentences: Vec<Sentence<'static>>) -> Self {
        let mut end = 0;
        let completions = sentences.chunk_by(|a, b| a.completion == b.completion).map(|completion| {
            let start = end;
            end += completion.len();
            start..end
        });
        let open = completions.collect();
        Self { counts: vec![Vec::new(); sentences.len()], asked: vec![0; sentences.len()], sentences, open }
    }

    /// Takes the answers to the queries of the last outcomes.
    pub(crate) fn answer(&mut self, counts: Vec<Count>) {
        let mut counts = counts.into_iter();
        for sentence in self.open.iter().cloned().flatten() {
            self.counts[sentence].extend(counts.by_ref().take(std::mem::take(&mut self.asked[sentence])));
        }
    }

    /// One outcome per sentence of the open completions; those in which one asks stay open.
    pub(crate) fn judge(&mut self, rule: &impl CompletionRule) -> Vec<bindings::Outcome> {
        let Self { sentences, counts, asked, open } = self;
        let mut outcomes = Vec::with_capacity(sentences.len());
        open.retain(|completion| {
            let corpora: Vec<Corpus> = counts[completion.clone()].iter().map(|counts| Corpus::new(counts)).collect();
            let judged = rule.judge(&sentences[completion.clone()], &corpora);
            assert_eq!(judged.len(), completion.len(), "a rule must give one outcome per sentence");
            let mut asks = false;
            for (sentence, outcome) in completion.clone().zip(judged) {
                outcomes.push(match outcome {
                    Ok(Judgement::Score(verdict)) => bindings::Outcome::Score(verdict),
                    Ok(Judgement::Abstain(why)) => bindings::Outcome::Abstain(why),
                    Err(Ask(queries)) => {
                        asks = true;
                        asked[sentence] = queries.len();
                        bindings::Outcome::Ask(queries.into_iter().map(Into::into).collect())
                    }
                });
            }
            asks
        });
        outcomes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;
    use crate::testing::{completion, sentence};
    use crate::{Section, Triplet};

    /// Asks two questions one after the other for each triplet, and pays their sum.
    #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
    struct Sum {}

    impl SentenceRule for Sum {
        fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Outcome {
            let mut sum = 0;
            for Triplet { head, tail, .. } in &sentence.triplets {
                for word in [head, tail] {
                    sum += corpus.count(WordQuery::new([*word]))?.unwrap_or(0);
                }
            }
            verdict(sum as f64)
        }
    }

    fn counts(occurrences: &[u64]) -> Vec<Count> {
        occurrences.iter().map(|&n| Count { occurrences: Some(n), exact: true }).collect()
    }

    /// Rewards, and what is asked.
    fn shown(outcomes: Vec<bindings::Outcome>) -> Vec<String> {
        let shown = |outcome| match outcome {
            bindings::Outcome::Score(verdict) => verdict.reward.to_string(),
            bindings::Outcome::Abstain(_) => "abstains".into(),
            bindings::Outcome::Ask(queries) => {
                queries.into_iter().map(|query| query.all_of).collect::<Vec<_>>().join(", ")
            }
        };
        outcomes.into_iter().map(shown).collect()
    }

    #[test]
    fn a_completion_stays_as_long_as_a_sentence_of_it_asks() {
        let settled = sentence("Well.", &[]);
        let mut open = completion(&[("So.", &[]), ("A is in B.", &[("A", "is in", "B")]), ("Well.", &[])]);
        open.iter_mut().for_each(|sentence| sentence.completion = 1);
        let mut batch = Batch::new([vec![settled], open].concat());
        assert_eq!(shown(batch.judge(&Sum {})), ["0", "0", "A", "0"]);
        batch.answer(counts(&[3]));
        assert_eq!(shown(batch.judge(&Sum {})), ["0", "B", "0"]);
        batch.answer(counts(&[4]));
        assert_eq!(shown(batch.judge(&Sum {})), ["0", "7", "0"]);
    }

    #[test]
    fn answers_go_to_the_sentences_that_asked_in_order() {
        /// Asks everything at once.
        #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
        struct All {}
        impl SentenceRule for All {
            fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Outcome {
                let queries = sentence.triplets.iter().map(|triplet| WordQuery::new([triplet.head]));
                let counts = corpus.count_all(queries)?;
                verdict(counts.into_iter().flatten().fold(0, |sum, count| 10 * sum + count) as f64)
            }
        }
        let facts = completion(&[("A, B.", &[("A", "", ""), ("B", "", "")]), ("None.", &[]), ("C.", &[("C", "", "")])]);
        let mut batch = Batch::new(facts);
        assert_eq!(shown(batch.judge(&All {})), ["A, B", "0", "C"]);
        batch.answer(counts(&[1, 2, 3]));
        assert_eq!(shown(batch.judge(&All {})), ["12", "0", "3"]);
    }

    #[test]
    fn neighbours_of_one_number_stay_two_completions() {
        let fact = |completion| Sentence {
            completion,
            index: 0,
            text: "",
            section: Section::Body,
            triplets: vec![Triplet { head: "A", relation: "", tail: "B" }],
        };
        let mut between = fact(1);
        between.triplets.clear();
        let mut batch = Batch::new(vec![fact(0), between, fact(0)]);
        assert_eq!(shown(batch.judge(&Sum {})), ["A", "0", "A"]);
        batch.answer(counts(&[1, 5]));
        assert_eq!(shown(batch.judge(&Sum {})), ["B", "B"]);
        batch.answer(counts(&[1, 1]));
        assert_eq!(shown(batch.judge(&Sum {})), ["2", "6"]);
    }
}
