//! The extension module behind the Python package `corver`: the reward, in process. The package's
//! own files lie in `corver/`.
//!
//! ```text
//! scorer    settings ─▶ opened parts;  completions ─▶ scores
//! input     what `Scorer.score` is given ─▶ rollouts and questions
//! tokens    a Hugging Face tokenizer, a tokenizer.json or a folder ─▶ the host's tokenizer
//! score     a score, as Python sees it
//! transcript what trainers hand over ─▶ question, answer, golds
//! advantage scores of a batch ─▶ baselines of its groups
//! thread    work without the GIL, which Ctrl-C ends the waiting for
//! error     the host's messages as exceptions
//! ```

mod advantage;
mod demo;
mod error;
mod input;
mod score;
mod scorer;
mod thread;
mod tokens;
mod transcript;

use pyo3::prelude::*;

/// The compiled part of corver; use the package `corver`.
#[pymodule]
mod _native {
    use std::io::{self, IsTerminal};
    use std::path::PathBuf;

    use pyo3::prelude::*;
    use tracing_subscriber::EnvFilter;
    use tracing_subscriber::filter::LevelFilter;

    #[pymodule_export]
    use super::advantage::baselines;
    #[pymodule_export]
    use super::demo::demo;
    #[pymodule_export]
    use super::error::CorverError;
    #[pymodule_export]
    use super::error::SettingsError;
    #[pymodule_export]
    use super::score::Score;
    #[pymodule_export]
    use super::scorer::Scorer;
    #[pymodule_export]
    use super::tokens::decode;
    #[pymodule_export]
    use super::transcript::golds;
    #[pymodule_export]
    use super::transcript::question;
    #[pymodule_export]
    use super::transcript::response;

    /// Says where the package's corver-host lies, and what belongs to it.
    #[pyfunction]
    fn set_program(path: PathBuf) {
        corver_reward::folders::set_program(path);
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let level =
            EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env_lossy();
        let log =
            tracing_subscriber::fmt().with_env_filter(level).with_target(false).without_time();
        // Another copy of this module may have been here first.
        drop(log.with_writer(io::stderr).with_ansi(io::stderr().is_terminal()).try_init());
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
