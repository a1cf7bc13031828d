//! Stage 4: sentences → triplets, and the published grammar of an extractor's replies
//! ([`crate::reply`] has another one, too).
//!
//! A reply is a list of lists: `[["head", "relation", "tail"], …]`, or `[]`. Language models write
//! such lists almost right, so the grammar is the published parser's, which accepts nearly
//! everything:
//!
//! - quotes (`"…"`, `“…”`) only suspend brackets and commas; text outside them is glued on;
//! - inside quotes a backslash escapes the next character;
//! - empty elements vanish, and the comma after a third element's text belongs to the text, so that
//!   four become three;
//! - of several top-level lists the last one closed counts; lists that never close end with the
//!   text.

use serde::{Deserialize, Serialize};

use crate::BoxError;
use crate::text::{is_space, strip};

/// A fact that a sentence states.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Triplet {
    /// Subject of the fact.
    pub head: String,
    /// Relation between head and tail; may be empty.
    pub relation: String,
    /// Object of the fact.
    pub tail: String,
}

/// A sentence to extract triplets from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtractorInput<'a> {
    /// Text of the sentence.
    pub sentence: &'a str,
    /// Question that the completion answers; empty if there is none. The paper's extractor does not
    /// read it.
    pub question: &'a str,
}

impl<'a> ExtractorInput<'a> {
    /// Returns the sentence without a question.
    #[must_use]
    pub fn of_sentence(sentence: &'a str) -> Self {
        Self { sentence, question: "" }
    }
}

/// A model that reads triplets from sentences.
pub trait Extractor: Send {
    /// Returns the triplets of each sentence, in order; a sentence may have none.
    ///
    /// # Errors
    /// Fails if the model cannot run.
    fn extract(&mut self, inputs: &[ExtractorInput<'_>]) -> Result<Vec<Vec<Triplet>>, BoxError>;

    /// Starts a batch whose sentences are pushed one by one. The default implementation extracts them
    /// together at the end; an extractor with its own thread starts with the first.
    fn start(&mut self) -> Box<dyn ExtractionBatch + '_> {
        Box::new(CollectedBatch { extractor: self, inputs: Vec::new() })
    }
}

/// A batch of sentences in an [`Extractor`]. Another thread may finish it.
pub trait ExtractionBatch: Send {
    /// Adds a sentence without waiting for its triplets.
    fn push(&mut self, input: ExtractorInput<'_>);

    /// Returns the triplets of every pushed sentence.
    ///
    /// # Errors
    /// Fails if the model cannot run.
    fn finish(self: Box<Self>) -> Result<Extracted, BoxError>;
}

/// Result of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extracted {
    /// Triplets of each sentence, in order.
    pub triplets: Vec<Vec<Triplet>>,
    /// Number of sentences whose reply was not understood; they have no triplets.
    pub not_understood: usize,
}

/// A batch that is extracted at the end.
struct CollectedBatch<'a, E: ?Sized> {
    extractor: &'a mut E,
    /// Sentence and question.
    inputs: Vec<(String, String)>,
}

impl<E: Extractor + ?Sized> ExtractionBatch for CollectedBatch<'_, E> {
    fn push(&mut self, input: ExtractorInput<'_>) {
        self.inputs.push((input.sentence.to_owned(), input.question.to_owned()));
    }

    fn finish(self: Box<Self>) -> Result<Extracted, BoxError> {
        let mut inputs = Vec::with_capacity(self.inputs.len());
        for (sentence, question) in &self.inputs {
            inputs.push(ExtractorInput { sentence, question });
        }
        Ok(Extracted { triplets: self.extractor.extract(&inputs)?, not_understood: 0 })
    }
}

/// One element of a model reply: text, or a list of elements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Element {
    /// Text between separators, trimmed.
    Text(String),
    /// Elements of a bracketed list.
    List(Vec<Element>),
}

/// Error of a reply that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// A `]` follows text outside of all lists.
    #[error("`]` after character {at} ends the text {text:?}, but no list is open")]
    NotInList {
        /// Number of characters before the bracket.
        at: usize,
        /// Text before the bracket.
        text: String,
    },
    /// Lists are nested deeper than any extractor intends.
    #[error("`[` after character {at} opens a list at depth {MAX_DEPTH}")]
    TooDeep {
        /// Number of characters before the bracket.
        at: usize,
    },
}

/// Greatest depth of nested lists. Replies nest two deep; anything deeper is noise, and would exhaust
/// the stack of recursive code.
const MAX_DEPTH: usize = 128;

/// Returns the elements of the outermost list of `text`.
///
/// # Errors
/// Fails at a `]` after text outside of all lists, and at lists nested too deep.
pub fn parse_elements(text: &str) -> Result<Vec<Element>, ParseError> {
    let mut open = OpenLists::default();
    let mut closing_quote = None;
    let mut chars = text.chars().enumerate();
    while let Some((at, c)) = chars.next() {
        match (closing_quote, c) {
            (Some(_), '\\') => open.pending.extend(chars.next().map(|(_, escaped)| escaped)),
            (Some(quote), _) if c == quote => closing_quote = None,
            (Some(_), _) => open.pending.push(c),
            (None, '"') => closing_quote = Some('"'),
            (None, '“') => closing_quote = Some('”'),
            (None, '[') => open.open(at)?,
            (None, ']') => open.close(at)?,
            (None, ',') => open.comma(),
            (None, _) if is_space(c) => {
                if !open.pending.is_empty() {
                    open.pending.push(' ');
                }
            }
            (None, _) => open.pending.push(c),
        }
    }
    Ok(open.finish())
}

/// Returns true if an outermost list of `text` is closed: a reply needs no more tokens then.
#[must_use]
pub fn closes_a_list(text: &str) -> bool {
    let mut depth = 0;
    let mut closing_quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (closing_quote, c) {
            (Some(_), '\\') => drop(chars.next()),
            (Some(quote), _) if c == quote => closing_quote = None,
            (Some(_), _) => {}
            (None, '"') => closing_quote = Some('"'),
            (None, '“') => closing_quote = Some('”'),
            (None, '[') => depth += 1,
            (None, ']') if depth == 1 => return true,
            (None, ']') if depth > 1 => depth -= 1,
            (None, _) => {}
        }
    }
    false
}

/// Lists that have not been closed yet.
#[derive(Default)]
struct OpenLists {
    /// Elements of each open list, outermost first.
    lists: Vec<Vec<Element>>,
    /// Text since the last separator; text before the first bracket remains in it.
    pending: String,
    /// Outermost list that was closed last.
    closed: Option<Vec<Element>>,
}

impl OpenLists {
    fn open(&mut self, at: usize) -> Result<(), ParseError> {
        if self.lists.len() == MAX_DEPTH {
            return Err(ParseError::TooDeep { at });
        }
        self.lists.push(Vec::new());
        Ok(())
    }

    fn close(&mut self, at: usize) -> Result<(), ParseError> {
        let text = strip(&self.pending);
        if self.lists.is_empty() && !text.is_empty() {
            return Err(ParseError::NotInList { at, text: text.to_owned() });
        }
        self.end_element();
        if let Some(list) = self.lists.pop() {
            match self.lists.last_mut() {
                Some(parent) => parent.push(Element::List(list)),
                None => self.closed = Some(list),
            }
        }
        Ok(())
    }

    /// Ends an element. In an inner list that has two already, the comma belongs to the third's text.
    fn comma(&mut self) {
        let third = self.lists.len() >= 2 && self.lists.last().is_some_and(|list| list.len() >= 2);
        if third && !strip(&self.pending).is_empty() {
            self.pending.push(',');
        } else {
            self.end_element();
        }
    }

    fn end_element(&mut self) {
        let text = std::mem::take(&mut self.pending);
        if let Some(list) = self.lists.last_mut()
            && !strip(&text).is_empty()
        {
            list.push(Element::Text(strip(&text).to_owned()));
        }
    }

    fn finish(mut self) -> Vec<Element> {
        if let Some(closed) = self.closed {
            return closed;
        }
        self.end_element();
        while self.lists.len() > 1
            && let Some(inner) = self.lists.pop()
            && let Some(outer) = self.lists.last_mut()
        {
            outer.push(Element::List(inner));
        }
        self.lists.pop().unwrap_or_default()
    }
}

/// Parses a model's reply without its leading `entities:`. An unreadable reply has no elements.
#[must_use]
pub fn read_reply(reply: &str) -> Vec<Element> {
    let reply = strip(reply);
    parse_elements(strip(reply.strip_prefix("entities:").unwrap_or(reply))).unwrap_or_default()
}

/// The meaning of one list of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// A list of three.
    Fact(Triplet),
    /// A list of two: a statement or a question about one entity.
    Mention {
        /// Entity that it is about.
        head: String,
        /// Property of the entity.
        relation: String,
    },
}

impl Claim {
    /// Converts a list of two or three whose entities are text; a list in place of the relation is
    /// joined to one text.
    fn from_element(element: Element) -> Option<Self> {
        let Element::List(list) = element else { return None };
        let mut parts = list.into_iter();
        match (parts.next()?, parts.next()?, parts.next(), parts.next()) {
            (Element::Text(head), relation, Some(Element::Text(tail)), None) => {
                Some(Self::Fact(Triplet { head, relation: relation.into_text(), tail }))
            }
            (Element::Text(head), relation, None, None) => {
                Some(Self::Mention { head, relation: relation.into_text() })
            }
            _ => None,
        }
    }
}

/// Returns the claims of a reply, in order. The entities are not checked.
#[must_use]
pub fn claims_from_reply(reply: &str) -> Vec<Claim> {
    read_reply(reply).into_iter().filter_map(Claim::from_element).collect()
}

impl Element {
    fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::List(list) => list.into_iter().map(Self::into_text).collect::<Vec<_>>().join(" "),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{ReplyGrammar, reply};

    fn text(text: &str) -> Element {
        Element::Text(text.to_owned())
    }

    fn triplets(text: &str) -> Vec<Triplet> {
        reply::read(text, ReplyGrammar::Reference).into_triplets()
    }

    fn triplet(head: &str, relation: &str, tail: &str) -> Triplet {
        Triplet { head: head.to_owned(), relation: relation.to_owned(), tail: tail.to_owned() }
    }

    #[test]
    fn well_formed_reply_yields_its_triplets() {
        let reply = r#"entities: [["Mario Camerini", "directed", "Il Seduttore"], ["Il Seduttore", "starred", "Loren"]]"#;
        let expected = [
            triplet("Mario Camerini", "directed", "Il Seduttore"),
            triplet("Il Seduttore", "starred", "Loren"),
        ];
        assert_eq!(triplets(reply), expected);
        assert!(triplets("[]").is_empty());
    }

    #[test]
    fn pair_without_tail_is_mention_not_triplet() {
        let reply = r#"[["Il Seduttore", "director"]]"#;
        assert!(triplets(reply).is_empty());
        let mention =
            Claim::Mention { head: "Il Seduttore".to_owned(), relation: "director".to_owned() };
        assert_eq!(claims_from_reply(reply), [mention]);
    }

    #[test]
    fn fourth_element_joins_tail() {
        assert_eq!(triplets(r#"[["A", "r", "B", "C"]]"#), [triplet("A", "r", "B, C")]);
    }

    #[test]
    fn truncated_reply_yields_triplets_before_cut() {
        assert_eq!(triplets(r#"[["A", "r", "B"], ["C", "s", "D"#)[1], triplet("C", "s", "D"));
    }

    #[test]
    fn nested_relation_list_is_joined() {
        assert_eq!(triplets(r#"[["A", ["born", ["in"]], "B"]]"#), [triplet("A", "born in", "B")]);
        assert!(triplets(r#"[[["A"], "r", "B"]]"#).is_empty());
    }

    #[test]
    fn text_outside_every_list_is_an_error() {
        let error = parse_elements("no list]").unwrap_err();
        assert_eq!(error, ParseError::NotInList { at: 7, text: "no list".to_owned() });
        assert_eq!(parse_elements("before [a]"), Ok(vec![text("before a")]));
    }

    #[test]
    fn nesting_is_bounded() {
        assert_eq!(
            parse_elements(&"[".repeat(1_000_000)),
            Err(ParseError::TooDeep { at: MAX_DEPTH })
        );
    }

    proptest! {
        #[test]
        fn arbitrary_reply_never_panics(reply in r#"([\[\]",“”\\ a-c]|entities:|\PC){0,60}"#) {
            prop_assert!(triplets(&reply).len() <= reply.len());
        }

        #[test]
        fn quoted_triplet_round_trips(parts in proptest::array::uniform3(r#"[a-zA-Z',\[\]é]([a-zA-Z ',\[\]é]{0,10}[a-z])?"#)) {
            let reply = serde_json::to_string(&[&parts]).unwrap();
            let [head, relation, tail] = &parts;
            prop_assert_eq!(triplets(&reply), [triplet(head, relation, tail)]);
        }
    }
}
