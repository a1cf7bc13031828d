//! Number formats of the pages.

/// Formats a number with at least three significant digits, and a true minus sign.
#[must_use]
pub fn short(value: f64) -> String {
    let size = value.abs();
    let decimals = match size {
        _ if size >= 100.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        _ if size >= 0.001 || size == 0.0 => 3,
        _ => return signed(format!("{value:.1e}")),
    };
    signed(format!("{value:.decimals$}"))
}

/// Formats a number with two decimals and a sign, also if it is positive.
#[must_use]
pub fn with_sign(value: f64) -> String {
    let value = if value.abs() < 0.005 { 0.0 } else { value };
    signed(if value == 0.0 { "0.00".to_owned() } else { format!("{value:+.2}") })
}

/// Formats a share in per cent, with a non-breaking space.
#[must_use]
pub fn percent(share: f64) -> String {
    signed(format!("{:.1}\u{a0}%", 100.0 * share))
}

/// Replaces a leading hyphen by a minus sign.
#[must_use]
pub fn signed(text: String) -> String {
    match text.strip_prefix('-') {
        Some(rest) => format!("−{rest}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        assert_eq!(
            [1234.5, 12.34, 1.234, 0.1234, 0.0].map(short),
            ["1234", "12.3", "1.23", "0.123", "0.000"]
        );
        assert_eq!([-0.000_012_3, -4.0].map(short), ["−1.2e-5", "−4.00"]);
        assert_eq!([0.1, -0.3, -0.001].map(with_sign), ["+0.10", "−0.30", "0.00"]);
        assert_eq!(percent(0.777), "77.7\u{a0}%");
    }
}
