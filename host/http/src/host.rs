//! The host of a URL.

use std::net::IpAddr;

use ureq::http::Uri;
use ureq::http::uri::InvalidUri;

/// The server that a URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Host name or IP address, in lower case.
    pub name: String,
    /// True if the connection is encrypted (`https`).
    pub is_encrypted: bool,
}

/// The error of an invalid URL.
#[derive(Debug, thiserror::Error)]
#[error("{url:?} is not the address of a server: {problem}")]
pub struct UrlError {
    /// The URL, with user and password removed.
    pub url: String,
    /// Reason why it is invalid, and the remedy.
    pub problem: String,
}

impl Host {
    /// Parses the host of a URL. A URL with a user or password is refused, because URLs are logged
    /// and saved.
    ///
    /// # Errors
    /// Fails if the URL is invalid.
    pub fn from_url(url: &str) -> Result<Self, UrlError> {
        Self::parse(url).map_err(|problem| UrlError { url: without_user(url), problem })
    }

    fn parse(url: &str) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|error: InvalidUri| error.to_string())?;
        let is_encrypted = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err("it must begin with http:// or https://".to_owned()),
        };
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err("it must not hold a user or password; \
                        a key or token belongs in a file of its own"
                .to_owned());
        }
        match uri.host() {
            Some(name) if !name.is_empty() => {
                Ok(Self { name: name.to_ascii_lowercase(), is_encrypted })
            }
            _ => Err("it names no host".to_owned()),
        }
    }

    /// True if the host is this machine.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let address = self.name.trim_matches(['[', ']']).parse::<IpAddr>();
        self.name == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }
}

/// Removes everything that may be a password, also from a malformed URL.
fn without_user(url: &str) -> String {
    url.rsplit_once('@').map_or_else(|| url.to_owned(), |(_, rest)| format!("…@{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_parsed_from_url() {
        assert_eq!(
            Host::from_url("https://API.infini-gram.io:443/").unwrap().name,
            "api.infini-gram.io"
        );
        assert_eq!(Host::from_url("http://[::1]:8765").unwrap().name, "[::1]");
        for wrong in ["", "api.infini-gram.io", "ftp://host/", "http://", "http://a b/"] {
            assert!(Host::from_url(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn url_password_is_rejected_without_leaking() {
        for wrong in [
            "https://me:hidden@host/v1",
            "https://hidden@host",
            "http://me:hid den@host",
            "me:hidden@host",
        ] {
            let error = Host::from_url(wrong).unwrap_err().to_string();
            assert!(error.contains("host") && !error.contains("hid"), "{error}");
        }
        assert!(Host::from_url("https://host/@name/v1").is_ok());
    }

    #[test]
    fn loopback_hosts_are_recognised() {
        for (url, expected) in [
            ("http://LocalHost:8000/v1", true),
            ("http://127.0.0.2", true),
            ("http://[::1]:8765", true),
            ("http://127.0.0.1.example.org", false),
            ("http://localhost.example.org", false),
            ("http://192.168.0.1", false),
        ] {
            assert_eq!(Host::from_url(url).unwrap().is_loopback(), expected, "{url}");
        }
    }
}
