//! A line of a recording.

use std::fmt;

use corver_core::{ChatPrompt, Entailment, Exchange, Lookup, NliPair, Query, Search, Usage};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

/// Longest text that a message quotes, characters.
const SHOWN_CHARS: usize = 200;

/// A request with its reply.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum RecordedLine {
    Count(Lookup),
    Exchange(RecordedExchange),
}

/// A request other than for a count, with its reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedExchange {
    #[serde(flatten)]
    pub(crate) exchange: Exchange,
    /// Tokens of a chat; zero, and omitted, for other kinds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) usage: Usage,
}

fn is_zero(usage: &Usage) -> bool {
    *usage == Usage::default()
}

impl RecordedLine {
    pub(crate) fn exchange(exchange: Exchange) -> Self {
        Self::Exchange(RecordedExchange { exchange, usage: Usage::default() })
    }

    pub(crate) fn parse(text: &[u8]) -> serde_json::Result<Self> {
        // Deriving an untagged enum would lose serde's message about the malformed field.
        #[derive(Deserialize)]
        struct KindField {
            kind: Option<IgnoredAny>,
        }

        let KindField { kind } = serde_json::from_slice(text)?;
        match kind {
            Some(_) => serde_json::from_slice(text).map(Self::Exchange),
            None => serde_json::from_slice(text).map(Self::Count),
        }
    }

    /// Describes a reply that no backend gives; `None` if the reply is possible.
    pub(crate) fn find_problem(&self) -> Option<String> {
        let Self::Exchange(RecordedExchange { exchange, .. }) = self else { return None };
        match exchange {
            Exchange::Nli { answer, .. } => {
                let Entailment { entail, neutral, contradict } = *answer;
                let mut probabilities = [Some(entail), neutral, contradict].into_iter().flatten();
                let invalid = probabilities.find(|share| !(0.0..=1.0).contains(share))?;
                Some(format!("the probability {invalid} is not from 0 to 1"))
            }
            Exchange::Passages { search, found } if found.len() > search.k as usize => {
                Some(format!("a search for k = {} has {} passages", search.k, found.len()))
            }
            Exchange::Passages { .. } | Exchange::Chat { .. } => None,
        }
    }

    /// Returns the request, as messages show it.
    pub(crate) fn request(&self) -> String {
        match self {
            Self::Count(Lookup { query, .. }) => ShownRequest::Query(query).to_string(),
            Self::Exchange(RecordedExchange { exchange, .. }) => match exchange {
                Exchange::Nli { pair, .. } => ShownRequest::Pair(pair).to_string(),
                Exchange::Chat { prompt, .. } => ShownRequest::Prompt(prompt).to_string(),
                Exchange::Passages { search, .. } => ShownRequest::Search(search).to_string(),
            },
        }
    }
}

/// A request as messages show it.
pub(crate) enum ShownRequest<'a> {
    Query(&'a Query),
    Pair(&'a NliPair),
    Prompt(&'a ChatPrompt),
    Search(&'a Search),
}

impl fmt::Display for ShownRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Query(query) => write!(f, "the query {}", quoted(&query.to_string())),
            Self::Pair(NliPair { premise, hypothesis }) => {
                write!(f, "whether {} follows from {}", quoted(hypothesis), quoted(premise))
            }
            Self::Prompt(ChatPrompt { messages, temperature, top_p, max_tokens, seed }) => {
                let last = messages.last().map_or("", |message| &message.content);
                let earlier = messages.len().saturating_sub(1);
                write!(
                    f,
                    "the reply to {} after {earlier} messages (temperature {temperature}, \
                     top_p {top_p}, at most {max_tokens} tokens",
                    quoted(last),
                )?;
                if let Some(seed) = seed {
                    write!(f, ", seed {seed}")?;
                }
                write!(f, ")")
            }
            Self::Search(Search { title, query, k }) => {
                write!(f, "the {k} passages of the search {}", quoted(query))?;
                match title {
                    Some(title) => write!(f, " in {}", quoted(title)),
                    None => Ok(()),
                }
            }
        }
    }
}

fn quoted(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}
