//! What the demo's chat model understands: the last message of the user, by its tagged fields.

use corver_core::{ChatPrompt, ChatRole};

/// Names of fields, as `<name>…</name>`.
const FIELDS: [&str; 6] = ["question", "text", "gold", "answer", "statement", "passage"];

/// A task that is understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request<'a> {
    /// `<question>` (may be empty) and `<text>`: the statements of the text, one in a line.
    Statements { question: &'a str, text: &'a str },
    /// `<question>`, one `<gold>` or more, `<answer>`: is the answer right?
    Judge { golds: Vec<String>, answer: &'a str },
    /// `<statement>` and any number of `<passage>`: is the statement right?
    Verify { statement: &'a str, passages: Vec<&'a str> },
    /// `<question>` and `<statement>`: does the statement help?
    Helpfulness { question: &'a str, statement: &'a str },
}

impl<'a> Request<'a> {
    pub fn of(message: &'a str) -> Option<Self> {
        let fields = fields(message);
        let all = |name: &str| -> Vec<&'a str> {
            fields.iter().filter(|(of, _)| *of == name).map(|(_, content)| *content).collect()
        };
        let one = |name: &str| all(name).into_iter().next();
        if let Some(text) = one("text") {
            return Some(Self::Statements { question: one("question").unwrap_or_default(), text });
        }
        let golds: Vec<String> = all("gold").into_iter().map(str::to_owned).collect();
        if let Some(answer) = one("answer").filter(|_| !golds.is_empty()) {
            return Some(Self::Judge { golds, answer });
        }
        let (statement, passages) = (one("statement")?, all("passage"));
        Some(match one("question").filter(|_| passages.is_empty()) {
            Some(question) => Self::Helpfulness { question, statement },
            None => Self::Verify { statement, passages },
        })
    }
}

/// The message that is answered; empty where the user says nothing.
pub(super) fn asked(prompt: &ChatPrompt) -> &str {
    let by_user = prompt.messages.iter().rfind(|message| message.role == ChatRole::User);
    by_user.map_or("", |message| &message.content)
}

/// Fields in order, trimmed. What looks like a field within another one is a part of that one.
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

/// The first field's name, and the text from its content on.
fn next_field(text: &str) -> Option<(&'static str, &str)> {
    text.match_indices('<').find_map(|(at, _)| {
        let tag = &text[at + 1..];
        FIELDS.into_iter().find_map(|name| Some((name, tag.strip_prefix(name)?.strip_prefix('>')?)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_kind_is_parsed_from_fields() {
        let text =
            Request::of("Split it.\n<question></question>\n<text><answer>A B</answer></text>");
        assert_eq!(text, Some(Request::Statements { question: "", text: "<answer>A B</answer>" }));
        let judged = Request::of(
            "<question>Who?</question><gold>a</gold><gold> b </gold><answer>c</answer>",
        );
        assert_eq!(
            judged,
            Some(Request::Judge { golds: vec!["a".into(), "b".into()], answer: "c" })
        );
        let verified =
            Request::of("<statement>s</statement><passage>p</passage><passage>q</passage>");
        assert_eq!(verified, Some(Request::Verify { statement: "s", passages: vec!["p", "q"] }));
        let alone = Request::of("<statement>s</statement>");
        assert_eq!(alone, Some(Request::Verify { statement: "s", passages: vec![] }));
        let helps =
            Request::of("Between 1 < 2 > 0: <question>q</question> <statement>s</statement>");
        assert_eq!(helps, Some(Request::Helpfulness { question: "q", statement: "s" }));
        for other in
            ["", "Hello", "<text>not closed", "<answer>a</answer>", "<question>q</question>"]
        {
            assert_eq!(Request::of(other), None, "{other}");
        }
    }
}
