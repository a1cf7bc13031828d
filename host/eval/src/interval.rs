//! Confidence intervals of shares.

/// The two-sided 95 % quantile of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

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

#[cfg(test)]
mod tests {
    use super::*;

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
