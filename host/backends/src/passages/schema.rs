//! What the library keeps of a passage.

use std::collections::BTreeMap;

use tantivy::schema::{
    FAST, Field, IndexRecordOption, STORED, Schema, TextFieldIndexing, TextOptions,
};
use tantivy::tokenizer::{LowerCaser, SimpleTokenizer, TextAnalyzer, TokenizerManager};

/// The analyzer's name in the index.
const WORDS: &str = "words";
/// The library's own: the whole field is one term.
const RAW: &str = "raw";
/// The passages are sorted by it.
pub(crate) const NUMBER: &str = "number";

/// The fields of a passage.
#[derive(Debug, Clone)]
pub(crate) struct Fields {
    pub(crate) schema: Schema,
    /// Its number: documents in the order of the index, and their passages in that of the text.
    pub(crate) number: Field,
    /// The title in small letters, for searches in one document.
    pub(crate) key: Field,
    /// The document's title, as it is shown.
    pub(crate) title: Field,
    /// Its text.
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

/// The key of a title.
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

/// The words of a query, and how often each stands in it.
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
