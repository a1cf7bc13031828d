//! Recorded replies by request.

use std::collections::HashMap;
use std::hash::Hash;

use corver_core::{
    ChatPrompt, ChatReply, Count, Entailment, Exchange, Lookup, NliPair, Passage, Query, Search,
};

use crate::recording::line::{RecordedExchange, RecordedLine};

/// The replies of a recording, one per request.
#[derive(Debug, Default)]
pub(crate) struct RecordedReplies {
    pub(crate) counts: HashMap<Query, Count>,
    pub(crate) entailments: HashMap<NliPair, Entailment>,
    /// Chat replies by the [`key`] of their prompt.
    pub(crate) chats: HashMap<String, ChatReply>,
    pub(crate) passages: HashMap<Search, Vec<Passage>>,
}

/// The effect of adding a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Added {
    New,
    Same,
    /// The request has another reply, which stays.
    Different,
}

impl RecordedReplies {
    pub(crate) fn add(&mut self, line: &RecordedLine) -> Added {
        match line.clone() {
            RecordedLine::Count(Lookup { query, count }) => {
                add(&mut self.counts, without_limit(&query), count, PartialEq::eq)
            }
            RecordedLine::Exchange(RecordedExchange { exchange, usage }) => match exchange {
                Exchange::Nli { pair, answer } => {
                    add(&mut self.entailments, pair, answer, PartialEq::eq)
                }
                Exchange::Chat { prompt, reply } => {
                    let reply = ChatReply { content: reply, usage };
                    // Only the first of equal replies has a usage, so it is not compared.
                    add(&mut self.chats, key(&prompt), reply, |one, other| {
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

fn add<Request: Hash + Eq, Reply>(
    replies: &mut HashMap<Request, Reply>,
    request: Request,
    reply: Reply,
    is_same: fn(&Reply, &Reply) -> bool,
) -> Added {
    match replies.get(&request) {
        Some(recorded) if is_same(recorded, &reply) => Added::Same,
        Some(_) => Added::Different,
        None => {
            replies.insert(request, reply);
            Added::New
        }
    }
}

/// Returns the query without a limit. A recorded count is complete, so that it serves every limit.
pub(crate) fn without_limit(query: &Query) -> Query {
    query.clone().with_limit(None)
}

/// Returns the JSON of a prompt as its key: floating-point parameters cannot be hashed.
pub(crate) fn key(prompt: &ChatPrompt) -> String {
    serde_json::to_string(prompt).expect("texts and numbers are JSON")
}
