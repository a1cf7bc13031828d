//! The words of a text, as passages are searched by them.
//!
//! The text is normalised (NFKC) and in lower case, so that composed and decomposed letters, and
//! narrow and wide ones, are the same. A word is a run of letters, digits and their marks. Where a
//! script has no spaces, as Chinese, Japanese and Thai, each character is a word (UAX #29).

use tantivy::tokenizer::{Token, TokenStream, Tokenizer};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;
use unicode_segmentation::UnicodeSegmentation;

/// The analyzer of the search library that returns [`words`].
#[derive(Debug, Clone, Default)]
pub(crate) struct WordTokenizer;

/// The words of one text.
pub(crate) struct WordStream {
    words: std::vec::IntoIter<String>,
    token: Token,
}

impl Tokenizer for WordTokenizer {
    type TokenStream<'a> = WordStream;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> WordStream {
        WordStream { words: words(text).into_iter(), token: Token::default() }
    }
}

impl TokenStream for WordStream {
    fn advance(&mut self) -> bool {
        let Some(word) = self.words.next() else { return false };
        self.token.text = word;
        self.token.position = self.token.position.wrapping_add(1);
        true
    }

    fn token(&self) -> &Token {
        &self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        &mut self.token
    }
}

/// Returns a text in the form in which texts are compared.
pub(crate) fn normalise(text: &str) -> String {
    text.nfkc().collect::<String>().to_lowercase()
}

/// Returns the words of a text, in order.
pub(crate) fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for segment in normalise(text).unicode_words() {
        // A segment may hold apostrophes and full stops: `can't`, `3.14`.
        for word in segment.split(|c: char| !is_word_char(c)) {
            // A mark alone has no letter that it belongs to.
            if word.contains(char::is_alphanumeric) {
                words.push(word.to_owned());
            }
        }
    }
    words
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || is_combining_mark(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_lowercase_letters_and_digits() {
        assert_eq!(
            words("The U.S. (in 1969), the ÉTÉ: title:x AND -y* can't 3.14"),
            [
                "the", "u", "s", "in", "1969", "the", "été", "title", "x", "and", "y", "can", "t",
                "3", "14"
            ]
        );
    }

    #[test]
    fn scripts_without_spaces_have_words_of_one_character() {
        assert_eq!(words("巴黎是法国的首都。"), ["巴", "黎", "是", "法", "国", "的", "首", "都"]);
        assert_eq!(words("東京タワーへ"), ["東", "京", "タワー", "へ"]);
        assert_eq!(words("กินข้าว").concat(), "กินข้าว");
        assert_eq!(words("서울은 수도"), ["서울은", "수도"]);
        assert_eq!(words("हिन्दी भाषा"), ["हिन्दी", "भाषा"]);
    }

    #[test]
    fn forms_of_the_same_letter_are_equal() {
        assert_eq!(words("Cafe\u{301} ２０２４ ﬁn ﾀﾜｰ"), words("café 2024 fin タワー"));
        assert_eq!(words("\u{301} — …"), [] as [&str; 0]);
    }
}
