//! Sources, opened together for a run.

use corver_core::Counter;

use crate::{
    OpenSettings, RemoteError, RemoteSettings, Source, SourceError, Sum, TOKEN_VARIABLE, Token,
    check_parts,
};

/// Checks that a token, where one is set, goes to one server only.
///
/// # Errors
/// Where the sources name two servers, or the token cannot be used.
pub fn check_token(sources: &[Source], remote: &RemoteSettings) -> Result<(), SourceError> {
    let servers = sources.iter().filter_map(|source| match source {
        Source::Remote { url, .. } => Some(server_of(url)),
        Source::Folder(_) => None,
    });
    let mut servers = servers.collect::<Vec<_>>();
    servers.dedup();
    let [one, other, ..] = servers.as_slice() else { return Ok(()) };
    match Token::load(remote.token_file.as_deref(), Some(TOKEN_VARIABLE))
        .map_err(RemoteError::from)?
    {
        Some(_) => Err(SourceError::InvalidSources(format!(
            "a bearer token is set, but two servers would see it, {one} and {other}: ask one \
             server, or set none"
        ))),
        None => Ok(()),
    }
}

/// A URL without its path.
fn server_of(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + "://".len());
    url[host..].find('/').map_or(url, |at| &url[..host + at])
}

/// Opens some sources for a run: several are counted as one.
///
/// # Errors
/// As [`Source::open`], [`check_token`] and [`check_parts`].
pub fn open(sources: &[Source], settings: &OpenSettings) -> Result<Box<dyn Counter>, SourceError> {
    check_token(sources, &settings.remote)?;
    let opened =
        sources.iter().map(|source| source.open(settings)).collect::<Result<Vec<_>, _>>()?;
    check_parts(sources.iter().zip(&opened))?;
    let mut members: Vec<_> =
        opened.into_iter().map(|opened| Box::new(opened) as Box<dyn Counter>).collect();
    Ok(if members.len() == 1 { members.remove(0) } else { Box::new(Sum::new(members)) })
}

/// The fingerprints of all sources.
///
/// # Errors
/// As [`Source::fingerprint`].
pub fn fingerprint(sources: &[Source]) -> Result<String, SourceError> {
    Ok(sources.iter().map(Source::fingerprint).collect::<Result<Vec<_>, _>>()?.join(" + "))
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
                &texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Source>>(),
                &remote,
            )
        };
        check(&["http://host:1/#wiki", "folder", "http://host:1#books"]).unwrap();
        let error = check(&["http://host:1/#wiki", "https://host:1/#wiki"]).unwrap_err();
        let told = "two servers would see it, http://host:1 and https://host:1: ";
        assert!(error.to_string().contains(told), "{error}");
    }

    #[test]
    fn remote_index_fingerprint_uses_its_name() {
        let fingerprint = fingerprint(&["http://host/#wiki".parse().unwrap()]).unwrap();
        assert_eq!(fingerprint, "the index wiki at http://host/, unhashed");
    }
}
