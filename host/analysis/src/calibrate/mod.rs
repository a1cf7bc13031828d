//! Does a count, or the reward that a rule makes of it, say anything about truth? (paper, §Reward
//! Signal Calibration)
//!
//! ```text
//! traces ─▶ draw ─▶ sheet ─▶ a person's labels ─▶ table ─▶ suggest
//! policy ─▶ sample ─▶ audit      the same without a person, where the truth is known
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

pub use annotated::{Annotated, read_peoples_sheets, read_sheets};
pub use audit::{Finding, RuleAudit, audit};
pub use bucket::{Bucket, BucketError, Buckets};
pub use draw::{DrawError, Drawn, Pool};
pub use label::{Agreement, Label};
pub use ranking::{Auc, Evidence, Interval, Outcome};
pub use sample::{Judged, SampleError, SamplePlan, Sampled};
pub use sheet::{Row, SheetError, write_sheet};
pub use suggest::{Suggestion, suggest};
pub use table::{BucketShare, Calibration, Order, Point, Share, TableError, Trend, calibrate};
