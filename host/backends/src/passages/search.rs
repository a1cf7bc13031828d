//! Searching.

use corver_core::{Passage, Search};
use tantivy::collector::TopDocs;
use tantivy::query::{
    Bm25StatisticsProvider, BooleanQuery, BoostQuery, ConstScoreQuery, Occur, Query, TermQuery,
};
use tantivy::schema::{Field, IndexRecordOption, Value};
use tantivy::{DocAddress, Result, Score, Searcher, TantivyDocument, Term};

use crate::passages::schema::{Fields, key, words};

/// A place among the passages of one index.
pub(crate) type Hit = (Score, DocAddress);

/// A search in the library's terms; `None` where nothing can be found.
pub(crate) fn query(fields: &Fields, search: &Search) -> Option<Box<dyn Query>> {
    let words = words(&search.query);
    if words.is_empty() || search.k == 0 {
        return None;
    }
    let of_word = |(word, times): (String, u32)| -> Box<dyn Query> {
        let term =
            TermQuery::new(Term::from_field_text(fields.text, &word), IndexRecordOption::WithFreqs);
        if times == 1 {
            Box::new(term)
        } else {
            Box::new(BoostQuery::new(Box::new(term), times as Score))
        }
    };
    let any_word: Box<dyn Query> =
        Box::new(BooleanQuery::union(words.into_iter().map(of_word).collect()));
    let Some(title) = &search.title else { return Some(any_word) };
    let titled =
        TermQuery::new(Term::from_field_text(fields.key, &key(title)), IndexRecordOption::Basic);
    let titled: Box<dyn Query> = Box::new(ConstScoreQuery::new(Box::new(titled), 0.0));
    Some(Box::new(BooleanQuery::new(vec![(Occur::Must, titled), (Occur::Must, any_word)])))
}

/// The best `k` passages of one index, best first, and in the order of the text where scores are
/// equal.
pub(crate) fn top(
    searcher: &Searcher,
    query: &dyn Query,
    k: u32,
    statistics: &Statistics<'_>,
) -> Result<Vec<Hit>> {
    let k = (k as usize).min(searcher.num_docs() as usize).max(1); // the library reserves memory for as many
    searcher.search_with_statistics_provider(
        query,
        &TopDocs::with_limit(k).order_by_score(),
        statistics,
    )
}

/// The best `k` of several indexes, with the number of the index.
pub(crate) fn merge(found: Vec<Vec<Hit>>, k: u32) -> Vec<(Score, usize, DocAddress)> {
    let numbered = found.into_iter().enumerate();
    let mut all: Vec<_> = numbered
        .flat_map(|(member, hits)| {
            hits.into_iter().map(move |(score, place)| (score, member, place))
        })
        .collect();
    all.sort_by(|one, other| other.0.total_cmp(&one.0)); // stable: equal scores stay in the order of indexes and text
    all.truncate(k as usize);
    all
}

/// Of the passages of all indexes together.
pub(crate) struct Statistics<'a>(pub(crate) &'a [&'a Searcher]);

impl Bm25StatisticsProvider for Statistics<'_> {
    fn total_num_tokens(&self, field: Field) -> Result<u64> {
        self.0.iter().map(|searcher| searcher.total_num_tokens(field)).sum()
    }

    fn total_num_docs(&self) -> Result<u64> {
        self.0.iter().map(|searcher| searcher.total_num_docs()).sum()
    }

    fn doc_freq(&self, term: &Term) -> Result<u64> {
        self.0.iter().map(|searcher| searcher.doc_freq(term)).sum()
    }
}

impl Fields {
    pub(crate) fn passage(&self, document: &TantivyDocument) -> Passage {
        let text = |field| {
            let value = document.get_first(field).and_then(|value| value.as_str());
            value.unwrap_or_default().to_owned()
        };
        Passage { title: text(self.title), text: text(self.text) }
    }
}
