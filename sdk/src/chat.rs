//! Parsing a chat model's replies, and extracting claims with one.

use crate::{ChatPrompt, Corpus, Pending};

/// Instructions for a chat model to list the claims of a text; [`parse_bullets`] reads the reply.
pub const LIST_CLAIMS: &str = "List the facts that the text below states; it was written in reply to the question. One \
statement to a line, each line beginning with \"- \". A statement is a short sentence about a single fact that can be understood \
alone. Keep to the words of the text, and add nothing that it does not say. Where the text states no fact, reply NONE.";

/// Returns the claims that a chat model lists for `text`, without duplicates; `None` if none of
/// `tries` replies, one per round, can be parsed. `instructions` are [`LIST_CLAIMS`] or others that
/// request such a list. Needs [`crate::Capability::Chat`].
///
/// # Errors
/// [`Pending`] if a reply is missing.
pub fn extract_claims(
    corpus: &Corpus,
    instructions: &str,
    question: &str,
    text: &str,
    tries: u32,
) -> Result<Option<Vec<String>>, Pending> {
    let fields = [("question", question), ("text", text)];
    let tagged = ChatPrompt::tagged(instructions, &fields);
    for seed in 0..tries {
        let prompt =
            ChatPrompt { temperature: 1.0, max_tokens: 4096, seed: Some(seed), ..tagged.clone() };
        for reply in corpus.chats([prompt])? {
            if let Some(claims) = parse_bullets(&reply) {
                return Ok(Some(claims));
            }
        }
    }
    Ok(None)
}

/// Returns the items of a bulleted list, without duplicates: the lines that begin with `- ` or `* `.
/// The word NONE alone is an empty list. `None` if the reply is neither.
#[must_use]
pub fn parse_bullets(reply: &str) -> Option<Vec<String>> {
    let mut items: Vec<String> = Vec::new();
    for line in reply.lines() {
        let bullet = line.trim().strip_prefix(['-', '*']);
        let Some(item) = bullet.and_then(|rest| rest.strip_prefix(' ')).map(str::trim) else {
            continue;
        };
        if !item.is_empty() && !items.iter().any(|other| other == item) {
            items.push(item.to_owned());
        }
    }
    (!items.is_empty() || has_word(reply, "NONE")).then_some(items)
}

/// Returns true if the text contains this word or phrase, in this case, and not as part of a longer
/// word. Letters, digits and `_` form words.
///
/// ```
/// assert!(corver_sdk::chat::has_word("(CORRECT)", "CORRECT"));
/// assert!(!corver_sdk::chat::has_word("INCORRECT", "CORRECT"));
/// ```
#[must_use]
pub fn has_word(text: &str, word: &str) -> bool {
    let is_word_char = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(start, matched)| {
        !text[..start].ends_with(is_word_char)
            && !text[start + matched.len()..].starts_with(is_word_char)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CorpusInfo, Reply, Request};

    #[test]
    fn bulleted_reply_is_parsed() {
        let items = |reply| parse_bullets(reply).map(|items| items.join("|"));
        assert_eq!(
            items("- Rome is old.\n- It is in Italy.").unwrap(),
            "Rome is old.|It is in Italy."
        );
        assert_eq!(
            items("Here they are:\n\n * Rome is old. \n-  \n- Rome is old.\n").unwrap(),
            "Rome is old."
        );
        assert_eq!(items("NONE").unwrap(), "");
        assert_eq!(items("- NONE of them is in Italy.").unwrap(), "NONE of them is in Italy.");
        assert_eq!(
            [items(""), items("Rome is old."), items("-5"), items("NONEXISTENT")],
            [None, None, None, None]
        );
    }

    #[test]
    fn has_word_matches_entire_words_only() {
        assert!(has_word("it is A.", "A") && has_word("A", "A") && has_word("BA A", "A"));
        assert!(!has_word("BANANA", "A") && !has_word("A_B", "A") && !has_word("éA", "A"));
        assert!(
            has_word("NOT ATTEMPTED", "NOT ATTEMPTED") && !has_word("NOT_ATTEMPTED", "ATTEMPTED")
        );
    }

    #[test]
    fn unreadable_reply_is_retried_with_new_seed() {
        let replied = |replies: &[&str]| {
            let replies: Vec<Reply> =
                replies.iter().map(|reply| Reply::Chat((*reply).to_owned())).collect();
            extract_claims(
                &Corpus::new(
                    CorpusInfo { tokens: None, documents: None, window: None, mode: None },
                    &replies,
                ),
                "List.",
                "Who?",
                "He.",
                2,
            )
        };
        let seed = |outcome: Result<_, Pending>| match &outcome
            .map(|_: Option<Vec<String>>| ())
            .unwrap_err()
            .0[..]
        {
            [Request::Chat(prompt)] => prompt.seed,
            other => panic!("{other:?}"),
        };
        assert_eq!((seed(replied(&[])), seed(replied(&["Well."]))), (Some(0), Some(1)));
        assert_eq!(replied(&["Well.", "- He is."]), Ok(Some(vec!["He is.".to_owned()])));
        assert_eq!(replied(&["NONE"]), Ok(Some(Vec::new())));
        assert_eq!(replied(&["Well.", "Well."]), Ok(None));
    }
}
