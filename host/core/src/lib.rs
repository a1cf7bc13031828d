//! The path from a question to a policy update, one file per stage:
//!
//! ```text
//! question ─▶ rollout ─▶ sentence ─▶ triplet ─▶ count ─▶ verdict ─▶ returns ─▶ advantage ─▶ update
//! ```
//!
//! Each file has the type of its stage, the pure function that computes it, and its tests.
//! [`step()`] runs them in this order, generic over the traits [`Sampler`], [`Extractor`],
//! [`SentenceScorer`], [`ResponseGrader`] and [`Learner`]; [`Backends`] answer the requests of rules.
//! Other crates implement them with libtorch, ONNX Runtime, the memory-mapped index and wasmtime.
//!
//! Characters are Unicode code points: every text length, offset and span is counted in them.

use std::error::Error;

pub mod advantage;
pub mod capability;
pub mod compat;
pub mod completion;
pub mod count;
pub mod given;
pub mod language;
pub mod names;
pub mod prose;
pub mod question;
pub mod reply;
pub mod response;
pub mod returns;
pub mod rollout;
pub mod score;
pub mod sentence;
pub mod split;
pub mod stage;
pub mod stats;
pub mod step;
pub mod template;
pub mod text;
pub mod trace;
pub mod triplet;
pub mod update;
pub mod verdict;

pub use corver_settings::{
    AdamWSettings, AdvantageSettings, Algorithm, Compatibility, CountMode, Device, DpoSettings,
    Granularity, ImportanceLevel, InvalidSetting, Language, LearnSettings, LongPrompts,
    LoraSettings, LossSettings, LossType, MomentPrecision, OldLogProbs, PpoSettings, Precision,
    ReplyGrammar, RewardSettings, Sampling, ScaleRewards, SentenceMean, SentenceSplitter,
    TextSettings,
};

pub use advantage::{Advantages, Baseline, Estimator, ReturnStats, Signal, baselines};
pub use capability::{
    BackendStats, Backends, Capability, ChatModel, ChatPrompt, ChatReply, ChatRole, Entailment,
    Exchange, Message, NliModel, NliPair, Passage, QueryStats, Retriever, Search, Usage,
};
pub use completion::Completion;
pub use count::{CorpusInfo, Count, CountPrecision, Counter, Lookup, Query};
pub use given::GivenTriplets;
pub use names::NameExtractor;
pub use question::Question;
pub use response::{Grade, Graders, Label, ResponseGrader, ResponseGrades};
pub use rollout::{Decoding, Rollout, Sampler};
pub use score::{Scored, ScoredCompletion, Scorers, score};
pub use sentence::{Alignment, Section, Sentence};
pub use stage::{StageSeconds, StepError};
pub use step::{StepReport, StepSettings, step};
pub use trace::{Explained, ReturnParts, SentenceTrace, Trace, TracedReturns, traced_returns};
pub use triplet::{Claim, Extracted, ExtractionBatch, Extractor, ExtractorInput, Triplet};
pub use update::{Demonstration, Learner, Mismatch, TrainingBatch, UpdateReport};
pub use verdict::{
    Blend, Channel, Credit, CreditKind, SentenceScorer, SentenceVerdict, TokenReward, Weighted,
};

/// Returns an error with its causes, outermost first, on one line.
#[must_use]
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    error_chain_with(error, |cause| cause.to_string().replace('\n', " "))
}

/// Returns an error with its causes, each formatted by `format`, joined as in [`error_chain`]. A cause
/// that an outer message quotes is left out.
#[must_use]
pub fn error_chain_with(
    error: &(dyn Error + 'static),
    format: impl Fn(&(dyn Error + 'static)) -> String,
) -> String {
    let mut chain = String::new();
    let mut next = Some(error);
    while let Some(cause) = next {
        let message = format(cause);
        if !chain.contains(&message) {
            if !chain.is_empty() {
                chain.push_str(": ");
            }
            chain.push_str(&message);
        }
        next = cause.source();
    }
    chain
}

/// Error of a backend, a rule, an extractor or a policy.
pub type BoxError = Box<dyn Error + Send + Sync + 'static>;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{what}")]
    struct Nested {
        what: &'static str,
        source: Option<Box<Nested>>,
    }

    #[test]
    fn error_chain_omits_already_quoted_causes() {
        let nested = |what, source: Option<Nested>| Nested { what, source: source.map(Box::new) };
        let cause = nested("a file is\nbroken", Some(nested("broken", None)));
        let error = nested("scoring", Some(cause));
        assert_eq!(error_chain(&error), "scoring: a file is broken");
    }
}
