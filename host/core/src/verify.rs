//! What a rule may ask beside counts, and who answers: another text's entailment, a chat model's
//! reply, passages of the corpus.
//!
//! Counts are always granted. The others cost a neural model or a search each, so a rule's manifest
//! names them and the run's configuration grants them.

use std::fmt;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tracing::info_span;

use crate::{BoxError, CorpusSize, Count, Counter, Query};

/// What a rule may ask beside counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// Does one text follow from another?
    Nli,
    /// What does a chat model reply?
    Chat,
    /// Which passages of the corpus fit best?
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
    /// What is taken for true.
    pub premise: String,
    /// What may follow from it.
    pub hypothesis: String,
}

/// Probabilities of what a hypothesis is to its premise, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Entailment {
    /// It follows.
    pub entail: f32,
    /// It may be true or false. `None` where the model knows only whether it follows (HHEM).
    pub neutral: Option<f32>,
    /// It is false. `None` as above.
    pub contradict: Option<f32>,
}

/// Who says a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChatRole {
    /// Says how to behave.
    System,
    /// Asks.
    User,
    /// Replied before.
    Assistant,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Message {
    /// Who says it.
    pub role: ChatRole,
    /// What is said.
    pub content: String,
}

/// A conversation to be continued, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChatPrompt {
    /// In order; never empty.
    pub messages: Vec<Message>,
    /// 0: the most probable reply.
    pub temperature: f32,
    /// Nucleus mass; 1 keeps every token.
    pub top_p: f32,
    /// Longest reply, tokens.
    pub max_tokens: u32,
    /// Equal prompts with different seeds are asked anew.
    pub seed: Option<u32>,
}

/// What a chat model replied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatReply {
    /// Its words; may be empty.
    pub content: String,
    /// What it took; nothing where this process told it before.
    #[serde(default)]
    pub usage: Usage,
}

/// Tokens, as the model that was asked counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Of prompts.
    pub prompt_tokens: u64,
    /// Of replies.
    pub completion_tokens: u64,
}

/// A search in the corpus.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Search {
    /// In documents of this title alone.
    pub title: Option<String>,
    /// Words; the rarer ones in the corpus weigh more (BM25).
    pub query: String,
    /// Passages wanted, at most.
    pub k: u32,
}

/// A piece of a document.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Passage {
    /// The document's; empty where it has none.
    pub title: String,
    /// Its words.
    pub text: String,
}

/// A model for natural language inference.
pub trait NliModel: Send {
    /// One answer per pair, in order. Pairs may repeat.
    ///
    /// # Errors
    /// Where the model cannot run.
    fn entail(&mut self, pairs: &[NliPair]) -> Result<Vec<Entailment>, BoxError>;
}

/// A chat model.
pub trait ChatModel: Send {
    /// One reply per prompt, in order. Prompts may repeat.
    ///
    /// # Errors
    /// Where the model does not reply, or the money for it is spent.
    fn reply(&mut self, prompts: &[ChatPrompt]) -> Result<Vec<ChatReply>, BoxError>;

    /// Told what the run took before this process went on with it: a model with a ceiling of cost
    /// counts it.
    fn add_prior_usage(&mut self, usage: Usage) {
        let _ = usage;
    }
}

/// Finds passages of the corpus.
pub trait Retriever: Send {
    /// The passages of each search, best first; none where nothing fits.
    ///
    /// # Errors
    /// Where the search itself fails.
    fn passages(&mut self, searches: &[Search]) -> Result<Vec<Vec<Passage>>, BoxError>;
}

/// What was asked beside counts, and the answer, as traces keep them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Exchange {
    /// Of the NLI model.
    Nli {
        /// What was asked.
        #[serde(flatten)]
        pair: NliPair,
        /// What was answered.
        #[serde(flatten)]
        answer: Entailment,
    },
    /// Of the chat model.
    Chat {
        /// What was asked.
        #[serde(flatten)]
        prompt: ChatPrompt,
        /// What was replied.
        reply: String,
    },
    /// Of the corpus.
    Passages {
        /// What was searched.
        #[serde(flatten)]
        search: Search,
        /// What was found.
        found: Vec<Passage>,
    },
}

/// How much was asked of one kind, and what it took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct QueryStats {
    /// Questions, repeated ones included.
    pub asked: u64,
    /// Wall-clock seconds until they were answered.
    pub seconds: f64,
}

/// What was asked since [`Backends::take_stats`] was called last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct BackendStats {
    /// Counts.
    pub count: QueryStats,
    /// Pairs of texts.
    pub nli: QueryStats,
    /// Chats.
    pub chat: QueryStats,
    /// Searches.
    pub passages: QueryStats,
    /// Tokens of the chats.
    pub usage: Usage,
}

impl BackendStats {
    /// Of all kinds together.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.count.seconds + self.nli.seconds + self.chat.seconds + self.passages.seconds
    }
}

/// All that rules may ask.
pub struct Backends<'a> {
    counter: Box<dyn Counter + 'a>,
    nli: Option<Box<dyn NliModel + 'a>>,
    chat: Option<Box<dyn ChatModel + 'a>>,
    retriever: Option<Box<dyn Retriever + 'a>>,
    tallies: BackendStats,
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The run does not grant it.
    #[error("{0} is not granted: the configuration's section `verify.{0}` is not set")]
    NotGranted(Capability),
    /// Not one answer per question came back.
    #[error("{what} gave {got} answers to {expected} questions")]
    Answers {
        /// Who was asked.
        what: &'static str,
        /// Questions.
        expected: usize,
        /// Answers.
        got: usize,
    },
}

/// Without a corpus.
struct NoCorpus;

impl Counter for NoCorpus {
    fn count(&mut self, _: &[Query]) -> Result<Vec<Count>, BoxError> {
        Err("there is no corpus to count in".into())
    }

    fn size(&self) -> CorpusSize {
        CorpusSize::default()
    }
}

impl Default for Backends<'_> {
    /// Grants nothing: any question is an error.
    fn default() -> Self {
        Self::counting(NoCorpus)
    }
}

impl<'a> Backends<'a> {
    /// Grants counts alone.
    #[must_use]
    pub fn counting(counter: impl Counter + 'a) -> Self {
        Self {
            counter: Box::new(counter),
            nli: None,
            chat: None,
            retriever: None,
            tallies: BackendStats::default(),
        }
    }

    /// Grants natural language inference too.
    #[must_use]
    pub fn with_nli(self, model: impl NliModel + 'a) -> Self {
        Self { nli: Some(Box::new(model)), ..self }
    }

    /// Grants chat too.
    #[must_use]
    pub fn with_chat(self, model: impl ChatModel + 'a) -> Self {
        Self { chat: Some(Box::new(model)), ..self }
    }

    /// Grants passages too.
    #[must_use]
    pub fn with_passages(self, retriever: impl Retriever + 'a) -> Self {
        Self { retriever: Some(Box::new(retriever)), ..self }
    }

    /// Whether a rule may ask this.
    #[must_use]
    pub fn grants(&self, verifier: Capability) -> bool {
        match verifier {
            Capability::Nli => self.nli.is_some(),
            Capability::Chat => self.chat.is_some(),
            Capability::Passages => self.retriever.is_some(),
        }
    }

    /// How much text the counts come from.
    #[must_use]
    pub fn size(&self) -> CorpusSize {
        self.counter.size()
    }

    /// One count per query, in order.
    ///
    /// # Errors
    /// Where counting fails.
    pub fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        let _span = info_span!("count", queries = queries.len()).entered();
        ask("the corpus", queries, &mut self.tallies.count, |queries| self.counter.count(queries))
    }

    /// One answer per pair, in order.
    ///
    /// # Errors
    /// Where it is not granted, or the model fails.
    pub fn entail(&mut self, pairs: &[NliPair]) -> Result<Vec<Entailment>, BoxError> {
        let _span = info_span!("nli", pairs = pairs.len()).entered();
        ask("the NLI model", pairs, &mut self.tallies.nli, |pairs| {
            granted(&mut self.nli, Capability::Nli)?.entail(pairs)
        })
    }

    /// One reply per prompt, in order.
    ///
    /// # Errors
    /// Where it is not granted, or the model does not reply.
    pub fn reply(&mut self, prompts: &[ChatPrompt]) -> Result<Vec<ChatReply>, BoxError> {
        let _span = info_span!("chat", prompts = prompts.len()).entered();
        let replies = ask("the chat model", prompts, &mut self.tallies.chat, |prompts| {
            granted(&mut self.chat, Capability::Chat)?.reply(prompts)
        })?;
        for ChatReply { usage, .. } in &replies {
            self.tallies.usage.prompt_tokens += usage.prompt_tokens;
            self.tallies.usage.completion_tokens += usage.completion_tokens;
        }
        Ok(replies)
    }

    /// The passages of each search, best first.
    ///
    /// # Errors
    /// Where it is not granted, or the search fails.
    pub fn passages(&mut self, searches: &[Search]) -> Result<Vec<Vec<Passage>>, BoxError> {
        let _span = info_span!("passages", searches = searches.len()).entered();
        ask("the retriever", searches, &mut self.tallies.passages, |searches| {
            granted(&mut self.retriever, Capability::Passages)?.passages(searches)
        })
    }

    /// Tells the chat model what the run took before this process went on with it.
    pub fn add_prior_usage(&mut self, usage: Usage) {
        if let Some(model) = &mut self.chat {
            model.add_prior_usage(usage);
        }
    }

    /// What was asked since this was called last.
    pub fn take_stats(&mut self) -> BackendStats {
        std::mem::take(&mut self.tallies)
    }
}

/// Whoever answers this kind of question.
fn granted<T>(verifier: &mut Option<T>, kind: Capability) -> Result<&mut T, VerifyError> {
    verifier.as_mut().ok_or(VerifyError::NotGranted(kind))
}

/// Asks, checks that there is an answer to each question, and counts and times them.
fn ask<Q, A>(
    what: &'static str,
    questions: &[Q],
    tally: &mut QueryStats,
    answer: impl FnOnce(&[Q]) -> Result<Vec<A>, BoxError>,
) -> Result<Vec<A>, BoxError> {
    if questions.is_empty() {
        return Ok(Vec::new());
    }
    let start = Instant::now();
    let answers = answer(questions);
    tally.seconds += start.elapsed().as_secs_f64();
    tally.asked += questions.len() as u64;
    let answers = answers?;
    let (expected, got) = (questions.len(), answers.len());
    if got == expected {
        Ok(answers)
    } else {
        Err(VerifyError::Answers { what, expected, got }.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Counter for Nothing {
        fn count(&mut self, _: &[Query]) -> Result<Vec<Count>, BoxError> {
            Ok(Vec::new())
        }

        fn size(&self) -> CorpusSize {
            CorpusSize::default()
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
    fn verifier_requests_are_tallied_by_kind() {
        let mut backends = Backends::counting(Nothing).with_chat(Echo);
        let replies = backends.reply(&[prompt("one two"), prompt("three")]).unwrap();
        assert_eq!(replies[1].content, "three");
        let tallies = backends.take_stats();
        assert_eq!((tallies.chat.asked, tallies.nli.asked, tallies.count.asked), (2, 0, 0));
        assert_eq!(tallies.usage, Usage { prompt_tokens: 3, completion_tokens: 6 });
        assert_eq!(backends.take_stats(), BackendStats::default());
    }

    #[test]
    fn ungranted_verifier_is_rejected() {
        let mut backends = Backends::counting(Nothing).with_chat(Echo);
        let granted = [Capability::Nli, Capability::Chat, Capability::Passages]
            .map(|verifier| backends.grants(verifier));
        assert_eq!(granted, [false, true, false]);
        let pair = NliPair { premise: "a".into(), hypothesis: "b".into() };
        assert_eq!(
            backends.entail(&[pair]).unwrap_err().to_string(),
            "nli is not granted: the configuration's section `verify.nli` is not set"
        );
    }

    #[test]
    fn empty_verifier_request_needs_no_grant() {
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
        assert_eq!(error, "the corpus gave 0 answers to 1 questions");
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
