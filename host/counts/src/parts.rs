//! Checks that no shard of an index is counted twice.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use corver_corpus::Part;

use crate::{CorpusSource, OpenedSource, SourceError};

/// Checks that no source is named twice, a folder also by a link, and that no two have the same
/// shard of an index. Warns if a shard is missing. Only indexes with a manifest report their shards,
/// locally or through a `corver-host` server.
///
/// # Errors
/// Fails if a source or shard would be counted twice.
pub fn check_parts<'s>(
    opened: impl IntoIterator<Item = (&'s CorpusSource, &'s OpenedSource)>,
) -> Result<(), SourceError> {
    let mut sources: Vec<CorpusSource> = Vec::new();
    let mut parts_by_index: BTreeMap<String, Vec<(&CorpusSource, Part)>> = BTreeMap::new();
    for (source, index) in opened {
        let by_path = without_links(source);
        if sources.contains(&by_path) {
            let problem = format!("{source} would be counted twice: name it once");
            return Err(SourceError::InvalidSources(problem));
        }
        sources.push(by_path);
        if let Some(part) = index.part() {
            parts_by_index.entry(part.index.clone()).or_default().push((source, part));
        }
    }
    for parts in parts_by_index.values_mut() {
        let missing = missing_shards(parts)?;
        if !missing.is_empty() {
            let names: Vec<String> = parts.iter().map(|(named, _)| named.to_string()).collect();
            tracing::warn!(
                ?missing,
                of = parts[0].1.of,
                sources = ?names,
                "some shards of an index are not counted"
            );
        }
    }
    Ok(())
}

/// Returns the source with the path that all names of its folder lead to.
fn without_links(source: &CorpusSource) -> CorpusSource {
    match source {
        CorpusSource::Folder(path) => {
            CorpusSource::Folder(path.canonicalize().unwrap_or_else(|_| path.clone()))
        }
        CorpusSource::Remote { .. } => source.clone(),
    }
}

/// Returns the shards of one index that none of its parts has.
fn missing_shards(
    parts: &mut [(&CorpusSource, Part)],
) -> Result<Vec<RangeInclusive<usize>>, SourceError> {
    parts.sort_by_key(|(_, part)| *part.shards.start());
    let mut missing = Vec::new();
    let mut next = 0;
    let mut previous_source: Option<&CorpusSource> = None;
    for (source, part) in &*parts {
        let first = *part.shards.start();
        if let Some(previous) = previous_source
            && first < next
        {
            return Err(SourceError::InvalidSources(format!(
                "{previous} and {source} both count shard {first} of the same index: name each \
                 shard once"
            )));
        }
        if first > next {
            missing.push(next..=first - 1);
        }
        next = part.shards.end().saturating_add(1); // a server may report any number
        previous_source = Some(*source);
    }
    if let Some((_, part)) = parts.first()
        && next < part.of
    {
        missing.push(next..=part.of - 1);
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use corver_corpus::{BuildOptions, MANIFEST, Tokenizer, build_from_documents};

    use super::*;
    use crate::OpenSettings;

    const WORDS: &str = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
        "pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,"model":{"type":"WordLevel",
        "vocab":{"[UNK]":0,"red":1,"fox":2},"unk_token":"[UNK]"}}"#;

    /// Without a manifest, an index does not report its shards.
    #[test]
    fn folder_with_two_names_is_not_counted_twice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let tokenizer = Tokenizer::from_bytes(WORDS).unwrap();
        build_from_documents(["red fox"], &tokenizer, &path, &BuildOptions::default()).unwrap();
        std::fs::remove_file(path.join(MANIFEST)).unwrap();
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        let expected = format!("the index {} would be counted twice: name it once", link.display());
        let sources = [path, link].map(CorpusSource::Folder);
        let opened = sources.each_ref().map(|one| one.open(&OpenSettings::default()).unwrap());
        let error = check_parts(sources.iter().zip(&opened)).unwrap_err().to_string();
        assert_eq!(error, expected);
        check_parts([(&sources[1], &opened[1])]).unwrap();
    }

    fn check(parts: &[RangeInclusive<usize>]) -> Result<Vec<RangeInclusive<usize>>, String> {
        let source = CorpusSource::Folder("wiki".into());
        let part = |shards: &RangeInclusive<usize>| {
            (&source, Part { index: "wiki".into(), of: 8, shards: shards.clone() })
        };
        missing_shards(&mut parts.iter().map(part).collect::<Vec<_>>())
            .map_err(|error| error.to_string())
    }

    fn twice(shard: usize) -> Result<Vec<RangeInclusive<usize>>, String> {
        Err(format!(
            "the index wiki and the index wiki both count shard {shard} of the same index: name \
             each shard once"
        ))
    }

    #[test]
    fn shard_parts_must_cover_each_shard_once() {
        assert_eq!(check(&[4..=7, 0..=3]), Ok(vec![]));
        assert_eq!(check(&[0..=7]), Ok(vec![]));
        assert_eq!(check(&[6..=6, 0..=0, 1..=1]), Ok(vec![2..=5, 7..=7]));
        assert_eq!(check(&[4..=7, 0..=4]), twice(4));
        assert_eq!(check(&[0..=7, 2..=3]), twice(2));
        assert_eq!(check(&[5..=5, 1..=1, 5..=5]), twice(5));
        assert_eq!(check(&[0..=usize::MAX]), Ok(vec![]), "a server may report anything");
    }
}
