//! The extension module behind the Python package `corver`: the reward, in process. The Python
//! files of the package are in `corver/`.
//!
//! ```text
//! scorer     settings ─▶ opened parts;  completions ─▶ scores
//! input      arguments of `Scorer.score` ─▶ rollouts and questions
//! tokens     a Hugging Face tokenizer, a tokenizer.json or a folder ─▶ the host's tokenizer
//! score      the Python class of a score
//! advantage  returns ─▶ advantages
//! transcript a trainer's prompt, response and row ─▶ question, answer, golds
//! thread     work without the GIL, interruptible by Ctrl-C
//! error      the host's messages as exceptions
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
    use super::advantage::advantages;
    #[pymodule_export]
    use super::advantage::group_baselines;
    #[pymodule_export]
    use super::demo::unpack_demo;
    #[pymodule_export]
    use super::error::CorverError;
    #[pymodule_export]
    use super::error::SettingsError;
    #[pymodule_export]
    use super::score::Score;
    #[pymodule_export]
    use super::scorer::PyScorer;
    #[pymodule_export]
    use super::tokens::decode_with_spans;
    #[pymodule_export]
    use super::transcript::extract_response;
    #[pymodule_export]
    use super::transcript::last_user_turn;
    #[pymodule_export]
    use super::transcript::parse_golds;
    #[pymodule_export]
    use super::transcript::question_in;

    /// Sets the corver-host that child processes run: the one inside the package.
    #[pyfunction]
    fn set_host_program(path: PathBuf) {
        corver_reward::folders::set_host_program(path);
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let level =
            EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env_lossy();
        let log =
            tracing_subscriber::fmt().with_env_filter(level).with_target(false).without_time();
        // Fails if another copy of this module has set the subscriber: that one then logs.
        drop(log.with_writer(io::stderr).with_ansi(io::stderr().is_terminal()).try_init());
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
