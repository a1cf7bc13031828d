//! The kinds of entities, the relations between them, and their wordings.
//!
//! Each relation has a table. In its patterns, `{H}` is the entity that has the property and `{T}`
//! the value. A statement's triplet follows the text, as a real extractor's does: the first entity
//! is the head, and the words between the two are the relation.

/// The kind of an entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names say it")]
pub enum EntityKind {
    Person,
    Film,
    Book,
    City,
    Country,
    Company,
}

impl EntityKind {
    /// All kinds, in the order of a world's entities.
    pub const ALL: [Self; 6] =
        [Self::Person, Self::Film, Self::Book, Self::City, Self::Country, Self::Company];

    /// Returns the common noun, in the singular.
    #[must_use]
    pub fn noun(self) -> &'static str {
        match self {
            Self::Person => "person",
            Self::Film => "film",
            Self::Book => "book",
            Self::City => "city",
            Self::Country => "country",
            Self::Company => "company",
        }
    }
}

/// A property of the entities of a kind, whose value is another entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names say it; `kinds` gives the direction")]
pub enum Relation {
    Directed,
    Starred,
    SetIn,
    Wrote,
    Published,
    BornIn,
    Married,
    LocatedIn,
    Capital,
    Founded,
    BasedIn,
}

/// A way to state a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statement {
    /// Clause with `{H}` and `{T}` once each, without a full stop.
    pub pattern: &'static str,
    /// Relation of the triplet, which is a part of the pattern.
    pub relation: &'static str,
}

const fn statement(pattern: &'static str, relation: &'static str) -> Statement {
    Statement { pattern, relation }
}

/// The kinds and wordings of a relation.
pub(crate) struct Wording {
    pub head: EntityKind,
    pub tail: EntityKind,
    /// Ways to state it. The first two are `{H}` followed by a verb, so that two of them can share a
    /// subject.
    pub statements: &'static [Statement],
    /// Questions with `{H}` that the policy is trained on.
    pub train_questions: &'static [&'static str],
    /// Questions with `{H}` for evaluation alone.
    pub held_out_questions: &'static [&'static str],
}

impl Relation {
    /// All relations, in the order of a world's facts.
    pub const ALL: [Self; 11] = [
        Self::Directed,
        Self::Starred,
        Self::SetIn,
        Self::Wrote,
        Self::Published,
        Self::BornIn,
        Self::Married,
        Self::LocatedIn,
        Self::Capital,
        Self::Founded,
        Self::BasedIn,
    ];

    /// Returns the kind that has the property, and the kind of its value.
    #[must_use]
    pub fn kinds(self) -> (EntityKind, EntityKind) {
        let wording = self.wording();
        (wording.head, wording.tail)
    }

    /// Returns the ways to state the relation.
    #[must_use]
    pub fn statements(self) -> &'static [Statement] {
        self.wording().statements
    }

    pub(crate) fn wording(self) -> &'static Wording {
        match self {
            Self::Directed => &DIRECTED,
            Self::Starred => &STARRED,
            Self::SetIn => &SET_IN,
            Self::Wrote => &WROTE,
            Self::Published => &PUBLISHED,
            Self::BornIn => &BORN_IN,
            Self::Married => &MARRIED,
            Self::LocatedIn => &LOCATED_IN,
            Self::Capital => &CAPITAL,
            Self::Founded => &FOUNDED,
            Self::BasedIn => &BASED_IN,
        }
    }
}

static DIRECTED: Wording = Wording {
    head: EntityKind::Film,
    tail: EntityKind::Person,
    statements: &[
        statement("{H} was directed by {T}", "was directed by"),
        statement("{H} had the director {T}", "had the director"),
        statement("{T} directed {H}", "directed"),
        statement("The director of {H} was {T}", "director"),
    ],
    train_questions: &[
        "Who directed {H}?",
        "Who was the director of {H}?",
        "{H} was directed by whom?",
        "Name the director of {H}.",
        "Which person directed the film {H}?",
        "Tell me the director of {H}.",
    ],
    held_out_questions: &[
        "By whom was {H} directed?",
        "Which person was the director of the film {H}?",
    ],
};

static STARRED: Wording = Wording {
    head: EntityKind::Film,
    tail: EntityKind::Person,
    statements: &[
        statement("{H} starred {T}", "starred"),
        statement("{H} featured {T} in the leading role", "featured"),
        statement("{T} starred in {H}", "starred in"),
        statement("The star of {H} was {T}", "star"),
    ],
    train_questions: &[
        "Who starred in {H}?",
        "Who was the star of {H}?",
        "{H} starred whom?",
        "Name the star of {H}.",
        "Which person starred in the film {H}?",
        "Tell me the star of {H}.",
    ],
    held_out_questions: &["Whom did {H} star?", "Which person was the star of the film {H}?"],
};

static SET_IN: Wording = Wording {
    head: EntityKind::Film,
    tail: EntityKind::City,
    statements: &[
        statement("{H} is set in {T}", "is set in"),
        statement("{H} takes place in {T}", "takes place in"),
        statement("{T} is the setting of {H}", "is the setting of"),
        statement("The setting of {H} is {T}", "setting"),
    ],
    train_questions: &[
        "Where is {H} set?",
        "In which city is {H} set?",
        "{H} is set where?",
        "Name the setting of {H}.",
        "Which city is the setting of {H}?",
        "Tell me the setting of {H}.",
    ],
    held_out_questions: &["{H} is set in which city?", "What is the setting of the film {H}?"],
};

static WROTE: Wording = Wording {
    head: EntityKind::Book,
    tail: EntityKind::Person,
    statements: &[
        statement("{H} was written by {T}", "was written by"),
        statement("{H} had the author {T}", "had the author"),
        statement("{T} wrote {H}", "wrote"),
        statement("The author of {H} was {T}", "author"),
    ],
    train_questions: &[
        "Who wrote {H}?",
        "Who was the author of {H}?",
        "{H} was written by whom?",
        "Name the author of {H}.",
        "Which person wrote the book {H}?",
        "Tell me the author of {H}.",
    ],
    held_out_questions: &[
        "By whom was {H} written?",
        "Which person was the author of the book {H}?",
    ],
};

static PUBLISHED: Wording = Wording {
    head: EntityKind::Book,
    tail: EntityKind::Company,
    statements: &[
        statement("{H} was published by {T}", "was published by"),
        statement("{H} had the publisher {T}", "had the publisher"),
        statement("{T} published {H}", "published"),
        statement("The publisher of {H} was {T}", "publisher"),
    ],
    train_questions: &[
        "Who published {H}?",
        "Who was the publisher of {H}?",
        "{H} was published by whom?",
        "Name the publisher of {H}.",
        "Which company published the book {H}?",
        "Tell me the publisher of {H}.",
    ],
    held_out_questions: &[
        "By whom was {H} published?",
        "Which company was the publisher of the book {H}?",
    ],
};

static BORN_IN: Wording = Wording {
    head: EntityKind::Person,
    tail: EntityKind::City,
    statements: &[
        statement("{H} was born in {T}", "was born in"),
        statement("{H} came from {T}", "came from"),
        statement("{T} is the birthplace of {H}", "is the birthplace of"),
        statement("The birthplace of {H} is {T}", "birthplace"),
    ],
    train_questions: &[
        "Where was {H} born?",
        "What is the birthplace of {H}?",
        "{H} was born where?",
        "Name the birthplace of {H}.",
        "In which city was {H} born?",
        "Tell me the birthplace of {H}.",
    ],
    held_out_questions: &["{H} was born in which city?", "Which city is the birthplace of {H}?"],
};

static MARRIED: Wording = Wording {
    head: EntityKind::Person,
    tail: EntityKind::Person,
    statements: &[
        statement("{H} married {T}", "married"),
        statement("{H} was the spouse of {T}", "was the spouse of"),
        statement("{H} was married to {T}", "was married to"),
        statement("The spouse of {H} was {T}", "spouse"),
    ],
    train_questions: &[
        "Who married {H}?",
        "Who was the spouse of {H}?",
        "{H} was married to whom?",
        "Name the spouse of {H}.",
        "Whom did {H} marry?",
        "Tell me the spouse of {H}.",
    ],
    held_out_questions: &["To whom was {H} married?", "Which person was the spouse of {H}?"],
};

static LOCATED_IN: Wording = Wording {
    head: EntityKind::City,
    tail: EntityKind::Country,
    statements: &[
        statement("{H} lies in {T}", "lies in"),
        statement("{H} is a city of {T}", "is a city of"),
        statement("{T} is the country of {H}", "is the country of"),
        statement("The country of {H} is {T}", "country"),
    ],
    train_questions: &[
        "Where does {H} lie?",
        "In which country does {H} lie?",
        "{H} lies where?",
        "Name the country of {H}.",
        "What is the country of {H}?",
        "Tell me the country of {H}.",
    ],
    held_out_questions: &["{H} lies in which country?", "Which is the country of the city {H}?"],
};

static CAPITAL: Wording = Wording {
    head: EntityKind::Country,
    tail: EntityKind::City,
    statements: &[
        statement("{H} has the capital {T}", "has the capital"),
        statement("{H} is governed from {T}", "is governed from"),
        statement("{T} is the capital of {H}", "is the capital of"),
        statement("The capital of {H} is {T}", "capital"),
    ],
    train_questions: &[
        "What is the capital of {H}?",
        "Which city is the capital of {H}?",
        "{H} has which capital?",
        "Name the capital of {H}.",
        "Which capital does {H} have?",
        "Tell me the capital of {H}.",
    ],
    held_out_questions: &[
        "The capital of {H} is which city?",
        "What is the capital of the country {H}?",
    ],
};

static FOUNDED: Wording = Wording {
    head: EntityKind::Company,
    tail: EntityKind::Person,
    statements: &[
        statement("{H} was founded by {T}", "was founded by"),
        statement("{H} had the founder {T}", "had the founder"),
        statement("{T} founded {H}", "founded"),
        statement("The founder of {H} was {T}", "founder"),
    ],
    train_questions: &[
        "Who founded {H}?",
        "Who was the founder of {H}?",
        "{H} was founded by whom?",
        "Name the founder of {H}.",
        "Which person founded the company {H}?",
        "Tell me the founder of {H}.",
    ],
    held_out_questions: &[
        "By whom was {H} founded?",
        "Which person was the founder of the company {H}?",
    ],
};

static BASED_IN: Wording = Wording {
    head: EntityKind::Company,
    tail: EntityKind::City,
    statements: &[
        statement("{H} is based in {T}", "is based in"),
        statement("{H} has its seat in {T}", "has its seat in"),
        statement("{T} is the seat of {H}", "is the seat of"),
        statement("The seat of {H} is {T}", "seat"),
    ],
    train_questions: &[
        "Where is {H} based?",
        "What is the seat of {H}?",
        "{H} is based where?",
        "Name the seat of {H}.",
        "In which city is {H} based?",
        "Tell me the seat of {H}.",
    ],
    held_out_questions: &["{H} is based in which city?", "Which city is the seat of {H}?"],
};

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_pattern_names_its_entities_once() {
        for relation in Relation::ALL {
            let wording = relation.wording();
            for statement in wording.statements {
                assert_eq!(statement.pattern.matches("{H}").count(), 1, "{}", statement.pattern);
                assert_eq!(statement.pattern.matches("{T}").count(), 1, "{}", statement.pattern);
                assert!(
                    statement.pattern.contains(&format!("{} ", statement.relation)),
                    "{}",
                    statement.pattern
                );
            }
            for question in wording.train_questions.iter().chain(wording.held_out_questions) {
                assert_eq!(question.matches("{H}").count(), 1, "{question}");
            }
        }
    }

    #[test]
    fn first_two_statements_start_with_head() {
        for relation in Relation::ALL {
            assert!(
                relation.statements()[..2].iter().all(|s| s.pattern.starts_with("{H} ")),
                "{relation:?}"
            );
        }
    }

    #[test]
    fn held_out_phrasings_are_not_trained_on() {
        let train: HashSet<&str> =
            Relation::ALL.iter().flat_map(|r| r.wording().train_questions).copied().collect();
        let held_out: HashSet<&str> =
            Relation::ALL.iter().flat_map(|r| r.wording().held_out_questions).copied().collect();
        assert!(train.is_disjoint(&held_out));
    }
}
