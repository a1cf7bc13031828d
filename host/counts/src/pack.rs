//! Packs: counts of known queries in one compressed file, for people without the index.
//!
//! A pack is a zstd stream of JSON lines: [`PackHeader`], then a [`Lookup`] for each query, in the order
//! of the queries. Its counts have no limit.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use corver_core::{BoxError, CorpusInfo, Count, CountPrecision, Counter, Lookup, Query};
use serde::{Deserialize, Serialize};

/// Version of the format.
const VERSION: u32 = 1;

/// Most bytes of a pack's text. A file of a megabyte may expand to far more.
const MAX_TEXT_BYTES: u64 = 4 << 30;

/// Level of the compression.
const LEVEL: i32 = 12;

/// First line of a pack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackHeader {
    /// Version of the format.
    #[serde(rename = "corver_pack")]
    pub version: u32,
    /// Fingerprint of the index.
    pub index: String,
    /// Size of the index, window and mode.
    pub corpus: CorpusInfo,
    /// Number of queries.
    pub queries: usize,
}

/// An error of a pack.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// The file cannot be read or written.
    #[error("cannot {action} the pack {}", path.display())]
    Io {
        /// Action that failed.
        action: &'static str,
        /// Path of the pack.
        path: PathBuf,
        /// Error of the operating system or of the decoder.
        source: io::Error,
    },
    /// The content is no pack of this version.
    #[error("{} is no pack: {problem}", path.display())]
    Invalid {
        /// Path of the pack.
        path: PathBuf,
        /// Reason.
        problem: String,
    },
}

/// Counts of known queries.
#[derive(Debug, Clone)]
pub struct Pack {
    header: PackHeader,
    /// Counts by the clauses of the query.
    counts: HashMap<Vec<Vec<String>>, Count>,
}

impl Pack {
    /// Reads a pack.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is no pack, is truncated, or has a query twice.
    pub fn open(path: &Path) -> Result<Self, PackError> {
        let io = |source| PackError::Io { action: "read", path: path.to_owned(), source };
        let invalid = |problem: String| PackError::Invalid { path: path.to_owned(), problem };
        let file = BufReader::new(File::open(path).map_err(io)?);
        let text = zstd::stream::read::Decoder::new(file).map_err(io)?.take(MAX_TEXT_BYTES);
        let mut lines = BufReader::new(text).split(b'\n');
        let first = lines.next().ok_or_else(|| invalid("it is empty".into()))?.map_err(io)?;
        let header: PackHeader =
            serde_json::from_slice(&first).map_err(|error| invalid(format!("line 1: {error}")))?;
        if header.version != VERSION {
            return Err(invalid(format!("its version is {}, not {VERSION}", header.version)));
        }
        let mut counts = HashMap::new();
        for (number, line) in lines.enumerate() {
            let line = line.map_err(io)?;
            let Lookup { query, count } = serde_json::from_slice(&line)
                .map_err(|error| invalid(format!("line {}: {error}", number + 2)))?;
            if count.precision == CountPrecision::AtLeast {
                return Err(invalid(format!("line {}: the count is a lower bound", number + 2)));
            }
            if counts.insert(query.all_of, count).is_some() {
                return Err(invalid(format!("line {}: the query is there twice", number + 2)));
            }
        }
        if counts.len() != header.queries {
            let (got, stated) = (counts.len(), header.queries);
            return Err(invalid(format!("it has {got} of {stated} queries: it is truncated")));
        }
        Ok(Self { header, counts })
    }

    /// Counts queries without their limits, and returns the pack's content. `index` is the fingerprint of
    /// the index.
    ///
    /// # Errors
    /// Fails if counting fails, or a count is a lower bound.
    pub fn encode(
        counter: &mut dyn Counter,
        index: &str,
        queries: impl IntoIterator<Item = Query>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Vec<u8>, BoxError> {
        let distinct: BTreeSet<Vec<Vec<String>>> =
            queries.into_iter().map(|query| query.all_of).collect();
        let header = PackHeader {
            version: VERSION,
            index: index.to_owned(),
            corpus: counter.info(),
            queries: distinct.len(),
        };
        let unlimited: Vec<Query> =
            distinct.into_iter().map(|all_of| Query { all_of, limit: None }).collect();
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), LEVEL)?;
        serde_json::to_writer(&mut encoder, &header)?;
        let mut num_counted = 0;
        for batch in unlimited.chunks(BATCH) {
            for (query, count) in batch.iter().zip(counter.count(batch)?) {
                if count.precision == CountPrecision::AtLeast {
                    return Err(format!("the count of {query} is a lower bound").into());
                }
                encoder.write_all(b"\n")?;
                serde_json::to_writer(&mut encoder, &Lookup { query: query.clone(), count })?;
            }
            num_counted += batch.len();
            progress(num_counted);
        }
        Ok(encoder.finish()?)
    }

    /// Returns the description of the index.
    #[must_use]
    pub fn header(&self) -> &PackHeader {
        &self.header
    }
}

/// Queries that are counted together.
const BATCH: usize = 4096;

/// A pack before another source of counts.
pub struct PackedCounter {
    pack: Pack,
    /// Source of the queries that the pack does not have. `None`: they have no count.
    next: Option<Box<dyn Counter>>,
    num_hits: u64,
    num_misses: u64,
}

impl PackedCounter {
    /// Creates a counter. Without `next`, a query that the pack does not have has no count.
    #[must_use]
    pub fn new(pack: Pack, next: Option<Box<dyn Counter>>) -> Self {
        Self { pack, next, num_hits: 0, num_misses: 0 }
    }
}

impl Counter for PackedCounter {
    fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
        let mut counts = vec![Count::exact(None); queries.len()];
        let mut numbers = Vec::new();
        let mut misses = Vec::new();
        for (number, query) in queries.iter().enumerate() {
            match self.pack.counts.get(&query.all_of) {
                Some(&count) => counts[number] = count,
                None => {
                    numbers.push(number);
                    misses.push(query.clone());
                }
            }
        }
        self.num_misses += misses.len() as u64;
        self.num_hits += (queries.len() - misses.len()) as u64;
        if let Some(next) = &mut self.next
            && !misses.is_empty()
        {
            for (number, count) in numbers.into_iter().zip(next.count(&misses)?) {
                counts[number] = count;
            }
        }
        Ok(counts)
    }

    fn info(&self) -> CorpusInfo {
        self.pack.header.corpus
    }
}

impl Drop for PackedCounter {
    fn drop(&mut self) {
        let Self { num_hits, num_misses, next, .. } = self;
        let num_queries = *num_hits + *num_misses;
        if next.is_some() {
            tracing::info!(
                "{num_misses} of {num_queries} queries were not in the pack: counted in the index"
            );
        } else if *num_misses > 0 {
            tracing::warn!(
                "{num_misses} of {num_queries} queries were not in the pack: without a count"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the letters of a query; `x` has no count, and that of `Größe` is an estimate.
    struct Letters;

    impl Counter for Letters {
        fn count(&mut self, queries: &[Query]) -> Result<Vec<Count>, BoxError> {
            let letters = |query: &Query| {
                let text = query.to_string();
                let count = Count::exact((text != "x").then_some(text.len() as u64));
                match text.as_str() {
                    "Größe" => Count { precision: CountPrecision::Estimate, ..count },
                    _ => count,
                }
            };
            Ok(queries.iter().map(letters).collect())
        }

        fn info(&self) -> CorpusInfo {
            CorpusInfo { tokens: Some(9), documents: Some(2), window: Some(100), mode: None }
        }
    }

    fn query(word: &str) -> Query {
        Query::new([[word]])
    }

    fn written(words: &[&str], folder: &Path) -> PathBuf {
        let queries = words.iter().map(|word| query(word));
        let bytes = Pack::encode(&mut Letters, "abc", queries, &mut |_| ()).unwrap();
        let path = folder.join("pack");
        std::fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn packed_counts_equal_the_source() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(&["Rome", "x", "Rome", "Größe"], folder.path());
        let pack = Pack::open(&path).unwrap();
        let expected =
            PackHeader { version: 1, index: "abc".into(), corpus: Letters.info(), queries: 3 };
        assert_eq!(*pack.header(), expected);
        let asked = ["Rome", "x", "Größe", "Peru"].map(query).map(|one| one.with_limit(Some(2)));
        let count = |next: Option<Box<dyn Counter>>| {
            PackedCounter::new(pack.clone(), next).count(&asked).unwrap()
        };
        let exact = |occurrences| Count::exact(occurrences);
        let estimate = Count { precision: CountPrecision::Estimate, ..exact(Some(7)) };
        assert_eq!(count(None), [exact(Some(4)), exact(None), estimate, exact(None)]);
        let with_index = count(Some(Box::new(Letters)));
        assert_eq!(with_index, [exact(Some(4)), exact(None), estimate, exact(Some(4))]);
    }

    #[test]
    fn damaged_pack_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(&["Rome", "Peru"], folder.path());
        let whole = std::fs::read(&path).unwrap();
        let text = zstd::stream::decode_all(&whole[..]).unwrap();
        let refusal = |bytes: Vec<u8>| {
            std::fs::write(&path, bytes).unwrap();
            Pack::open(&path).unwrap_err().to_string()
        };
        for length in 0..whole.len() {
            refusal(whole[..length].to_vec());
        }
        let packed = |text: &[u8]| zstd::stream::encode_all(text, 1).unwrap();
        let lines: Vec<&[u8]> = text.split(|&byte| byte == b'\n').collect();
        for (lines, problem) in [
            (vec![lines[0], lines[1]], "it has 1 of 2 queries: it is truncated"),
            (vec![lines[0], lines[1], lines[1]], "line 3: the query is there twice"),
            (vec![lines[0], b"[]", lines[1]], "line 2"),
            (vec![b"{\"corver_pack\":1}", lines[1]], "line 1: missing field"),
        ] {
            let error = refusal(packed(&lines.join(&b'\n')));
            assert!(error.contains(problem), "{problem}: {error}");
        }
        let newer =
            String::from_utf8(text).unwrap().replace("\"corver_pack\":1", "\"corver_pack\":2");
        assert!(refusal(packed(newer.as_bytes())).contains("its version is 2, not 1"));
    }
}
