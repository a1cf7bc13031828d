//! What is asked of the corpus for a claim, and what its counts mean. The constants are those of
//! QuCo-RAG's published settings.

use corver_core::{Claim, Lookup, Query, Triplet, Verdict};
use corver_settings::{CheckSettings, DecidedBy};
use serde::Serialize;

use super::{CheckedClaim, Status};

/// A sentence with one of these denies knowledge or sums up: the test ends there.
const ENDS_THE_TEST: [&str; 7] = [
    "does not",
    "not provide",
    "not mention",
    "not available",
    "not specif",
    "No information",
    "the answer is",
];

/// How often a question's entities occur.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QuestionCheck {
    /// Each entity once.
    pub entities: Vec<Lookup>,
    /// Mean occurrences of the entities that the corpus could count; `None` where there are none.
    pub mean: Option<f64>,
    /// They are rare: an answer to the question needs to look something up.
    pub rare: bool,
}

impl QuestionCheck {
    pub(super) fn of(entities: Vec<Lookup>, settings: &CheckSettings) -> Self {
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

/// The entities of a question: the heads of its claims, each once.
pub(super) fn entities(claims: Vec<Claim>) -> Vec<String> {
    let mut heads: Vec<String> = Vec::new();
    for Claim::Fact(Triplet { head, .. }) | Claim::Mention { head, .. } in claims {
        if !heads.contains(&head) {
            heads.push(head);
        }
    }
    heads
}

/// How many sentences are tested: those before the first denial or summary.
pub(super) fn tested(sentences: &[&str]) -> usize {
    let ends = |sentence: &&str| ENDS_THE_TEST.iter().any(|phrase| sentence.contains(phrase));
    sentences.iter().position(ends).unwrap_or(sentences.len())
}

/// How often do whole entities occur together? Rules ask with words instead, so their counts are
/// others.
pub(super) fn query(claim: &Claim) -> Query {
    match claim {
        Claim::Fact(Triplet { head, tail, .. }) => Query::new([[head], [tail]]),
        Claim::Mention { head, .. } => Query::new([[head]]),
    }
}

/// Compares the count of a claim with its threshold.
pub(super) fn test(settings: &CheckSettings, claim: Claim, lookup: Lookup) -> CheckedClaim {
    let (head, relation, tail, least) = match claim {
        Claim::Fact(Triplet { head, relation, tail }) => {
            (head, relation, Some(tail), settings.pair)
        }
        Claim::Mention { head, relation } => (head, relation, None, settings.entity),
    };
    let supported = lookup.count.occurrences.map(|found| found >= least);
    CheckedClaim { head, relation, tail, lookup, supported, passages: Vec::new() }
}

/// Returns the status of a sentence, by the test of its claims or by the rule's verdict.
pub(super) fn decide(
    by: DecidedBy,
    is_tested: bool,
    claims: &[CheckedClaim],
    rule: &Verdict,
) -> Status {
    let by_test = claims.iter().filter_map(|claim| claim.supported).reduce(|all, one| all && one);
    let by_rule = rule.reward.map(|reward| reward >= 0.0);
    let supported = match by {
        DecidedBy::Test => by_test,
        DecidedBy::Rule => by_rule,
        DecidedBy::Either => by_test.into_iter().chain(by_rule).reduce(|all, one| all && one),
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
        test(&CheckSettings::default(), claim, lookup)
    }

    fn paid(reward: Option<f32>) -> Verdict {
        Verdict { reward, ..Verdict::default() }
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
        assert_eq!(tested(&["A is b.", "The text does not say more.", "C is d."]), 1);
        assert_eq!(tested(&["A is b.", "So the answer is b."]), 1);
        assert_eq!(tested(&["A is b.", "C is d."]), 2);
    }

    #[test]
    fn question_rarity_uses_mean_entity_count() {
        let entities = |counts: &[Option<u64>]| {
            counts.iter().map(|&count| lookup(&mention(), count)).collect()
        };
        let of =
            |counts: &[Option<u64>]| QuestionCheck::of(entities(counts), &CheckSettings::default());
        let question = of(&[Some(1_500), Some(400), None]);
        assert_eq!((question.mean, question.rare), (Some(950.0), true));
        assert!(!of(&[Some(1_000)]).rare);
        assert_eq!((of(&[]).mean, of(&[]).rare), (None, false), "no entity, nothing to look up");
        let claims = vec![mention(), fact()];
        assert_eq!(super::entities(claims), ["Ada Vell"]);
    }

    #[test]
    fn sentence_status_follows_decided_by_setting() {
        let missing = [tested_claim(fact(), Some(0))];
        let found = [tested_claim(fact(), Some(3))];
        assert_eq!(decide(DecidedBy::Test, true, &missing, &paid(Some(0.1))), Status::Unsupported);
        assert_eq!(decide(DecidedBy::Test, true, &found, &paid(Some(-0.3))), Status::Supported);
        assert_eq!(decide(DecidedBy::Test, true, &[], &paid(Some(-0.3))), Status::NoClaim);
        assert_eq!(decide(DecidedBy::Test, false, &[], &paid(None)), Status::NotTested);
        assert_eq!(decide(DecidedBy::Rule, true, &missing, &paid(Some(0.1))), Status::Supported);
        assert_eq!(decide(DecidedBy::Rule, false, &[], &paid(Some(-0.3))), Status::Unsupported);
        assert_eq!(decide(DecidedBy::Rule, true, &found, &paid(None)), Status::NoClaim);
        assert_eq!(decide(DecidedBy::Either, true, &found, &paid(Some(-0.1))), Status::Unsupported);
        assert_eq!(decide(DecidedBy::Either, true, &found, &paid(Some(0.1))), Status::Supported);
    }
}
