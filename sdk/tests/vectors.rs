//! Words, tiers, and the paper's three rules against `tests/vectors/reference.py`.

#[path = "../../tests/vectors/mod.rs"]
mod vectors;

#[path = "../../plugins/first/src/lib.rs"]
mod first;
#[path = "../../plugins/min/src/lib.rs"]
mod min;
#[path = "../../plugins/relcheck/src/lib.rs"]
mod relcheck;

use corver_sdk::testing::{FakeCorpus, Parts, counts, run, sentence};
use corver_sdk::{CompletionRule, content_words, is_pronoun};
use serde::Deserialize;
use vectors::cases;

#[test]
fn content_words_match_vectors() {
    #[derive(Deserialize)]
    struct Case {
        entity: String,
        words: Vec<String>,
        pronoun: bool,
    }
    for Case { entity, words, pronoun } in cases(include_str!("../../tests/vectors/words.json")) {
        assert_eq!(content_words(&entity), words, "{entity:?}");
        assert_eq!(is_pronoun(&entity), pronoun, "{entity:?}");
    }
}

#[derive(Debug, Deserialize)]
struct Case {
    triplets: Vec<[String; 3]>,
    /// The words of a query, and its count; none where the corpus cannot tell.
    counts: Vec<(Vec<String>, Option<u64>)>,
    first: Expected,
    min: Expected,
    relcheck: Expected,
}

#[derive(Debug, Deserialize)]
struct Expected {
    reward: f64,
    count: Option<u64>,
    asked: Vec<Vec<String>>,
}

#[test]
fn rule_rewards_match_vectors() {
    for case in cases::<Case>(include_str!("../../tests/vectors/rules.json")) {
        check(&first::First::default(), &case, &case.first);
        check(&min::Min::default(), &case, &case.min);
        check(&relcheck::RelCheck::default(), &case, &case.relcheck);
    }
}

fn check<R: CompletionRule>(rule: &R, case: &Case, expected: &Expected) {
    let triplets: Vec<Parts> =
        case.triplets.iter().map(|[h, r, t]| (h.as_str(), r.as_str(), t.as_str())).collect();
    let scored = run(rule, &sentence("", &triplets), &corpus(case));
    // An abstention has the reward 0. A verdict carries an f32.
    assert_eq!(scored.reward.unwrap_or(0.0), expected.reward as f32, "{case:?}");
    assert_eq!(scored.count, expected.count, "{case:?}");
    let mut requests: Vec<String> = Vec::new();
    for query in expected.asked.iter().map(|words| words.join(" AND ")) {
        if !requests.contains(&query) {
            requests.push(query);
        }
    }
    assert_eq!(scored.requests, requests, "{case:?}");
}

fn corpus(case: &Case) -> FakeCorpus {
    let queries: Vec<(String, Option<u64>)> =
        case.counts.iter().map(|(words, count)| (words.join(" AND "), *count)).collect();
    let known: Vec<(&str, u64)> =
        queries.iter().filter_map(|(query, count)| Some((query.as_str(), (*count)?))).collect();
    let unknown = queries.iter().filter(|(_, count)| count.is_none());
    unknown.fold(counts(&known), |corpus, (query, _)| corpus.without(query))
}
