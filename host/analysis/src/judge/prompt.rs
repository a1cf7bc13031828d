//! What a chat model is asked, and what its reply means.

use std::collections::BTreeMap;
use std::fmt::Display;

use corver_core::{ChatPrompt, ChatRole, Message};
use corver_settings::is_temperature;
use serde::{Deserialize, Serialize};

use super::Subject;

/// Why a judge cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PromptError(String);

/// A judge: its prompt, and the words that it may reply with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JudgeSettings<L> {
    /// Said before the prompt; empty says nothing.
    #[serde(default)]
    pub system: String,
    /// With the subject's fields, in braces, where these go.
    pub prompt: String,
    /// 0: the most probable reply, as far as the endpoint keeps to it.
    #[serde(default)]
    pub temperature: f32,
    /// Longest reply, in tokens.
    #[serde(default = "one_word")]
    pub max_tokens: u32,
    /// Word → label. A reply is one of the words, in capitals or not; punctuation around it does
    /// not count.
    pub labels: BTreeMap<String, L>,
}

/// Tokens for a word of any language.
fn one_word() -> u32 {
    16
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
        let missing =
            S::NEEDED.into_iter().find(|label| !self.labels.values().any(|known| known == label));
        match missing {
            Some(missing) => Err(PromptError(format!(
                "no word of the judge's `labels` means {missing}; there must be one for right and \
                 one for wrong"
            ))),
            None => Ok(()),
        }
    }

    /// What the model is asked about one subject.
    #[must_use]
    pub fn prompt_for<S: Subject<Label = L>>(&self, subject: &S) -> ChatPrompt {
        let system = Some(self.system.clone()).filter(|system| !system.is_empty());
        let system = system.map(|content| Message { role: ChatRole::System, content });
        let user = Message { role: ChatRole::User, content: self.filled_in(subject) };
        let messages = system.into_iter().chain([user]).collect();
        ChatPrompt {
            messages,
            temperature: self.temperature,
            top_p: 1.0,
            max_tokens: self.max_tokens,
            seed: None,
        }
    }

    /// The prompt with a subject's fields. What stands in braces in a subject stays as it is.
    fn filled_in<S: Subject<Label = L>>(&self, subject: &S) -> String {
        let (mut prompt, mut rest) = (String::new(), self.prompt.as_str());
        while let Some(at) = rest.find('{') {
            let (before, from) = rest.split_at(at);
            prompt.push_str(before);
            let field = S::FIELDS
                .iter()
                .find_map(|field| Some((field, from.strip_prefix(&in_braces(field))?)));
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
        self.labels
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(word))
            .map(|(_, label)| *label)
    }
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
        let asked = judge("Q {question} G {golds} A {answer} {x} {").prompt_for(&item);
        let user = |content: &str| Message { role: ChatRole::User, content: content.into() };
        assert_eq!(asked.messages, [user("Q who {answer}? G a; b A {golds} {x} {")]);
        let told = JudgeSettings {
            system: "Be strict.".into(),
            temperature: 0.5,
            max_tokens: 4,
            ..judge("{answer}")
        };
        let asked = told.prompt_for(&item);
        let system = Message { role: ChatRole::System, content: "Be strict.".into() };
        assert_eq!(asked.messages, [system, user("{golds}")]);
        assert_eq!(
            (asked.temperature, asked.top_p, asked.max_tokens, asked.seed),
            (0.5, 1.0, 4, None)
        );
    }

    #[test]
    fn judge_reply_parses_to_label_or_none() {
        let judge = judge("{answer}");
        assert_eq!(judge.read(" Correct.\n"), Some(Label::Good));
        assert_eq!(judge.read("**INCORRECT**"), Some(Label::Bad));
        assert_eq!(judge.read("not_attempted"), Some(Label::NotAttempted));
        for other in ["", "CORRECT, since Paris is", "It is correct", "NOT CORRECT"] {
            assert_eq!(judge.read(other), None, "{other}");
        }
    }

    #[test]
    fn incomplete_judge_settings_are_rejected() {
        let told = |judge: &JudgeSettings<Label>| judge.check::<Item>().unwrap_err().to_string();
        assert!(judge("{answer}").check::<Item>().is_ok());
        assert!(told(&judge("{question}")).contains("write {answer} or {completion}"));
        assert!(
            told(&JudgeSettings { temperature: f32::NAN, ..judge("{answer}") })
                .contains("temperature")
        );
        assert!(told(&JudgeSettings { max_tokens: 0, ..judge("{answer}") }).contains("max_tokens"));
        let mut mild = judge("{answer}");
        mild.labels.remove("INCORRECT");
        assert!(told(&mild).contains("means BAD"));
    }
}
