//! Why there is no reply.

use std::path::PathBuf;

use corver_http::{TokenError, UrlError};
use corver_settings::InvalidSetting;

/// Every failure of a [`Chat`](crate::Chat). Replies that came before it are kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// A setting has a value that cannot work.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
    /// A prompt that no model can answer.
    #[error("a prompt's {part} must be {expected}")]
    Prompt {
        /// What of it.
        part: &'static str,
        /// What it may be.
        expected: &'static str,
    },
    /// The endpoint's address cannot be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The key that the settings or the environment name cannot be used.
    #[error(transparent)]
    Key(#[from] TokenError),
    /// Everyone on the way to the endpoint would see the key.
    #[error(
        "the key ({section}.key_file, {section}.key_variable) would go to {endpoint} unencrypted: use https://, or a tunnel from localhost"
    )]
    KeyInClear {
        /// The settings' section.
        section: &'static str,
        /// The endpoint.
        endpoint: String,
    },
    /// The endpoint will not answer; asking again is of no use.
    #[error("{url} refuses the model {model}: {message}")]
    Refused {
        /// The endpoint.
        url: String,
        /// The model.
        model: String,
        /// What it said.
        message: String,
    },
    /// The endpoint gave no usable answer for as long as one is waited for.
    #[error("{url} did not answer in {attempts} attempts and {seconds:.0} s; at last: {last}")]
    GaveUp {
        /// The endpoint.
        url: String,
        /// How often it was tried.
        attempts: u32,
        /// For how long.
        seconds: f64,
        /// How the last attempt failed.
        last: String,
    },
    /// So much is not to be spent.
    #[error(
        "{cost:.4} is spent of at most {max_cost} ({section}.max_cost); a higher ceiling goes on (a run, with --resume), and nothing is \
         asked twice"
    )]
    Ceiling {
        /// The settings' section.
        section: &'static str,
        /// What was spent, by earlier processes too.
        cost: f64,
        /// What may be.
        max_cost: f64,
    },
    /// The endpoint does not count tokens, and so nobody knows what it costs.
    #[error(
        "{url} does not say how many tokens it used, so they cannot be counted at the prices of {section}.prices"
    )]
    NoUsage {
        /// The settings' section.
        section: &'static str,
        /// The endpoint.
        url: String,
    },
    /// The file of replies cannot be used.
    #[error("cannot {action} the replies kept in {}: {source}", path.display())]
    Kept {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}
