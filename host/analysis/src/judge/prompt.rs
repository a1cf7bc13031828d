//! Prompts for a judge, and the labels in its replies.

use std::collections::BTreeMap;
use std::fmt::Display;

use corver_core::{ChatPrompt, ChatRole, Message};
use corver_settings::is_temperature;
use serde::{Deserialize, Serialize};

use super::JudgeSubject;

/// Error of a judge's settings.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PromptError(String);

/// Settings of a judge: its prompt, and the words that it may reply with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JudgeSettings<L> {
    /// System message; empty if there is none.
    #[serde(default)]
    pub system: String,
    /// Prompt, with the names of the item's fields in braces.
    pub prompt: String,
    /// Temperature, 0 to 2. 0 is the most probable reply, as far as the endpoint is deterministic.
    #[serde(default)]
    pub temperature: f32,
    /// Longest reply, in tokens; 1 or more.
    #[serde(default = "one_word")]
    pub max_tokens: u32,
    /// Label of each word, which begins and ends with a letter or a digit. A reply is one of the
    /// words, in any case; punctuation around it is ignored.
    pub labels: BTreeMap<String, L>,
}

/// Returns a number of tokens that suffices for a word of any language.
fn one_word() -> u32 {
    16
}

fn in_braces(field: &str) -> String {
    format!("{{{field}}}")
}

impl<L: Copy + PartialEq + Display> JudgeSettings<L> {
    /// Checks the settings.
    ///
    /// # Errors
    /// If a value is out of range, the prompt does not show the item, no reply can be one of the
    /// words, or a needed label has no word.
    pub fn check<S: JudgeSubject<Label = L>>(&self) -> Result<(), PromptError> {
        if !is_temperature(f64::from(self.temperature)) {
            return Err(PromptError("the judge's `temperature` must be from 0 to 2".to_owned()));
        }
        if self.max_tokens == 0 {
            return Err(PromptError("the judge's `max_tokens` must be at least 1".to_owned()));
        }
        let shown: Vec<String> = S::SHOWN.iter().copied().map(in_braces).collect();
        if !shown.iter().any(|field| self.prompt.contains(field)) {
            return Err(PromptError(format!(
                "the judge's `prompt` shows the model nothing to judge; write {} where it goes",
                shown.join(" or ")
            )));
        }
        for word in self.labels.keys() {
            if word.is_empty() || without_punctuation(word) != word.as_str() {
                return Err(PromptError(format!(
                    "no reply can be {word:?}, a word of the judge's `labels`; a word begins and \
                     ends with a letter or a digit"
                )));
            }
        }
        for label in S::NEEDED {
            if !self.labels.values().any(|known| *known == label) {
                return Err(PromptError(format!(
                    "no word of the judge's `labels` means {label}; there must be one for right \
                     and one for wrong"
                )));
            }
        }
        Ok(())
    }

    /// Returns the prompt for an item.
    #[must_use]
    pub fn prompt_for<S: JudgeSubject<Label = L>>(&self, subject: &S) -> ChatPrompt {
        let mut messages = Vec::new();
        if !self.system.is_empty() {
            messages.push(Message { role: ChatRole::System, content: self.system.clone() });
        }
        messages.push(Message { role: ChatRole::User, content: self.render(subject) });
        ChatPrompt {
            messages,
            temperature: self.temperature,
            top_p: 1.0,
            max_tokens: self.max_tokens,
            seed: None,
        }
    }

    /// Renders the prompt with an item's fields. Braces inside a field are not substituted.
    fn render<S: JudgeSubject<Label = L>>(&self, subject: &S) -> String {
        let mut prompt = String::new();
        let mut rest = self.prompt.as_str();
        while let Some(brace) = rest.find('{') {
            prompt.push_str(&rest[..brace]);
            rest = &rest[brace..];
            let field = S::FIELDS.iter().find(|field| rest.starts_with(&in_braces(field)));
            match field {
                Some(field) => {
                    prompt.push_str(&subject.field(field));
                    rest = &rest[in_braces(field).len()..];
                }
                None => {
                    prompt.push('{');
                    rest = &rest[1..];
                }
            }
        }
        prompt + rest
    }

    /// Parses a reply; `None` if it is not exactly one of the words.
    #[must_use]
    pub fn parse_reply(&self, reply: &str) -> Option<L> {
        let word = without_punctuation(reply).to_lowercase();
        let (_, label) = self.labels.iter().find(|(known, _)| known.to_lowercase() == word)?;
        Some(*label)
    }
}

/// Returns a text without the characters at its ends that are neither letters nor digits.
fn without_punctuation(text: &str) -> &str {
    text.trim_matches(|c: char| !c.is_alphanumeric())
}

#[cfg(test)]
mod tests {
    use corver_core::Label;

    use super::super::Item;
    use super::*;

    fn judge(prompt: &str) -> JudgeSettings<Label> {
        let labels = [
            ("CORRECT", Label::Good),
            ("INCORRECT", Label::Bad),
            ("NOT_ATTEMPTED", Label::NotAttempted),
        ];
        let labels = labels.map(|(word, label)| (word.to_owned(), label)).into();
        JudgeSettings {
            system: String::new(),
            prompt: prompt.into(),
            temperature: 0.0,
            max_tokens: 16,
            labels,
        }
    }

    #[test]
    fn prompt_fields_are_substituted_once() {
        let item = Item {
            question: "who {answer}?".into(),
            golds: vec!["a".into(), "b".into()],
            answer: "{golds}".into(),
            completion: String::new(),
            string_match: Label::Good,
        };
        let prompt = judge("Q {question} G {golds} A {answer} {x} {").prompt_for(&item);
        let user = |content: &str| Message { role: ChatRole::User, content: content.into() };
        assert_eq!(prompt.messages, [user("Q who {answer}? G a; b A {golds} {x} {")]);
        let with_system = JudgeSettings {
            system: "Be strict.".into(),
            temperature: 0.5,
            max_tokens: 4,
            ..judge("{answer}")
        };
        let prompt = with_system.prompt_for(&item);
        let system = Message { role: ChatRole::System, content: "Be strict.".into() };
        assert_eq!(prompt.messages, [system, user("{golds}")]);
        assert_eq!(
            (prompt.temperature, prompt.top_p, prompt.max_tokens, prompt.seed),
            (0.5, 1.0, 4, None)
        );
    }

    #[test]
    fn judge_reply_parses_to_label_or_none() {
        let judge = judge("{answer}");
        assert_eq!(judge.parse_reply(" Correct.\n"), Some(Label::Good));
        assert_eq!(judge.parse_reply("**INCORRECT**"), Some(Label::Bad));
        assert_eq!(judge.parse_reply("not_attempted"), Some(Label::NotAttempted));
        for other in ["", "CORRECT, since Paris is", "It is correct", "NOT CORRECT"] {
            assert_eq!(judge.parse_reply(other), None, "{other}");
        }
    }

    #[test]
    fn case_of_reply_is_ignored_in_any_script() {
        let mut russian = judge("{answer}");
        russian.labels =
            [("Верно".to_owned(), Label::Good), ("НЕВЕРНО".to_owned(), Label::Bad)].into();
        assert!(russian.check::<Item>().is_ok());
        assert_eq!(russian.parse_reply("верно"), Some(Label::Good));
        assert_eq!(russian.parse_reply("«Неверно»."), Some(Label::Bad));
    }

    #[test]
    fn incomplete_judge_settings_are_rejected() {
        let error = |judge: &JudgeSettings<Label>| judge.check::<Item>().unwrap_err().to_string();
        assert!(judge("{answer}").check::<Item>().is_ok());
        assert!(error(&judge("{question}")).contains("write {answer} or {completion}"));
        assert!(
            error(&JudgeSettings { temperature: f32::NAN, ..judge("{answer}") })
                .contains("temperature")
        );
        assert!(
            error(&JudgeSettings { max_tokens: 0, ..judge("{answer}") }).contains("max_tokens")
        );
        let mut mild = judge("{answer}");
        mild.labels.remove("INCORRECT");
        assert!(error(&mild).contains("means BAD"));
        for word in ["RIGHT.", " RIGHT", "!", ""] {
            let mut unmatched = judge("{answer}");
            unmatched.labels.insert(word.into(), Label::Good);
            let message = error(&unmatched);
            assert!(message.contains(&format!("no reply can be {word:?}")), "{message}");
        }
    }
}
