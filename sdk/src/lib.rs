//! The toolkit for reward rules.
//!
//! A rule is a pure function from one sentence, its triplets and the replies to its requests to a
//! verdict. It has no state, reads no clock, and imports nothing but a report of panics. This is a
//! complete one:
//!
//! ```
//! use corver_sdk::prelude::*;
//!
//! settings! {
//!     /// Rewards a sentence if the corpus attests its first fact.
//!     pub struct Attested {
//!         /// Counts up to this number are noise, occurrences.
//!         pub noise_floor: u64 = 0,
//!     }
//! }
//!
//! impl SentenceRule for Attested {
//!     fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Result<Verdict, Pending> {
//!         let Some((index, triplet)) = sentence.first_valid_triplet() else {
//!             return Ok(Verdict::abstain("no valid triplet"));
//!         };
//!         let Some(query) = triplet.word_query() else {
//!             return Ok(Verdict::abstain("fewer than two content words"));
//!         };
//!         let count = corpus.count(query)?; // without a reply yet, the function returns here
//!         let reward = match count {
//!             None => 0.0, // the corpus cannot count this
//!             Some(occurrences) if occurrences > self.noise_floor => 0.1,
//!             Some(_) => -0.3,
//!         };
//!         Ok(Verdict::new(reward).because(index, count))
//!     }
//! }
//!
//! corver_sdk::export!(Attested);
//! ```
//!
//! # `?` runs the function again
//!
//! A request without a reply ends the function with [`Pending`]. The host gets the reply and calls
//! the function again from its first line; this time `corpus.count(query)?` returns the count. So a
//! rule must send the same requests in the same order each time, and code before a `?` runs several
//! times.
//!
//! | reward for | implement | export with |
//! | --- | --- | --- |
//! | a sentence by itself | [`SentenceRule`] | [`export!`] |
//! | a sentence compared with its neighbours | [`CompletionRule`] | [`export!`] |
//! | a completion: an answer judge or a format check | [`ResponseRule`] | [`export_response_rule!`] |
//!
//! A rule reads a [`Completion`] of [`Sentence`]s with their [`Triplet`]s. It requests counts of
//! [`Query`]s from the [`Corpus`]. If its `REQUIRES` names the [`Capability`], it also requests the
//! [`Entailment`] of an [`NliPair`], a chat model's reply to a [`ChatPrompt`], or the [`Passage`]s
//! of a [`Search`].
//!
//! Ready-made parts: [`Sentence::first_valid_triplet`], [`Triplet::word_query`],
//! [`Corpus::count_facts`], [`first_fact`], [`mean_fact`], [`Tiers`], [`content_words`],
//! [`Completion::answer_block`]. [`chat`] parses replies of chat models, [`tags`] reads blocks of a
//! completion, [`overlap`] compares texts.
//!
//! `corver-host plugin build`, or `cargo build --release --target wasm32-unknown-unknown`, makes the
//! file for `corver-host train --plugin`. `cargo test` is native: [`testing`] has a corpus with given
//! counts, and
//! [`testing::check()`] tries a rule on generated completions.

mod batch;
pub mod bindings;
pub mod chat;
mod corpus;
#[doc(hidden)]
pub mod glue;
pub mod overlap;
mod query;
mod request;
mod response;
mod rule;
mod settings;
pub mod tags;
pub mod testing;
mod text;
mod tiers;
mod verdict;
mod words;

#[doc(hidden)]
pub use schemars;
#[doc(hidden)]
pub use serde;

pub use bindings::{
    Capability, ChatPrompt, ChatRole, Completion, CorpusInfo, Count, CountMode, Credit, CreditKind,
    Entailment, Grade, Manifest, Message, NliPair, Passage, Precision, Query, Reply, Request,
    Search, Section, Sentence, TokenReward, Triplet,
};
pub use corpus::{Corpus, Pending};
pub use response::ResponseRule;
pub use rule::{CompletionRule, SentenceContext, SentenceRule};
pub use settings::{
    RuleSettings, Variant, at_least_one, configured, configured_response, finite, probability,
};
pub use tiers::{Tiers, TiersError};
pub use verdict::{Verdict, first_fact, mean_fact};
pub use words::{content_words, is_pronoun, relation_words, word_query};

/// The names that most rules need.
pub mod prelude {
    pub use crate::{
        Capability, ChatPrompt, Completion, CompletionRule, Corpus, CreditKind, Grade, NliPair,
        Pending, Query, ResponseRule, RuleSettings as _, Search, Section, Sentence,
        SentenceContext, SentenceRule, Tiers, Triplet, Verdict, content_words, finite, first_fact,
        is_pronoun, mean_fact, relation_words, settings, word_query,
    };
}
