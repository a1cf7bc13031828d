//! Requests of rules and their replies: counts, entailment, a chat model's replies and passages of
//! the corpus.
//!
//! Counts are always granted. Each other [`Capability`] costs a neural model or a search, so a
//! rule's manifest names those that it needs, and the run's configuration grants them.

use std::fmt;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tracing::info_span;

use crate::{BoxError, CorpusInfo, Count, Counter, Query};

/// A kind of request that a run must grant to its rules. Counts need no grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// Natural language inference between two texts.
    Nli,
    /// Replies of a chat model.
    Chat,
    /// Search for passages of the corpus.
    Passages,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Nli => "nli",
            Self::Chat => "chat",
            Self::Passages => "passages",
        })
    }
}

/// Two texts for natural language inference.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NliPair {
    /// Text that is taken as true.
    pub premise: String,
    /// Text that is tested against the premise.
    pub hypothesis: String,
}

/// Probabilities of the relations between a hypothesis and its premise, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Entailment {
    /// Probability that the hypothesis follows from the premise.
    pub entail: f32,
    /// Probability that the premise leaves it open. `None`: the model only reports `entail`, as HHEM
    /// does.
    pub neutral: Option<f32>,
    /// Probability that the premise contradicts it. `None`: the model only reports `entail`.
    pub contradict: Option<f32>,
}

/// Author of a chat message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChatRole {
    /// Instructions for the whole conversation.
    System,
    /// Turn of the user.
    User,
    /// Earlier reply of the model.
    Assistant,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Message {
    /// Author of the message.
    pub role: ChatRole,
    /// Text of the message.
    pub content: String,
}

/// A conversation for a chat model to continue, with its sampling parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChatPrompt {
    /// Messages in order; never empty.
    pub messages: Vec<Message>,
    /// Sampling temperature; 0 is greedy decoding.
    pub temperature: f32,
    /// Nucleus probability mass; 1 samples from all tokens.
    pub top_p: f32,
    /// Longest reply, tokens.
    pub max_tokens: u32,
    /// Part of the prompt's identity: equal prompts with different seeds have replies of their own.
    pub seed: Option<u32>,
}

/// Reply of a chat model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatReply {
    /// Text of the reply; may be empty.
    pub content: String,
    /// Tokens used. Zero if this process reported them with an earlier reply to the same prompt.
    #[serde(default)]
    pub usage: Usage,
}

/// Tokens that a chat model used, by its own count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompts.
    pub prompt_tokens: u64,
    /// Tokens of the replies.
    pub completion_tokens: u64,
}

impl Usage {
    /// Returns the sum. It saturates, because an endpoint may report any number.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            prompt_tokens: self.prompt_tokens.saturating_add(other.prompt_tokens),
            completion_tokens: self.completion_tokens.saturating_add(other.completion_tokens),
        }
    }
}

/// A search for passages of the corpus.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Search {
    /// Title that the documents must have. `None`: all documents are searched.
    pub title: Option<String>,
    /// Search words, ranked by BM25: words that are rare in the corpus weigh more.
    pub query: String,
    /// Most passages to return.
    pub k: u32,
}

/// A piece of a document.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Passage {
    /// Title of the document; empty if it has none.
    pub title: String,
    /// Text of the piece.
    pub text: String,
}

/// A model for natural language inference.
pub trait NliModel: Send {
    /// Returns one entailment per pair, in order. Pairs may repeat.
    ///
    /// # Errors
    /// Fails if the model cannot run.
    fn entail(&mut self, pairs: &[NliPair]) -> Result<Vec<Entailment>, BoxError>;
}

/// A chat model, on this machine or behind an API.
pub trait ChatModel: Send {
    /// Returns one reply per prompt, in order. Prompts may repeat.
    ///
    /// # Errors
    /// Fails if the model does not reply, or its limit of cost is reached.
    fn reply(&mut self, prompts: &[ChatPrompt]) -> Result<Vec<ChatReply>, BoxError>;

    /// Adds the tokens that a resumed run used before, so that a limit of cost covers all of it.
    fn add_prior_usage(&mut self, usage: Usage) {
        let _ = usage;
    }
}

/// A search engine over the passages of the corpus.
pub trait Retriever: Send {
    /// Returns the passages of each search, best first; none if no passage has a word of it.
    ///
    /// # Errors
    /// Fails if the search itself fails, such as by a read error.
    fn passages(&mut self, searches: &[Search]) -> Result<Vec<Vec<Passage>>, BoxError>;
}

/// A request that is not a count, with its reply, as traces and recordings save them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Exchange {
    /// Exchange with the NLI model.
    Nli {
        /// Texts that were compared.
        #[serde(flatten)]
        pair: NliPair,
        /// Probabilities that the model returned.
        #[serde(flatten)]
        answer: Entailment,
    },
    /// Exchange with the chat model.
    Chat {
        /// Messages and sampling parameters.
        #[serde(flatten)]
        prompt: ChatPrompt,
        /// Text of the reply.
        reply: String,
    },
    /// Search in the corpus.
    Passages {
        /// Words and title of the search.
        #[serde(flatten)]
        search: Search,
        /// Passages that were found, best first.
        found: Vec<Passage>,
    },
}

/// Number of requests of one kind, and the time until their replies.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct QueryStats {
    /// Number of requests, repeated ones included.
    pub requests: u64,
    /// Wall-clock time until their replies, seconds.
    pub seconds: f64,
}

/// Requests since the last call of [`Backends::take_stats`], by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BackendStats {
    /// Queries for counts of the corpus.
    pub count: QueryStats,
    /// Pairs of texts for the NLI model.
    pub nli: QueryStats,
    /// Prompts to the chat model.
    pub chat: QueryStats,
    /// Searches for passages of the corpus.
    pub passages: QueryStats,
    /// Tokens of the chats.
    pub usage: Usage,
}

impl BackendStats {
    /// Returns the time until the replies of all kinds, seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.count.seconds + self.nli.seconds + self.chat.seconds + self.passages.seconds
    }
}

/// The backends that answer the requests of rules.
pub struct Backends<'a> {
    counter: Box<dyn Counter + 'a>,
    nli: Option<Box<dyn NliModel + 'a>>,
    chat: Option<Box<dyn ChatModel + 'a>>,
    retriever: Option<Box<dyn Retriever + 'a>>,
    stats: BackendStats,
}

/// Counter of a run without a corpus.
struct NoCorpus;

impl Counter for NoCorpus {
    fn count(&mut self, _: &[Query]) -> Result<Vec<Count>, BoxError> {
        Err("there is no corpus to count in".into())
    }

    fn info(&self) -> CorpusInfo {
        CorpusInfo::default()
    }
}

impl Default for Backends<'_> {
    /// Creates backends that grant nothing: every request is an error.
    fn default() -> Self {
        Self::counting(NoCorpus)
    }
}

impl<'a> Backends<'a> {
    /// Creates backends that grant only counts.
    #[must_use]
    pub fn counting(counter: impl Counter + 'a) -> Self {
        Self {
            counter: Box::new(counter),
            nli: None,
            chat: None,
            retriever: None,
            stats: BackendStats::default(),
        }
    }

    /// Grants [`Capability::Nli`], answered by `model`.
    #[must_use]
    pub fn with_nli(self, model: impl NliModel + 'a) -> Self {
        Self { nli: Some(Box::new(model)), ..self }
    }

    /// Grants [`Capability::Chat`], answered by `model`.
    #[must_use]
    pub fn with_chat(self, model: impl ChatModel + 'a) -> Self {
        Self { chat: Some(Box::new(model)), ..self }
    }

    /// Grants [`Capability::Passages`], answered by `retriever`.
    #[must_use]
    pub fn with_passages(self, retriever: impl Retriever + 'a) -> Self {
        Self { retriever: Some(Box::new(retriever)), ..self }
    }

    /// Returns true if rules may use this capability.
    #[must_use]
    pub fn grants(&self, capability: Capability) -> bool {
        match capability {
            Capability::Nli => self.nli.is_some(),
            Capability::Chat => self.chat.is_some(),
            Capability::Passages => self.retriever.is_some(),
        }
    }

    /// Describes the corpus that the counts come from.
    #[must_use]
    pub fn info(&self) -> CorpusInfo {
        self.counter.info()
    }

    /// Returns one count per query, in order.
    ///
    /// # Errors
    /// Fails if counting fails.
    pub fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        let _span = info_span!("count", queries = queries.len()).entered();
        send("the corpus", queries, &mut self.stats.count, |queries| self.counter.count(queries))
    }

    /// Returns one entailment per pair, in order.
    ///
    /// # Errors
    /// Fails if [`Capability::Nli`] is not granted, or the model fails.
    pub fn entail(&mut self, pairs: &[NliPair]) -> Result<Vec<Entailment>, BoxError> {
        let _span = info_span!("nli", pairs = pairs.len()).entered();
        send("the NLI model", pairs, &mut self.stats.nli, |pairs| {
            granted(&mut self.nli, Capability::Nli)?.entail(pairs)
        })
    }

    /// Returns one reply per prompt, in order.
    ///
    /// # Errors
    /// Fails if [`Capability::Chat`] is not granted, or the model does not reply.
    pub fn reply(&mut self, prompts: &[ChatPrompt]) -> Result<Vec<ChatReply>, BoxError> {
        let _span = info_span!("chat", prompts = prompts.len()).entered();
        let replies = send("the chat model", prompts, &mut self.stats.chat, |prompts| {
            granted(&mut self.chat, Capability::Chat)?.reply(prompts)
        })?;
        for ChatReply { usage, .. } in &replies {
            self.stats.usage = self.stats.usage.plus(*usage);
        }
        Ok(replies)
    }

    /// Returns the passages of each search, best first.
    ///
    /// # Errors
    /// Fails if [`Capability::Passages`] is not granted, or the search fails.
    pub fn passages(&mut self, searches: &[Search]) -> Result<Vec<Vec<Passage>>, BoxError> {
        let _span = info_span!("passages", searches = searches.len()).entered();
        send("the retriever", searches, &mut self.stats.passages, |searches| {
            granted(&mut self.retriever, Capability::Passages)?.passages(searches)
        })
    }

    /// Adds the tokens that a resumed run used before: see [`ChatModel::add_prior_usage`].
    pub fn add_prior_usage(&mut self, usage: Usage) {
        if let Some(model) = &mut self.chat {
            model.add_prior_usage(usage);
        }
    }

    /// Returns the statistics since the last call, and resets them.
    pub fn take_stats(&mut self) -> BackendStats {
        std::mem::take(&mut self.stats)
    }
}

/// Returns the backend of a capability, or an error if the run does not grant it.
fn granted<T>(backend: &mut Option<T>, capability: Capability) -> Result<&mut T, BoxError> {
    backend.as_mut().ok_or_else(|| {
        format!(
            "{capability} is not granted: \
             the configuration's section `backends.{capability}` is not set"
        )
        .into()
    })
}

/// Passes requests to a backend, updates the statistics, and checks that there is one reply per
/// request. `name` is the backend's, for messages.
fn send<Q, A>(
    name: &str,
    requests: &[Q],
    stats: &mut QueryStats,
    handle: impl FnOnce(&[Q]) -> Result<Vec<A>, BoxError>,
) -> Result<Vec<A>, BoxError> {
    if requests.is_empty() {
        return Ok(Vec::new());
    }
    let start = Instant::now();
    let result = handle(requests);
    stats.seconds += start.elapsed().as_secs_f64();
    stats.requests += requests.len() as u64;
    let replies = result?;
    if replies.len() != requests.len() {
        let message =
            format!("{name} returned {} replies to {} requests", replies.len(), requests.len());
        return Err(message.into());
    }
    Ok(replies)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Counter for Nothing {
        fn count(&mut self, _: &[Query]) -> Result<Vec<Count>, BoxError> {
            Ok(Vec::new())
        }

        fn info(&self) -> CorpusInfo {
            CorpusInfo::default()
        }
    }

    /// Replies with the last message; every token is a word.
    struct Echo;

    impl ChatModel for Echo {
        fn reply(&mut self, prompts: &[ChatPrompt]) -> Result<Vec<ChatReply>, BoxError> {
            let reply = |prompt: &ChatPrompt| {
                let content = prompt.messages.last().expect("never empty").content.clone();
                let words = content.split(' ').count() as u64;
                ChatReply {
                    content,
                    usage: Usage { prompt_tokens: words, completion_tokens: 2 * words },
                }
            };
            Ok(prompts.iter().map(reply).collect())
        }
    }

    fn prompt(content: &str) -> ChatPrompt {
        let messages = vec![Message { role: ChatRole::User, content: content.to_owned() }];
        ChatPrompt { messages, temperature: 0.0, top_p: 1.0, max_tokens: 16, seed: None }
    }

    #[test]
    fn requests_are_counted_by_kind() {
        let mut backends = Backends::counting(Nothing).with_chat(Echo);
        let replies = backends.reply(&[prompt("one two"), prompt("three")]).unwrap();
        assert_eq!(replies[1].content, "three");
        let stats = backends.take_stats();
        assert_eq!((stats.chat.requests, stats.nli.requests, stats.count.requests), (2, 0, 0));
        assert_eq!(stats.usage, Usage { prompt_tokens: 3, completion_tokens: 6 });
        assert_eq!(backends.take_stats(), BackendStats::default());
    }

    #[test]
    fn ungranted_capability_is_rejected() {
        let mut backends = Backends::counting(Nothing).with_chat(Echo);
        let granted = [Capability::Nli, Capability::Chat, Capability::Passages]
            .map(|capability| backends.grants(capability));
        assert_eq!(granted, [false, true, false]);
        let pair = NliPair { premise: "a".into(), hypothesis: "b".into() };
        assert_eq!(
            backends.entail(&[pair]).unwrap_err().to_string(),
            "nli is not granted: the configuration's section `backends.nli` is not set"
        );
    }

    #[test]
    fn empty_capability_request_needs_no_grant() {
        let mut backends = Backends::counting(Nothing);
        assert!(
            backends.entail(&[]).is_ok()
                && backends.reply(&[]).is_ok()
                && backends.passages(&[]).is_ok()
        );
    }

    #[test]
    fn missing_count_answer_is_rejected() {
        let error =
            Backends::counting(Nothing).count(&[Query::new([["Rome"]])]).unwrap_err().to_string();
        assert_eq!(error, "the corpus returned 0 replies to 1 requests");
    }

    #[test]
    fn exchange_serialises_as_flat_json_record() {
        let pair = NliPair { premise: "a".into(), hypothesis: "b".into() };
        let answer = Entailment { entail: 0.5, neutral: None, contradict: None };
        let exchange = Exchange::Nli { pair, answer };
        let json = r#"{"kind":"nli","premise":"a","hypothesis":"b","entail":0.5,"neutral":null,"contradict":null}"#;
        assert_eq!(serde_json::to_string(&exchange).unwrap(), json);
        assert_eq!(serde_json::from_str::<Exchange>(json).unwrap(), exchange);
    }
}
