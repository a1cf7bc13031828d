//! The path from a question to a policy update, one file per stage:
//!
//! ```text
//! question ─▶ rollout ─▶ sentence ─▶ triplet ─▶ count ─▶ verdict ─▶ returns ─▶ advantage ─▶ update
//! ```
//!
//! Each file holds the type of its stage, the pure function that makes it, and its tests. [`step()`] runs them in this
//! order, generic over six traits: [`Sampler`], [`Extractor`], [`Counter`], [`SentenceScorer`], [`ResponseRule`] and
//! [`Learner`]. The heavy machinery (libtorch, ONNX Runtime, the memory-mapped index, wasmtime) lives behind them, in other
//! crates.
//!
//! Characters are Unicode code points throughout: every text length, offset and span is counted in them.

pub mod advantage;
pub mod completion;
pub mod count;
pub mod golds;
pub mod question;
pub mod response;
pub mod returns;
pub mod rollout;
pub mod score;
pub mod sentence;
pub mod stage;
pub mod step;
pub mod template;
pub mod text;
pub mod trace;
pub mod trainee;
pub mod triplet;
pub mod update;
pub mod verdict;

pub use advantage::{AdvantageSettings, Advantages, Baseline, ScaleRewards, baselines};
pub use completion::Completion;
pub use count::{CorpusSize, Count, Counter, Lookup, Query};
pub use question::Question;
pub use response::{Grade, Graders, Label, ResponseGrades, ResponseRule};
pub use returns::{Ablation, Explained, ReturnParts, RewardSettings, SentenceMean, TracedReturns, traced_returns};
pub use rollout::{Decoding, LongPrompts, Rollout, Sampler, Sampling};
pub use score::{Scored, Scorers, score};
pub use sentence::{Alignment, Compatibility, Section, Sentence};
pub use stage::{StageSeconds, StepError};
pub use step::{StepReport, StepSettings, step};
pub use trace::{SentenceTrace, Trace};
pub use trainee::Trainee;
pub use triplet::{Claim, Extractor, Triplet};
pub use update::{Device, InvalidSetting, LearnSettings, Learner, Mismatch, Precision, UpdateReport};
pub use verdict::{Blend, Channel, SentenceScorer, Verdict, Weighted};

/// An error with its causes, outermost first, on one line. Many messages quote their cause already; nothing is said twice.
#[must_use]
pub fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut whole = String::new();
    for cause in std::iter::successors(Some(error), |&error| error.source()) {
        let cause = cause.to_string().replace('\n', " ");
        if !whole.contains(&cause) {
            whole = if whole.is_empty() { cause } else { format!("{whole}: {cause}") };
        }
    }
    whole
}

/// What a heavy part hands back when it cannot do its work; the parts' own error types stay behind it.
pub type PartError = Box<dyn std::error::Error + Send + Sync + 'static>;
