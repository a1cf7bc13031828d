//! How long to wait after a failure.

use std::time::{Duration, SystemTime};

/// Wait before the second attempt, without jitter.
const FIRST: Duration = Duration::from_millis(500);
/// No wait is longer, unless the server asks for it.
const LONGEST: Duration = Duration::from_secs(15);

/// The wait after so many failed attempts (at least 1). It doubles each time; between half of it and all of it is drawn, so
/// that clients that failed together do not come back together.
pub(crate) fn after(attempts: u32) -> Duration {
    let whole = FIRST.saturating_mul(1 << attempts.saturating_sub(1).min(16)).min(LONGEST);
    whole.mul_f64(0.5 + 0.5 * fastrand::f64())
}

/// What a `Retry-After` header asks for: seconds, or a date. `None` where it is neither.
pub(crate) fn retry_after(header: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(seconds) = header.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(header.trim()).ok()?;
    Some(date.duration_since(now).unwrap_or_default()) // a date that is past asks for no wait
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit() {
        for (attempts, whole) in [(1, 0.5), (2, 1.0), (4, 4.0), (6, 15.0), (u32::MAX, 15.0)] {
            for _ in 0..50 {
                let wait = after(attempts).as_secs_f64();
                assert!((whole / 2.0..=whole).contains(&wait), "{wait} s after {attempts} attempts");
            }
        }
    }

    #[test]
    fn servers_may_ask_in_seconds_or_by_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        assert_eq!(retry_after("7", now), Some(Duration::from_secs(7)));
        let in_a_minute = httpdate::fmt_http_date(now + Duration::from_secs(60));
        assert_eq!(retry_after(&in_a_minute, now), Some(Duration::from_secs(60)));
        assert_eq!(retry_after(&httpdate::fmt_http_date(SystemTime::UNIX_EPOCH), now), Some(Duration::ZERO));
        assert_eq!(retry_after("soon", now), None);
    }
}
