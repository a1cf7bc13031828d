//! Confidence intervals of shares, and of a bootstrap's draws.

/// Two-sided 95 % quantile of the normal distribution.
pub const Z: f64 = 1.959_963_984_540_054;
/// Number of draws of a bootstrap.
pub const DRAWS: usize = 2_000;
/// Share of the draws outside an interval, on either side.
const TAIL: f64 = 0.025;

/// Returns Wilson's 95 % interval for `correct` out of `n`; 0 to 1 if `n` is 0.
#[must_use]
pub fn wilson(correct: u64, n: u64) -> (f64, f64) {
    if n == 0 { (0.0, 1.0) } else { wilson_of(correct as f64 / n as f64, n as f64) }
}

/// Returns Wilson's 95 % interval for a share of `n` independent trials; `n` is above 0 and may be
/// fractional.
#[must_use]
pub fn wilson_of(share: f64, n: f64) -> (f64, f64) {
    let z2 = Z * Z;
    let centre = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = Z / (1.0 + z2 / n) * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
    ((centre - half).max(0.0), (centre + half).min(1.0))
}

/// Returns the 95 % interval of a bootstrap's draws; `None` without draws.
#[must_use]
pub fn percentile_interval(mut draws: Vec<f64>) -> Option<(f64, f64)> {
    draws.sort_by(f64::total_cmp);
    let cut = (TAIL * draws.len() as f64) as usize;
    let low = *draws.get(cut)?;
    Some((low, draws[draws.len() - 1 - cut]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_interval_excludes_as_many_draws_on_either_side() {
        let draws = (0..1000_u32).rev().map(f64::from).collect();
        assert_eq!(percentile_interval(draws), Some((25.0, 974.0)));
        assert_eq!(percentile_interval(vec![7.0]), Some((7.0, 7.0)));
        assert_eq!(percentile_interval(Vec::new()), None);
    }

    #[test]
    fn wilson_interval_matches_paper_table() {
        let percent = |(low, high): (f64, f64)| {
            [(low * 1000.0).round() / 10.0, (high * 1000.0).round() / 10.0]
        };
        assert_eq!(percent(wilson(48, 200)), [18.6, 30.4]);
        assert_eq!(percent(wilson(53, 100)), [43.3, 62.5]);
        assert_eq!(percent(wilson(162, 200)), [75.0, 85.8]);
    }
}
