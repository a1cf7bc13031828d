//! Word lists by language, for the ends of sentences, names, answers and refusals. The paper has
//! English only.

mod chinese;
mod english;
mod french;
mod german;
mod spanish;

use std::sync::LazyLock;

use regex::Regex;
use unicode_normalization::UnicodeNormalization;

use crate::text::{is_space, strip};
use crate::{Claim, Language, Triplet};

/// Word lists of a language, in lower case.
#[derive(Debug)]
pub(crate) struct LanguageWords {
    /// Articles: no part of an answer, nor of a name that is counted.
    pub(crate) articles: &'static [&'static str],
    /// Pronouns: they name nothing by themselves.
    pub(crate) pronouns: &'static [&'static str],
    /// Other words that begin sentences and questions, and name nothing; none of `elided`.
    pub(crate) function_words: &'static [&'static str],
    /// Abbreviations before a name or an explanation: their full stop ends no sentence.
    pub(crate) never_last: &'static [&'static str],
    /// Abbreviations that may be the last word of a sentence: the next word decides.
    pub(crate) perhaps_last: &'static [&'static str],
    /// Words that lose their vowel before a vowel, without the apostrophe, such as “l” and “qu”.
    pub(crate) elided: &'static [&'static str],
    /// Pattern of short words within a name, as in “Bank of England”.
    pub(crate) particles: &'static str,
    /// Pattern of short words within a name that an apostrophe joins to the next word; may be empty.
    pub(crate) elided_particles: &'static str,
    /// Pattern of a title between guillemets, which is the group `guillemets`.
    pub(crate) title: &'static str,
    /// Answers that refuse, without punctuation at their end.
    pub(crate) refusals: &'static [&'static str],
}

/// Returns the word lists of a language.
pub(crate) fn words_of(language: Language) -> &'static LanguageWords {
    match language {
        Language::English => &english::WORDS,
        Language::German => &german::WORDS,
        Language::Spanish => &spanish::WORDS,
        Language::French => &french::WORDS,
        Language::Chinese => &chinese::WORDS,
    }
}

impl LanguageWords {
    /// Returns true if a word, in lower case, is an article, a pronoun, a function word or elided.
    pub(crate) fn name_nothing(&self, word: &str) -> bool {
        let lists = [self.articles, self.pronouns, self.function_words, self.elided];
        lists.iter().any(|list| list.contains(&word))
    }

    /// Returns true if a name is a pronoun.
    pub(crate) fn is_pronoun(&self, name: &str) -> bool {
        self.pronouns.contains(&name.to_lowercase().as_str())
    }
}

/// Returns true if a word, in lower case, is an article, a pronoun, or another word that names
/// nothing and begins sentences or questions.
#[must_use]
pub fn is_function_word(word: &str, language: Language) -> bool {
    words_of(language).name_nothing(word)
}

/// Returns triplets without articles at their ends, and without those that have a pronoun for an end.
/// Rules do this for English themselves (paper, “Sentence to count”), and know no other language.
#[must_use]
pub fn bare_triplets(triplets: Vec<Triplet>, language: Language) -> Vec<Triplet> {
    triplets.into_iter().filter_map(|triplet| bare_triplet(triplet, language)).collect()
}

/// Returns a triplet without articles at its ends; `None` if an end is a pronoun. See
/// [`bare_triplets`].
#[must_use]
pub fn bare_triplet(triplet: Triplet, language: Language) -> Option<Triplet> {
    if language == Language::English {
        return Some(triplet);
    }
    let [head, tail] = [&triplet.head, &triplet.tail].map(|end| without_article(end, language));
    if [head, tail].iter().any(|end| words_of(language).is_pronoun(end)) {
        return None;
    }
    Some(Triplet { head: head.to_owned(), tail: tail.to_owned(), relation: triplet.relation })
}

/// Returns a claim without articles at its ends; `None` if an end is a pronoun. See [`bare_triplets`].
#[must_use]
pub fn bare_claim(claim: Claim, language: Language) -> Option<Claim> {
    match claim {
        Claim::Fact(fact) => bare_triplet(fact, language).map(Claim::Fact),
        Claim::Mention { .. } if language == Language::English => Some(claim),
        Claim::Mention { head, relation } => {
            let head = without_article(&head, language).to_owned();
            (!words_of(language).is_pronoun(&head)).then_some(Claim::Mention { head, relation })
        }
    }
}

/// Returns a name without the article before it, which an apostrophe may end in French: `l'Europe`.
#[must_use]
pub fn without_article(name: &str, language: Language) -> &str {
    let name = strip(name);
    let words = words_of(language);
    let is_end = |c: char| is_space(c) || (!words.elided.is_empty() && matches!(c, '\'' | '’'));
    let Some(end) = name.find(is_end) else { return name };
    let rest = name[end..].trim_start_matches(is_end);
    let is_article = words.articles.contains(&name[..end].to_lowercase().as_str());
    if is_article && !rest.is_empty() { rest } else { name }
}

/// Returns a text of another language than English in NFKC and lower case, without articles and
/// punctuation, its words joined by a space. A Chinese character is a word.
pub(crate) fn normalize(text: &str, language: Language) -> String {
    static WORD: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\p{Han}|[\p{L}\p{M}\p{N}_--\p{Han}]+").expect("the pattern is constant")
    });
    let lowered = text.nfkc().collect::<String>().to_lowercase();
    let articles = words_of(language).articles;
    let words = WORD.find_iter(&lowered).map(|word| word.as_str());
    words.filter(|word| !articles.contains(word)).collect::<Vec<_>>().join(" ")
}

/// Returns true if an answer refuses. In English a full stop after it is not accepted, as in the paper.
pub(crate) fn is_refusal(answer: &str, language: Language) -> bool {
    let lowered = answer.to_lowercase();
    let mut text = strip(&lowered).to_owned();
    if language != Language::English {
        text = text.nfc().collect();
        text = strip(text.trim_end_matches(['.', '!', '。', '！'])).replace('’', "'");
    }
    words_of(language).refusals.contains(&text.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn triplet(head: &str, tail: &str) -> Triplet {
        let [head, relation, tail] = [head, "r", tail].map(str::to_owned);
        Triplet { head, relation, tail }
    }

    fn bare(language: Language, head: &str, tail: &str) -> Option<(String, String)> {
        bare_triplet(triplet(head, tail), language).map(|bare| (bare.head, bare.tail))
    }

    #[test]
    fn triplets_lose_articles_and_pronouns_except_in_english() {
        let pair = |head: &str, tail: &str| Some((head.to_owned(), tail.to_owned()));
        let german = bare(Language::German, "Die Donau", "das Schwarze Meer");
        assert_eq!(german, pair("Donau", "Schwarze Meer"));
        assert_eq!(bare(Language::German, "Er", "Ulm"), None);
        assert_eq!(bare(Language::French, "L’Europe", "la Seine"), pair("Europe", "Seine"));
        assert_eq!(bare(Language::French, "Elle", "1885"), None);
        assert_eq!(bare(Language::Spanish, "El Quijote", "los Andes"), pair("Quijote", "Andes"));
        assert_eq!(bare(Language::Chinese, "长江", "上海"), pair("长江", "上海"));
        assert_eq!(bare(Language::Chinese, "长江", "它"), None);
        // The rule does it in English.
        assert_eq!(bare(Language::English, "The Danube", "it"), pair("The Danube", "it"));
    }

    #[test]
    fn article_alone_is_a_name() {
        assert_eq!(without_article("Die", Language::German), "Die");
        assert_eq!(without_article("La ", Language::French), "La");
        assert_eq!(without_article("d'Artagnan", Language::French), "d'Artagnan");
    }

    #[test]
    fn other_languages_are_normalised_with_their_accents() {
        let normalized = |text, language| normalize(text, language);
        assert_eq!(normalized("Der Dvořák-Platz!", Language::German), "dvořák platz");
        assert_eq!(normalized("L’Île de la Cité", Language::French), "île de cité");
        assert_eq!(normalized("l'île de la Cité", Language::French), "île de cité");
        assert_eq!(normalized("１９８４年，北京。", Language::Chinese), "1984 年 北 京");
    }

    #[test]
    fn refusals_end_with_or_without_full_stop() {
        for (answer, language) in [
            ("Ich weiß es nicht.", Language::German),
            ("No lo sé", Language::Spanish),
            ("Je ne sais pas !", Language::French),
            ("我不知道。", Language::Chinese),
        ] {
            assert!(is_refusal(answer, language), "{answer}");
        }
        assert!(!is_refusal("Weiß", Language::German));
        assert!(!is_refusal("I don't know", Language::German));
        assert!(is_refusal("I don't know", Language::English));
    }
}
