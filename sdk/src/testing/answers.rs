//! Answers given by hand.

use std::collections::BTreeMap;

use crate::{CorpusSize, Count, Entailment, Pair, Passage, Prompt, Query, Reply, Request, Search};

/// A corpus in which exactly these queries can be asked, each written as it prints: `"Paris AND
/// Peru"`.
#[must_use]
pub fn counts(known: &[(&str, u64)]) -> FakeCorpus {
    let counts = known.iter().map(|&(query, count)| (query.to_owned(), Some(count))).collect();
    FakeCorpus { counts, ..FakeCorpus::default() }
}

/// See [`counts`]. What is not told is not known: a rule that asks it fails its test.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FakeCorpus {
    counts: BTreeMap<String, Option<u64>>,
    /// By premise and hypothesis.
    entailments: BTreeMap<(String, String), f32>,
    /// What a prompt's last message holds, and the reply.
    replies: Vec<(String, String)>,
    /// By title and query.
    passages: BTreeMap<(Option<String>, String), Vec<Passage>>,
    tokens: Option<u64>,
    documents: Option<u64>,
}

impl FakeCorpus {
    /// Adds a query that the corpus cannot answer.
    #[must_use]
    pub fn without(mut self, query: &str) -> Self {
        self.counts.insert(query.to_owned(), None);
        self
    }

    /// A corpus of so many tokens and documents; without this, both are unknown.
    #[must_use]
    pub fn of_size(mut self, tokens: u64, documents: u64) -> Self {
        (self.tokens, self.documents) = (Some(tokens), Some(documents));
        self
    }

    /// `hypothesis` follows from `premise` with this probability.
    #[must_use]
    pub fn entails(mut self, premise: &str, hypothesis: &str, probability: f32) -> Self {
        self.entailments.insert((premise.to_owned(), hypothesis.to_owned()), probability);
        self
    }

    /// A prompt whose last message holds `part` is replied to like this. What was told first
    /// decides.
    #[must_use]
    pub fn replies(mut self, part: &str, reply: &str) -> Self {
        self.replies.push((part.to_owned(), reply.to_owned()));
        self
    }

    /// A search finds these texts, best first, all of documents with this title, or of any without
    /// one.
    #[must_use]
    pub fn finds(mut self, title: Option<&str>, query: &str, texts: &[&str]) -> Self {
        let passage = |text: &&str| Passage {
            title: title.unwrap_or_default().to_owned(),
            text: (*text).to_owned(),
        };
        self.passages.insert(
            (title.map(str::to_owned), query.to_owned()),
            texts.iter().map(passage).collect(),
        );
        self
    }

    pub(super) fn size(&self) -> CorpusSize {
        CorpusSize { tokens: self.tokens, documents: self.documents }
    }

    pub(super) fn answer(&self, request: &Request) -> Reply {
        let answered = match request {
            Request::Count(query) => self.count(query).map(Reply::Count),
            Request::Nli(pair) => self.entailment(pair).map(Reply::Nli),
            Request::Chat(prompt) => self.reply(prompt).map(Reply::Chat),
            Request::Passages(search) => self.found(search).map(Reply::Passages),
        };
        answered.unwrap_or_else(|| {
            panic!(
                "the rule asked for {:?}, which the test's corpus does not hold: {self:#?}",
                request.to_string()
            )
        })
    }

    fn count(&self, query: &Query) -> Option<Count> {
        Some(Count { occurrences: *self.counts.get(&query.to_string())?, exact: true })
    }

    fn entailment(&self, Pair { premise, hypothesis }: &Pair) -> Option<Entailment> {
        let entail = *self.entailments.get(&(premise.clone(), hypothesis.clone()))?;
        Some(Entailment { entail, neutral: None, contradict: None })
    }

    fn reply(&self, prompt: &Prompt) -> Option<String> {
        let last = &prompt.messages.last()?.content;
        self.replies.iter().find(|(part, _)| last.contains(part)).map(|(_, reply)| reply.clone())
    }

    fn found(&self, Search { title, query, k }: &Search) -> Option<Vec<Passage>> {
        let found = self.passages.get(&(title.clone(), query.clone()))?;
        Some(found.iter().take(*k as usize).cloned().collect())
    }
}
