//! A search as a query of the search library, and the ranking of its hits.

use corver_core::{Passage, Search};
use tantivy::collector::TopDocs;
use tantivy::query::{
    Bm25StatisticsProvider, BooleanQuery, BoostQuery, ConstScoreQuery, Occur, Query, TermQuery,
};
use tantivy::schema::{Field, IndexRecordOption, Value};
use tantivy::{DocAddress, Result, Score, Searcher, TantivyDocument, Term};

use crate::passages::schema::{Fields, count_words, key};

/// The score and address of a passage of one index.
pub(crate) type Hit = (Score, DocAddress);

/// Returns the library's query for a search. `None`: no passage can match.
pub(crate) fn query(fields: &Fields, search: &Search) -> Option<Box<dyn Query>> {
    let words = count_words(&search.query);
    if words.is_empty() || search.k == 0 {
        return None;
    }
    let mut word_queries: Vec<Box<dyn Query>> = Vec::with_capacity(words.len());
    for (word, times) in words {
        let term = Term::from_field_text(fields.text, &word);
        let term = TermQuery::new(term, IndexRecordOption::WithFreqs);
        word_queries.push(if times == 1 {
            Box::new(term)
        } else {
            Box::new(BoostQuery::new(Box::new(term), times as Score))
        });
    }
    let any_word: Box<dyn Query> = Box::new(BooleanQuery::union(word_queries));
    let Some(title) = &search.title else { return Some(any_word) };
    let term = Term::from_field_text(fields.key, &key(title));
    let titled = TermQuery::new(term, IndexRecordOption::Basic);
    // The title selects passages and must not change their scores.
    let titled: Box<dyn Query> = Box::new(ConstScoreQuery::new(Box::new(titled), 0.0));
    Some(Box::new(BooleanQuery::new(vec![(Occur::Must, titled), (Occur::Must, any_word)])))
}

/// Returns the best `k` passages of one index, best first; equal scores are in the order of the
/// text.
pub(crate) fn top(
    searcher: &Searcher,
    query: &dyn Query,
    k: u32,
    statistics: &Statistics<'_>,
) -> Result<Vec<Hit>> {
    // The library allocates memory for as many passages as are requested.
    let limit = (k as usize).min(searcher.num_docs() as usize).max(1);
    searcher.search_with_statistics_provider(
        query,
        &TopDocs::with_limit(limit).order_by_score(),
        statistics,
    )
}

/// Returns the best `k` hits of several indexes, each with the number of its index.
pub(crate) fn merge(hits: Vec<Vec<Hit>>, k: u32) -> Vec<(Score, usize, DocAddress)> {
    let mut merged = Vec::new();
    for (number, of_index) in hits.into_iter().enumerate() {
        for (score, address) in of_index {
            merged.push((score, number, address));
        }
    }
    // A stable sort keeps equal scores in the order of indexes and text.
    merged.sort_by(|one, other| other.0.total_cmp(&one.0));
    merged.truncate(k as usize);
    merged
}

/// Word statistics over the passages of all indexes.
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
        Passage { title: stored_text(document, self.title), text: stored_text(document, self.text) }
    }
}

fn stored_text(document: &TantivyDocument, field: Field) -> String {
    let value = document.get_first(field).and_then(|value| value.as_str());
    value.unwrap_or_default().to_owned()
}
