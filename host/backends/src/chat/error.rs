//! Errors of asking an endpoint.

use std::path::PathBuf;

use corver_http::{TokenError, UrlError};
use corver_settings::InvalidSetting;

/// Every failure of a [`Chat`](crate::chat::Chat). Replies that came before it are kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// A setting with a value that cannot work.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// An address of the endpoint that cannot be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// A key that cannot be used.
    #[error(transparent)]
    Key(#[from] TokenError),
    /// A key that everyone on the way would see, or a prompt that no model can answer.
    #[error("{0}")]
    InvalidArgument(String),
    /// An endpoint that will not answer, or does not count tokens that are to be paid for; asking
    /// again is of no use.
    #[error("{0}")]
    Refused(String),
    /// An endpoint that gave no usable answer for as long as one is waited for.
    #[error("{0}")]
    GaveUp(String),
    /// A cost that has reached its ceiling.
    #[error(
        "{cost:.4} is spent of at most {max_cost} ({section}.max_cost); a higher ceiling goes on (a run, with --resume), and nothing is \
         asked twice"
    )]
    Ceiling {
        /// Name of the section of the settings.
        section: &'static str,
        /// Cost so far, of earlier processes too.
        cost: f64,
        /// Cost allowed.
        max_cost: f64,
    },
    /// A file of replies that cannot be used.
    #[error("cannot {action} the replies kept in {}: {source}", path.display())]
    Io {
        /// Verb of the call: "open", "create", …
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
}
