//! Evaluation: graded answers to question sets, their figures and comparisons, and the self-filter.

pub mod completions;
pub mod diff;
pub mod evaluate;
pub mod extraction;
pub mod figures;
pub mod filter;
pub mod grade;
pub mod graded;
pub mod interval;
mod lines;
pub mod truth;

pub use completions::{CompletionSet, parse_completions, read_completions};
pub use diff::{ComparedAnswer, Diff, DiffError, Refusals, diff, read_answers};
pub use evaluate::{EvaluateError, EvaluatePlan, Evaluation, GradedAnswer, evaluate, summarize};
pub use extraction::{ExtractionQuality, GoldSentence, MatchCounts, compare_triplets, read_gold};
pub use figures::{Direction, FIGURES, Figure, FigureUnit, OF_AN_ANSWER, View, figures};
pub use filter::{FilterError, FilterPlan, FilterSummary, Zone, filter};
pub use grade::{Grades, MissingAnswer, missing_answer};
pub use graded::read_graded;
pub use interval::{wilson, wilson_of};
pub use lines::LinesError;
pub use truth::{FactCheck, FactChecker};
