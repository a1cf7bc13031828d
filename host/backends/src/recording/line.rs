//! A line of a recording.

use std::fmt;

use corver_core::{ChatPrompt, Exchange, Lookup, NliPair, Query, Search, Usage};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

/// So much of a question is shown in a message.
const SHOWN_CHARS: usize = 200;

/// A question with its answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Line {
    Count(Lookup),
    Exchange(Exchanged),
}

/// Of another kind than counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Exchanged {
    #[serde(flatten)]
    pub(crate) exchange: Exchange,
    /// What a chat took.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub(crate) usage: Usage,
}

fn is_nothing(usage: &Usage) -> bool {
    *usage == Usage::default()
}

impl Line {
    pub(crate) fn exchange(exchange: Exchange) -> Self {
        Self::Exchange(Exchanged { exchange, usage: Usage::default() })
    }

    pub(crate) fn parse(text: &[u8]) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Kind {
            kind: Option<IgnoredAny>,
        }

        let Kind { kind } = serde_json::from_slice(text)?;
        match kind {
            Some(_) => serde_json::from_slice(text).map(Self::Exchange),
            None => serde_json::from_slice(text).map(Self::Count),
        }
    }

    /// What was asked, for messages.
    pub(crate) fn question(&self) -> String {
        match self {
            Self::Count(Lookup { query, .. }) => Asked::Query(query).to_string(),
            Self::Exchange(Exchanged { exchange, .. }) => match exchange {
                Exchange::Nli { pair, .. } => Asked::Pair(pair).to_string(),
                Exchange::Chat { prompt, .. } => Asked::Prompt(prompt).to_string(),
                Exchange::Passages { search, .. } => Asked::Search(search).to_string(),
            },
        }
    }
}

/// A question as messages show it.
pub(crate) enum Asked<'a> {
    Query(&'a Query),
    Pair(&'a NliPair),
    Prompt(&'a ChatPrompt),
    Search(&'a Search),
}

impl fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |text: &str| match text.char_indices().nth(SHOWN_CHARS) {
            Some((end, _)) => format!("{:?}…", &text[..end]),
            None => format!("{text:?}"),
        };
        match self {
            Self::Query(query) => write!(f, "the query {:?}", query.to_string()),
            Self::Pair(NliPair { premise, hypothesis }) => {
                write!(f, "whether {} follows from {}", quoted(hypothesis), quoted(premise))
            }
            Self::Prompt(ChatPrompt { messages, temperature, top_p, max_tokens, seed }) => {
                let last = messages.last().map_or("", |message| &message.content);
                let seed = seed.map(|seed| format!(", seed {seed}")).unwrap_or_default();
                let how = format!(
                    "temperature {temperature}, top_p {top_p}, at most {max_tokens} tokens{seed}"
                );
                write!(
                    f,
                    "the reply to {} after {} messages ({how})",
                    quoted(last),
                    messages.len().saturating_sub(1)
                )
            }
            Self::Search(Search { title, query, k }) => {
                let title = title
                    .as_deref()
                    .map(|title| format!(" in {}", quoted(title)))
                    .unwrap_or_default();
                write!(f, "the {k} passages of the search {}{title}", quoted(query))
            }
        }
    }
}
