//! Parsing sentences in the world's wordings into clauses and facts, true or not.

use crate::relation::Relation;

/// Pronouns that may be the subject of a clause.
pub(crate) const PRONOUNS: [&str; 3] = ["He", "She", "It"];

/// A fact as a sentence states it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct StatedFact {
    pub head: String,
    pub relation: Relation,
    pub tail: String,
}

/// A clause of a sentence, with the facts that it states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Clause {
    /// Text with the subject, without a full stop.
    pub text: String,
    /// Facts, one for each way to read the clause as a statement about two names.
    pub facts: Vec<StatedFact>,
}

/// Returns the clauses of a sentence. A second verb has the subject of the first one, as in “A
/// directed B and starred in C”.
pub(crate) fn clauses(sentence: &str) -> Vec<Clause> {
    let mut subject = None;
    let mut clauses = Vec::new();
    for text in sentence.trim_end_matches('.').split(" and ") {
        let text = text.trim_end_matches(',');
        clauses.push(Clause::new(text.to_owned()).with_subject(subject));
        subject = subject_of(text).or(subject);
    }
    clauses
}

impl Clause {
    fn new(text: String) -> Self {
        Self { facts: facts(&text), text }
    }

    /// Prepends the subject to a clause that states no fact without it: it may be a verb with an
    /// object.
    fn with_subject(self, subject: Option<&str>) -> Self {
        let Some(subject) = subject.filter(|_| self.facts.is_empty()) else { return self };
        let prefixed = Self::new(format!("{subject} {}", self.text));
        let is_verb = self.text.starts_with(char::is_lowercase) && !self.text.starts_with("the ");
        if is_verb || !prefixed.facts.is_empty() { prefixed } else { self }
    }
}

fn facts(clause: &str) -> Vec<StatedFact> {
    let mut facts = Vec::new();
    for relation in Relation::ALL {
        for statement in relation.statements() {
            let Some((head, tail)) = match_pattern(statement.pattern, clause) else { continue };
            if is_name(head) && is_name(tail) {
                facts.push(StatedFact { head: head.to_owned(), relation, tail: tail.to_owned() });
            }
        }
    }
    facts
}

/// True if a text may be a name. The test prevents that “It was directed by A B” is read as “`It was`
/// directed `by A B`”.
pub(crate) fn is_name(text: &str) -> bool {
    !PRONOUNS.contains(&text) && text.split(' ').all(|word| word.starts_with(char::is_uppercase))
}

/// Returns the subject at the beginning of a clause: a pronoun, or a name of two words.
fn subject_of(clause: &str) -> Option<&str> {
    let mut spaces = clause.match_indices(' ');
    let (first_end, _) = spaces.next()?;
    if PRONOUNS.contains(&&clause[..first_end]) {
        return Some(&clause[..first_end]);
    }
    let (second_end, _) = spaces.next()?;
    Some(&clause[..second_end])
}

/// Matches a clause with a pattern, and returns the texts of `{H}` and `{T}`. A leading article of the
/// pattern may be in lower case, as within a sentence.
fn match_pattern<'a>(pattern: &str, clause: &'a str) -> Option<(&'a str, &'a str)> {
    let head_first = pattern.find("{H}") < pattern.find("{T}");
    let (first, second) = if head_first { ("{H}", "{T}") } else { ("{T}", "{H}") };
    let (before, rest) = pattern.split_once(first)?;
    let (between, after) = rest.split_once(second)?;
    let within = before.strip_prefix("The ").map(|name| format!("the {name}"));
    let clause = clause
        .strip_prefix(before)
        .or_else(|| clause.strip_prefix(within.as_deref()?))?
        .strip_suffix(after)?;
    let (one, other) = clause.split_once(between)?;
    Some(if head_first { (one, other) } else { (other, one) })
}
