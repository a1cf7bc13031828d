//! Reading what a chat model replies, and having one list the statements of a text.

use crate::{Ask, Corpus, Prompt};

/// What a chat model is told before a text whose statements it is to list; [`listed`] reads its
/// reply.
pub const LIST_STATEMENTS: &str = "List the facts that the text below states; it was written in reply to the question. One \
statement to a line, each line beginning with \"- \". A statement is a short sentence about a single fact that can be understood \
alone. Keep to the words of the text, and add nothing that it does not say. Where the text states no fact, reply NONE.";

/// The statements that a chat model lists of `text`, each once; `None` where none of `tries`
/// replies, one a round, could be read. `instructions` are [`LIST_STATEMENTS`] or others that ask
/// for such a list. Needs [`crate::Verifier::Chat`].
///
/// # Errors
/// [`Ask`] where a reply is not there yet.
pub fn statements(
    corpus: &Corpus,
    instructions: &str,
    question: &str,
    text: &str,
    tries: u32,
) -> Result<Option<Vec<String>>, Ask> {
    let fields = [("question", question), ("text", text)];
    let prompt =
        Prompt { temperature: 1.0, max_tokens: 4096, ..Prompt::tagged(instructions, &fields) };
    for seed in 0..tries {
        let replies = corpus.chats([Prompt { seed: Some(seed), ..prompt.clone() }])?;
        if let Some(listed) = replies.first().and_then(|reply| listed(reply)) {
            return Ok(Some(listed));
        }
    }
    Ok(None)
}

/// The lines of a reply that begin with `- ` or `* `, without that, each once; no lines for NONE.
/// `None` where it is neither.
#[must_use]
pub fn listed(reply: &str) -> Option<Vec<String>> {
    let item = |line: &str| {
        line.trim().strip_prefix(['-', '*'])?.strip_prefix(' ').map(|item| item.trim().to_owned())
    };
    let mut items: Vec<String> = Vec::new();
    for statement in reply.lines().filter_map(item).filter(|text| !text.is_empty()) {
        if !items.contains(&statement) {
            items.push(statement);
        }
    }
    (!items.is_empty() || has_word(reply, "NONE")).then_some(items)
}

/// Whether the text holds this word (or these words) in this case, and not as part of a longer one.
/// Letters, digits and `_` make words.
///
/// ```
/// assert!(corver_sdk::has_word("(CORRECT)", "CORRECT"));
/// assert!(!corver_sdk::has_word("INCORRECT", "CORRECT"));
/// ```
#[must_use]
pub fn has_word(text: &str, word: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(start, found)| {
        !text[..start].ends_with(goes_on) && !text[start + found.len()..].starts_with(goes_on)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CorpusSize, Reply, Request};

    #[test]
    fn bulleted_reply_is_parsed() {
        let items = |reply| listed(reply).map(|items| items.join("|"));
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
            statements(
                &Corpus::new(CorpusSize { tokens: None, documents: None }, &replies),
                "List.",
                "Who?",
                "He.",
                2,
            )
        };
        let seed =
            |ask: Result<_, Ask>| match &ask.map(|_: Option<Vec<String>>| ()).unwrap_err().0[..] {
                [Request::Chat(prompt)] => prompt.seed,
                other => panic!("{other:?}"),
            };
        assert_eq!((seed(replied(&[])), seed(replied(&["Well."]))), (Some(0), Some(1)));
        assert_eq!(replied(&["Well.", "- He is."]), Ok(Some(vec!["He is.".to_owned()])));
        assert_eq!(replied(&["NONE"]), Ok(Some(Vec::new())));
        assert_eq!(replied(&["Well.", "Well."]), Ok(None));
    }
}
