//! Queries for claims, and the meaning of their counts. The constants are those of QuCo-RAG's
//! published settings.

use corver_core::{Claim, Lookup, Query, SentenceVerdict, Triplet};
use corver_settings::{CheckSettings, DecidedBy};
use serde::Serialize;

use super::{CheckedClaim, Status};

/// Phrases of a sentence that denies knowledge or sums up, at which the test ends.
const END_PHRASES: [&str; 7] = [
    "does not",
    "not provide",
    "not mention",
    "not available",
    "not specif",
    "No information",
    "the answer is",
];

/// Counts of a question's entities.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QuestionCheck {
    /// Lookup of each entity, without duplicates.
    pub entities: Vec<Lookup>,
    /// Mean occurrences of the entities that the corpus could count; `None` if there are none.
    pub mean: Option<f64>,
    /// True if the entities are rare, so that an answer to the question needs retrieval.
    pub rare: bool,
}

impl QuestionCheck {
    pub(super) fn new(entities: Vec<Lookup>, settings: &CheckSettings) -> Self {
        let counts: Vec<u64> =
            entities.iter().filter_map(|entity| entity.count.occurrences).collect();
        let total: f64 = counts.iter().map(|&count| count as f64).sum();
        let mean = (!counts.is_empty()).then(|| total / counts.len() as f64);
        Self {
            rare: mean.is_some_and(|mean| mean < settings.question_entity as f64),
            entities,
            mean,
        }
    }
}

/// Returns the entities of a question: the heads of its claims, without duplicates.
pub(super) fn entities(claims: Vec<Claim>) -> Vec<String> {
    let mut heads: Vec<String> = Vec::new();
    for Claim::Fact(Triplet { head, .. }) | Claim::Mention { head, .. } in claims {
        if !heads.contains(&head) {
            heads.push(head);
        }
    }
    heads
}

/// Returns the number of sentences before the first denial or summary, which are tested.
pub(super) fn num_tested(sentences: &[&str]) -> usize {
    sentences
        .iter()
        .position(|sentence| END_PHRASES.iter().any(|phrase| sentence.contains(phrase)))
        .unwrap_or(sentences.len())
}

/// Returns the query of a claim. It consists of whole entities, unlike the queries of rules, which
/// consist of words; so their counts differ.
pub(super) fn query(claim: &Claim) -> Query {
    match claim {
        Claim::Fact(Triplet { head, tail, .. }) => Query::new([[head], [tail]]),
        Claim::Mention { head, .. } => Query::new([[head]]),
    }
}

/// Compares the count of a claim with its threshold.
pub(super) fn check_claim(settings: &CheckSettings, claim: Claim, lookup: Lookup) -> CheckedClaim {
    let (head, relation, tail, threshold) = match claim {
        Claim::Fact(Triplet { head, relation, tail }) => {
            (head, relation, Some(tail), settings.pair)
        }
        Claim::Mention { head, relation } => (head, relation, None, settings.entity),
    };
    let supported = lookup.count.occurrences.map(|count| count >= threshold);
    CheckedClaim { head, relation, tail, lookup, supported, passages: Vec::new() }
}

/// Returns the status of a sentence, by the test of its claims or by the rule's verdict.
pub(super) fn decide(
    by: DecidedBy,
    is_tested: bool,
    claims: &[CheckedClaim],
    rule: &SentenceVerdict,
) -> Status {
    let mut by_test = None;
    for claim in claims {
        if let Some(supported) = claim.supported {
            by_test = Some(by_test.unwrap_or(true) && supported);
        }
    }
    let by_rule = rule.reward.map(|reward| reward >= 0.0);
    let supported = match by {
        DecidedBy::Test => by_test,
        DecidedBy::Rule => by_rule,
        DecidedBy::Either => match (by_test, by_rule) {
            (Some(test), Some(reward)) => Some(test && reward),
            (test, reward) => test.or(reward),
        },
    };
    match supported {
        Some(true) => Status::Supported,
        Some(false) => Status::Unsupported,
        None if is_tested => Status::NoClaim,
        None => Status::NotTested,
    }
}

#[cfg(test)]
mod tests {
    use corver_core::Count;

    use super::*;

    fn fact() -> Claim {
        let [head, relation, tail] = ["Ada Vell", "was born in", "Riavuck"].map(str::to_owned);
        Claim::Fact(Triplet { head, relation, tail })
    }

    fn mention() -> Claim {
        Claim::Mention { head: "Ada Vell".to_owned(), relation: "poet".to_owned() }
    }

    fn lookup(claim: &Claim, occurrences: Option<u64>) -> Lookup {
        Lookup { query: query(claim), count: Count::exact(occurrences) }
    }

    fn tested_claim(claim: Claim, occurrences: Option<u64>) -> CheckedClaim {
        let lookup = lookup(&claim, occurrences);
        check_claim(&CheckSettings::default(), claim, lookup)
    }

    fn verdict(reward: Option<f32>) -> SentenceVerdict {
        SentenceVerdict { reward, ..SentenceVerdict::default() }
    }

    #[test]
    fn support_thresholds_differ_for_pair_and_entity() {
        let supported = |claim: Claim, found| tested_claim(claim, found).supported;
        assert_eq!([0, 1].map(|found| supported(fact(), Some(found))), [Some(false), Some(true)]);
        assert_eq!(
            [19, 20].map(|found| supported(mention(), Some(found))),
            [Some(false), Some(true)]
        );
        assert_eq!(supported(fact(), None), None, "no answer is not a zero");
        assert_eq!(tested_claim(fact(), Some(0)).lookup.query.to_string(), "Ada Vell AND Riavuck");
    }

    #[test]
    fn claim_testing_stops_at_denial() {
        assert_eq!(num_tested(&["A is b.", "The text does not say more.", "C is d."]), 1);
        assert_eq!(num_tested(&["A is b.", "So the answer is b."]), 1);
        assert_eq!(num_tested(&["A is b.", "C is d."]), 2);
    }

    #[test]
    fn question_rarity_uses_mean_entity_count() {
        let entities = |counts: &[Option<u64>]| {
            counts.iter().map(|&count| lookup(&mention(), count)).collect()
        };
        let check = |counts: &[Option<u64>]| {
            QuestionCheck::new(entities(counts), &CheckSettings::default())
        };
        let question = check(&[Some(1_500), Some(400), None]);
        assert_eq!((question.mean, question.rare), (Some(950.0), true));
        assert!(!check(&[Some(1_000)]).rare);
        let unnamed = check(&[]);
        assert_eq!((unnamed.mean, unnamed.rare), (None, false), "no entity, nothing to look up");
        let claims = vec![mention(), fact()];
        assert_eq!(super::entities(claims), ["Ada Vell"]);
    }

    #[test]
    fn sentence_status_follows_decided_by_setting() {
        let missing = [tested_claim(fact(), Some(0))];
        let found = [tested_claim(fact(), Some(3))];
        assert_eq!(
            decide(DecidedBy::Test, true, &missing, &verdict(Some(0.1))),
            Status::Unsupported
        );
        assert_eq!(decide(DecidedBy::Test, true, &found, &verdict(Some(-0.3))), Status::Supported);
        assert_eq!(decide(DecidedBy::Test, true, &[], &verdict(Some(-0.3))), Status::NoClaim);
        assert_eq!(decide(DecidedBy::Test, false, &[], &verdict(None)), Status::NotTested);
        assert_eq!(decide(DecidedBy::Rule, true, &missing, &verdict(Some(0.1))), Status::Supported);
        assert_eq!(decide(DecidedBy::Rule, false, &[], &verdict(Some(-0.3))), Status::Unsupported);
        assert_eq!(decide(DecidedBy::Rule, true, &found, &verdict(None)), Status::NoClaim);
        assert_eq!(
            decide(DecidedBy::Either, true, &found, &verdict(Some(-0.1))),
            Status::Unsupported
        );
        assert_eq!(decide(DecidedBy::Either, true, &found, &verdict(Some(0.1))), Status::Supported);
    }
}
