//! The sources of a run, opened as one counter.

use corver_core::Counter;

use crate::{
    CorpusSource, OpenSettings, RemoteError, RemoteSettings, SourceError, Sum, TOKEN_VARIABLE,
    Token, check_parts,
};

/// Checks that a token, if one is set, is sent to one server only.
///
/// # Errors
/// Fails if a token is set and the sources name two servers, or if the token cannot be loaded.
pub fn check_token(sources: &[CorpusSource], remote: &RemoteSettings) -> Result<(), SourceError> {
    let mut servers = Vec::new();
    for source in sources {
        if let CorpusSource::Remote { url, .. } = source {
            servers.push(server_of(url));
        }
    }
    servers.dedup();
    let [first, second, ..] = servers.as_slice() else { return Ok(()) };
    match Token::load(remote.token_file.as_deref(), Some(TOKEN_VARIABLE))
        .map_err(RemoteError::from)?
    {
        Some(_) => Err(SourceError::InvalidSources(format!(
            "a bearer token is set, but two servers would see it, {first} and {second}: use one \
             server, or set no token"
        ))),
        None => Ok(()),
    }
}

/// Returns a URL without its path.
fn server_of(url: &str) -> &str {
    let host_start = url.find("://").map_or(0, |scheme_end| scheme_end + "://".len());
    match url[host_start..].find('/') {
        Some(host_len) => &url[..host_start + host_len],
        None => url,
    }
}

/// Opens the sources of a run as one counter; several are summed.
///
/// # Errors
/// Fails as [`CorpusSource::open`], [`check_token`] and [`check_parts`] do.
pub fn open(
    sources: &[CorpusSource],
    settings: &OpenSettings,
) -> Result<Box<dyn Counter>, SourceError> {
    check_token(sources, &settings.remote)?;
    let mode = settings.options.mode;
    let mut settings = settings.clone();
    if sources.len() > 1 {
        settings.options.mode = Sum::member_mode(mode);
    }
    let opened =
        sources.iter().map(|source| source.open(&settings)).collect::<Result<Vec<_>, _>>()?;
    check_parts(sources.iter().zip(&opened))?;
    let mut members: Vec<Box<dyn Counter>> = Vec::new();
    for source in opened {
        members.push(Box::new(source));
    }
    Ok(if members.len() == 1 { members.remove(0) } else { Box::new(Sum::new(members, mode)) })
}

/// Returns the fingerprints of all sources, joined.
///
/// # Errors
/// Fails as [`CorpusSource::fingerprint`] does.
pub fn fingerprint(sources: &[CorpusSource]) -> Result<String, SourceError> {
    let fingerprints =
        sources.iter().map(CorpusSource::fingerprint).collect::<Result<Vec<_>, _>>()?;
    Ok(fingerprints.join(" + "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_limited_to_one_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "0123456789abcdef").unwrap();
        let remote = RemoteSettings { token_file: Some(path), ..RemoteSettings::default() };
        let check = |texts: &[&str]| {
            check_token(
                &texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<CorpusSource>>(),
                &remote,
            )
        };
        check(&["http://host:1/#wiki", "folder", "http://host:1#books"]).unwrap();
        let error = check(&["http://host:1/#wiki", "https://host:1/#wiki"]).unwrap_err();
        let expected = "two servers would see it, http://host:1 and https://host:1: ";
        assert!(error.to_string().contains(expected), "{error}");
    }

    #[test]
    fn remote_index_fingerprint_uses_its_name() {
        let fingerprint = fingerprint(&["http://host/#wiki".parse().unwrap()]).unwrap();
        assert_eq!(fingerprint, "the index wiki at http://host/, unhashed");
    }
}
