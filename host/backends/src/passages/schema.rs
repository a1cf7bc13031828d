//! The search index's fields, and the words of a query.

use std::collections::BTreeMap;

use tantivy::schema::{
    FAST, Field, IndexRecordOption, STORED, Schema, TextFieldIndexing, TextOptions,
};
use tantivy::tokenizer::TokenizerManager;

use crate::passages::words::{WordTokenizer, normalise, words};

/// Name of the analyzer in the index.
const WORDS: &str = "words";
/// The library's analyzer that makes the entire field one term.
const RAW: &str = "raw";
/// Name of the field by which the passages are sorted.
pub(crate) const NUMBER: &str = "number";

/// The schema, and the fields of a passage.
#[derive(Debug, Clone)]
pub(crate) struct Fields {
    pub(crate) schema: Schema,
    /// Number of the passage, in the order of the index's documents and of their text.
    pub(crate) number: Field,
    /// The document's title in normal form, for searches by title. Absent if there is no title.
    pub(crate) key: Field,
    /// The document's title. Absent if there is none.
    pub(crate) title: Field,
    /// The text of the passage.
    pub(crate) text: Field,
}

impl Default for Fields {
    fn default() -> Self {
        let indexed = |tokenizer: &str, record, lengths| {
            let indexing = TextFieldIndexing::default().set_tokenizer(tokenizer);
            TextOptions::default()
                .set_indexing_options(indexing.set_index_option(record).set_fieldnorms(lengths))
        };
        let mut schema = Schema::builder();
        let number = schema.add_u64_field(NUMBER, FAST);
        let key = schema.add_text_field("key", indexed(RAW, IndexRecordOption::Basic, false));
        let title = schema.add_text_field("title", STORED);
        let text = schema
            .add_text_field("text", indexed(WORDS, IndexRecordOption::WithFreqs, true) | STORED);
        Self { schema: schema.build(), number, key, title, text }
    }
}

/// Returns the form in which titles are compared.
pub(crate) fn key(title: &str) -> String {
    normalise(title)
}

pub(crate) fn tokenizers() -> TokenizerManager {
    let tokenizers = TokenizerManager::default();
    tokenizers.register(WORDS, WordTokenizer);
    tokenizers
}

/// Returns the distinct words of a query, and the number of times that each occurs.
pub(crate) fn count_words(query: &str) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for word in words(query) {
        *counts.entry(word).or_default() += 1;
    }
    counts
}
