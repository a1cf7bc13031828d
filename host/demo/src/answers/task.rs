//! The tasks of the demo's chat model, parsed from the tagged fields of a message.

use corver_core::{ChatPrompt, ChatRole};

/// Names of the fields.
const FIELDS: [&str; 6] = ["question", "text", "gold", "answer", "statement", "passage"];

/// A task that the model understands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChatTask<'a> {
    /// List the statements of a text, from `<question>` (may be empty) and `<text>`.
    Statements { question: &'a str, text: &'a str },
    /// Judge an answer, from `<question>`, one or more `<gold>` and `<answer>`.
    Judge { golds: Vec<String>, answer: &'a str },
    /// Verify a statement, from `<statement>` and any number of `<passage>`.
    Verify { statement: &'a str, passages: Vec<&'a str> },
    /// Rate the helpfulness of a statement, from `<question>` and `<statement>`.
    Helpfulness { question: &'a str, statement: &'a str },
}

impl<'a> ChatTask<'a> {
    /// Parses a message. `None`: it has not the fields of any task.
    pub fn parse(message: &'a str) -> Option<Self> {
        let mut question = None;
        let mut text = None;
        let mut golds = Vec::new();
        let mut answer = None;
        let mut statement = None;
        let mut passages = Vec::new();
        for (name, content) in fields(message) {
            // Of a repeated field that may occur once, the first one counts.
            match name {
                "question" => question = question.or(Some(content)),
                "text" => text = text.or(Some(content)),
                "gold" => golds.push(content.to_owned()),
                "answer" => answer = answer.or(Some(content)),
                "statement" => statement = statement.or(Some(content)),
                _ => passages.push(content),
            }
        }
        if let Some(text) = text {
            return Some(Self::Statements { question: question.unwrap_or_default(), text });
        }
        if let Some(answer) = answer
            && !golds.is_empty()
        {
            return Some(Self::Judge { golds, answer });
        }
        let statement = statement?;
        Some(match question {
            Some(question) if passages.is_empty() => Self::Helpfulness { question, statement },
            _ => Self::Verify { statement, passages },
        })
    }
}

/// Returns the last message of the user; empty if there is none.
pub(super) fn user_message(prompt: &ChatPrompt) -> &str {
    let by_user = prompt.messages.iter().rfind(|message| message.role == ChatRole::User);
    by_user.map_or("", |message| &message.content)
}

/// Returns the fields in order, trimmed. A field within another one is a part of its content.
fn fields(message: &str) -> Vec<(&'static str, &str)> {
    let mut fields = Vec::new();
    let mut rest = message;
    while let Some((name, after)) = next_field(rest) {
        let Some((content, after)) = after.split_once(&format!("</{name}>")) else { break };
        fields.push((name, content.trim()));
        rest = after;
    }
    fields
}

/// Returns the name of the first field, and the text that begins with its content.
fn next_field(text: &str) -> Option<(&'static str, &str)> {
    text.match_indices('<').find_map(|(start, _)| {
        let tag = &text[start + 1..];
        FIELDS.into_iter().find_map(|name| Some((name, tag.strip_prefix(name)?.strip_prefix('>')?)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_kind_is_parsed_from_fields() {
        let text =
            ChatTask::parse("Split it.\n<question></question>\n<text><answer>A B</answer></text>");
        assert_eq!(text, Some(ChatTask::Statements { question: "", text: "<answer>A B</answer>" }));
        let judged = ChatTask::parse(
            "<question>Who?</question><gold>a</gold><gold> b </gold><answer>c</answer>",
        );
        assert_eq!(
            judged,
            Some(ChatTask::Judge { golds: vec!["a".into(), "b".into()], answer: "c" })
        );
        let verified =
            ChatTask::parse("<statement>s</statement><passage>p</passage><passage>q</passage>");
        assert_eq!(verified, Some(ChatTask::Verify { statement: "s", passages: vec!["p", "q"] }));
        let alone = ChatTask::parse("<statement>s</statement>");
        assert_eq!(alone, Some(ChatTask::Verify { statement: "s", passages: vec![] }));
        let helps =
            ChatTask::parse("Between 1 < 2 > 0: <question>q</question> <statement>s</statement>");
        assert_eq!(helps, Some(ChatTask::Helpfulness { question: "q", statement: "s" }));
        for other in
            ["", "Hello", "<text>not closed", "<answer>a</answer>", "<question>q</question>"]
        {
            assert_eq!(ChatTask::parse(other), None, "{other}");
        }
    }
}
