//! Suggests settings of the shipped rules from a calibration table.

use serde::Serialize;
use serde_json::{Value, json};

use super::table::{BucketShare, CorrectShare, LEVEL, Trend};

/// Lowest threshold of `first`, which has separate rewards for counts of 0 and from 1 on.
const FIRST_THRESHOLD: u64 = 2;
/// Rewards of the lowest and the highest tier: the paper's, so that the rule's weight relative to the
/// judge does not change.
const REWARDS: (f64, f64) = (-0.3, 0.1);

/// Suggested settings, in the form of a configuration file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Suggestion {
    /// Section `rule` of the settings.
    pub rule: RuleSuggestion,
}

/// Section `rule` of a suggestion.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RuleSuggestion {
    /// File of a shipped rule.
    pub plugin: String,
    /// Settings of the rule.
    pub settings: Value,
}

impl Suggestion {
    fn new(rule: &str, settings: Value) -> Self {
        Self { rule: RuleSuggestion { plugin: format!("{rule}.wasm"), settings } }
    }
}

/// Range of counts with one reward.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Tier {
    from: u64,
    share: CorrectShare,
}

/// Suggests settings of `first` and of `calibrated`, in this order. Only of `calibrated` if the shares
/// do not rise by more than chance, since tiers would then have no effect.
#[must_use]
pub fn suggest(buckets: &[BucketShare]) -> Vec<Suggestion> {
    let tiers = tiers(buckets);
    let mut suggestions = Vec::new();
    if tiers.len() > 1 {
        suggestions.push(Suggestion::new("first", json!({ "tiers": step_function(&tiers) })));
    }
    let mut labels = Vec::with_capacity(buckets.len());
    for (index, BucketShare { bucket, share }) in buckets.iter().enumerate() {
        // The first row begins at 0, even if the lowest labelled count is larger.
        let from = if index == 0 { 0 } else { bucket.from };
        labels.push((from, share.correct, share.n));
    }
    suggestions.push(Suggestion::new("calibrated", json!({ "labels": labels })));
    suggestions
}

/// Merges neighbours whose shares fall, or rise by no more than chance, smallest rise first, until
/// all rise.
fn tiers(buckets: &[BucketShare]) -> Vec<Tier> {
    let mut tiers: Vec<Tier> = buckets
        .iter()
        .map(|bucket| Tier { from: bucket.bucket.from, share: bucket.share })
        .collect();
    while let Some((index, rise)) = smallest_rise(&tiers) {
        if rise.z > 0.0 && rise.p < LEVEL {
            break;
        }
        let higher = tiers.remove(index + 1).share;
        tiers[index].share = tiers[index].share.merge(higher);
    }
    tiers
}

/// Returns the smallest rise between neighbours, and the index of the lower one; `None` for a single
/// tier.
fn smallest_rise(tiers: &[Tier]) -> Option<(usize, Trend)> {
    let mut smallest: Option<(usize, Trend)> = None;
    for (index, pair) in tiers.windows(2).enumerate() {
        let rise = Trend::new(&[pair[0].share, pair[1].share]).unwrap_or(Trend { z: 0.0, p: 1.0 });
        if smallest.is_none_or(|(_, known)| rise.z.total_cmp(&known.z).is_lt()) {
            smallest = Some((index, rise));
        }
    }
    smallest
}

/// Returns the setting `tiers`. Rewards rise linearly with the share.
fn step_function(tiers: &[Tier]) -> Value {
    let lowest = tiers[0].share.share;
    let highest = tiers[tiers.len() - 1].share.share;
    let thresholds: Vec<u64> =
        tiers[1..].iter().map(|tier| tier.from).filter(|&from| from >= FIRST_THRESHOLD).collect();
    let mut rewards = Vec::with_capacity(thresholds.len() + 2);
    for count in [0, 1].into_iter().chain(thresholds.iter().copied()) {
        let tier = tiers.iter().rfind(|tier| count >= tier.from).unwrap_or(&tiers[0]);
        let position = tier.share.share - lowest;
        let reward = REWARDS.0 + (REWARDS.1 - REWARDS.0) * position / (highest - lowest);
        rewards.push((100.0 * reward).round() / 100.0 + 0.0); // + 0 turns −0 into 0
    }
    json!({ "thresholds": thresholds, "rewards": rewards })
}

#[cfg(test)]
mod tests {
    use super::super::table::{
        calibrate,
        tests::{PAPER, annotated, of_ten_each},
    };
    use super::*;
    use crate::calibrate::Annotated;

    fn settings(table: &[(u64, u64, u64)]) -> Vec<(String, Value)> {
        settings_of(&annotated(table))
    }

    fn settings_of(annotated: &Annotated) -> Vec<(String, Value)> {
        let buckets = calibrate(annotated).unwrap().buckets;
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
            json!({"labels": [[0, 48, 200], [1, 53, 100], [5, 70, 100], [10, 73, 100], [20, 162, 200]]})
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
        assert_eq!(nothing.len(), 1, "no tiers: {nothing:?}");
        assert_eq!(settings(&[(3, 5, 10)])[0].1, json!({"labels": [[0, 5, 10]]}));
    }

    /// By effective sentences, 14 and 7, the last share differs from the first two together with
    /// p = 0.094; with p = 0.028 if the first two had 160 independent ones.
    #[test]
    fn merged_tier_has_effective_sentences_of_both() {
        let clustered = settings_of(&of_ten_each(&[(0, 2, 8), (3, 2, 8), (9, 5, 8)]));
        assert_eq!(clustered.len(), 1, "no tiers: {clustered:?}");
        let independent = settings(&[(0, 20, 80), (3, 20, 80), (9, 50, 80)]);
        assert_eq!(independent[0].1["tiers"]["thresholds"], json!([5]));
    }
}
