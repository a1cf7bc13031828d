//! What a reward rule is written with.
//!
//! A rule is a pure function from one sentence, its triplets and the answers to what it asks to a
//! verdict. It imports nothing, keeps no state and reads no clock. This is a whole one:
//!
//! ```
//! use corver_sdk::prelude::*;
//!
//! settings! {
//!     /// Pays a sentence whose first fact the corpus attests.
//!     pub struct Attested {
//!         /// Counts up to this one earn nothing, in occurrences.
//!         pub noise_floor: u64 = 0,
//!     }
//! }
//!
//! impl SentenceRule for Attested {
//!     fn score(&self, sentence: &Sentence, corpus: &Corpus) -> Outcome {
//!         let Some((index, triplet)) = sentence.first_valid_triplet() else { return abstain("no valid triplet") };
//!         let Some(query) = triplet.word_query() else { return abstain("fewer than two content words") };
//!         let count = corpus.count(query)?; // the first time round, this asks the host and stops here
//!         verdict(if count > Some(self.noise_floor) { 0.1 } else { -0.3 }).because(index, count)
//!     }
//! }
//!
//! corver_sdk::export!(Attested);
//! ```
//!
//! | what is rewarded | implement | export with |
//! | --- | --- | --- |
//! | a sentence by itself | [`SentenceRule`] | [`export!`] |
//! | a sentence in the light of its neighbours | [`CompletionRule`] | [`export!`] |
//! | a whole completion: a judge of answers, a check of their format | [`ResponseRule`] | [`export_response_rule!`] |
//!
//! What a rule sees is a [`Completion`] of [`Sentence`]s with their [`Triplet`]s, and the
//! [`Corpus`], which answers a
//! [`Query`] with a count; where the rule's `ASKS` says so, also a [`Pair`] of texts with its [`Entailment`], a [`Prompt`] with a chat
//! model's reply, and a [`Search`] with [`Passage`]s. Ready-made parts:
//! [`Sentence::first_valid_triplet`], [`Triplet::word_query`],
//! [`Corpus::count_facts`], [`first_fact`], [`mean_fact`], [`Tiers`], [`content_words`]; for questions to models [`Prompt::tagged`],
//! [`statements`], [`listed`], [`has_word`]; for texts [`between_tags`], [`keeps_template`], [`token_f1`], [`subsequence_end`].
//!
//! `cargo build --release --target wasm32-unknown-unknown` makes the file that `corver-host train
//! --plugin` takes. `cargo test` is native: [`testing`] has a corpus to fill in by hand, and
//! [`testing::check()`], which tries a rule on generated completions.

mod batch;
pub mod bindings;
mod corpus;
#[doc(hidden)]
pub mod glue;
mod outcome;
mod overlap;
mod query;
mod question;
mod replies;
mod response;
mod rule;
mod settings;
mod tags;
pub mod testing;
mod text;
mod tiers;
mod words;

#[doc(hidden)]
pub use schemars;
#[doc(hidden)]
pub use serde;

pub use bindings::{
    Completion, CorpusSize, Count, Credit, Entailment, Grade, Manifest, Message, Pair, Passage,
    Point, Prompt, Query, Reply, Request, Role, Search, Section, Sentence, Triplet, Verdict,
    Verifier,
};
pub use corpus::{Ask, Corpus};
pub use outcome::{
    Judgement, Outcome, OutcomeExt, abstain, first_fact, label, mean_fact, points, verdict,
};
pub use overlap::{subsequence_end, token_f1};
pub use replies::{LIST_STATEMENTS, has_word, listed, statements};
pub use response::{Graded, GradedExt, ResponseRule, grade};
pub use rule::{CompletionRule, SentenceRule};
pub use settings::{
    Settings, Variant, at_least_one, configured, configured_response, finite, probability,
};
pub use tags::{between_tags, keeps_template};
pub use tiers::{Tiers, TiersError};
pub use words::{content_words, is_pronoun, relation_words, word_query};

/// Everything a rule usually needs.
pub mod prelude {
    pub use crate::{
        Completion, CompletionRule, Corpus, Graded, GradedExt as _, Outcome, OutcomeExt as _, Pair,
        Prompt, Query, ResponseRule, Search, Section, Sentence, SentenceRule, Settings as _, Tiers,
        Triplet, Verifier, abstain, content_words, finite, first_fact, grade, is_pronoun, label,
        mean_fact, points, relation_words, settings, verdict, word_query,
    };
}
