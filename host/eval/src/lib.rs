//! Questions in, grades out.

pub mod completions;
pub mod diff;
pub mod evaluate;
pub mod extraction;
pub mod figures;
pub mod filter;
pub mod grade;
pub mod graded;
pub mod interval;
pub mod truth;

pub use completions::{Completions, GivenTriplets, read_completions};
pub use diff::{Answer, Diff, DiffError, Refusals, diff, read_answers};
pub use evaluate::{EvaluateError, EvaluatePlan, Evaluation, GradedAnswer, evaluate, summarize};
pub use extraction::{ExtractionQuality, Found, GoldSentence, compare_triplets, read_gold};
pub use figures::{Direction, FIGURES, Figure, OF_AN_ANSWER, Unit, View, figures};
pub use filter::{FilterError, FilterPlan, Filtered, Zone, filter};
pub use grade::{Grades, Missing, missing};
pub use graded::{GradedError, read_graded};
pub use interval::{wilson, wilson_of};
pub use truth::{FactCheck, Truth};
