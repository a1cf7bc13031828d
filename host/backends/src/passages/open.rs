//! Opening passages.

use std::panic::{AssertUnwindSafe, catch_unwind};

use corver_core::{BoxError, Passage, Retriever, Search};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use tantivy::directory::MmapDirectory;
use tantivy::{Index, ReloadPolicy, Searcher, TantivyError};

use crate::passages::read_only::ReadOnly;
use crate::passages::schema::{Fields, tokenizers};
use crate::passages::search::{Statistics, merge, query, top};
use crate::passages::{PassageError, PassageManifest, Place};

/// The passages of one or several indexes, searched as one: scores are those that one index of all
/// the passages would give, since the frequencies of words and the average length are taken over
/// all of them.
pub struct Passages {
    members: Vec<Member>,
    fields: Fields,
}

/// The passages of one index.
struct Member {
    place: Place,
    manifest: PassageManifest,
    searcher: Searcher,
}

impl Passages {
    /// Opens passages that are whole and belong to the indexes as they are now. Nothing is written.
    ///
    /// # Errors
    /// Where no place is named; or passages are missing, stale or damaged: with the command that
    /// makes them anew.
    pub fn open(places: &[Place]) -> Result<Self, PassageError> {
        if places.is_empty() {
            let problem = "no index is named whose passages are to be searched".to_owned();
            return Err(PassageError::InvalidArgument(problem));
        }
        let members = places.iter().map(Member::open).collect::<Result<_, _>>()?;
        Ok(Self { members, fields: Fields::default() })
    }

    /// What each index's passages say of themselves.
    pub fn manifests(&self) -> impl Iterator<Item = &PassageManifest> {
        self.members.iter().map(|member| &member.manifest)
    }

    /// The passages of a search with their scores, best first. Equal scores: in the order of the
    /// indexes, and of the text in each.
    ///
    /// # Errors
    /// Where passages are damaged.
    pub fn search(&self, search: &Search) -> Result<Vec<(f32, Passage)>, PassageError> {
        let Some(query) = query(&self.fields, search) else { return Ok(Vec::new()) };
        let searchers: Vec<&Searcher> =
            self.members.iter().map(|member| &member.searcher).collect();
        let statistics = Statistics(&searchers);
        let find = |member: &Member| {
            member.guarded(|| top(&member.searcher, &*query, search.k, &statistics))
        };
        let found = self.members.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        let passage = |(score, member, place)| {
            let member: &Member = &self.members[member];
            let read = || {
                let document = member.searcher.doc(place)?;
                Ok(self.fields.passage(&document))
            };
            Ok((score, member.guarded(read)?))
        };
        merge(found, search.k).into_iter().map(passage).collect()
    }
}

impl Retriever for Passages {
    fn passages(&mut self, searches: &[Search]) -> Result<Vec<Vec<Passage>>, BoxError> {
        let texts = |search: &Search| -> Result<Vec<Passage>, PassageError> {
            Ok(self.search(search)?.into_iter().map(|(_, passage)| passage).collect())
        };
        Ok(searches.par_iter().map(texts).collect::<Result<_, _>>()?)
    }
}

impl Member {
    fn open(place: &Place) -> Result<Self, PassageError> {
        let manifest = PassageManifest::load(place)?;
        let open = || {
            let mut index = Index::open(ReadOnly(MmapDirectory::open(place.folder())?))?;
            index.set_tokenizers(tokenizers());
            let reader = index.reader_builder().reload_policy(ReloadPolicy::Manual).try_into()?;
            Ok((index.schema(), reader.searcher()))
        };
        let (schema, searcher) = guarded(place, open)?;
        if schema != Fields::default().schema || searcher.num_docs() != manifest.passages {
            return Err(place.damaged("the files do not belong together"));
        }
        Ok(Self { place: place.clone(), manifest, searcher })
    }

    fn guarded<T>(
        &self,
        work: impl FnOnce() -> Result<T, TantivyError>,
    ) -> Result<T, PassageError> {
        guarded(&self.place, work)
    }
}

/// Runs the library on files that may be damaged; it panics over some of them.
fn guarded<T>(
    place: &Place,
    work: impl FnOnce() -> Result<T, TantivyError>,
) -> Result<T, PassageError> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|error| place.damaged(error)),
        Err(_) => Err(place.damaged("the search library panicked")),
    }
}
