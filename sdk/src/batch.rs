//! The sentences that a component judges, from `score` over every `resume`.

use std::ops::Range;

use crate::bindings::Outcome;
use crate::{Ask, CompletionRule, Corpus, Count, Judgement, Sentence};

pub(crate) struct Batch {
    sentences: Vec<Sentence>,
    /// Per sentence all answers so far, in the order asked.
    counts: Vec<Vec<Count>>,
    /// Per sentence the queries that wait for an answer.
    asked: Vec<usize>,
    /// The completions to judge next.
    open: Vec<Range<usize>>,
}

impl Batch {
    pub(crate) fn new(sentences: Vec<Sentence>) -> Self {
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
    pub(crate) fn judge(&mut self, rule: &impl CompletionRule) -> Vec<Outcome> {
        let Self { sentences, counts, asked, open } = self;
        let mut outcomes = Vec::with_capacity(sentences.len());
        open.retain(|completion| {
            let corpora: Vec<Corpus> = counts[completion.clone()].iter().map(|counts| Corpus::new(counts)).collect();
            let judged = rule.judge(&sentences[completion.clone()], &corpora);
            assert_eq!(judged.len(), completion.len(), "a rule must give one outcome per sentence");
            let mut asks = false;
            for (sentence, outcome) in completion.clone().zip(judged) {
                outcomes.push(match outcome {
                    Ok(Judgement::Score(verdict)) => Outcome::Score(verdict),
                    Ok(Judgement::Abstain(why)) => Outcome::Abstain(why),
                    Err(Ask(queries)) => {
                        asks = true;
                        asked[sentence] = queries.len();
                        Outcome::Ask(queries)
                    }
                });
            }
            asks
        });
        outcomes
    }
}
