//! A corpus with given counts and replies.

use std::collections::BTreeMap;

use crate::{
    ChatPrompt, CorpusInfo, Count, CountMode, Entailment, NliPair, Passage, Precision, Query,
    Reply, Request, Search,
};

/// Returns a corpus with these counts. A query is written as it prints: `"Paris AND Peru"`.
#[must_use]
pub fn counts(known: &[(&str, u64)]) -> FakeCorpus {
    let counts = known.iter().map(|&(query, count)| (query.to_owned(), Some(count))).collect();
    FakeCorpus { counts, ..FakeCorpus::default() }
}

/// A corpus that has the given replies only: a rule that requests another one fails its test.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FakeCorpus {
    counts: BTreeMap<String, Option<u64>>,
    /// Probability by premise and hypothesis.
    entailments: BTreeMap<(String, String), f32>,
    /// A part of the prompt's last message, and the reply.
    replies: Vec<(String, String)>,
    /// Passages by title and query.
    passages: BTreeMap<(Option<String>, String), Vec<Passage>>,
    tokens: Option<u64>,
    documents: Option<u64>,
    window: Option<u64>,
    mode: Option<CountMode>,
}

impl FakeCorpus {
    /// Adds a query without a count.
    #[must_use]
    pub fn without(mut self, query: &str) -> Self {
        self.counts.insert(query.to_owned(), None);
        self
    }

    /// Sets the size of the corpus, which is unknown otherwise.
    #[must_use]
    pub fn of_size(mut self, tokens: u64, documents: u64) -> Self {
        (self.tokens, self.documents) = (Some(tokens), Some(documents));
        self
    }

    /// Sets the greatest distance between the clauses of a match, tokens. It is unknown otherwise.
    #[must_use]
    pub fn of_window(mut self, tokens: u64) -> Self {
        self.window = Some(tokens);
        self
    }

    /// Sets the definition of a match. It is unknown otherwise.
    #[must_use]
    pub fn of_mode(mut self, mode: CountMode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Adds the probability that `hypothesis` follows from `premise`.
    #[must_use]
    pub fn entails(mut self, premise: &str, hypothesis: &str, probability: f32) -> Self {
        self.entailments.insert((premise.to_owned(), hypothesis.to_owned()), probability);
        self
    }

    /// Adds the reply to prompts whose last message contains `part`. The first match decides.
    #[must_use]
    pub fn replies(mut self, part: &str, reply: &str) -> Self {
        self.replies.push((part.to_owned(), reply.to_owned()));
        self
    }

    /// Adds the passages that a search returns, best first, from documents with this title or, with
    /// `None`, from all.
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

    pub(super) fn info(&self) -> CorpusInfo {
        let &Self { tokens, documents, window, mode, .. } = self;
        CorpusInfo { tokens, documents, window, mode }
    }

    pub(super) fn reply_to(&self, request: &Request) -> Reply {
        let reply = match request {
            Request::Count(query) => self.count(query).map(Reply::Count),
            Request::Nli(pair) => self.entailment(pair).map(Reply::Nli),
            Request::Chat(prompt) => self.reply(prompt).map(Reply::Chat),
            Request::Passages(search) => self.passages(search).map(Reply::Passages),
        };
        reply.unwrap_or_else(|| {
            panic!(
                "the rule requests {:?}, which the test's corpus does not have: {self:#?}",
                request.to_string()
            )
        })
    }

    fn count(&self, query: &Query) -> Option<Count> {
        Some(Count {
            occurrences: *self.counts.get(&query.to_string())?,
            precision: Precision::Exact,
        })
    }

    fn entailment(&self, NliPair { premise, hypothesis }: &NliPair) -> Option<Entailment> {
        let entail = *self.entailments.get(&(premise.clone(), hypothesis.clone()))?;
        Some(Entailment { entail, neutral: None, contradict: None })
    }

    fn reply(&self, prompt: &ChatPrompt) -> Option<String> {
        let last = &prompt.messages.last()?.content;
        self.replies.iter().find(|(part, _)| last.contains(part)).map(|(_, reply)| reply.clone())
    }

    fn passages(&self, Search { title, query, k }: &Search) -> Option<Vec<Passage>> {
        let passages = self.passages.get(&(title.clone(), query.clone()))?;
        Some(passages.iter().take(*k as usize).cloned().collect())
    }
}
