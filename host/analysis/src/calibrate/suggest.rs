//! Settings of the shipped rules that follow from a table.

use serde::Serialize;
use serde_json::{Value, json};

use super::table::{BucketShare, LEVEL, Share, Trend};

/// The first threshold of `first` is 2 or above: counts of 0 and from 1 on have rewards of their
/// own.
const FIRST_THRESHOLD: u64 = 2;
/// The rewards of the lowest and the highest tier: the paper's, so that the rule keeps its weight
/// beside the judge.
const REWARDS: (f64, f64) = (-0.3, 0.1);

/// Settings as a configuration file has them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Suggestion {
    /// What is set.
    pub rule: RuleSuggestion,
}

/// The section `rule`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RuleSuggestion {
    /// A shipped rule's file.
    pub plugin: String,
    /// Its settings.
    pub settings: Value,
}

impl Suggestion {
    fn new(rule: &str, settings: Value) -> Self {
        Self { rule: RuleSuggestion { plugin: format!("{rule}.wasm"), settings } }
    }
}

/// Counts that are paid alike.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Tier {
    from: u64,
    share: Share,
}

/// Settings of `first` and `calibrated`, in this order. Only `calibrated`'s where the shares do not
/// rise by more than chance: there is then nothing to pay tiers for.
#[must_use]
pub fn suggest(buckets: &[BucketShare]) -> Vec<Suggestion> {
    let tiers = tiers(buckets);
    let of_first = (tiers.len() > 1)
        .then(|| Suggestion::new("first", json!({ "tiers": step_function(&tiers) })));
    // The first row begins at 0, whatever the lowest count that was labelled.
    let row = |(n, bucket): (usize, &BucketShare)| {
        let from = if n == 0 { 0 } else { bucket.bucket.from };
        (from, bucket.share.correct, bucket.share.n)
    };
    let audit: Vec<(u64, u64, u64)> = buckets.iter().enumerate().map(row).collect();
    of_first.into_iter().chain([Suggestion::new("calibrated", json!({ "audit": audit }))]).collect()
}

/// Merges neighbours that fall, or rise by no more than chance, the most alike first, until all
/// rise.
fn tiers(buckets: &[BucketShare]) -> Vec<Tier> {
    let mut tiers: Vec<Tier> = buckets
        .iter()
        .map(|bucket| Tier { from: bucket.bucket.from, share: bucket.share })
        .collect();
    let rise = |pair: &[Tier]| {
        Trend::of(&[pair[0].share, pair[1].share]).unwrap_or(Trend { z: 0.0, p: 1.0 })
    };
    loop {
        let rises = tiers.windows(2).map(rise).enumerate();
        let Some((place, least)) = rises.min_by(|(_, one), (_, other)| one.z.total_cmp(&other.z))
        else {
            break;
        };
        if least.z > 0.0 && least.p < LEVEL {
            break;
        }
        let merged = tiers.remove(place + 1).share;
        let share = tiers[place].share;
        tiers[place].share =
            Share::of(share.correct + merged.correct, share.n + merged.n).unwrap_or(share);
    }
    tiers
}

/// The setting `tiers`: rewards rise with the share in a straight line.
fn step_function(tiers: &[Tier]) -> Value {
    let (lowest, highest) = (tiers[0].share.share, tiers[tiers.len() - 1].share.share);
    let reward = |share: f64| {
        let reward = REWARDS.0 + (REWARDS.1 - REWARDS.0) * (share - lowest) / (highest - lowest);
        (100.0 * reward).round() / 100.0 + 0.0 // without −0
    };
    let at = |count: u64| {
        let tier = tiers.iter().rfind(|tier| count >= tier.from).unwrap_or(&tiers[0]);
        reward(tier.share.share)
    };
    let thresholds: Vec<u64> =
        tiers[1..].iter().map(|tier| tier.from).filter(|&from| from >= FIRST_THRESHOLD).collect();
    let rewards: Vec<f64> = [0, 1].into_iter().chain(thresholds.iter().copied()).map(at).collect();
    json!({ "thresholds": thresholds, "rewards": rewards })
}

#[cfg(test)]
mod tests {
    use super::super::table::{
        calibrate,
        tests::{PAPER, annotated},
    };
    use super::*;

    fn settings(table: &[(u64, u64, u64)]) -> Vec<(String, Value)> {
        let buckets = calibrate(&annotated(table)).unwrap().buckets;
        suggest(&buckets)
            .into_iter()
            .map(|suggestion| (suggestion.rule.plugin, suggestion.rule.settings))
            .collect()
    }

    #[test]
    fn suggested_thresholds_match_paper_table() {
        let [(first, tiers), (calibrated, audit)] = <[_; 2]>::try_from(settings(&PAPER)).unwrap();
        assert_eq!((first.as_str(), calibrated.as_str()), ("first.wasm", "calibrated.wasm"));
        assert_eq!(
            tiers,
            json!({"tiers": {"thresholds": [5, 20], "rewards": [-0.3, -0.1, 0.03, 0.1]}})
        );
        assert_eq!(
            audit,
            json!({"audit": [[0, 48, 200], [1, 53, 100], [5, 70, 100], [10, 73, 100], [20, 162, 200]]})
        );
    }

    #[test]
    fn suggestion_omits_threshold_at_count_one() {
        let tiers = |table: &[(u64, u64, u64)]| settings(table)[0].1["tiers"].clone();
        assert_eq!(
            tiers(&[(0, 10, 100), (3, 90, 100)]),
            json!({"thresholds": [], "rewards": [-0.3, 0.1]})
        );
        let late = tiers(&[(0, 10, 100), (3, 12, 100), (9, 90, 100)]);
        assert_eq!(late, json!({"thresholds": [5], "rewards": [-0.3, -0.3, 0.1]}));
    }

    #[test]
    fn falling_shares_are_pooled() {
        let fallen = settings(&[(0, 10, 100), (3, 60, 100), (9, 40, 100), (20, 90, 100)]);
        assert_eq!(fallen[0].1["tiers"]["thresholds"], json!([20]));
        let nothing = settings(&[(0, 50, 100), (3, 52, 100), (20, 49, 100)]);
        assert_eq!(nothing.len(), 1, "no tiers to pay for: {nothing:?}");
        assert_eq!(settings(&[(3, 5, 10)])[0].1, json!({"audit": [[0, 5, 10]]}));
    }
}
