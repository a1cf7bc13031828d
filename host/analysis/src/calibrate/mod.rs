//! Calibration of counts and rewards against the truth of sentences (paper, §Reward Signal
//! Calibration).
//!
//! ```text
//! traces ─▶ draw ─▶ sheet ─▶ a person's labels ─▶ table ─▶ suggest
//! policy ─▶ sample ─▶ audit      without a person, if the truth is known
//! corpus ─▶ twins ─▶ table ─▶ suggest   without a person or a policy
//! ```

pub mod annotated;
pub mod audit;
pub mod bucket;
pub mod draw;
pub mod label;
pub mod ranking;
pub mod sample;
pub mod sheet;
pub mod suggest;
pub mod table;
pub mod twins;

pub use annotated::{Annotated, read_sheets, read_sheets_of_people};
pub use audit::{AuditFinding, RuleAudit, audit};
pub use bucket::{BucketError, CountBucket, CountBuckets};
pub use draw::{DrawError, Drawn, SentencePool};
pub use label::{RaterAgreement, TruthLabel};
pub use ranking::{Auc, Interval, RewardedSentence, SampleSize};
pub use sample::{SampleError, SamplePlan, Sampled, ScoredSentence};
pub use sheet::{SheetError, SheetRow, write_sheet};
pub use suggest::{Suggestion, suggest};
pub use table::{
    BucketShare, Calibration, CorrectShare, ReliabilityPoint, ShareOrder, TableError, Trend,
    calibrate,
};
pub use twins::{
    CorpusCalibration, CorpusFact, KindAuc, TailKind, Twin, TwinPair, calibrate_pairs, make_twins,
    sheet_rows,
};
