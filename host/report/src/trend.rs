//! The trend of a series.

use std::collections::BTreeMap;

/// Returns the statistic Z of the Mann–Kendall test, standard normal without a trend and above 0 for a
/// rising series; 0 for fewer than two distinct values. Corrected for ties and continuity.
pub(crate) fn mann_kendall(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mut score = 0.0;
    for (index, later) in values.iter().enumerate() {
        for earlier in &values[..index] {
            score += match later.total_cmp(earlier) {
                std::cmp::Ordering::Greater => 1.0,
                std::cmp::Ordering::Equal => 0.0,
                std::cmp::Ordering::Less => -1.0,
            };
        }
    }
    let spread = |size: f64| size * (size - 1.0) * (2.0 * size + 5.0);
    let mut ties: BTreeMap<u64, f64> = BTreeMap::new();
    for value in values {
        *ties.entry(value.to_bits()).or_default() += 1.0;
    }
    let tied: f64 = ties.values().map(|&count| spread(count)).sum();
    let variance = (spread(n) - tied) / 18.0;
    if score == 0.0 || variance <= 0.0 {
        return 0.0;
    }
    (score - f64::signum(score)) / variance.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: 5 rising values have S = 10 and a variance of 5 · 4 · 15 / 18 = 16.667, so Z = 9 / 4.0825.
    /// With the ties 1, 1 and 2, 2 of `1 1 2 2 3`, S = 8 and the variance is (300 − 2 · 18) / 18 = 14.667:
    /// Z = 7 / 3.8297.
    #[test]
    fn statistic_is_that_of_the_definition() {
        let close = |values: &[f64], expected: f64| {
            let z = mann_kendall(values);
            assert!((z - expected).abs() < 1e-4, "{values:?}: {z}, not {expected}");
        };
        close(&[1.0, 2.0, 3.0, 4.0, 5.0], 2.204_54);
        close(&[5.0, 4.0, 3.0, 2.0, 1.0], -2.204_54);
        close(&[1.0, 1.0, 2.0, 2.0, 3.0], 1.827_82);
        close(&[2.0, 1.0, 1.0, 2.0], 0.0);
        close(&[1.0, 1.0, 1.0], 0.0);
        close(&[], 0.0);
    }
}
