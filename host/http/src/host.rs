//! Where a URL leads.

use std::net::IpAddr;

use ureq::http::Uri;
use ureq::http::uri::InvalidUri;

/// The server that a URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// A name or an address, in small letters.
    pub name: String,
    /// Whether what is sent there is encrypted.
    pub is_encrypted: bool,
}

/// A URL that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{url:?} is not the address of a server: {problem}")]
pub struct UrlError {
    /// What was given, without a password.
    pub url: String,
    /// What is wrong with it.
    pub problem: String,
}

impl Host {
    /// The host of a URL. One with a user or password in it is refused: addresses are logged and
    /// kept.
    ///
    /// # Errors
    /// What is wrong with the URL.
    pub fn of(url: &str) -> Result<Self, UrlError> {
        let wrong =
            |problem: &str| UrlError { url: without_user(url), problem: problem.to_owned() };
        let uri: Uri = url.parse().map_err(|error: InvalidUri| wrong(&error.to_string()))?;
        let is_encrypted = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("it must begin with http:// or https://")),
        };
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(wrong(
                "it must not hold a user or password; a key or token belongs in a file of its own",
            ));
        }
        match uri.host() {
            Some(name) if !name.is_empty() => {
                Ok(Self { name: name.to_ascii_lowercase(), is_encrypted })
            }
            _ => Err(wrong("it names no host")),
        }
    }

    /// Whether it is this machine.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let address = self.name.trim_matches(['[', ']']).parse::<IpAddr>();
        self.name == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }
}

/// Without anything that may be a password, however the URL is broken.
fn without_user(url: &str) -> String {
    url.rsplit_once('@').map_or_else(|| url.to_owned(), |(_, rest)| format!("…@{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_parsed_from_url() {
        assert_eq!(Host::of("https://API.infini-gram.io:443/").unwrap().name, "api.infini-gram.io");
        assert_eq!(Host::of("http://[::1]:8765").unwrap().name, "[::1]");
        for wrong in ["", "api.infini-gram.io", "ftp://host/", "http://", "http://a b/"] {
            assert!(Host::of(wrong).is_err(), "{wrong:?}");
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
            let error = Host::of(wrong).unwrap_err().to_string();
            assert!(error.contains("host") && !error.contains("hid"), "{error}");
        }
        assert!(Host::of("https://host/@name/v1").is_ok());
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
            assert_eq!(Host::of(url).unwrap().is_loopback(), expected, "{url}");
        }
    }
}
