use std::path::PathBuf;

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// A file of the run cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The folder is no run's.
    #[error("{} holds no run: it has no {missing}", path.display())]
    NoRun {
        /// The folder.
        path: PathBuf,
        /// A file that every run has.
        missing: &'static str,
    },
    /// A JSON file of the run cannot be understood.
    #[error("{} is damaged: {source}", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Where it breaks.
        source: serde_json::Error,
    },
    /// A line of a log cannot be understood.
    #[error("{}:{line} is damaged: {source}", path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// Where it breaks.
        source: serde_json::Error,
    },
    /// The configuration of the run cannot be understood.
    #[error("{} is damaged: {source}", path.display())]
    Config {
        /// Which file.
        path: PathBuf,
        /// Where it breaks.
        source: toml::de::Error,
    },
    /// The run has not taken this step.
    #[error("{} has no step {step}: it has {}", path.display(), steps.map_or("none yet".to_owned(), |(first, last)| format!("steps {first} to {last}")))]
    NoStep {
        /// The traces.
        path: PathBuf,
        /// What was asked for, counted from 1.
        step: usize,
        /// The first and the last that there are.
        steps: Option<(usize, usize)>,
    },
    /// The step has fewer completions.
    #[error("step {step} has no completion {completion}: it has {count}, counted from 0")]
    NoCompletion {
        /// Counted from 1.
        step: usize,
        /// What was asked for, counted from 0.
        completion: usize,
        /// How many there are.
        count: usize,
    },
    /// The run ended, or is still, in the middle of writing the step.
    #[error("step {step} is not whole: it has {count} completions, and its groups have {size}")]
    Incomplete {
        /// Counted from 1.
        step: usize,
        /// Completions that are there.
        count: usize,
        /// Of a group.
        size: usize,
    },
    /// The page cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Which file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}
