//! The path from a question to a policy update, one file per stage:
//!
//! ```text
//! question ─▶ rollout ─▶ sentence ─▶ triplet ─▶ count ─▶ verdict ─▶ returns ─▶ advantage ─▶ update
//! ```
//!
//! Each file holds the type of its stage, the pure function that makes it, and its tests.
//! [`step()`] runs them in this order, generic over the traits [`Sampler`], [`Extractor`],
//! [`SentenceScorer`], [`ResponseRule`] and [`Learner`]; what rules ask is answered by
//! [`Backends`]. The heavy machinery (libtorch, ONNX Runtime, the memory-mapped index, wasmtime)
//! lives behind them, in other crates.
//!
//! Characters are Unicode code points throughout: every text length, offset and span is counted in
//! them.

use std::error::Error;

pub mod advantage;
pub mod algorithm;
pub mod compat;
pub mod completion;
pub mod count;
pub mod question;
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
pub mod verify;

pub use corver_settings::{
    AdamWSettings, AdvantageSettings, Algorithm, Compatibility, Device, DpoSettings, Granularity,
    ImportanceLevel, InvalidSetting, LearnSettings, LongPrompts, LoraSettings, LossSettings,
    LossType, MomentPrecision, OldLogProbs, PpoSettings, Precision, RewardSettings, Sampling,
    ScaleRewards, SentenceMean,
};

pub use advantage::{Advantages, Baseline, Estimator, ReturnStats, Signal, baselines};
pub use algorithm::ignored_settings;
pub use completion::Completion;
pub use count::{CorpusSize, Count, CountPrecision, Counter, Lookup, Query};
pub use question::Question;
pub use response::{Grade, Graders, Label, ResponseGrades, ResponseRule};
pub use returns::{Explained, ReturnParts, TracedReturns, traced_returns};
pub use rollout::{Decoding, Rollout, Sampler};
pub use score::{Scored, ScoredCompletion, Scorers, score};
pub use sentence::{Alignment, Section, Sentence};
pub use stage::{StageSeconds, StepError};
pub use step::{StepReport, StepSettings, step};
pub use trace::{SentenceTrace, Trace};
pub use triplet::{Claim, ExtractionBatch, Extractor, Triplet};
pub use update::{Demonstration, Learner, Mismatch, TrainingBatch, UpdateReport};
pub use verdict::{Blend, Channel, Credit, SentenceScorer, TokenReward, Verdict, Weighted};
pub use verify::{
    BackendStats, Backends, Capability, ChatModel, ChatPrompt, ChatReply, ChatRole, Entailment,
    Exchange, Message, NliModel, NliPair, Passage, QueryStats, Retriever, Search, Usage,
};

/// An error with its causes, outermost first, on one line.
#[must_use]
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    error_chain_with(error, |cause| cause.to_string().replace('\n', " "))
}

/// As [`error_chain`], each of them written by `shown`. Many messages quote their cause already;
/// nothing is said twice.
#[must_use]
pub fn error_chain_with(
    error: &(dyn Error + 'static),
    shown: impl Fn(&(dyn Error + 'static)) -> String,
) -> String {
    let mut whole = String::new();
    for cause in std::iter::successors(Some(error), |&error| error.source()) {
        let cause = shown(cause);
        if !whole.contains(&cause) {
            whole = if whole.is_empty() { cause } else { format!("{whole}: {cause}") };
        }
    }
    whole
}

/// What a heavy part hands back when it cannot do its work; the parts' own error types stay behind
/// it.
pub type BoxError = Box<dyn Error + Send + Sync + 'static>;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{what}")]
    struct Told {
        what: &'static str,
        source: Option<Box<Told>>,
    }

    #[test]
    fn with_causes_omits_already_quoted_causes() {
        let told = |what, source: Option<Told>| Told { what, source: source.map(Box::new) };
        let error = told("scoring", Some(told("a file is\nbroken", Some(told("broken", None)))));
        assert_eq!(error_chain(&error), "scoring: a file is broken");
    }
}
