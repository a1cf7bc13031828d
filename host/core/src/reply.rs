//! Stage 4: an extractor's reply → claims.
//!
//! The published grammar ([`crate::triplet`]) takes a reply as one list, and glues all text around it
//! to the first name. The tolerant grammar finds the list in what models write around it:
//!
//! - text, code fences, `<think>` blocks and lists of other things, such as `[1]`, are skipped;
//! - strings are in `"…"`, `'…'`, `“…”`, `‘…’` or `«…»`, with the escapes of JSON, or without quotes;
//! - a claim is a list, a tuple, or an object with `head`, `relation` and `tail`, or their synonyms;
//! - claims are in one list, in an object, or one after the other. Of several lists the last closed
//!   one counts;
//! - a string that the end of the reply cuts off is dropped with its claim.

use crate::ReplyGrammar;
use crate::template::THINK;
use crate::triplet::{Claim, Triplet, claims_from_reply, closes_a_list, read_reply};

/// A reply as read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParsedReply {
    /// Claims of the reply, in order. The entities are not checked.
    pub claims: Vec<Claim>,
    /// True if the reply has claims, or states that there are none.
    pub is_understood: bool,
}

impl ParsedReply {
    /// Returns the triplets among the claims.
    #[must_use]
    pub fn into_triplets(self) -> Vec<Triplet> {
        let mut triplets = Vec::new();
        for claim in self.claims {
            if let Claim::Fact(triplet) = claim {
                triplets.push(triplet);
            }
        }
        triplets
    }
}

/// Reads a reply.
#[must_use]
pub fn read(reply: &str, grammar: ReplyGrammar) -> ParsedReply {
    match grammar {
        ReplyGrammar::Tolerant => read_tolerantly(reply),
        ReplyGrammar::Reference => {
            let claims = claims_from_reply(reply);
            let is_empty_list = read_reply(reply).is_empty() && closes_a_list(reply);
            ParsedReply { is_understood: !claims.is_empty() || is_empty_list, claims }
        }
    }
}

/// Returns true if a reply needs no more tokens: its list is closed.
#[must_use]
pub fn is_complete(reply: &str, grammar: ReplyGrammar) -> bool {
    match grammar {
        ReplyGrammar::Tolerant => {
            let candidates = candidates(after_thinking(reply));
            candidates.iter().any(|found| found.is_closed && found.kind == CandidateKind::Claims)
        }
        ReplyGrammar::Reference => closes_a_list(reply),
    }
}

fn read_tolerantly(reply: &str) -> ParsedReply {
    let candidates = candidates(after_thinking(reply));
    let is_list = |found: &&ReplyCandidate| found.kind == CandidateKind::Claims;
    let last_closed = candidates.iter().rfind(|found| is_list(found) && found.is_closed);
    if let Some(list) = last_closed.or_else(|| candidates.iter().rfind(is_list)) {
        let claims = list.value.claims();
        return ParsedReply { is_understood: !claims.is_empty() || list.value.is_empty(), claims };
    }
    let mut claims = Vec::new();
    for candidate in &candidates {
        claims.extend(candidate.value.claim());
    }
    ParsedReply { is_understood: !claims.is_empty(), claims }
}

/// Returns the reply after the reasoning of a thinking model.
fn after_thinking(reply: &str) -> &str {
    match (reply.rfind(THINK.close), reply.contains(THINK.open)) {
        (Some(at), _) => &reply[at + THINK.close.len()..],
        (None, true) => "",
        (None, false) => reply,
    }
}

/// Part of a reply that may be its list, or one of its claims.
#[derive(Debug)]
struct ReplyCandidate {
    value: ReplyValue,
    kind: CandidateKind,
    /// False if the end of the reply cuts it off.
    is_closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CandidateKind {
    /// A list of claims, perhaps empty.
    Claims,
    /// A claim by itself.
    Claim,
}

/// Part of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ReplyValue {
    Text {
        text: String,
        is_quoted: bool,
    },
    /// The end of the reply is inside this string.
    CutText,
    List(Vec<ReplyValue>),
    /// Keys in lower case, with their values.
    Object(Vec<(String, ReplyValue)>),
}

/// Greatest depth of nested values, against the exhaustion of the stack.
const MAX_DEPTH: usize = 64;

/// Most parts of a reply that are tried after one that is not closed. Each may be read to the end.
const MAX_UNCLOSED: usize = 64;

/// Names of a claim's parts, in lower case. Of the names that an object has, the first here counts:
/// the last ones may also name something else, such as the document or the kind of a claim.
const HEAD: &[&str] = &["head", "subject", "subj", "head_entity", "entity1", "h", "s", "source"];
const RELATION: &[&str] = &[
    "relation",
    "predicate",
    "pred",
    "rel",
    "relationship",
    "relation_type",
    "property",
    "r",
    "p",
    "type",
];
const TAIL: &[&str] =
    &["tail", "object", "obj", "tail_entity", "entity2", "t", "o", "target", "value"];

/// Returns the parts of a reply that hold claims, in order.
fn candidates(reply: &str) -> Vec<ReplyCandidate> {
    let chars: Vec<char> = reply.chars().collect();
    let mut candidates = Vec::new();
    let mut num_unclosed = 0;
    let mut at = 0;
    // True while no letter precedes on the line.
    let mut starts_line = true;
    let mut num_seen = 0;
    while at < chars.len() && num_unclosed < MAX_UNCLOSED {
        for c in &chars[num_seen..at] {
            starts_line = *c == '\n' || (starts_line && !c.is_alphabetic());
        }
        num_seen = at;
        let starts_value = match chars[at] {
            '[' | '{' => true,
            // Elsewhere a round bracket is prose.
            '(' => starts_line,
            _ => false,
        };
        if !starts_value {
            at += 1;
            continue;
        }
        let mut parser = Parser { chars: &chars, at, is_cut: false };
        let value = parser.value(0, ']');
        let end = parser.at;
        num_unclosed += usize::from(parser.is_cut);
        let is_line = starts_line && ends_line(&chars[end..]);
        at += 1; // what is in a value without claims may still be read
        if let Some(value) = value
            && let Some(kind) = value.kind(is_line)
        {
            candidates.push(ReplyCandidate { value, kind, is_closed: !parser.is_cut });
            at = end;
        }
    }
    candidates
}

/// Most characters that may close a line after a claim.
const LINE_END: usize = 16;

/// Returns true if no letter or digit is before the end of the line, which is near.
fn ends_line(rest: &[char]) -> bool {
    let near = &rest[..rest.len().min(LINE_END)];
    let end = near.iter().position(|c| *c == '\n').unwrap_or(near.len());
    (end < LINE_END) && !near[..end].iter().any(|c| c.is_alphanumeric())
}

impl ReplyValue {
    /// Returns what the value is at the top of a reply; `None` if it is no claim and no list of
    /// them, such as the footnote `[1]`. `is_line` is true if it is alone on its lines.
    fn kind(&self, is_line: bool) -> Option<CandidateKind> {
        match self {
            Self::List(list) if list.is_empty() => Some(CandidateKind::Claims),
            Self::Object(fields) if fields.is_empty() => Some(CandidateKind::Claims),
            Self::List(list) if list.iter().any(Self::holds_parts) => {
                (!self.claims().is_empty()).then_some(CandidateKind::Claims)
            }
            Self::List(list) => {
                let is_quoted = matches!(list[0], Self::Text { is_quoted: true, .. });
                // Without quotes it may be any bracket of a text.
                let is_fact = list.len() >= 3 && is_quoted || list.len() == 3 && is_line;
                let has_name =
                    list[0].text().is_some_and(|head| head.contains(char::is_alphabetic));
                (is_fact && has_name && self.claim().is_some()).then_some(CandidateKind::Claim)
            }
            Self::Object(_) if self.claim().is_some() => Some(CandidateKind::Claim),
            Self::Object(fields) => {
                let is_list = |value: &Self| value.kind(false) == Some(CandidateKind::Claims);
                fields.iter().any(|(_, value)| is_list(value)).then_some(CandidateKind::Claims)
            }
            _ => None,
        }
    }

    fn holds_parts(&self) -> bool {
        matches!(self, Self::List(_) | Self::Object(_))
    }

    /// Returns true for a list without elements, also as the value of an object.
    fn is_empty(&self) -> bool {
        match self {
            Self::List(list) => list.is_empty(),
            Self::Object(fields) => fields.iter().all(|(_, value)| value.is_empty()),
            Self::Text { .. } | Self::CutText => false,
        }
    }

    /// Returns the claims of a list, or of an object that has one.
    fn claims(&self) -> Vec<Claim> {
        let mut claims = Vec::new();
        match self {
            Self::List(list) => {
                for element in list {
                    match element.claim() {
                        Some(claim) => claims.push(claim),
                        None if element.is_nested() => claims.extend(element.claims()),
                        None => {}
                    }
                }
            }
            Self::Object(fields) => {
                for (_, value) in fields {
                    claims.extend(value.claims());
                }
            }
            Self::Text { .. } | Self::CutText => {}
        }
        claims
    }

    /// True for a list of lists or objects, and for an object, which may have such a list.
    fn is_nested(&self) -> bool {
        match self {
            Self::List(list) => list.iter().all(Self::holds_parts),
            Self::Object(_) => true,
            Self::Text { .. } | Self::CutText => false,
        }
    }

    /// Returns the claim that a list or an object is.
    fn claim(&self) -> Option<Claim> {
        match self {
            Self::List(list) => claim_of_list(list),
            Self::Object(fields) => {
                let head = named(fields, HEAD)?.text()?;
                let relation = named(fields, RELATION).map_or(Some(String::new()), Self::joined)?;
                match named(fields, TAIL) {
                    Some(tail) => claim(head, relation, tail.text()?),
                    None if relation.is_empty() => None,
                    None => claim(head, relation, String::new()),
                }
            }
            Self::Text { .. } | Self::CutText => None,
        }
    }

    /// Returns the text of a string or number; empty for null.
    fn text(&self) -> Option<String> {
        match self {
            Self::Text { text, is_quoted: false } if text == "null" || text == "None" => {
                Some(String::new())
            }
            Self::Text { text, .. } => Some(text.clone()),
            _ => None,
        }
    }

    /// Returns the text of a string, or of the strings of a list, with blanks between them.
    fn joined(&self) -> Option<String> {
        match self {
            Self::List(list) => {
                let parts: Option<Vec<String>> = list.iter().map(Self::joined).collect();
                Some(parts?.join(" "))
            }
            _ => self.text(),
        }
    }
}

/// Returns the value of the field that has the first of these names; `None` if no field has one.
fn named<'a>(fields: &'a [(String, ReplyValue)], names: &[&str]) -> Option<&'a ReplyValue> {
    for name in names {
        for (key, value) in fields {
            if key == name {
                return Some(value);
            }
        }
    }
    None
}

/// Converts a list of two or more texts. More than three are a tail with commas.
fn claim_of_list(list: &[ReplyValue]) -> Option<Claim> {
    let (head, rest) = list.split_first()?;
    let (relation, tails) = rest.split_first()?;
    let mut tail_parts = Vec::with_capacity(tails.len());
    for tail in tails {
        tail_parts.push(tail.text()?);
    }
    claim(head.text()?, relation.joined()?, tail_parts.join(", "))
}

/// Returns a fact, or without a tail a mention; `None` without a head.
fn claim(head: String, relation: String, tail: String) -> Option<Claim> {
    match (head.is_empty(), tail.is_empty()) {
        (true, _) => None,
        (false, false) => Some(Claim::Fact(Triplet { head, relation, tail })),
        (false, true) if relation.is_empty() => None,
        (false, true) => Some(Claim::Mention { head, relation }),
    }
}

/// Reader of values.
struct Parser<'a> {
    chars: &'a [char],
    at: usize,
    /// True if the reply ended before the value did.
    is_cut: bool,
}

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.at += 1;
        }
    }

    /// Reads the value at the current position, in a value that `close` closes; `None` if it is nested
    /// too deep.
    fn value(&mut self, depth: usize, close: char) -> Option<ReplyValue> {
        if depth > MAX_DEPTH {
            return None;
        }
        match self.peek()? {
            '[' => self.list(']', depth),
            '(' => self.list(')', depth),
            '{' => self.object(depth),
            open => Some(match closing_quote(open) {
                Some(quotes) => self.string(quotes),
                None => self.bare(&[',', ']', '}', '[', '{', close]),
            }),
        }
    }

    fn list(&mut self, close: char, depth: usize) -> Option<ReplyValue> {
        self.at += 1;
        let mut list = Vec::new();
        loop {
            self.skip_blanks();
            match self.peek() {
                None => {
                    self.is_cut = true;
                    return Some(ReplyValue::List(list));
                }
                Some(c) if c == close => {
                    self.at += 1;
                    return Some(ReplyValue::List(list));
                }
                Some(',' | ';') => self.at += 1,
                // A bracket of another kind closes nothing here.
                Some(']' | ')' | '}' | ':') => self.at += 1,
                Some('(') if !self.starts_tuple() => list.push(self.bare(&[',', ']', '}', close])),
                Some(_) => list.push(self.value(depth + 1, close)?),
            }
        }
    }

    /// Returns true if a round bracket opens a tuple: a quote follows.
    fn starts_tuple(&self) -> bool {
        let mut rest = self.chars[self.at + 1..].iter().skip_while(|c| c.is_whitespace());
        rest.next().is_some_and(|c| closing_quote(*c).is_some())
    }

    fn object(&mut self, depth: usize) -> Option<ReplyValue> {
        self.at += 1;
        let mut fields = Vec::new();
        loop {
            self.skip_blanks();
            let key = match self.peek() {
                None => {
                    self.is_cut = true;
                    return Some(ReplyValue::Object(fields));
                }
                Some('}') => {
                    self.at += 1;
                    return Some(ReplyValue::Object(fields));
                }
                Some(',' | ';' | ':' | ']' | ')') => {
                    self.at += 1;
                    continue;
                }
                Some('[' | '{' | '(') => {
                    self.value(depth + 1, '}')?;
                    continue;
                }
                Some(open) => match closing_quote(open) {
                    Some(quotes) => self.string(quotes),
                    None => self.bare(&[':', ',', '}']),
                },
            };
            self.skip_blanks();
            if self.peek() != Some(':') {
                continue; // no key
            }
            self.at += 1;
            self.skip_blanks();
            if self.peek().is_some_and(|c| c != '}' && c != ',') {
                let value = self.value(depth + 1, '}')?;
                if let ReplyValue::Text { text, .. } = key {
                    fields.push((text.to_lowercase(), value));
                }
            }
        }
    }

    /// Reads a string. A quote closes it only before the end of an element, because names have
    /// apostrophes, and models forget to escape quotes.
    fn string(&mut self, quotes: &[char]) -> ReplyValue {
        self.at += 1;
        let mut text = String::new();
        while let Some(c) = self.peek() {
            self.at += 1;
            if c == '\\' {
                text.extend(self.escaped());
            } else if quotes.contains(&c) && self.ends_element() {
                return ReplyValue::Text { text: trimmed(&text), is_quoted: true };
            } else {
                text.push(c);
            }
        }
        self.is_cut = true;
        ReplyValue::CutText
    }

    /// Returns true if an element of a list or an object ends here.
    fn ends_element(&self) -> bool {
        let rest = self.chars[self.at..].iter().find(|c| !c.is_whitespace());
        rest.is_none_or(|c| matches!(c, ',' | ';' | ']' | ')' | '}' | ':'))
    }

    /// Reads the escape after a backslash. Unknown escapes mean the character itself.
    fn escaped(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        match c {
            'n' | 't' | 'r' | 'b' | 'f' => Some(' '),
            'u' => self.escaped_unit().or(Some('u')),
            _ => Some(c),
        }
    }

    /// Reads the four digits of a `\u` escape, and those of the surrogate that belongs to it.
    fn escaped_unit(&mut self) -> Option<char> {
        let high = self.hex_digits(self.at)?;
        self.at += 4;
        let is_surrogate = (0xd800..0xdc00).contains(&high);
        if is_surrogate && self.chars[self.at..].starts_with(&['\\', 'u']) {
            let low = self.hex_digits(self.at + 2)?;
            self.at += 6;
            return Some(char::decode_utf16([high, low]).next()?.unwrap_or('\u{fffd}'));
        }
        Some(char::from_u32(high.into()).unwrap_or('\u{fffd}'))
    }

    fn hex_digits(&self, at: usize) -> Option<u16> {
        let digits: String = self.chars.get(at..at + 4)?.iter().collect();
        u16::from_str_radix(&digits, 16).ok()
    }

    /// Reads text without quotes.
    fn bare(&mut self, ends: &[char]) -> ReplyValue {
        let start = self.at;
        while self.peek().is_some_and(|c| !ends.contains(&c)) {
            self.at += 1;
        }
        if self.at == self.chars.len() {
            self.is_cut = true;
            return ReplyValue::CutText;
        }
        if self.at == start {
            self.at += 1; // a bracket where no value starts
        }
        let text: String = self.chars[start..self.at].iter().collect();
        ReplyValue::Text { text: trimmed(&text), is_quoted: false }
    }
}

/// Returns the quotes that close a string; `None` if `open` is no quote.
fn closing_quote(open: char) -> Option<&'static [char]> {
    match open {
        '"' => Some(&['"']),
        '\'' => Some(&['\'']),
        '`' => Some(&['`', '\'']),
        '“' | '”' | '„' => Some(&['”', '“', '"']),
        '‘' | '’' | '‚' => Some(&['’', '‘', '\'']),
        '«' => Some(&['»']),
        '»' => Some(&['«']),
        '「' => Some(&['」']),
        _ => None,
    }
}

/// Returns a text with single blanks, and none at its ends.
fn trimmed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Form {
        reply: String,
        /// Head, relation and tail of each fact; a mention has no tail.
        claims: Vec<Vec<String>>,
        understood: bool,
    }

    fn parts(claim: &Claim) -> Vec<String> {
        match claim.clone() {
            Claim::Fact(Triplet { head, relation, tail }) => vec![head, relation, tail],
            Claim::Mention { head, relation } => vec![head, relation],
        }
    }

    /// Forms of replies that models write, each read by a person.
    #[test]
    fn forms_of_replies_are_read() {
        let forms: Vec<Form> =
            serde_json::from_str(include_str!("../../../tests/vectors/reply_forms.json")).unwrap();
        assert!(forms.len() >= 40);
        for Form { reply, claims, understood } in forms {
            let reading = read(&reply, ReplyGrammar::Tolerant);
            let read_claims: Vec<Vec<String>> = reading.claims.iter().map(parts).collect();
            assert_eq!(read_claims, claims, "{reply}");
            assert_eq!(reading.is_understood, understood, "{reply}");
        }
    }

    #[test]
    fn reply_is_complete_once_its_list_is_closed() {
        let is_complete = |reply| is_complete(reply, ReplyGrammar::Tolerant);
        for open in ["", "See [1].", r#"[["A", "r", "B"]"#, r#"["A", "r", "B"]"#, "<think>[[]]"] {
            assert!(!is_complete(open), "{open}");
        }
        for closed in
            ["[]", r#"See [1]. [["A", "r", "B"]]"#, r#"<think>x</think> [["A", "r", "B"]]"#]
        {
            assert!(is_complete(closed), "{closed}");
        }
    }

    #[test]
    fn reference_grammar_is_the_published_one() {
        let reply = r#"Facts: [["A", "r", "B"]] "#;
        let reading = read(reply, ReplyGrammar::Reference);
        assert_eq!(reading.claims, claims_from_reply(reply));
        assert!(read("[]", ReplyGrammar::Reference).is_understood);
        assert!(!read("no list", ReplyGrammar::Reference).is_understood);
    }

    proptest! {
        #[test]
        fn arbitrary_reply_never_panics(reply in r#"([\[\](){}:",'“”\\ a-c\n]|\\u|null|head|\PC){0,80}"#) {
            let reading = read(&reply, ReplyGrammar::Tolerant);
            prop_assert!(reading.claims.len() <= reply.len());
            let _ = is_complete(&reply, ReplyGrammar::Tolerant);
        }

        #[test]
        fn json_in_prose_round_trips(facts in prop::collection::vec(prop::array::uniform3(r#"[a-zA-Z'"\\,é(\[:{]([a-zA-Z '",é)\]:}]{0,10}[a-z])?"#), 1..4), fence in any::<bool>()) {
            let list = serde_json::to_string(&facts).unwrap();
            let reply = if fence { format!("Facts [1]:\n```json\n{list}\n```") } else { list };
            let reading = read(&reply, ReplyGrammar::Tolerant);
            let read_claims: Vec<Vec<String>> = reading.claims.iter().map(parts).collect();
            let expected: Vec<Vec<String>> = facts
                .iter()
                .map(|fact| fact.iter().map(|part| trimmed(part)).collect())
                .collect();
            prop_assert_eq!(read_claims, expected);
        }
    }

    #[test]
    fn long_hostile_reply_is_read_in_time() {
        for part in ["[", "{", "(\n", "[\"", "{a:", "[a,", "[['"] {
            let _ = read(&part.repeat(100_000), ReplyGrammar::Tolerant);
        }
    }
}
