//! Parts of one index in several places: a shard that two of them count would be counted twice.

use std::collections::BTreeMap;

use corver_corpus::Part;

use crate::{Opened, Source, SourceError};

/// Checks that no two of these count the same shard, and warns where they leave one out. Only an index of ours says what it has,
/// and only a server of ours.
///
/// # Errors
/// Where two count the same shard, or an index folder cannot be read.
pub fn check_parts<'s>(opened: impl IntoIterator<Item = (&'s Source, &'s Opened)>) -> Result<(), SourceError> {
    let mut indexes: BTreeMap<String, Vec<(&Source, Part)>> = BTreeMap::new();
    for (source, opened) in opened {
        if let Some(part) = opened.part()? {
            indexes.entry(part.index.clone()).or_default().push((source, part));
        }
    }
    indexes.into_values().try_for_each(check)
}

/// The parts of one index.
fn check(mut parts: Vec<(&Source, Part)>) -> Result<(), SourceError> {
    parts.sort_by_key(|(_, part)| *part.shards.start());
    for pair in parts.windows(2) {
        let [(one, before), (other, after)] = pair else { continue };
        if after.shards.start() <= before.shards.end() {
            let (one, other) = (one.to_string(), other.to_string());
            return Err(SourceError::CountedTwice { shard: *after.shards.start(), one, other });
        }
    }
    let Some((source, part)) = parts.first() else { return Ok(()) };
    let missing: Vec<usize> =
        (0..part.of).filter(|shard| !parts.iter().any(|(_, part)| part.shards.contains(shard))).collect();
    if !missing.is_empty() {
        tracing::warn!(%source, of = part.of, ?missing, "shards of this index are not counted");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn twice(parts: &[(usize, usize)]) -> Option<usize> {
        let source = Source::Folder("wiki".into());
        let part = |&(first, last)| (&source, Part { index: "wiki".into(), of: 8, shards: first..=last });
        match check(parts.iter().map(part).collect()) {
            Ok(()) => None,
            Err(SourceError::CountedTwice { shard, .. }) => Some(shard),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn a_shard_is_counted_once() {
        assert_eq!(twice(&[(4, 7), (0, 3)]), None);
        assert_eq!(twice(&[(0, 0), (7, 7)]), None, "some are left out");
        assert_eq!(twice(&[(4, 7), (0, 4)]), Some(4));
        assert_eq!(twice(&[(0, 7), (2, 3)]), Some(2));
        assert_eq!(twice(&[(5, 5), (1, 1), (5, 5)]), Some(5));
    }
}
