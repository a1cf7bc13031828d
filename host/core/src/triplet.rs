//! Stage 4: sentences → triplets. The extractor's reply, read tolerantly.
//!
//! A reply is a list of lists: `[["head", "relation", "tail"], …]`, or `[]`. Language models write
//! such lists almost right, so the grammar is the published parser's, which takes nearly
//! everything:
//!
//! - quotes (`"…"`, `“…”`) only suspend brackets and commas; text outside them is glued on;
//! - inside quotes a backslash takes the next character as it is;
//! - empty elements vanish, and the comma after a third element's text belongs to the text, so that
//!   four become three;
//! - of several top-level lists the last one closed counts; lists that never close are taken as far
//!   as they go.

use serde::{Deserialize, Serialize};

use crate::BoxError;
use crate::text::{is_space, strip};

/// One fact that a sentence states.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Triplet {
    /// Subject.
    pub head: String,
    /// Relation; may be empty.
    pub relation: String,
    /// Object.
    pub tail: String,
}

/// The triplet model.
pub trait Extractor: Send {
    /// Returns the triplets of each sentence, in order; none is an ordinary answer.
    ///
    /// # Errors
    /// If the model cannot run.
    fn extract(&mut self, sentences: &[&str]) -> Result<Vec<Vec<Triplet>>, BoxError>;

    /// Starts a batch whose sentences are pushed one by one. By default they are extracted together
    /// at the end; an extractor with a thread of its own begins with the first.
    fn start(&mut self) -> Box<dyn ExtractionBatch + '_> {
        Box::new(CollectedBatch { extractor: self, sentences: Vec::new() })
    }
}

/// Sentences on their way through an [`Extractor`].
pub trait ExtractionBatch {
    /// Adds a sentence, and does not wait for its triplets.
    fn push(&mut self, sentence: &str);

    /// Returns the triplets of every pushed sentence, in order.
    ///
    /// # Errors
    /// If the model cannot run.
    fn finish(self: Box<Self>) -> Result<Vec<Vec<Triplet>>, BoxError>;
}

/// Sentences that are extracted together at the end.
struct CollectedBatch<'a, E: ?Sized> {
    extractor: &'a mut E,
    sentences: Vec<String>,
}

impl<E: Extractor + ?Sized> ExtractionBatch for CollectedBatch<'_, E> {
    fn push(&mut self, sentence: &str) {
        self.sentences.push(sentence.to_owned());
    }

    fn finish(self: Box<Self>) -> Result<Vec<Vec<Triplet>>, BoxError> {
        let sentences: Vec<&str> = self.sentences.iter().map(String::as_str).collect();
        self.extractor.extract(&sentences)
    }
}

/// One element of a model reply: text, or a list of elements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Element {
    /// Text between separators, trimmed.
    Text(String),
    /// A bracketed list.
    List(Vec<Element>),
}

/// Why a reply cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// A `]` ends text that stands in no list.
    #[error("`]` after character {at} ends the text {text:?}, but no list is open")]
    NotInList {
        /// Characters before the bracket.
        at: usize,
        /// The text.
        text: String,
    },
    /// Lists in lists in lists, and so on; no extractor means that.
    #[error("`[` after character {at} opens a list at depth {MAX_DEPTH}")]
    TooDeep {
        /// Characters before the bracket.
        at: usize,
    },
}

/// Replies nest two deep; more than this is noise, and would only exhaust the stack of whoever
/// walks it.
const MAX_DEPTH: usize = 128;

/// The elements of the outermost list of `text`.
///
/// # Errors
/// A `]` after text that stands in no list, or nesting beyond reason.
pub fn parse_elements(text: &str) -> Result<Vec<Element>, ParseError> {
    let mut open = OpenLists::default();
    let mut closing_quote = None;
    let mut chars = text.chars().enumerate();
    while let Some((at, c)) = chars.next() {
        match (closing_quote, c) {
            (Some(_), '\\') => open.pending.extend(chars.next().map(|(_, taken)| taken)),
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

/// Whether an outermost list of `text` is closed: a reply needs no more than that.
#[must_use]
pub fn closes_a_list(text: &str) -> bool {
    let (mut depth, mut closing_quote) = (0, None);
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
    /// Outermost first.
    lists: Vec<Vec<Element>>,
    /// The text read since the last separator; text before the first bracket stays in here.
    pending: String,
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

    /// Ends an element, or, in an inner list that has two already, belongs to the third one's text.
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
        let fold = |inner: Vec<Element>, mut outer: Vec<Element>| {
            outer.push(Element::List(inner));
            outer
        };
        self.lists.into_iter().rev().reduce(fold).unwrap_or_default()
    }
}

/// A model's reply: one leading `entities:` is dropped; an unreadable reply holds nothing.
#[must_use]
pub fn read_reply(reply: &str) -> Vec<Element> {
    let reply = strip(reply);
    parse_elements(strip(reply.strip_prefix("entities:").unwrap_or(reply))).unwrap_or_default()
}

/// What one list of a reply states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// Three parts.
    Fact(Triplet),
    /// Two parts: something is said, or asked, of an entity alone.
    Mention {
        /// The entity.
        head: String,
        /// What of it.
        relation: String,
    },
}

impl Claim {
    /// A list of two or three whose entities are text; a list in the relation's place counts as its
    /// words.
    fn of(element: Element) -> Option<Self> {
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

/// What a reply states, in order. Whether its entities are any good is the business of whoever
/// reads it.
#[must_use]
pub fn claims_from_reply(reply: &str) -> Vec<Claim> {
    read_reply(reply).into_iter().filter_map(Claim::of).collect()
}

/// The triplets among a reply's claims.
#[must_use]
pub fn triplets_from_reply(reply: &str) -> Vec<Triplet> {
    let triplet = |claim| match claim {
        Claim::Fact(triplet) => Some(triplet),
        Claim::Mention { .. } => None,
    };
    claims_from_reply(reply).into_iter().filter_map(triplet).collect()
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

    fn text(text: &str) -> Element {
        Element::Text(text.to_owned())
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
        assert_eq!(triplets_from_reply(reply), expected);
        assert!(triplets_from_reply("[]").is_empty());
    }

    #[test]
    fn pair_without_tail_is_mention_not_triplet() {
        let reply = r#"[["Il Seduttore", "director"]]"#;
        assert!(triplets_from_reply(reply).is_empty());
        let asked =
            Claim::Mention { head: "Il Seduttore".to_owned(), relation: "director".to_owned() };
        assert_eq!(claims_from_reply(reply), [asked]);
    }

    #[test]
    fn fourth_element_joins_tail() {
        assert_eq!(triplets_from_reply(r#"[["A", "r", "B", "C"]]"#), [triplet("A", "r", "B, C")]);
    }

    #[test]
    fn truncated_reply_yields_triplets_before_cut() {
        assert_eq!(
            triplets_from_reply(r#"[["A", "r", "B"], ["C", "s", "D"#)[1],
            triplet("C", "s", "D")
        );
    }

    #[test]
    fn nested_relation_list_is_joined() {
        assert_eq!(
            triplets_from_reply(r#"[["A", ["born", ["in"]], "B"]]"#),
            [triplet("A", "born in", "B")]
        );
        assert!(triplets_from_reply(r#"[[["A"], "r", "B"]]"#).is_empty());
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
            prop_assert!(triplets_from_reply(&reply).len() <= reply.len());
        }

        #[test]
        fn quoted_triplet_round_trips(parts in proptest::array::uniform3(r#"[a-zA-Z',\[\]é]([a-zA-Z ',\[\]é]{0,10}[a-z])?"#)) {
            let reply = serde_json::to_string(&[&parts]).unwrap();
            let [head, relation, tail] = &parts;
            prop_assert_eq!(triplets_from_reply(&reply), [triplet(head, relation, tail)]);
        }
    }
}
