//! Questions with their answers.

use std::collections::HashMap;

use corver_core::{
    ChatPrompt, ChatReply, Count, Entailment, Exchange, Lookup, NliPair, Passage, Query, Search,
};

use crate::recording::line::{Exchanged, Line};

/// What a recording holds, each question once.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) counts: HashMap<Query, Count>,
    pub(crate) entailments: HashMap<NliPair, Entailment>,
    /// By [`key`].
    pub(crate) replies: HashMap<String, ChatReply>,
    pub(crate) passages: HashMap<Search, Vec<Passage>>,
}

/// What a line adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Added {
    New,
    Same,
    /// The question has another answer, which stays.
    Different,
}

impl Answers {
    pub(crate) fn add(&mut self, line: &Line) -> Added {
        match line.clone() {
            Line::Count(Lookup { query, count }) => {
                add(&mut self.counts, in_full(&query), count, PartialEq::eq)
            }
            Line::Exchange(Exchanged { exchange, usage }) => match exchange {
                Exchange::Nli { pair, answer } => {
                    add(&mut self.entailments, pair, answer, PartialEq::eq)
                }
                Exchange::Chat { prompt, reply } => {
                    let reply = ChatReply { content: reply, usage };
                    // What a reply took is told with the first one alone.
                    add(&mut self.replies, key(&prompt), reply, |one, other| {
                        one.content == other.content
                    })
                }
                Exchange::Passages { search, found } => {
                    add(&mut self.passages, search, found, PartialEq::eq)
                }
            },
        }
    }
}

fn add<Q: std::hash::Hash + Eq, A>(
    known: &mut HashMap<Q, A>,
    question: Q,
    answer: A,
    same: fn(&A, &A) -> bool,
) -> Added {
    match known.get(&question) {
        Some(before) if same(before, &answer) => Added::Same,
        Some(_) => Added::Different,
        None => {
            known.insert(question, answer);
            Added::New
        }
    }
}

/// A recording holds whole counts: they serve whatever is enough.
pub(crate) fn in_full(query: &Query) -> Query {
    query.clone().with_limit(None)
}

/// A prompt has numbers that cannot be hashed: its JSON stands for it.
pub(crate) fn key(prompt: &ChatPrompt) -> String {
    serde_json::to_string(prompt).expect("texts and numbers are JSON")
}
