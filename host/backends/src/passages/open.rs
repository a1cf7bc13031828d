//! Searching the passages of one or several indexes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use corver_core::{BoxError, Passage, Retriever, Search};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use tantivy::directory::MmapDirectory;
use tantivy::{Index, ReloadPolicy, Searcher, TantivyError};

use crate::passages::read_only::ReadOnly;
use crate::passages::schema::{Fields, tokenizers};
use crate::passages::search::{Statistics, merge, query, top};
use crate::passages::{PassageError, PassageLocation, PassageManifest};

/// The passages of one or several indexes, searched as one.
///
/// Scores are those of a single index over all passages: word frequencies and the mean length are
/// taken over all of them.
pub struct PassageIndex {
    members: Vec<Member>,
    fields: Fields,
}

/// The passages of a single index.
struct Member {
    location: PassageLocation,
    searcher: Searcher,
}

impl PassageIndex {
    /// Opens complete passages that belong to the indexes in their present state. Writes nothing.
    ///
    /// # Errors
    /// Fails if `locations` is empty, or passages are missing, stale or damaged. The message names
    /// the command that builds them.
    pub fn open(locations: &[PassageLocation]) -> Result<Self, PassageError> {
        if locations.is_empty() {
            let problem = "no index is named whose passages are to be searched".to_owned();
            return Err(PassageError::InvalidArgument(problem));
        }
        let members = locations.iter().map(Member::open).collect::<Result<_, _>>()?;
        Ok(Self { members, fields: Fields::default() })
    }

    /// Returns up to `k` passages with their scores, best first. Equal scores are in the order of
    /// the indexes, and of the text within an index.
    ///
    /// # Errors
    /// Fails if passages are damaged.
    pub fn search(&self, search: &Search) -> Result<Vec<(f32, Passage)>, PassageError> {
        let Some(query) = query(&self.fields, search) else { return Ok(Vec::new()) };
        let searchers: Vec<&Searcher> =
            self.members.iter().map(|member| &member.searcher).collect();
        let statistics = Statistics(&searchers);
        let mut hits = Vec::with_capacity(self.members.len());
        for member in &self.members {
            hits.push(guarded(&member.location, || {
                top(&member.searcher, &*query, search.k, &statistics)
            })?);
        }
        let mut passages = Vec::new();
        for (score, number, address) in merge(hits, search.k) {
            let member = &self.members[number];
            let document = guarded(&member.location, || member.searcher.doc(address))?;
            passages.push((score, self.fields.passage(&document)));
        }
        Ok(passages)
    }
}

impl Retriever for PassageIndex {
    fn passages(&mut self, searches: &[Search]) -> Result<Vec<Vec<Passage>>, BoxError> {
        let found: Vec<Vec<(f32, Passage)>> =
            searches.par_iter().map(|search| self.search(search)).collect::<Result<_, _>>()?;
        let mut replies = Vec::with_capacity(found.len());
        for hits in found {
            replies.push(hits.into_iter().map(|(_, passage)| passage).collect());
        }
        Ok(replies)
    }
}

impl Member {
    fn open(location: &PassageLocation) -> Result<Self, PassageError> {
        let manifest = PassageManifest::load(location)?;
        let searcher = guarded(location, || open_searcher(location.folder()))?;
        if *searcher.schema() != Fields::default().schema
            || searcher.num_docs() != manifest.passages
        {
            return Err(location.damaged("the files do not belong together"));
        }
        Ok(Self { location: location.clone(), searcher })
    }
}

fn open_searcher(folder: &Path) -> Result<Searcher, TantivyError> {
    let mut index = Index::open(ReadOnly(MmapDirectory::open(folder)?))?;
    index.set_tokenizers(tokenizers());
    let reader = index.reader_builder().reload_policy(ReloadPolicy::Manual).try_into()?;
    Ok(reader.searcher())
}

/// Runs the search library on files that may be damaged. It panics on some of them.
fn guarded<T>(
    location: &PassageLocation,
    work: impl FnOnce() -> Result<T, TantivyError>,
) -> Result<T, PassageError> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|error| location.damaged(error)),
        Err(_) => Err(location.damaged("the search library panicked")),
    }
}
