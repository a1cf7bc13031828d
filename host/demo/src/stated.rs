//! What sentences of the world's wordings state, whether it is true or not.

use crate::relation::Relation;

/// A pronoun for a subject.
pub(crate) const PRONOUNS: [&str; 3] = ["He", "She", "It"];

/// A fact as a sentence states it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Stated {
    pub head: String,
    pub relation: Relation,
    pub tail: String,
}

/// What a piece of a sentence says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Clause {
    /// With its subject, without a full stop.
    pub text: String,
    /// Every reading of it as a fact about two names.
    pub facts: Vec<Stated>,
}

/// The clauses of a sentence. A second verb has the subject of the first, as in “A directed B and
/// starred in C”.
pub(crate) fn clauses(sentence: &str) -> Vec<Clause> {
    let mut subject = None;
    let clauses = sentence.trim_end_matches('.').split(" and ").map(|text| {
        let text = text.trim_end_matches(',');
        let clause = Clause::new(text.to_owned()).with_subject(subject);
        subject = subject_of(text).or(subject);
        clause
    });
    clauses.collect()
}

impl Clause {
    fn new(text: String) -> Self {
        Self { facts: facts(&text), text }
    }

    /// With this subject, where it states no fact without: it may be a verb with an object.
    fn with_subject(self, subject: Option<&str>) -> Self {
        let Some(subject) = subject.filter(|_| self.facts.is_empty()) else { return self };
        let with = Self::new(format!("{subject} {}", self.text));
        let is_verb = self.text.starts_with(char::is_lowercase) && !self.text.starts_with("the ");
        if is_verb || !with.facts.is_empty() { with } else { self }
    }
}

fn facts(clause: &str) -> Vec<Stated> {
    let readings = Relation::ALL.into_iter().flat_map(|relation| {
        relation
            .statements()
            .iter()
            .filter_map(move |statement| Some((relation, read(statement.pattern, clause)?)))
    });
    let names = readings.filter(|(_, (head, tail))| is_name(head) && is_name(tail));
    names
        .map(|(relation, (head, tail))| Stated {
            head: head.to_owned(),
            relation,
            tail: tail.to_owned(),
        })
        .collect()
}

/// “It was directed by A B” must not be read as “`It was` directed `by A B`”.
pub(crate) fn is_name(text: &str) -> bool {
    !PRONOUNS.contains(&text) && text.split(' ').all(|word| word.starts_with(char::is_uppercase))
}

/// A pronoun, or a name, which is two words.
fn subject_of(clause: &str) -> Option<&str> {
    let words =
        |many: usize| clause.match_indices(' ').nth(many - 1).map(|(end, _)| &clause[..end]);
    words(1).filter(|word| PRONOUNS.contains(word)).or_else(|| words(2))
}

/// What stands for `{H}` and `{T}` where the clause has the pattern's form, at the beginning of a
/// sentence or within one.
fn read<'a>(pattern: &str, clause: &'a str) -> Option<(&'a str, &'a str)> {
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
