//! The search index's fields, and its words.

use std::collections::BTreeMap;

use tantivy::schema::{
    FAST, Field, IndexRecordOption, STORED, Schema, TextFieldIndexing, TextOptions,
};
use tantivy::tokenizer::{LowerCaser, SimpleTokenizer, TextAnalyzer, TokenizerManager};

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
    /// The document's title in lower case, for searches by title. Absent if there is no title.
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
    title.to_lowercase()
}

pub(crate) fn tokenizers() -> TokenizerManager {
    let tokenizers = TokenizerManager::default();
    tokenizers.register(WORDS, analyzer());
    tokenizers
}

fn analyzer() -> TextAnalyzer {
    TextAnalyzer::builder(SimpleTokenizer::default()).filter(LowerCaser).build()
}

/// Returns the distinct words of a query, and the number of times that each occurs.
pub(crate) fn words(query: &str) -> BTreeMap<String, u32> {
    let mut words = BTreeMap::new();
    analyzer()
        .token_stream(query)
        .process(&mut |token| *words.entry(token.text.clone()).or_default() += 1);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_lowercase_letters_and_digits() {
        let words = words("The U.S. (in 1969), the ÉTÉ: title:x AND -y*");
        let words: Vec<(&str, u32)> =
            words.iter().map(|(word, number)| (word.as_str(), *number)).collect();
        let once = ["1969", "and", "in", "s", "title", "u", "x", "y", "été"].map(|word| (word, 1));
        let mut expected = [&once[..], &[("the", 2)]].concat();
        expected.sort_unstable();
        assert_eq!(words, expected);
    }
}
