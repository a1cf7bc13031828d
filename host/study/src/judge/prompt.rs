//! What a chat model is asked of an answer, and what its reply means.

use std::collections::BTreeMap;

use corver_core::Label;
use serde::{Deserialize, Serialize};

use super::Item;

/// What a prompt may hold in braces.
const FIELDS: [&str; 4] = ["question", "golds", "answer", "completion"];

/// Why a judge cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PromptError {
    /// The model would not see what it is to judge.
    #[error(
        "the judge's `prompt` holds neither {{answer}} nor {{completion}}; it may hold {{question}} and {{golds}} too"
    )]
    NoAnswer,
    /// No reply would be right, or none wrong.
    #[error("the judge's `labels` must say which word means GOOD and which means BAD; {missing} is missing")]
    NoLabel {
        /// The label that no word means.
        missing: Label,
    },
}

/// A judge: its prompt, and the words that it may reply with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JudgeSettings {
    /// Said before the prompt; empty says nothing.
    #[serde(default)]
    pub system: String,
    /// With {question}, {golds}, {answer} and {completion} where these go.
    pub prompt: String,
    /// Word → label. A reply is one of the words, in capitals or not; punctuation around it does not count.
    pub labels: BTreeMap<String, Label>,
}

impl JudgeSettings {
    /// Refuses a judge that cannot judge.
    ///
    /// # Errors
    /// What it lacks.
    pub fn check(&self) -> Result<(), PromptError> {
        if !self.prompt.contains("{answer}") && !self.prompt.contains("{completion}") {
            return Err(PromptError::NoAnswer);
        }
        let missing =
            [Label::Good, Label::Bad].into_iter().find(|label| !self.labels.values().any(|known| known == label));
        missing.map_or(Ok(()), |missing| Err(PromptError::NoLabel { missing }))
    }

    /// The prompt for one answer. What stands in braces in an answer stays as it is.
    #[must_use]
    pub fn prompt_for(&self, item: &Item) -> String {
        let golds = item.golds.join("; ");
        let values = [&item.question, &golds, &item.answer, &item.completion];
        let (mut prompt, mut rest) = (String::new(), self.prompt.as_str());
        while let Some(at) = rest.find('{') {
            let (before, from) = rest.split_at(at);
            prompt.push_str(before);
            let field = FIELDS.iter().zip(values).find_map(|(field, value)| {
                Some((value, from.strip_prefix('{')?.strip_prefix(field)?.strip_prefix('}')?))
            });
            match field {
                Some((value, after)) => {
                    prompt.push_str(value);
                    rest = after;
                }
                None => {
                    prompt.push('{');
                    rest = &from[1..];
                }
            }
        }
        prompt + rest
    }

    /// What a reply means; `None` where it is no label. Nothing is guessed.
    #[must_use]
    pub fn read(&self, reply: &str) -> Option<Label> {
        let word = reply.trim_matches(|c: char| !c.is_alphanumeric());
        self.labels.iter().find(|(known, _)| known.eq_ignore_ascii_case(word)).map(|(_, label)| *label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(prompt: &str) -> JudgeSettings {
        let labels = [("CORRECT", Label::Good), ("INCORRECT", Label::Bad), ("NOT_ATTEMPTED", Label::NotAttempted)];
        let labels = labels.map(|(word, label)| (word.to_owned(), label)).into();
        JudgeSettings { system: String::new(), prompt: prompt.into(), labels }
    }

    #[test]
    fn fields_are_filled_in_once() {
        let item = Item {
            question: "who {answer}?".into(),
            golds: vec!["a".into(), "b".into()],
            answer: "{golds}".into(),
            completion: String::new(),
            string_match: Label::Good,
        };
        let filled = judge("Q {question} G {golds} A {answer} {x} {").prompt_for(&item);
        assert_eq!(filled, "Q who {answer}? G a; b A {golds} {x} {");
    }

    #[test]
    fn a_reply_is_a_label_or_none() {
        let judge = judge("{answer}");
        assert_eq!(judge.read(" Correct.\n"), Some(Label::Good));
        assert_eq!(judge.read("**INCORRECT**"), Some(Label::Bad));
        assert_eq!(judge.read("not_attempted"), Some(Label::NotAttempted));
        for other in ["", "CORRECT, since Paris is", "It is correct", "NOT CORRECT"] {
            assert_eq!(judge.read(other), None, "{other}");
        }
    }

    #[test]
    fn a_judge_that_cannot_judge_is_refused() {
        assert!(judge("{answer}").check().is_ok());
        assert!(matches!(judge("{question}").check(), Err(PromptError::NoAnswer)));
        let mut mild = judge("{answer}");
        mild.labels.remove("INCORRECT");
        assert!(matches!(mild.check(), Err(PromptError::NoLabel { missing: Label::Bad })));
    }
}
