//! What a chat model is asked, and what its reply means.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::{Deserialize, Serialize};

use super::Subject;

/// Why a judge cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PromptError {
    /// The model would not see what it is to judge.
    #[error("the judge's `prompt` shows the model nothing to judge; write {} where it goes", .shown.join(" or "))]
    NothingShown {
        /// What it must hold one of, in braces.
        shown: Vec<String>,
    },
    /// No reply would be right, or none wrong.
    #[error("no word of the judge's `labels` means {missing}; there must be one for right and one for wrong")]
    NoLabel {
        /// The label that no word means.
        missing: String,
    },
}

/// A judge: its prompt, and the words that it may reply with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JudgeSettings<L> {
    /// Said before the prompt; empty says nothing.
    #[serde(default)]
    pub system: String,
    /// With the subject's fields, in braces, where these go.
    pub prompt: String,
    /// Word → label. A reply is one of the words, in capitals or not; punctuation around it does not count.
    pub labels: BTreeMap<String, L>,
}

fn in_braces(field: &str) -> String {
    format!("{{{field}}}")
}

impl<L: Copy + PartialEq + Display> JudgeSettings<L> {
    /// Refuses a judge that cannot judge.
    ///
    /// # Errors
    /// What it lacks.
    pub fn check<S: Subject<Label = L>>(&self) -> Result<(), PromptError> {
        let shown: Vec<String> = S::SHOWN.iter().copied().map(in_braces).collect();
        if !shown.iter().any(|field| self.prompt.contains(field)) {
            return Err(PromptError::NothingShown { shown });
        }
        let missing = S::NEEDED.into_iter().find(|label| !self.labels.values().any(|known| known == label));
        missing.map_or(Ok(()), |missing| Err(PromptError::NoLabel { missing: missing.to_string() }))
    }

    /// The prompt for one subject. What stands in braces in a subject stays as it is.
    #[must_use]
    pub fn prompt_for<S: Subject<Label = L>>(&self, subject: &S) -> String {
        let (mut prompt, mut rest) = (String::new(), self.prompt.as_str());
        while let Some(at) = rest.find('{') {
            let (before, from) = rest.split_at(at);
            prompt.push_str(before);
            let field = S::FIELDS.iter().find_map(|field| Some((field, from.strip_prefix(&in_braces(field))?)));
            match field {
                Some((field, after)) => {
                    prompt.push_str(&subject.field(field));
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
    pub fn read(&self, reply: &str) -> Option<L> {
        let word = reply.trim_matches(|c: char| !c.is_alphanumeric());
        self.labels.iter().find(|(known, _)| known.eq_ignore_ascii_case(word)).map(|(_, label)| *label)
    }
}

#[cfg(test)]
mod tests {
    use corver_core::Label;

    use super::super::Item;
    use super::*;

    fn judge(prompt: &str) -> JudgeSettings<Label> {
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
        let told = |judge: &JudgeSettings<Label>| judge.check::<Item>().unwrap_err().to_string();
        assert!(judge("{answer}").check::<Item>().is_ok());
        assert!(told(&judge("{question}")).contains("write {answer} or {completion}"));
        let mut mild = judge("{answer}");
        mild.labels.remove("INCORRECT");
        assert!(told(&mild).contains("means BAD"));
    }
}
