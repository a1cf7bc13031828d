//! Mean and standard deviation of a sample.

/// Returns the mean; 0 for no values.
#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// Returns the n − 1 standard deviation; 0 for fewer than two values.
#[must_use]
pub fn unbiased_std(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unbiased_std_divides_by_n_minus_one() {
        assert_eq!((mean(&[]), unbiased_std(&[])), (0.0, 0.0));
        assert_eq!((mean(&[3.0]), unbiased_std(&[3.0])), (3.0, 0.0));
        assert_eq!((mean(&[1.0, 3.0]), unbiased_std(&[1.0, 3.0])), (2.0, 2f64.sqrt()));
    }
}
