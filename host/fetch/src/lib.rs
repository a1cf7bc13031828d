//! Fetches a rule's file from another machine: `https://…` from a web server, `oci://…` from a
//! registry of container images. Neither a token nor a password is sent. The caller checks the
//! file's hash.

mod registry;

use corver_http::DownloadError;

pub use registry::RegistryError;

/// An error of [`fetch`].
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The web server does not have the file.
    #[error(transparent)]
    Download(#[from] DownloadError),
    /// The registry does not have the file.
    #[error("{location}: {source}")]
    Registry {
        /// URL of the rule.
        location: String,
        /// Reason.
        source: RegistryError,
    },
}

/// Returns the bytes of a file at `https://…`, `http://…` or `oci://REGISTRY/REPOSITORY[:TAG]`.
///
/// # Errors
/// Fails if the URL is invalid, the server does not have the file or cannot be reached, or the file
/// has more than `max_bytes`.
pub fn fetch(location: &str, max_bytes: u64) -> Result<Vec<u8>, FetchError> {
    match location.strip_prefix("oci://") {
        Some(image) => registry::pull(image, max_bytes)
            .map_err(|source| FetchError::Registry { location: location.to_owned(), source }),
        None => Ok(corver_http::download(location, max_bytes)?),
    }
}
